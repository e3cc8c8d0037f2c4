"""Conflicts between settings: what Kafka accepts one by one, and refuses or mishandles together.

Exports `topic_conflicts`, `broker_conflicts` and `metadata_topic_conflicts`, which yield `Conflict`s of the
kinds in the table `ConflictKind`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tierctl.model.choices import RowEnum, Severity
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.selection import counted
from tierctl.model.settings import broker, clients, topic
from tierctl.model.settings import clients as manager
from tierctl.model.settings.scopes import LATEST, KafkaVersion, Setting
from tierctl.model.settings.topic import BrokerDefaults, is_above_local_retention

# The table of conflicts: values that Kafka accepts one by one, and refuses or mishandles together.
#
# `topic_conflicts` and `broker_conflicts` find them in settings; a new conflict is a row here and a condition
# in one of these functions.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRow:
    """The facts about one kind of conflict.

    `is_refused` states that Kafka refuses the settings: a topic is not changed, or a broker does not start.
    `ends_run` states that commands that change something refuse the settings, too.
    """

    name: str
    severity: Severity
    is_refused: bool = False
    ends_run: bool = False
    meaning: str
    fix: str


class ConflictKind(RowEnum):
    """The table: one member per kind of conflict, which is equal to its name in the output."""

    row: ConflictRow

    COMPACTED_AND_TIERED = ConflictRow(
        name="compacted_and_tiered",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="Kafka does not tier compacted topics: it refuses the settings.",
        fix="set cleanup.policy=delete, or remote.storage.enable=false",
    )
    LOCAL_RETENTION_ABOVE_RETENTION = ConflictRow(
        name="local_retention_above_retention",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="Brokers can't keep records longer on their disks than anywhere: Kafka refuses the settings.",
        fix="lower the local retention, or set it to -2, which is the retention itself",
    )
    COPY_DISABLED_WITH_LOCAL_RETENTION = ConflictRow(
        name="copy_disabled_with_local_retention",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="With remote.log.copy.disable nothing is copied any more, so a shorter local retention would "
        "delete the only copy: Kafka refuses the settings (KIP-950).",
        fix="set the local retention to -2, or to the same value as the retention",
    )
    COPY_LAG_ABOVE_LOCAL_RETENTION = ConflictRow(
        name="copy_lag_above_local_retention",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="Segments would be copied later than brokers may delete them from their disks (KIP-1241).",
        fix="lower the copy lag, or raise the local retention",
    )
    COPY_LAG_UNLIMITED = ConflictRow(
        name="copy_lag_unlimited",
        severity=Severity.ERROR,
        meaning="A copy lag of -1 is the local retention. If both lags are unlimited, brokers never copy a "
        "segment (KIP-1241).",
        fix="set one of the copy lags, 0 for copies at once, or a local retention",
    )
    LOCAL_RETENTION_EQUALS_RETENTION = ConflictRow(
        name="local_retention_equals_retention",
        severity=Severity.WARNING,
        meaning="Brokers keep everything on their disks that the tier has, too: tiering saves no disk space, "
        "and each record is paid for twice.",
        fix="set local.retention.ms or local.retention.bytes to less than the retention",
    )
    UNCLEAN_LEADER_ELECTION = ConflictRow(
        name="unclean_leader_election",
        severity=Severity.WARNING,
        meaning="After an unclean election the new leader copies segments again that the former leader had "
        "copied; brokers never delete some of the first copies, and records that only the former leader had "
        "are lost.",
        fix="set unclean.leader.election.enable=false",
    )
    FUTURE_TIMESTAMPS = ConflictRow(
        name="future_timestamps",
        severity=Severity.WARNING,
        meaning="Producers may write timestamps in the future. retention.ms deletes neither such a segment "
        "nor any behind it until that time has come, so the tier grows.",
        fix="set message.timestamp.after.max.ms (an hour by default) to no more than retention.ms, or "
        "message.timestamp.type=LogAppendTime; retention.bytes is a second limit",
    )
    DELETE_ON_DISABLE = ConflictRow(
        name="delete_on_disable",
        severity=Severity.WARNING,
        meaning="remote.storage.enable=false would delete all that the topic has in the tier, without a "
        "further question.",
        fix="set remote.log.delete.on.disable=false until the tier's data are to be deleted",
    )
    NO_STORAGE_MANAGER = ConflictRow(
        name="no_storage_manager",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="A broker with remote.log.storage.system.enable=true does not start without a plugin for "
        "the store.",
        fix="set remote.log.storage.manager.class.name, and .class.path unless Kafka's classpath has it",
    )
    PLUGIN_IS_INTERFACE = ConflictRow(
        name="plugin_is_interface",
        severity=Severity.ERROR,
        is_refused=True,
        ends_run=True,
        meaning="The class is Kafka's interface, of which no object can be made: a broker that tiers does "
        "not start.",
        fix="name a class that implements it, such as io.aiven.kafka.tieredstorage.RemoteStorageManager; "
        "without a class for the metadata manager, Kafka's TopicBasedRemoteLogMetadataManager is used",
    )
    THREADS_OF_FORMER_POOL = ConflictRow(
        name="threads_of_former_pool",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="-1 stood for remote.log.manager.thread.pool.size. Kafka 4.0 and later refuse it: the broker "
        "does not start (KIP-1030).",
        fix="remove the setting, which leaves 10 threads, or set it to at least 1",
    )
    CONTROLLER_DOES_NOT_TIER = ConflictRow(
        name="controller_does_not_tier",
        severity=Severity.ERROR,
        ends_run=True,
        meaning="Controllers decide about the settings of topics: one without "
        "remote.log.storage.system.enable=true refuses every topic with remote.storage.enable=true, whatever "
        "the brokers have.",
        fix="set remote.log.storage.system.enable=true on all controllers, and restart them one by one",
    )
    INTERNAL_TOPIC_TIERED = ConflictRow(
        name="internal_topic_tiered",
        severity=Severity.ERROR,
        ends_run=True,
        meaning="Brokers never tier internal topics: neither the setting nor a local retention has an "
        "effect.",
        fix="remove remote.storage.enable from the internal topic",
    )
    METADATA_CLIENTS_WITHOUT_LOGIN = ConflictRow(
        name="metadata_clients_without_login",
        severity=Severity.ERROR,
        ends_run=True,
        meaning="The listener of the metadata manager needs a login (SASL), and the settings give its "
        "clients none: they can't connect, so nothing is copied, and from Kafka 4.2 on the broker ends "
        "after two minutes. These clients use neither the listener's own settings nor those between brokers.",
        fix="state sasl.mechanism and sasl.jaas.config with the prefix "
        "rlmm.config.remote.log.metadata.common.client., and ssl.truststore.* if the listener uses TLS",
    )
    NO_METADATA_LISTENER = ConflictRow(
        name="no_metadata_listener",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="The broker's own clients of the metadata topic have no address to connect to: nothing is "
        "copied, or the broker does not start.",
        fix="set remote.log.metadata.manager.listener.name to one of the names in advertised.listeners, or "
        "in listeners if the former is not set, and to none of controller.listener.names",
    )
    TIERING_DEFAULT_COMPACTED = ConflictRow(
        name="tiering_default_compacted",
        severity=Severity.WARNING,
        meaning="Topics that state no cleanup.policy are compacted, and can't be tiered.",
        fix="set log.cleanup.policy=delete, or cleanup.policy=delete on every topic that is to be tiered",
    )
    METADATA_MIN_ISR_ABOVE_REPLICATION = ConflictRow(
        name="metadata_min_isr_above_replication",
        severity=Severity.ERROR,
        meaning="The metadata topic never has that many replicas. From Kafka 3.7 on their number counts "
        "instead; in 3.6 no broker can write to the topic: nothing is copied or deleted.",
        fix="set a replication factor of 3 and min.isr of 2",
    )
    METADATA_NO_SPARE_REPLICA = ConflictRow(
        name="metadata_no_spare_replica",
        severity=Severity.WARNING,
        meaning="While one replica of the metadata topic is down nothing is copied, local disks fill up, and "
        "expired segments stay.",
        fix="set a replication factor of 3 and min.isr of 2",
    )
    METADATA_FEW_REPLICAS = ConflictRow(
        name="metadata_few_replicas",
        severity=Severity.WARNING,
        meaning="Only the metadata topic says where the segments in the tier belong. If its replicas are "
        "lost, brokers find none of them.",
        fix="set a replication factor of 3 and min.isr of 2",
    )
    METADATA_LOW_MIN_ISR = ConflictRow(
        name="metadata_low_min_isr",
        severity=Severity.WARNING,
        meaning="An event counts as written when one broker has it. If that broker is lost, a segment that "
        "was copied is forgotten, although its local copy may be deleted.",
        fix="set min.insync.replicas=2 on the metadata topic",
    )
    METADATA_RETENTION = ConflictRow(
        name="metadata_retention",
        severity=Severity.ERROR,
        meaning="Brokers forget segments whose events are deleted: they raise the log start above records "
        "that are still in the tier, and never delete the objects.",
        fix="set retention.ms and retention.bytes of the metadata topic to -1",
    )
    METADATA_COMPACTED = ConflictRow(
        name="metadata_compacted",
        severity=Severity.ERROR,
        meaning="The events of the metadata topic have no keys. Brokers refuse to append them to a compacted "
        "topic, so nothing is copied.",
        fix="set cleanup.policy=delete on the metadata topic",
    )
    METADATA_UNCLEAN_ELECTION = ConflictRow(
        name="metadata_unclean_election",
        severity=Severity.ERROR,
        meaning="An unclean election drops the newest events of the metadata topic: segments that were "
        "copied are forgotten, and their local copies may be gone.",
        fix="set unclean.leader.election.enable=false on the metadata topic",
    )
    METADATA_SETTING_WITHOUT_PREFIX = ConflictRow(
        name="metadata_setting_without_prefix",
        severity=Severity.WARNING,
        meaning="Brokers hand only settings with the prefix of remote.log.metadata.manager.impl.prefix to "
        "their metadata manager: the setting has no effect.",
        fix="write it with the prefix, as rlmm.config.remote.log.metadata.topic.replication.factor",
    )
    TEST_STORAGE_MANAGER = ConflictRow(
        name="test_storage_manager",
        severity=Severity.WARNING,
        meaning="LocalTieredStorage is Kafka's plugin for tests: a folder of one machine, which other "
        "brokers can't read unless all of them mount it.",
        fix="use a plugin for an object store, or a folder that all brokers mount",
    )
    TIER_DELETED_ON_CLOSE = ConflictRow(
        name="tier_deleted_on_close",
        severity=Severity.ERROR,
        meaning="LocalTieredStorage deletes the whole tier when the broker stops.",
        fix="set delete.on.close=false for the plugin before the broker is stopped",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One conflict that was found: `names` are the settings that take part in it, `found` their values."""

    kind: ConflictKind
    names: tuple[str, ...]
    found: str


