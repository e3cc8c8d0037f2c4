"""The settings of remote log metadata in a broker's server.properties (`--config server.properties`).

Source: RemoteLogManager.configureRLMM and TopicBasedRemoteLogMetadataManagerConfig. A setting with the prefix
of `remote.log.metadata.manager.impl.prefix` (default `rlmm.config.`) overrides the same one without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.kafka.client_settings import ClientSettings, read_properties, split_servers

_METADATA = "remote.log.metadata."
_COMMON = f"{_METADATA}common.client."
_TOPIC = f"{_METADATA}topic."
_PREFIX_KEY = f"{_METADATA}manager.impl.prefix"
_LISTENER_KEY = f"{_METADATA}manager.listener.name"
# Brokers accept these among a client's settings; they have no meaning for tierctl's clients.
_SERIALIZERS = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """Settings for creating the metadata topic (remote.log.metadata.topic.*), with Kafka's defaults."""

    num_partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1
    min_isr: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataClients:
    """Settings of the three kinds of client of the metadata topic; server.properties may tell them apart."""

    admin: ClientSettings
    producer: ClientSettings
    consumer: ClientSettings

    @classmethod
    def same(cls, settings: ClientSettings) -> Self:
        """Return the same settings for all three clients."""
        return cls(admin=settings, producer=settings, consumer=settings)

    def at(self, servers: str, source: str) -> Self:
        """Return the same clients of the servers `host:port,…`; UsageError, with `source`, if malformed."""
        addresses = split_servers(servers, source)
        return type(self)(
            admin=replace(self.admin, bootstrap_servers=addresses),
            producer=replace(self.producer, bootstrap_servers=addresses),
            consumer=replace(self.consumer, bootstrap_servers=addresses),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A broker's settings of remote log metadata.

    `expected_partitions` is the number of metadata partitions, None if the file does not set it.
    `task_interval_ms` is remote.log.manager.task.interval.ms. `clients` have no
    servers if the file names none.
    """

    clients: MetadataClients
    topic: MetadataTopicSettings
    expected_partitions: int | None
    task_interval_ms: int
    remote_storage_enabled: bool

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a server.properties file; UsageError if it is unreadable or has an invalid value."""
        return cls.from_properties(read_properties(path), str(path))

    @classmethod
    def from_properties(cls, settings: Mapping[str, str], source: str = "server.properties") -> Self:
        """Return the settings among Kafka's names and values; `source` names their file in errors."""
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
        """Return a message for each client setting that tierctl ignores."""
        clients = (self.clients.admin, self.clients.producer, self.clients.consumer)
        return tuple(dict.fromkeys(note for client in clients for note in client.notes))


def _manager_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return all settings, those with the metadata manager's prefix also without the prefix."""
    prefix = given.get(_PREFIX_KEY, "rlmm.config.")
    own = {
        key.removeprefix(prefix): value for key, value in given.items() if prefix and key.startswith(prefix)
    }
    endpoint = _endpoint(given)
    return {**endpoint, **given, **own}


def _endpoint(given: Mapping[str, str]) -> dict[str, str]:
    """Return server and protocol of the listener that the broker's own metadata manager connects to."""
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


def metadata_clients(servers: str, command_config: Path | None, server: ServerSettings) -> MetadataClients:
    """Return the clients of the metadata topic at `servers` (`host:port,…`, "": those in the files).

    The settings in `command_config`, a client's .properties, replace those of `server`. Raises UsageError.
    """
    clients = server.clients
    if command_config is not None:
        own = ClientSettings.from_properties(read_properties(command_config), str(command_config))
        found = ",".join(own.bootstrap_servers or clients.admin.bootstrap_servers)
        clients = MetadataClients.same(own).at(found, str(command_config))
    return clients.at(servers, "--metadata") if servers else clients


def cluster_client(
    bootstrap: str, *, command_config: Path | None = None, server_config: Path | None = None
) -> ClientSettings:
    """Return the client settings of the cluster at `bootstrap`: `host:port,…` or kafka://host:port,….

    `command_config` is a client's .properties. Without it, a broker's `server_config` says how its own
    metadata clients connect. Raises UsageError.
    """
    if command_config is None and server_config is not None:
        clients = ServerSettings.read(server_config).clients
        servers = bootstrap.removeprefix("kafka://").rstrip("/")
        return (clients.at(servers, "--bootstrap-server") if servers else clients).admin
    return ClientSettings.of(bootstrap, command_config)
