"""Topic settings that tiering depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.settings import broker, topic
from tierctl.model.settings.scopes import LATEST, KafkaVersion, Origin, Setting, SettingSource, StatedSettings

UNLIMITED = -1
_AS_RETENTION = -2
_DEFAULTS = (
    (topic.CLEANUP_POLICY, broker.LOG_CLEANUP_POLICY),
    (topic.LOCAL_RETENTION_MS, broker.LOG_LOCAL_RETENTION_MS),
    (topic.LOCAL_RETENTION_BYTES, broker.LOG_LOCAL_RETENTION_BYTES),
    (topic.COPY_LAG_MS, broker.LOG_REMOTE_COPY_LAG_MS),
    (topic.COPY_LAG_BYTES, broker.LOG_REMOTE_COPY_LAG_BYTES),
)
"""Topic settings, each with the broker setting that states its default (ServerTopicConfigSynonyms)."""
_RETENTION_DEFAULTS = (
    (topic.RETENTION_MS, broker.LOG_RETENTION_MS, 1),
    (topic.RETENTION_MS, broker.LOG_RETENTION_MINUTES, 60_000),
    (topic.RETENTION_MS, broker.LOG_RETENTION_HOURS, 3_600_000),
    (topic.RETENTION_BYTES, broker.LOG_RETENTION_BYTES, 1),
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
        rows = ((name, topic.TABLE.rows[name]) for name in settings if name in topic.TABLE)
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
        ms = _lag(stated, defaults, topic.COPY_LAG_MS, topic.LOCAL_RETENTION_MS, topic.RETENTION_MS)
        size = _lag(
            stated, defaults, topic.COPY_LAG_BYTES, topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES
        )
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
        settings = brokers.defaults() | stated
        return cls(
            retention_ms=topic.RETENTION_MS.value(stated),
            retention_bytes=topic.RETENTION_BYTES.value(stated),
            remote_storage_enable=topic.REMOTE_STORAGE_ENABLE.given(stated),
            cleanup_policy=frozenset(topic.CLEANUP_POLICY.value(settings)),
            is_copy_disabled=topic.COPY_DISABLE.value(stated),
            default_retention_ms=topic.RETENTION_MS.kafka_value(brokers.retention_defaults()),
            copy_lag=CopyLag.from_settings(stated, brokers.retention_defaults() | brokers.defaults()),
            kafka_version=brokers.version,
            stated={name: _stated(name, settings, is_own=name in stated) for name in settings},
        )

    @property
    def is_age_stated(self) -> bool:
        """Whether the topic or its brokers state retention.ms."""
        return topic.RETENTION_MS.name in self.stated

    @property
    def broker_retention_ms(self) -> int:
        """The retention.ms that brokers apply; other than `retention_ms`, it has Kafka's default."""
        return self.retention_ms if self.is_age_stated else max(self.retention_ms, self.default_retention_ms)

    def setting(self, name: str) -> SettingValue:
        """Return the value in force of the topic setting `name`, and where it came from."""
        if name in self.stated:
            return self.stated[name]
        row = topic.TABLE.rows[name]
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
