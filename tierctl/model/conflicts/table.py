"""The table of conflicts: values that Kafka accepts one by one, and refuses or mishandles together.

`topic_conflicts` and `broker_conflicts` find them in settings; a new conflict is a row here and a condition
in one of these functions.
"""

from dataclasses import dataclass

from tierctl.model.severity import Severity
from tierctl.row_enum import RowEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRow:
    """The facts about one kind of conflict.

    `is_refused` states that Kafka refuses the settings: a topic is not changed, or a broker does not start.
    """

    name: str
    severity: Severity
    is_refused: bool = False
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
    NO_METADATA_LISTENER = ConflictRow(
        name="no_metadata_listener",
        severity=Severity.ERROR,
        is_refused=True,
        meaning="The broker's own clients of the metadata topic have no address to connect to: nothing is "
        "copied, or the broker does not start.",
        fix="set remote.log.metadata.manager.listener.name to one of the names in listeners",
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
        meaning="The metadata topic never has that many replicas, so no broker can write to it: nothing is "
        "copied or deleted.",
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
