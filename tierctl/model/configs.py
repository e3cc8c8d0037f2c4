"""Topic settings that tiering depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.settings import broker, topic
from tierctl.model.settings.table import Setting

UNLIMITED = -1
_AS_RETENTION = -2
_BROKER_DEFAULTS = ((topic.CLEANUP_POLICY, broker.LOG_CLEANUP_POLICY),)
"""Topic settings, each with the broker setting that states its default (ServerTopicConfigSynonyms)."""


def broker_defaults(broker_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the topic settings that a broker's settings state as defaults of its topics."""
    return {
        row.name: broker_settings[default.name]
        for row, default in _BROKER_DEFAULTS
        if default.name in broker_settings
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """How long a rolled segment waits before it is copied (KIP-1241, Kafka 4.4).

    A segment may be copied once its newest record is `ms` old or `bytes` follow it in the log, whichever
    comes first. 0 lets every segment be copied at once; None is unlimited, so it lets no segment be copied.
    """

    ms: int | None = 0
    bytes: int | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the lag that Kafka's topic settings state; UsageError for one that Kafka refuses.

        A lag of -1 is the effective local retention, and a local retention of -2 is the retention. Settings
        that are not stated have Kafka's defaults.
        """
        ms = _lag(settings, topic.COPY_LAG_MS, topic.LOCAL_RETENTION_MS, topic.RETENTION_MS)
        size = _lag(settings, topic.COPY_LAG_BYTES, topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES)
        return cls() if ms == 0 or size == 0 else cls(ms=ms, bytes=size)


def _lag(
    settings: Mapping[str, str], lag: Setting[int], local_retention: Setting[int], retention: Setting[int]
) -> int | None:
    """Return the effective lag, None for an unlimited one."""
    local = local_retention.value(settings)
    if local == _AS_RETENTION:
        given = retention.given(settings)
        local = retention.kafka_default if given is None else given
    value = lag.value(settings)
    if value > local >= 0:
        raise UsageError(
            f"{lag.name}={value} is above the effective {local_retention.name} of {local}",
            hint=f"Kafka refuses it: lower {lag.name}, or raise {local_retention.name}",
        )
    value = local if value < 0 else value
    return None if value < 0 else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic that decide what is copied to and deleted from its remote tier.

    A negative retention is no limit. A setting that is not stated is unlimited here, other than in Kafka: a
    limit that nobody stated deletes nothing. `remote_storage_enable` is None if it is not stated.
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    remote_storage_enable: bool | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    is_copy_disabled: bool = False
    """remote.log.copy.disable (KIP-950)."""
    copy_lag: CopyLag = CopyLag()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the config that Kafka's names and values state; UsageError for an invalid value."""
        return cls(
            retention_ms=topic.RETENTION_MS.value(settings),
            retention_bytes=topic.RETENTION_BYTES.value(settings),
            remote_storage_enable=topic.REMOTE_STORAGE_ENABLE.given(settings),
            cleanup_policy=frozenset(topic.CLEANUP_POLICY.value(settings)),
            is_copy_disabled=topic.COPY_DISABLE.value(settings),
            copy_lag=CopyLag.from_settings(settings),
        )
