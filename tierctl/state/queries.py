"""Questions about the segments of user partitions: facts, in columns.

All read the table of segments as the fold left it, and are not to be used after the next fold.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.kernel import int64, kernel, plain_kernel
from tierctl.model import (
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.state.fold_kernels import ascending
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache, segments_in_lineage
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import (
    FINISHED,
    NOT_LISTED,
    ODD_EPOCHS,
    READABLE,
    REPEATED,
    STATES,
    Array,
    Arrays,
)
from tierctl.wire.arrays import Bools, Int64s, ranges

NONE: Final = -1
"""The row of a user partition without finished segments."""
_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)


class EpochRuns(NamedTuple):
    """The leader epochs of many segments, concatenated; ascending within each segment.

    Segment i has `counts[i]` epochs. `starts` and `ends` are an epoch's first and last offset in its segment
    (both inclusive).
    """

    counts: Int64s
    epochs: Int64s
    starts: Int64s
    ends: Int64s


def epoch_runs(table: SegmentTable, rows: Int64s) -> EpochRuns:
    """Return the leader epochs of `rows`; of an epoch that an event names twice, the last start counts."""
    room = int(table.segments["link_count"][rows].sum(dtype=np.int64))
    runs = EpochRuns(np.zeros(len(rows), np.int64), *(np.empty(room, np.int64) for _ in range(3)))
    used = write_runs(table.arrays, rows, runs)
    return EpochRuns(runs.counts, runs.epochs[:used], runs.starts[:used], runs.ends[:used])


@kernel
def write_runs(t: Arrays, rows: Int64s, runs: EpochRuns) -> int:
    """Write the leader epochs of `rows` to `runs`; return their number."""
    counts, epochs, starts, ends = runs
    used = 0
    for i in range(len(rows)):
        segment, begin = t.segments[int64(rows[i])], used
        first = int64(segment["links"])
        for place in range(first, first + int64(segment["link_count"])):
            link = t.links[place]
            if link["status"] != REPEATED:
                epochs[used], starts[used] = link["epoch"], link["start"]
                used += 1
        if int64(segment["flags"]) & ODD_EPOCHS:
            order = ascending(epochs[begin:used])
            epochs[begin:used], starts[begin:used] = epochs[begin:used][order], starts[begin:used][order]
        for at in range(begin, used - 1):
            ends[at] = starts[at + 1] - 1
        if used > begin:
            ends[used - 1] = segment["end"]
        counts[i] = used - begin
    return used


@dataclass(frozen=True, slots=True)
class EpochPairs:
    """The (epoch, start offset) pairs of all rows, concatenated; row i has `counts[i]` pairs."""

    counts: Int64s
    epochs: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True)
class LiveSegments:
    """The segments of one or several user partitions; `rows` are their rows in `table`."""

    table: SegmentTable
    rows: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of one of the fields of SEGMENT."""
        values: npt.NDArray[Any] = self.table.segments[name][self.rows]
        return values

    def flags(self, bits: int) -> Bools:
        """Return which segments have one of the bits set in their flags."""
        chosen: Bools = (self.column("flags") & bits) != 0
        return chosen

    @property
    def states(self) -> npt.NDArray[np.uint8]:
        """Return the states as indexes of STATES."""
        return self.column("state")

    @property
    def ids(self) -> list[bytes]:
        """Return the segment ids, 16 bytes each."""
        raw = self.id_bytes.tobytes()
        return [raw[at : at + 16] for at in range(0, len(raw), 16)]

    @property
    def id_bytes(self) -> npt.NDArray[np.uint8]:
        """Return the bytes of the segment ids, one row of 16 bytes per segment."""
        return self.id_words.astype(">i8").view(np.uint8).reshape(-1, 16)

    @property
    def id_words(self) -> Int64s:
        """Return the segment ids, one row of two words per segment, most significant first."""
        return np.stack([self.column("id_high"), self.column("id_low")], axis=1)

    def metadata(self, at: int) -> RemoteLogSegmentMetadata:
        """Return the segment at an index."""
        return self.table.metadata(int(self.rows[at]))

    def customs(self) -> list[bytes | None] | None:
        """Return the custom metadata; None if no segment has any."""
        if (self.column("custom") < 0).all():
            return None
        return [self.table.custom(row) for row in self.rows.tolist()]

    def _places(self) -> tuple[Int64s, Int64s]:
        counts = self.column("link_count").astype(np.int64)
        return counts, ranges(self.column("links").astype(np.int64), counts)

    def count_links(self, is_counted: Callable[[Array], Bools]) -> Int64s:
        """Return the number of links of each segment whose `status` is counted."""
        counts, places = self._places()
        owners = np.repeat(np.arange(len(counts)), counts)
        chosen = is_counted(self.table.links["status"][places])
        return np.bincount(owners[chosen], minlength=len(counts))

    def epoch_pairs(self) -> EpochPairs:
        """Return the leader epochs of the segments in the order of their events."""
        counts, places = self._places()
        links = self.table.links
        return EpochPairs(counts, links["epoch"][places].astype(np.int64), links["start"][places])

    def plainly_in_order(self, pairs: EpochPairs, owners: Int64s, partitions: int) -> Bools:
        """Return of each user partition whether its finished segments are one unbroken sequence.

        `owners[i]` is the user partition of segment i, a number below `partitions`; `pairs` are those of all
        segments. In an unbroken sequence each segment begins where the previous one ends, in the same epoch
        or a later one, and every leader epoch of each can read it. Comparing the segments of such a partition
        with each other finds no problem.
        """
        at = np.flatnonzero(self.states == FINISHED)
        order = at[np.lexsort((self.column("start")[at], owners[at]))]
        starts, ends, whose = self.column("start")[order], self.column("end")[order], owners[order]
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
        own = ranges(self.column("links")[order].astype(np.int64), counts)
        is_broken[named_by[self.table.links["status"][own] != READABLE]] = True
        return ~is_broken


