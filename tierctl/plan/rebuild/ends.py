"""The end offsets of segments whose log ends in offsets that compaction removed.

A topic that was compacted once and is tiered now (KAFKA-15388) has segments that lack offsets at their head,
in their middle or at their end. A broker publishes such a segment up to the offset before the next segment,
but where no manifest states the end, the objects only have the last batch that is left.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tierctl.model import ObjectSet, Uuid
from tierctl.plan.rebuild.lineage import agrees
from tierctl.state.lineage import Lineage

SetKey = tuple[Uuid, int]
"""Segment id and start offset: misplaced objects may have the id of a segment at another offset."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets without a set, or without a record; both inclusive."""

    first: int
    last: int


def with_ends(
    sets: Sequence[ObjectSet],
    lineage: Lineage,
    *,
    known: Collection[Uuid] = (),
    local_start: int | None = None,
) -> tuple[list[ObjectSet], dict[SetKey, Hole]]:
    """Return the `sets` of a partition with the ends that a broker published, and the offsets added to each.

    Only if a set of the partition shows that it was compacted: a segment of the `lineage` then ends before
    the next set, or before the local log at `local_start`. A set that can't be used ends a segment, too,
    because it may have the records that follow. Ends that metadata (`known`) or other sets state stay.
    """
    added: dict[SetKey, Hole] = {}
    segments = [each.segment for each in sets if each.segment is not None and agrees(each.segment, lineage)]
    if not segments or not any(each.has_gaps for each in sets):
        return list(sets), added
    spans = sorted((segment.start_offset, segment.end_offset) for segment in segments)
    starts = [start for start, _ in spans]
    reached = list(accumulate((end for _, end in spans), max))
    borders = {*starts, *(each.listed.start_offset for each in sets if each.segment is None)}
    ordered = sorted(borders if local_start is None else borders | {local_start})
    for segment in segments:
        following = segment.end_offset + 1
        at = bisect_right(ordered, following)
        is_served = following in borders or reached[bisect_right(starts, following) - 1] >= following
        if segment.segment_id not in known and not is_served and at < len(ordered):
            added[segment.segment_id, segment.start_offset] = Hole(following, ordered[at] - 1)
    return [_ended(each, lineage, added) for each in sets], added


def _ended(each: ObjectSet, lineage: Lineage, added: Mapping[SetKey, Hole]) -> ObjectSet:
    """Return the set with its new end, and with the leader epochs that began after its last batch."""
    segment = each.segment
    if segment is None or (segment.segment_id, segment.start_offset) not in added:
        return each
    hole = added[segment.segment_id, segment.start_offset]
    later = ((e.epoch, e.start_offset) for e in lineage.entries if hole.first <= e.start_offset <= hole.last)
    epochs = (*segment.segment_leader_epochs, *later)
    return replace(each, segment=replace(segment, end_offset=hole.last, segment_leader_epochs=epochs))
