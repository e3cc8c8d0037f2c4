"""The settings of remote log metadata in a broker's server.properties (`--broker-config server.properties`).

Source: RemoteLogManager.configureRLMM and TopicBasedRemoteLogMetadataManagerConfig. Only settings with the
prefix of `remote.log.metadata.manager.impl.prefix` (default `rlmm.config.`) reach the metadata manager.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.kafka.client_settings import ClientSettings, option_of, split_servers
from tierctl.model.settings import broker, clients
from tierctl.model.settings import clients as manager
from tierctl.model.settings.known import require_no_references
from tierctl.model.settings.scopes import SettingSource, StatedSettings
from tierctl.wire.files.properties import read_client_file, read_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """Settings for creating the metadata topic (remote.log.metadata.topic.*), with Kafka's defaults."""

    num_partitions: int = manager.TOPIC_PARTITIONS.value({})
    replication_factor: int = manager.TOPIC_REPLICATION_FACTOR.value({})
    retention_ms: int = manager.TOPIC_RETENTION_MS.value({})
    min_isr: int = manager.TOPIC_MIN_ISR.value({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataClients:
    """Settings of the three kinds of client of the metadata topic; server.properties may tell them apart."""

    admin: ClientSettings
    producer: ClientSettings
    consumer: ClientSettings
    refused: UsageError | None = None
    """Why the clients have only servers: a wrong setting, or a login that tierctl does not have."""

    def readable(self) -> Self:
        """Return the clients; raise UsageError if their settings were not read."""
        if self.refused is not None:
            raise self.refused
        return self

    @classmethod
    def same(cls, settings: ClientSettings) -> Self:
        """Return the same settings for all three clients."""
        return cls(admin=settings, producer=settings, consumer=settings)

    def at(self, servers: str, source: str) -> Self:
        """Return the same clients of the servers `host:port,…`; UsageError, with `source`, if malformed."""
        addresses = split_servers(servers, source)
        return replace(
            self,
            admin=replace(self.admin, bootstrap_servers=addresses, servers_from=source),
            producer=replace(self.producer, bootstrap_servers=addresses, servers_from=source),
            consumer=replace(self.consumer, bootstrap_servers=addresses, servers_from=source),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A broker's settings of remote log metadata.

    `expected_partitions` is the number of metadata partitions, None if the file does not set it.
    `clients` have no servers if the file names none.
    """

    clients: MetadataClients
    topic: MetadataTopicSettings
    expected_partitions: int | None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a server.properties file; raise UsageError if it is unreadable or has an invalid value."""
        return cls.from_properties(broker_file(path), str(path))

    @classmethod
    def from_properties(cls, settings: Mapping[str, str], source: str = "server.properties") -> Self:
        """Return the settings among Kafka's names and values; `source` names their file in errors."""
        given = manager_settings(StatedSettings.of(settings).stripped())
        require_no_references(given, (row.name for row in manager.METADATA_MANAGERS if row.acted_on), source)
        topic = MetadataTopicSettings(
            num_partitions=manager.TOPIC_PARTITIONS.value(given, source),
            replication_factor=manager.TOPIC_REPLICATION_FACTOR.value(given, source),
            retention_ms=manager.TOPIC_RETENTION_MS.value(given, source),
            min_isr=manager.TOPIC_MIN_ISR.value(given, source),
        )
        return cls(
            clients=_clients(given, source),
            topic=topic,
            expected_partitions=manager.TOPIC_PARTITIONS.given(given, source),
        )


def broker_file(path: Path) -> StatedSettings:
    """Return the settings in a broker's server.properties; raise UsageError if it can't be read."""
    return read_properties(path, SettingSource.BROKER_FILE)


def manager_settings(given: StatedSettings) -> StatedSettings:
    """Return all settings, with those of the metadata manager without its prefix, as it receives them.

    A broker gives it no setting without the prefix, which doctor reports.
    """
    prefix = broker.METADATA_MANAGER_PREFIX.value(given)
    found = broker.metadata_listener(given)
    names = (clients.BOOTSTRAP_SERVERS.name, clients.SECURITY_PROTOCOL.name)
    endpoint = {
        f"{manager.COMMON_CLIENT_PREFIX}{name}": value
        for name, value in zip(names, found or (), strict=False)
    }
    others = {name: name for name in given if not (prefix and _is_of_manager(name))}
    return StatedSettings.of(endpoint) | given.only(others) | (given.below(prefix) if prefix else {})


def _is_of_manager(name: str) -> bool:
    return name in manager.METADATA_MANAGERS or name.startswith(manager.CLIENT_PREFIXES)


def _clients(given: StatedSettings, source: str) -> MetadataClients:
    """Return the clients that the settings state; if they can't be read, their servers and the reason.

    It is no error yet: with --command-config, the file need not state a login that tierctl has.
    """
    common = _below(given, manager.COMMON_CLIENT_PREFIX)
    understood = clients.UNDERSTOOD - {clients.BOOTSTRAP_SERVERS.name}
    references = [f"{prefix}{name}" for prefix in manager.CLIENT_PREFIXES for name in understood]

    def read(only: Mapping[str, str] | None = None, refused: UsageError | None = None) -> MetadataClients:
        def of(prefix: str) -> ClientSettings:
            stated = common | _below(given, prefix)
            return ClientSettings.from_properties(stated if only is None else stated.only(only), source)

        admin, producer, consumer = map(
            of, (manager.ADMIN_PREFIX, manager.PRODUCER_PREFIX, manager.CONSUMER_PREFIX)
        )
        return MetadataClients(admin=admin, producer=producer, consumer=consumer, refused=refused)

    try:
        require_no_references(given, references, source)
        return read()
    except UsageError as e:
        return read({clients.BOOTSTRAP_SERVERS.name: clients.BOOTSTRAP_SERVERS.name}, e)


def _below(given: StatedSettings, prefix: str) -> StatedSettings:
    own = given.below(prefix)
    return own.only({name: name for name in own if name not in clients.SERIALIZERS})


def metadata_clients(
    servers: str, command_config: Path | None, server: ServerSettings, *, option: str
) -> MetadataClients:
    """Return the clients of the metadata topic at `servers` of `option` (`host:port,…`; "": the files').

    The settings in `command_config`, a client's .properties file, replace those of `server`. Raise
    UsageError.
    """
    clients = server.clients
    if command_config is not None:
        own = ClientSettings.from_properties(read_client_file(command_config), str(command_config))
        found = ",".join(own.bootstrap_servers or clients.admin.bootstrap_servers)
        source = own.servers_from if own.bootstrap_servers else clients.admin.servers_from
        clients = MetadataClients.same(own).at(found, source)
    return (clients.at(servers, option) if servers else clients).readable()


def cluster_client(
    bootstrap: str,
    *,
    command_config: Path | None = None,
    broker_config: Path | None = None,
    option: str | None = None,
) -> ClientSettings:
    """Return the client settings of the cluster at `bootstrap`: `host:port,…` or kafka://host:port,….

    `command_config` is a client's .properties. Without it, a broker's `broker_config` says how its own
    metadata clients connect. `option` as for `ClientSettings.of`. Raises UsageError.
    """
    if command_config is None and broker_config is not None:
        clients = ServerSettings.read(broker_config).clients
        servers = bootstrap.removeprefix("kafka://").rstrip("/")
        return (clients.at(servers, option or option_of(bootstrap)) if servers else clients).readable().admin
    return ClientSettings.of(bootstrap, command_config, option)
