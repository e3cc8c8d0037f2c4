"""The segments of one user partition, asked about without an object per segment."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.live_segments import LiveSegments
from tierctl.state.rebuilt_cache import FormerEpoch
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import FINISHED, STATE_MASK, STATES, WAS_FINISHED, SegmentColumns
from tierctl.state.segments.epoch_runs import EpochRuns, epoch_runs
from tierctl.state.segments.newest import NONE, newest_rows

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class PartitionSegments:
    """The segments of a user partition that are not deleted: `rows` of `columns`, in order of arrival.

    `former` has the entries that deleted segments leave in a regular history. With `former`, every query is
    answered from the columns; without it, the cache answers queries about one leader epoch. `runs` are the
    `epoch_runs` of the rows and `newest` the row of the newest segment, if they are known already. Fold no
    events while this object is in use.
    """

    def __init__(
        self,
        columns: SegmentColumns,
        rows: Rows,
        make_cache: Callable[[], RemoteLogMetadataCache],
        former: Mapping[int, FormerEpoch] | None = None,
        *,
        runs: EpochRuns | None = None,
        newest: int | None = None,
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._make_cache = make_cache
        self._former = former
        self._known_runs = runs
        self._known_newest = newest

    @classmethod
    def of_cache(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments in `cache`."""
        return cls(cache.columns, cache.columns.live_rows(), lambda: cache)

    @cached_property
    def cache(self) -> RemoteLogMetadataCache:
        """Return the segments as a broker's cache, which is made now if the history is regular."""
        return self._make_cache()

    def __iter__(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield all segments in order of arrival."""
        return map(self._columns.metadata, self._rows.tolist())

    @property
    def columns(self) -> LiveSegments:
        """Return the columns of all segments, in order of arrival."""
        return LiveSegments(self._columns, self._rows)

    @property
    def last_epochs(self) -> npt.NDArray[np.int64]:
        """Return the highest leader epoch of each segment, in order of arrival."""
        return self._last_epochs

    def in_state(self, state: RemoteLogSegmentState) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments in `state` in order of arrival."""
        return self._metadata(self._states == STATES.index(state))

    def count_in(self, state: RemoteLogSegmentState) -> int:
        """Return the number of segments in `state`."""
        return int(np.count_nonzero(self._states == STATES.index(state)))

    def finished_before(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that begin below `offset`, in order of arrival."""
        return self._metadata(self._is_finished & (view(self._columns.starts)[self._rows] < offset))

    def finished_below(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that end below `offset`, in order of arrival."""
        return self._metadata(self._is_finished & (self._ends < offset))

    def finished_of_epochs_below(self, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments whose leader epochs are all below `epoch`, in order of arrival."""
        return self._metadata(self._is_finished & (self._last_epochs < epoch))

    def finished_range(self) -> tuple[int, int] | None:
        """Return the lowest start and highest end offset (inclusive) of finished segments; None without."""
        rows = self._rows[self._is_finished]
        if not len(rows):
            return None
        return int(view(self._columns.starts)[rows].min()), int(self._ends[self._is_finished].max())

    def finished_times_ms(self) -> tuple[int, int] | None:
        """Return the lowest and the highest of the largest timestamps of finished segments; None without."""
        times = view(self._columns.max_timestamps)[self._rows[self._is_finished]]
        return (int(times.min()), int(times.max())) if len(times) else None

    def finished_in_epoch(self, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that the cache lists for a leader epoch, in the same order."""
        if self._former is None:
            return (s for s in self.cache.list_remote_log_segments(epoch) if s.state is _FINISHED)
        runs = np.flatnonzero((self._runs.epochs == epoch) & self._is_finished[self._owners])
        runs = runs[np.argsort(self._runs.starts[runs], kind="stable")]
        return self._metadata(self._owners[runs])

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments does not lower it."""
        if self._former is None:
            return self.cache.highest_offset_for_epoch(epoch)
        was_finished = (self._flags & WAS_FINISHED) != 0
        ends = self._runs.ends[(self._runs.epochs == epoch) & was_finished[self._owners]]
        former = self._former.get(epoch, FormerEpoch()).highest_offset
        known = [] if former is None else [former]
        return max([*known, *([int(ends.max())] if len(ends) else [])], default=None)

    def has_copied_since(self, begun: Uuid, offset: int, epochs: Collection[int]) -> bool:
        """Return whether `offset` or a later one was copied, in one of `epochs`, since `begun` arrived.

        `begun` is the id of one of these segments. The copy may have been deleted since. Return False if a
        finished segment that arrived before `begun` has such an offset: the order of deleted segments is
        unknown.
        """
        highest = map(self.highest_offset_for_epoch, epochs)
        if not any(each is not None and each >= offset for each in highest):
            return False
        arrived = np.flatnonzero(self._rows == self._columns.ids.find(begun.bytes))[0]
        has_offset = np.isin(self._runs.epochs, list(epochs)) & (self._runs.ends >= offset)
        return not (self._owners[has_offset & self._is_finished[self._owners]] < arrived).any()

    def latest_epoch(self) -> int:
        """Return the highest leader epoch that a segment, deleted ones included, named; -1 without any."""
        if self._former is None:
            return max(self.cache.leader_epochs(), default=-1)
        return max(int(self._runs.epochs.max(initial=-1)), max(self._former, default=-1))

    def newest_event_ms(self) -> int:
        """Return the latest event time of all segments; 0 without segments."""
        return int(view(self._columns.event_timestamps)[self._rows].max(initial=0))

    def newest(self) -> RemoteLogSegmentMetadata | None:
        """Return the most recent finished segment: latest leader epoch, then highest end offset.

        Of equal ones, the latest event decides, then the first arrival.
        """
        row = self._known_newest
        if row is None:
            bounds = np.array([0, len(self._rows)])
            row = int(newest_rows(self._columns, self._rows, bounds, self._runs)[0])
        return None if row == NONE else self._columns.metadata(row)

    @cached_property
    def _flags(self) -> npt.NDArray[np.uint8]:
        flags: npt.NDArray[np.uint8] = view(self._columns.flags)[self._rows]
        return flags

    @cached_property
    def _states(self) -> npt.NDArray[np.uint8]:
        """The states as indexes of STATES."""
        states: npt.NDArray[np.uint8] = (self._flags & STATE_MASK).astype(np.uint8)
        return states

    @cached_property
    def _is_finished(self) -> npt.NDArray[np.bool_]:
        is_finished: npt.NDArray[np.bool_] = self._states == FINISHED
        return is_finished

    @cached_property
    def _runs(self) -> EpochRuns:
        return epoch_runs(self._columns, self._rows) if self._known_runs is None else self._known_runs

    @cached_property
    def _owners(self) -> Rows:
        """The index in `_rows` of the segment of each of `_runs`."""
        return np.repeat(np.arange(len(self._rows)), self._runs.counts)

    @cached_property
    def _last_runs(self) -> Rows:
        """The index in `_runs` of each segment's last leader epoch."""
        last: Rows = np.cumsum(self._runs.counts) - 1
        return last

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return self._runs.ends[self._last_runs]

    @cached_property
    def _last_epochs(self) -> npt.NDArray[np.int64]:
        return self._runs.epochs[self._last_runs]

    def _metadata(self, chosen: npt.NDArray[Any]) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments at `chosen`, indexes of `_rows` or a mask."""
        return map(self._columns.metadata, self._rows[chosen].tolist())
