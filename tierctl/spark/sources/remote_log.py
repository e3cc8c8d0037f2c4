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

The columns are tierctl.spark.sources.log.rows.SCHEMA, or those that .schema(...) selects. Conditions of
where(...) are applied before rows go to the JVM, and they reduce reading: conditions on topic, topic_id and
partition skip whole partitions, and conditions on offset skip all but a range, through the offset index. A
lower bound on the timestamp skips segments whose largest timestamp is below it, and seeks by the time index.
An upper bound alone skips nothing: producers set timestamps, so that a later record may have an earlier one.
To read one hour of many, use from_time and to_time, or promise late_ms: then reading ends where timestamps
exceed the upper bound by late_ms. In PERMISSIVE mode the error rows of the range read are returned whatever
the conditions on offset and timestamp are.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.spark.sources.columns import selected_columns
from tierctl.spark.sources.log.options import LogOptions
from tierctl.spark.sources.log.plan import plan_tasks
from tierctl.spark.sources.log.rows import LogTask, rows_of, schema_of
from tierctl.spark.sources.pushed_filters import FilteredReader
from tierctl.wire.limits import use_limit_factor


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
