"""A partition's leader epochs, and which remote segments belong to them.

LeaderEpochFileCache's answers and RemoteLogManager's decisions that need nothing but epochs and segments.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata
from tierctl.state.cache import RemoteLogMetadataCache

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class EpochEndOffset(NamedTuple):
    """Where an epoch ends: `end_offset` is exclusive, both are -1 when the epoch is not known."""

    epoch: int
    end_offset: int


class Lineage:
    """The leader epochs of a log, each with the offset it starts at, both strictly ascending.

    Immutable. Entries are taken one by one as LeaderEpochFileCache.assign takes those of its checkpoint:
    one that goes back in epoch or offset throws out what it contradicts. Raises CorruptInputError for a
    negative epoch or offset.
    """

    __slots__ = ("_starts", "entries", "epochs_with_records")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        kept: list[EpochEntry] = []
        for epoch, start_offset in entries:
            _assign(kept, EpochEntry(epoch, start_offset))
        self.entries: tuple[EpochEntry, ...] = tuple(kept)
        self.epochs_with_records = build_filtered_leader_epoch_map(dict(kept))
        self._starts = [entry.start_offset for entry in kept]

    def __repr__(self) -> str:
        return f"Lineage({[tuple(entry) for entry in self.entries]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def earliest(self) -> EpochEntry | None:
        """The first entry."""
        return self.entries[0] if self.entries else None

    @property
    def latest(self) -> EpochEntry | None:
        """The last entry, which is the epoch still being written."""
        return self.entries[-1] if self.entries else None

    def entry(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly that epoch."""
        return next((entry for entry in self.entries if entry.epoch == epoch), None)

    def next_epoch(self, epoch: int) -> int | None:
        """The least known epoch above `epoch`."""
        return next((entry.epoch for entry in self.entries if entry.epoch > epoch), None)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that `offset` was, or would be, written in; None below the first entry."""
        at = bisect_right(self._starts, offset) - 1
        return self.entries[at].epoch if at >= 0 else None

    def starts_within(self, after_offset: int, last_offset: int) -> list[int]:
        """Where epochs start in (after_offset, last_offset]."""
        return self._starts[
            bisect_right(self._starts, after_offset) : bisect_right(self._starts, last_offset)
        ]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """LeaderEpochFileCache.endOffsetFor: the largest known epoch up to `epoch`, and where it ends.

        That is where the next epoch starts, or `log_end_offset` for the latest. An epoch before all known
        ones ends where the first known one starts; one after them all is undefined.
        """
        if self.latest is not None and epoch == self.latest.epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = next((entry for entry in self.entries if entry.epoch > epoch), None)
        if epoch == UNDEFINED_EPOCH or higher is None:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        floor = next((entry.epoch for entry in reversed(self.entries) if entry.epoch <= epoch), epoch)
        return EpochEndOffset(floor, higher.start_offset)

    def assign(self, epoch: int, start_offset: int) -> "Lineage":
        """With one more entry, as the first batch of a new epoch adds it."""
        return Lineage((*self.entries, EpochEntry(epoch, start_offset)))

    def truncate_from_end(self, end_offset: int) -> "Lineage":
        """Without the epochs that start at or after `end_offset` (negative: all stay)."""
        if end_offset < 0:
            return self
        return Lineage(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: int) -> "Lineage":
        """As of a log that starts at `start_offset`: the epoch it lies in starts there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0:
            return self
        return Lineage((EpochEntry(self.entries[at - 1].epoch, start_offset), *self.entries[at:]))

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """Entries of [start_offset, end_offset), the first raised to `start_offset`."""
        cut = self.truncate_from_start(start_offset) if start_offset >= 0 else self
        return cut.truncate_from_end(end_offset).entries

    def contains(self, segment: RemoteLogSegmentMetadata, log_end_offset: int) -> bool:
        """Whether the segment belongs to this lineage (see is_remote_segment_within_leader_epochs)."""
        return is_remote_segment_within_leader_epochs(segment, log_end_offset, self.epochs_with_records)


def _assign(entries: list[EpochEntry], entry: EpochEntry) -> None:
    if entry.epoch < 0 or entry.start_offset < 0:
        raise CorruptInputError(
            "leader epoch entry",
            expected="epoch and offset of at least 0",
            found=f"{entry.epoch} {entry.start_offset}",
        )
    if entries and entries[-1].epoch == entry.epoch and entries[-1].start_offset <= entry.start_offset:
        return
    while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
        entries.pop()
    entries.append(entry)


def build_filtered_leader_epoch_map(epochs: Mapping[int, int]) -> dict[int, int]:
    """RemoteLogManager.buildFilteredLeaderEpochMap: epochs ascending, without those that hold no records.

    An epoch holds none when the next one starts at the same offset.
    """
    ordered = sorted(epochs.items())
    following = [start for _, start in ordered[1:]]
    return {
        epoch: start
        for at, (epoch, start) in enumerate(ordered)
        if at == len(following) or following[at] != start
    }


