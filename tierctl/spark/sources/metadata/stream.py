"""The stream of `spark.readStream.format("remote_log_metadata")`: appended records, each offset once.

An offset of Spark's is a StreamOffsets here: the next offset of every metadata partition.
"""

from __future__ import annotations

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
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.spark.sources.metadata.options import MetadataOptions
from tierctl.spark.sources.metadata.rows import read_task
from tierctl.spark.sources.metadata.splits import event_tasks
from tierctl.spark.sources.metadata.stream_offsets import StreamOffsets, TopicNow
from tierctl.wire.limits import use_limit_factor

if TYPE_CHECKING:
    import pyarrow as pa


class MetadataStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; the tasks of a batch read.

    Raises MetadataError if unread offsets were deleted, or if the topic was recreated. If fail_on_data_loss
    is false, it continues with the records that exist.
    """

    def __init__(self, options: MetadataOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._opened: MetadataTopic | None = None
        self._target: StreamOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offsets where a stream without a checkpoint begins."""
        options = self._options
        return self._now().beginning(options.starting_offsets, options.starting_offset).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at `start`."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._now().end(StreamOffsets.from_json(start), most=most, up_to=self._target).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of option max_offsets_per_trigger."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the topic, for the progress report of the query."""
        now = self._now()
        return StreamOffsets(now.topic_id, now.ends).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run: records appended later are left to the next one."""
        now = self._now()
        self._target = StreamOffsets(now.topic_id, now.ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return tasks that read exactly the offsets [start, end)."""
        since, until, now = StreamOffsets.from_json(start), StreamOffsets.from_json(end), self._now()
        if self._options.fail_on_data_loss and (lost := list(now.lost(since, until))):
            raise MetadataError(
                f"{self._options.location.uri}: {'; '.join(lost)}",
                hint="the stream lost events: restart it without checkpoint, or set fail_on_data_loss=false",
            )
        tasks = event_tasks(
            self._options.location,
            now.ranges(since, until),
            records_per_task=self._options.records_per_task,
            predicates=self._options.predicates,
            columns=self._columns,
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        use_limit_factor(self._options.limit_factor)
        return read_task(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint records the offsets that were read."""

    def stop(self) -> None:
        """Close the topic."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _now(self) -> TopicNow:
        try:
            return self._topic_now()
        except SafetyRefusal:
            # The topic was recreated or got more partitions: open it again to see its present offsets.
            self.stop()
            return self._topic_now()

    def _topic_now(self) -> TopicNow:
        if self._opened is None:
            self._opened = open_topic(self._options.location)
        ends = self._opened.end_offsets()
        begins = self._opened.beginning_offsets()
        return TopicNow(self._opened.topic_id, begins, ends)
