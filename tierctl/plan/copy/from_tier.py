"""Decides which segments of one tier are copied to another: those of the current lineage, oldest first.

The target tier has its own metadata topic. With one topic, a broker would take the copies for a second set of
segments of the same offsets, and would never delete the first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid, is_legal_topic_name
from tierctl.plan.copy.dangling import Dangling
from tierctl.plan.copy.from_logs import with_begun
from tierctl.plan.preconditions import why_behind, why_maybe_unheard_of, why_unknown
from tierctl.plan.steps import LINEAGE_EPOCH, SOURCE_SEGMENT_ID, Action, Plan, Skip, Step
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.state.tier import PartitionState, TierState

_S = RemoteLogSegmentState
_Key = tuple[Uuid, int]

REASON = "finished in the source tier"


@dataclass(slots=True)
class _Decisions:
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)


def plan_copy_from_tier(
    source: TierState,
    target: TierState,
    lineages: Mapping[_Key, Lineage],
    *,
    dangling: Dangling | None = None,
) -> Plan:
    """Return the plan to copy every readable segment of `source` that `target` lacks, oldest first.

    `lineages` are the source's, by partition. Each segment has one COPY_SEGMENT step, whose details name the
    source segment. Segments that are being deleted, off the lineage or doubled are not copied. A hole in the
    source, or between target and source, ends the copy of its partition with a reason. `dangling` adds
    DELETE_SEGMENT steps for unfinished copies in the target. The plan's `read` is the target's.
    """
    decisions = _Decisions()
    for part in source:
        lineage = lineages.get(part.topic_id_partition.key, Lineage())
        other = target.partition(part.topic_id_partition)
        reason = _why_not(source, part, target, other, lineage)
        if reason:
            decisions.skipped.append(Skip.of(part.topic_id_partition, reason))
            continue
        _decide(part, other, lineage, decisions)
        if dangling is not None and other is not None:
            steps, skipped = dangling.clean(other)
            decisions.steps += steps
            decisions.skipped += skipped
    return Plan(
        command="copy", steps=tuple(decisions.steps), read=dict(target.read), skipped=tuple(decisions.skipped)
    )


def _why_not(
    source: TierState,
    part: PartitionState,
    target: TierState,
    other: PartitionState | None,
    lineage: Lineage,
) -> str | None:
    partition = part.topic_id_partition
    if not is_legal_topic_name(partition.topic) or partition.partition < 0:
        return "its topic name or partition number is illegal"
    reason = why_unknown(source, part)
    if reason:
        return f"in the source: {reason}"
    if other is None:
        reason = why_maybe_unheard_of(target, partition)
    else:
        latest = lineage.latest.epoch if lineage.latest is not None else -1
        reason = why_unknown(target, other) or why_behind(other.segments, latest)
    return f"in the target: {reason}" if reason else None


def _decide(
    part: PartitionState, other: PartitionState | None, lineage: Lineage, decisions: _Decisions
) -> None:
    partition = part.topic_id_partition
    cache = other.cache if other is not None else RemoteLogMetadataCache()
    there = list(cache.list_remote_log_segments())
    begun = [segment for segment in there if segment.state is _S.COPY_SEGMENT_STARTED]
    finished = {_copied_as(s): s for s in there if s.state is _S.COPY_SEGMENT_FINISHED}
    for item in _wanted(part.cache, lineage, cache):
        if isinstance(item, str):
            decisions.skipped.append(Skip.of(partition, item))
        elif _copied_as(item) not in finished:
            decisions.steps.append(with_begun(_step(item, lineage), begun))


def _copied_as(segment: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (segment.start_offset, segment.end_offset, segment.segment_leader_epochs)


def _wanted(
    source: RemoteLogMetadataCache, lineage: Lineage, target: RemoteLogMetadataCache
) -> Iterator[RemoteLogSegmentMetadata | str]:
    """Yield the segments that end above the target's last offset, in offset order.

    A string instead of a segment ends the iteration and is the reason.
    """
    copied = find_highest_remote_offset(target, lineage, 1 << 62).offset
    expected: int | None = None
    last: Uuid | None = None
    for span in segments_in_lineage(source, lineage):
        if expected is not None and span.from_offset > expected:
            yield f"the source has no segment for offsets {expected} to {span.from_offset - 1}"
            return
        expected = span.to_offset + 1
        segment = span.segment
        if segment.segment_id == last or segment.end_offset <= copied:
            continue
        if copied >= 0 and last is None and span.from_offset > copied + 1:
            yield (
                f"the target ends at offset {copied}, and the source begins at {span.from_offset}: "
                "the offsets between are lost, so copy the partition to a new tier"
            )
            return
        last = segment.segment_id
        yield segment


def _step(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> Step:
    return Step(
        action=Action.COPY_SEGMENT,
        reason=REASON,
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        details={
            LINEAGE_EPOCH: lineage.entries[-1].epoch,
            SOURCE_SEGMENT_ID: str(segment.segment_id),
            "max_timestamp_ms": segment.max_timestamp_ms,
            "segment_size_in_bytes": segment.segment_size_in_bytes,
            "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
            "txn_index_empty": segment.txn_index_empty,
        },
    )
