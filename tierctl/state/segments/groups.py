"""Segments grouped by user partition, so that their leader epochs are read for all groups at once."""

from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.state.segments.arrays import Rows, stable_order, view
from tierctl.state.segments.columns import FINISHED, STATE_MASK, SegmentColumns
from tierctl.state.segments.epoch_runs import EpochRuns, Int64s, epoch_runs
from tierctl.state.segments.facts import SegmentFacts, SegmentValues, segment_facts


class _Listed(NamedTuple):
    """The rows of finished segments, once per leader epoch, ordered by group, epoch and start offset.

    Those of group i begin at `bounds[i]`.
    """

    rows: Rows
    epochs: Int64s
    bounds: Int64s


class SegmentGroups:
    """Groups of `rows` in `columns`, which are not deleted: group i has `rows[bounds[i]:bounds[i + 1]]`.

    The rows of a group are in order of arrival. Fold no events while this object is in use.
    """

    def __init__(self, columns: SegmentColumns, rows: Rows, bounds: Int64s) -> None:
        self.columns = columns
        self._rows = rows
        self._bounds = bounds

    @classmethod
    def by_owner(cls, columns: SegmentColumns, partitions: int) -> Self:
        """Return one group for each user partition, whose number is that of the group."""
        live = columns.live_rows()
        owners = view(columns.owners)[live]
        rows = live[stable_order(owners, partitions)]
        return cls(columns, rows, _bounds(np.bincount(owners, minlength=partitions)))

    @classmethod
    def single(cls, columns: SegmentColumns, rows: Rows) -> Self:
        """Return `rows` as the one group."""
        return cls(columns, rows, np.array([0, len(rows)]))

    def rows_of(self, group: int) -> Rows:
        """Return the rows of a group in order of arrival."""
        return self._rows[self._bounds[group] : self._bounds[group + 1]]

    def runs_of(self, group: int) -> EpochRuns:
        """Return the `epoch_runs` of `rows_of(group)`."""
        first, last = self._bounds[group], self._bounds[group + 1]
        own = slice(self._run_bounds[first], self._run_bounds[last])
        counts, epochs, starts, ends = self._runs
        return EpochRuns(counts[first:last], epochs[own], starts[own], ends[own])

    def states_of(self, group: int) -> npt.NDArray[np.uint8]:
        """Return the states of `rows_of(group)` as indexes of STATES."""
        return self._states[self._bounds[group] : self._bounds[group + 1]]

    def ends_of(self, group: int) -> Int64s:
        """Return the last offsets (inclusive) of `rows_of(group)`."""
        return self._ends[self._bounds[group] : self._bounds[group + 1]]

    def last_epochs_of(self, group: int) -> Int64s:
        """Return the highest leader epoch of each of `rows_of(group)`."""
        return self._last_epochs[self._bounds[group] : self._bounds[group + 1]]

    def facts_of(self, group: int) -> SegmentFacts:
        """Return facts about the segments of a group."""
        return self._facts[group]

    def finished_in_epoch(self, group: int, epoch: int) -> Rows:
        """Return the rows of a group's finished segments that name a leader epoch, by its start offsets."""
        rows, epochs, bounds = self._listed
        first, last = bounds[group], bounds[group + 1]
        begin, end = epochs[first:last].searchsorted((epoch, epoch + 1))
        return rows[first + begin : first + end]

    @cached_property
    def _runs(self) -> EpochRuns:
        return epoch_runs(self.columns, self._rows)

    @cached_property
    def _run_bounds(self) -> Int64s:
        return _bounds(self._runs.counts)

    @cached_property
    def _states(self) -> npt.NDArray[np.uint8]:
        states: npt.NDArray[np.uint8] = view(self.columns.flags)[self._rows] & np.uint8(STATE_MASK)
        return states

    @cached_property
    def _last_runs(self) -> Rows:
        """The index in `_runs` of each row's last leader epoch."""
        return self._run_bounds[1:] - 1

    @cached_property
    def _ends(self) -> Int64s:
        return self._runs.ends[self._last_runs]

    @cached_property
    def _last_epochs(self) -> Int64s:
        return self._runs.epochs[self._last_runs]

    @cached_property
    def _facts(self) -> list[SegmentFacts]:
        columns = self.columns
        return segment_facts(
            SegmentValues(
                rows=self._rows,
                states=self._states,
                starts=view(columns.starts)[self._rows],
                ends=self._ends,
                last_epochs=self._last_epochs,
                events_ms=view(columns.event_timestamps)[self._rows],
            ),
            self._bounds,
        )

    @cached_property
    def _listed(self) -> _Listed:
        counts, epochs, starts, _ = self._runs
        groups = np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))
        chosen = np.flatnonzero(np.repeat(self._states == FINISHED, counts))
        named_by = np.repeat(np.arange(len(self._rows)), counts)
        groups = groups[named_by]
        # The sort is stable: of equal start offsets, the first arrival comes first.
        chosen = chosen[np.lexsort((starts[chosen], epochs[chosen], groups[chosen]))]
        bounds = _bounds(np.bincount(groups[chosen], minlength=len(self._bounds) - 1))
        return _Listed(self._rows[named_by[chosen]], epochs[chosen], bounds)


def _bounds(counts: Int64s) -> Int64s:
    bounds: Int64s = np.concatenate([[0], np.cumsum(counts)])
    return bounds
