"""The data source `spark.read.format("remote_log_metadata")`: events of `__remote_log_metadata`, one per row.

Only the option `metadata` is required. Relative paths begin at the folder in which Spark was started:

metadata            kafka://host:port[,...], or a folder with __remote_log_metadata-N/ in it: /dir, file:///dir,
                    s3://bucket/folder, hdfs://host:port/folder, ...; load(...) takes the same
command_config      Kafka's client properties file, which executors read under the same path
broker_config       a broker's server.properties, which executors read under the same path
log_dir             the broker's other log directories, separated by commas, if it has several
topic, topic_id, partition, metadata_partition
                    read only events with one of these values, separated by commas; as with a where(...)
                    condition, rows of unreadable records are left out
records_per_task    the largest number of offsets that a task reads (default: 500000)
push_down           false: conditions of where(...) do not reduce reading, so that a DataFrame can be used in
                    several queries: Spark reads it with the conditions that it pushed down last
limit_factor        multiplies the limits on what one batch may cost, as --limit-factor

Options of streams, which other reads refuse:

starting_offsets    earliest (the default), latest, or JSON as {"0": 17, "1": -2}: -2 is earliest, -1 latest;
                    other partitions begin at the earliest. A checkpoint takes precedence
max_offsets_per_trigger
                    the largest number of offsets in a batch
fail_on_data_loss   false: continue if records were deleted before they were read; by default an error

The columns are tierctl.spark.sources.metadata_splits.SCHEMA, or those of COLUMNS that .schema(...) selects;
others are not created. Conditions of where(...) are applied before rows go to the JVM. Conditions on
metadata_partition and on metadata_offset skip whole tasks. Those on topic_id and partition do not: in a topic
that got more partitions, events of one user partition are in several. A lower bound on timestamp or
timestamp_ms skips tasks too if the log has time indexes; an upper bound does not, because timestamps need not
increase.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tierctl.errors import MetadataError, SafetyRefusal, UsageError
from tierctl.locallog import require_log_dirs
from tierctl.metadata.topic import MetadataTopic, open_topic, topic_location
from tierctl.model import Uuid
from tierctl.model.location import TopicLocation
from tierctl.spark.sources.load_options import (
    FilteredReader,
    Given,
    require_files,
    selected_columns,
    shown_hints,
)
from tierctl.spark.sources.metadata_splits import (
    COLUMNS,
    SCHEMA,
    Predicate,
    event_tasks,
    plan_tasks,
    read_task,
)
from tierctl.wire.primitives import use_limit_factor

EARLIEST, LATEST = -2, -1


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset to read of each metadata partition, and the id of their topic."""

    topic_id: str | None
    next_offsets: Mapping[int, int]

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Return the offsets from Spark's checkpoint."""
        return cls(offset["topic_id"], {int(number): at for number, at in offset["next_offsets"].items()})

    def to_json(self) -> dict[str, Any]:
        """Return {"topic_id": id or null, "next_offsets": {"0": offset, ...}}."""
        ordered = sorted(self.next_offsets.items())
        return {"topic_id": self.topic_id, "next_offsets": {str(number): at for number, at in ordered}}

    def is_of(self, topic: TopicNow) -> bool:
        """Return True if the offsets belong to `topic`; offsets of a recreated topic begin at 0 again."""
        return None in {self.topic_id, topic.topic_id} or self.topic_id == topic.topic_id


