"""Settings of a topic (org.apache.kafka.common.config.TopicConfig; the throttles of QuotaConfig), and the
values of those that tiering depends on, with the defaults of the brokers.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.settings import broker
from tierctl.model.settings.scopes import (
    LATEST,
    KafkaVersion,
    Origin,
    Scope,
    Setting,
    SettingSource,
    StatedSettings,
    Table,
    Type,
    place_of,
)

TABLE = Table(Scope.TOPIC)
_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_LONG_MAX = (1 << 63) - 1
_WRITING = "brokers apply it when records are written or fetched"
_FUTURE = "doctor warns if records may have timestamps further in the future than retention.ms"
_COMPACTION = "compacted topics have no remote tier"
_LOCAL = "it applies only to the files on the broker's disk"
_ROLL = "explain prints it for the active segment, which brokers roll by it; nothing is decided by it"

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
SEGMENT_BYTES = TABLE.whole("segment.bytes", 1 << 30, type=Type.INT, least=14, acted_on=_ROLL)
_RAISED_LEAST = KafkaVersion(4, 0), 1 << 20
"""The version that raised the least value of segment.bytes, and that value (KIP-1030)."""
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
SEGMENT_MS = TABLE.whole("segment.ms", _WEEK_MS, least=1, acted_on=_ROLL)
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
MIN_INSYNC_REPLICAS = TABLE.whole(
    "min.insync.replicas",
    1,
    type=Type.INT,
    least=1,
    acted_on="doctor compares that of the metadata topic with its replicas; brokers apply it to writes",
)
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
    "message.timestamp.after.max.ms",
    _LONG_MAX,
    least=0,
    since="3.6",
    acted_on=f"{_FUTURE}; the default is 1 hour since Kafka 4.0",
)
_LIMITED_FUTURE = KafkaVersion(4, 0), 3_600_000
"""The version since which message.timestamp.after.max.ms has this default (KIP-1030)."""
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


UNLIMITED = -1
_AS_RETENTION = -2
_DEFAULTS = (
    (CLEANUP_POLICY, broker.LOG_CLEANUP_POLICY),
    (LOCAL_RETENTION_MS, broker.LOG_LOCAL_RETENTION_MS),
    (LOCAL_RETENTION_BYTES, broker.LOG_LOCAL_RETENTION_BYTES),
    (COPY_LAG_MS, broker.LOG_REMOTE_COPY_LAG_MS),
    (COPY_LAG_BYTES, broker.LOG_REMOTE_COPY_LAG_BYTES),
)
"""Topic settings, each with the broker setting that states its default (ServerTopicConfigSynonyms)."""
_RETENTION_DEFAULTS = (
    (RETENTION_MS, broker.LOG_RETENTION_MS, 1),
    (RETENTION_MS, broker.LOG_RETENTION_MINUTES, 60_000),
    (RETENTION_MS, broker.LOG_RETENTION_HOURS, 3_600_000),
    (RETENTION_BYTES, broker.LOG_RETENTION_BYTES, 1),
)
"""The retention settings, each with a broker setting of its default and its unit; the first given counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefaults:
    """The defaults that brokers add to the settings of a topic, and the version that interprets them.

    `settings` are those of a broker's server.properties. They are empty if the settings of topics come from a
    cluster, which adds the defaults itself.
    """

    version: KafkaVersion = LATEST
    settings: Mapping[str, str] = field(default_factory=dict)

    def known(self, settings: Mapping[str, str]) -> StatedSettings:
        """Return the topic settings in `settings` that this version of Kafka has."""
        rows = ((name, TABLE.rows[name]) for name in settings if name in TABLE)
        names = {name: name for name, row in rows if self.version.includes(row.since, row.until)}
        return StatedSettings.of(settings).only(names)

    def defaults(self) -> StatedSettings:
        """Return the defaults of topic settings that the broker's settings state, without retention."""
        given = StatedSettings.of(self.settings)
        return self.known(given.only({by.name: row.name for row, by in _DEFAULTS}))

    def retention_defaults(self) -> StatedSettings:
        """Return the defaults of retention.ms and retention.bytes that the broker's settings state."""
        found = StatedSettings({}, {})
        for row, by, factor in reversed(_RETENTION_DEFAULTS):
            value = by.given(self.settings)
            if value is not None:
                stated = StatedSettings.of(self.settings).only({by.name: row.name})
                found |= stated.with_value(row.name, str(max(value * factor, UNLIMITED)))
        return found

    def stated_by(self, name: str) -> str:
        """Return the broker setting that states the default of a topic setting; `name` without one."""
        synonyms = [(row.name, by.name) for row, by in _DEFAULTS]
        synonyms += [(row.name, by.name) for row, by, _ in _RETENTION_DEFAULTS]
        return next((by for of_topic, by in synonyms if of_topic == name and by in self.settings), name)

    def in_force(self, stated: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a topic that states `stated`, with the defaults that the brokers state."""
        return {**self.retention_defaults(), **self.defaults(), **stated}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """The value of one setting as text, and where it came from; `origin` has the line of a file."""

    name: str
    value: str
    source: SettingSource
    origin: Origin | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """How long a rolled segment waits before it is copied (KIP-1241, Kafka 4.4).

    A segment may be copied once its newest record is `ms` old or `bytes` follow it in the log, whichever
    comes first. With 0 every segment may be copied at once; None is unlimited, so no segment may be copied.
    """

    ms: int | None = 0
    bytes: int | None = None

    @classmethod
    def from_settings(cls, stated: Mapping[str, str], defaults: Mapping[str, str]) -> Self:
        """Return the lag that Kafka's topic settings state; UsageError for one that Kafka refuses.

        A lag of -1 is the effective local retention, and a local retention of -2 is the retention. Settings
        that are neither in `stated` nor in `defaults` have Kafka's defaults.
        """
        ms = _lag(stated, defaults, COPY_LAG_MS, LOCAL_RETENTION_MS, RETENTION_MS)
        size = _lag(stated, defaults, COPY_LAG_BYTES, LOCAL_RETENTION_BYTES, RETENTION_BYTES)
        return cls() if ms == 0 or size == 0 else cls(ms=ms, bytes=size)


def _lag(
    stated: Mapping[str, str],
    defaults: Mapping[str, str],
    lag: Setting[int],
    local_retention: Setting[int],
    retention: Setting[int],
) -> int | None:
    """Return the effective lag, None for an unlimited one."""
    settings = {**defaults, **stated}
    local = local_retention.value(settings)
    if local == _AS_RETENTION:
        local = retention.kafka_value(settings)
    value = lag.value(settings)
    # Kafka checks the lag when a topic's own setting is changed, and not when a broker's default is changed.
    if lag.name in stated and is_above_local_retention(value, local):
        raise UsageError(
            f"{lag.name}={value} is above the effective {local_retention.name} of {local}",
            hint=f"Kafka refuses it: lower {lag.name}, or raise {local_retention.name}",
        )
    value = local if value < 0 else value
    return None if value < 0 else value


def limits_future(settings: Container[str], version: KafkaVersion) -> bool:
    """Return whether `settings` leave open message.timestamp.after.max.ms, and its default is an hour."""
    return TIMESTAMP_AFTER_MAX_MS.name not in settings and version >= _LIMITED_FUTURE[0]


def require_values(settings: Mapping[str, str], version: KafkaVersion, source: str) -> None:
    """Raise UsageError, with `source`, for a value in a topic's `settings` that brokers of `version` refuse.

    A broker validates the settings of all topics when it loads logs, and ends if one is wrong (LogConfig).
    """
    for row in TABLE:
        row.given(settings, source)
    since, least = _RAISED_LEAST
    own = SEGMENT_BYTES.value(settings)
    if version >= since and own < least:
        where = place_of(settings, SEGMENT_BYTES.name, source)
        raise UsageError(
            f"{where}: {SEGMENT_BYTES.name}={own} is below {least}, the least from Kafka {since} on"
        )


def require_local_retention(stated: Mapping[str, str]) -> None:
    """Raise UsageError for a local retention above the retention, which Kafka refuses for a tiered topic.

    Kafka checks settings that a topic states itself.
    """
    if REMOTE_STORAGE_ENABLE.given(stated) is False:
        return
    for local, retention in (
        (LOCAL_RETENTION_MS, RETENTION_MS),
        (LOCAL_RETENTION_BYTES, RETENTION_BYTES),
    ):
        if {local.name, retention.name} <= stated.keys():
            own, total = local.value(stated), retention.value(stated)
            if own != _AS_RETENTION and is_local_retention_above(own, total):
                raise UsageError(
                    f"{local.name}={own} is above {retention.name}={total}",
                    hint=f"Kafka refuses it: lower {local.name}, or set it to {_AS_RETENTION}",
                )


def is_local_retention_above(local_retention: int, retention: int) -> bool:
    """Return whether Kafka refuses a local retention for the retention; negative ones are unlimited."""
    return retention >= 0 and (local_retention < 0 or local_retention > retention)


def is_above_local_retention(lag: int, local_retention: int) -> bool:
    """Return whether Kafka refuses a copy lag for the effective local retention, negative if unlimited."""
    return lag > local_retention >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic that decide which segments are copied to and deleted from its remote tier.

    A negative retention sets no limit. Unlike in Kafka, a setting that is not stated sets no limit either, so
    that a default deletes nothing. `remote_storage_enable` is None if it is not stated.
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    remote_storage_enable: bool | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    is_copy_disabled: bool = False
    """remote.log.copy.disable (KIP-950)."""
    copy_lag: CopyLag = CopyLag()
    default_retention_ms: int = UNLIMITED
    """The retention.ms that brokers apply to their disks if the topic does not state it."""
    default_retention_bytes: int = UNLIMITED
    """The retention.bytes that brokers apply to their disks if the topic does not state it."""
    kafka_version: KafkaVersion = LATEST
    """The version of the brokers that decide by these settings."""
    stated: Mapping[str, SettingValue] = field(default_factory=dict, compare=False, repr=False)
    """The settings that the topic or its brokers state, by name."""

    @classmethod
    def from_settings(cls, stated: Mapping[str, str], brokers: BrokerDefaults | None = None) -> Self:
        """Return the config that Kafka's names and values state; UsageError for an invalid value.

        Settings that the brokers' version does not have are left out. The brokers' defaults count for what
        `stated` leaves open, other than for retention: there they only make up the local retention.
        Settings in `stated` without an origin came from the topic settings file.
        """
        brokers = BrokerDefaults() if brokers is None else brokers
        stated = brokers.known(stated)
        settings, retention = brokers.defaults() | stated, brokers.retention_defaults()
        return cls(
            retention_ms=RETENTION_MS.value(stated),
            retention_bytes=RETENTION_BYTES.value(stated),
            remote_storage_enable=REMOTE_STORAGE_ENABLE.given(stated),
            cleanup_policy=frozenset(CLEANUP_POLICY.value(settings)),
            is_copy_disabled=COPY_DISABLE.value(stated),
            default_retention_ms=RETENTION_MS.kafka_value(retention),
            default_retention_bytes=RETENTION_BYTES.kafka_value(retention),
            copy_lag=CopyLag.from_settings(stated, retention | brokers.defaults()),
            kafka_version=brokers.version,
            stated={name: _stated(name, settings, is_own=name in stated) for name in settings},
        )

    @property
    def is_age_stated(self) -> bool:
        """Whether the topic or its brokers state retention.ms."""
        return RETENTION_MS.name in self.stated

    @property
    def broker_retention_ms(self) -> int:
        """The retention.ms that brokers apply; other than `retention_ms`, it has Kafka's default."""
        return self.retention_ms if self.is_age_stated else max(self.retention_ms, self.default_retention_ms)

    @property
    def broker_retention_bytes(self) -> int:
        """The retention.bytes that brokers apply; other than `retention_bytes`, it has their default."""
        is_stated = RETENTION_BYTES.name in self.stated
        return self.retention_bytes if is_stated else max(self.retention_bytes, self.default_retention_bytes)

    def setting(self, name: str) -> SettingValue:
        """Return the value in force of the topic setting `name`, and where it came from."""
        if name in self.stated:
            return self.stated[name]
        row = TABLE.rows[name]
        if row is TIMESTAMP_AFTER_MAX_MS and limits_future(self.stated, self.kafka_version):
            return SettingValue(name=name, value=str(_LIMITED_FUTURE[1]), source=SettingSource.DEFAULT)
        is_default = row.assumed is None or row.assumed == row.default
        return SettingValue(
            name=name,
            value=row.text({}) if is_default else str(row.assumed),
            source=SettingSource.DEFAULT if is_default else SettingSource.NOT_STATED,
        )


def _stated(name: str, settings: StatedSettings, *, is_own: bool) -> SettingValue:
    """Return the value of a setting that the topic states if it `is_own`, or otherwise its brokers."""
    origin = settings.origin(name)
    source = SettingSource.FILE if origin is None else origin.source
    return SettingValue(
        name=name,
        value=settings[name],
        source=source if is_own else SettingSource.BROKER_DEFAULT,
        origin=origin,
    )


def unused_settings(in_file: Mapping[str, TopicConfig], in_force: Mapping[str, TopicConfig]) -> list[str]:
    """Return the settings in a file, TOPIC.SETTING=VALUE, of which other values are in force."""
    return [
        f"{name}.{setting}={each.value}"
        for name, config in in_file.items()
        if name in in_force
        for setting, each in config.stated.items()
        if setting not in in_force[name].stated or in_force[name].stated[setting].value != each.value
    ]
