"""The metadata topic as DataFrames: its events, the segments that result from them, and sums of both.

    events = metadata_events(spark, "kafka://localhost:9092", columns=FOLDED)
    folded = fold_segments(events)
    partition_sizes(folded.segments).show()

Spark distributes the events by user partition and sorts them; the fold is the kernel that brokers' decisions
are computed with everywhere in tierctl, over Arrow batches; sums, counts and joins are expressions. Rows of
segments, user partitions and outcomes are computed when they are used: `persist` what is used twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from tierctl.errors import UsageError
from tierctl.metadata.daily_changes import DAY_MAX, DAY_MS
from tierctl.model import RemoteLogSegmentState, Selection
from tierctl.model.location import TopicLocation
from tierctl.spark.fold_rows import (
    FOLDED,
    KNOWN_PARTITION,
    KNOWN_SEGMENT,
    OUTCOMES,
    PARTITIONS,
    SEGMENTS,
    SLOWNESS,
    Rows,
    rows_of_task,
    with_slowness,
)
from tierctl.spark.session.jvm import ship
from tierctl.spark.sources.metadata_splits import COLUMNS
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.spark.sources.remote_log import RemoteLogSource
from tierctl.spark.sources.remote_log_metadata import RemoteLogMetadataSource
from tierctl.state.stored_rows import COUNTS, FACTS, PARTITION_COLUMNS
from tierctl.wire.primitives import limits

_LIVE: Final = tuple(
    state for state in RemoteLogSegmentState if state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
)

OF_CHANGES: Final = (
    *("metadata_offset", "topic", "topic_id", "partition", "segment_id", "state"),
    *("event_timestamp_ms", "segment_size_in_bytes"),
)
"""The columns of events from which `daily_changes` is computed."""

_ENDS: Final = {
    "copied": RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    "deleted": RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
}

_SUMMED: Final = (
    *("topic", "topic_id", "partition", "metadata_partition", "state", "segment_size_in_bytes"),
    *("delete_state", "last_event_offset", "outcome"),
)


def metadata_events(
    spark: SparkSession, metadata: str, *, columns: Sequence[str] = EVENT_SCHEMA.names, **options: str
) -> DataFrame:
    """Return the events of the metadata topic at `metadata`, one per row, with `columns` of COLUMNS.

    `metadata` and `options` are those of the data source `remote_log_metadata`. The column `record`, which
    `fold_segments` needs, has the bytes of each record; it is not among the default columns. `push_down` is
    false unless it is given, so that the DataFrame can be used in several queries. Raise UsageError for a
    column that is not in COLUMNS.
    """
    if unknown := [name for name in columns if name not in COLUMNS.names]:
        raise UsageError(
            f"events have no column {', '.join(unknown)}", hint=f"there are {', '.join(COLUMNS.names)}"
        )
    register_sources(spark)
    schema = from_arrow_schema(pa.schema([COLUMNS.field(name) for name in columns]))
    reader = spark.read.format("remote_log_metadata").schema(schema)
    return reader.options(**{"push_down": "false", **options}, metadata=metadata).load()


def register(spark: SparkSession) -> None:
    """Register the formats `remote_log_metadata` and `remote_log` with a session, of Spark Connect as well.

    This tierctl is sent to the Python workers, as the commands do; the packages that it needs must be there
    (tierctl-spark(7) says how to send them). The call sets spark.sql.python.filterPushdown.enabled.
    """
    ship(spark)
    register_sources(spark)


def register_sources(spark: SparkSession) -> None:
    """Register the data sources with a session whose workers have tierctl."""
    # The setting is off by default, and Spark refuses a source that accepts filters while it is off.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (RemoteLogMetadataSource, RemoteLogSource):
        spark.dataSource.register(source)


def events_before(
    spark: SparkSession, location: TopicLocation, ends: Mapping[int, int], columns: Sequence[str]
) -> DataFrame:
    """Return the events before `ends`, which were read before, for one query; the topic may have grown."""
    options = {"push_down": "true", **options_of(location)}
    events = metadata_events(spark, location.uri, columns=columns, **options)
    known = " ".join(f"WHEN {number} THEN metadata_offset < {end}" for number, end in ends.items())
    return events.where(f"CASE metadata_partition {known} ELSE false END")


def metadata_stream(
    spark: SparkSession,
    location: TopicLocation,
    columns: Sequence[str],
    starts: Mapping[int, int],
    *,
    records_per_task: int,
) -> DataFrame:
    """Return the stream of the events from the offsets `starts` on; events that are gone are left out."""
    register_sources(spark)
    schema = from_arrow_schema(pa.schema([COLUMNS.field(name) for name in columns]))
    options = {
        "metadata": location.uri,
        "fail_on_data_loss": "false",
        "records_per_task": str(records_per_task),
        **options_of(location),
    }
    begins = json.dumps({str(number): at for number, at in starts.items()})
    stream = spark.readStream.format("remote_log_metadata").schema(schema).options(**options)
    return stream.option("starting_offsets", begins).load()


def options_of(location: TopicLocation) -> dict[str, str]:
    """Return the options of `remote_log_metadata` with which executors read as this process does."""
    files = {"command_config": location.command_config, "broker_config": location.broker_config}
    given = {name: path for name, path in files.items() if path}
    if location.log_dirs:
        given["log_dir"] = ",".join(location.log_dirs)
    return {"limit_factor": str(limits().factor), **given}


@dataclass(frozen=True)
class Folded:
    """The result of `fold_segments`; `events` are distributed by user partition, and in order."""

    events: DataFrame
    partition_count: int | None = None

    @cached_property
    def segments(self) -> DataFrame:
        """The segments that are not deleted, as a broker derives them, with the columns SEGMENTS."""
        return self.rows((Rows.SEGMENTS,), SEGMENTS)

    @cached_property
    def partitions(self) -> DataFrame:
        """The user partitions that an event names, with the columns PARTITIONS."""
        return self.rows((Rows.PARTITIONS,), PARTITIONS)

    @cached_property
    def outcomes(self) -> DataFrame:
        """The outcome of each event, with the columns OUTCOMES."""
        return self.rows((Rows.OUTCOMES,), OUTCOMES)

    def rows(self, wanted: Sequence[Rows], columns: pa.Schema) -> DataFrame:
        """Return the wanted kinds of rows of one fold; `columns` that a kind does not have are null there."""
        fold = partial(rows_of_task, frozenset(wanted), columns, self.partition_count)
        if SLOWNESS in columns.names:
            fold = partial(with_slowness, fold)
        return self.events.mapInArrow(fold, from_arrow_schema(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """The state after earlier events: rows of the tables `segments` and `partitions` of a warehouse."""

    segments: DataFrame
    partitions: DataFrame

    def before(self, events: DataFrame) -> DataFrame:
        """Return the rows of the state and of the events after it, which have the columns FOLDED.

        Those of the state precede all events, which may be in another metadata partition.
        """
        place = ("topic_id", "partition", f.lit(-1).alias("metadata_partition"))
        first = f.lit(-1).cast("long").alias("metadata_offset")
        rows = events
        for what, known, names, typed, column in (
            ("segments", self.segments, SEGMENTS.names, _OF_SEGMENTS, KNOWN_SEGMENT),
            ("partitions", self.partitions, PARTITION_COLUMNS, _OF_PARTITIONS, KNOWN_PARTITION),
        ):
            state = known.select(*names)
            _require_types(state, typed, f"the known {what}")
            state = state.select(*place, first, f.struct(*names).alias(column))
            rows = rows.unionByName(state, allowMissingColumns=True)
        return rows


_OF_EVENTS: Final = pa.schema(map(COLUMNS.field, ("metadata_partition", "metadata_offset", "partition")))
_OF_SEGMENTS: Final = pa.schema([each for each in SEGMENTS if each.type not in {pa.string(), pa.binary()}])
_OF_PARTITIONS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("partition", *COUNTS, "metadata_partition", "last_event_offset")),
        *FACTS,
    ]
)
"""The columns whose values the fold takes from Arrow's memory, where another type would be other numbers."""
_INTEGER: Final = re.compile(r"\b(tiny|small|big)?int\b")