@dataclass(frozen=True, slots=True)
class TopicNow:
    """The current topic: per metadata partition the first offset, and the offset after the last."""

    topic_id: str | None
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    def beginning(self, requested: Mapping[int, int], otherwise: int) -> StreamOffsets:
        """Return where a stream begins.

        `requested` has an offset, EARLIEST or LATEST for each partition; `otherwise` is for the others. Raise
        UsageError for a partition that the topic does not have.
        """
        if unknown := sorted(requested.keys() - self.ends.keys()):
            raise UsageError(
                f"option starting_offsets: the topic has no partition {unknown[0]}",
                hint=f"it has {len(self.ends)} partitions",
            )
        begins = {}
        for number, end in self.ends.items():
            at = requested.get(number, otherwise)
            begins[number] = {EARLIEST: self.begins[number], LATEST: end}.get(at, at)
        return StreamOffsets(self.topic_id, begins)

    def end(
        self, start: StreamOffsets, *, most: int | None = None, up_to: StreamOffsets | None = None
    ) -> StreamOffsets:
        """Return the end of a batch that begins at `start`: at most `most` offsets, none beyond `up_to`.

        A partition that no longer exists keeps its offset.
        """
        if not start.is_of(self):
            start = StreamOffsets(self.topic_id, {})
        ends = dict(self.ends)
        if up_to is not None and up_to.is_of(self):
            ends = {n: min(end, up_to.next_offsets.get(n, 0)) for n, end in ends.items()}
        # What was read of a log that was cut since is not read again.
        ends = {number: max(end, start.next_offsets.get(number, 0)) for number, end in ends.items()}
        if most is not None:
            ends = _limited(start.next_offsets, ends, most)
        return StreamOffsets(self.topic_id, {**start.next_offsets, **ends})

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> dict[int, tuple[int, int]]:
        """Return the readable offsets [start, end) of each partition, without empty ranges."""
        if not end.is_of(self):
            return {}
        begun = start.next_offsets if start.is_of(self) else {}
        cut = {
            n: (max(begun.get(n, 0), self.begins[n]), min(at, self.ends[n]))
            for n, at in end.next_offsets.items()
            if n in self.ends
        }
        return {n: (low, high) for n, (low, high) in cut.items() if low < high}

    def lost(self, start: StreamOffsets, end: StreamOffsets) -> Iterator[str]:
        """Yield a text for each partition of which offsets between `start` and `end` are lost."""
        for offsets in (start, end):
            if not offsets.is_of(self):
                yield f"the topic has id {self.topic_id}, offsets are of {offsets.topic_id}"
                return
        for number, high in sorted(end.next_offsets.items()):
            low = start.next_offsets.get(number, 0)
            if number in self.ends and max(low, high) > self.ends[number]:
                yield f"partition {number} ends at {self.ends[number]}, {max(low, high)} was there"
            elif low == high:
                continue
            elif number not in self.ends:
                yield f"partition {number} is not there"
            elif low < self.begins[number]:
                yield f"partition {number} begins at {self.begins[number]}, {low} comes next"


