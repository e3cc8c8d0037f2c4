"""A broker's cache of the segments of one user partition; the leader epochs of a log (its lineage), and the
remote segments that belong to it.

The answers of LeaderEpochFileCache, and RemoteLogManager's decisions that need only epochs and segments.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.kernel import int64, kernel
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, Uuid
from tierctl.model.local import LARGEST_OFFSET
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import NO_OFFSET, REPEATED, Arrays
from tierctl.wire.arrays import Int64s
from tierctl.wire.batches.batch_head import MAGIC
from tierctl.wire.batches.scan import HeadColumns


@kernel
def linked(t: Arrays, first: int) -> Int64s:
    """Return the links of a list of a leader epoch, from its first link on; -1 is that of an empty list."""
    count, link = 0, int64(first)
    while link >= 0:
        count, link = count + 1, int64(t.links[link]["next"])
    links = np.empty(count, np.int64)
    link = int64(first)
    for i in range(count):
        links[i], link = link, int64(t.links[link]["next"])
    return links


class _Readable(NamedTuple):
    """The readable segments of a leader epoch: their rows, and where the epoch starts in each."""

    rows: Int64s
    starts: Int64s


class RemoteLogMetadataCache:
    """The segments of one user partition that are not deleted, as a broker has them: a view of a table.

    Every query returns the same result as Kafka's class of this name
    (org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache).
    """

    def __init__(self, table: SegmentTable, number: int) -> None:
        self.table = table
        self.number = number

    @classmethod
    def empty(cls) -> Self:
        """Return the cache of a user partition without events."""
        return cls(SegmentTable(), 0)

    def __len__(self) -> int:
        return int(self.table.partitions["live"][self.number]) if len(self.table.partitions) else 0

    @property
    def rows(self) -> Int64s:
        """Return the rows of the segments in the table, in order of arrival."""
        return self.table.rows_of(self.number) if len(self.table.partitions) else np.empty(0, np.int64)

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return the segment with that id in any state; None if it is unknown or deleted."""
        row = self.table.find(self.number, segment_id)
        return None if row < 0 else self.table.metadata(row)

    def is_superseded(self, segment_id: Uuid) -> bool:
        """Return whether a later copy that reaches the segment's start offset finished, or any failed."""
        partition, segment = self.table.partitions[self.number], self.table.find(self.number, segment_id)
        if segment < 0:
            return False
        own = self.table.segments[segment]
        is_copied = partition["copied_offset"] > own["offset"] and partition["copied_end"] >= own["start"]
        is_failing = partition["failed_copies"] and partition["failed_last"] > own["event_timestamp"]
        return bool(is_copied or is_failing)

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that contains `offset` in leader epoch `epoch`."""
        row = self._find(epoch, offset)
        return None if row < 0 else self.table.metadata(row)

    def _find(self, epoch: int, offset: int) -> int:
        found = self._readable(epoch)
        at = int(np.searchsorted(found.starts, offset, side="right")) - 1
        row = int(found.rows[at]) if at >= 0 else -1
        return row if row >= 0 and offset <= self._epoch_end(row, epoch) else -1

    def _epoch_end(self, row: int, epoch: int) -> int:
        """Return the last offset that `epoch` can have in the segment: the next epoch's start minus one."""
        segment, links = self.table.segments[row], self.table.links
        own = links[int(segment["links"]) :][: int(segment["link_count"])]
        own = own[own["status"] != REPEATED]
        own = own[np.argsort(own["epoch"], kind="stable")]
        at = int(np.searchsorted(own["epoch"], epoch))
        return int(own["start"][at + 1]) - 1 if at + 1 < len(own) else int(segment["end"])

    def _readable(self, epoch: int) -> _Readable:
        at = self.table.epoch(self.number, epoch)
        known: dict[int, _Readable] = self.table.derived
        if at not in known:
            t = self.table.arrays
            links = linked(t, int(t.epochs[at]["first_readable"]) if at >= 0 else -1)
            known[at] = _Readable(t.links["segment"][links].astype(np.int64), t.links["start"][links])
        return known[at]

    def next_start_offset(self, epoch: int, offset: int) -> int | None:
        """Return the lowest offset, at or after `offset`, at which a readable segment of `epoch` begins."""
        starts = self._readable(epoch).starts
        at = int(np.searchsorted(starts, offset))
        return int(starts[at]) if at < len(starts) else None

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments does not lower it."""
        at = self.table.epoch(self.number, epoch)
        highest = NO_OFFSET if at < 0 else int(self.table.epochs[at]["highest"])
        return None if highest == NO_OFFSET else highest

    def list_remote_log_segments(self, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `epoch` by start offset, or all segments in order of arrival.

        Fold no events meanwhile. Of segments with equal start offsets, the readable one comes first, and the
        others in order of arrival. Raise RemoteResourceNotFound, as Kafka does, if the epoch still lists a
        deleted segment.
        """
        if epoch is None:
            return map(self.table.metadata, self.rows.tolist())
        at = self.table.epoch(self.number, epoch)
        if at < 0:
            return iter(())
        self.require_known(at, epoch)
        return map(self.table.metadata, self.listed(at, epoch).tolist())

    def remote_log_size(self, epoch: int) -> tuple[int, int]:
        """Return the number of segments that `epoch` lists, and their sizes in bytes (remoteLogSize).

        A segment with several leader epochs counts in each of them, in whole and in any state. Raise as
        `list_remote_log_segments`.
        """
        at = self.table.epoch(self.number, epoch)
        if at < 0:
            return 0, 0
        self.require_known(at, epoch)
        rows = self.listed(at, epoch)
        return len(rows), int(self.table.segments["size"][rows].sum(dtype=np.int64))

    def require_known(self, at: int, epoch: int) -> None:
        """Raise RemoteResourceNotFound if the leader epoch in row `at` lists a deleted segment."""
        if self.table.epochs[at]["left"]:
            raise RemoteResourceNotFound(f"leader epoch {epoch} lists a segment without metadata")

    def listed(self, at: int, epoch: int) -> Int64s:
        """Return the rows of the segments that the leader epoch in row `at` lists, by start offset.

        Of those with equal start offsets, the readable one comes first, and the others in order of arrival.
        """
        t = self.table.arrays
        rows, first_waiting = self._readable(epoch).rows, int(t.epochs[at]["first_waiting"])
        if first_waiting < 0:
            return rows
        rows = np.concatenate([rows, t.links["segment"][linked(t, first_waiting)].astype(np.int64)])
        return rows[np.argsort(t.segments["start"][rows], kind="stable")]

    def list_deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield each deleted segment once, in its last state; the table must have `keep_deleted`.

        A segment that was added again after its deletion is left out.
        """
        rows = self.table.rows_of(self.number, deleted=True) if len(self.table.partitions) else ()
        last_rows = {self.table.id_of(row): row for row in rows}
        for segment_id, row in last_rows.items():
            if self.table.find(self.number, Uuid.from_bytes(segment_id)) < 0:
                yield self.table.metadata(int(row))

    def leader_epochs(self) -> tuple[int, ...]:
        """Return every leader epoch that a segment ever named, ascending."""
        return tuple(sorted(int(self.table.epochs["epoch"][at]) for at in self.table.epoch_rows(self.number)))


def serving_copy(starts: Int64s, ends: Int64s, offset: int) -> int | None:
    """Return the index of the copy that serves an offset of a leader epoch; None if none does.

    `starts` and `ends` are the offsets of copies in the epoch, in the order in which they finished. A copy
    that ends at or above all earlier ones replaces those that begin at or after it, another one only a copy
    with its start (RemoteLogLeaderEpochState.handleSegmentWithCopySegmentFinishedState). The copy with the
    highest start up to the offset serves it, or none does: as RemoteLogMetadataCache answers from a table,
    here from the last entries of a cache file.
    """
    before = np.maximum.accumulate(np.append(-1, ends))[:-1]
    replacing = np.append(np.where(before <= ends, starts, LARGEST_OFFSET), LARGEST_OFFSET)
    lowest_later = np.minimum.accumulate(replacing[::-1])[::-1][1:]
    left = np.flatnonzero((starts <= offset) & (starts < lowest_later))[::-1]
    if not len(left):
        return None
    at = int(left[np.argmax(starts[left])])
    return at if offset <= ends[at] else None


class EpochEndOffset(NamedTuple):
    """The end offset (exclusive) of an epoch; both fields are -1 if the epoch is unknown."""

    epoch: int
    end_offset: int


class OtherEpoch(NamedTuple):
    """A batch that was written in the leader epoch `epoch`, while the lineage has `expected` at `offset`."""

    offset: int
    epoch: int
    expected: int


class Lineage:
    """The leader epochs of a log, each with its start offset, both strictly ascending; immutable.

    Entries are assigned one by one as LeaderEpochFileCache.assign does: an entry that is not above its
    predecessors in epoch and offset removes the contradicting ones. Raise CorruptInputError for a negative
    epoch or offset.
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
        """Return the first entry."""
        return self.entries[0] if self.entries else None

    @property
    def latest(self) -> EpochEntry | None:
        """Return the last entry; its epoch is the one being written."""
        return self.entries[-1] if self.entries else None

    def entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry of `epoch`."""
        return next((entry for entry in self.entries if entry.epoch == epoch), None)

    def next_epoch(self, epoch: int) -> int | None:
        """Return the lowest known epoch above `epoch`."""
        return next((entry.epoch for entry in self.entries if entry.epoch > epoch), None)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which `offset` was or would be written; None below the first entry."""
        at = bisect_right(self._starts, offset) - 1
        return self.entries[at].epoch if at >= 0 else None

    def other_epoch(self, heads: HeadColumns) -> OtherEpoch | None:
        """Return the first batch that was written in another leader epoch; None if there is none.

        Batches below the first entry, and those of formats without a leader epoch, are not compared.
        """
        written = heads.chosen(heads.fields["magic"] >= MAGIC)
        bases, epochs = written.base_offsets, written.fields["partition_leader_epoch"]
        rows = np.searchsorted(np.array(self._starts, np.int64), bases, "right") - 1
        expected = np.array([entry.epoch for entry in self.entries] or [0], np.int64)[rows]
        wrong = (rows >= 0) & (expected != epochs)
        if not wrong.any():
            return None
        row = int(np.argmax(wrong))
        return OtherEpoch(int(bases[row]), int(epochs[row]), int(expected[row]))

    def starts_within(self, after_offset: int, last_offset: int) -> list[int]:
        """Return the start offsets of epochs in (after_offset, last_offset]."""
        return self._starts[
            bisect_right(self._starts, after_offset) : bisect_right(self._starts, last_offset)
        ]

    def starts_above(self, offset: int) -> list[int]:
        """Return the start offsets of epochs above an offset."""
        return self._starts[bisect_right(self._starts, offset) :]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the highest known epoch up to `epoch`, and its end (LeaderEpochFileCache.endOffsetFor).

        The end offset is the start of the next epoch, or `log_end_offset` for the latest epoch. An epoch
        below all known ones ends at the start of the first known one; the result for an epoch above all known
        ones is undefined (-1).
        """
        if self.latest is not None and epoch == self.latest.epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = next((entry for entry in self.entries if entry.epoch > epoch), None)
        if epoch < 0 or higher is None:
            return EpochEndOffset(-1, -1)
        floor = next((entry.epoch for entry in reversed(self.entries) if entry.epoch <= epoch), epoch)
        return EpochEndOffset(floor, higher.start_offset)

    def truncate_from_end(self, end_offset: int) -> Self:
        """Return the lineage without epochs that start at or after `end_offset`, unless it is negative."""
        if end_offset < 0:
            return self
        return type(self)(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: int) -> Self:
        """Return the lineage of a log that starts at `start_offset`: its first epoch starts there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return self
        return type(self)((EpochEntry(self.entries[at - 1].epoch, start_offset), *self.entries[at:]))

    def first_epoch_from(self, start_offset: int) -> int | None:
        """Return the first epoch of `truncate_from_start(start_offset)`; None without entries."""
        at = bisect_right(self._starts, start_offset)
        return self.entries[max(at - 1, 0)].epoch if self.entries else None

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """Return the entries of [start_offset, end_offset); the first starts at `start_offset` or later."""
        cut = self.truncate_from_start(start_offset) if start_offset >= 0 else self
        return cut.truncate_from_end(end_offset).entries

    def contains(self, segment: RemoteLogSegmentMetadata, log_end_offset: int) -> bool:
        """Return whether the segment belongs to this lineage (`is_remote_segment_within_leader_epochs`)."""
        return is_remote_segment_within_leader_epochs(segment, log_end_offset, self.epochs_with_records)


