"""The data source `spark.read.format("remote_log")`: user records from the tier, one row per record.

The metadata topic lists the segments and the tier has their records; no broker serves records. The rows are
those that a consumer would read: each offset once, from the segment of the current leader epochs, and with
isolation_level=read_committed without aborted transactions. The first two options are required. All options
mean the same as for `tierctl fetch`. The tier of another metadata topic is refused, as there:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it
remote              s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., or a folder
layout              kafka or aiven
topic, partition, topic_id
                    read only these, separated by commas; an unknown topic is an error here, but not in
                    a where(...) condition
isolation_level     read_uncommitted (the default) or read_committed
log_dir             brokers' log directories, separated by commas, for records that are not in the tier
                    yet; executors read them under the same paths
from_time, to_time  read from the first record with a timestamp of at least from_time to the first with a
                    timestamp above to_time: milliseconds or ISO 8601, found by time indexes as a consumer
                    seeks
late_ms             the caller's promise that no record's timestamp is more than this many milliseconds
                    below that of an earlier record of its partition
broker_config       a broker's server.properties: rsm.config.* of Aiven's plugin, its settings of the metadata
                    topic, and its quota of fetches
aiven_private_key   [ID=]FILE, separated by commas; executors read the files under the same paths
command_config, bootstrap_server
                    as in the commands
state_dir           caches metadata and indexes on the driver
bytes_per_task      the approximate number of bytes that a task reads: large segments are split by offsets; by
                    default a task reads 32 to 128 MiB, so that there are about 32 tasks
throttle_fetch      bytes per second, as 50M, that all tasks together read from the tier at most. Default: the
                    setting remote.log.manager.fetch.max.bytes.per.second in config, which is unlimited if
                    it is not stated. Each task has the same share, so fewer tasks at a time read less
limit_factor        multiplies the limits on what one batch or manifest may cost, as --limit-factor
mode                how to handle unreadable records. FAILFAST, the default: the job fails and names segment,
                    byte and offsets. PERMISSIVE: all other records are read, and each error is a row with
                    a text in the additional column `error` and the first offset that may be missing

Credentials of the store come only from the environment of the driver and of each executor.

The columns are tierctl.spark.sources.remote_log.SCHEMA, or those that .schema(...) selects. Conditions of
where(...) are applied before rows go to the JVM, and they reduce reading: conditions on topic, topic_id and
partition skip whole partitions, and conditions on offset skip all but a range, through the offset index. A
lower bound on the timestamp skips segments whose largest timestamp is below it, and seeks by the time index.
An upper bound alone skips nothing: producers set timestamps, so that a later record may have an earlier one.
To read one hour of many, use from_time and to_time, or promise late_ms: then reading ends where timestamps
exceed the upper bound by late_ms. In PERMISSIVE mode the error rows of the range read are returned whatever
the conditions on offset and timestamp are.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import TierctlError, UsageError
from tierctl.kafka.cluster import Cluster
from tierctl.locallog import read_log_dirs
from tierctl.metadata import open_metadata
from tierctl.metadata.server_properties import broker_file, cluster_client
from tierctl.metadata.topic import topic_location
from tierctl.model import IsolationLevel, Selection, Uuid
from tierctl.model.choices import private_keys_of
from tierctl.model.location import TopicLocation, TruncatedMetadata
from tierctl.model.settings import broker
from tierctl.model.times import parse_time_ms
from tierctl.plan.safety import check_tier
from tierctl.read.leader_logs import (
    EvidenceSources,
    examine_histories,
    leader_log_start,
    missing_events_error,
    with_current_topic_ids,
)
from tierctl.read.partition_reader import (
    PartitionReader,
    ReadablePartition,
    illegal_name_error,
    readable_partitions,
)
from tierctl.read.readable_log import ReadableLog
from tierctl.read.segment import IndexFetcher, UncachedIndexes
from tierctl.read.tasks import SPLIT_BYTES, ReadTask, TimestampRange, plan_read_tasks, read_task
from tierctl.spark.executors.task import shared_tier
from tierctl.spark.sources.predicates import Predicate, Window, mask_of
from tierctl.spark.sources.pushdown import FilteredReader, selected_columns
from tierctl.state.tier_state import TierState
from tierctl.storage import store_uri
from tierctl.storage.identity import tier_contents
from tierctl.storage.index_cache import RemoteIndexCache
from tierctl.storage.open_tier import LAYOUTS, TierSpec, open_tier
from tierctl.storage.throttle import parse_rate
from tierctl.wire.batches import records
from tierctl.wire.primitives import use_limit_factor

_NAMES = frozenset(
    {
        *("metadata", "remote", "layout", "log_dir", "state_dir", "aiven_private_key"),
        *("command_config", "broker_config", "bootstrap_server"),
        *("topic", "partition", "topic_id", "from_time", "to_time", "late_ms"),
        *(
            "isolation_level",
            "mode",
            "bytes_per_task",
            "truncated_metadata",
            "throttle_fetch",
            "limit_factor",
        ),
    }
)


class Mode(StrEnum):
    """How to handle unreadable records, with the names of Spark's CSV and JSON sources."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options with their types; they contain no secret."""

    metadata: TopicLocation
    remote_uri: str
    layout: str | None
    log_dirs: tuple[Path, ...]
    state_dir: Path | None
    private_keys: Mapping[str, Path]
    command_config: Path | None
    broker_config: Path | None
    bootstrap_server: str | None
    selection: Selection
    from_time_ms: int | None
    to_time_ms: int | None
    late_ms: int | None
    isolation: IsolationLevel
    mode: Mode
    truncated_metadata: TruncatedMetadata
    bytes_per_task: int | None
    throttle_fetch: int | None
    """Bytes per second that all tasks together read of the tier; None: as `broker_config` says."""
    limit_factor: int
    """As --limit-factor."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the texts of `.option(...)`; raise UsageError for missing, unknown and invalid ones."""
        given = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(given.keys() - _NAMES):
            raise UsageError(
                f"remote_log has no option {', '.join(unknown)}", hint=f"it has {', '.join(sorted(_NAMES))}"
            )
        servers = given.get("bootstrap_server")
        stated = given.get("metadata") or (servers and f"kafka://{servers}")
        metadata = stated or _required(given, "metadata")
        is_on_cluster = metadata.startswith("kafka:")
        return cls(
            metadata=topic_location(
                "option metadata" if given.get("metadata") else "option bootstrap_server",
                metadata,
                command_config=_path(given, "command_config"),
                broker_config=_path(given, "broker_config"),
            ),
            remote_uri=store_uri("option remote", _required(given, "remote")),
            layout=_one_of(given, "layout", LAYOUTS),
            log_dirs=tuple(Path(each) for each in _several(given, "log_dir")),
            state_dir=_path(given, "state_dir"),
            private_keys=private_keys_of(_several(given, "aiven_private_key")),
            command_config=_path(given, "command_config"),
            broker_config=_path(given, "broker_config"),
            bootstrap_server=servers or (metadata if is_on_cluster else None),
            selection=_selection(given),
            from_time_ms=_time(given, "from_time"),
            to_time_ms=_time(given, "to_time"),
            late_ms=_count(given, "late_ms", least=0),
            isolation=IsolationLevel(
                _one_of(given, "isolation_level", IsolationLevel) or IsolationLevel.READ_UNCOMMITTED
            ),
            mode=Mode(_one_of(given, "mode", Mode) or Mode.FAILFAST),
            truncated_metadata=TruncatedMetadata(
                _one_of(given, "truncated_metadata", TruncatedMetadata) or TruncatedMetadata.REFUSE
            ),
            bytes_per_task=_count(given, "bytes_per_task", least=1),
            throttle_fetch=parse_rate(given["throttle_fetch"]) if "throttle_fetch" in given else None,
            limit_factor=_count(given, "limit_factor", least=1) or 1,
        )