class SegmentFacts(NamedTuple):
    """Facts about the segments of one user partition that are not deleted.

    - `counts`: number of segments in each state, in the order of STATES.
    - `newest_event_ms`: latest event time; 0 without segments.
    - `newest`: row of the newest finished segment, NONE without any. The latest leader epoch decides, then
      the highest end offset, then the latest event, then the first arrival.
    - `lowest_start`, `lowest_end`, `highest_end`: offsets of finished segments, `highest_end` inclusive.
    - `lowest_last_epoch`: lowest of the highest leader epochs of each finished segment.
    - `lowest_time_ms`, `highest_time_ms`: of the largest timestamps of finished segments that have one.
    - `undated`: number of finished segments that have none.

    Without such segments, `highest_end` is -1, `highest_time_ms` is 0, and the lowest values are 2^63 - 1.
    """

    counts: list[int]
    newest_event_ms: int
    newest: int
    lowest_start: int
    lowest_end: int
    highest_end: int
    lowest_last_epoch: int
    lowest_time_ms: int
    highest_time_ms: int
    undated: int

    @classmethod
    def of_row(cls, facts: Int64s) -> Self:
        """Return the facts in a row of `SegmentGroups.facts`."""
        counts, rest = facts[: len(STATES)].tolist(), facts[len(STATES) :].tolist()
        return cls(counts, *rest)


FACTS: Final = len(STATES) + len(SegmentFacts._fields) - 1
"""The number of columns of `SegmentGroups.facts`."""


@plain_kernel
def facts_of(segments: Array, rows: Int64s, last_epochs: Int64s, bounds: Int64s, facts: Int64s) -> None:
    """Write the facts about each group of rows: group i has `rows[bounds[i]:bounds[i + 1]]`.

    A row of `facts` has four counts, and the other fields of SegmentFacts in their order.
    """
    for group in range(len(bounds) - 1):
        found, best = facts[group], -1
        found[:] = 0
        found[5], found[6], found[7], found[8], found[9] = -1, _INT64_MAX, _INT64_MAX, -1, _INT64_MAX
        found[10] = _INT64_MAX
        for i in range(int64(bounds[group]), int64(bounds[group + 1])):
            segment = segments[int64(rows[i])]
            state, end, time = (
                int64(segment["state"]),
                int64(segment["end"]),
                int64(segment["event_timestamp"]),
            )
            found[state] += 1
            found[4] = max(int64(found[4]), time)
            if state != FINISHED:
                continue
            found[6] = min(int64(found[6]), int64(segment["start"]))
            found[7] = min(int64(found[7]), end)
            found[8] = max(int64(found[8]), end)
            epoch = int64(last_epochs[i])
            found[9] = min(int64(found[9]), epoch)
            latest = int64(segment["max_timestamp"])
            if latest > 0:
                found[10], found[11] = min(int64(found[10]), latest), max(int64(found[11]), latest)
            else:
                found[12] += 1
            if best >= 0:
                other = segments[int64(rows[best])]
                of_best, end_of_best = int64(last_epochs[best]), int64(other["end"])
                if epoch < of_best or (epoch == of_best and end < end_of_best):
                    continue
                if epoch == of_best and end == end_of_best and time <= int64(other["event_timestamp"]):
                    continue
            best = i
            found[5] = rows[i]