def epochs_text(entries: Iterable[tuple[int, int]]) -> str:
    """Return leader epochs as `epoch 0 from 0, epoch 2 from 1500`."""
    return ", ".join(f"epoch {epoch} from {start_offset}" for epoch, start_offset in entries) or "no epochs"


def lineage_of_segment(segment: RemoteLogSegmentMetadata) -> Lineage:
    """Return the leader epochs that a segment's event states, ascending, without what no log can have.

    Brokers take an event with a negative epoch or offset as it is: no log has the epoch, nor offsets below 0.
    """
    named = sorted(dict(segment.segment_leader_epochs).items())
    return Lineage((epoch, max(start, 0)) for epoch, start in named if epoch >= 0)


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
    """Return the epochs with records, ascending (RemoteLogManager.buildFilteredLeaderEpochMap).

    An epoch has no records if the next one starts at the same offset.
    """
    if len(epochs) <= 1:
        return dict(epochs)
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
    """Return whether a segment belongs to a lineage (RemoteLogManager.isRemoteSegmentWithinLeaderEpochs).

    `leader_epochs` is the lineage without epochs that have no records, ascending. The segment's epochs must
    be the lineage's, except that its first epoch may start later and its last may end earlier; epochs below
    the lineage's first are ignored, because they were truncated. The segment must end below `log_end_offset`.
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


def find_highest_remote_offset(cache: RemoteLogMetadataCache, lineage: Lineage, log_end_offset: int) -> int:
    """Return the last copied offset, -1 without any (RemoteLogManager.findHighestRemoteOffset).

    The search begins at the latest epoch. The offset is limited to the end of its epoch in `lineage`, because
    data that a former leader copied above it diverged.
    """
    for entry in reversed(lineage.entries):
        highest = cache.highest_offset_for_epoch(entry.epoch)
        if highest is None:
            continue
        return min(highest, lineage.end_offset_for(entry.epoch, log_end_offset).end_offset - 1)
    return -1


class SegmentSpan(NamedTuple):
    """The part of a remote segment that serves the offsets [from_offset, to_offset], both inclusive."""

    segment: RemoteLogSegmentMetadata
    from_offset: int
    to_offset: int

    @property
    def is_whole(self) -> bool:
        """Whether the part is the whole segment: no other segment serves some of it, and no limit cuts it."""
        return (self.from_offset, self.to_offset) == (self.segment.start_offset, self.segment.end_offset)


def segments_in_lineage(
    cache: RemoteLogMetadataCache, lineage: Lineage, start_offset: int = 0, end_offset: int | None = None
) -> Iterator[SegmentSpan]:
    """Yield the parts of remote segments that serve [start_offset, end_offset], both inclusive.

    With `end_offset=None`, continue to the last segment. Each offset is served at most once, by the segment
    that a broker with this lineage reads: the segment that the cache finds for the offset and its epoch,
    limited to the offsets that were written in this lineage. Parts ascend; offsets without a readable segment
    are a gap between two parts.
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
        if offset > segment.end_offset and epoch is not None:
            last = _last_above_end(cache, lineage, segment, offset, epoch)
        yield SegmentSpan(segment, offset, last if end_offset is None else min(last, end_offset))
        offset = last + 1