def _limited(starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
    """Return ends that cover at most `most` offsets, shared equally among the partitions.

    A partition with fewer unread offsets leaves its share to the others.
    """
    waiting = sorted((max(0, end - starts.get(number, 0)), number) for number, end in ends.items())
    limited = dict(ends)
    for place, (count, number) in enumerate(waiting):
        share = min(count, most // (len(waiting) - place))
        if share < count:
            limited[number] = starts.get(number, 0) + share
        most -= share
    return limited


_STARTS = {"earliest": EARLIEST, "latest": LATEST}


def _ids(given: Given, name: str) -> list[str]:
    """Return the topic ids between commas; raise UsageError for a text that is none."""
    return [str(Uuid.parse(text)) for text in given.several(name)]


_NARROWING: dict[str, Callable[[Given, str], Sequence[Any]]] = {
    "topic": Given.several,
    "topic_id": _ids,
    "partition": Given.numbers,
    "metadata_partition": Given.numbers,
}
_OF_STREAMS = ("starting_offsets", "max_offsets_per_trigger", "fail_on_data_loss")
_NAMES = (
    *("metadata", "path", "command_config", "broker_config", "log_dir", *_NARROWING, "records_per_task"),
    *(*_OF_STREAMS, "push_down", "limit_factor"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The options with their types; `starting_offset` is for partitions without a `starting_offsets`."""

    location: TopicLocation
    predicates: tuple[Predicate, ...] = ()
    records_per_task: int | None = None
    starting_offset: int = EARLIEST
    starting_offsets: Mapping[int, int]
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    push_down: bool = True
    limit_factor: int = 1

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the texts of `.option(...)`; raise UsageError for missing, unknown and invalid ones."""
        given = Given.of("remote_log_metadata", options, _NAMES)
        hint = "kafka://host:port, or a folder as /dir or s3://bucket/dir"
        uri = given.text("metadata") or given.text("path") or given.required("metadata", hint)
        location = topic_location(
            "option metadata",
            uri,
            command_config=given.path("command_config"),
            broker_config=given.path("broker_config"),
            log_dirs=tuple(map(Path, given.several("log_dir"))),
        )
        path = given.text("path")
        if path and topic_location("load(path)", path).uri != location.uri:
            raise UsageError(
                f"option metadata is {uri}, but load(...) has {path}", hint="give the metadata topic once"
            )
        narrowed = {name: values(given, name) for name, values in _NARROWING.items()}
        start = (given.text("starting_offsets") or "earliest").strip()
        return cls(
            location=location,
            predicates=tuple(
                Predicate(name, "in", tuple(values)) for name, values in narrowed.items() if values
            ),
            records_per_task=given.count("records_per_task"),
            starting_offset=_STARTS.get(start.lower(), EARLIEST),
            starting_offsets={} if start.lower() in _STARTS else _offsets(start),
            max_offsets_per_trigger=given.count("max_offsets_per_trigger"),
            fail_on_data_loss=given.is_true("fail_on_data_loss"),
            push_down=given.is_true("push_down"),
            limit_factor=given.limit_factor(),
        )


def _offsets(text: str) -> dict[int, int]:
    """Parse a JSON object that maps metadata partitions to offsets."""
    wrong = UsageError(
        f"option starting_offsets: {text!r}", hint='earliest, latest, or JSON as {"0": 17, "1": -2}'
    )
    try:
        found = json.loads(text)
        offsets = {int(number): offset for number, offset in found.items()}
    except (ValueError, AttributeError):
        raise wrong from None
    for number, offset in offsets.items():
        if number < 0 or not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise wrong
    return offsets


# The stream of `spark.readStream.format("remote_log_metadata")`: appended records, each offset once.
#
# An offset of Spark's is a StreamOffsets here: the next offset of every metadata partition.


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

    @shown_hints()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offsets where a stream without a checkpoint begins."""
        options = self._options
        return self._now().beginning(options.starting_offsets, options.starting_offset).to_json()

    @shown_hints()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at `start`."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        since, now = StreamOffsets.from_json(start), self._now()
        if since.is_of(now):
            # Spark plans no batch without new offsets, and a log that was cut has none until it is as long.
            self._require_kept(now, since, since)
        return now.end(since, most=most, up_to=self._target).to_json()

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

    @shown_hints()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return tasks that read exactly the offsets [start, end)."""
        since, until, now = StreamOffsets.from_json(start), StreamOffsets.from_json(end), self._now()
        self._require_kept(now, since, until)
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
        with shown_hints():
            yield from read_task(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint records the offsets that were read."""

    def stop(self) -> None:
        """Close the topic."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _require_kept(self, now: TopicNow, start: StreamOffsets, end: StreamOffsets) -> None:
        """Raise MetadataError if events from `start` to `end` are lost, unless the stream goes on then."""
        if self._options.fail_on_data_loss and (lost := list(now.lost(start, end))):
            raise MetadataError(
                f"{self._options.location.uri}: {'; '.join(lost)}",
                hint="the stream lost events: restart it without checkpoint, or set fail_on_data_loss=false",
            )

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


class RemoteLogMetadataSource(DataSource):
    """The data source; raises UsageError for missing, unknown and invalid options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "remote_log_metadata"

    @shown_hints()
    def schema(self) -> StructType:
        """Return the columns of the data source."""
        MetadataOptions.of(self.options)
        return from_arrow_schema(SCHEMA)

    @shown_hints()
    def reader(self, schema: StructType) -> MetadataReader:
        """Return the reader of batches; raise UsageError for an option of streams."""
        given = {name.lower() for name in self.options}
        if of_streams := [name for name in _OF_STREAMS if name in given]:
            raise UsageError(
                f"option {of_streams[0]} is one of streams", hint="leave it out, or use spark.readStream"
            )
        return MetadataReader(_reachable(self.options), selected_columns(schema, COLUMNS))

    @shown_hints()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of streams."""
        return MetadataStreamReader(_reachable(self.options), selected_columns(schema, COLUMNS))


def _reachable(options: Mapping[str, str]) -> MetadataOptions:
    """Return the parsed options; raise NotFoundError for a `log_dir` that is no broker's log directory.

    Raise UsageError for a file that can't be read.
    """
    found = MetadataOptions.of(options)
    require_files(found.location)
    require_log_dirs(map(Path, found.location.log_dirs))
    return found


class MetadataReader(FilteredReader):
    """Plans tasks for the current records on the driver; the tasks read them."""

    def __init__(self, options: MetadataOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._predicates = options.predicates
        self._pushes_down = options.push_down

    @shown_hints()
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
        with shown_hints():
            yield from read_task(partition.value)
