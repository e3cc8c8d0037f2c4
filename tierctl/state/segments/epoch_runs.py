"""The leader epochs of many segments, each with the offsets that it has in its segment."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.state.segments.arrays import Rows, ranges, view
from tierctl.state.segments.columns import ODD_EPOCHS, POOLED_EPOCHS, WIDE, SegmentColumns

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
