"""Settings of a topic (org.apache.kafka.common.config.TopicConfig; the throttles of QuotaConfig)."""

from tierctl.model.settings.scopes import Scope, Table, Type

TABLE = Table(Scope.TOPIC)
_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_LONG_MAX = (1 << 63) - 1
_WRITING = "brokers apply it when records are written or fetched"
_FUTURE = "doctor warns if records may have timestamps further in the future than retention.ms"
_COMPACTION = "compacted topics have no remote tier"
_LOCAL = "it applies only to the files on the broker's disk"

CLEANUP_POLICY = TABLE.names(
    "cleanup.policy",
    ("delete",),
    choices=("compact", "delete"),
    acted_on="copy and sweep leave out a topic whose policy has compact",
)
RETENTION_MS = TABLE.whole(
    "retention.ms",
    _WEEK_MS,
    least=-1,
    assumed=-1,
    acted_on="sweep deletes older segments; if it is not stated, sweep sets no limit",
)
RETENTION_BYTES = TABLE.whole(
    "retention.bytes",
    -1,
    acted_on="sweep deletes the oldest segments above this size; a negative value sets no limit",
)
LOCAL_RETENTION_MS = TABLE.whole(
    "local.retention.ms",
    -2,
    least=-2,
    since="3.0",
    acted_on="copy uses it if remote.copy.lag.ms is -1; -2 means the value of retention.ms",
)
LOCAL_RETENTION_BYTES = TABLE.whole(
    "local.retention.bytes",
    -2,
    least=-2,
    since="3.0",
    acted_on="copy uses it if remote.copy.lag.bytes is -1; -2 means the value of retention.bytes",
)
SEGMENT_BYTES = TABLE.whole("segment.bytes", 1 << 30, type=Type.INT, least=14, ignored=_LOCAL)
REMOTE_STORAGE_ENABLE = TABLE.flag(
    "remote.storage.enable",
    False,
    since="3.0",
    acted_on="copy needs true, or --assume-enabled if it is not stated; sweep leaves out topics with false",
)

