"""Plan what the tasks of the data source `remote_log` read: coarsely on the driver, in detail on executors.

Spark plans a load in a Python process of the driver that has no Spark session and can start no job. Therefore
the driver only asks for the offsets of the metadata topic. It groups the metadata partitions and divides the
records of each group into shares, one task each. The worker that runs a task folds the metadata partitions of
its group, plans the share, and keeps the folded state for its other tasks of the group.

All shares of a group must cut a user partition at the same offsets: otherwise a record is read twice, or not
at all. Therefore cuts depend only on the events that the driver saw, not on logs and leaders.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, assert_never
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.apply.tier_check import tier_contents
from tierctl.errors import NotFoundError, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.kernel import expect
from tierctl.locallog import read_log_dirs, require_log_dirs
from tierctl.metadata import open_metadata
from tierctl.metadata.parallel_fold import FoldTask, PartitionRange, partition_ranges
from tierctl.metadata.server_properties import broker_file
from tierctl.metadata.state_dir import require_usable
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model import (
    IsolationLevel,
    LocalLog,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.selection import ranges_text
from tierctl.model.settings import broker
from tierctl.plan.preconditions import check_tier
from tierctl.read.partition_reader import (
    PartitionReader,
    ReadablePartition,
    chosen_topics,
    current_partitions,
    illegal_name_error,
    present_partitions,
    require_found,
)
from tierctl.read.readable_log import (
    EvidenceSources,
    ReadableLog,
    examine_histories,
    missing_events_error,
    reliable_leader_log,
    with_current_topic_ids,
)
from tierctl.read.segment import IndexFetcher, Report, UncachedIndexes
from tierctl.read.tasks import SPLIT_BYTES, ReadTask, TimestampRange, plan_read_tasks
from tierctl.spark.executors.task import fold_in_worker, shared_cluster, shared_tier, shared_topic
from tierctl.spark.executors.transport import grouped
from tierctl.spark.sources.load_options import LogOptions, Mode
from tierctl.spark.sources.metadata_splits import (
    EventSplit,
    Predicate,
    Window,
    are_in_place,
    batch_of,
    mask_of,
    wanted_partitions,
)
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.table_arrays import STATES
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import RemoteIndexCache
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.metadata.values import metadata_partition

PARTITION_COLUMNS: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "topic_id": pa.string(),
    "partition": pa.int32(),
}
"""The columns that name a user partition."""
POSITION_COLUMNS = frozenset({"offset", "timestamp", "timestamp_ms"})

# Each task takes Spark's Python worker about 50 ms, which is the time of 25 MB.
_TASK_BYTES_MIN = 32 << 20
# More tasks than this only limit the work that a failed task has to repeat.
_TASKS = 32
# A worker folds this number of events in about the time in which it reads _TASK_BYTES_MIN.
_GROUP_EVENTS_MIN = 500_000
# In the worst case each share is the task of another worker, which folds the whole group.
_SHARES_MAX = 256
# Four samples of this number of events of each metadata partition: every topic was active some time.
_SAMPLES, _SAMPLED_EVENTS = 4, 500
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What all tasks of one load have in common; `ranges` are the metadata topic that the driver saw.

    Scans are equal if they are of the same `job`. With `by_name`, the options name topics and no topic ids.
    """

    job: str
    options: LogOptions = field(compare=False)
    by_name: bool = field(compare=False)
    predicates: tuple[Predicate, ...] = field(compare=False)
    spec: TierSpec = field(compare=False)
    ranges: tuple[PartitionRange, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Share:
    """Share `number` of `count` of the records whose segments' events are in `metadata_partitions`."""

    metadata_partitions: tuple[int, ...]
    number: int
    count: int


class NameCheck(NamedTuple):
    """No records: find out whether the whole metadata topic has the named topics, each once."""


class PlannedReads(NamedTuple):
    """What the driver planned by its state directory, and the errors that it found."""

    reads: tuple[ReadTask, ...]
    problems: tuple[TierctlError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask:
    """One task of Spark: the work, and the columns of the rows that it returns."""

    scan: Scan
    work: Share | NameCheck | PlannedReads
    columns: tuple[str, ...]


def warn(message: str) -> None:
    """Print `message` to stderr of the process that found it: no record is lost, so the job goes on."""
    print(f"tierctl: {message}", file=sys.stderr)


def plan_tasks(
    options: LogOptions, predicates: tuple[Predicate, ...], columns: tuple[str, ...]
) -> list[LogTask]:
    """Return tasks that together read exactly the selected rows, those of a user partition in offset order.

    Reads the offsets of the metadata topic and a sample of its events, but with a state directory the whole
    topic: the directory is on the driver. Metadata partitions that can't have events of the selected topic
    ids and partitions are left out. Raises the errors of opening the topic and the tier.
    """
    job, selection = uuid4().hex, options.selection
    by_name = bool(selection.topics) and not selection.topic_ids
    if by_name:
        selection = with_current_topic_ids(selection, _cluster(options, job))
    settings = _broker_settings(options)
    spec = TierSpec.from_settings(
        options.remote_uri, settings, layout=options.layout, private_keys=options.private_keys
    )
    with closing(open_tier(spec)) as remote:
        spec = spec.resolved(remote)
    scan = Scan(
        job=job,
        options=replace(options, selection=selection),
        by_name=by_name,
        predicates=predicates,
        spec=spec,
        ranges=(),
    )
    works: Sequence[Share | NameCheck | PlannedReads]
    if options.state_dir is not None:
        require_usable(options.state_dir)
        works = _planned_reads(
            scan, RemoteIndexCache(options.state_dir, shared_tier(spec), settings=settings)
        )
    else:
        with closing(open_topic(options.metadata, complete=True)) as topic:
            begins, ends = topic.beginning_offsets(), topic.end_offsets()
            scan = replace(scan, ranges=tuple(partition_ranges(begins, ends)))
            works = _works(scan, topic, begins, ends)
    # The number of concurrent tasks is unknown here, so the limit holds even if all of them run at once.
    scan = replace(scan, spec=spec.shared(lambda: max(len(works), 1)))
    return [LogTask(scan=scan, work=work, columns=columns) for work in works]


def _broker_settings(options: LogOptions) -> dict[str, str]:
    settings: dict[str, str] = dict(broker_file(options.broker_config)) if options.broker_config else {}
    if options.throttle_fetch is not None:
        settings[broker.FETCH_MAX_BYTES_PER_SECOND.name] = str(options.throttle_fetch)
    return settings


def _works(
    scan: Scan, topic: MetadataTopic, begins: Mapping[int, int], ends: Mapping[int, int]
) -> list[Share | NameCheck]:
    """Return what each task does, in the order of metadata partitions."""
    expect(sum(min(_events(each), _SAMPLES * _SAMPLED_EVENTS) for each in scan.ranges))
    conditions = tuple(_conditions(scan))
    wanted = frozenset(wanted_partitions(topic, begins, ends, conditions))
    ranges = [each for each in scan.ranges if each.metadata_partition in wanted]
    groups = [list(scan.ranges)]
    if are_in_place(topic, begins, ends):
        size = max(sum(map(_events, ranges)) // _TASKS, _GROUP_EVENTS_MIN)
        groups = list(grouped(ranges, _events, size))
    sizes_bytes = [sum(_estimated_bytes(scan, topic, each, conditions) for each in group) for group in groups]
    split_bytes, shares_max = _split_bytes(scan, sum(sizes_bytes)), _shares_max(scan)
    works: list[Share | NameCheck] = []
    if scan.by_name and all(len(group) < len(scan.ranges) for group in groups):
        works.append(NameCheck())
    for group, size_bytes in zip(groups, sizes_bytes, strict=True):
        numbers = tuple(each.metadata_partition for each in group)
        count = min(max(round(size_bytes / split_bytes), 1), shares_max)
        works += [Share(numbers, number, count) for number in range(count)]
    return works


def _conditions(scan: Scan) -> Iterator[Predicate]:
    """Yield conditions on events that those of all selected user partitions satisfy."""
    yield from (each for each in scan.predicates if each.column in PARTITION_COLUMNS)
    selection = scan.options.selection
    if selection.topics:
        yield Predicate("topic", "in", tuple(selection.topics))
    if selection.topic_ids:
        yield Predicate("topic_id", "in", tuple(map(str, selection.topic_ids)))
    if selection.partitions:
        yield Predicate("partition", "in", tuple(selection.partitions))


def _events(of: PartitionRange) -> int:
    return of.end - of.begin


def _estimated_bytes(
    scan: Scan, topic: MetadataTopic, of: PartitionRange, conditions: tuple[Predicate, ...]
) -> int:
    """Return about how many bytes the selected segments have whose events are in a metadata partition.

    Deleted segments count as well, and no condition on offset or time reduces the result.
    """
    size_bytes = count = 0
    last = _events(of) - _SAMPLED_EVENTS
    starts = [of.begin + last * i // (_SAMPLES - 1) for i in range(_SAMPLES)]
    if last < _SAMPLES * _SAMPLED_EVENTS:
        starts = list(range(of.begin, of.end, _SAMPLED_EVENTS))
    for start in starts:
        split = EventSplit(
            location=scan.options.metadata,
            metadata_partition=of.metadata_partition,
            start_offset=start,
            end_offset=min(start + _SAMPLED_EVENTS, of.end),
            predicates=conditions,
            columns=("segment_size_in_bytes",),
        )
        for chunk in topic.read(of.metadata_partition, split.start_offset, split.end_offset):
            size_bytes += pc.sum(batch_of(chunk, split).column(0)).as_py() or 0
            count += len(chunk.offsets)
    return size_bytes * _events(of) // max(count, 1)


def _shares_max(scan: Scan) -> int:
    """Return how many shares a group has at most: few if most of them may have nothing to read."""
    options, columns = scan.options, {each.column for each in scan.predicates}
    is_narrow = options.from_time_ms is not None or options.to_time_ms is not None
    is_narrow = is_narrow or not columns.isdisjoint(POSITION_COLUMNS)
    return _TASKS if is_narrow and options.bytes_per_task is None else _SHARES_MAX


def _split_bytes(scan: Scan, total_bytes: int) -> int:
    """Return the bytes that a task should read, so that there are about 32 tasks of 32 to 128 MiB.

    There are not more tasks if a limit on reads is divided among them.
    """
    if scan.options.bytes_per_task is not None:
        return scan.options.bytes_per_task
    split_bytes = max(total_bytes // _TASKS, _TASK_BYTES_MIN)
    return split_bytes if scan.spec.throttle.is_limited else min(split_bytes, SPLIT_BYTES)


@dataclass(frozen=True, slots=True)
class Problems:
    """What is done with an error of planning: `keep` receives it in PERMISSIVE mode."""

    mode: Mode
    keep: Report

    def harmless(self, error: TierctlError) -> None:
        """Report an error that loses no record, such as an index that had to be rebuilt."""
        if self.mode is Mode.FAILFAST:
            warn(error.message)
        else:
            self.keep(error)

    def incomplete(self, error: TierctlError) -> None:
        """Report an error because of which segments may be missing from the result."""
        if self.mode is Mode.FAILFAST:
            raise error
        self.keep(error)

    def lost(self, error: TierctlError, first: int, last: int) -> None:
        """Report an error that may make the offsets [first, last] unreadable."""
        lost = f"offsets {first} to {last} may be lost there"
        if self.mode is Mode.FAILFAST:
            error.add_note(f"{lost}; with option mode=PERMISSIVE all others are read")
            raise error
        told = copy(error)
        told.message += f"; {lost}"
        self.keep(told)


def _ignore(_error: TierctlError) -> None:
    """Drop an error that another task reports."""


def reads_of(task: LogTask, problems: Problems) -> Iterator[ReadTask]:
    """Yield what a task reads.

    Raises the errors of reading the metadata topic and the tier, and those of `check_tier` for the tier of
    another metadata topic. In FAILFAST mode it also raises errors in the metadata, because segments may be
    missing.
    """
    match task.work:
        case Share() as share:
            plan = _plan_of(task.scan, share.metadata_partitions)
            split_bytes = task.scan.options.bytes_per_task or SPLIT_BYTES
            yield from plan.reads(share, split_bytes, problems)
        case NameCheck():
            _check_names(task.scan)
        case PlannedReads(reads, found):
            for problem in found:
                problems.harmless(problem)
            yield from reads
        case _:
            assert_never(task.work)


@lru_cache(maxsize=1)
def _plan_of(scan: Scan, metadata_partitions: tuple[int, ...]) -> "LogPlan":
    """Return the plan of a group, made once for all tasks of this process that follow each other."""
    remote = shared_tier(scan.spec)
    state = _folded(scan, metadata_partitions)
    own = shared_topic(scan.options.metadata, scan.job).identity()
    contents = tier_contents(remote, state)
    is_same = contents.identity is not None and contents.identity.cluster.is_same_as(own)
    if len(metadata_partitions) < len(scan.ranges) and not (contents.known or is_same):
        # Objects of the other metadata partitions' segments may show that the tier is the right one.
        numbers = [each.metadata_partition for each in scan.ranges]
        contents = tier_contents(remote, _folded(scan, numbers))
    note = check_tier(contents, own, is_reading=True)
    if note is not None:
        warn(note)
    return LogPlan(scan, state, remote, UncachedIndexes(remote), frozenset(metadata_partitions))


def _folded(scan: Scan, metadata_partitions: Sequence[int]) -> TierState:
    """Return the state of some metadata partitions, up to the offsets that the driver saw."""
    wanted = frozenset(metadata_partitions)
    task = FoldTask(
        ranges=tuple(each for each in scan.ranges if each.metadata_partition in wanted),
        partition_count=len(scan.ranges),
        # No event of the others is read, but they exist: what they lack is not missing here.
        state=TierState(read={each.metadata_partition: 0 for each in scan.ranges}),
    )
    return fold_in_worker(scan.options.metadata, scan.job, task).state


def _check_names(scan: Scan) -> None:
    """Raise the errors of `readable_partitions` for topics by name, with one metadata partition in memory."""
    # The tasks that read report unreadable logs.
    logs, chosen = _logs(scan, _ignore), scan.options.selection
    found: list[ReadablePartition] = []
    numbers, known = defaultdict[str, set[int]](set), set[str]()
    nothing = RemoteLogMetadataCache.empty()
    for each in scan.ranges:
        state = _folded(scan, [each.metadata_partition])
        for topic, of_topic in _numbers_by_topic(state).items():
            numbers[topic] |= of_topic
        known |= chosen_topics(state, chosen)
        present = present_partitions(state, logs, chosen, by_name=False)
        found += [replace(one, cache=nothing) for one in present]
    _require_found(scan, current_partitions(found, logs, chosen), numbers, known)


def _numbers_by_topic(state: TierState) -> dict[str, set[int]]:
    numbers = defaultdict[str, set[int]](set)
    for part in state:
        numbers[part.topic_id_partition.topic].add(part.topic_id_partition.partition)
    return numbers


def _require_found(
    scan: Scan, found: Sequence[ReadablePartition], numbers: Mapping[str, set[int]], known: Collection[str]
) -> None:
    """Raise as `require_found`, and NotFoundError if a named topic has other partitions than the named ones.

    `numbers` are those of the partitions of each topic in the tier's metadata.
    """
    if found:
        return
    selection = scan.options.selection
    for topic in sorted(selection.topics & numbers.keys()):
        if selection.partitions and selection.partitions.isdisjoint(numbers[topic]):
            raise NotFoundError(
                f'topic "{topic}" has no partition {ranges_text(selection.partitions)}',
                hint=f'known partitions of topic "{topic}": {ranges_text(numbers[topic])}',
            )
    require_found(found, numbers, known)


def _logs(scan: Scan, report: Report) -> list[LocalLog]:
    """Return the selected logs of the log directories; an unreadable one goes to `report`."""
    selection, dirs = scan.options.selection, list(scan.options.log_dirs)

    def report_unread(folder: Path, error: TierctlError) -> None:
        error.message += f"; offsets that only {folder} has are left out"
        report(error)

    require_log_dirs(dirs)
    logs = read_log_dirs(dirs, select=selection.may_select, on_error=report_unread) if dirs else []
    return [log for log in logs if log.topic_id_partition in selection]


def _cluster(options: LogOptions, job: str) -> Cluster | None:
    return None if options.cluster is None else shared_cluster(options.cluster, job)


def _planned_reads(scan: Scan, fetcher: IndexFetcher) -> list[PlannedReads]:
    """Plan all tasks in this process, with the events that the state directory has."""
    found: list[TierctlError] = []
    remote = shared_tier(scan.spec)
    with closing(open_metadata(scan.options.metadata, state_dir=scan.options.state_dir)) as manager:
        state = manager.refresh()
        note = check_tier(tier_contents(remote, state), manager.identity(), is_reading=True)
        if note is not None:
            warn(note)
        plan = LogPlan(scan, state, remote, fetcher, frozenset())
        problems = Problems(scan.options.mode, found.append)
        reads = list(plan.reads(Share((), 0, 1), _split_bytes(scan, plan.size_bytes), problems))
    works = [PlannedReads((read,)) for read in reads]
    return [*works, PlannedReads((), tuple(found))] if found else works


_FINISHED = STATES.index(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


class _Place(NamedTuple):
    """The place of a user partition in its group, and the offsets [start, end) of its bytes."""

    first_byte: int
    size_bytes: int
    start_offset: int
    end_offset: int

    def offset_at(self, byte: int) -> int:
        """Return the offset at which a user partition is cut; 0, or the highest offset, outside of it."""
        at = byte - self.first_byte
        if at <= 0:
            return 0
        if at >= self.size_bytes:
            return _OFFSET_MAX
        return self.start_offset + max(self.end_offset - self.start_offset, 0) * at // self.size_bytes


class LogPlan:
    """The selected partitions that have events in `state`, and what the tasks read of them.

    `metadata_partitions` are those in `state`: events of other ones that are there are misplaced.
    """

    def __init__(
        self,
        scan: Scan,
        state: TierState,
        remote: RemoteStorageManager,
        fetcher: IndexFetcher,
        metadata_partitions: frozenset[int],
    ) -> None:
        self._scan = scan
        self._remote = remote
        self._fetcher = fetcher
        self._home = metadata_partitions
        self._is_whole = len(metadata_partitions) == len(scan.ranges)
        self._window = Window.of(scan.predicates, "offset")
        self._cluster = _cluster(scan.options, scan.job)
        self._found: list[TierctlError] = []
        self._places, self.size_bytes = self._placed(state)
        self._partitions = list(self._readable(state))

    def _placed(self, state: TierState) -> tuple[dict[tuple[Uuid, int], _Place], int]:
        """Return the place of each selected partition, and the bytes of all.

        Segments outside of the selected offsets do not count.
        """
        places: dict[tuple[Uuid, int], _Place] = {}
        total = 0
        low, high = self._window.offsets
        for part in state:
            partition = part.topic_id_partition
            if partition in self._scan.options.selection and self._is_selected(partition):
                columns = part.segments.columns
                starts, ends = columns.column("start"), columns.column("end")
                chosen = (columns.states == _FINISHED) & (starts <= high) & (ends >= low)
                size_bytes = max(int(columns.column("size")[chosen].sum()), 1)
                start = max(int(starts[chosen].min(initial=_OFFSET_MAX)), low)
                end = min(int(ends[chosen].max(initial=-1)), high) + 1
                places[partition.key] = _Place(total, size_bytes, start, end)
                total += size_bytes
        return places, total

    def _readable(self, state: TierState) -> Iterator[ReadablePartition]:
        """Yield the selected partitions to read; report what makes the result incomplete."""
        options, problems = self._scan.options, Problems(self._scan.options.mode, self._found.append)
        for quarantined in state.quarantined:
            number, offset = quarantined.metadata_partition, quarantined.metadata_offset
            problems.incomplete(quarantined.error.within(f"__remote_log_metadata-{number}, offset {offset}"))
        logs = _logs(self._scan, problems.incomplete)
        for log in logs:
            # Damage above the selected offsets hides none of them.
            is_above = bool(log.segments) and log.log_end_offset > self._window.offsets[1]
            if log.damaged_end is not None and not is_above and self._is_selected(log.topic_id_partition):
                problems.incomplete(log.damaged_end)
        sources = EvidenceSources(
            selection=options.selection,
            logs=lambda: logs,
            cluster=lambda: self._cluster,
            topics=options.selection.topics,
            remote=lambda: self._remote,
        )
        for partition, reason in examine_histories(state, sources, options.truncated_metadata).items():
            problems.incomplete(missing_events_error(partition, reason))
        found = present_partitions(state, logs, options.selection, by_name=self._scan.by_name)
        if self._scan.by_name and self._is_whole and not found:
            known = chosen_topics(state, options.selection)
            _require_found(self._scan, found, _numbers_by_topic(state), known)
        for readable in found:
            if self._is_selected(readable.topic_id_partition):
                refusal = illegal_name_error(readable.topic_id_partition)
                if refusal is None:
                    yield readable
                else:
                    problems.incomplete(refusal)

    def _is_selected(self, partition: TopicIdPartition) -> bool:
        """Return whether the conditions admit a partition, and its events are here."""
        count = len(self._scan.ranges)
        if not self._is_whole:
            home = metadata_partition(partition.topic_id, partition.partition, count)
            if home not in self._home:
                return False
        conditions = [each for each in self._scan.predicates if each.column in PARTITION_COLUMNS]
        mask = mask_of(conditions, lambda name: pa.array([getattr(partition, name)], PARTITION_COLUMNS[name]))
        return mask is None or bool(mask.true_count)

    def reads(self, share: Share, split_bytes: int, problems: Problems) -> Iterator[ReadTask]:
        """Yield what a share reads, in pieces of about `split_bytes`.

        The share that has the beginning of a partition reports the errors that its shares have in common.
        """
        if share.number == 0:
            for problem in self._found:
                problems.incomplete(problem)
        least_bytes = self._scan.options.bytes_per_task or _TASK_BYTES_MIN
        size_bytes = max(-(-self.size_bytes // share.count), least_bytes)
        low, high = size_bytes * share.number, size_bytes * (share.number + 1)
        for readable in self._partitions:
            place = self._places.get(readable.topic_id_partition.key)
            if place is None:
                # Only logs have it: no event says where it could be cut.
                if readable.topic_id_partition.partition % share.count == share.number:
                    yield from self._reads_of(readable, (0, _OFFSET_MAX), split_bytes, problems, problems)
                continue
            first, end = place.offset_at(low), place.offset_at(high)
            is_first = low <= place.first_byte < high
            if is_first or (first < end and self._is_in_window(first, end)):
                common = problems if is_first else Problems(problems.mode, _ignore)
                yield from self._reads_of(readable, (first, end), split_bytes, problems, common)

    def _is_in_window(self, first: int, end: int) -> bool:
        low, high = self._window.offsets
        return first <= high and low < end

    def _reads_of(
        self,
        readable: ReadablePartition,
        cut: tuple[int, int],
        split_bytes: int,
        problems: Problems,
        common: Problems,
    ) -> Iterator[ReadTask]:
        """Yield the reads of the offsets [start, end) of `cut`; `common` receives errors of all shares."""
        options, window = self._scan.options, self._window
        view = ReadableLog.of(
            readable.topic_id_partition,
            readable.cache,
            readable.logs,
            remote=self._remote,
            fetcher=self._fetcher,
            report=common.incomplete,
            leader=reliable_leader_log(self._cluster, readable.topic_id_partition),
        )
        reader = PartitionReader(
            view, self._fetcher, common.harmless, isolation=options.isolation, report_lost=common.lost
        )
        start, end = self._span(view, reader)
        start, end = max(start, cut[0]), min(end, cut[1])
        if start >= end:
            return
        is_committed = options.isolation is IsolationLevel.READ_COMMITTED
        yield from plan_read_tasks(
            view,
            start,
            end,
            committed_only=(self._fetcher, problems.harmless) if is_committed else None,
            times=TimestampRange(first_ms=window.first_ms, last_ms=window.last_ms, late_ms=options.late_ms),
            split_bytes=split_bytes,
            report_lost=problems.lost,
        )

    def _span(self, view: ReadableLog, reader: PartitionReader) -> tuple[int, int]:
        """Return the offsets [start, end) that the options and conditions select; start >= end for none."""
        (low, high), seek_from = self._window.offsets, view.log_start_offset
        start, end = max(seek_from, low), min(reader.end_offset, high + 1)
        if self._scan.options.to_time_ms is None:
            reader.report_unread(high + 1)
        if start >= end:
            return 0, 0
        if self._scan.options.from_time_ms is not None:
            found = reader.offset_for_time(
                self._scan.options.from_time_ms, read_in=(start, end), with_control=False
            )
            if found is None:
                return 0, 0
            seek_from = found.offset
        if self._scan.options.to_time_ms is not None:
            # A condition on offsets must not move the end: the first later record may be before them.
            later = reader.end_for_time(self._scan.options.to_time_ms, seek_from)
            end = end if later is None else min(end, later)
        return max(start, seek_from), end
