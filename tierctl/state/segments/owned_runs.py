"""The leader epochs and the newest segment of every user partition of a metadata partition, read at once."""

import numpy as np

from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import SegmentColumns
from tierctl.state.segments.epoch_runs import EpochRuns, Int64s, epoch_runs
from tierctl.state.segments.newest import newest_rows


class OwnedRuns:
    """The segments in `columns` that are not deleted, and their leader epochs, by user partition."""

    def __init__(self, columns: SegmentColumns, partitions: int) -> None:
        live = columns.live_rows()
        owners = view(columns.owners)[live]
        self._rows = live[np.argsort(owners, kind="stable")]
        self._bounds = _bounds(np.bincount(owners, minlength=partitions))
        self._runs = epoch_runs(columns, self._rows)
        self._run_bounds = _bounds(self._runs.counts)
        self._newest = newest_rows(columns, self._rows, self._bounds, self._runs)

    def of(self, owner: int) -> tuple[Rows, EpochRuns]:
        """Return the rows of a user partition in order of arrival, and their `epoch_runs`."""
        first, last = int(self._bounds[owner]), int(self._bounds[owner + 1])
        own = slice(int(self._run_bounds[first]), int(self._run_bounds[last]))
        counts, epochs, starts, ends = self._runs
        return self._rows[first:last], EpochRuns(counts[first:last], epochs[own], starts[own], ends[own])

    def newest(self, owner: int) -> int:
        """Return the row of a user partition's newest finished segment; NONE if it has none."""
        return int(self._newest[owner])


def _bounds(counts: Int64s) -> Int64s:
    bounds: Int64s = np.concatenate([[0], np.cumsum(counts)])
    return bounds