def _last_common_offset(segment: RemoteLogSegmentMetadata, lineage: Lineage, offset: int) -> int:
    """Return the last offset from `offset` on up to which segment and lineage have the same epochs."""
    own = lineage_of_segment(segment)
    if own.epoch_for_offset(offset) != lineage.epoch_for_offset(offset):
        # The segment's epochs do not ascend. The cache found the segment by one of them, so only `offset`
        # itself is known to be common.
        return offset
    within = (offset, segment.end_offset)
    for border in sorted({*own.starts_within(*within), *lineage.starts_within(*within)}):
        if own.epoch_for_offset(border) != lineage.epoch_for_offset(border):
            return border - 1
    return max(segment.end_offset, offset)


def _last_above_end(
    cache: RemoteLogMetadataCache,
    lineage: Lineage,
    segment: RemoteLogSegmentMetadata,
    offset: int,
    epoch: int,
) -> int:
    """Return the last offset, from `offset` on, up to which a broker finds a segment by `epoch`.

    It finds a segment above its end if a later leader epoch of it begins there: perhaps 2^63 offsets.
    """
    later = sorted(each for each in dict(segment.segment_leader_epochs).items() if each[0] > epoch)
    borders = [*(start for _, start in later[:1]), *lineage.starts_above(offset)]
    following = cache.next_start_offset(epoch, offset + 1)
    return min(borders if following is None else [*borders, following], default=offset + 1) - 1