# Find the settings of one topic that contradict each other.
#
# Source: LogConfig.validateTopicLogConfigValues, and the observations in the meanings of the table.

_AS_RETENTION = -2
_PAIRS = (
    (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS, topic.COPY_LAG_MS),
    (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES, topic.COPY_LAG_BYTES),
)


def topic_conflicts(settings: Mapping[str, str], version: KafkaVersion = LATEST) -> Iterator[Conflict]:
    """Yield the conflicts in the settings of one topic for brokers of `version`.

    `settings` has the values in force by name: those of the topic take precedence over those of its brokers.
    Other names have Kafka's default. Raise UsageError for an invalid value. A topic without
    remote.storage.enable=true has no conflicts.
    """
    settings = {
        name: value
        for name, value in settings.items()
        if name in topic.TABLE
        and version.includes(topic.TABLE.rows[name].since, topic.TABLE.rows[name].until)
    }
    if not topic.REMOTE_STORAGE_ENABLE.value(settings):
        return
    if "compact" in topic.CLEANUP_POLICY.value(settings):
        names = (topic.REMOTE_STORAGE_ENABLE, topic.CLEANUP_POLICY)
        yield conflict(ConflictKind.COMPACTED_AND_TIERED, settings, *names)
    yield from _of_local_retention(settings)
    if topic.UNCLEAN_LEADER_ELECTION.value(settings):
        yield conflict(ConflictKind.UNCLEAN_LEADER_ELECTION, settings, topic.UNCLEAN_LEADER_ELECTION)
    if topic.DELETE_ON_DISABLE.value(settings):
        yield conflict(ConflictKind.DELETE_ON_DISABLE, settings, topic.DELETE_ON_DISABLE)
    if _accepts_the_future(settings, version):
        of_time = (topic.TIMESTAMP_TYPE, topic.TIMESTAMP_AFTER_MAX_MS, topic.RETENTION_MS)
        yield conflict(ConflictKind.FUTURE_TIMESTAMPS, settings, *of_time)