def is_remote_segment_within_leader_epochs(
    segment: RemoteLogSegmentMetadata, log_end_offset: int, leader_epochs: Mapping[int, int]
) -> bool:
    """RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.

    `leader_epochs` is the log's lineage without empty epochs, ascending. The segment's epochs must be the
    lineage's, but for its first, which may start later, and its last, which may end sooner; epochs below
    the lineage's first are forgiven (they were truncated). It must end below `log_end_offset`.
    """
    own = build_filtered_leader_epoch_map(dict(segment.segment_leader_epochs))
    known = list(leader_epochs)
    relevant = [epoch for epoch in own if known and epoch >= known[0]]
    if not relevant or any(epoch not in leader_epochs for epoch in relevant):
        return False
    first = relevant[0]
    if first != known[0] and own[first] < leader_epochs[first]:
        return False
    at = known.index(first)
    if known[at : at + len(relevant)] != relevant:
        return False
    if any(own[epoch] != leader_epochs[epoch] for epoch in relevant[1:]):
        return False
    following = known[at + len(relevant)] if at + len(relevant) < len(known) else None
    ends = log_end_offset if following is None else min(log_end_offset, leader_epochs[following])
    return segment.end_offset < ends


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """An offset and the leader epoch it belongs to; -1 and -1 when there is none."""

    offset: int
    epoch: int


def find_highest_remote_offset(
    cache: RemoteLogMetadataCache, lineage: Lineage, log_end_offset: int
) -> OffsetAndEpoch:
    """RemoteLogManager.findHighestRemoteOffset: the last offset copied, from the latest epoch back.

    Cut to where the epoch ends in this lineage: what a former leader copied above it diverged.
    """
    for entry in reversed(lineage.entries):
        highest = cache.highest_offset_for_epoch(entry.epoch)
        if highest is None:
            continue
        found = lineage.end_offset_for(entry.epoch, log_end_offset)
        if found.end_offset <= highest:
            return OffsetAndEpoch(found.end_offset - 1, found.epoch)
        return OffsetAndEpoch(highest, entry.epoch)
    return OffsetAndEpoch(-1, UNDEFINED_EPOCH)


class SegmentSpan(NamedTuple):
    """The part of a remote segment that answers for [from_offset, to_offset], both inclusive."""

    segment: RemoteLogSegmentMetadata
    from_offset: int
    to_offset: int


def segments_in_lineage(
    cache: RemoteLogMetadataCache, lineage: Lineage, start_offset: int = 0, end_offset: int | None = None
) -> Iterator[SegmentSpan]:
    """What the tier answers from `start_offset` up to `end_offset` (inclusive; None: all there is).

    Each offset is covered at most once, by the segment a broker of this lineage would read: the epoch of
    the offset, the segment the cache has for both, and of it no more than was written in this lineage.
    Spans ascend. Offsets the tier has no readable segment for are passed over: a hole between two spans.
    """
    if lineage.earliest is None:
        return
    offset: int | None = max(start_offset, lineage.earliest.start_offset)
    while offset is not None and (end_offset is None or offset <= end_offset):
        epoch = lineage.epoch_for_offset(offset)
        segment = None if epoch is None else cache.remote_log_segment_metadata(epoch, offset)
        if segment is None:
            offset = _next_readable_offset(cache, lineage, offset)
            continue
        last = _last_common_offset(segment, lineage, offset)
        yield SegmentSpan(segment, offset, last if end_offset is None else min(last, end_offset))
        offset = last + 1


def _last_common_offset(segment: RemoteLogSegmentMetadata, lineage: Lineage, offset: int) -> int:
    """The last offset from `offset` on up to which segment and lineage name the same epochs."""
    own = Lineage(sorted(dict(segment.segment_leader_epochs).items()))
    if own.epoch_for_offset(offset) != lineage.epoch_for_offset(offset):
        # Epochs that don't ascend: the cache found the segment by one of them, and no more is known.
        return offset
    within = (offset, segment.end_offset)
    for border in sorted({*own.starts_within(*within), *lineage.starts_within(*within)}):
        if own.epoch_for_offset(border) != lineage.epoch_for_offset(border):
            return border - 1
    return max(segment.end_offset, offset)


def _next_readable_offset(cache: RemoteLogMetadataCache, lineage: Lineage, offset: int) -> int | None:
    """The next offset above `offset` at which a readable segment, or a segment's epoch, begins."""
    starts = []
    for entry, following in zip(lineage.entries, [*lineage.entries[1:], None], strict=True):
        start = cache.next_start_offset(entry.epoch, max(offset + 1, entry.start_offset))
        # A segment of this epoch that begins where the lineage is already in the next one diverged.
        if start is not None and (following is None or start < following.start_offset):
            starts.append(start)
        if entry.start_offset > offset and cache.remote_log_segment_metadata(entry.epoch, entry.start_offset):
            starts.append(entry.start_offset)
    return min(starts, default=None)
