"""Facts about the segments of user partitions, computed for many user partitions at once."""

from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.state.segments.columns import (
    FINISHED,
    STATE_MASK,
    STATES,
    Rows,
    SegmentColumns,
    stable_order,
    view,
)
from tierctl.state.segments.epochs import EpochRuns, Int64s, epoch_runs

NONE: Final = -1
"""The row of a user partition without finished segments."""
_INT64_MAX: Final = (1 << 63) - 1


class SegmentFacts(NamedTuple):
    """Facts about the segments of one user partition that are not deleted.

    - `counts`: number of segments in each state, in the order of STATES.
    - `newest_event_ms`: latest event time; 0 without segments.
    - `latest_epoch`: highest leader epoch that a segment names; -1 without segments.
    - `newest`: row of the newest finished segment, NONE without any. The latest leader epoch decides, then
      the highest end offset, then the latest event, then the first arrival.
    - `lowest_start`, `lowest_end`, `highest_end`: offsets of finished segments, `highest_end` inclusive.
    - `lowest_last_epoch`: lowest of the highest leader epochs of each finished segment.

    Without finished segments, `highest_end` is -1 and the lowest values are 2^63 - 1.
    """

    counts: list[int]
    newest_event_ms: int
    latest_epoch: int
    newest: int
    lowest_start: int
    lowest_end: int
    highest_end: int
    lowest_last_epoch: int


class SegmentValues(NamedTuple):
    """The values of segments, which are grouped by user partition and in order of arrival.

    `states` are indexes of STATES, and `last_epochs` the highest leader epoch of each segment.
    """

    rows: Rows
    states: npt.NDArray[np.uint8]
    starts: Int64s
    ends: Int64s
    last_epochs: Int64s
    events_ms: Int64s

    def take(self, chosen: Rows) -> Self:
        """Return the values of the segments at the indexes `chosen`."""
        return type(self)._make(values[chosen] for values in self)


def segment_facts(values: SegmentValues, bounds: Int64s) -> list[SegmentFacts]:
    """Return the facts about each user partition; partition i has the values from `bounds[i]` on."""
    partitions = len(bounds) - 1
    owners = np.repeat(np.arange(partitions), np.diff(bounds))
    counts = np.bincount(owners * len(STATES) + values.states, minlength=partitions * len(STATES))
    at = np.flatnonzero(values.states == FINISHED)
    groups, of_finished = _Groups(owners, partitions), _Groups(owners[at], partitions)
    finished = values.take(at)
    newest = of_finished.first_of_highest(finished.last_epochs, finished.ends, finished.events_ms)
    found = (
        counts.reshape(partitions, len(STATES)),
        groups.reduced(np.maximum, values.events_ms, 0).clip(min=0),
        groups.reduced(np.maximum, values.last_epochs, -1),
        np.append(finished.rows, NONE)[newest],
        of_finished.reduced(np.minimum, finished.starts, _INT64_MAX),
        of_finished.reduced(np.minimum, finished.ends, _INT64_MAX),
        of_finished.reduced(np.maximum, finished.ends, -1),
        of_finished.reduced(np.minimum, finished.last_epochs, _INT64_MAX),
    )
    return list(map(SegmentFacts, *(each.tolist() for each in found)))


class _Groups:
    """Elements of `count` groups: element i is in group `owners[i]`, and `owners` ascend."""

    def __init__(self, owners: Rows, count: int) -> None:
        self._count = count
        self._owners = owners
        self._firsts = np.flatnonzero(np.diff(owners, prepend=-1))

    def reduced(self, function: np.ufunc, values: Int64s, default: int) -> Int64s:
        """Return of each group the result of `function` over its values; `default` for an empty group."""
        result: Int64s = np.full(self._count, default, np.int64)
        if len(self._firsts):
            result[self._owners[self._firsts]] = function.reduceat(values, self._firsts)
        return result

    def first_of_highest(self, *values: Int64s) -> Int64s:
        """Return of each group the first element with the highest `values`, compared in their order.

        Return -1 for an empty group.
        """
        newest: Int64s = np.full(self._count, -1, np.int64)
        chosen, owners, firsts = np.arange(len(self._owners)), self._owners, self._firsts
        for each in values:
            if not len(chosen):
                return newest
            own = each[chosen]
            sizes = np.diff(np.append(firsts, len(chosen)))
            is_highest = own == np.repeat(np.maximum.reduceat(own, firsts), sizes)
            chosen, owners = chosen[is_highest], owners[is_highest]
            firsts = np.flatnonzero(np.diff(owners, prepend=-1))
        newest[owners[firsts]] = chosen[firsts]
        return newest


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
