"""The segments of one user partition, asked about without an object per segment."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.live_segments import LiveSegments
from tierctl.state.rebuilt_cache import FormerEpoch
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import FINISHED, STATES, WAS_FINISHED
from tierctl.state.segments.epoch_runs import EpochRuns
from tierctl.state.segments.facts import NONE, SegmentFacts
from tierctl.state.segments.groups import SegmentGroups

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class PartitionSegments:
    """The segments of a user partition that are not deleted: group `group` of `groups`.

    `former` has the entries that deleted segments leave in a regular history. With `former`, every query is
    answered from the columns; without it, the cache answers queries about one leader epoch. Fold no events
    while this object is in use.
    """

    def __init__(
        self,
        groups: SegmentGroups,
        group: int,
        make_cache: Callable[[], RemoteLogMetadataCache],
        former: Mapping[int, FormerEpoch] | None = None,
    ) -> None:
        self._groups = groups
        self._group = group
        self._columns = groups.columns
        self._make_cache = make_cache
        self._former = former

    @classmethod
    def of_cache(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments in `cache`."""
        return cls(SegmentGroups.single(cache.columns, cache.columns.live_rows()), 0, lambda: cache)

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
        return self._groups.last_epochs_of(self._group)

    def in_state(self, state: RemoteLogSegmentState) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments in `state` in order of arrival."""
        if not self.count_in(state):
            return iter(())
        return self._metadata(self._states == STATES.index(state))

    def count_in(self, state: RemoteLogSegmentState) -> int:
        """Return the number of segments in `state`."""
        return self._facts.counts[STATES.index(state)]

    def finished_before(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that begin below `offset`, in order of arrival."""
        return self._metadata(self._is_finished & (view(self._columns.starts)[self._rows] < offset))

    def finished_below(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that end below `offset`, in order of arrival."""
        if self._facts.lowest_end >= offset:
            return iter(())
        return self._metadata(self._is_finished & (self._groups.ends_of(self._group) < offset))

    def count_finished_below(self, offset: int) -> int:
        """Return the number of finished segments that end below `offset`."""
        if self._facts.lowest_end >= offset:
            return 0
        return int(np.count_nonzero(self._is_finished & (self._groups.ends_of(self._group) < offset)))

    def finished_of_epochs_below(self, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments whose leader epochs are all below `epoch`, in order of arrival."""
        if self._facts.lowest_last_epoch >= epoch:
            return iter(())
        return self._metadata(self._is_finished & (self.last_epochs < epoch))

    def finished_beside(
        self, entries: Sequence[EpochEntry], offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that have another leader epoch than `entries` at or above `offset`.

        `entries` are those of a leader-epoch checkpoint, in ascending order.
        """
        runs, first = self._runs, np.maximum(self._runs.starts, offset)
        starts = np.array([entry.start_offset for entry in entries], dtype=np.int64)
        epochs = np.array([-1, *(entry.epoch for entry in entries)], dtype=np.int64)
        at_first, at_last = (epochs[np.searchsorted(starts, at, side="right")] for at in (first, runs.ends))
        differs = ((at_first != runs.epochs) | (at_last != runs.epochs)) & (first <= runs.ends)
        if not differs.any():
            return iter(())
        is_beside = np.zeros(len(self._rows), dtype=np.bool_)
        is_beside[self._owners[differs]] = True
        return self._metadata(is_beside & self._is_finished)

    def finished_range(self) -> tuple[int, int] | None:
        """Return the lowest start and highest end offset (inclusive) of finished segments; None without."""
        facts = self._facts
        return (facts.lowest_start, facts.highest_end) if facts.counts[FINISHED] else None

    def finished_times_ms(self) -> tuple[int, int] | None:
        """Return the lowest and the highest of the largest timestamps of finished segments; None without."""
        times = view(self._columns.max_timestamps)[self._rows[self._is_finished]]
        return (int(times.min()), int(times.max())) if len(times) else None

    def finished_in_epoch(self, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that the cache lists for a leader epoch, in the same order."""
        if self._former is None:
            return (s for s in self.cache.list_remote_log_segments(epoch) if s.state is _FINISHED)
        return map(self._columns.metadata, self._groups.finished_in_epoch(self._group, epoch).tolist())

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments does not lower it."""
        if self._former is None:
            return self.cache.highest_offset_for_epoch(epoch)
        was_finished = (view(self._columns.flags)[self._rows] & WAS_FINISHED) != 0
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
        return max(self._facts.latest_epoch, max(self._former, default=-1))

    def newest_event_ms(self) -> int:
        """Return the latest event time of all segments; 0 without segments."""
        return self._facts.newest_event_ms

    def newest(self) -> RemoteLogSegmentMetadata | None:
        """Return the most recent finished segment: latest leader epoch, then highest end offset.

        Of equal ones, the latest event decides, then the first arrival.
        """
        row = self._facts.newest
        return None if row == NONE else self._columns.metadata(row)

    @cached_property
    def _facts(self) -> SegmentFacts:
        return self._groups.facts_of(self._group)

    @cached_property
    def _rows(self) -> Rows:
        return self._groups.rows_of(self._group)

    @property
    def _states(self) -> npt.NDArray[np.uint8]:
        """The states as indexes of STATES."""
        return self._groups.states_of(self._group)

    @property
    def _is_finished(self) -> npt.NDArray[np.bool_]:
        is_finished: npt.NDArray[np.bool_] = self._states == FINISHED
        return is_finished

    @cached_property
    def _runs(self) -> EpochRuns:
        return self._groups.runs_of(self._group)

    @cached_property
    def _owners(self) -> Rows:
        """The index in `_rows` of the segment of each of `_runs`."""
        return np.repeat(np.arange(len(self._rows)), self._runs.counts)

    def _metadata(self, chosen: npt.NDArray[Any]) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments at `chosen`, indexes of `_rows` or a mask."""
        return map(self._columns.metadata, self._rows[chosen].tolist())
