"""Choose, of the sets of objects of one partition, those that serve its offsets without a gap."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tierctl.model import ObjectSet, RemoteLogSegmentMetadata, Uuid
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.ends import Hole, LocalOffsets, with_ends
from tierctl.plan.rebuild.lineage import agrees
from tierctl.state.lineage import Lineage

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

    Of sets with the same start, the one with the highest end is chosen, then a segment in `known`, then the
    newest objects. If no set begins at the next offset, the set that contains the next offset and has the
    highest end is chosen: brokers copy such sets after a change of leader, because replicas roll their
    segments at different offsets. The ends of compacted segments are those of `with_ends`.
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
    best: dict[int, tuple[tuple[int, bool, int, Uuid], RemoteLogSegmentMetadata]] = {}
    for each in sets:
        segment = each.segment
        if segment is None:
            continue
        rank = (
            segment.end_offset,
            segment.segment_id in known,
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
        key, start = each.listed.segment_id, each.listed.start_offset
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
            return Reason(_K.NO_CHAIN, detail=self._why_not_chained(each))
        if end < self.chain[0].start_offset:
            # It is unknown whether such a set is lost or off the lineage, because no set has its offsets.
            if self.hole is None:
                return self._reason_of(each)
            detail = "" if each.segment is not None else f"; this set is incomplete: {each.why_incomplete}"
            return Reason(_K.BEFORE_HOLE, first=self.hole.first, last=self.hole.last, detail=detail)
        return self._why_left_above(each)

    def _why_left_above(self, each: ObjectSet) -> Reason | None:
        start = each.listed.start_offset
        if self.above is not None and start > self.above.last:
            return Reason(_K.ABOVE_HOLE, first=self.above.first, last=self.above.last)
        end = self.chain[-1].end_offset
        if each.segment is None and start > end and not self._is_local(start):
            return self._only_copy(each, start)
        # Without a log, the newest leader-epoch index states the lineage, and it may have lost entries.
        if each.segment is not None and self.local is None and each.segment.end_offset > end:
            return self._only_copy(each, max(start, end + 1))
        return None

    def _only_copy(self, each: ObjectSet, offset: int) -> Reason:
        """Return the reason to leave a set with an `offset` that no other set and no given log has."""
        detail = f"incomplete: {each.why_incomplete}" if each.segment is None else str(self._reason_of(each))
        return Reason(_K.NOT_SERVED, detail=detail, start_offset=offset)

    def _is_local(self, offset: int) -> bool:
        return self.local is not None and self.local.start <= offset < self.local.end

    def _why_not_chained(self, each: ObjectSet) -> str:
        return each.why_incomplete or "its epochs are not those of the lineage"

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
