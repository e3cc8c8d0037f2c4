"""Choose, of the sets of objects of one partition, those that serve its offsets without a gap."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tierctl.model import EpochEntry, LogEnd, ObjectSet, RemoteLogSegmentMetadata, Uuid
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map, lineage_of_segment
from tierctl.state.log_start import Covered


def lineage_of_sets(sets: Iterable[ObjectSet], leader: Sequence[EpochEntry] = ()) -> Lineage:
    """Return the lineage of a log down to the first offset that the complete `sets` or `leader` know.

    `leader` are the epochs in the leader's checkpoint. Without them the lineage ends with the set of the
    highest last epoch, and of these of the highest end.
    """
    complete = sorted(
        ((each.segment, each.lineage) for each in sets if each.segment is not None),
        key=lambda pair: (pair[0].segment_leader_epochs[-1][0], pair[0].end_offset),
        reverse=True,
    )
    indexes = [entries for _, entries in complete if entries]
    # Each set has its own epochs, also where its leader-epoch index can't be read.
    chained = chain_by_epochs([segment for segment, _ in complete])
    if leader:
        return merge_lineage(leader, [*indexes, chained])
    newest_index = complete[0][1] if complete else None
    return merge_lineage(newest_index or chained, [*indexes, chained])


def merge_lineage(newest: Sequence[EpochEntry], others: Iterable[Sequence[EpochEntry]]) -> Lineage:
    """Return `newest` extended downwards by the lineages of earlier times, `others`, the latest first.

    Where another lineage begins lower, its entries with smaller epochs are taken, and its start for the epoch
    with which `newest` begins.
    """
    merged = list(newest)
    for entries in others:
        if not entries or not merged:
            merged = merged or list(entries)
            continue
        first = merged[0]
        if entries[0].start_offset >= first.start_offset:
            continue
        lower = [e for e in entries if e.epoch < first.epoch and e.start_offset < first.start_offset]
        own = [e for e in entries if e.epoch == first.epoch and e.start_offset < first.start_offset]
        merged = [*lower, *(own or [first]), *merged[1:]]
    return Lineage(merged)


def chain_by_epochs(segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[EpochEntry, ...]:
    """Return the lineage that the epochs of the segments show, without their leader-epoch indexes.

    The chain begins with the segment of the highest last epoch, then of the highest end. The predecessor of a
    segment is the one that ends right before it, whose last epoch is at most the segment's first, and of
    these the one with the highest last epoch. Each epoch starts at its first offset in the chain.
    """
    if not segments:
        return ()
    by_end: dict[int, list[RemoteLogSegmentMetadata]] = {}
    for segment in segments:
        by_end.setdefault(segment.end_offset, []).append(segment)
    current: RemoteLogSegmentMetadata | None = max(segments, key=_recency)
    starts: dict[int, int] = {}
    while current is not None:
        starts |= dict(current.segment_leader_epochs)
        first = current.segment_leader_epochs[0][0]
        before = [
            s for s in by_end.get(current.start_offset - 1, ()) if s.segment_leader_epochs[-1][0] <= first
        ]
        current = max(before, key=_recency, default=None)
    return Lineage(sorted(starts.items())).entries


def _recency(segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return (segment.segment_leader_epochs[-1][0], segment.end_offset)


def agrees(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Return whether the segment's epochs are those of the lineage at its offsets.

    Epochs without records do not count. A segment that a leader of another lineage copied disagrees, also if
    it has the same offsets and size.
    """
    within = lineage.entries_in_range(segment.start_offset, segment.end_offset + 1)
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    return bool(within) and own == build_filtered_leader_epoch_map(dict(within))


