"""`spark.readStream.format("remote_log_metadata")`: what is appended, each offset once.

What Spark calls an offset is a Progress: the next offset of every metadata partition.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tierctl.errors import MetadataError, SafetyRefusal
from tierctl.metadata.topic import MetadataTopic, cut, open_topic
from tierctl.spark.sources.event_splits import event_splits
from tierctl.spark.sources.metadata_options import SourceOptions
from tierctl.spark.sources.metadata_rows import read_split
from tierctl.spark.sources.stream_progress import Progress, TopicNow

if TYPE_CHECKING:
    import pyarrow as pa


class MetadataStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; a batch's tasks read.

    Raises MetadataError when offsets that were not read yet are gone, or are another topic's now, unless
    fail_on_data_loss is false: then it goes on with what is there.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._opened: MetadataTopic | None = None
        self._target: Progress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a stream without a checkpoint begins."""
        options = self._options
        return self._now().beginning(options.starting_offsets, options.starting_offset).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the batch that begins at `start`."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._now().end(Progress.of_json(start), most=most, up_to=self._target).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What max_offsets_per_trigger says."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The end of the topic, for who watches the query."""
        now = self._now()
        return Progress(now.topic_id, now.ends).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is appended from now on is for the next run."""
        now = self._now()
        self._target = Progress(now.topic_id, now.ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks that read exactly the offsets from `start` up to, not including, `end`."""
        since, until, now = Progress.of_json(start), Progress.of_json(end), self._now()
        if self._options.fail_on_data_loss and (lost := list(now.lost(since, until))):
            raise MetadataError(
                f"{self._options.location.uri}: {'; '.join(lost)}",
                hint="events are lost to this stream: start it anew, or go on with fail_on_data_loss=false",
            )
        splits = cut(
            self._options.location,
            now.ranges(since, until),
            records_per_split=self._options.records_per_task,
        )
        wanted = event_splits(splits, self._options.predicates, self._columns)
        return [InputPartition(split) for split in wanted]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task."""
        return read_split(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read is in the checkpoint."""

    def stop(self) -> None:
        """Close the topic."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _now(self) -> TopicNow:
        try:
            return self._look()
        except SafetyRefusal:
            # A cluster's topic got another id or more partitions: what that means, the offsets tell.
            self.stop()
            return self._look()

    def _look(self) -> TopicNow:
        if self._opened is None:
            self._opened = open_topic(self._options.location)
        ends = self._opened.end_offsets()
        begins = self._opened.beginning_offsets()
        return TopicNow(self._opened.topic_id, begins, ends)
