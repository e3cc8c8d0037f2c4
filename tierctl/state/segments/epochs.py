"""The leader epochs of segments: the index of one epoch (RemoteLogLeaderEpochState), and the epochs of
many segments.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.state.segments.columns import (
    ODD_EPOCHS,
    POOLED_EPOCHS,
    WIDE,
    Rows,
    SegmentColumns,
    in_bins,
    ranges,
    split_bins,
    view,
)

FIRST_TABLE_SIZE: Final = 16
_WALK_LIMIT: Final = 32


class EpochIndex:
    """The readable and the other segments of a leader epoch, and its highest copied offset.

    `rows` are the readable segments, ordered by the offset at which the epoch starts in each. A removed row
    stays as its complement (a negative number) until `purge`, because searches still need its place in the
    order. `removed` counts such rows. `unreferenced` are the other segments, in order of arrival.
    """

    __slots__ = ("columns", "epoch", "highest_offset", "removed", "rows", "table_size", "unreferenced")

    def __init__(self, epoch: int, columns: SegmentColumns) -> None:
        self.epoch = epoch
        self.columns = columns
        self.rows = array("i")
        self.removed = 0
        self.unreferenced: dict[int, None] = {}
        self.highest_offset: int | None = None
        # The number of bins of Kafka's hash set of unreferenced ids, which determines their order.
        self.table_size = FIRST_TABLE_SIZE

    def start_of(self, slot: int) -> int:
        """Return the offset at which the epoch starts in the segment of an item of `rows`, removed or not."""
        return self.columns.epoch_start(slot if slot >= 0 else ~slot, self.epoch)

    def add_unreferenced(self, row: int) -> None:
        """Add a segment that is not readable."""
        self.unreferenced[row] = None
        while self.grows_at(len(self.unreferenced)):
            # When Kafka's hash set grows, the order within its bins changes; the dictionary gets the same
            # order.
            self.unreferenced = dict.fromkeys(split_bins(self._hashes(), self.table_size))
            self.table_size *= 2

    def grows_at(self, count: int) -> bool:
        """Return whether Kafka's hash set grows when it has `count` unreferenced segments."""
        return 4 * count >= 3 * self.table_size

    def unreferenced_in_java_order(self) -> list[int]:
        """Return the unreferenced rows in the order in which Kafka's hash set of their ids yields them."""
        return in_bins(self._hashes(), self.table_size)

    def _hashes(self) -> dict[int, int]:
        return {row: self.columns.java_hash(row) for row in self.unreferenced}

    def finished(self, row: int, start_offset: int, end_offset: int) -> None:
        """Make a segment readable; the epoch has the offsets [start_offset, end_offset] in it.

        Readable segments that begin at `start_offset` or later and do not end higher are superseded: they
        become unreferenced. A segment that begins at the same offset while others end higher is in neither
        list afterwards, as in Kafka.
        """
        rows = self.rows
        supersedes = self.highest_offset is None or self.highest_offset <= end_offset
        while supersedes and rows and (rows[-1] < 0 or self.start_of(rows[-1]) >= start_offset):
            last = rows.pop()
            if last >= 0:
                self.add_unreferenced(last)
            else:
                self.removed -= 1
        self._put(row, start_offset)
        self.unreferenced.pop(row, None)
        self.raise_highest_offset(end_offset)

    def _put(self, row: int, start_offset: int) -> None:
        rows = self.rows
        if not rows or self.start_of(rows[-1]) < start_offset:
            rows.append(row)
            return
        at = bisect_left(rows, start_offset, key=self.start_of)
        if self.start_of(rows[at]) == start_offset:
            self.removed -= rows[at] < 0
            rows[at] = row
        else:
            rows.insert(at, row)

    def delete_started(self, row: int, start_offset: int) -> None:
        """Make a segment unreadable."""
        at = bisect_left(self.rows, start_offset, key=self.start_of)
        if at < len(self.rows) and self.rows[at] == row:
            self.rows[at] = ~row
            self.removed += 1
            self._purge_when_due()
        self.add_unreferenced(row)

    def _purge_when_due(self) -> None:
        if self.removed > 64 and 8 * self.removed > len(self.rows):
            self.purge()

    def delete_finished(self, row: int) -> None:
        """Remove a segment."""
        self.unreferenced.pop(row, None)

    def floor(self, offset: int) -> int:
        """Return the readable row with the highest start at or below `offset`; -1 if there is none."""
        at = bisect_right(self.rows, offset, key=self.start_of) - 1
        for steps in range(at + 1):
            if self.rows[at - steps] >= 0:
                return self.rows[at - steps]
            if steps == _WALK_LIMIT:
                self.purge()
                return self.floor(offset)
        return -1

    def ceiling(self, offset: int) -> int:
        """Return the readable row with the lowest start at or above `offset`; -1 if there is none."""
        if self.removed > _WALK_LIMIT:
            self.purge()
        at = bisect_left(self.rows, offset, key=self.start_of)
        return next((self.rows[i] for i in range(at, len(self.rows)) if self.rows[i] >= 0), -1)

    def append_many(self, rows: Rows) -> None:
        """Add readable segments, in order, that begin above all others."""
        self.rows.frombytes(rows.astype(np.int32).tobytes())

    def raise_highest_offset(self, offset: int) -> None:
        """Record that a segment was copied up to `offset`."""
        if self.highest_offset is None or offset > self.highest_offset:
            self.highest_offset = offset

    def readable(self) -> Rows:
        """Return the readable rows, ordered by the offset at which the epoch starts in them."""
        rows = view(self.rows).astype(np.int64)
        return rows[rows >= 0]

    def purge(self) -> None:
        """Drop the removed rows."""
        self.rows = array("i", self.readable().astype(np.int32).tobytes())
        self.removed = 0

    def renumber(self, numbers: Rows) -> None:
        """Renumber the rows: row r becomes `numbers[r]`; no dropped row may be in the index."""
        self.purge()
        self.rows = array("i", numbers[view(self.rows)].astype(np.int32).tobytes())
        self.unreferenced = {int(numbers[row]): None for row in self.unreferenced}


