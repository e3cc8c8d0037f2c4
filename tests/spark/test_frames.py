"""The public DataFrame functions, used as in a notebook, give the answers of a fold without Spark."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tierctl import kernel
from tierctl.errors import CorruptInputError, UsageError
from tierctl.metadata.daily_changes import DailyChanges, read_daily_changes
from tierctl.metadata.parallel_fold import chunks_of_batch
from tierctl.metadata.topic import open_topic
from tierctl.model import (
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentState,
    Selection,
    TopicPartition,
)
from tierctl.model.location import TopicLocation
from tierctl.spark import (
    FOLDED,
    KnownState,
    anomalies,
    daily_changes,
    fold,
    fold_segments,
    metadata_events,
    partition_sizes,
)
from tierctl.spark.executors.transport import Executors
from tierctl.spark.fold_rows import SEGMENTS, SLOWNESS, with_slowness
from tierctl.spark.frames import Folded
from tierctl.spark.sources.metadata_splits import COLUMNS
from tierctl.state.stored_rows import PARTITION_COLUMNS
from tierctl.state.tier_state import TierState, sizes_by_group
from tierctl.wire.metadata.values import encode

from tests.metadata.events import repeated_and_lost, started, update
from tests.metadata.topics import manager_at, topic_in
from tests.pipeline.tables import delta, lives, read, run, write
from tests.spark.executors.bulk import assert_same, damaged, small_pieces, within
from tests.spark.executors.test_fold import COUNT, absurd
from tests.spark.worlds import Capture
from tests.state.histories import S
from tests.support.amounts import rest_in_matrix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["absurd", "small_pieces"]


def folded_at(folder: Path, spark: "SparkSession", *, partition_count: int | None = None) -> Folded:
    return fold_segments(events_at(folder, spark), partition_count=partition_count)


def events_at(folder: Path, spark: "SparkSession") -> "DataFrame":
    return metadata_events(spark, str(folder), columns=FOLDED)


def state_at(folder: Path) -> TierState:
    with closing(manager_at(folder.as_uri())) as manager:
        return manager.refresh()


def rows(frame: "DataFrame", *key: str) -> "dict[tuple[Any, ...], Row]":
    found = frame.collect()
    by_key = {tuple(row[name] for name in key): row for row in found}
    assert len(by_key) == len(found)
    return by_key


@pytest.mark.parametrize("among", rest_in_matrix([1, 4]))
def test_a_fold_goes_on_from_the_tables_of_a_warehouse(
    among: int, tmp_path: Path, spark: "SparkSession"
) -> None:
    """The tables may have events from the time when the metadata topic had fewer partitions."""
    topic, warehouse = tmp_path / "topic", tmp_path / "warehouse"
    write(topic, lives(range(6)), among=among)
    run(topic, warehouse)
    ends = dict(read(warehouse, "commits")["ends"][0].as_py())
    files = {name: delta(warehouse, name).file_uris() for name in ("segments", "partitions")}
    known = KnownState(**{name: spark.read.parquet(*uris) for name, uris in files.items()})
    write(topic, [*lives(range(4, 9)), update(5, S.DELETE_SEGMENT_STARTED)])
    events = events_at(topic, spark)
    new = events.where(
        " OR ".join(f"metadata_partition = {n} AND metadata_offset >= {e}" for n, e in ends.items())
    )
    assert 0 < new.count() < events.count()
    for frame in ("segments", "partitions"):
        found, whole = (getattr(fold_segments(*given), frame) for given in ((new, known), (events,)))
        assert sorted(map(repr, found.collect())) == sorted(map(repr, whole.collect()))


def test_segments_partitions_and_sizes(capture: Capture, spark: "SparkSession") -> None:
    folder = within(capture, "tiered-cluster/before")
    state, folded = state_at(folder), folded_at(folder, spark)
    segments = rows(folded.segments, "segment_id")
    known = {(str(s.segment_id),): s for part in state for s in part.cache.list_remote_log_segments()}
    assert segments.keys() == known.keys()
    for key, segment in known.items():
        row = segments[key]
        assert tuple(map(tuple, row.segment_leader_epochs)) == segment.segment_leader_epochs
        names = {field: getattr(segment, field) for field in row.asDict() if hasattr(segment, field)}
        names |= {"topic_id": str(segment.topic_id), "segment_id": str(segment.segment_id)}
        del names["segment_leader_epochs"]
        assert {name: row[name] for name in names} == names
    partitions = rows(folded.partitions, "topic_id", "partition")
    assert partitions.keys() == {(str(topic_id), number) for topic_id, number in state.partitions}
    sizes = rows(partition_sizes(folded.segments), "topic_id", "partition")
    for part in state:
        whose = str(part.topic_id_partition.topic_id), part.topic_id_partition.partition
        row = partitions[whose]
        assert (row.topic, row.metadata_partition) == (part.topic_id_partition.topic, part.metadata_partition)
        assert (row.delete_state, row.last_event_offset) == (part.delete_state, part.last_event_offset)
        here = sizes_by_group(state, [(0, part)], 1)
        assert (whose in sizes) == bool(part.segment_count)
        for each in {s.state for s in part.cache.list_remote_log_segments()}:
            found = sizes[whose][each.lower()], sizes[whose][f"{each.lower()}_bytes"]
            assert found == here.of(0, each)


def test_each_event_has_an_outcome(absurd: Path, spark: "SparkSession") -> None:
    """The outcomes are those that the fold without Spark reports, for histories with all that is wrong."""
    state, folded = state_at(absurd), folded_at(absurd, spark, partition_count=COUNT)
    odd = anomalies(folded.outcomes).collect()
    ignored = {(a.metadata_partition, a.metadata_offset) for a in state.anomalies}
    assert len(ignored) == state.anomaly_count
    assert {(r.metadata_partition, r.metadata_offset) for r in odd if r.outcome == "ignored"} == ignored
    unusable = {(r.metadata_partition, r.metadata_offset) for r in odd if r.outcome != "ignored"}
    wrong = {(q.metadata_partition, q.metadata_offset) for q in state.quarantined if not q.is_misplaced}
    assert wrong <= unusable
    assert all(row.error for row in odd if row.outcome != "ignored")
    assert any("in metadata partition" in row.error for row in odd if row.outcome == "not_understood")
    with closing(open_topic(TopicLocation(uri=absurd.as_uri()))) as topic:
        total = sum(topic.end_offsets().values())
    misplaced = sum(1 for row in odd if row.error and "in metadata partition" in row.error)
    assert folded.outcomes.count() - misplaced == total


def test_damaged_records_hide_nothing(tmp_path: Path, spark: "SparkSession") -> None:
    folder = damaged(tmp_path)
    state, folded = state_at(folder), folded_at(folder, spark, partition_count=2)
    odd = anomalies(folded.outcomes).where("outcome = 'not_understood'").collect()
    wrong = {(q.metadata_partition, q.metadata_offset) for q in state.quarantined}
    assert {(row.metadata_partition, row.metadata_offset) for row in odd} == wrong
    assert folded.segments.count() == sum(part.segment_count for part in state)


@pytest.mark.parametrize("kind", rest_in_matrix(["absurd", "damaged"]))
@pytest.mark.usefixtures("small_pieces", "spark")
def test_segments_sizes_with_records_that_brokers_cannot_use(kind: str, tmp_path: Path, absurd: Path) -> None:
    folder = absurd if kind == "absurd" else damaged(tmp_path)
    assert assert_same("segments", "--sizes", "--metadata", folder, "-o", "json").code == 7


@pytest.fixture
def lost_beginnings(tmp_path: Path) -> Path:
    """Return a topic with segments whose first events are missing, and with repeated events."""
    topic = topic_in(tmp_path / "topic", writable=True)
    deletion = update(9, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    topic.append([(4, encode(event)) for event in (*repeated_and_lost(), deletion)])
    topic.close()
    return tmp_path / "topic"


def days_in(folder: Path, spark: "SparkSession", selection: Selection) -> DailyChanges:
    """Return the sums of executors, which must be those of one reader."""
    location = TopicLocation(uri=folder.as_uri())
    with closing(open_topic(location)) as topic:
        ends = topic.end_offsets()
        known = read_daily_changes(topic, ends, selection.__contains__)
    assert fold.changes_by_day(Executors(spark), location, ends, selection) == known
    return known


PARTITION = frozenset({TopicPartition("orders", 2)})
SELECTIONS = (
    Selection(topics=frozenset({"orders"}), partitions=frozenset({0}), named_partitions=PARTITION),
    Selection(topics=frozenset({"orders"})),
    Selection(topics=frozenset({"orders"}), named_partitions=PARTITION),
    Selection(partitions=frozenset({0}), named_partitions=PARTITION),
)


def test_days(capture: Capture, spark: "SparkSession") -> None:
    folder = within(capture, "tiered-cluster/after")
    whole = days_in(folder, spark, Selection())
    found = rows(daily_changes(metadata_events(spark, str(folder))), "topic", "topic_id", "day")
    assert len([day for _, _, day in found if day is not None]) == len(whole.days)


@pytest.mark.parametrize("selection", rest_in_matrix(SELECTIONS))
def test_days_of_some_partitions(selection: Selection, capture: Capture, spark: "SparkSession") -> None:
    known = days_in(within(capture, "tiered-cluster/after"), spark, selection)
    assert {topic for topic, *_ in known.days} >= {"orders"}
    assert sum(each.copied_segments for each in known.days.values()) > 0


def test_days_of_segments_whose_beginning_is_lost(lost_beginnings: Path, spark: "SparkSession") -> None:
    known = days_in(lost_beginnings, spark, Selection())
    assert known.unknown_segments == 2
    assert [each.copied_segments for each in known.days.values()] == [2]


def test_days_by_events_that_no_broker_applies(tmp_path: Path, spark: "SparkSession") -> None:
    """An entry of a snapshot file has a state and a size, and an event that adds a segment may state any."""
    begun, other = started(1), replace(started(1), segment_size_in_bytes=7)
    entry = RemoteLogSegmentMetadataSnapshot(
        **{each.name: getattr(begun, each.name) for each in fields(RemoteLogSegmentMetadataSnapshot)}
    )
    events = [
        *(replace(entry, state=state) for state in (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_FINISHED)),
        *(replace(started(2), state=state) for state in (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_FINISHED)),
        *(begun, other, update(1), update(3), replace(started(4), state=S.COPY_SEGMENT_FINISHED), update(4)),
        # A segment is one of its user partition.
        *(started(5), started(5, partition=1), update(5), update(5, partition=1)),
        *(update(5, partition=2), replace(update(5), topic="renamed")),
    ]
    topic = topic_in(tmp_path / "topic", writable=True)
    topic.append([(4, encode(event)) for event in events])
    topic.close()
    known = days_in(tmp_path / "topic", spark, Selection())
    assert known.unknown_segments == 3
    (day,) = known.days.values()
    assert (day.copied_segments, day.deleted_segments) == (4, 0)
    copied = (begun, started(4), started(5), started(5))
    assert day.copied_bytes == sum(each.segment_size_in_bytes for each in copied)


def test_spark_distributes_the_events(
    capture: Capture, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    """One metadata partition is the work of many tasks, and only the columns of the fold are read."""
    folded_at(within(capture, "tiered-cluster/after"), spark).segments.explain()
    plan = capsys.readouterr().out
    assert "hashpartitioning(topic_id" in plan
    scan = next(line for line in plan.splitlines() if "BatchScan" in line)
    assert "record#" in scan
    assert "start_offset" not in scan


def test_events_without_records(capture: Capture, spark: "SparkSession") -> None:
    with pytest.raises(UsageError, match="needs the columns record") as e:
        fold_segments(metadata_events(spark, str(within(capture, "tiered-cluster/after"))))
    assert "FOLDED" in str(e.value.hint)


@pytest.mark.parametrize(
    ("frame", "column", "kind"),
    [
        ("events", "metadata_offset", "double"),
        ("events", "metadata_partition", "string"),
        ("events", "partition", "decimal(20,0)"),
        ("segments", "segment_leader_epochs", "array<struct<leader_epoch:int,offset:double>>"),
        ("partitions", "failed_copies", "float"),
    ],
)
def test_a_column_of_another_type(frame: str, column: str, kind: str, spark: "SparkSession") -> None:
    """The bytes of a double, taken as an integer, are another offset."""
    types = {
        "events": {name: COLUMNS.field(name).type for name in FOLDED},
        "segments": dict(zip(SEGMENTS.names, SEGMENTS.types, strict=True)),
        "partitions": {name: pa.int64() for name in PARTITION_COLUMNS},
    }
    frames = {
        name: spark.createDataFrame([], from_arrow_schema(pa.schema(fields.items())))
        for name, fields in types.items()
    }
    frames["events"] = frames["events"].selectExpr(
        "* EXCEPT (partition)", "cast(partition as short) partition"
    )

    def fold_these() -> Folded:
        return fold_segments(
            frames["events"], KnownState(segments=frames["segments"], partitions=frames["partitions"])
        )

    fold_these()
    frames[frame] = frames[frame].selectExpr(f"* EXCEPT ({column})", f"cast(null as {kind}) {column}")
    with pytest.raises(UsageError, match=f"column {column} of .*, found ") as e:
        fold_these()
    assert e.value.message.endswith(f"found {kind}")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_positions_and_bytes_of_records(kind: pa.DataType) -> None:
    columns = {
        "metadata_partition": pa.array([1, 1, 1], pa.int32()),
        "metadata_offset": pa.array([4, 5, 6], pa.int64()),
        "record": pa.array(["a", "bc", "def"], kind),
    }
    (chunk,) = chunks_of_batch(pa.RecordBatch.from_pydict(columns)[1:])
    assert [*chunk.offsets] == [5, 6]
    assert bytes(chunk.slices.data) == b"bcdef"
    for name in ("metadata_partition", "metadata_offset"):
        lost = pa.array([1, None, 3], columns[name].type)
        with pytest.raises(CorruptInputError, match=r"of each record, found null"):
            next(chunks_of_batch(pa.RecordBatch.from_pydict(columns | {name: lost})))


SCHEMA = pa.schema([("topic", pa.string()), (SLOWNESS, pa.string()), ("outcome", pa.string())])
LARGE = 1_000_000


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch after as many events as its first column has."""
    for batch in batches:
        kernel.expect(batch.column(0)[0].as_py())
        yield pa.RecordBatch.from_pylist([{"topic": "a"}, {"topic": "b", "outcome": "c"}], schema=SCHEMA)
    yield pa.RecordBatch.from_pylist([], schema=SCHEMA)


def test_rows_of_a_fold_say_why_it_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_forms", kernel._Forms())
    monkeypatch.setattr(kernel, "find_spec", lambda _: None)
    batches = [pa.RecordBatch.from_pylist([{"items": items}]) for items in (0, LARGE, 0)]
    rows = pa.Table.from_batches(list(with_slowness(counted, batches)), SCHEMA)
    why = kernel.WITHOUT_NUMBA
    assert rows.column(SLOWNESS).to_pylist() == [None, None, *[why] * 4]
    assert rows.column("topic").to_pylist() == ["a", "b"] * 3
    assert rows.column("outcome").to_pylist() == [None, "c"] * 3


def test_a_column_that_events_do_not_have(spark: "SparkSession") -> None:
    with pytest.raises(UsageError, match="events have no column topik"):
        metadata_events(spark, "file:///tmp", columns=("topic", "topik"))
