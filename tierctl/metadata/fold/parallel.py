"""Folds many metadata partitions in parallel: as tasks that share no state, whose results are merged.

All events of a user partition are in one metadata partition, so tasks share no state. If the number of
metadata partitions was changed, a user partition may have events in several of them: one task then folds all
of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierctl.metadata.fold.partitions import PartitionFold
from tierctl.metadata.topic.base import MetadataTopic, ReadableTopic
from tierctl.state.sizes import keep_sizes
from tierctl.state.tier import ANOMALIES_KEPT, TierState

if TYPE_CHECKING:
    from tierctl.metadata.state_dir.cache_file import CacheLedger
    from tierctl.metadata.state_dir.directory import StateDirectory
    from tierctl.wire.metadata.decode_columns import KnownLayouts

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


def run_fold_task(
    topic: ReadableTopic, task: FoldTask, known_layouts: KnownLayouts | None = None
) -> FoldResult:
    """Read the partitions of `task` to their ends; raise the errors of `topic`.

    `known_layouts` as for `PartitionFold`: a process that runs many small tasks passes the same to each.
    """
    known, known_missing = len(task.state.quarantined), len(task.state.missing)
    partitions = PartitionFold(task.state, task.partition_count, task.ledger, known_layouts)
    for each in task.ranges:
        partitions.catch_up(topic, each.metadata_partition, each.begin, each.end)
    del task.state.quarantined[:known]
    del task.state.missing[:known_missing]
    if task.sizes_only:
        keep_sizes(task.state)
    return FoldResult(
        metadata_partitions=tuple(each.metadata_partition for each in task.ranges),
        state=task.state,
        ledger=task.ledger,
    )


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
