"""A stream of offset ranges of the metadata topic, one row per range of a micro-batch.

It plans micro-batches as the stream of `remote_log_metadata` does, but reads no events: the tasks of the
pipeline read and decode each event once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tierctl.spark.sources.metadata_splits import EventTask
from tierctl.spark.sources.remote_log_metadata import MetadataOptions, MetadataStreamReader

NAME = "tierctl_metadata_ranges"
_DDL = "metadata_partition INT, start_offset BIGINT, end_offset BIGINT"
_WHOLE = 1 << 62


class RangesSource(DataSource):
    """The data source; its options are those of `remote_log_metadata`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return NAME

    def schema(self) -> StructType | str:
        """Return the columns: a metadata partition, and its offsets [start, end)."""
        return _DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of streams; batch reads are not supported."""
        del schema
        return _RangesReader(MetadataOptions.of(self.options), ())


class _RangesReader(MetadataStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one row per offset range of a task."""
        splits: EventTask = partition.value or ()
        yield pa.RecordBatch.from_pydict(
            {
                "metadata_partition": pa.array([each.metadata_partition for each in splits], pa.int32()),
                "start_offset": pa.array([each.start_offset for each in splits], pa.int64()),
                "end_offset": pa.array([each.end_offset for each in splits], pa.int64()),
            }
        )


def ranges_stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the stream; each batch has one range per metadata partition."""
    spark.dataSource.register(RangesSource)
    whole = {"records_per_task": str(_WHOLE), "fail_on_data_loss": "false"}
    return spark.readStream.format(NAME).options(**options, **whole).load()