def internal_topic_conflicts(name: str, settings: Mapping[str, str]) -> Iterator[Conflict]:
    """Yield the conflict of an internal topic with remote.storage.enable=true."""
    row = topic.REMOTE_STORAGE_ENABLE
    if name in INTERNAL_TOPICS and row.value(settings):
        yield conflict(ConflictKind.INTERNAL_TOPIC_TIERED, settings, row)


def _of_local_retention(settings: Mapping[str, str]) -> Iterator[Conflict]:
    is_copy_disabled, lags = topic.COPY_DISABLE.value(settings), list[int]()
    for local, retention, lag in _PAIRS:
        own, total = local.kafka_value(settings), retention.kafka_value(settings)
        if own == _AS_RETENTION:
            own = total
        elif topic.is_local_retention_above(own, total):
            yield conflict(ConflictKind.LOCAL_RETENTION_ABOVE_RETENTION, settings, local, retention)
        elif is_copy_disabled and own != total:
            names = (topic.COPY_DISABLE, local, retention)
            yield conflict(ConflictKind.COPY_DISABLED_WITH_LOCAL_RETENTION, settings, *names)
        lags.append(own if lag.kafka_value(settings) < 0 else lag.kafka_value(settings))
        if is_above_local_retention(lag.kafka_value(settings), own):
            yield conflict(ConflictKind.COPY_LAG_ABOVE_LOCAL_RETENTION, settings, lag, local, retention)
    if not is_copy_disabled and max(lags) < 0:
        both = (each for local, _, lag in _PAIRS for each in (lag, local))
        yield conflict(ConflictKind.COPY_LAG_UNLIMITED, settings, *both)
    elif not is_copy_disabled and all(_is_as_retention(settings, *pair[:2]) for pair in _PAIRS):
        both = (each for pair in _PAIRS for each in pair[:2])
        yield conflict(ConflictKind.LOCAL_RETENTION_EQUALS_RETENTION, settings, *both)