def _require_types(rows: DataFrame, columns: pa.Schema, what: str) -> None:
    """Raise UsageError for a column of `rows` with another type; integers may have any width."""
    for each in from_arrow_schema(columns):
        expected, found = (kind.simpleString() for kind in (each.dataType, rows.schema[each.name].dataType))
        if _INTEGER.sub("int", found) != _INTEGER.sub("int", expected):
            raise UsageError(
                f"column {each.name} of {what}: expected {expected}, found {found}",
                hint=f'cast it: withColumn("{each.name}", f.col("{each.name}").cast("{expected}"))',
            )


def fold_segments(
    events: DataFrame, known: KnownState | None = None, *, partition_count: int | None = None
) -> Folded:
    """Fold `events` of the metadata topic, as brokers do (RemoteLogMetadataCache).

    They are those from its beginning on, or those after the `known` state.

    `events` has the columns `metadata_partition`, `metadata_offset`, `topic_id`, `partition`, `error` and
    `record` of `metadata_events`, which are FOLDED. Spark distributes them by user partition, so that one
    metadata partition of any size is the work of many tasks; a user partition is the work of one. With
    `partition_count`, the number of metadata partitions, events in a metadata partition where brokers do not
    look for them are not understood. Raise UsageError for a column that is missing, and for one of another
    type in the events or the known state.
    """
    if missing := [name for name in FOLDED if name not in events.columns]:
        raise UsageError(
            f"the fold needs the columns {', '.join(missing)} of the events",
            hint="metadata_events(spark, ..., columns=FOLDED)",
        )
    rows = events.select(*FOLDED)
    _require_types(rows, _OF_EVENTS, "the events")
    rows = rows if known is None else known.before(rows)
    spread = rows.repartition("topic_id", "partition")
    return Folded(spread.sortWithinPartitions("metadata_partition", "metadata_offset"), partition_count)


