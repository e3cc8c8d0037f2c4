"""The segments of all user partitions of one metadata partition, in one set of columns."""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.state.partition_segments import PartitionSegments
from tierctl.state.segment_cache import FormerEpoch, RemoteLogMetadataCache, rebuilt_cache, regular_parts
from tierctl.state.segments.columns import (
    DEAD,
    FINISHED,
    STATE_MASK,
    Ids,
    Rows,
    SegmentColumns,
    stable_order,
    view,
)
from tierctl.state.segments.facts import SegmentGroups

NO_OFFSET: Final = -(1 << 63)
NO_START: Final = (1 << 63) - 1
NO_OWNER: Final = -1
_DERIVED: Final = frozenset({"_groups", "_rebuilt", "_sorted"})
_TAIL_MAX: Final = 50_000
_DEAD_ROWS_MAX: Final = 1024
_TOPICS_KEPT: Final = 1 << 16
"""Number of topics whose ids are decoded once, instead of once per user partition."""


@lru_cache(maxsize=_TOPICS_KEPT)
def _raw_id(topic_id: Uuid) -> bytes:
    return topic_id.bytes


class SegmentTable:
    """Store the segments of the user partitions of one metadata partition: about 100 bytes per segment.

    User partitions are numbered in order of appearance; `numbers` maps (topic id, partition) to the number,
    which is also the index in `columns.names`. By number: `last_event_offsets` (metadata offset of the last
    event, NO_OFFSET for none), `lowest_starts` (lowest start offset that an event added, NO_START for
    none), `top_starts` (highest offset at which a leader epoch starts in a finished segment, NO_OFFSET for
    none), `waiting` (number of segments in state COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED) and `counts`
    (number of segments that are not deleted).

    The columns hold user partitions with a regular history, from whose rows `rebuilt_cache` makes the cache
    of a broker. Every other user partition has its cache in `irregular` and no rows. `former` has, by number
    and leader epoch, what deleted segments leave behind.
    """

    __slots__ = (
        "_dead",
        "_groups",
        "_rebuilt",
        "_sorted",
        "clock",
        "columns",
        "counts",
        "former",
        "irregular",
        "keep_deleted",
        "last_event_offsets",
        "lowest_starts",
        "numbers",
        "top_starts",
        "waiting",
    )

    def __init__(self, *, keep_deleted: bool = False) -> None:
        self.keep_deleted = keep_deleted
        self.columns = SegmentColumns()
        self.numbers: dict[tuple[bytes, int], int] = {}
        self.last_event_offsets = array("q")
        self.lowest_starts = array("q")
        self.top_starts = array("q")
        self.waiting = array("q")
        self.counts = array("q")
        self.irregular: dict[int, RemoteLogMetadataCache] = {}
        self.former: dict[int, dict[int, FormerEpoch]] = {}
        self.clock = 0
        self._dead = 0
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._forget()

    def _forget(self) -> None:
        """Clear values derived from row numbers that are no longer valid."""
        self._sorted: tuple[Rows, Rows] = np.empty(0, np.int64), np.zeros(1, np.int64)
        self._groups: SegmentGroups | None = None
        self._rebuilt: WeakValueDictionary[int, RemoteLogMetadataCache] = WeakValueDictionary()

    def add_partition(self, partition: TopicIdPartition) -> int:
        """Return the number of a user partition, which is new if the table does not know it."""
        key = (_raw_id(partition.topic_id), partition.partition)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.numbers)
            self.columns.names.append(partition)
            self.last_event_offsets.append(NO_OFFSET)
            self.lowest_starts.append(NO_START)
            self.top_starts.append(NO_OFFSET)
            self.waiting.append(0)
            self.counts.append(0)
        return number

    def segment_count(self, number: int) -> int:
        """Return how many segments of a user partition are not deleted."""
        cache = self.irregular.get(number)
        return self.counts[number] if cache is None else len(cache)

    def finished_count(self, number: int) -> int:
        """Return how many segments of a user partition are in state COPY_SEGMENT_FINISHED."""
        cache = self.irregular.get(number)
        if cache is None:
            return self.counts[number] - self.waiting[number]
        return len(cache.columns.rows_in(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))

    def get(self, number: int, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return a segment of a user partition by id, in any state; None if it is unknown or deleted."""
        cache = self.irregular.get(number)
        if cache is not None:
            return cache.get(segment_id)
        row = self.columns.ids.find(segment_id.bytes)
        return None if row < 0 or self.columns.owners[row] != number else self.columns.metadata(row)

    def segments_of(self, number: int) -> PartitionSegments:
        """Return the segments of a user partition as they are now."""
        cache = self.irregular.get(number)
        if cache is not None:
            return PartitionSegments.of_cache(cache)
        former, make_cache = self.former.get(number, {}), partial(self.cache_of, number)
        if self._groups is not None:
            return PartitionSegments(self._groups, number, make_cache, former)
        rows = self.rows_of(number)
        if self.keep_deleted:
            rows = rows[view(self.columns.flags)[rows] & DEAD == 0]
        return PartitionSegments(SegmentGroups.single(self.columns, rows), 0, make_cache, former)

    @contextmanager
    def groups_kept(self) -> Iterator[None]:
        """Group the segments of all user partitions at once for `segments_of`; fold no events meanwhile."""
        self._groups = SegmentGroups.by_owner(self.columns, len(self.numbers))
        try:
            yield
        finally:
            self._groups = None

    def cache_of(self, number: int) -> RemoteLogMetadataCache:
        """Return the cache of a user partition as it is now; later events may not change it."""
        cache = self.irregular.get(number)
        if cache is None:
            cache = self._rebuilt.get(number)
        if cache is None:
            cache = self._rebuilt[number] = rebuilt_cache(
                self.columns.taken(self.rows_of(number)),
                self.columns.names[number],
                self.former.get(number, {}).items(),
                keep_deleted=self.keep_deleted,
            )
        return cache

    def forget_caches(self, numbers: Iterable[int]) -> None:
        """Discard the caches of user partitions; they are rebuilt when they are next requested."""
        if len(self._rebuilt):
            for number in numbers:
                self._rebuilt.pop(number, None)

    def rows_of(self, number: int) -> Rows:
        """Return the rows of a user partition in order of arrival; with `keep_deleted`, deleted ones, too."""
        order, bounds = self._sorted_rows()
        indexed = int(bounds[-1])
        own = order[bounds[number] : bounds[number + 1]] if number + 1 < len(bounds) else order[:0]
        tail = np.flatnonzero(view(self.columns.owners)[indexed:] == number) + indexed
        own = np.concatenate([own, tail]) if len(tail) else own
        # The index may have rows that were removed from the table after it was built.
        own = own[view(self.columns.owners)[own] == number]
        if not self.keep_deleted:
            own = own[view(self.columns.flags)[own] & DEAD == 0]
        rows: Rows = own
        return rows

    def _sorted_rows(self) -> tuple[Rows, Rows]:
        """Return row numbers, sorted by user partition, and where each user partition's begin.

        Rows that were appended lately are left out.
        """
        count, indexed = len(self.columns), int(self._sorted[1][-1])
        if count - indexed > max(_TAIL_MAX, indexed // 8) or (count and not indexed):
            owners = np.maximum(view(self.columns.owners), 0)
            rows = stable_order(owners, len(self.numbers))
            bounds = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(self.numbers)))])
            self._sorted = rows, bounds
        return self._sorted

    def make_irregular(self, number: int) -> RemoteLogMetadataCache:
        """Move a user partition from the columns to a cache of its own, and return the cache."""
        cache = self.irregular.get(number)
        if cache is None:
            cache = self.cache_of(number)
            rows = self.rows_of(number)
            self.columns.ids.remove_many(rows[view(self.columns.flags)[rows] & DEAD == 0])
            view(self.columns.flags)[rows] |= DEAD
            view(self.columns.owners)[rows] = NO_OWNER
            self.former.pop(number, None)
            self.irregular[number] = cache
            self.count_dead(len(rows))
        return cache

    def make_regular(self, number: int) -> None:
        """Move an irregular user partition back to the columns, if its rows now determine its cache."""
        cache = self.irregular[number]
        parts = regular_parts(cache, NO_OFFSET)
        if parts is None or parts.columns.names[:1] not in ([], [self.columns.names[number]]):
            return
        ids: Ids = parts.columns.ids.as_words()
        if (self.columns.ids.find_many(ids) >= 0).any():
            return
        del self.irregular[number]
        self._rebuilt.pop(number, None)
        self.former[number] = parts.former
        self.top_starts[number] = parts.top_start
        states = view(parts.columns.flags) & STATE_MASK
        self.counts[number] = len(states)
        self.waiting[number] = int((states != FINISHED).sum())
        view(parts.columns.owners)[:] = number
        view(parts.columns.entered)[:] = self.clock + np.arange(len(states))
        self.clock += len(states)
        self.columns.append_rows(parts.columns)

    def count_dead(self, count: int) -> None:
        """Record that `count` rows were deleted; drop deleted rows if they are more than an eighth of all."""
        self._dead += count
        if self.keep_deleted or self._dead <= _DEAD_ROWS_MAX or 8 * self._dead <= len(self.columns):
            return
        self.compact()

    def compact(self) -> None:
        """Drop the rows of deleted segments."""
        if self._dead:
            self.columns.keep(self.columns.live_rows())
            self._dead = 0
            self._sorted = np.empty(0, np.int64), np.zeros(1, np.int64)

    def append_table(self, other: Self) -> None:
        """Take the user partitions of `other` over, which is not used afterwards.

        No user partition and no id of the columns may be in both tables.
        """
        self.compact()
        other.compact()
        first = len(self.numbers)
        view(other.columns.owners)[:] += first
        view(other.columns.entered)[:] += self.clock
        self.clock += other.clock
        for key, number in other.numbers.items():
            self.numbers[key] = first + number
        self.columns.names += other.columns.names
        for name in ("last_event_offsets", "lowest_starts", "top_starts", "waiting", "counts"):
            getattr(self, name).extend(getattr(other, name))
        self.irregular |= {first + number: cache for number, cache in other.irregular.items()}
        self.former |= {first + number: epochs for number, epochs in other.former.items()}
        self.columns.append_rows(other.columns)

    def note_former(self, numbers: npt.NDArray[Any], epochs: npt.NDArray[Any], highest: Any) -> None:
        """Record leader epochs of segments that were deleted, and the offsets to which they were finished.

        `highest` is NO_OFFSET for segments that were not finished.
        """
        order = np.lexsort((highest, epochs, numbers))
        numbers, epochs, highest = numbers[order], epochs[order], highest[order]
        last = np.append((numbers[1:] != numbers[:-1]) | (epochs[1:] != epochs[:-1]), True)
        for number, epoch, offset in zip(
            numbers[last].tolist(), epochs[last].tolist(), highest[last].tolist(), strict=True
        ):
            facts = self.former.setdefault(number, {})
            known = facts.get(epoch, FormerEpoch())
            if offset != NO_OFFSET and (known.highest_offset is None or offset > known.highest_offset):
                known = known._replace(highest_offset=offset)
            facts[epoch] = known
