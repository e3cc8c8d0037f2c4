"""`spark.read.format("remote_log")`: user records straight from the tier, a record a row.

The metadata topic says which segments there are, the tier has the records; no broker is asked for any. Rows
are those a stock consumer would read: each offset once, from the segment of the current leader epochs, and
with isolation_level=read_committed without aborted transactions. Options, of which the first two must be
given; all mean what they mean to `tierctl fetch`:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it
remote              s3://bucket/folder, hdfs://host:port/folder, gs://..., abfs://..., or a folder
layout              kafka or aiven
topic, partition, topic_id
                    only these, commas between; a topic that is not there is an error, which
                    where(...) on the column is not
isolation_level     read_uncommitted (the default) or read_committed
log_dir             brokers' log directories, commas between, for what lies above the tier; executors read
                    them under the same paths
from_time, to_time  from the first record that is as late as this, up to the first that is later than
                    that: milliseconds or ISO 8601, found by time indexes as a consumer seeks
late_ms             a promise: no record's timestamp is more than so many milliseconds below that of one
                    before it in its partition
config              a broker's server.properties: rsm.config.* of Aiven's plugin, and what it says of the
                    metadata topic
aiven_private_key   [ID=]FILE, commas between; executors read the files under the same paths
command_config, bootstrap_server
                    as the commands have them
state_dir           keeps what was read of metadata and indexes, on the driver
bytes_per_task      about how much a task reads, 134217728 (128 MiB): large segments are cut by offsets
mode                what becomes of records that can't be read. FAILFAST, the default: the job fails,
                    naming segment, byte and offsets. PERMISSIVE: all others are read, and each error is
                    a row in a column `error` more, with the first offset that may be lost

Credentials of the store come from the environment of the driver and of each executor, nowhere else.

The columns are tierctl.spark.sources.log_rows.SCHEMA, or those of them that .schema(...) names: the others
are not sent. Conditions of where(...) are applied before rows go to the JVM, and spare reading: those on
topic, topic_id and partition whole partitions, those on offset all but the range, through the offset index. A
timestamp from which on records are asked for spares all segments whose largest is below it, and seeks by the
time index. One up to which they are asked for can spare nothing by itself: producers set timestamps, a later
record may be an earlier one's, and none is lost here. Who reads one hour of many says so by from_time and
to_time, or promises late_ms: then reading ends where the log is past the hour by that much. What can't be
read has a row of its own in PERMISSIVE, whatever is asked of offset and timestamp in the range that was read.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.spark.sources.log_options import LogOptions
from tierctl.spark.sources.log_plan import plan_tasks
from tierctl.spark.sources.log_rows import LogTask, rows_of, schema_of
from tierctl.spark.sources.pushed_filters import FilteredReader
from tierctl.spark.sources.source_columns import columns_of

if TYPE_CHECKING:
    import pyarrow as pa


class RemoteLogSource(DataSource):
    """See the module; raises UsageError for options that are missing, unknown or senseless."""

    @classmethod
    def name(cls) -> str:
        """What format(...) is given."""
        return "remote_log"

    def schema(self) -> StructType:
        """The columns, whatever is read."""
        return from_arrow_schema(schema_of(LogOptions.of(self.options).mode))

    def reader(self, schema: StructType) -> "RemoteLogReader":
        """For batches."""
        options = LogOptions.of(self.options)
        return RemoteLogReader(options, columns_of(schema, schema_of(options.mode)))


class RemoteLogReader(FilteredReader):
    """Plans on the driver what is there now, and reads it in tasks."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each piece of work; in order of topic, partition and offset."""
        return [InputPartition(task) for task in plan_tasks(self._options, self._predicates, self._columns)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task; none for the empty one that Spark makes where there is nothing to read."""
        if isinstance(partition.value, LogTask):
            yield from rows_of(partition.value)
