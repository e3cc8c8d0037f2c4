"""The fold of the metadata topic: reads metadata partitions and folds their events into a state.

Other packages use `PartitionFold`, and `FoldRunner` with its tasks where partitions are folded in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.in_order import in_order
from tierctl.kernel import prepare
from tierctl.metadata.topic.base import MetadataTopic, ReadableTopic
from tierctl.metadata.user_partitions import misplaced
from tierctl.model.progress import Advance, no_op
from tierctl.state.fold import Folded, fold
from tierctl.state.sizes import keep_sizes
from tierctl.state.tier_state import ANOMALIES_KEPT, MissingEvents, Quarantined, TierState
from tierctl.wire.arrays import ByteSlices, numbers
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.metadata.decode import DecodedEvents, decode_values
from tierctl.wire.metadata.partitioner import metadata_partition

if TYPE_CHECKING:
    from tierctl.metadata.state_dir.cache_file import CacheLedger
    from tierctl.metadata.state_dir.directory import StateDirectory


class EventSink(Protocol):
    """Keep the events that are folded: a state directory, its ledger, or a table of the pipeline."""

    def take(self, chunk: RecordChunk, events: DecodedEvents) -> tuple[RecordChunk, DecodedEvents]:
        """Keep the decoded events of `chunk`; return both without events that were kept before."""
        ...


def counted(chunks: Iterable[RecordChunk], start: int, advance: Advance) -> Iterator[RecordChunk]:
    """Yield the chunks of a partition from offset `start` on, and give the length of each to `advance`."""
    position = start
    for chunk in chunks:
        yield chunk
        advance(chunk.next_offset - position)
        position = chunk.next_offset


class PartitionFold:
    """Fold the records of a topic with `partition_count` partitions into `state`.

    Events that the metadata topic's retention deleted before they were read go to `state.missing`; unreadable
    records go to `state.quarantined`, and so do misplaced events if the count is known. Folded events also go
    to `sink`.
    """

    def __init__(
        self,
        state: TierState,
        partition_count: int | None,
        sink: EventSink | None = None,
    ) -> None:
        self._state = state
        self._partition_count = partition_count
        self._sink = sink

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
        start = self._start(partition, begin, end)
        self._state.read[partition] = start
        if start < end:
            self._state.table(partition).expected = end - start
        for chunk in counted(topic.read(partition, start, end), start, advance):
            self.fold(chunk)

    def _start(self, partition: int, begin: int, end: int) -> int:
        """Return the offset to read from; note missing events, and quarantine a log that was cut."""
        position = self._state.read.get(partition, 0)
        if position > end:
            self._quarantine(partition, end, f"an end at or after {position}", f"an end at {end}")
        elif position < begin and not self._has_noted(partition, begin):
            known_end = self._known_end(partition)
            first = position or (known_end if known_end < begin else 0)
            self._state.add_missing(MissingEvents(partition, first, begin))
        return max(position, begin)

    def _has_noted(self, partition: int, begin: int) -> bool:
        """Return whether events up to `begin` are known to be missing, and are to be read once more."""
        return any(missing.end_offset >= begin for missing in self._state.missing_of(partition))

    def _known_end(self, partition: int) -> int:
        """Return the offset after the last known event of a metadata partition, 0 for none.

        Where a cache of the state directory is damaged, `state.read` is 0 although other caches have events.
        """
        parts = self._state.partitions.values()
        return max((p.last_event_offset + 1 for p in parts if p.metadata_partition == partition), default=0)

    def _quarantine(
        self, partition: int, offset: int, expected: str, found: str, *, is_misplaced: bool = False
    ) -> None:
        error = CorruptInputError(
            f"metadata partition {partition}",
            expected=expected,
            found=found,
            hint="its history is not complete, so nothing in it may be deleted",
        )
        known = {(q.metadata_partition, q.metadata_offset, q.error.message) for q in self._state.quarantined}
        if (partition, offset, error.message) not in known:
            self._state.quarantined.append(Quarantined(partition, offset, error, is_misplaced=is_misplaced))

    def fold(self, chunk: RecordChunk) -> Folded:
        """Fold the next chunk of a partition; quarantine its damaged ranges and misplaced events."""
        partition, state = chunk.partition, self._state
        events = decode_values(chunk.slices)
        if self._sink is not None:
            chunk, events = self._sink.take(chunk, events)
        folded = fold(
            events,
            state,
            metadata_partition=partition,
            metadata_offsets=chunk.offsets,
            next_offset=chunk.next_offset,
        )
        for damage in chunk.damage:
            state.quarantined.append(Quarantined(partition, damage.offset, damage.error))
        count = self._partition_count
        if count is None:
            return folded
        numbers = np.flatnonzero(np.bincount(folded.owners[folded.owners >= 0]))
        for user_partition in misplaced(state.table(partition), numbers, partition, count):
            home = metadata_partition(user_partition.topic_id, user_partition.partition, count)
            self._quarantine(
                partition,
                int(chunk.offsets[0]),
                f"events of {user_partition} in metadata partition {home}",
                f"some from offset {chunk.offsets[0]} on",
                is_misplaced=True,
            )
        return folded


def record_chunks(batch: pa.RecordBatch) -> Iterator[RecordChunk]:
    """Yield the records of each metadata partition in a batch, which is ordered by these and by offset.

    Its columns are `metadata_partition`, `metadata_offset` and `record`, the bytes of each record.
    """
    partitions, offsets = (numbers(batch.column(name)) for name in ("metadata_partition", "metadata_offset"))
    edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    values = batch.column("record")
    for first, end in pairwise(edges):
        if first < end:
            own = offsets[first:end].astype(np.int64)
            slices = ByteSlices.of(values[first:end])
            yield RecordChunk(int(partitions[first]), own, own, slices, int(own[-1]) + 1)


# Folds many metadata partitions in parallel: as tasks that share no state, whose results are merged.
#
# All events of a user partition are in one metadata partition, so tasks share no state. If the number of
# metadata partitions was changed, a user partition may have events in several of them: one task then folds
# all of these.

EVENTS_AT_ONCE_MAX = 4_000_000
"""The results of a round of tasks are held in memory: about 45 bytes per event, 90 for unfinished copies."""
KEPT_EVENTS_AT_ONCE_MAX = 1_000_000
"""With a state directory the results also contain the events: about 200 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets [begin, end) of a metadata partition."""

    metadata_partition: int
    begin: int
    end: int

    def unread(self, state: TierState) -> int:
        """Return how many of the offsets `state` has not read."""
        return max(self.end - max(self.begin, state.read.get(self.metadata_partition, 0)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """Metadata partitions to read, ascending, and their known state; picklable.

    `state` has these metadata partitions only, and no anomalies. `ledger` is None without a state directory.
    With `sizes_only` the result has the sizes of user partitions instead of their segments.
    """

    ranges: tuple[PartitionRange, ...]
    partition_count: int
    state: TierState
    ledger: CacheLedger | None = None
    sizes_only: bool = False

    @property
    def unread(self) -> int:
        """Return the number of offsets to read."""
        return sum(each.unread(self.state) for each in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """The result of a task: its ledger and its state; of quarantined and missing events the new ones only."""

    metadata_partitions: tuple[int, ...]
    state: TierState
    ledger: CacheLedger | None


class FoldRunner(Protocol):
    """Run `run_fold_task` for a copy of each task, for example on executors."""

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Yield the results in the order of `tasks`; raise the errors of `run_fold_task`."""
        ...