def _required(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise UsageError(f"option {name} is missing", hint="as tierctl fetch has it")
    return given[name]


def _several(given: Mapping[str, str], name: str) -> list[str]:
    """Return the values of a comma-separated option."""
    return [part.strip() for part in given.get(name, "").split(",") if part.strip()]


def _path(given: Mapping[str, str], name: str) -> Path | None:
    return Path(given[name]) if given.get(name) else None


def _one_of(given: Mapping[str, str], name: str, known: type[StrEnum] | tuple[str, ...]) -> str | None:
    text = given.get(name)
    if text is None:
        return None
    found = next((str(each) for each in known if str(each).lower() == text.lower()), None)
    if found is None:
        raise UsageError(f"option {name}: {text!r}", hint=f"one of {', '.join(map(str, known))}")
    return found


def _time(given: Mapping[str, str], name: str) -> int | None:
    return parse_time_ms(given[name]) if name in given else None


def _count(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise UsageError(f"option {name}: {text!r}", hint=f"a number of {least} or more")
    return int(text)


def _selection(given: Mapping[str, str]) -> Selection:
    numbers = _several(given, "partition")
    if not all(each.isascii() and each.isdecimal() for each in numbers):
        raise UsageError(f"option partition: {given['partition']!r}", hint="numbers, commas between")
    return Selection(
        topics=frozenset(_several(given, "topic")),
        partitions=frozenset(map(int, numbers)),
        topic_ids=frozenset(Uuid.parse(each) for each in _several(given, "topic_id")),
    )


SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        *list(records.SCHEMA)[1:],
    ]
)
"""The columns of a record as a consumer sees it.

`timestamp` is `timestamp_ms` as a timestamp of Spark: null if the record has none, or if it is out of range.
"""
ERROR = "error"
PERMISSIVE_SCHEMA = SCHEMA.append(pa.field(ERROR, pa.string()))
PARTITION_COLUMNS = frozenset({"topic", "topic_id", "partition"})
POSITION_COLUMNS = frozenset({"offset", "timestamp", "timestamp_ms"})

