"""The fold of the metadata topic: reads metadata partitions and folds their events into a state.

Other packages use `PartitionFold`, and `FoldRunner` with its tasks where partitions are folded in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.in_order import in_order
from tierctl.kernel import expect
from tierctl.metadata.topic.base import MetadataTopic, ReadableTopic
from tierctl.model.progress import Advance, no_op
from tierctl.state.fold import Folded, fold, write_snapshot
from tierctl.state.table import SegmentTable, may_share_partitions
from tierctl.state.tier_state import (
    HeldState,
    LastRecord,
    MissingEvents,
    Quarantined,
    Question,
    TierState,
    keep_facts,
    keep_sizes,
)
from tierctl.wire.arrays import Bools, ByteSlices, Int64s, numbers, runs
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import KIND, ODD, SNAPSHOT, DecodedEvents, decode_values
from tierctl.wire.metadata.values import metadata_partition, metadata_partitions_of
from tierctl.wire.primitives import crc32c


def misplaced(
    table: SegmentTable, numbers: Iterable[int] | Int64s, partition: int, partition_count: int
) -> Int64s:
    """Return the user partitions whose events belong in another metadata partition than `partition`.

    `numbers` are those of the user partitions to check in `table`. Brokers do not find these events. They
    exist after the number of metadata partitions was changed; the order of the events in both partitions is
    then unknown.
    """
    chosen = np.asarray(numbers, np.int64)
    rows = table.partitions[chosen]
    ids = np.stack([rows["id_high"], rows["id_low"]], axis=1).astype(">i8").view(np.uint8)
    homes = metadata_partitions_of(ids, rows["partition"].astype(np.int64), partition_count)
    found: Int64s = chosen[homes != partition]
    return found


def entangled(state: TierState) -> set[int]:
    """Return the metadata partitions that share a user partition: only both together have its state.

    They exist after the number of metadata partitions was changed. What they had before stays in their
    snapshots; the events since are read by each run.
    """
    found: set[int] = set()
    for number, table in state.tables.items():
        for owner in np.flatnonzero(table.partitions["is_foreign"]).tolist():
            part = state.partitions[table.topic_id_partition(owner).key]
            found |= {number, part.metadata_partition}
    return found


EventSink = Callable[[RecordChunk, DecodedEvents], None]
"""Receives the decoded events of each chunk that is folded: a table of the pipeline."""


def record_in(chunk: RecordChunk, at: int) -> LastRecord:
    """Return the record with index `at` in a chunk, as a state keeps its last one."""
    slices = chunk.slices
    start, length = int(slices.starts[at]), int(slices.lengths[at])
    value = slices.data[start : start + max(length, 0)].tobytes()
    return LastRecord(int(chunk.offsets[at]), int(chunk.timestamps_ms[at]), length, crc32c(value))


_LAST_OFFSETS = 100
"""The last record is looked for in so many offsets: those at the end may have none."""


def last_records(
    topic: MetadataTopic, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, LastRecord]:
    """Return the last record of each metadata partition in `starts` up to its offset in `ends`.

    A metadata partition without any near the end is not returned.
    """
    found = {
        number: _last_record(topic, number, max(start, ends[number] - _LAST_OFFSETS), ends[number])
        for number, start in starts.items()
    }
    return {number: last for number, last in found.items() if last is not None}


def _last_record(topic: MetadataTopic, number: int, start: int, end: int) -> LastRecord | None:
    last = None
    for chunk in topic.read(number, start, end):
        if len(chunk.offsets):
            last = record_in(chunk, len(chunk.offsets) - 1)
    return last


def other_record(
    last: LastRecord | None, topic: MetadataTopic, number: int, begin: int
) -> CorruptInputError | None:
    """Return the error of a metadata partition whose log does not have `last`, the last record that was read.

    The log starts at offset `begin`. What is below it can't be compared.
    """
    if last is None or last.offset < begin:
        return None
    found = _last_record(topic, number, last.offset, last.offset + 1)
    if found == last:
        return None
    expected = f"the record at offset {last.offset} of metadata partition {number} that was read before"
    return CorruptInputError("snapshot", expected=expected, found="none" if found is None else "another one")


class PartitionFold:
    """Fold the records of a topic with `partition_count` partitions into `state`.

    Events that the metadata topic's retention deleted before they were read go to `state.missing`; unreadable
    records go to `state.quarantined`, and so do misplaced events if the count is known. Folded events also go
    to `sink`. With `holds`, `state.held` gets a snapshot before the first record that is not understood.
    """

    def __init__(
        self,
        state: TierState,
        partition_count: int | None,
        sink: EventSink | None = None,
        *,
        holds: bool = False,
    ) -> None:
        self._state = state
        self._partition_count = partition_count
        self._sink = sink
        self._holds = holds
        self._known = {(each.metadata_partition, each.error.message) for each in state.quarantined}

    def catch_up(
        self,
        topic: ReadableTopic,
        partition: int,
        begin: int,
        end: int,
        advance: Advance = no_op,
    ) -> None:
        """Fold one metadata partition, which has the offsets [begin, end), from `state.read` to its end.

        `advance` receives the number of offsets of each chunk that is read.
        """
        start = self.start(partition, begin, end)
        self._state.read[partition] = start
        if start < end:
            self._state.table(partition).expected = end - start
        position = start
        for chunk in topic.read(partition, start, end):
            self.fold(chunk)
            advance(chunk.next_offset - position)
            position = chunk.next_offset

    def start(self, partition: int, begin: int, end: int) -> int:
        """Return the offset to read from; note missing events, and quarantine a log that was cut."""
        position = self._state.read.get(partition, 0)
        if position > end:
            self._quarantine(partition, end, f"an end at or after {position}", f"an end at {end}")
        elif position < begin:
            self._state.add_missing(MissingEvents(partition, position, begin))
        return max(position, begin)

    def _quarantine(
        self, partition: int, offset: int, expected: str, found: str, *, is_misplaced: bool = False
    ) -> None:
        error = CorruptInputError(
            f"metadata partition {partition}",
            expected=expected,
            found=found,
            hint="its history is not complete, so nothing in it may be deleted",
        )
        if (partition, error.message) not in self._known:
            self._known.add((partition, error.message))
            self._state.quarantined.append(Quarantined(partition, offset, error, is_misplaced=is_misplaced))

    def fold(self, chunk: RecordChunk) -> Folded:
        """Fold the next chunk of a partition; quarantine its damaged ranges and misplaced events."""
        partition, state = chunk.partition, self._state
        events = decode_values(chunk.slices)
        if self._sink is not None:
            self._sink(chunk, events)
        first = _first_unknown(chunk, events) if self._holds and partition not in state.held else None
        parts = [(events, chunk.offsets, chunk.next_offset)]
        if first is not None:
            is_before = chunk.offsets < first
            before, after = (_chosen(events, chunk.offsets, each) for each in (is_before, ~is_before))
            parts = [(*before, first), (*after, chunk.next_offset)]
        results: list[Folded] = []
        for chosen, offsets, next_offset in parts:
            if results:
                self._note_last(chunk, len(results[0].owners))
                state.held[partition] = HeldState(state.read[partition], write_snapshot(state, partition))
            folded = fold(
                chosen, state, metadata_partition=partition, metadata_offsets=offsets, next_offset=next_offset
            )
            self._quarantine_misplaced(partition, offsets, folded)
            results.append(folded)
        self._note_last(chunk, len(chunk.offsets))
        for damage in chunk.damage:
            state.quarantined.append(Quarantined(partition, damage.offset, damage.error))
        return results[0] if first is None else Folded(*map(np.concatenate, zip(*results, strict=True)))

    def _note_last(self, chunk: RecordChunk, count: int) -> None:
        """Note the last one of the first `count` records of a chunk."""
        if count:
            self._state.last_records[chunk.partition] = record_in(chunk, count - 1)

    def _quarantine_misplaced(self, partition: int, offsets: Int64s, folded: Folded) -> None:
        """Quarantine the metadata partition if it has events that belong in another one."""
        count = self._partition_count
        if count is None:
            return
        table = self._state.table(partition)
        named = np.flatnonzero(np.bincount(folded.owners[folded.owners >= 0]))
        for number in misplaced(table, named, partition, count).tolist():
            user_partition = table.topic_id_partition(number)
            home = metadata_partition(user_partition.topic_id, user_partition.partition, count)
            first = np.flatnonzero(folded.owners == number)[0]
            self._quarantine(
                partition,
                int(offsets[first]),
                f"events of {user_partition} in metadata partition {home}",
                "some in this one",
                is_misplaced=True,
            )


def _first_unknown(chunk: RecordChunk, events: DecodedEvents) -> int | None:
    """Return the offset of the first damage, or record that can't be decoded; None without any."""
    unknown = chunk.offsets[np.isin(events.rows[:, KIND], (ODD, SNAPSHOT))].tolist()
    return min([*unknown, *(damage.offset for damage in chunk.damage)], default=None)


