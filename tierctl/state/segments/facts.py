"""Facts about the segments of user partitions, computed for many user partitions at once."""

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.state.segments.arrays import Rows
from tierctl.state.segments.columns import FINISHED, STATES
from tierctl.state.segments.epoch_runs import Int64s

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