_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask:
    """The records that one task of Spark reads, and the rows and columns that it returns.

    With `read` None, the task only returns `problems`, which were found while the tasks were planned.
    """

    spec: TierSpec
    columns: tuple[str, ...]
    read: ReadTask | None = None
    predicates: tuple[Predicate, ...] = ()
    mode: Mode = Mode.FAILFAST
    problems: tuple[TierctlError, ...] = ()


def schema_of(mode: Mode) -> pa.Schema:
    """Return all columns of the data source in `mode`."""
    return PERMISSIVE_SCHEMA if mode is Mode.PERMISSIVE else SCHEMA


def rows_of(task: LogTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; in FAILFAST mode raise the first error that makes a record unreadable."""
    errors = _Errors(task)
    for problem in task.problems:
        errors.report(problem)
    yield from errors.rows()
    if task.read is None:
        return
    remote = shared_tier(task.spec)
    for found in read_task(task.read, remote, report=errors.report, report_lost=errors.lose):
        yield from errors.rows()
        yield from _rows(task, found)
    yield from errors.rows()


def warn(message: str) -> None:
    """Print `message` to stderr of the process that runs the task: no record is lost, so the job goes on."""
    print(f"tierctl: {message}", file=sys.stderr)


class _Errors:
    """Collects errors of reading: they become rows in PERMISSIVE mode, or end the task in FAILFAST mode."""

    def __init__(self, task: LogTask) -> None:
        self._task = task
        self._found: list[tuple[str, int | None]] = []

    def report(self, error: TierctlError) -> None:
        """Add an error that makes no record unreadable."""
        if self._task.mode is Mode.FAILFAST:
            warn(error.message)
        else:
            self._found.append((error.message, None))

    def lose(self, error: TierctlError, first: int, last: int) -> None:
        """Add an error that may make the offsets [first, last] unreadable."""
        lost = f"offsets {first} to {last} may be lost there"
        if self._task.mode is Mode.FAILFAST:
            error.add_note(f"{lost}; with option mode=PERMISSIVE all others are read")
            raise error
        self._found.append((f"{error.message}; {lost}", first))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield one row per error found since the last call; `offset` is the first that may be missing."""
        found, self._found = self._found, []
        if not found:
            return
        partition = self._task.read.topic_id_partition if self._task.read else None
        rows = [
            {
                "topic": partition and partition.topic,
                "topic_id": partition and partition.topic_id,
                "partition": partition and partition.partition,
                "offset": offset,
                ERROR: text,
            }
            for text, offset in found
        ]
        table = pa.RecordBatch.from_pylist(rows, schema=PERMISSIVE_SCHEMA)
        # Conditions on positions were applied when the tasks were planned.
        predicates = [each for each in self._task.predicates if each.column not in POSITION_COLUMNS]
        yield from _selected(self._task, table.column, predicates)


def _rows(task: LogTask, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    made: dict[str, pa.Array] = {}

    def column(name: str) -> pa.Array:
        if name not in made:
            made[name] = _made(task, name, found)
        return made[name]

    yield from _selected(task, column, task.predicates)


def _made(task: LogTask, name: str, found: pa.RecordBatch) -> pa.Array:
    if name in PARTITION_COLUMNS and task.read is not None:
        return pa.repeat(
            pa.scalar(getattr(task.read.topic_id_partition, name), SCHEMA.field(name).type), found.num_rows
        )
    match name:
        case "timestamp":
            return _timestamps(found.column("timestamp_ms"))
        case "error":
            return pa.nulls(found.num_rows, pa.string())
        case _:
            return found.column(name)


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    there = pc.and_(pc.greater_equal(milliseconds, 0), pc.less_equal(milliseconds, _TIMESTAMP_MS_MAX))
    known = pc.if_else(there, milliseconds, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _selected(
    task: LogTask, column: Callable[[str], pa.Array], predicates: Sequence[Predicate]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows for which all predicates are true, with the columns of the task."""
    mask = mask_of(predicates, column)
    if mask is not None and not mask.true_count:
        return
    schema = pa.schema([PERMISSIVE_SCHEMA.field(name) for name in task.columns])
    batch = pa.RecordBatch.from_arrays([column(name) for name in task.columns], schema=schema)
    yield batch if mask is None else batch.filter(mask)


# Each task takes Spark's Python worker about 50 ms, which is the time of 25 MB.
_TASK_BYTES_MIN = 32 << 20
# More tasks than this only limit the work that a failed task has to repeat.
_TASKS = 32


def plan_tasks(
    options: LogOptions, predicates: tuple[Predicate, ...], columns: tuple[str, ...]
) -> list[LogTask]:
    """Return tasks that together read exactly the selected rows, ordered by topic, partition and offset.

    Reads the metadata once and, from the tier, the lineage of each partition and, for read_committed, its
    transaction indexes. Raises the errors of opening these, and those of `check_tier` for the tier of another
    metadata topic. In FAILFAST mode it also raises errors in the metadata, because segments may be missing.
    """
    with ExitStack() as opened:
        plan = _Plan(options, predicates, opened)
        reads = list(plan.tasks())
        # The number of concurrent tasks is unknown here, so the limit holds even if all of them run at once.
        spec = plan.spec.shared(lambda: max(len(reads), 1))
        of_rows = tuple(each for each in predicates if each.column not in PARTITION_COLUMNS)

        def task(read: ReadTask | None, problems: Sequence[TierctlError] = ()) -> LogTask:
            return LogTask(
                spec=spec,
                columns=columns,
                read=read,
                predicates=of_rows,
                mode=options.mode,
                problems=tuple(problems),
            )

        found = [task(read) for read in reads]
        return [*found, task(None, plan.problems)] if plan.problems else found


def _broker_settings(options: LogOptions) -> dict[str, str]:
    settings: dict[str, str] = dict(broker_file(options.broker_config)) if options.broker_config else {}
    if options.throttle_fetch is not None:
        settings[broker.FETCH_MAX_BYTES_PER_SECOND.name] = str(options.throttle_fetch)
    return settings


def _tier_spec(options: LogOptions, settings: Mapping[str, str]) -> TierSpec:
    return TierSpec.from_settings(
        options.remote_uri, settings, layout=options.layout, private_keys=options.private_keys
    )


class _Plan:
    def __init__(self, options: LogOptions, predicates: Sequence[Predicate], opened: ExitStack) -> None:
        self._options = options
        self._predicates = predicates
        self._window = Window.of(predicates, "offset")
        self._opened = opened
        self.problems: list[TierctlError] = []
        settings = _broker_settings(options)
        spec = _tier_spec(options, settings)
        self._remote = open_tier(spec)
        opened.callback(self._remote.close)
        self._fetcher = self._open_indexes(settings)
        self.spec = spec.resolved(self._remote)

    def tasks(self) -> Iterator[ReadTask]:
        """Yield the tasks of every selected partition."""
        views = list(self._views())
        split_bytes = self._options.bytes_per_task or _split_bytes(views)
        for view, reader in views:
            yield from self._tasks_of(view, reader, split_bytes)

    def _views(self) -> Iterator[tuple[ReadableLog, PartitionReader]]:
        """Yield the log and the reader of every selected partition; report what makes the plan incomplete."""
        options = self._options
        state = self._state()
        for quarantined in state.quarantined:
            number, offset = quarantined.metadata_partition, quarantined.metadata_offset
            self._report_incomplete(
                quarantined.error.within(f"__remote_log_metadata-{number}, offset {offset}")
            )
        cluster = self._open_cluster()
        selection = options.selection
        by_name = bool(selection.topics) and not selection.topic_ids
        if by_name:
            selection = with_current_topic_ids(selection, cluster)
        logs = read_log_dirs(list(options.log_dirs)) if options.log_dirs else []
        logs = [log for log in logs if log.topic_id_partition in selection]
        sources = EvidenceSources(
            selection=selection,
            logs=lambda: logs,
            cluster=lambda: cluster,
            topics=selection.topics,
            remote=lambda: self._remote,
        )
        for partition, reason in examine_histories(state, sources, options.truncated_metadata).items():
            self._report_incomplete(missing_events_error(partition, reason))
        for readable in readable_partitions(state, logs, selection, by_name=by_name):
            if not self._is_selected(readable):
                continue
            refusal = illegal_name_error(readable.topic_id_partition)
            if refusal is None:
                start = leader_log_start(cluster, readable.topic_id_partition)
                view = self._view(readable, start)
                report = self._report_harmless
                yield view, PartitionReader(view, self._fetcher, report, isolation=options.isolation)
            else:
                self._report_incomplete(refusal)

    def _tasks_of(self, view: ReadableLog, reader: PartitionReader, split_bytes: int) -> Iterator[ReadTask]:
        options, window = self._options, self._window
        span = self._span(view, reader)
        if span is None:
            return
        is_committed = options.isolation is IsolationLevel.READ_COMMITTED
        yield from plan_read_tasks(
            view,
            *span,
            committed_only=(self._fetcher, self._report_harmless) if is_committed else None,
            times=TimestampRange(first_ms=window.first_ms, last_ms=window.last_ms, late_ms=options.late_ms),
            split_bytes=split_bytes,
        )

    def _span(self, view: ReadableLog, reader: PartitionReader) -> tuple[int, int] | None:
        """Return the offsets [start, end) to read, or None if there are none."""
        low, high = self._window.offsets
        start, end = max(view.log_start_offset, low), min(reader.end_offset, high + 1)
        if start >= end:
            return None
        if self._options.from_time_ms is not None:
            found = reader.offset_for_time(self._options.from_time_ms)
            if found is None:
                return None
            start = max(start, found.offset)
        if self._options.to_time_ms is not None:
            later = reader.offset_for_time(self._options.to_time_ms + 1, start)
            end = end if later is None else min(end, later.offset)
        return (start, end) if start < end else None

    def _is_selected(self, readable: ReadablePartition) -> bool:
        partition = readable.topic_id_partition
        conditions = [each for each in self._predicates if each.column in PARTITION_COLUMNS]
        mask = mask_of(conditions, lambda name: pa.array([getattr(partition, name)], SCHEMA.field(name).type))
        return mask is None or bool(mask.true_count)

    def _view(self, readable: ReadablePartition, log_start_offset: int | None) -> ReadableLog:
        return ReadableLog.of(
            readable.topic_id_partition,
            readable.cache,
            readable.logs,
            remote=self._remote,
            fetcher=self._fetcher,
            report=self._report_incomplete,
            log_start_offset=log_start_offset,
        )

    def _state(self) -> TierState:
        manager = open_metadata(self._options.metadata, state_dir=self._options.state_dir)
        self._opened.callback(manager.close)
        state = manager.refresh()
        note = check_tier(tier_contents(self._remote, state), manager.identity(), is_reading=True)
        if note is not None:
            warn(note)
        return state

    def _open_indexes(self, settings: Mapping[str, str]) -> IndexFetcher:
        if self._options.state_dir is None:
            return UncachedIndexes(self._remote)
        return RemoteIndexCache(self._options.state_dir, self._remote, settings=settings)

    def _open_cluster(self) -> Cluster | None:
        options = self._options
        if options.bootstrap_server is None:
            return None
        cluster = Cluster(
            cluster_client(
                options.bootstrap_server,
                command_config=options.command_config,
                broker_config=options.broker_config,
            )
        )
        self._opened.callback(cluster.close)
        return cluster

    def _report_harmless(self, error: TierctlError) -> None:
        """Report an error that loses no record, such as an index that had to be rebuilt."""
        if self._options.mode is Mode.FAILFAST:
            warn(error.message)
        else:
            self.problems.append(error)

    def _report_incomplete(self, error: TierctlError) -> None:
        """Report an error because of which segments may be missing from the result."""
        if self._options.mode is Mode.FAILFAST:
            raise error
        self.problems.append(error)


def _split_bytes(views: Iterable[tuple[ReadableLog, PartitionReader]]) -> int:
    """Return the bytes that a task should read, so that there are about 32 tasks of 32 to 128 MiB.

    It ignores the conditions on offset and time, which may make the tasks fewer.
    """
    total = 0
    for view, _ in views:
        for segment_range in view.segment_ranges(view.log_start_offset):
            total += segment_range.segment.size_bytes
            if total >= _TASKS * SPLIT_BYTES:
                return SPLIT_BYTES
    return max(total // _TASKS, _TASK_BYTES_MIN)


class RemoteLogSource(DataSource):
    """The data source; raises UsageError for missing, unknown and invalid options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "remote_log"

    def schema(self) -> StructType:
        """Return the columns of the data source."""
        return from_arrow_schema(schema_of(LogOptions.of(self.options).mode))

    def reader(self, schema: StructType) -> "RemoteLogReader":
        """Return the reader of batches."""
        options = LogOptions.of(self.options)
        return RemoteLogReader(options, selected_columns(schema, schema_of(options.mode)))


class RemoteLogReader(FilteredReader):
    """Plans tasks for the current records on the driver; the tasks read them."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, ordered by topic, partition and offset."""
        use_limit_factor(self._options.limit_factor)
        return [InputPartition(task) for task in plan_tasks(self._options, self._predicates, self._columns)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; none for the empty task that Spark creates if there are no others."""
        use_limit_factor(self._options.limit_factor)
        if isinstance(partition.value, LogTask):
            yield from rows_of(partition.value)