def _is_as_retention(settings: Mapping[str, str], local: Setting[int], retention: Setting[int]) -> bool:
    return local.kafka_value(settings) in {_AS_RETENTION, retention.kafka_value(settings)}


def _accepts_the_future(settings: Mapping[str, str], version: KafkaVersion) -> bool:
    """Return whether producers may write timestamps further in the future than retention.ms."""
    retention_ms = topic.RETENTION_MS.kafka_value(settings)
    if topic.TIMESTAMP_TYPE.value(settings) != "CreateTime" or retention_ms < 0:
        return False
    if topic.limits_future(settings, version):
        return False
    return topic.TIMESTAMP_AFTER_MAX_MS.value(settings) > retention_ms


def conflict(
    kind: ConflictKind, settings: Mapping[str, str], *rows: Setting[Any], is_swept: bool = True
) -> Conflict:
    """Return the conflict of these settings, with their values and marked defaults as text.

    Where sweep assumes another default, the text says so, if the topic `is_swept`.
    """
    stated = (
        f"{row.name}={row.text(settings)}{'' if row.name in settings else _default_mark(row, is_swept)}"
        for row in rows
    )
    return Conflict(kind=kind, names=tuple(row.name for row in rows), found=", ".join(stated))


def _default_mark(row: Setting[Any], is_swept: bool) -> str:
    is_same = row.assumed is None or row.assumed == row.default
    return " (default)" if is_same or not is_swept else f" (brokers' default; sweep assumes {row.assumed})"