COPY_DISABLE = TABLE.flag(
    "remote.log.copy.disable",
    False,
    since="3.9",
    acted_on="copy leaves the topic out if true (KIP-950)",
)
DELETE_ON_DISABLE = TABLE.flag(
    "remote.log.delete.on.disable",
    False,
    since="3.9",
    acted_on="doctor warns if it is true; only brokers end the tiering of a topic",
)
COPY_LAG_MS = TABLE.whole(
    "remote.copy.lag.ms",
    0,
    least=-1,
    since="4.4",
    acted_on="copy waits until a segment is that old (KIP-1241); -1 means the local retention",
)
COPY_LAG_BYTES = TABLE.whole(
    "remote.copy.lag.bytes",
    -1,
    least=-1,
    since="4.4",
    acted_on="copy waits until that many bytes follow a segment (KIP-1241); -1 means the local retention",
)
SEGMENT_MS = TABLE.whole("segment.ms", _WEEK_MS, least=1, ignored=_LOCAL)
TABLE.whole("segment.jitter.ms", 0, least=0, ignored=_LOCAL)
TABLE.whole("segment.index.bytes", 10 << 20, type=Type.INT, least=4, ignored=_LOCAL)
TABLE.whole("index.interval.bytes", 4096, type=Type.INT, least=0, ignored=_LOCAL)
TABLE.whole("flush.messages", _LONG_MAX, least=1, ignored=_LOCAL)
TABLE.whole("flush.ms", _LONG_MAX, least=0, ignored=_LOCAL)
TABLE.whole("file.delete.delay.ms", 60_000, least=0, ignored=_LOCAL)
TABLE.flag("preallocate", False, ignored=_LOCAL)
TABLE.whole("delete.retention.ms", 24 * 60 * 60 * 1000, least=0, ignored=_COMPACTION)
TABLE.whole("min.compaction.lag.ms", 0, least=0, ignored=_COMPACTION)
TABLE.whole("max.compaction.lag.ms", _LONG_MAX, least=1, ignored=_COMPACTION)
TABLE.number("min.cleanable.dirty.ratio", 0.5, least=0, most=1, ignored=_COMPACTION)
TABLE.whole("max.message.bytes", (1 << 20) + 12, type=Type.INT, least=0, ignored=_WRITING)
TABLE.whole(
    "max.decompressed.message.bytes",
    (1 << 31) - 9,
    type=Type.INT,
    least=1,
    most=(1 << 31) - 9,
    since="4.4",
    ignored=_WRITING,
)
TABLE.flag("errors.deadletterqueue.group.enable", False, since="4.4", ignored="share groups apply it")
MIN_INSYNC_REPLICAS = TABLE.whole("min.insync.replicas", 1, type=Type.INT, least=1, ignored=_WRITING)
UNCLEAN_LEADER_ELECTION = TABLE.flag(
    "unclean.leader.election.enable", False, acted_on="doctor warns if it is true; the controller applies it"
)
TABLE.text(
    "compression.type",
    "producer",
    choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ignored=_WRITING,
)
TABLE.whole(
    "compression.gzip.level", -1, type=Type.INT, least=1, most=9, besides=-1, since="3.8", ignored=_WRITING
)
TABLE.whole("compression.lz4.level", 9, type=Type.INT, least=1, most=17, since="3.8", ignored=_WRITING)
TABLE.whole("compression.zstd.level", 3, type=Type.INT, least=-131072, most=22, since="3.8", ignored=_WRITING)
TABLE.text("message.format.version", "3.0-IV1", until="3.9", ignored=_WRITING)
TABLE.flag("message.downconversion.enable", True, until="3.9", ignored=_WRITING)
TIMESTAMP_TYPE = TABLE.text(
    "message.timestamp.type",
    "CreateTime",
    choices=("CreateTime", "LogAppendTime"),
    acted_on=_FUTURE,
)
TABLE.whole("message.timestamp.difference.max.ms", _LONG_MAX, least=0, until="3.9", ignored=_WRITING)
TABLE.whole("message.timestamp.before.max.ms", _LONG_MAX, least=0, since="3.6", ignored=_WRITING)
TIMESTAMP_AFTER_MAX_MS = TABLE.whole(
    "message.timestamp.after.max.ms", _LONG_MAX, least=0, since="3.6", acted_on=_FUTURE
)
TABLE.names("leader.replication.throttled.replicas", (), ignored="brokers apply it to replication")
TABLE.names("follower.replication.throttled.replicas", (), ignored="brokers apply it to replication")


def split_key(key: str) -> tuple[str, str | None]:
    """Return the topic and the setting of a key TOPIC.SETTING; the setting is None if no known one ends it.

    A topic's name may hold dots, so the setting is the longest known one.
    """
    at = key.find(".")
    while at >= 0:
        if key[at + 1 :] in TABLE:
            return key[:at], key[at + 1 :]
        at = key.find(".", at + 1)
    return key, None


FORMER = {
    "local.log.retention.ms": LOCAL_RETENTION_MS.name,
    "local.log.retention.bytes": LOCAL_RETENTION_BYTES.name,
    "remote.log.storage.enable": REMOTE_STORAGE_ENABLE.name,
    "remote.log.retention.bytes": RETENTION_BYTES.name,
    "remote.log.retention.minutes": RETENTION_MS.name,
    "remote.retention.bytes": RETENTION_BYTES.name,
    "remote.retention.period": RETENTION_MS.name,
}
"""Names of topic settings in drafts of KIP-405, which no Kafka has, and the settings that replaced them."""


def former_name(key: str) -> tuple[str, str] | None:
    """Return the topic and the name in a draft of KIP-405 that end `key`; None if none does."""
    for name in FORMER:
        if key.endswith(f".{name}"):
            return key.removesuffix(f".{name}"), name
    return None
