"""The metadata topic as a Spark table: its rows, pushed conditions, every kind of Spark."""

import json
import traceback
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import tierctl.spark
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructField, StructType
from tierctl.errors import NotFoundError, UsageError
from tierctl.model.location import TopicLocation
from tierctl.spark.sources.metadata_splits import SCHEMA, Predicate, plan_tasks, timestamps
from tierctl.spark.sources.remote_log import RemoteLogSource
from tierctl.spark.sources.remote_log_metadata import MetadataOptions, RemoteLogMetadataSource
from tierctl.wire.metadata.values import encode

from tests.cli.shell import tierctl as run_tierctl
from tests.metadata.events import OTHER_ID, started, update
from tests.spark.clusters import Engine
from tests.spark.metadata_logs import NOW_MS, Row, as_json, batches, topic_folders, write_log
from tests.spark.sources.metadata.test_rows import rows as rows_of_tasks
from tests.spark.worlds import Capture
from tests.support.broker import Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(spark: "SparkSession", uri: str, **options: object) -> DataFrame:
    """Return the metadata topic as a user of Spark reads it."""
    tierctl.spark.register(spark)
    return spark.read.format("remote_log_metadata").options(**options).load(uri)  # type: ignore[arg-type]


def read_rows(spark: "SparkSession", uri: str, **options: object) -> list[Row]:
    """Return all its rows by partition and offset."""
    return sorted(table(spark, uri, **options).toArrow().to_pylist(), key=place)


def place(row: Row) -> tuple[int, int]:
    """Return the partition and offset of a row."""
    return row["metadata_partition"], row["metadata_offset"]