REPLICAS = 3
"""The replicas that keep the metadata topic writable, and complete, while one of them is down."""
MIN_IN_SYNC = 2
"""The replicas that have an event before its writer goes on: one may be lost."""


def metadata_topic_conflicts(
    settings: Mapping[str, str], replicas: int, version: KafkaVersion = LATEST
) -> Iterator[Conflict]:
    """Yield the conflicts of a metadata topic with these settings, and with `replicas` of each partition.

    Names that `settings` does not have are at Kafka's default for topics. Raise UsageError for an invalid
    value.
    """
    min_isr = topic.MIN_INSYNC_REPLICAS.value(settings)
    found = f"{counted(replicas, 'replica')}, min.insync.replicas={min_isr}"
    names = (topic.MIN_INSYNC_REPLICAS.name,)
    needed = version.min_in_sync(min_isr, replicas)
    if needed > replicas:
        yield Conflict(kind=ConflictKind.METADATA_MIN_ISR_ABOVE_REPLICATION, names=names, found=found)
    elif replicas < REPLICAS:
        yield Conflict(kind=ConflictKind.METADATA_FEW_REPLICAS, names=names, found=found)
    elif needed == replicas:
        yield Conflict(kind=ConflictKind.METADATA_NO_SPARE_REPLICA, names=names, found=found)
    elif needed < MIN_IN_SYNC:
        yield Conflict(kind=ConflictKind.METADATA_LOW_MIN_ISR, names=names, found=found)
    for row in (topic.RETENTION_MS, topic.RETENTION_BYTES):
        if row.kafka_value(settings) >= 0:
            yield conflict(ConflictKind.METADATA_RETENTION, settings, row, is_swept=False)
    if "compact" in topic.CLEANUP_POLICY.value(settings):
        yield conflict(ConflictKind.METADATA_COMPACTED, settings, topic.CLEANUP_POLICY)
    if topic.UNCLEAN_LEADER_ELECTION.value(settings):
        yield conflict(ConflictKind.METADATA_UNCLEAN_ELECTION, settings, topic.UNCLEAN_LEADER_ELECTION)


# Find the settings of one broker that contradict each other, and those that damage the metadata topic.
#
# Sources: RemoteLogManagerConfig, RemoteLogManager.configureRLMM, TopicBasedRemoteLogMetadataManagerConfig.

_STATES = {
    topic.MIN_INSYNC_REPLICAS.name: (manager.TOPIC_REPLICATION_FACTOR, manager.TOPIC_MIN_ISR),
    topic.RETENTION_MS.name: (manager.TOPIC_RETENTION_MS,),
    topic.RETENTION_BYTES.name: (),
}
"""The settings of the metadata manager that state a setting of the topic that it makes."""
_LOCAL_TIERED_STORAGE = "LocalTieredStorage"
_INTERFACES: dict[Setting[str], str] = {
    broker.STORAGE_MANAGER_CLASS: "org.apache.kafka.server.log.remote.storage.RemoteStorageManager",
    broker.METADATA_MANAGER_CLASS: "org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager",
}
"""Kafka's interfaces, which look like classes that the settings could name."""
_DELETE_ON_CLOSE = "delete.on.close"


