"""Find the settings of one broker that contradict each other, and those that damage the metadata topic.

Sources: RemoteLogManagerConfig, RemoteLogManager.configureRLMM, TopicBasedRemoteLogMetadataManagerConfig.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tierctl.model.configs import BrokerDefaults
from tierctl.model.conflicts.metadata_topic import metadata_topic_conflicts
from tierctl.model.conflicts.table import Conflict, ConflictKind
from tierctl.model.conflicts.topics import conflict, topic_conflicts
from tierctl.model.settings import broker, client, topic
from tierctl.model.settings import metadata_manager as manager
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion

_STATES = {
    topic.MIN_INSYNC_REPLICAS.name: (manager.TOPIC_REPLICATION_FACTOR, manager.TOPIC_MIN_ISR),
    topic.RETENTION_MS.name: (manager.TOPIC_RETENTION_MS,),
    topic.RETENTION_BYTES.name: (),
}
"""The settings of the metadata manager that state a setting of the topic that it makes."""
_LOCAL_TIERED_STORAGE = "LocalTieredStorage"
_DELETE_ON_CLOSE = "delete.on.close"


def broker_conflicts(settings: Mapping[str, str], version: KafkaVersion = LATEST) -> Iterator[Conflict]:
    """Yield the conflicts in the settings of one broker, as its server.properties states them.

    Names that `settings` does not have are at Kafka's default. Raise UsageError for an invalid value. A
    broker without remote.log.storage.system.enable=true has no conflicts.
    """
    enable = broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
    if not enable.value(settings):
        return
    plugin = settings.get(broker.STORAGE_MANAGER_CLASS.name, "").strip()
    if not plugin:
        yield conflict(ConflictKind.NO_STORAGE_MANAGER, settings, enable)
    elif plugin.rpartition(".")[2] == _LOCAL_TIERED_STORAGE:
        yield from _of_local_tiered_storage(settings)
    if "compact" in broker.LOG_CLEANUP_POLICY.value(settings):
        yield conflict(ConflictKind.TIERING_DEFAULT_COMPACTED, settings, broker.LOG_CLEANUP_POLICY)
    yield from _of_topic_defaults(settings, version)
    yield from _of_metadata_manager(settings, version)


def _of_topic_defaults(settings: Mapping[str, str], version: KafkaVersion) -> Iterator[Conflict]:
    """Yield the conflicts for which brokers do not start (LogConfig.validateBrokerLogConfigValues)."""
    tiered = {topic.REMOTE_STORAGE_ENABLE.name: "true"}
    defaults = BrokerDefaults(version=version, settings=settings).in_force(tiered)
    for found in topic_conflicts(defaults, version):
        if found.kind is ConflictKind.LOCAL_RETENTION_ABOVE_RETENTION:
            yield replace(found, found=f"defaults of topics: {found.found}")


def _of_local_tiered_storage(settings: Mapping[str, str]) -> Iterator[Conflict]:
    yield conflict(ConflictKind.TEST_STORAGE_MANAGER, settings, broker.STORAGE_MANAGER_CLASS)
    name = f"{broker.STORAGE_MANAGER_PREFIX.value(settings)}{_DELETE_ON_CLOSE}"
    if settings.get(name, "").strip().lower() == "true":
        yield Conflict(kind=ConflictKind.TIER_DELETED_ON_CLOSE, names=(name,), found=f"{name}=true")


def _of_metadata_manager(settings: Mapping[str, str], version: KafkaVersion) -> Iterator[Conflict]:
    """Yield the conflicts of the metadata manager, and of the metadata topic that it makes."""
    if broker.METADATA_MANAGER_CLASS.value(settings) != broker.METADATA_MANAGER_CLASS.kafka_default:
        return
    prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
    yield from _of_listener(settings, prefix)
    for name in sorted(settings):
        if prefix and name in manager.TABLE:
            kind = ConflictKind.METADATA_SETTING_WITHOUT_PREFIX
            yield Conflict(kind=kind, names=(name,), found=f"{name}={settings[name]}")
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    row, retention_ms = manager.TOPIC_MIN_ISR, manager.TOPIC_RETENTION_MS.value(own)
    # Before Kafka 4.2 the topic is made with the min.insync.replicas of the brokers.
    min_isr = row.value(own) if version.includes(row.since) else topic.MIN_INSYNC_REPLICAS.value(settings)
    made = {topic.MIN_INSYNC_REPLICAS.name: str(min_isr), topic.RETENTION_MS.name: str(retention_ms)}
    for found in metadata_topic_conflicts(made, manager.TOPIC_REPLICATION_FACTOR.value(own)):
        stated = tuple(f"{prefix}{row.name}" for name in found.names for row in _STATES[name])
        yield replace(found, names=stated, found=f"metadata topic: {found.found}")


def _of_listener(settings: Mapping[str, str], prefix: str) -> Iterator[Conflict]:
    """Yield the conflict of a metadata manager without an address."""
    if f"{prefix}{manager.COMMON_CLIENT_PREFIX}{client.BOOTSTRAP_SERVERS.name}" in settings:
        return
    name = settings.get(broker.METADATA_MANAGER_LISTENER.name, "").strip()
    listeners = broker.LISTENERS.value(settings)
    known = {each.partition("://")[0].upper() for each in listeners}
    if name.upper() not in known:
        rows = (broker.METADATA_MANAGER_LISTENER, broker.LISTENERS)
        found = f"{rows[0].name}={name or '(none)'}, {rows[1].name}={','.join(listeners)}"
        kind = ConflictKind.NO_METADATA_LISTENER
        yield Conflict(kind=kind, names=tuple(row.name for row in rows), found=found)