def run_fold_task(topic: ReadableTopic, task: FoldTask, advance: Advance = no_op) -> FoldResult:
    """Read the partitions of `task` to their ends; raise the errors of `topic`.

    `advance` receives the numbers of offsets that were read.
    """
    prepare(task.unread)
    known, known_missing = len(task.state.quarantined), len(task.state.missing)
    partitions = PartitionFold(task.state, task.partition_count, task.ledger)
    for each in task.ranges:
        partitions.catch_up(topic, each.metadata_partition, each.begin, each.end, advance)
    del task.state.quarantined[:known]
    del task.state.missing[:known_missing]
    if task.sizes_only:
        keep_sizes(task.state)
    return FoldResult(
        metadata_partitions=tuple(each.metadata_partition for each in task.ranges),
        state=task.state,
        ledger=task.ledger,
    )


@dataclass(frozen=True, slots=True)
class ThreadsFold:
    """FoldRunner in threads of this process: compiled kernels run at the same time.

    The state of the tasks must be empty: it is not copied.
    """

    topic: ReadableTopic
    threads: int
    advance: Advance = no_op

    def __call__(self, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        """Implement `FoldRunner.__call__`."""
        run = partial(run_fold_task, self.topic, advance=self.advance)
        return in_order(run, tasks, threads=self.threads, ahead=self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFold:
    """Fold a topic into `state` with `runner`; the result is that of reading partition after partition.

    The events also go to the state directory. `sizes_only` as for `FoldTask`; there must be no state
    directory then.
    """

    topic: MetadataTopic
    state: TierState
    runner: FoldRunner
    state_dir: StateDirectory | None = None
    sizes_only: bool = False

    def catch_up(self, ranges: Iterable[PartitionRange]) -> None:
        """Read all partitions in `ranges` to their ends; raise the errors of `topic`."""
        by_number = {each.metadata_partition: each for each in ranges}
        for one_round in self._rounds(by_number.values()):
            groups = [(each.metadata_partition,) for each in one_round]
            results = self._run(groups, by_number)
            repeated = [group for group in merge_groups(groups, results, self.state) if len(group) > 1]
            if repeated:
                members = {number for group in repeated for number in group}
                results = [result for result in results if result.metadata_partitions[0] not in members]
                results += self._run(repeated, by_number)
            merge_results(self.state, results)
            for result in results:
                if self.state_dir is not None and result.ledger is not None:
                    self.state_dir.merge_ledger(result.ledger)

    def _rounds(self, ranges: Iterable[PartitionRange]) -> Iterator[list[PartitionRange]]:
        events_max = EVENTS_AT_ONCE_MAX if self.state_dir is None else KEPT_EVENTS_AT_ONCE_MAX
        one_round: list[PartitionRange] = []
        events = 0
        for each in ranges:
            events += each.unread(self.state)
            if one_round and events > events_max and not self.sizes_only:
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
            ledger=None if self.state_dir is None else self.state_dir.ledger_of(group),
            sizes_only=self.sizes_only,
        )


def part_of(state: TierState, metadata_partitions: Iterable[int]) -> TierState:
    """Return the part of `state` for `metadata_partitions`, without anomalies."""
    chosen = frozenset(metadata_partitions)
    return TierState(
        partitions={key: p for key, p in state.partitions.items() if p.metadata_partition in chosen},
        read={p: offset for p, offset in state.read.items() if p in chosen},
        quarantined=[q for q in state.quarantined if q.metadata_partition in chosen],
        missing=[m for m in state.missing if m.metadata_partition in chosen],
        tables={p: table for p, table in state.tables.items() if p in chosen},
    )


def merge_groups(
    groups: Sequence[tuple[int, ...]], results: Iterable[FoldResult], state: TierState
) -> list[tuple[int, ...]]:
    """Return `groups` of metadata partitions; merge groups that share a user partition.

    A user partition of `state` belongs to the group of its metadata partition there.
    """
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


def merge_results(state: TierState, results: Iterable[FoldResult]) -> None:
    """Merge the states of tasks into `state`, as if the partitions had been read one after the other."""
    # Sorted by metadata partition: if the state can't keep all anomalies, it keeps the same ones as a fold of
    # the partitions in order.
    parts = [result.state for result in results]
    anomalies = sorted((a for part in parts for a in part.anomalies), key=lambda a: a.metadata_partition)
    quarantined = sorted((q for part in parts for q in part.quarantined), key=lambda q: q.metadata_partition)
    state.quarantined += quarantined
    for missing in sorted((m for part in parts for m in part.missing), key=lambda m: m.metadata_partition):
        state.add_missing(missing)
    state.anomalies += anomalies[: ANOMALIES_KEPT - len(state.anomalies)]
    state.anomaly_count += sum(part.anomaly_count for part in parts)
    for part in parts:
        state.partitions |= part.partitions
        state.read |= part.read
        state.tables |= part.tables


def partition_ranges(begins: dict[int, int], ends: dict[int, int]) -> list[PartitionRange]:
    """Return the ranges of offsets of all metadata partitions, ascending."""
    return [PartitionRange(metadata_partition=p, begin=begins[p], end=ends[p]) for p in sorted(ends)]