def printed(folder: Path) -> list[Row]:
    """Return the output of `tierctl format` for a folder, with any exit code."""
    ran = run_tierctl("format", "--metadata", f"file://{folder}", "--style", "json")
    return [json.loads(line) for line in ran.lines]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three metadata partitions with both dialects, invalid values, a tombstone, damage and a gap."""
    folder = tmp_path_factory.mktemp("mixed")
    kip405 = bytes.fromhex(
        "0100000e6576656e74732d323032342e30316b0fa319719489e993bcd3c5a6c7ac09000000049318d58962ff55e8cabbbbd4"
        "9469560b0000000000000174876e800001"
    )
    values = [encode(started(number)) for number in range(40)]
    made = batches([*values, b"\xff\x00", None, kip405, encode(update(3))])
    made[17] = made[17][:-1] + bytes([made[17][-1] ^ 1])
    write_log(folder, 0, [*made, *batches([encode(started(40))], base_offset=50)])
    write_log(folder, 1, batches([encode(started(n, partition=2, topic="clicks")) for n in range(9)]))
    write_log(folder, 2, batches([encode(started(n, topic_id=OTHER_ID)) for n in range(7)]))
    return folder


def read_tables(spark: "SparkSession", folders: list[str]) -> list[list[Row]]:
    """Return the rows of several folders, read by one job."""
    tables = [table(spark, f"file://{each}").selectExpr("*", f"'{each}' folder") for each in folders]
    rows = sorted(reduce(DataFrame.unionAll, tables).toArrow().to_pylist(), key=place)
    return [[row for row in rows if row["folder"] == each] for each in folders]


def test_every_kind_of_spark_reads_the_same(engine: Engine, capture: Capture, mixed: Path) -> None:
    # test_rows.py has the rows of all captures without Spark.
    folders = [mixed, *(topic_folders(capture(name))[-1] for name in ("tiered-cluster", "aiven-plain"))]
    for folder, rows in zip(folders, engine.call(read_tables, list(map(str, folders))), strict=True):
        assert [as_json(row) for row in rows if not row["is_gap"]] == printed(folder)


def test_types_are_sparks(mixed: Path, spark: "SparkSession") -> None:
    df = table(spark, f"file://{mixed}")
    assert df.columns == SCHEMA.names
    kinds = dict(df.dtypes)
    assert kinds["segment_leader_epochs"] == "array<struct<leader_epoch:int,offset:bigint>>"
    assert kinds["timestamp"] == "timestamp"
    assert {kinds[name] for name in ("topic_id", "segment_id", "state", "type")} == {"string"}
    counted = df.groupBy("state", "dialect").count().collect()
    assert {(row["state"], row["dialect"]): row["count"] for row in counted} == {
        ("COPY_SEGMENT_STARTED", "kafka"): 56,
        ("COPY_SEGMENT_FINISHED", "kafka"): 1,
        ("COPY_SEGMENT_FINISHED", "kip405"): 1,
        (None, None): 4,
    }


def test_columns_that_nobody_names_are_not_made(mixed: Path, spark: "SparkSession") -> None:
    tierctl.spark.register(spark)
    reader = spark.read.format("remote_log_metadata").schema("topic string, metadata_offset long")
    df = reader.load(f"file://{mixed}").where("topic = 'clicks'")
    assert sorted(map(tuple, df.collect())) == [("clicks", offset) for offset in range(9)]


def test_a_dataframe_without_push_down_has_all_rows_in_each_query(mixed: Path, spark: "SparkSession") -> None:
    """Spark reads a DataFrame with the conditions that it pushed down last, for another query, too."""
    events = tierctl.spark.metadata_events(spark, f"file://{mixed}")
    count, parts = events.count(), [events.where(f"metadata_partition = {number}") for number in range(2)]
    of_parts = [part.count() for part in parts]
    assert events.count() == count
    assert parts[0].union(parts[1]).count() == sum(of_parts) < count
    assert 0 not in of_parts


# A condition, the number of tasks (of 4) that it leaves, and whether it is pushed down completely.
CONDITIONS = [
    ("metadata_partition in (0, 2) and not metadata_partition = 2", 3, True),
    ("metadata_offset between 3 and 6", 1, True),
    ("metadata_offset = 17 or metadata_offset = 50", 4, False),
    (f"topic_id = '{OTHER_ID}' and partition = 0", 4, True),
    ("topic <> 'clicks' and partition not in (1, 3)", 4, True),
    (f"event_timestamp_ms > 1700000100005 and timestamp_ms <= {NOW_MS + 30}", 4, True),
    ("timestamp < timestamp'2023-11-14 22:13:20.005Z' and custom_metadata is null", 4, True),
    ("type is null and not is_gap", 4, True),
    ("topic like 'cl%' and metadata_offset > 7", 3, False),
]


@pytest.fixture(scope="module")
def whole(mixed: Path, spark: "SparkSession") -> DataFrame:
    """Return every row, filtered only by Spark."""
    return spark.createDataFrame(table(spark, f"file://{mixed}").toArrow()).cache()


@pytest.mark.parametrize(("condition", "tasks", "is_pushed"), CONDITIONS)
def test_conditions_leave_the_same_rows_with_less_work(
    condition: str, tasks: int, is_pushed: bool, mixed: Path, whole: DataFrame
) -> None:
    keys = ("metadata_partition", "metadata_offset", "is_gap", "topic", "error")
    every, filtered = (
        rows.where(condition).select(*keys)
        for rows in (whole, table(whole.sparkSession, f"file://{mixed}", records_per_task=20))
    )
    assert sorted(map(str, filtered.collect())) == sorted(map(str, every.collect()))
    # The same execution, because each new one plans the tasks again.
    execution = filtered._jdf.queryExecution()
    assert ("Filter" not in execution.executedPlan().toString().replace("RuntimeFilters", "")) == is_pushed
    assert execution.toRdd().getNumPartitions() == tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "orders"}, "has no option topics"),
        ({"partition": "one"}, "option partition: 'one'"),
        ({"partition": "2147483648"}, "option partition: '2147483648'"),
        ({"records_per_task": "0"}, "option records_per_task: '0'"),
        ({"limit_factor": "0"}, "option limit_factor: '0'"),
        ({"limit_factor": "32"}, "option limit_factor: '32'"),
        ({"starting_offsets": "soon"}, "option starting_offsets: 'soon'"),
        ({"starting_offsets": '{"0": -3}'}, "option starting_offsets"),
        ({"topic": " , "}, "option topic is empty"),
        ({"metadata_partition": "-1"}, "option metadata_partition: '-1'"),
        ({"topic_id": f"{OTHER_ID}, garbage"}, "not a Kafka id: 'garbage'"),
        ({"fail_on_data_loss": "maybe"}, "option fail_on_data_loss: 'maybe'"),
        ({"metadata": "s4://bucket/x"}, "option metadata s4://bucket/x: unknown scheme"),
        ({"path": "/srv/kafka"}, "option metadata is file:///tmp, but load\\(...\\) has /srv/kafka"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MetadataOptions.of({"metadata": "file:///tmp"} | options)


def test_a_log_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    source = RemoteLogMetadataSource({"metadata": "file:///tmp", "log_dir": str(tmp_path / "mistyped")})
    for reader in (source.reader, source.streamReader):
        with pytest.raises(NotFoundError, match="mistyped: no such folder"):
            reader(source.schema())


@pytest.mark.parametrize(
    ("source", "reader"),
    [
        (RemoteLogMetadataSource, "reader"),
        (RemoteLogMetadataSource, "streamReader"),
        (RemoteLogSource, "reader"),
    ],
)
def test_what_no_load_can_use_is_refused(source: type[DataSource], reader: str, tmp_path: Path) -> None:
    """The files are read although only a topic on a cluster needs them, as commands do."""
    options = {"metadata": "/tmp"} | ({"remote": "/tmp"} if source is RemoteLogSource else {})
    with pytest.raises(UsageError, match="the schema of the load has no columns"):
        getattr(source(options), reader)(StructType([]))
    first = source(options).schema()[0]
    with pytest.raises(UsageError, match=f"no column {first.name} (int|string) NOT NULL"):
        getattr(source(options), reader)(StructType([StructField(first.name, first.dataType, False)]))
    for name in ("command_config", "broker_config"):
        loaded = source(options | {name: str(tmp_path / "mistyped.properties")})
        with pytest.raises(UsageError, match=r"mistyped\.properties can't be read"):
            getattr(loaded, reader)(loaded.schema())


def test_tracebacks_have_the_hint() -> None:
    """Spark shows the traceback of an error only."""
    with pytest.raises(UsageError, match="no option topics") as e:
        RemoteLogMetadataSource({"topics": "orders"}).schema()
    assert traceback.format_exception(e.value)[-1].startswith("hint: it has broker_config, command_config, ")


@pytest.mark.parametrize(
    ("name", "value"),
    [("starting_offsets", "latest"), ("MAX_offsets_per_trigger", "5"), ("fail_on_data_loss", "false")],
)
def test_options_of_streams_are_refused_by_other_reads(name: str, value: str) -> None:
    source = RemoteLogMetadataSource({"metadata": "file:///tmp", name: value})
    with pytest.raises(UsageError, match=f"option {name.lower()} is one of streams"):
        source.reader(source.schema())
    source.streamReader(source.schema())


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("/srv/a b", "file:///srv/a%20b"),
        ("file:///srv/kafka", "file:///srv/kafka"),
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("kafka://host:9092", "kafka://host:9092"),
    ],
)
def test_a_topic_is_named_as_commands_name_it(given: str, uri: str) -> None:
    assert MetadataOptions.of({"metadata": given}).location.uri == uri
    for named in ({"path": given}, {"path": given, "metadata": uri}):
        assert MetadataOptions.of(named).location.uri == uri


def test_a_timestamp_that_python_has_none_for_is_null() -> None:
    last = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
    found = timestamps(pa.array([-1, 0, 253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1]))
    assert found.to_pylist() == [None, datetime.fromtimestamp(0, UTC), last, None, None]


def test_options_narrow_as_conditions_do(mixed: Path, spark: "SparkSession") -> None:
    rows = read_rows(
        spark, f"file://{mixed}", topic="clicks, orders", partition="2", metadata_partition="1,2"
    )
    assert {(row["topic"], row["partition"]) for row in rows} == {("clicks", 2)}
    assert len(rows) == 9
    assert {row["topic_id"] for row in read_rows(spark, f"file://{mixed}", topic_id=OTHER_ID)} == {OTHER_ID}


def test_a_cluster_is_read_as_its_log(brokers: Brokers, spark: "SparkSession") -> None:
    broker = brokers.shared()
    broker.create_topic("spark-source", 2, tiered=True)
    broker.produce("spark-source", 3500)
    broker.await_idle()
    uri = f"kafka://{broker.bootstrap}"
    rows = sorted(rows_of_tasks(uri, records_per_task=2), key=place)
    assert {row["state"] for row in rows if row["topic"] == "spark-source"} >= {"COPY_SEGMENT_FINISHED"}
    assert list(map(as_json, rows)) == printed(broker.log_dir)
    (topic_id,) = {row["topic_id"] for row in rows if row["topic"] == "spark-source"}
    one = table(spark, uri).where(f"topic_id = '{topic_id}' and partition = 0")
    expected = [row for row in rows if (row["topic_id"], row["partition"]) == (topic_id, 0)]
    assert one.rdd.getNumPartitions() == 1
    assert len(expected) == one.count() > 0
    middle_ms = sorted(row["timestamp_ms"] for row in rows)[len(rows) // 2]
    condition = Predicate("timestamp_ms", ">=", middle_ms)
    later = sorted(rows_of_tasks(uri, condition), key=place)
    assert later == [row for row in rows if row["timestamp_ms"] >= middle_ms]
    tasks = plan_tasks(TopicLocation(uri=uri), predicates=(condition,))
    asked_for = sum(split.end_offset - split.start_offset for task in tasks for split in task)
    assert len(later) <= asked_for < len(rows)