def _chosen(events: DecodedEvents, offsets: Int64s, is_chosen: Bools) -> tuple[DecodedEvents, Int64s]:
    return events.take(np.flatnonzero(is_chosen)), offsets[is_chosen]


def chunks_of_batch(batch: pa.RecordBatch) -> Iterator[RecordChunk]:
    """Yield the records of each metadata partition in a batch, which is ordered by these and by offset.

    Its columns are `metadata_partition`, `metadata_offset` and `record`, the bytes of each record. Without
    `timestamp_ms` the timestamps are the offsets. Raise CorruptInputError for a record without a position.
    """
    place = [batch.column(name) for name in ("metadata_partition", "metadata_offset")]
    if any(column.null_count for column in place):
        raise CorruptInputError(
            "events of the metadata topic",
            expected="metadata_partition and metadata_offset of each record",
            found="null",
            hint="read them with metadata_events(spark, ..., columns=FOLDED), or leave these rows out",
        )
    partitions, offsets = map(numbers, place)
    is_timed = "timestamp_ms" in batch.schema.names
    times_ms = numbers(batch.column("timestamp_ms")) if is_timed else offsets
    values = batch.column("record")
    for first, end in runs(partitions):
        own, times = (each[first:end].astype(np.int64) for each in (offsets, times_ms))
        slices = ByteSlices.of(values[first:end])
        yield RecordChunk(int(partitions[first]), own, times, slices, int(own[-1]) + 1)


