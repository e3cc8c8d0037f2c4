"""Settings of TopicBasedRemoteLogMetadataManager (TopicBasedRemoteLogMetadataManagerConfig)."""

from tierctl.model.settings.table import Scope, Table, Type

TABLE = Table(Scope.METADATA_MANAGER)
_WAITING = "tierctl has no such consumer: it waits for acknowledgements and reads to the end of partitions"

TOPIC_PARTITIONS = TABLE.whole(
    "remote.log.metadata.topic.num.partitions",
    50,
    type=Type.INT,
    least=1,
    since="3.0",
    acted_on="the number of partitions of a new metadata topic; an existing topic must have the same number",
)
TOPIC_REPLICATION_FACTOR = TABLE.whole(
    "remote.log.metadata.topic.replication.factor",
    3,
    type=Type.INT,
    least=1,
    most=(1 << 15) - 1,
    since="3.0",
    acted_on="the number of replicas of a new metadata topic",
)
TOPIC_RETENTION_MS = TABLE.whole(
    "remote.log.metadata.topic.retention.ms",
    -1,
    least=-1,
    since="3.0",
    acted_on="the retention of a new metadata topic; -1 is unlimited",
)
TOPIC_MIN_ISR = TABLE.whole(
    "remote.log.metadata.topic.min.isr",
    2,
    type=Type.INT,
    least=1,
    since="4.2",
    acted_on="min.insync.replicas of a new metadata topic",
)
TABLE.whole("remote.log.metadata.consume.wait.ms", 120_000, least=0, since="3.0", ignored=_WAITING)
TABLE.whole(
    "remote.log.metadata.initialization.retry.max.timeout.ms", 120_000, least=0, since="3.0", ignored=_WAITING
)
TABLE.whole(
    "remote.log.metadata.initialization.retry.interval.ms", 100, least=0, since="3.0", ignored=_WAITING
)

COMMON_CLIENT_PREFIX = "remote.log.metadata.common.client."
"""Prefix of client settings for all clients of the metadata topic."""
PRODUCER_PREFIX = "remote.log.metadata.producer."
CONSUMER_PREFIX = "remote.log.metadata.consumer."
ADMIN_PREFIX = "remote.log.metadata.admin."
