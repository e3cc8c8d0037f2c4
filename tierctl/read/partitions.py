"""Select user partitions of the tier's metadata and of brokers' logs, by name or id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.model import LocalLog, RemoteLogSegmentState, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.log_start import with_tier_start
from tierctl.state.tier import TierState

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class PartitionSet(Protocol):
    """A set of user partitions, such as a resolved Selection."""

    def __contains__(self, partition: TopicIdPartition, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A user partition, its metadata, and the logs of its replicas, if any."""

    topic_id_partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    logs: tuple[LocalLog, ...]

    @property
    def offset_count(self) -> int:
        """Number of offsets from the first to the last of its readable segments and its logs."""
        finished = [s for s in self.cache.list_remote_log_segments() if s.state is _FINISHED]
        starts = [s.start_offset for s in finished] + [log.log_start_offset for log in self.logs]
        ends = [s.end_offset + 1 for s in finished] + [log.log_end_offset for log in self.logs]
        return max(max(ends) - min(starts), 0) if starts else 0


def readable_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet, *, by_name: bool
) -> list[ReadablePartition]:
    """Return the chosen partitions that have records to read, by topic and number.

    `by_name` says that the operator named topics and no topic ids. Then partitions that were never tiered
    are included, and of several topics with the same name only the topic in the logs is returned. Raise
    UsageError if several remain, and NotFoundError if no partition does.
    """
    replicas = _by_key(logs)
    found = [one for one in tiered_partitions(state, logs, chosen) if one.logs or _has_readable(one.cache)]
    if by_name:
        found = _only_current(found + _of_logs(state, replicas, chosen), replicas)
        if not found:
            raise NotFoundError("no such partition in the tier or the logs", hint=_known(state))
    return sorted(found, key=lambda r: (r.topic_id_partition.topic, r.topic_id_partition.partition))


def illegal_name_error(partition: TopicIdPartition) -> SafetyRefusal | None:
    """Return the error for a partition whose name is illegal, so that no key may contain it; else None."""
    if is_legal_topic_name(partition.topic) and partition.partition >= 0:
        return None
    return SafetyRefusal(
        f"{str(partition)!r} is not a legal partition, so it is not read",
        hint="the metadata record that names it is wrong or malicious; show it with tierctl format",
    )


def tiered_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet
) -> list[ReadablePartition]:
    """Return the chosen partitions of the tier's metadata, also without readable segments, in order."""
    replicas = _by_key(logs)
    return [
        ReadablePartition(
            part.topic_id_partition,
            part.cache,
            tuple(
                with_tier_start(log, part.segments) for log in replicas.get(part.topic_id_partition.key, ())
            ),
        )
        for part in state
        if part.topic_id_partition in chosen
    ]


def _by_key(logs: Sequence[LocalLog]) -> dict[tuple[Uuid, int], list[LocalLog]]:
    found: dict[tuple[Uuid, int], list[LocalLog]] = {}
    for log in logs:
        found.setdefault(log.topic_id_partition.key, []).append(log)
    return found


def _has_readable(cache: RemoteLogMetadataCache) -> bool:
    return any(segment.state is _FINISHED for segment in cache.list_remote_log_segments())


def _of_logs(
    state: TierState,
    replicas: Mapping[tuple[Uuid, int], list[LocalLog]],
    chosen: PartitionSet,
) -> list[ReadablePartition]:
    """Return the partitions of the logs that are not in the tier's metadata."""
    return [
        ReadablePartition(logs[0].topic_id_partition, RemoteLogMetadataCache(), tuple(logs))
        for key, logs in replicas.items()
        if key not in state.partitions and logs[0].topic_id_partition in chosen
    ]


def _only_current(
    found: list[ReadablePartition], replicas: Mapping[tuple[Uuid, int], list[LocalLog]]
) -> list[ReadablePartition]:
    named: dict[tuple[str, int], list[ReadablePartition]] = {}
    for one in found:
        named.setdefault((one.topic_id_partition.topic, one.topic_id_partition.partition), []).append(one)
    current = []
    for (topic, partition), several in named.items():
        held = [one for one in several if one.topic_id_partition.key in replicas] or several
        if len(held) > 1:
            ids = ", ".join(one.topic_id_partition.topic_id for one in held)
            raise UsageError(
                f"{topic}-{partition} is the name of several topics: {ids}", hint="select one with --topic-id"
            )
        current += held
    return current


def _known(state: TierState) -> str:
    topics = sorted({part.topic_id_partition.topic for part in state})
    shown = ", ".join(topics[:20]) + (", …" if len(topics) > 20 else "")
    return f"topics in the tier's metadata: {shown or 'none'}"