class SegmentGroups:
    """Groups of `rows` in `table`, which are not deleted: group i has `rows[bounds[i]:bounds[i + 1]]`.

    The rows of a group are in order of arrival.
    """

    def __init__(self, table: SegmentTable, rows: Int64s, bounds: Int64s) -> None:
        self.table = table
        self._rows = rows
        self._bounds = bounds

    @classmethod
    def by_owner(cls, table: SegmentTable) -> Self:
        """Return one group for each user partition, whose number is that of the group."""
        partitions = len(table.partitions)
        live = table.live_rows()
        owners = table.segments["owner"][live]
        narrow = owners.astype(np.uint16) if partitions <= 1 << 16 else owners
        return cls(
            table, live[np.argsort(narrow, kind="stable")], _bounds(np.bincount(owners, minlength=partitions))
        )

    @classmethod
    def single(cls, table: SegmentTable, rows: Int64s) -> Self:
        """Return `rows` as the one group."""
        return cls(table, rows, np.array([0, len(rows)]))

    def slice_of(self, group: int) -> slice:
        """Return the place of a group in the rows of all groups."""
        return slice(int(self._bounds[group]), int(self._bounds[group + 1]))

    def rows_of(self, group: int) -> Int64s:
        """Return the rows of a group in order of arrival."""
        return self._rows[self.slice_of(group)]

    def runs_of(self, group: int) -> EpochRuns:
        """Return the `epoch_runs` of `rows_of(group)`."""
        own = self.slice_of(group)
        of_runs = slice(self._run_bounds[own.start], self._run_bounds[own.stop])
        counts, epochs, starts, ends = self._runs
        return EpochRuns(counts[own], epochs[of_runs], starts[of_runs], ends[of_runs])

    def last_epochs_of(self, group: int) -> Int64s:
        """Return the highest leader epoch of each of `rows_of(group)`."""
        return self._last_epochs[self.slice_of(group)]

    def facts_of(self, group: int) -> SegmentFacts:
        """Return facts about the segments of a group."""
        return SegmentFacts.of_row(self.facts[group])

    @cached_property
    def _runs(self) -> EpochRuns:
        return epoch_runs(self.table, self._rows)

    @cached_property
    def _run_bounds(self) -> Int64s:
        return _bounds(self._runs.counts)

    @cached_property
    def _last_epochs(self) -> Int64s:
        return self._runs.epochs[self._run_bounds[1:] - 1]

    def is_doubled_of(self, group: int) -> Bools:
        """Return which of `rows_of(group)` are finished and listed by no leader epoch any more."""
        return self._is_doubled[self.slice_of(group)]

    @cached_property
    def _is_doubled(self) -> Bools:
        live = LiveSegments(self.table, self._rows)
        listed = live.count_links(lambda status: (status != NOT_LISTED) & (status != REPEATED))
        is_doubled: Bools = (live.states == FINISHED) & (listed == 0)
        return is_doubled

    @cached_property
    def in_order(self) -> Bools:
        """Whether the finished segments of each group are one unbroken sequence (`plainly_in_order`)."""
        live, count = LiveSegments(self.table, self._rows), len(self._bounds) - 1
        owners = np.repeat(np.arange(count), np.diff(self._bounds))
        return live.plainly_in_order(live.epoch_pairs(), owners, count)

    @cached_property
    def facts(self) -> Int64s:
        """The facts of all groups, a row each: four counts, and the other fields of SegmentFacts."""
        facts = np.zeros((len(self._bounds) - 1, FACTS), np.int64)
        facts_of(self.table.segments, self._rows, self._last_epochs, self._bounds, facts)
        return facts


def _bounds(counts: Int64s) -> Int64s:
    bounds: Int64s = np.concatenate([[0], np.cumsum(counts)])
    return bounds


