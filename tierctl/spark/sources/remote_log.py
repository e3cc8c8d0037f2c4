"""The data source `spark.read.format("remote_log")`: user records from the tier, one row per record.

The metadata topic lists the segments and the tier has their records; no broker serves records. The rows are
those that a consumer would read: each offset once, from the segment of the current leader epochs, and with
isolation_level=read_committed without aborted transactions. The option remote is required, and so is
metadata, unless bootstrap_server names the cluster. All options mean the same as for `tierctl fetch`. The
tier of another metadata topic is refused, as there. Relative paths begin at the folder in which Spark was
started:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it
remote              s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., or a folder
layout              kafka or aiven
topic, partition, topic_id
                    read only these, separated by commas. If topics are named and no such partition exists,
                    that is an error, but not in a where(...) condition. There are no globs
isolation_level     read_uncommitted (the default) or read_committed
log_dir             brokers' log directories, separated by commas, for records that are not in the tier
                    yet; executors read them under the same paths
from_time, to_time  read from the first record with a timestamp of at least from_time to the first with a
                    timestamp above to_time: milliseconds or ISO 8601, found by time indexes as a consumer
                    seeks
late_ms             the caller's promise that no record's timestamp is more than this many milliseconds
                    below that of an earlier record of its partition. In a topic with transactions their
                    markers count as records, and have the time of a broker: metadata state only the
                    largest timestamp of both
broker_config       a broker's server.properties: rsm.config.* of Aiven's plugin, its settings of the metadata
                    topic, and its quota of fetches; executors read it under the same path
aiven_private_key   [ID=]FILE, separated by commas; executors read the files under the same paths
command_config, bootstrap_server
                    as in the commands; executors connect as well, and read the file under the same path
state_dir           caches metadata and indexes on the driver, which then plans all tasks itself
bytes_per_task      the approximate number of bytes that a task reads, estimated from a sample of the metadata
                    topic: large segments are split by offsets; by default a task reads 32 to 128 MiB, so that
                    there are about 32 tasks, but at most 256 tasks share a group of metadata partitions
throttle_fetch      bytes per second, as 50M, that all tasks together read from the tier at most. Default: the
                    setting remote.log.manager.fetch.max.bytes.per.second in broker_config, otherwise
                    unlimited. There are about 32 tasks then, each with the same share, so fewer tasks at a
                    time read less
push_down           false: conditions of where(...) do not reduce reading, so that a DataFrame can be used in
                    several queries: Spark reads it with the conditions that it pushed down last
limit_factor        multiplies the limits on what one batch or manifest may cost, as --limit-factor
mode                how to handle unreadable records. FAILFAST, the default: the job fails and names segment,
                    byte and offsets. PERMISSIVE: all other records are read, and each error is a row with
                    a text in the additional column `error` and the first offset that may be missing

Executors plan what they read. The driver asks for the offsets of the metadata topic and samples its events.
It groups the metadata partitions, so that a group has at least 500,000 events, and divides the records of a
group among tasks, whose workers fold the events of the group. So errors in the metadata, an unknown topic and
the tier of another metadata topic are errors of tasks. If topics are selected by name and there are several
groups, one more task folds the whole topic, to find names that are unknown or that several topics have. If
topic ids and partitions are selected, other metadata partitions are not read, and their errors are not found.

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

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import TierctlError
from tierctl.model import TopicIdPartition
from tierctl.read.tasks import read_task
from tierctl.spark.executors.task import shared_tier
from tierctl.spark.sources.load_options import (
    FilteredReader,
    LogOptions,
    Mode,
    require_files,
    selected_columns,
    shown_hints,
)
from tierctl.spark.sources.log_plan import (
    PARTITION_COLUMNS,
    POSITION_COLUMNS,
    LogTask,
    Problems,
    plan_tasks,
    reads_of,
)
from tierctl.spark.sources.metadata_splits import Predicate, mask_of, timestamps
from tierctl.wire.batches import records
from tierctl.wire.primitives import use_limit_factor

SCHEMA = pa.schema(
    [
        *PARTITION_COLUMNS.items(),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        *list(records.SCHEMA)[1:],
    ]
)
"""The columns of a record as a consumer sees it.

