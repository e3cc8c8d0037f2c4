"""The segments of one user partition, asked about without an object per segment."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.state.segment_cache import FormerEpoch, RemoteLogMetadataCache
from tierctl.state.segments.columns import (
    FINISHED,
    ODD_EPOCHS,
    POOLED_EPOCHS,
    STATE_MASK,
    STATES,
    WAS_FINISHED,
    WIDE,
    Rows,
    SegmentColumns,
    ranges,
    view,
)
from tierctl.state.segments.epochs import EpochRuns
from tierctl.state.segments.facts import NONE, SegmentFacts, SegmentGroups

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EpochPairs:
    """The (epoch, start offset) pairs of all rows, concatenated; row i has `counts[i]` pairs."""

    counts: Int64s
    epochs: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True)
class LiveSegments:
    """The segments of one or several user partitions; `rows` are their rows in `columns`.

    Fold no events into the columns while this object is in use.
    """

    columns: SegmentColumns
    rows: Rows

    @classmethod
    def of(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments of `cache` that are not deleted, in order of arrival."""
        return cls(cache.columns, cache.columns.live_rows())

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of one of the columns, with the rows of these segments."""
        values: npt.NDArray[Any] = view(getattr(self.columns, name))[self.rows]
        return values

    @property
    def states(self) -> npt.NDArray[np.uint8]:
        """Return the states as indexes of STATES."""
        states: npt.NDArray[np.uint8] = (self.column("flags") & STATE_MASK).astype(np.uint8)
        return states

    @property
    def ends(self) -> Int64s:
        """Return the last offsets (inclusive)."""
        lengths = self.column("ends")
        ends: Int64s = self.column("starts") + lengths.astype(np.int64)
        for at in np.flatnonzero(lengths == WIDE).tolist():
            ends[at] = self.columns.end_offset(int(self.rows[at]))
        return ends

    @property
    def ids(self) -> list[bytes]:
        """Return the segment ids, 16 bytes each."""
        raw = self.columns.ids.as_words()[self.rows].tobytes()
        return [raw[at : at + 16] for at in range(0, len(raw), 16)]

    def customs(self) -> list[bytes | None] | None:
        """Return the custom metadata; None if no segment ever had any."""
        if self.columns.customs is None:
            return None
        return [self.columns.custom(row) for row in self.rows.tolist()]

    def epoch_pairs(self) -> EpochPairs:
        """Return the leader epochs of the segments in the order of their events."""
        flags, own, starts = (
            self.column("flags"),
            self.column("epochs").astype(np.int64),
            self.column("starts"),
        )
        pooled = np.flatnonzero((flags & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS)
        odd = np.flatnonzero(flags & ODD_EPOCHS)
        odd_pairs = [self.columns.odd_epochs[int(row)] for row in self.rows[odd]]
        pool = view(self.columns.pool)
        counts = np.ones(len(flags), dtype=np.int64)
        counts[pooled] = pool[own[pooled]]
        counts[odd] = [len(pairs) for pairs in odd_pairs]
        firsts = np.cumsum(counts) - counts
        epochs, offsets = np.repeat(own, counts), np.repeat(starts, counts)
        # An entry of the pool is [count, epoch, (epoch, offset)...]: the first two words are not a pair.
        places = ranges(firsts[pooled], counts[pooled])
        words = pool[ranges(own[pooled], 2 * counts[pooled])].reshape(-1, 2)
        is_first = np.isin(places, firsts[pooled], assume_unique=True)
        epochs[places] = np.where(is_first, words[:, 1], words[:, 0])
        offsets[places] += np.where(is_first, 0, words[:, 1])
        for at, pairs in zip(firsts[odd].tolist(), odd_pairs, strict=True):
            epochs[at : at + len(pairs)] = [epoch for epoch, _ in pairs]
            offsets[at : at + len(pairs)] = [offset for _, offset in pairs]
        return EpochPairs(counts, epochs, offsets)

    def plainly_in_order(self, pairs: EpochPairs, owners: Int64s, partitions: int) -> npt.NDArray[np.bool_]:
        """Return of each user partition whether its finished segments are one unbroken sequence.

        `owners[i]` is the user partition of segment i, a number below `partitions`; `pairs` are those of all
        segments. In an unbroken sequence each segment begins where the previous one ends, in the same epoch
        or a later one. If every leader epoch lists all of them, comparing the segments of such a partition
        with each other finds no problem.
        """
        at = np.flatnonzero(self.states == FINISHED)
        order = at[np.lexsort((self.column("starts")[at], owners[at]))]
        starts, ends, whose = self.column("starts")[order], self.ends[order], owners[order]
        is_broken = np.zeros(partitions, dtype=bool)
        is_broken[whose[1:][(whose[1:] == whose[:-1]) & (starts[1:] != ends[:-1] + 1)]] = True
        counts = pairs.counts[order]
        places = ranges((np.cumsum(pairs.counts) - pairs.counts)[order], counts)
        epochs, offsets, named_by = pairs.epochs[places], pairs.offsets[places], np.repeat(whose, counts)
        begins = np.zeros(len(places), dtype=bool)
        begins[np.cumsum(counts) - counts] = True
        rises = np.diff(epochs)
        follows = ((rises > 0) | ((rises == 0) & begins[1:])) & (np.diff(offsets) > 0)
        is_broken[named_by[1:][(named_by[1:] == named_by[:-1]) & ~follows]] = True
        is_broken[whose[(offsets[begins] != starts) | (offsets[np.cumsum(counts) - 1] > ends)]] = True
        return ~is_broken


def is_plainly_in_order(cache: RemoteLogMetadataCache) -> bool:
    """Return whether the finished segments are one unbroken sequence that every leader epoch lists."""
    live = LiveSegments.of(cache)
    pairs = live.epoch_pairs()
    listed = sum(len(index.rows) - index.removed for index in cache.parts.epochs.values())
    is_unbroken = live.plainly_in_order(pairs, np.zeros(len(live), np.int64), 1)[0]
    return bool(is_unbroken) and listed == int(pairs.counts[live.states == FINISHED].sum())


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