class PartitionSegments:
    """The segments of a user partition that are not deleted; `groups` are those of its table, if known.

    The segments are looked up at the first question.
    """

    def __init__(self, table: SegmentTable, number: int, groups: SegmentGroups | None = None) -> None:
        self._table = table
        self._number = number
        self._given = groups
        self._group = 0 if groups is None else number
        self._beside: tuple[Sequence[EpochEntry], Bools] | None = None

    @classmethod
    def of_cache(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments in `cache`."""
        return cls(cache.table, cache.number)

    @cached_property
    def _groups(self) -> SegmentGroups:
        return self._given or SegmentGroups.single(self._table, self.cache.rows)

    @cached_property
    def cache(self) -> RemoteLogMetadataCache:
        """Return the segments as a broker's cache."""
        return RemoteLogMetadataCache(self._table, self._number)

    def __iter__(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield all segments in order of arrival."""
        return map(self._table.metadata, self._rows.tolist())

    @property
    def is_doubled(self) -> Bools:
        """Which segments are finished and listed by no leader epoch any more, in order of arrival.

        A later copy from the same offset has replaced such a segment in the offset map of its epoch, and
        Kafka's cache keeps no other reference to it by epoch: brokers neither read nor count it, and delete
        it only with its topic.
        """
        return self._groups.is_doubled_of(self._group)

    @cached_property
    def doubled_ids(self) -> frozenset[Uuid]:
        """The ids of the segments that `is_doubled` tells."""
        rows = self._rows[self.is_doubled].tolist()
        return frozenset(Uuid.from_bytes(self._table.id_of(row)) for row in rows)

    def doubled_by(self, segment: RemoteLogSegmentMetadata) -> Uuid | None:
        """Return the id of the later copy from the start offset of `segment`; None if it is gone."""
        later = self.cache.remote_log_segment_metadata(*min(segment.segment_leader_epochs))
        return None if later is None else later.segment_id

    @property
    def columns(self) -> LiveSegments:
        """Return the columns of all segments, in order of arrival."""
        return LiveSegments(self._table, self._rows)

    @property
    def last_epochs(self) -> Int64s:
        """Return the highest leader epoch of each segment, in order of arrival."""
        return self._groups.last_epochs_of(self._group)

    def in_state(self, state: RemoteLogSegmentState) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments in `state` in order of arrival."""
        if not self.count_in(state):
            return iter(())
        return self.at(self.column("state") == STATES.index(state))

    def count_in(self, state: RemoteLogSegmentState) -> int:
        """Return the number of segments in `state`."""
        return self._facts.counts[STATES.index(state)]

    def finished_before(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that begin below `offset`, in order of arrival."""
        return self.at(self.is_finished & (self.column("start") < offset))

    def finished_below(self, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that end below `offset`, in order of arrival."""
        if self._facts.lowest_end >= offset:
            return iter(())
        return self.at(self.is_finished & (self.column("end") < offset))

    def count_finished_below(self, offset: int) -> int:
        """Return the number of finished segments that end below `offset`."""
        if self._facts.lowest_end >= offset:
            return 0
        return int(np.count_nonzero(self.is_finished & (self.column("end") < offset)))

    def finished_of_epochs_below(self, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments whose leader epochs are all below `epoch`, in order of arrival."""
        if self._facts.lowest_last_epoch >= epoch:
            return iter(())
        return self.at(self.is_finished & (self.last_epochs < epoch))

    def finished_beside(
        self, entries: Sequence[EpochEntry], offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments that have another leader epoch than `entries` at or above `offset`.

        `entries` are those of a leader-epoch checkpoint, in ascending order.
        """
        if not self._is_beside_anywhere(entries).any():
            return iter(())
        return self.at(self._is_beside(entries, offset) & self.is_finished)

    def _is_beside_anywhere(self, entries: Sequence[EpochEntry]) -> Bools:
        """Return which segments have another leader epoch than `entries`; the last answer is kept."""
        if self._beside is None or self._beside[0] != entries:
            self._beside = entries, self._is_beside(entries, _INT64_MIN)
        return self._beside[1]

    def _is_beside(self, entries: Sequence[EpochEntry], offset: int) -> Bools:
        """Return which segments have another leader epoch than `entries` at or above `offset`."""
        runs, first = self._runs, np.maximum(self._runs.starts, offset)
        starts = np.array([entry.start_offset for entry in entries], dtype=np.int64)
        epochs = np.array([-1, *(entry.epoch for entry in entries)], dtype=np.int64)
        at_first, at_last = (epochs[np.searchsorted(starts, at, side="right")] for at in (first, runs.ends))
        differs = ((at_first != runs.epochs) | (at_last != runs.epochs)) & (first <= runs.ends)
        return self._has_run(differs)

    def _has_run(self, chosen: Bools) -> Bools:
        """Return which segments have one of the `chosen` leader epochs, a mask of `_runs`."""
        has_run = np.zeros(len(self._rows), dtype=np.bool_)
        has_run[self._owners[chosen]] = True
        return has_run

    def _is_plain(self, lineage: Lineage) -> Bools:
        """Return which segments have records in each of their leader epochs, and `lineage` has them alike."""
        runs = self._runs
        return ~self._is_beside_anywhere(lineage.entries) & ~self._has_run(runs.starts > runs.ends)

    def within(self, lineage: Lineage, log_end_offset: int) -> Bools:
        """Return which segments belong to `lineage` and end below `log_end_offset` (`Lineage.contains`).

        A segment whose leader epochs are those of the lineage at all of its offsets belongs to it. Only the
        others become objects, because a log start may have removed their first epochs from the lineage.
        """
        is_plain = self._is_plain(lineage)
        is_within = is_plain & (self.column("end") < log_end_offset)
        if lineage:
            for at in np.flatnonzero(~is_plain).tolist():
                is_within[at] = lineage.contains(self._table.metadata(int(self._rows[at])), log_end_offset)
        return is_within

    def readable_ranges(self, lineage: Lineage, start_offset: int) -> Iterator[tuple[int, int]]:
        """Yield the offsets that `segments_in_lineage` yields from `start_offset` on, in ascending ranges.

        Both ends of a range are inclusive. A segment that alone has its offsets, in the leader epochs of the
        lineage, is read as a whole; other segments are looked up between such ones.
        """
        if lineage.earliest is None:
            return
        at = max(start_offset, lineage.earliest.start_offset)
        starts, ends, has_others = self._read_alone(lineage)
        for start, end in zip(starts, ends, strict=True):
            if end < at:
                continue
            if at < start and has_others:
                spans = segments_in_lineage(self.cache, lineage, at, start - 1)
                yield from ((span.from_offset, span.to_offset) for span in spans)
            yield max(start, at), end
            at = end + 1
        if has_others:
            spans = segments_in_lineage(self.cache, lineage, at)
            yield from ((span.from_offset, span.to_offset) for span in spans)

    def _read_alone(self, lineage: Lineage) -> tuple[list[int], list[int], bool]:
        """Return the offsets of segments that alone have them, and whether there are other readable segments.

        The offsets are the starts and the ends (inclusive) of ranges without a gap, in ascending order.
        """
        runs, readable = self._runs, self.columns.count_links(lambda status: status == READABLE)
        first_runs = np.cumsum(runs.counts) - runs.counts
        starts, ends = self.column("start"), self.column("end")
        is_whole = self._is_plain(lineage) & (readable == runs.counts) & ~self.columns.flags(ODD_EPOCHS)
        is_whole &= runs.starts[first_runs] == starts
        # The offsets at which a reader may find a segment are those of its leader epochs.
        lowest = np.minimum(starts, np.minimum.reduceat(runs.starts, first_runs))
        highest = np.maximum(ends, np.maximum.reduceat(runs.starts, first_runs))
        order = np.flatnonzero(readable > 0)
        order = order[np.argsort(lowest[order], kind="stable")]
        is_alone = is_whole[order]
        reached = np.maximum.accumulate(highest[order])
        is_joined = lowest[order][1:] <= reached[:-1]
        is_alone[1:] &= ~is_joined
        is_alone[:-1] &= ~is_joined
        alone = order[is_alone]
        is_first = np.append(True, starts[alone][1:] != ends[alone][:-1] + 1)[: len(alone)]
        is_last = np.append(is_first[1:], True)[: len(alone)]
        return starts[alone][is_first].tolist(), ends[alone][is_last].tolist(), len(alone) < len(order)

    def epoch_starts(self, below: int = _INT64_MAX) -> list[EpochEntry]:
        """Return the leader epochs of finished segments that begin below an offset, ascending.

        Each entry has the lowest offset at which one of the segments begins the epoch. Negative epochs, which
        no log can have, are left out, and negative offsets become 0.
        """
        if self._facts.lowest_start >= below:
            return []
        pairs = self.columns.epoch_pairs()
        is_chosen = np.repeat(self.is_finished & (self.column("start") < below), pairs.counts)
        is_chosen &= pairs.epochs >= 0
        epochs, offsets = pairs.epochs[is_chosen], np.maximum(pairs.offsets[is_chosen], 0)
        order = np.lexsort((offsets, epochs))
        epochs, offsets = epochs[order], offsets[order]
        is_first = np.append(True, epochs[1:] != epochs[:-1])[: len(epochs)]
        return list(map(EpochEntry, epochs[is_first].tolist(), offsets[is_first].tolist()))

    def finished_range(self) -> tuple[int, int] | None:
        """Return the lowest start and highest end offset (inclusive) of finished segments; None without."""
        facts = self._facts
        return (facts.lowest_start, facts.highest_end) if facts.counts[FINISHED] else None

    def finished_times_ms(self) -> tuple[int, int] | None:
        """Return the lowest and the highest of the largest timestamps of finished segments.

        None if no finished segment has a timestamp: Kafka's -1, and 0, are none.
        """
        facts = self._facts
        return (facts.lowest_time_ms, facts.highest_time_ms) if facts.highest_time_ms else None

    @property
    def are_dated(self) -> bool:
        """Whether all finished segments have a timestamp."""
        return not self._facts.undated

    @property
    def is_in_order(self) -> bool:
        """Whether the finished segments are one unbroken sequence (`LiveSegments.plainly_in_order`)."""
        return bool(self._groups.in_order[self._group])

    def finished_in_epoch(self, epoch: int) -> Int64s:
        """Return the rows of the finished segments that the cache lists for a leader epoch, in its order."""
        cache, at = self.cache, self._table.epoch(self._number, epoch)
        if at < 0:
            return np.empty(0, np.int64)
        cache.require_known(at, epoch)
        rows = cache.listed(at, epoch)
        finished: Int64s = rows[self._table.segments["state"][rows] == FINISHED]
        return finished

    def of_rows(self, rows: Int64s) -> LiveSegments:
        """Return the segments in these rows of the table."""
        return LiveSegments(self._table, rows)

    def places_of(self, rows: Int64s) -> Int64s:
        """Return the places of rows of these segments in the order of arrival."""
        places: Int64s = np.searchsorted(self._rows, rows)
        return places

    def place(self, segment_id: Uuid | None) -> int | None:
        """Return the place of a segment in the order of arrival; None if it is none of these."""
        row = -1 if segment_id is None else self._table.find(self._number, segment_id)
        return None if row < 0 else int(np.searchsorted(self._rows, row))

    def has_copied_since(self, begun: Uuid, offset: int, epochs: Collection[int]) -> bool:
        """Return whether `offset` or a later one was copied, in one of `epochs`, since `begun` arrived.

        `begun` is the id of one of these segments. The copy may have been deleted since. Return False if a
        finished segment that arrived before `begun` has such an offset: the order of deleted segments is
        unknown.
        """
        highest = map(self.cache.highest_offset_for_epoch, epochs)
        if not any(each is not None and each >= offset for each in highest):
            return False
        arrived = np.flatnonzero(self._rows == self._table.find(self._number, begun))[0]
        has_offset = np.isin(self._runs.epochs, list(epochs)) & (self._runs.ends >= offset)
        return not (self._owners[has_offset & self.is_finished[self._owners]] < arrived).any()

    def latest_epoch(self) -> int:
        """Return the highest leader epoch that a segment, deleted ones included, named; -1 without any."""
        return int(self._table.partitions["latest_epoch"][self._number])

    def newest_event_ms(self) -> int:
        """Return the latest event time of all segments; 0 without segments."""
        return self._facts.newest_event_ms

    def newest(self) -> RemoteLogSegmentMetadata | None:
        """Return the most recent finished segment: latest leader epoch, then highest end offset.

        Of equal ones, the latest event decides, then the first arrival.
        """
        row = self._facts.newest
        return None if row == NONE else self._table.metadata(row)

    @cached_property
    def _facts(self) -> SegmentFacts:
        kept = self._table.facts
        return self._groups.facts_of(self._group) if kept is None else SegmentFacts.of_row(kept[self._number])

    @cached_property
    def _rows(self) -> Int64s:
        return self._groups.rows_of(self._group)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of one of the fields of SEGMENT, in order of arrival."""
        values: npt.NDArray[Any] = self._table.segments[name][self._rows]
        return values

    @cached_property
    def is_finished(self) -> Bools:
        """Which segments are finished, in order of arrival."""
        is_finished: Bools = self.column("state") == FINISHED
        return is_finished

    @cached_property
    def _runs(self) -> EpochRuns:
        return self._groups.runs_of(self._group)

    @cached_property
    def _owners(self) -> Int64s:
        """The index in `_rows` of the segment of each of `_runs`."""
        return np.repeat(np.arange(len(self._rows)), self._runs.counts)

    def at(self, chosen: npt.NDArray[Any]) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments at `chosen`: indexes in order of arrival, or a mask."""
        return map(self._table.metadata, self._rows[chosen].tolist())
