"""`spark.read.format("remote_log_metadata")`: the events of `__remote_log_metadata`, an event a row.

Options, of which only `metadata` must be given:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it: /dir, file:///dir,
                    s3://bucket/folder, hdfs://host:port/folder, ...; also what load(...) is given
command_config      Kafka's client properties file, which executors read under the same path
config              a broker's server.properties, the same
topic, topic_id, partition, metadata_partition
                    only events with one of these, commas between; as where(...) on the column does, they
                    leave out what could not be read
records_per_task    offsets a task reads at most, 500000

Streams also take these:

starting_offsets    earliest (the default), latest, or JSON as {"0": 17, "1": -2}: -2 is earliest, -1 latest;
                    partitions not named begin at the earliest. A checkpoint goes before it
max_offsets_per_trigger
                    offsets a batch covers at most
fail_on_data_loss   false: go on when records were deleted before they were read; the default is an error

The columns are tierctl.spark.sources.metadata_rows.SCHEMA, or those of them that .schema(...) names: the
others are not made at all. What where(...) asks of columns is applied before rows go to the JVM; conditions
on metadata_partition, on metadata_offset, and on topic_id together with partition spare whole tasks. So does
what timestamp or timestamp_ms must not be below, where the log has time indexes; nothing says of an upper
bound that later records are all above it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.spark.sources.event_splits import plan_splits
from tierctl.spark.sources.metadata_options import SourceOptions
from tierctl.spark.sources.metadata_rows import SCHEMA, read_split
from tierctl.spark.sources.pushed_filters import FilteredReader
from tierctl.spark.sources.source_columns import columns_of

if TYPE_CHECKING:
    import pyarrow as pa


class RemoteLogMetadataSource(DataSource):
    """See the module; raises UsageError for options that are missing, unknown or senseless."""

    @classmethod
    def name(cls) -> str:
        """What format(...) is given."""
        return "remote_log_metadata"

    def schema(self) -> StructType:
        """The columns, whatever is read."""
        SourceOptions.of(self.options)
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "MetadataReader":
        """For batches."""
        return MetadataReader(SourceOptions.of(self.options), columns_of(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For streams."""
        from tierctl.spark.sources.metadata_stream import MetadataStreamReader

        return MetadataStreamReader(SourceOptions.of(self.options), columns_of(schema, SCHEMA))


class MetadataReader(FilteredReader):
    """Plans on the driver what is there now, and reads it in tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._predicates = options.predicates

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range of offsets that may hold what is asked for."""
        splits = plan_splits(
            self._options.location,
            records_per_split=self._options.records_per_task,
            predicates=self._predicates,
            columns=self._columns,
        )
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task."""
        return read_split(partition.value)