# The end offsets of segments whose log ends below the next segment.
#
# A topic that was compacted once and is tiered now (KAFKA-15388) has segments that lack offsets at their
# head, in their middle or at their end. A broker publishes such a segment up to the offset before the next
# segment, but where no manifest states the end, the objects only have the last batch that is left.

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
    spans = [(s.start_offset, s.end_offset) for each in segments if (s := each.segment) is not None]
    served = Covered(spans)
    unusable = [*unclear, *(each for each in sets if each.segment is None)]
    borders = {*(start for start, _ in spans), *(each.listed.start_offset for each in unusable)}
    others = {each.listed.start_offset for each in sets}
    ordered = sorted(borders if local is None else borders | {local.start})
    added: dict[SetKey, Hole] = {}
    unknown: list[ObjectSet] = []
    for each in segments:
        segment = each.segment
        assert segment is not None
        following = segment.end_offset + 1
        is_served = following in borders or served.has_all(following, following + 1)
        if segment.segment_id in known or is_served:
            continue
        at = bisect_right(ordered, following)
        border = ordered[at] if at < len(ordered) else None
        if local is not None and local.start <= following:
            hole = _local_hole(local.holes.get(following), following, border)
            if hole is not None and each.log_end is not None:
                added[set_key(each)] = hole
            continue
        hole = _hole(each.log_end, following, border)
        if hole is None:
            continue
        match _after(each.log_end, is_compacted=is_compacted):
            case _After.COMPACTED:
                added[set_key(each)] = hole
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


def set_key(each: ObjectSet) -> SetKey:
    """Return the segment id and the start offset of a set: misplaced objects may have the id of another."""
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
    if segment is None or set_key(each) not in added:
        return each
    hole = added[set_key(each)]
    later = ((e.epoch, e.start_offset) for e in lineage.entries if hole.first <= e.start_offset <= hole.last)
    epochs = (*segment.segment_leader_epochs, *later)
    return replace(each, segment=replace(segment, end_offset=hole.last, segment_leader_epochs=epochs))