def broker_conflicts(settings: Mapping[str, str], version: KafkaVersion = LATEST) -> Iterator[Conflict]:
    """Yield the conflicts in the settings of one broker, as its server.properties states them.

    Names that `settings` does not have are at Kafka's default. Raise UsageError for an invalid value. Without
    remote.log.storage.system.enable=true, only the role of the node, its threads and the names of classes are
    examined.
    """
    enable = broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
    for row, interface in _INTERFACES.items():
        if settings.get(row.name, "").strip() == interface:
            yield conflict(ConflictKind.PLUGIN_IS_INTERFACE, settings, row)
    for pool in (broker.COPIER_THREADS, broker.EXPIRATION_THREADS):
        if version.includes("4.0") and settings.get(pool.name, "").strip() == "-1":
            yield conflict(ConflictKind.THREADS_OF_FORMER_POOL, settings, pool)
    is_controller = broker.PROCESS_ROLES.value(settings) == ("controller",)
    if is_controller and not enable.value(settings):
        yield conflict(ConflictKind.CONTROLLER_DOES_NOT_TIER, settings, broker.PROCESS_ROLES, enable)
    if is_controller or not enable.value(settings):
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
    yield from _of_listener(settings)
    if not broker.has_own_metadata_manager(settings):
        return
    prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
    yield from _of_login(settings, prefix)
    for name in sorted(settings):
        if prefix and name in manager.METADATA_MANAGERS:
            kind = ConflictKind.METADATA_SETTING_WITHOUT_PREFIX
            yield Conflict(kind=kind, names=(name,), found=f"{name}={settings[name]}")
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    row, retention_ms = manager.TOPIC_MIN_ISR, manager.TOPIC_RETENTION_MS.value(own)
    # Before Kafka 4.2 the topic is made with the min.insync.replicas of the brokers.
    min_isr = row.value(own) if version.includes(row.since) else topic.MIN_INSYNC_REPLICAS.value(settings)
    made = {topic.MIN_INSYNC_REPLICAS.name: str(min_isr), topic.RETENTION_MS.name: str(retention_ms)}
    for found in metadata_topic_conflicts(made, manager.TOPIC_REPLICATION_FACTOR.value(own), version):
        stated = tuple(f"{prefix}{row.name}" for name in found.names for row in _STATES[name])
        yield replace(found, names=stated, found=f"metadata topic: {found.found}")


def _of_login(settings: Mapping[str, str], prefix: str) -> Iterator[Conflict]:
    """Yield the conflict of a metadata manager whose listener needs a login that its clients do not have.

    A login in the file of java.security.auth.login.config needs sasl.mechanism, too, but for GSSAPI.
    """
    common = f"{prefix}{manager.COMMON_CLIENT_PREFIX}"
    listener = broker.metadata_listener(settings)
    protocol = settings.get(f"{common}{clients.SECURITY_PROTOCOL.name}", listener[1] if listener else "")
    if not protocol.strip().upper().startswith("SASL_"):
        return
    kinds = (manager.PRODUCER_PREFIX, manager.CONSUMER_PREFIX, manager.ADMIN_PREFIX)
    logins = [(f"{common}sasl.", f"{prefix}{kind}sasl.") for kind in kinds]
    if not all(any(name.startswith(login) for name in settings) for login in logins):
        row = broker.METADATA_MANAGER_LISTENER
        found = f"{row.name}={row.text(settings)} ({protocol}), no {common}sasl.*"
        kind = ConflictKind.METADATA_CLIENTS_WITHOUT_LOGIN
        yield Conflict(kind=kind, names=(row.name,), found=found)


def _of_listener(settings: Mapping[str, str]) -> Iterator[Conflict]:
    """Yield the conflict of a metadata manager without an address.

    Brokers look the listener up among those that they advertise, which are not the controller's
    (BrokerServer), also for another metadata manager and if the address is stated; only without a name they
    do not.
    """
    rows = (broker.METADATA_MANAGER_LISTENER, broker.endpoints_row(settings))
    name, listeners = settings.get(rows[0].name, "").strip(), rows[1].value(settings)
    prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
    bootstrap = f"{prefix}{manager.COMMON_CLIENT_PREFIX}{clients.BOOTSTRAP_SERVERS.name}"
    needs_none = bootstrap in settings or not broker.has_own_metadata_manager(settings)
    known = {each.strip().partition("://")[0].upper() for each in listeners}
    if name.upper() in known.difference(broker.CONTROLLER_LISTENER_NAMES.value(settings)):
        return
    if name or not needs_none:
        found = f"{rows[0].name}={name or '(none)'}, {rows[1].name}={','.join(listeners)}"
        kind = ConflictKind.NO_METADATA_LISTENER
        yield Conflict(kind=kind, names=tuple(row.name for row in rows), found=found)