`timestamp` is `timestamp_ms` as a timestamp of Spark: null if the record has none, and after the year 9999,
which Python has no timestamps for.
"""
ERROR = "error"
PERMISSIVE_SCHEMA = SCHEMA.append(pa.field(ERROR, pa.string()))


def schema_of(mode: Mode) -> pa.Schema:
    """Return all columns of the data source in `mode`."""
    return PERMISSIVE_SCHEMA if mode is Mode.PERMISSIVE else SCHEMA


def rows_of(task: LogTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; in FAILFAST mode raise the first error that makes a record unreadable.

    Raises as `reads_of`.
    """
    errors = _Errors(task)
    for read in reads_of(task, Problems(task.scan.options.mode, errors.add)):
        yield from errors.rows()
        errors.partition = read.topic_id_partition
        remote = shared_tier(task.scan.spec)
        for found in read_task(read, remote, report=errors.report, report_lost=errors.lose):
            yield from errors.rows()
            yield from _rows(task, read.topic_id_partition, found)
        yield from errors.rows()
        errors.partition = None
    yield from errors.rows()


class _Errors:
    """Collects errors of reading: they become rows in PERMISSIVE mode, or end the task in FAILFAST mode.

    `partition` is the one that is read, None while reads are planned.
    """

    def __init__(self, task: LogTask) -> None:
        self._task = task
        self._mode = task.scan.options.mode
        self._found: list[tuple[str, int | None]] = []
        self.partition: TopicIdPartition | None = None

    def add(self, error: TierctlError) -> None:
        """Add an error that no offset has."""
        self._found.append((error.message, None))

    def report(self, error: TierctlError) -> None:
        """Add an error that makes no record unreadable."""
        Problems(self._mode, self.add).harmless(error)

    def lose(self, error: TierctlError, first: int, last: int) -> None:
        """Add an error that may make the offsets [first, last] unreadable."""
        Problems(self._mode, lambda told: self._found.append((told.message, first))).lost(error, first, last)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield one row per error found since the last call; `offset` is the first that may be missing."""
        found, self._found = self._found, []
        if not found:
            return
        partition = self.partition
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
        # Conditions on positions were applied when the reads were planned.
        yield from _selected(
            self._task,
            table.column,
            [each for each in _of_rows(self._task) if each.column not in POSITION_COLUMNS],
        )


def _of_rows(task: LogTask) -> list[Predicate]:
    """Return the conditions that the plan did not apply."""
    return [each for each in task.scan.predicates if each.column not in PARTITION_COLUMNS]


def _rows(task: LogTask, partition: TopicIdPartition, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    made: dict[str, pa.Array] = {}

    def column(name: str) -> pa.Array:
        if name not in made:
            made[name] = _made(partition, name, found)
        return made[name]

    yield from _selected(task, column, _of_rows(task))


def _made(partition: TopicIdPartition, name: str, found: pa.RecordBatch) -> pa.Array:
    if name in PARTITION_COLUMNS:
        return pa.repeat(pa.scalar(getattr(partition, name), PARTITION_COLUMNS[name]), found.num_rows)
    match name:
        case "timestamp":
            return timestamps(found.column("timestamp_ms"))
        case "error":
            return pa.nulls(found.num_rows, pa.string())
        case _:
            return found.column(name)


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


class RemoteLogSource(DataSource):
    """The data source; raises UsageError for missing, unknown and invalid options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "remote_log"

    @shown_hints()
    def schema(self) -> StructType:
        """Return the columns of the data source."""
        return from_arrow_schema(schema_of(LogOptions.of(self.options).mode))

    @shown_hints()
    def reader(self, schema: StructType) -> "RemoteLogReader":
        """Return the reader of batches."""
        options = LogOptions.of(self.options)
        require_files(options.metadata)
        return RemoteLogReader(options, selected_columns(schema, schema_of(options.mode)))


class RemoteLogReader(FilteredReader):
    """Divides the current records into tasks on the driver; the tasks plan and read them."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._pushes_down = options.push_down

    @shown_hints()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, in which the records of a user partition are in the order of offsets."""
        use_limit_factor(self._options.limit_factor)
        return [InputPartition(task) for task in plan_tasks(self._options, self._predicates, self._columns)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; none for the empty task that Spark creates if there are no others."""
        use_limit_factor(self._options.limit_factor)
        if isinstance(partition.value, LogTask):
            with shown_hints():
                yield from rows_of(partition.value)
