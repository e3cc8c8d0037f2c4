"""The stream that tells the pipeline what there is to read: a row for each range of offsets of a micro-batch.

It is `remote_log_metadata`'s stream without the reading, which the pipeline's own tasks do: a batch's events
are decoded once, by whoever folds them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tierctl.metadata.topic import MetadataSplit
from tierctl.spark.sources.metadata_options import SourceOptions
from tierctl.spark.sources.metadata_stream import MetadataStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "tierctl_metadata_ranges"
_DDL = "metadata_partition INT, start_offset BIGINT, end_offset BIGINT"
_WHOLE = 1 << 62


class RangesSource(DataSource):
    """Options are those of `remote_log_metadata`."""

    @classmethod
    def name(cls) -> str:
        """What format(...) is given."""
        return NAME

    def schema(self) -> StructType | str:
        """A metadata partition, and the offsets [start, end) of it."""
        return _DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For streams, which is all there is."""
        del schema
        return _RangesReader(SourceOptions.of(self.options), ())


class _RangesReader(MetadataStreamReader):
    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """One row: what a task would read."""
        split = partition.value
        if isinstance(split, MetadataSplit):
            yield pa.RecordBatch.from_pydict(
                {
                    "metadata_partition": pa.array([split.metadata_partition], pa.int32()),
                    "start_offset": pa.array([split.start_offset], pa.int64()),
                    "end_offset": pa.array([split.end_offset], pa.int64()),
                }
            )


def ranges_stream(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    """The stream; a metadata partition is one range in each batch."""
    spark.dataSource.register(RangesSource)
    whole = {"records_per_task": str(_WHOLE), "fail_on_data_loss": "false"}
    return spark.readStream.format(NAME).options(**options, **whole).load()