def _next_readable_offset(cache: RemoteLogMetadataCache, lineage: Lineage, offset: int) -> int | None:
    """Return the next offset above `offset` at which a readable segment, or one of its epochs, begins."""
    starts = []
    for entry, following in zip(lineage.entries, [*lineage.entries[1:], None], strict=True):
        start = cache.next_start_offset(entry.epoch, max(offset + 1, entry.start_offset))
        # A segment of this epoch that begins at or after the lineage's next epoch is not part of the lineage.
        if start is not None and (following is None or start < following.start_offset):
            starts.append(start)
        if entry.start_offset > offset and cache.remote_log_segment_metadata(entry.epoch, entry.start_offset):
            starts.append(entry.start_offset)
    return min(starts, default=None)


# The state that a follower builds before it can fetch from a leader whose log begins in the tier.
#
# TierStateMachine's decisions, without input and output: the segment that supplies leader epochs and producer
# snapshot, the offset at which fetching continues, and the resulting epochs.


@dataclass(frozen=True, slots=True)
class AuxiliarySource:
    """The segment that supplies a follower's leader epochs and producer snapshot.

    `epoch` is the leader epoch by which the segment was found.
    """

    segment: RemoteLogSegmentMetadata
    epoch: int

    @property
    def next_offset(self) -> int:
        """Return the start offset of the follower's local log, at which fetching continues.

        The follower stores the segment's producer snapshot as `<next_offset>.snapshot`.
        """
        return self.segment.end_offset + 1


