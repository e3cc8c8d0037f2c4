"""The end offsets of segments whose log ends below the next segment.

A topic that was compacted once and is tiered now (KAFKA-15388) has segments that lack offsets at their head,
in their middle or at their end. A broker publishes such a segment up to the offset before the next segment,
but where no manifest states the end, the objects only have the last batch that is left.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import accumulate

from tierctl.model import LogEnd, ObjectSet, Uuid
from tierctl.plan.rebuild.lineage import agrees
from tierctl.state.lineage import Lineage

SetKey = tuple[Uuid, int]
"""Segment id and start offset: misplaced objects may have the id of a segment at another offset."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets without a set, or without a record; both inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LocalHole:
    """Offsets without a record between two batches of a leader's log, right after the first of these.

    `next_offset` is that of the second batch. `rolled_at` is the base offset of the first local segment that
    begins in the hole or right after it: there the segment before ends; None if both batches are in one.
    """

    next_offset: int
    rolled_at: int | None


@dataclass(frozen=True, slots=True)
class LocalOffsets:
    """The offsets of the segments in a leader's log directory; `end` is exclusive.

    `holes` are those that begin where the log of a set ends, by the first offset.
    """

    start: int
    end: int
    holes: Mapping[int, LocalHole] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The sets of a partition with the ends that a broker published.

    `added` are the offsets without a record that were added to the end of a segment. `unclear` has those of
    the sets of which it is unknown whether they had the offsets after their last batch, as sets that are not
    understood.
    """

    sets: Sequence[ObjectSet]
    added: Mapping[SetKey, Hole]
    unclear: Sequence[ObjectSet]


class _After(Enum):
    """What became of the records between the last batch of a segment and the next segment."""

    COMPACTED = auto()
    LOST = auto()
    UNKNOWN = auto()


def _after(end: LogEnd | None, *, is_compacted: bool) -> _After:
    """Return what became of the offsets between the last batch of a log and the next set, or the local log.

    `is_compacted` states that a set of the partition lacks offsets at its head or in its middle. Sets are not
    judged here if they are shorter than their manifest says, or their indexes have a batch after the last one
    of the log: they are incomplete.

    - A manifest or the metadata state the end: the offsets are those of a lost set.
    - A set of the partition shows that it was compacted: they were compacted.
    - The segment had offsets after its last batch, by its producer snapshot or leader epochs, and the time
      index ends with the last batch: they were compacted.
    - The producer of the last batch is in the snapshot, and no producer or leader epoch has a later offset:
      they are those of a lost set.
    - Otherwise nothing decides: compacted, of a lost set, or cut off this log.
    """
    if end is None:
        return _After.LOST
    if is_compacted:
        return _After.COMPACTED
    if end.reached_offset > end.offset:
        return _After.COMPACTED if end.is_closed else _After.UNKNOWN
    return _After.LOST if end.is_idempotent else _After.UNKNOWN


def with_ends(
    sets: Sequence[ObjectSet],
    lineage: Lineage,
    *,
    known: Collection[Uuid] = (),
    local: LocalOffsets | None = None,
    unclear: Sequence[ObjectSet] = (),
) -> Ends:
    """Return the `sets` of a partition with the ends that a broker published.

    A segment of the `lineage` may end before the next set, or before the `local` log: `_after` decides. Where
    the `local` log has the offsets that follow, its batches decide: what it lacks, too, was compacted. A set
    that can't be used, as those that are `unclear`, ends a segment, too, because it may have the records that
    follow. Ends that metadata (`known`) or other sets state stay; a set that begins right after a segment, on
    whatever lineage, shows that its log was not cut.
    """
    segments = [each for each in sets if each.segment is not None and agrees(each.segment, lineage)]
    is_compacted = any(each.has_gaps for each in sets)
    spans = sorted((s.start_offset, s.end_offset) for each in segments if (s := each.segment) is not None)
    starts = [start for start, _ in spans]
    reached = list(accumulate((end for _, end in spans), max))
    unusable = [*unclear, *(each for each in sets if each.segment is None)]
    borders = {*starts, *(each.listed.start_offset for each in unusable)}
    others = {each.listed.start_offset for each in sets}
    ordered = sorted(borders if local is None else borders | {local.start})
    added: dict[SetKey, Hole] = {}
    unknown: list[ObjectSet] = []
    for each in segments:
        segment = each.segment
        assert segment is not None
        following = segment.end_offset + 1
        is_served = following in borders or reached[bisect_right(starts, following) - 1] >= following
        if segment.segment_id in known or is_served:
            continue
        at = bisect_right(ordered, following)
        border = ordered[at] if at < len(ordered) else None
        if local is not None and local.start <= following:
            hole = _local_hole(local.holes.get(following), following, border)
            if hole is not None and each.log_end is not None:
                added[_key(each)] = hole
            continue
        hole = _hole(each.log_end, following, border)
        if hole is None:
            continue
        match _after(each.log_end, is_compacted=is_compacted):
            case _After.COMPACTED:
                added[_key(each)] = hole
            case _After.UNKNOWN if following not in others:
                unknown.append(_not_understood(each, hole))
            case _:
                pass
    return Ends(sets=[_ended(each, lineage, added) for each in sets], added=added, unclear=unknown)


def _hole(end: LogEnd | None, following: int, border: int | None) -> Hole | None:
    """Return the offsets without a batch after a segment; without a `border`, up to what the segment had."""
    if border is None and end is not None:
        border = end.reached_offset + 1
    return None if border is None or border <= following else Hole(following, border - 1)


def _local_hole(found: LocalHole | None, following: int, border: int | None) -> Hole | None:
    """Return the offsets after a segment that the local log lacks, too, up to a set or a local segment."""
    if found is None:
        return None
    end = border if border is not None and border <= found.next_offset else found.rolled_at
    return None if end is None else Hole(following, end - 1)


def _key(each: ObjectSet) -> SetKey:
    return each.listed.segment_id, each.listed.start_offset


def _not_understood(each: ObjectSet, hole: Hole) -> ObjectSet:
    reason = (
        f"its log ends at offset {hole.first - 1}, and no set of objects has offsets {hole.first} to "
        f"{hole.last}: its objects do not tell whether these were compacted, were cut off, or are those of a "
        "lost set"
    )
    return replace(each, segment=None, lineage=None, why_not_understood=reason)


def _ended(each: ObjectSet, lineage: Lineage, added: Mapping[SetKey, Hole]) -> ObjectSet:
    """Return the set with its new end, and with the leader epochs that began after its last batch."""
    segment = each.segment
    if segment is None or _key(each) not in added:
        return each
    hole = added[_key(each)]
    later = ((e.epoch, e.start_offset) for e in lineage.entries if hole.first <= e.start_offset <= hole.last)
    epochs = (*segment.segment_leader_epochs, *later)
    return replace(each, segment=replace(segment, end_offset=hole.last, segment_leader_epochs=epochs))