def partition_sizes(segments: DataFrame) -> DataFrame:
    """Return the number and the bytes of the segments of each user partition, by state.

    The columns are `topic`, `topic_id`, `partition`, `metadata_partition`, and for each state, in lower
    case, its number of segments (`copy_segment_finished`) and their bytes (`copy_segment_finished_bytes`).
    """
    return segments.groupBy("topic", "topic_id", "partition", "metadata_partition").agg(*_sums_by_state())


def user_partition_sums(folded: Folded) -> DataFrame:
    """Return the columns of `partition_sizes` and PARTITIONS of each user partition, in one fold.

    `unusable` counts the rows of OUTCOMES that are refused or not understood; those that name no user
    partition have one more row. SLOWNESS says why an executor was slow.
    """
    kinds = {field.name: field for schema in (SEGMENTS, PARTITIONS, OUTCOMES) for field in schema}
    wanted = (Rows.SEGMENTS, Rows.PARTITIONS, Rows.UNUSABLE)
    columns = pa.schema([*(kinds[name] for name in _SUMMED), pa.field(SLOWNESS, pa.string())])
    rows = folded.rows(wanted, columns)
    # Neither the outcomes' states nor those of a deletion are states of a segment.
    latest = ("delete_state", "last_event_offset", SLOWNESS)
    sums = [*_sums_by_state(), *(f.max(name).alias(name) for name in latest)]
    sums.append(f.count("outcome").alias("unusable"))
    return rows.groupBy("topic", "topic_id", "partition", "metadata_partition").agg(*sums)


def _sums_by_state() -> list[Column]:
    sums: list[Column] = []
    for state in _LIVE:
        size = f.when(f.col("state") == str(state), f.col("segment_size_in_bytes").cast("long"))
        sums += [f.count(size).alias(state.lower()), _sum(size).alias(f"{state.lower()}_bytes")]
    return sums