def target_epoch(leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int) -> int | None:
    """Return the epoch of the last offset below the leader's local log, as a follower asks the leader for it.

    `leader` is the leader's whole lineage. Return None if it does not contain the offset.
    """
    epoch = leader.epoch_for_offset(leader_local_log_start_offset)
    if epoch is None or epoch == 0:
        return epoch
    earlier = leader.end_offset_for(epoch - 1, log_end_offset)
    return earlier.epoch if earlier.end_offset > leader_local_log_start_offset - 1 else epoch


def find_source(
    cache: RemoteLogMetadataCache, leader: Lineage, leader_local_log_start_offset: int, log_end_offset: int
) -> AuxiliarySource:
    """Return the segment that holds the last offset below the leader's local log.

    Raise RemoteResourceNotFound if the tier has no such segment; a broker cannot build the replica then.
    """
    offset = leader_local_log_start_offset - 1
    epoch = target_epoch(leader, leader_local_log_start_offset, log_end_offset)
    segment = None if epoch is None else cache.remote_log_segment_metadata(epoch, offset)
    if epoch is None or segment is None:
        raise RemoteResourceNotFound(
            f"no remote segment holds offset {offset} of leader epoch {epoch}",
            hint="give an offset at or below the last copied offset",
        )
    return AuxiliarySource(segment, epoch)


def built_epochs(
    source: AuxiliarySource, leader_epoch_index: Iterable[tuple[int, int]], log_start_offset: int = 0
) -> Lineage:
    """Return the epochs of all records before `next_offset`, given the entries of the leader-epoch index.

    Epochs that begin at `next_offset` or later are dropped, and so are offsets below `log_start_offset`.
    """
    epochs = Lineage(leader_epoch_index).truncate_from_end(source.next_offset)
    return epochs.truncate_from_start(log_start_offset)
