"""Which user partitions a reading command means: those the tier or the logs know, by name or id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.model import LocalLog, RemoteLogSegmentState, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.tier import TierState


class Chosen(Protocol):
    """Which user partitions are meant."""

    def __contains__(self, partition: TopicIdPartition, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A user partition with what is known of it; `logs` are its replicas', which may be none."""

    topic_id_partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    logs: tuple[LocalLog, ...]


def readable_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: Chosen, *, by_name: bool
) -> list[ReadablePartition]:
    """The chosen partitions that have anything to read, by topic and number.

    `by_name` says that a topic was named and no id: then logs that were never tiered count too, and of
    topics that follow each other under one name only the one that the logs hold; UsageError when that
    leaves more than one. NotFoundError when a named one is not there.
    """
    replicas = _by_key(logs)
    found = [one for one in tiered_partitions(state, logs, chosen) if one.logs or _has_readable(one.cache)]
    if by_name:
        found = _only_current(found + _of_logs(state, replicas, chosen), replicas)
        if not found:
            raise NotFoundError("no such partition in the tier or the logs", hint=_known(state))
    return sorted(found, key=lambda r: (r.topic_id_partition.topic, r.topic_id_partition.partition))


def refused(partition: TopicIdPartition) -> SafetyRefusal | None:
    """Why a partition can't be looked for in a store: its name, which is data, is no legal topic's."""
    if is_legal_topic_name(partition.topic) and partition.partition >= 0:
        return None
    return SafetyRefusal(
        f"{str(partition)!r} is no legal partition, so nothing of it is read",
        hint="the metadata record that names it is wrong or hostile; look at it with tierctl format",
    )


def tiered_partitions(state: TierState, logs: Sequence[LocalLog], chosen: Chosen) -> list[ReadablePartition]:
    """The chosen partitions of the tier's metadata, readable or not, by topic, id and number."""
    replicas = _by_key(logs)
    return [
        ReadablePartition(
            part.topic_id_partition, part.cache, tuple(replicas.get(part.topic_id_partition.key, ()))
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
    return any(
        segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        for segment in cache.list_remote_log_segments()
    )


def _of_logs(
    state: TierState,
    replicas: Mapping[tuple[Uuid, int], list[LocalLog]],
    chosen: Chosen,
) -> list[ReadablePartition]:
    """Partitions of the logs that the tier has never heard of."""
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
                f"{topic}-{partition} is several topics of one name: {ids}", hint="say which with --topic-id"
            )
        current += held
    return current


def _known(state: TierState) -> str:
    topics = sorted({part.topic_id_partition.topic for part in state})
    shown = ", ".join(topics[:20]) + (", …" if len(topics) > 20 else "")
    return f"topics in the tier's metadata: {shown or 'none'}"
