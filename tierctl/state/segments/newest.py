"""The newest finished segment of user partitions."""

import numpy as np

from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import FINISHED, STATE_MASK, SegmentColumns
from tierctl.state.segments.epoch_runs import EpochRuns, Int64s

NONE = -1
"""The row of a user partition without finished segments."""


def newest_rows(columns: SegmentColumns, rows: Rows, bounds: Int64s, runs: EpochRuns) -> Int64s:
    """Return the row of the newest finished segment of each user partition; NONE without any.

    User partition i has `rows[bounds[i]:bounds[i + 1]]`, and `runs` are the `epoch_runs` of `rows`. The
    latest leader epoch decides, then the highest end offset, then the latest event, then the first arrival.
    """
    newest: Int64s = np.full(len(bounds) - 1, NONE, np.int64)
    chosen = np.flatnonzero(view(columns.flags)[rows] & STATE_MASK == FINISHED)
    owners = np.searchsorted(bounds, chosen, side="right") - 1
    last = np.cumsum(runs.counts) - 1
    for values in (runs.epochs[last], runs.ends[last], view(columns.event_timestamps)[rows]):
        if not len(chosen):
            return newest
        own, is_first = values[chosen], np.append(True, owners[1:] != owners[:-1])
        highest = np.maximum.reduceat(own, np.flatnonzero(is_first))[np.cumsum(is_first) - 1]
        chosen, owners = chosen[own == highest], owners[own == highest]
    firsts, at = np.unique(owners, return_index=True)
    newest[firsts] = rows[chosen[at]]
    return newest