Int64s = npt.NDArray[np.int64]


class EpochRuns(NamedTuple):
    """The leader epochs of many segments, concatenated; ascending within each segment.

    Segment i has `counts[i]` epochs. `starts` and `ends` are an epoch's first and last offset in its segment
    (both inclusive).
    """

    counts: Int64s
    epochs: Int64s
    starts: Int64s
    ends: Int64s


def epoch_runs(columns: SegmentColumns, rows: Rows) -> EpochRuns:
    """Return the leader epochs of `rows`; of an epoch that an event names twice, the last start counts."""
    flags, segment_starts = view(columns.flags)[rows], view(columns.starts)[rows]
    own = view(columns.epochs)[rows].astype(np.int64)
    if not (flags & (POOLED_EPOCHS | ODD_EPOCHS)).any():
        return EpochRuns(np.ones(len(rows), np.int64), own, segment_starts, end_offsets(columns, rows))
    pooled = (flags & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS
    counts = np.ones(len(rows), dtype=np.int64)
    counts[pooled] = view(columns.pool)[own[pooled]]
    odd = np.flatnonzero(flags & ODD_EPOCHS)
    for i in odd.tolist():
        counts[i] = len(columns.odd_epochs[int(rows[i])])
    firsts = np.cumsum(counts) - counts
    epochs, starts = np.repeat(own, counts), np.repeat(segment_starts, counts)
    _fill_pooled(view(columns.pool), _Pooled(own[pooled], counts[pooled], firsts[pooled]), epochs, starts)
    for i in odd.tolist():
        pairs = np.array(columns.odd_epochs[int(rows[i])], dtype=np.int64)
        epochs[firsts[i] : firsts[i] + counts[i]] = pairs[:, 0]
        starts[firsts[i] : firsts[i] + counts[i]] = pairs[:, 1]
    return _with_ends(counts, epochs, starts, end_offsets(columns, rows))


class _Pooled(NamedTuple):
    """The pooled epochs of rows: index in the pool, number of epochs, index of the first in the output."""

    places: Int64s
    counts: Int64s
    firsts: Int64s


def _fill_pooled(pool: npt.NDArray[np.int32], pooled: _Pooled, epochs: Int64s, starts: Int64s) -> None:
    """Write epochs and starts of pooled rows; `starts` holds the segments' start offsets before."""
    places, counts, firsts = pooled
    epochs[firsts] = pool[places + 1]
    rest = ranges(firsts + 1, counts - 1)
    # The k-th epoch of a segment is 2k words after the segment's count.
    words = np.repeat(places - 2 * firsts, counts - 1) + 2 * rest
    epochs[rest] = pool[words]
    starts[rest] += pool[words + 1]


def _with_ends(counts: Int64s, epochs: Int64s, starts: Int64s, segment_ends: Int64s) -> EpochRuns:
    owner = np.repeat(np.arange(len(counts)), counts)
    same = owner[1:] == owner[:-1]
    if (same & (epochs[1:] <= epochs[:-1])).any():
        order = np.lexsort((epochs, owner))
        epochs, starts = epochs[order], starts[order]
        # `lexsort` is stable: if an event names an epoch twice, the later entry stays behind the earlier one
        # and is kept.
        last = np.append((owner[1:] != owner[:-1]) | (epochs[1:] != epochs[:-1]), True)
        owner, epochs, starts = owner[last], epochs[last], starts[last]
        counts = np.bincount(owner, minlength=len(counts))
        same = owner[1:] == owner[:-1]
    ends = segment_ends[owner]
    ends[:-1][same] = starts[1:][same] - 1
    return EpochRuns(counts, epochs, starts, ends)


def end_offsets(columns: SegmentColumns, rows: Rows) -> Int64s:
    """Return the last offsets (inclusive) of `rows`."""
    lengths = view(columns.ends)[rows].astype(np.int64)
    ends: Int64s = view(columns.starts)[rows] + lengths
    for i in np.flatnonzero(lengths == WIDE).tolist():
        ends[i] = columns.wide_ends[int(rows[i])]
    return ends