_K = ReasonKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which sets are published, in order of offsets.

    `chain` has the segments that serve the partition, `discarded` the segments of the sets that are
    published as being deleted, `left` the sets about which nothing is published, each with its reason.
    `hole` is the last hole below the chain, which no reader can pass. `compacted` are the offsets at the ends
    of the chain's segments that have no record.
    """

    chain: tuple[RemoteLogSegmentMetadata, ...] = ()
    discarded: tuple[tuple[RemoteLogSegmentMetadata, Reason], ...] = ()
    left: tuple[tuple[ObjectSet, Reason], ...] = ()
    hole: Hole | None = None
    compacted: tuple[Hole, ...] = ()

    @property
    def first_offset(self) -> int | None:
        """The first offset that the chain serves."""
        return self.chain[0].start_offset if self.chain else None

    @property
    def next_offset(self) -> int | None:
        """The offset after the last one that the chain serves."""
        return self.chain[-1].end_offset + 1 if self.chain else None


def chains(sets: Sequence[ObjectSet], known: Collection[Uuid] = ()) -> list[list[RemoteLogSegmentMetadata]]:
    """Return the gapless chains of the complete `sets`, in order of offsets; a hole is between two of them.

    Of sets with the same start, the one with the highest end is chosen, then a segment in `known`, then one
    without a damaged index, then the newest objects. If no set begins at the next offset, the set that
    contains the next offset and has the highest end is chosen: brokers copy such sets after a change of
    leader, because replicas roll their segments at different offsets. The ends of compacted segments are
    those of `with_ends`.
    """
    ordered = [segment for _, segment in sorted(_best_by_start(sets, known).items())]
    found: list[list[RemoteLogSegmentMetadata]] = [ordered[:1]] if ordered else []
    reaching = ordered[0] if ordered else None
    for candidate in ordered[1:]:
        chain, start = found[-1], candidate.start_offset
        if _next_offset(chain) < start:
            _reach(chain, reaching)
        if _next_offset(chain) < start:
            found.append([candidate])
        elif _next_offset(chain) == start:
            chain.append(candidate)
        if reaching is None or candidate.end_offset > reaching.end_offset:
            reaching = candidate
    if found:
        _reach(found[-1], reaching)
    return found


def _next_offset(chain: Sequence[RemoteLogSegmentMetadata]) -> int:
    return chain[-1].end_offset + 1


def _reach(chain: list[RemoteLogSegmentMetadata], reaching: RemoteLogSegmentMetadata | None) -> None:
    """Add `reaching`, which ends last of the segments seen so far, if it serves the chain's next offset.

    Segments that it contains leave the chain.
    """
    if reaching is not None and reaching.end_offset >= _next_offset(chain):
        while chain and chain[-1].start_offset >= reaching.start_offset:
            chain.pop()
        chain.append(reaching)


def _best_by_start(sets: Sequence[ObjectSet], known: Collection[Uuid]) -> dict[int, RemoteLogSegmentMetadata]:
    best: dict[int, tuple[tuple[int, bool, bool, int, Uuid], RemoteLogSegmentMetadata]] = {}
    for each in sets:
        segment = each.segment
        if segment is None:
            continue
        rank = (
            segment.end_offset,
            segment.segment_id in known,
            not each.damaged_indexes,
            each.listed.modified_ms or 0,
            segment.segment_id,
        )
        if segment.start_offset not in best or rank > best[segment.start_offset][0]:
            best[segment.start_offset] = (rank, segment)
    return {start: segment for start, (_, segment) in best.items()}


def choose(
    sets: Sequence[ObjectSet],
    lineage: Lineage,
    *,
    log_start_offset: int,
    local: LocalOffsets | None = None,
    known: Collection[Uuid] = (),
    unclear: Sequence[ObjectSet] = (),
) -> Choice:
    """Choose the chain that serves the log from `log_start_offset` on.

    Of several chains the one after the last hole is chosen, but a hole that the `local` log has the records
    of ends the chain: brokers copy on from there. An incomplete set above the chain is discarded only if the
    local log has its first offset.
    `known` are segments that the metadata have as finished, `unclear` the other sets of the partition, which
    are not understood.
    """
    ends = with_ends(sets, lineage, known=known, local=local, unclear=unclear)
    sets, added = ends.sets, ends.added
    within = [each for each in sets if each.segment is None or each.segment.end_offset >= log_start_offset]
    good = [each for each in within if each.segment is not None and agrees(each.segment, lineage)]
    found = chains(good, known)
    at = _chosen(found, local)
    chain = tuple(found[at]) if found else ()
    hole = Hole(found[at - 1][-1].end_offset + 1, chain[0].start_offset - 1) if at > 0 else None
    above = Hole(chain[-1].end_offset + 1, found[at + 1][0].start_offset - 1) if at + 1 < len(found) else None
    placed = _Placed(chain, lineage, hole, above, log_start_offset, local)
    discarded: list[tuple[RemoteLogSegmentMetadata, Reason]] = []
    left: list[tuple[ObjectSet, Reason]] = []
    published = {segment.segment_id: segment.start_offset for segment in chain}
    for each in sets:
        key, start = set_key(each)
        if published.get(key) == start:
            continue
        reason = placed.why_left(each)
        if reason is None and key in published:
            # DELETE_SEGMENT_STARTED would count for the segment with the same id, too.
            reason = Reason(_K.SAME_SEGMENT_ID, start_offset=start)
        if reason is not None:
            left.append((each, reason))
        else:
            discarded.append(placed.discarded(each))
            published[key] = start
    keys = ((segment.segment_id, segment.start_offset) for segment in chain)
    compacted = tuple(added[key] for key in keys if key in added)
    return Choice(chain=chain, discarded=tuple(discarded), left=tuple(left), hole=hole, compacted=compacted)


def _chosen(found: Sequence[Sequence[RemoteLogSegmentMetadata]], local: LocalOffsets | None) -> int:
    """Return the number of the first chain above which the local log has every record."""
    for at, chain in enumerate(found):
        if local is not None and local.start <= chain[-1].end_offset + 1:
            return at
    return len(found) - 1


@dataclass(frozen=True, slots=True)
class _Placed:
    """The chain that is published, and the resulting decision about every other set."""

    chain: tuple[RemoteLogSegmentMetadata, ...]
    lineage: Lineage
    hole: Hole | None
    above: Hole | None
    log_start_offset: int
    local: LocalOffsets | None

    def why_left(self, each: ObjectSet) -> Reason | None:
        """Return why no event is published about a set that is not in the chain; None if it is discarded."""
        end = each.listed.start_offset if each.segment is None else each.segment.end_offset
        is_first = self.hole is None and bool(self.chain) and end < self.chain[0].start_offset
        is_below = is_first or end < self.log_start_offset
        if each.segment is None and is_below and self.local is None:
            # Its absence may be why the chain, and the log with it, begins where it does.
            return self._only_copy(each, end)
        if end < self.log_start_offset:
            return Reason(_K.LOG_START_OFFSET, log_start_offset=self.log_start_offset)
        if not self.chain:
            detail = each.why_incomplete or "its epochs are not those of the lineage"
            return Reason(_K.NO_CHAIN, detail=detail)
        if end < self.chain[0].start_offset:
            # It is unknown whether such a set is lost or off the lineage, because no set has its offsets.
            if self.hole is None:
                return self._reason_of(each)
            detail = "" if each.segment is not None else f"; this set is incomplete: {each.why_incomplete}"
            return Reason(_K.BEFORE_HOLE, first=self.hole.first, last=self.hole.last, detail=detail)
        return self._why_left_across(each) or self._why_left_above(each)

    def _why_left_across(self, each: ObjectSet) -> Reason | None:
        """Return why a set that begins below the chain and ends within it is left; None without such offsets.

        A former leader copied it, and the log may have records of it up to the offset where they diverged.
        """
        segment = each.segment
        if segment is None or self.local is not None or segment.start_offset >= self.chain[0].start_offset:
            return None
        start = segment.start_offset
        is_of_log = lineage_of_segment(segment).epoch_for_offset(start) == self.lineage.epoch_for_offset(
            start
        )
        return (
            self._only_copy(each, start) if is_of_log else self._why_left_above(each) or self._reason_of(each)
        )

    def _why_left_above(self, each: ObjectSet) -> Reason | None:
        start = each.listed.start_offset
        if self.above is not None and start > self.above.last:
            return Reason(_K.ABOVE_HOLE, first=self.above.first, last=self.above.last)
        end = self.chain[-1].end_offset
        is_local = self.local is not None and self.local.start <= start < self.local.end
        if each.segment is None and start > end and not is_local:
            return self._only_copy(each, start)
        # Without a log, the newest leader-epoch index states the lineage, and it may have lost entries.
        if self.local is None and each.shown_end_offset > end:
            return self._only_copy(each, max(start, end + 1))
        return None

    def _only_copy(self, each: ObjectSet, offset: int) -> Reason:
        """Return the reason to leave a set with an `offset` that no other set and no given log has."""
        detail = f"incomplete: {each.why_incomplete}" if each.segment is None else str(self._reason_of(each))
        return Reason(_K.NOT_SERVED, detail=detail, start_offset=offset)

    def discarded(self, each: ObjectSet) -> tuple[RemoteLogSegmentMetadata, Reason]:
        """Return the metadata of a set that is published as being deleted, and the reason."""
        return each.segment or self._invented(each), self._reason_of(each)

    def _reason_of(self, each: ObjectSet) -> Reason:
        if each.segment is None:
            return Reason(_K.INCOMPLETE_SET, detail=each.why_incomplete)
        if agrees(each.segment, self.lineage):
            serving = next(self._serving(each.segment.start_offset), self.chain[0])
            return Reason(_K.DUPLICATE_SET, kept=str(serving.segment_id))
        there = self.lineage.entries_in_range(each.segment.start_offset, each.segment.end_offset + 1)
        own = _epochs_text(each.segment.segment_leader_epochs)
        detail = f"are {own}, the log has {_epochs_text(there)} at these offsets"
        return Reason(_K.OFF_LINEAGE, detail=detail)

    def _serving(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        return (segment for segment in self.chain if segment.start_offset <= offset <= segment.end_offset)

    def _invented(self, each: ObjectSet) -> RemoteLogSegmentMetadata:
        """Return metadata for an incomplete set: those of the segment that serves its start, if one does.

        No reader uses them: brokers only need the names of the objects, to delete them.
        """
        listed = each.listed
        start = listed.start_offset
        serving = next(self._serving(start), None)
        end = start if serving is None else serving.end_offset
        return replace(
            self.chain[-1] if serving is None else serving,
            segment_id=listed.segment_id,
            start_offset=start,
            end_offset=end,
            segment_leader_epochs=self.lineage.entries_in_range(start, end + 1),
            custom_metadata=None,
        )


def _epochs_text(pairs: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in pairs) or "none"
