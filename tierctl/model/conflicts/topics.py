"""Find the settings of one topic that contradict each other.

Source: LogConfig.validateTopicLogConfigValues, and the observations in the meanings of the table.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tierctl.model.configs import is_above_local_retention
from tierctl.model.conflicts.table import Conflict, ConflictKind
from tierctl.model.settings import topic
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion
from tierctl.model.settings.table import Setting

_AS_RETENTION = -2
_UNLIMITED = -1
_LIMITS_FUTURE = KafkaVersion(4, 0)
"""From this version on the default of message.timestamp.after.max.ms is an hour (KIP-1030)."""
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


def _of_local_retention(settings: Mapping[str, str]) -> Iterator[Conflict]:
    is_copy_disabled = topic.COPY_DISABLE.value(settings)
    for local, retention, lag in _PAIRS:
        own, total = local.kafka_value(settings), retention.kafka_value(settings)
        if own == _AS_RETENTION:
            own = total
        elif total >= 0 and (own == _UNLIMITED or own > total):
            yield conflict(ConflictKind.LOCAL_RETENTION_ABOVE_RETENTION, settings, local, retention)
        elif is_copy_disabled and own != total:
            names = (topic.COPY_DISABLE, local, retention)
            yield conflict(ConflictKind.COPY_DISABLED_WITH_LOCAL_RETENTION, settings, *names)
        if is_above_local_retention(lag.kafka_value(settings), own):
            yield conflict(ConflictKind.COPY_LAG_ABOVE_LOCAL_RETENTION, settings, lag, local, retention)
    if not is_copy_disabled and all(_is_as_retention(settings, *pair[:2]) for pair in _PAIRS):
        both = (each for pair in _PAIRS for each in pair[:2])
        yield conflict(ConflictKind.LOCAL_RETENTION_EQUALS_RETENTION, settings, *both)


def _is_as_retention(settings: Mapping[str, str], local: Setting[int], retention: Setting[int]) -> bool:
    return local.kafka_value(settings) in {_AS_RETENTION, retention.kafka_value(settings)}


def _accepts_the_future(settings: Mapping[str, str], version: KafkaVersion) -> bool:
    """Return whether producers may write timestamps further in the future than retention.ms."""
    retention_ms = topic.RETENTION_MS.kafka_value(settings)
    if topic.TIMESTAMP_TYPE.value(settings) != "CreateTime" or retention_ms < 0:
        return False
    if topic.TIMESTAMP_AFTER_MAX_MS.name not in settings and version >= _LIMITS_FUTURE:
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