def anomalies(outcomes: DataFrame) -> DataFrame:
    """Return the outcomes of events that a broker does not apply, and of records that are not understood."""
    return outcomes.where("outcome <> 'accepted'")


def selected(events: DataFrame, selection: Selection) -> DataFrame:
    """Return the events of the user partitions in `selection`."""
    wanted = f.lit(True)
    if selection.topics:
        wanted &= f.col("topic").isin(*selection.topics)
    if selection.topic_ids:
        wanted &= f.col("topic_id").isin(*map(str, selection.topic_ids))
    if selection.narrows_partitions:
        is_admitted = f.col("partition").isin(*selection.partitions)
        for each in selection.named_partitions:
            is_admitted |= (f.col("topic") == each.topic) & (f.col("partition") == each.partition)
        wanted &= is_admitted
    return events.where(wanted)


def daily_changes(events: DataFrame) -> DataFrame:
    """Return how many segments, and bytes, were copied and deleted by topic id and day in UTC.

    `events` has the columns OF_CHANGES. The columns are `topic`, `topic_id`, `day` (a date),
    `copied_segments`, `copied_bytes`, `deleted_segments`, `deleted_bytes` and `unknown_events`. Of a state
    that several events of a segment have, the earliest counts. Segments whose first event is missing have no
    size: in a row without a day, `unknown_events` counts the events that finished their copies and deletions.
    Entries of a snapshot file, which name no topic, count for nothing.
    """
    # Only an event that adds a segment has a size, and only one that updates it ends a copy or a deletion.
    is_update = f.col("segment_size_in_bytes").isNull()

    def first(column: str, is_chosen: Column) -> Column:
        return f.min_by(f.when(is_chosen, f.col(column)), f.when(is_chosen, f.col("metadata_offset")))

    def reached(state: RemoteLogSegmentState) -> Column:
        return first("event_timestamp_ms", is_update & (f.col("state") == str(state)))

    by_segment = events.where("segment_id is not null and topic_id is not null").groupBy(
        "topic", "topic_id", "partition", "segment_id"
    )
    is_end = is_update & f.col("state").isin(*map(str, _ENDS.values()))
    segments = by_segment.agg(
        first("segment_size_in_bytes", ~is_update).cast("long").alias("bytes"),
        *(reached(state).alias(f"{kind}_ms") for kind, state in _ENDS.items()),
        f.count(f.when(is_end, 1)).alias("ends"),
    )
    is_known = f.col("bytes").isNotNull()
    was_copied = is_known & f.col("copied_ms").isNotNull()
    facts = ("topic", "topic_id", "bytes", "ends")
    no_day = f.lit(None).cast("date").alias("day")
    changes = segments.where(~is_known & (f.col("ends") > 0)).select(
        *facts, f.lit("unknown").alias("kind"), no_day
    )
    for kind in _ENDS:
        found = segments.where(was_copied & f.col(f"{kind}_ms").isNotNull())
        day = _day(f.col(f"{kind}_ms")).alias("day")
        changes = changes.unionAll(found.select(*facts, f.lit(kind).alias("kind"), day))
    sums: list[Column] = []
    for kind in _ENDS:
        size = f.when(f.col("kind") == kind, f.col("bytes"))
        sums += [f.count(size).alias(f"{kind}_segments"), _sum(size).alias(f"{kind}_bytes")]
    sums.append(_sum(f.when(f.col("kind") == "unknown", f.col("ends"))).alias("unknown_events"))
    return changes.groupBy("topic", "topic_id", "day").agg(*sums)


def _day(time_ms: Column) -> Column:
    """Return the day of a time; a time that is no date of this calendar counts for its first or last day."""
    day = f.floor(time_ms / f.lit(DAY_MS))
    return f.date_from_unix_date(f.greatest(f.least(day, f.lit(DAY_MAX)), f.lit(0)).cast("int"))


def _sum(values: Column) -> Column:
    return f.coalesce(f.sum(values), f.lit(0))
