"""What a broker's own server.properties says of remote log metadata (`--config server.properties`).

Source: RemoteLogManager.configureRLMM and TopicBasedRemoteLogMetadataManagerConfig. Settings under
`remote.log.metadata.manager.impl.prefix` (default `rlmm.config.`) go before the same ones without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.kafka.client_settings import ClientSettings, read_properties, split_servers
from tierctl.kafka.topic_settings import MetadataClients, MetadataTopicSettings

_METADATA = "remote.log.metadata."
_COMMON = f"{_METADATA}common.client."
_TOPIC = f"{_METADATA}topic."
_PREFIX_KEY = f"{_METADATA}manager.impl.prefix"
_LISTENER_KEY = f"{_METADATA}manager.listener.name"
# Of a client's settings only what says how to reach the cluster differs between its kinds here.
_SERIALIZERS = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A broker's view of the metadata topic.

    `expected_partitions` is None when the file doesn't say how many there are; `task_interval_ms` is
    remote.log.manager.task.interval.ms. `clients` has no servers when the file names none.
    """

    clients: MetadataClients
    topic: MetadataTopicSettings
    expected_partitions: int | None
    task_interval_ms: int
    remote_storage_enabled: bool

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file; UsageError when it can't be read, or what it says can't work."""
        return cls.from_properties(read_properties(path), str(path))

    @classmethod
    def from_properties(cls, settings: Mapping[str, str], source: str = "server.properties") -> Self:
        """From Kafka's names and values."""
        given = _manager_settings({key: value.strip() for key, value in settings.items()})
        count = f"{_TOPIC}num.partitions"
        number = _Numbers(given, source)
        topic = MetadataTopicSettings(
            num_partitions=number(count, 50, least=1),
            replication_factor=number(f"{_TOPIC}replication.factor", 3, least=1),
            retention_ms=number(f"{_TOPIC}retention.ms", -1, least=-1),
            min_isr=number(f"{_TOPIC}min.isr", 2, least=1),
        )
        return cls(
            clients=_clients(given, source),
            topic=topic,
            expected_partitions=topic.num_partitions if count in given else None,
            task_interval_ms=number("remote.log.manager.task.interval.ms", 30_000, least=1),
            remote_storage_enabled=given.get("remote.log.storage.system.enable", "").lower() == "true",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Settings that were left aside."""
        clients = (self.clients.admin, self.clients.producer, self.clients.consumer)
        return tuple(dict.fromkeys(note for client in clients for note in client.notes))


def _manager_settings(given: Mapping[str, str]) -> dict[str, str]:
    """All settings, with those of the metadata manager's prefix also without it."""
    prefix = given.get(_PREFIX_KEY, "rlmm.config.")
    own = {
        key.removeprefix(prefix): value for key, value in given.items() if prefix and key.startswith(prefix)
    }
    endpoint = _endpoint(given)
    return {**endpoint, **given, **own}


def _endpoint(given: Mapping[str, str]) -> dict[str, str]:
    """Servers and protocol of the listener that the broker's own metadata manager uses."""
    name = given.get(_LISTENER_KEY, "").upper()
    if not name:
        return {}
    protocols = dict(
        part.strip().upper().split(":", 1)
        for part in given.get("listener.security.protocol.map", "").split(",")
        if ":" in part
    )
    for key in ("advertised.listeners", "listeners"):
        for listener in given.get(key, "").split(","):
            its_name, _, address = listener.strip().partition("://")
            if its_name.upper() == name:
                host, _, port = address.rpartition(":")
                host = "localhost" if host in {"", "0.0.0.0", "[::]"} else host
                return {
                    f"{_COMMON}bootstrap.servers": f"{host}:{port}",
                    f"{_COMMON}security.protocol": protocols.get(name, name),
                }
    return {}


def _clients(given: Mapping[str, str], source: str) -> MetadataClients:
    common = _below(given, _COMMON)

    def of(kind: str) -> ClientSettings:
        return ClientSettings.from_properties({**common, **_below(given, f"{_METADATA}{kind}.")}, source)

    return MetadataClients(admin=of("admin"), producer=of("producer"), consumer=of("consumer"))


def _below(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    return {key: value for key, value in own.items() if key not in _SERIALIZERS}


@dataclass(frozen=True, slots=True)
class _Numbers:
    given: Mapping[str, str]
    source: str

    def __call__(self, key: str, default: int, *, least: int) -> int:
        text = self.given.get(key)
        try:
            number = default if text is None else int(text)
        except ValueError:
            raise UsageError(f"{self.source}: {key}={text!r} is no whole number") from None
        if number < least:
            raise UsageError(f"{self.source}: {key}={text} is less than {least}")
        return number


def at_servers(clients: MetadataClients, servers: str, source: str) -> MetadataClients:
    """The same clients of other servers, `host:port,…`."""
    where = split_servers(servers, source)
    return MetadataClients(
        admin=replace(clients.admin, bootstrap_servers=where),
        producer=replace(clients.producer, bootstrap_servers=where),
        consumer=replace(clients.consumer, bootstrap_servers=where),
    )
