"""The data source `spark.read.format("remote_log_metadata")`: events of `__remote_log_metadata`, one per row.

Only the option `metadata` is required:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it: /dir, file:///dir,
                    s3://bucket/folder, hdfs://host:port/folder, ...; load(...) takes the same
command_config      Kafka's client properties file, which executors read under the same path
broker_config       a broker's server.properties, which executors read under the same path
topic, topic_id, partition, metadata_partition
                    read only events with one of these values, separated by commas; as with a where(...)
                    condition, rows of unreadable records are left out
records_per_task    the largest number of offsets that a task reads (default: 500000)
limit_factor        multiplies the limits on what one batch may cost, as --limit-factor

Options of streams:

starting_offsets    earliest (the default), latest, or JSON as {"0": 17, "1": -2}: -2 is earliest, -1 latest;
                    other partitions begin at the earliest. A checkpoint takes precedence
max_offsets_per_trigger
                    the largest number of offsets in a batch
fail_on_data_loss   false: continue if records were deleted before they were read; by default an error

The columns are tierctl.spark.sources.metadata.rows.SCHEMA, or those that .schema(...) selects; other columns
are not created. Conditions of where(...) are applied before rows go to the JVM. Conditions on
metadata_partition, on metadata_offset, and on topic_id together with partition skip whole tasks. A lower
bound on timestamp or timestamp_ms does so too if the log has time indexes; an upper bound does not, because
timestamps need not increase.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.spark.sources.columns import selected_columns
from tierctl.spark.sources.metadata.options import MetadataOptions
from tierctl.spark.sources.metadata.rows import SCHEMA, read_task
from tierctl.spark.sources.metadata.splits import plan_tasks
from tierctl.spark.sources.metadata.stream import MetadataStreamReader
from tierctl.spark.sources.pushed_filters import FilteredReader
from tierctl.wire.limits import use_limit_factor


class RemoteLogMetadataSource(DataSource):
    """The data source; raises UsageError for missing, unknown and invalid options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "remote_log_metadata"

    def schema(self) -> StructType:
        """Return the columns of the data source."""
        MetadataOptions.of(self.options)
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "MetadataReader":
        """Return the reader of batches."""
        return MetadataReader(MetadataOptions.of(self.options), selected_columns(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of streams."""
        return MetadataStreamReader(MetadataOptions.of(self.options), selected_columns(schema, SCHEMA))


class MetadataReader(FilteredReader):
    """Plans tasks for the current records on the driver; the tasks read them."""

    def __init__(self, options: MetadataOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._predicates = options.predicates

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range of offsets that can contain selected events."""
        use_limit_factor(self._options.limit_factor)
        tasks = plan_tasks(
            self._options.location,
            records_per_task=self._options.records_per_task,
            predicates=self._predicates,
            columns=self._columns,
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        use_limit_factor(self._options.limit_factor)
        return read_task(partition.value)