# Folds many metadata partitions in parallel: as tasks that share no state, whose results are merged.
#
# All events of a user partition are in one metadata partition, so tasks share no state. If the number of
# metadata partitions was changed, a user partition may have events in several of them: one task then folds
# all of these.

EVENTS_AT_ONCE_MAX = 4_000_000
"""The results of a round of tasks are held in memory: about 45 bytes per event, 90 for unfinished copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets [begin, end) of a metadata partition."""

    metadata_partition: int
    begin: int
    end: int

    def unread(self, state: TierState) -> int:
        """Return how many of the offsets `state` has not read."""
        return max(self.end - max(self.begin, state.read.get(self.metadata_partition, 0)), 0)


class Kept(Enum):
    """What a fold on executors returns of the segments."""

    SEGMENTS = auto()
    FACTS = auto()
    """Facts about the segments of each user partition; `TierState.map_parts` folds again on executors."""
    SIZES = auto()
    """The sizes of each user partition."""


_KEEP = {Kept.FACTS: keep_facts, Kept.SIZES: keep_sizes}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """Metadata partitions to read, ascending, and their known state; picklable.

    `state` has these metadata partitions only. `holds` as for `PartitionFold`. With `question` the result has
    the answers instead of a state.
    """

    ranges: tuple[PartitionRange, ...]
    partition_count: int
    state: TierState
    holds: bool = False
    kept: Kept = Kept.SEGMENTS
    question: Question | None = None

    @property
    def unread(self) -> int:
        """Return the number of offsets to read."""
        return sum(each.unread(self.state) for each in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """The state after a task; of anomalies, quarantined and missing events it has the new ones only."""

    metadata_partitions: tuple[int, ...]
    state: TierState
    answers: Sequence[Any] = ()


FoldRunner = Callable[[Sequence[FoldTask]], Iterator[FoldResult]]
"""Runs `run_fold_task` for a copy of each task, for example on executors.

It yields the results in the order of the tasks, and raises the errors of `run_fold_task`.
"""


def run_fold_task(topic: ReadableTopic, task: FoldTask, advance: Advance = no_op) -> FoldResult:
    """Read the partitions of `task` to their ends; raise the errors of `topic`.

    `advance` receives the numbers of offsets that were read.
    """
    expect(task.unread)
    state = task.state
    known = len(state.quarantined), len(state.missing), len(state.anomalies)
    known_counts = dict(state.anomaly_counts)
    partitions = PartitionFold(state, task.partition_count, holds=task.holds)
    for each in task.ranges:
        partitions.catch_up(topic, each.metadata_partition, each.begin, each.end, advance)
    del state.quarantined[: known[0]], state.missing[: known[1]], state.anomalies[: known[2]]
    for number, count in known_counts.items():
        state.anomaly_counts[number] -= count
    if task.kept in _KEEP:
        _KEEP[task.kept](state)
    answers: list[Any] = []
    if task.question is not None:
        answers, read = list(task.question(state)), state.read
        state = TierState(read=read)
    numbers = tuple(each.metadata_partition for each in task.ranges)
    return FoldResult(metadata_partitions=numbers, state=state, answers=answers)


@dataclass(frozen=True, slots=True)
class ThreadsFold:
    """FoldRunner in threads of this process: compiled kernels run at the same time.

    The state of the tasks must be empty: it is not copied.
    """

    topic: ReadableTopic
    threads: int
    advance: Advance = no_op

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Run the tasks."""
        run = partial(run_fold_task, self.topic, advance=self.advance)
        return in_order(run, tasks, threads=self.threads, ahead=self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFold:
    """Fold a topic into `state` with `runner`; the result is that of reading partition after partition.

    `holds` and `kept` as for `FoldTask`; `state` is empty for Kept.FACTS.
    """

    topic: MetadataTopic
    state: TierState
    runner: FoldRunner
    holds: bool = False
    kept: Kept = Kept.SEGMENTS

    def catch_up(self, ranges: Iterable[PartitionRange]) -> None:
        """Read all partitions in `ranges` to their ends; raise the errors of `topic`."""
        by_number = {each.metadata_partition: each for each in ranges}
        folded: list[tuple[int, ...]] = []
        for one_round in self._rounds(by_number.values()):
            groups = [(each.metadata_partition,) for each in one_round]
            results = self._run(groups, by_number)
            repeated = [group for group in merge_groups(groups, results, self.state) if len(group) > 1]
            if repeated:
                members = {number for group in repeated for number in group}
                results = [result for result in results if result.metadata_partitions[0] not in members]
                results += self._run(repeated, by_number)
            self.state.merge([result.state for result in results])
            folded += [result.metadata_partitions for result in results]
        if self.kept is Kept.FACTS:
            self.state.elsewhere = partial(self._answers, [self._task(each, by_number) for each in folded])

    def _answers(
        self, tasks: Sequence[FoldTask], question: Question, metadata_partitions: Collection[int]
    ) -> Iterator[Any]:
        """Implement `Elsewhere`: fold the tasks again that have one of `metadata_partitions`."""
        asked = [
            replace(task, question=question, state=TierState(), kept=Kept.SEGMENTS)
            for task in tasks
            if any(each.metadata_partition in metadata_partitions for each in task.ranges)
        ]
        for result in self.runner(asked):
            yield from result.answers

    def _rounds(self, ranges: Iterable[PartitionRange]) -> Iterator[list[PartitionRange]]:
        one_round: list[PartitionRange] = []
        events = 0
        for each in ranges:
            events += each.unread(self.state)
            if one_round and events > EVENTS_AT_ONCE_MAX and self.kept is Kept.SEGMENTS:
                yield one_round
                one_round, events = [], each.unread(self.state)
            one_round.append(each)
        yield one_round

    def _run(self, groups: Sequence[tuple[int, ...]], ranges: dict[int, PartitionRange]) -> list[FoldResult]:
        tasks = [self._task(group, ranges) for group in groups]
        # A partition with nothing to read may still be truncated, which is found here without an executor.
        here = [run_fold_task(self.topic, task) for task in tasks if not task.unread]
        return [*here, *self.runner([task for task in tasks if task.unread])]

    def _task(self, group: tuple[int, ...], ranges: dict[int, PartitionRange]) -> FoldTask:
        return FoldTask(
            ranges=tuple(ranges[number] for number in group),
            partition_count=self.topic.partition_count,
            state=part_of(self.state, group),
            holds=self.holds,
            kept=self.kept,
        )


def part_of(state: TierState, metadata_partitions: Iterable[int]) -> TierState:
    """Return the part of `state` for `metadata_partitions`."""
    chosen = frozenset(metadata_partitions)
    return TierState(
        listed={key: p for key, p in state.partitions.items() if p.metadata_partition in chosen},
        read={p: offset for p, offset in state.read.items() if p in chosen},
        last_records={p: last for p, last in state.last_records.items() if p in chosen},
        quarantined=[q for q in state.quarantined if q.metadata_partition in chosen],
        missing=[m for m in state.missing if m.metadata_partition in chosen],
        anomalies=[a for a in state.anomalies if a.metadata_partition in chosen],
        anomaly_counts={p: count for p, count in state.anomaly_counts.items() if p in chosen},
        tombstones={p: found for p, found in state.tombstones.items() if p in chosen},
        tables={p: table for p, table in state.tables.items() if p in chosen},
    )


def merge_groups(
    groups: Sequence[tuple[int, ...]], results: Sequence[FoldResult], state: TierState
) -> list[tuple[int, ...]]:
    """Return `groups` of metadata partitions; merge groups that share a user partition.

    A user partition of `state` belongs to the group of its metadata partition there.
    """
    tables = [table for result in results for table in result.state.tables.values()]
    if not state.tables and not may_share_partitions(tables):
        return list(groups)
    leader = {number: group[0] for group in groups for number in group}

    def find(number: int) -> int:
        while leader.setdefault(number, number) != number:
            number = leader[number]
        return number

    owners = {key: part.metadata_partition for key, part in state.partitions.items()}
    for result in results:
        for key in result.state.partitions:
            own = result.metadata_partitions[0]
            pair = find(own), find(owners.setdefault(key, own))
            leader[max(pair)] = min(pair)
    members: dict[int, list[int]] = {}
    for number in sorted(leader):
        members.setdefault(find(number), []).append(number)
    return [tuple(found) for found in members.values()]


def partition_ranges(begins: dict[int, int], ends: dict[int, int]) -> list[PartitionRange]:
    """Return the ranges of offsets of all metadata partitions, ascending."""
    return [PartitionRange(metadata_partition=p, begin=begins[p], end=ends[p]) for p in sorted(ends)]
