"""Decides whether the history of a user partition is complete although its metadata partition lost events.

Finite retention deletes the oldest events of a metadata partition. Copies are made in offset order, so the
lost events are about lower offsets than the remaining ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tierctl.model import TopicIdPartition, Uuid
from tierctl.state.tier import MissingEvents, TierState
from tierctl.wire.metadata.partitioner import metadata_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Facts about one user partition from outside the metadata topic; None for an unknown fact.

    `local_log_start_offset` is given if the local log may take the place of the tier: not for a copy, because
    a segment that is still local may have been copied already. `stored_ids` are the ids of all segments of
    which the tier has an object.
    """

    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    stored_ids: frozenset[Uuid] | None = None


def decide_histories(
    state: TierState, evidence: Mapping[TopicIdPartition, Evidence]
) -> dict[TopicIdPartition, str]:
    """Add the partitions of `evidence` with a complete history to `state.complete`.

    Return the reason for each of the others. Partitions of metadata partitions without missing events are
    not examined.
    """
    reasons: dict[TopicIdPartition, str] = {}
    for partition, facts in evidence.items():
        missing = missing_of(state, partition)
        if not missing:
            continue
        reason = _why_incomplete(state, partition, missing, facts)
        if reason is None:
            state.complete.add(partition.key)
        else:
            reasons[partition] = reason
    return reasons


def missing_of(state: TierState, partition: TopicIdPartition) -> list[MissingEvents]:
    """Return the missing events that may be about `partition`: those of its metadata partition.

    If the number of metadata partitions is unknown, all missing events may be about a partition without any
    known event.
    """
    known = state.partition(partition)
    if known is not None:
        return state.missing_of(known.metadata_partition)
    count = len(state.read)
    if count and set(state.read) == set(range(count)):
        return state.missing_of(metadata_partition(partition.topic_id, partition.partition, count))
    return state.missing


def why_history_unknown(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why nothing may be decided for `partition` by its history; None if steps may be planned."""
    if not state.missing or state.accepts_missing or partition.key in state.complete:
        return None
    missing = missing_of(state, partition)
    return f"{missing[0]}, and nothing shows that the others are complete" if missing else None


def _why_incomplete(
    state: TierState, partition: TopicIdPartition, missing: list[MissingEvents], facts: Evidence
) -> str | None:
    known = state.partition(partition)
    unknown_ids: frozenset[Uuid] = frozenset()
    if facts.stored_ids is not None:
        segments = () if known is None else known.cache.list_remote_log_segments()
        unknown_ids = facts.stored_ids - {segment.segment_id for segment in segments}
        if not unknown_ids:
            return None
    # `lowest_start_offset` includes deleted segments: all events after a segment's first event are known.
    first = None if known is None else known.lowest_start_offset
    is_only_head = all(each.first_offset == 0 for each in missing)
    if is_only_head and _reaches_log_start(first, facts):
        return None
    return "; ".join([*map(str, missing), *_unknowns(first, facts, len(unknown_ids))])


def _reaches_log_start(first: int | None, facts: Evidence) -> bool:
    """Return whether the known segments, or the local log without them, begin at or below the log start.

    An unknown log start is at least 0.
    """
    first = facts.local_log_start_offset if first is None else first
    return first is not None and first <= (facts.log_start_offset or 0)


def _unknowns(first: int | None, facts: Evidence, unknown_segments: int) -> list[str]:
    begins = "no segment is known" if first is None else f"the first known segment begins at offset {first}"
    start = facts.log_start_offset
    found = [f"{begins}, the log start is {'not known' if start is None else start}"]
    if unknown_segments:
        segments = "1 segment" if unknown_segments == 1 else f"{unknown_segments} segments"
        found.append(f"the tier has objects of {segments} without events")
    return found
