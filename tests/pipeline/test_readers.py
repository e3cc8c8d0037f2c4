"""The pipeline's tables are readable by other programs, and answer the queries of tierctl-warehouse(7)."""

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pytest
from tierctl.cli.docs.man import SOURCES
from tierctl.model import MetadataEvent, RemoteLogSegmentState

from tests.docs.documents import DOCUMENTS
from tests.metadata.events import OTHER_ID, started, update
from tests.pipeline.tables import TABLES, read, run, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = RemoteLogSegmentState
DAY_MS, MIB = 86_400_000, 1 << 20
NOW_MS = int(time.time() * 1000)
TOMORROW_MS = NOW_MS + DAY_MS
QUERIES = re.findall(r"^```sql\n(.*?)^```", (SOURCES / "warehouse.md").read_text(), re.DOTALL | re.MULTILINE)
BIGGEST, GROWTH, ORPHANS, SMALL, EXPIRING = QUERIES


def life(
    number: int, topic: str, size_bytes: int, newest_ms: int, states: list[RemoteLogSegmentState]
) -> list[MetadataEvent]:
    """Return events of a segment that was copied two hours after its end, with one later state per day."""
    own: dict[str, Any] = {"topic": topic, "topic_id": OTHER_ID if topic == "audit" else started(0).topic_id}
    begun = replace(
        started(number),
        **own,
        max_timestamp_ms=newest_ms,
        event_timestamp_ms=newest_ms + DAY_MS // 12,
        segment_size_in_bytes=size_bytes,
    )
    later = [
        replace(update(number, state), **own, event_timestamp_ms=begun.event_timestamp_ms + day * DAY_MS)
        for day, state in enumerate(states)
    ]
    return [begun, *later]


LIVES = [
    # The page's retention.ms: 3 days for orders, 90 days for audit, 7 days for others.
    life(1, "orders", 50 * MIB, TOMORROW_MS - 3 * DAY_MS, [S.COPY_SEGMENT_FINISHED]),
    life(2, "orders", 20 * MIB, TOMORROW_MS - 2 * DAY_MS, [S.COPY_SEGMENT_FINISHED]),
    life(3, "orders", 3 * MIB, NOW_MS - 30 * DAY_MS, []),
    life(4, "audit", 5 * MIB, TOMORROW_MS - 90 * DAY_MS, [S.COPY_SEGMENT_FINISHED]),
    life(5, "audit", 400 * MIB, NOW_MS - 40 * DAY_MS, [S.COPY_SEGMENT_FINISHED]),
    life(
        6,
        "orders",
        70 * MIB,
        NOW_MS - 60 * DAY_MS,
        [S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED],
    ),
    # The copy failed, so the segment was never in the tier.
    life(7, "orders", 9 * MIB, NOW_MS - 50 * DAY_MS, [S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `warehouse`, which has two commits."""
    folder = tmp_path_factory.mktemp("readers")
    for lives in (LIVES[:4], LIVES[4:]):
        write(folder / "topic", [event for events in lives for event in events])
        run(folder / "topic", folder / "warehouse", now_ms=NOW_MS)
    return folder


def load_extension(connection: duckdb.DuckDBPyConnection) -> None:
    (extension,) = Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return DuckDB with the extension installed from a package, whose signature DuckDB checks."""
    connection = duckdb.connect()
    load_extension(connection)
    # A time zone far from UTC, in which the tables count days.
    connection.execute("SET TimeZone = 'Pacific/Auckland'")
    yield connection
    connection.close()


@pytest.mark.parametrize("table", TABLES)
def test_duckdb_reads_the_tables(table: str, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    expected = read(folder / "warehouse", table)["metadata_partition"].to_pylist()
    query = f"SELECT metadata_partition FROM delta_scan('{folder / 'warehouse' / table}')"
    assert sorted(row[0] for row in connection.execute(query).fetchall()) == sorted(expected)
    assert expected


def test_the_examples_of_the_manual_run(
    folder: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the block of Python, and the line that reads the files with Spark, which has no jars of Delta.

    The bucket is in the names of the files only.
    """
    (page,) = (each for each in DOCUMENTS if each.name == "warehouse.md")
    (block,) = page.blocks("python")
    (line,) = (span for span in page.spans if span.startswith("spark.read.parquet("))
    monkeypatch.chdir(folder)
    load_extension(duckdb.default_connection())
    found: dict[str, Any] = {"spark": spark}
    exec(block, found)
    expected = read(folder / "warehouse", "segments").drop_columns(["bucket"])
    frame = eval(line, found)
    assert frame.columns == expected.column_names
    assert frame.count() == expected.num_rows
    *_, last = block.strip().splitlines()
    assert len(eval(last, found)) == expected.num_rows


@pytest.fixture
def answer(
    folder: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[Any]]:
    """Return what DuckDB answers a query at the time of the folder: a day may end before the query."""
    monkeypatch.chdir(folder)
    now = f"to_timestamp({NOW_MS} / 1000)"
    return lambda query: connection.execute(query.replace("now()", now)).fetchall()


def test_biggest_topics(answer: Callable[[str], list[Any]]) -> None:
    assert answer(BIGGEST) == [("audit", 1, 405 * MIB), ("orders", 1, 70 * MIB)]


def week(at_ms: int) -> Any:
    """Return the Monday of the week of a time."""
    day = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).date()
    return day - dt.timedelta(days=day.weekday())


def test_growth_per_week(answer: Callable[[str], list[Any]]) -> None:
    expected: dict[Any, list[int]] = {}
    for events in LIVES:
        size_bytes = getattr(events[0], "segment_size_in_bytes", 0)
        at_ms = {getattr(event, "state", None): event.event_timestamp_ms for event in events}
        if S.COPY_SEGMENT_FINISHED in at_ms:
            expected.setdefault(week(at_ms[S.COPY_SEGMENT_FINISHED]), [0, 0])[0] += size_bytes
            if S.DELETE_SEGMENT_FINISHED in at_ms:
                expected.setdefault(week(at_ms[S.DELETE_SEGMENT_FINISHED]), [0, 0])[1] += size_bytes
    rows = [(as_date(at), copied, deleted, growth) for at, copied, deleted, growth in answer(GROWTH)]
    assert rows == [(at, *both, both[0] - both[1]) for at, both in sorted(expected.items())]


def as_date(at: Any) -> Any:
    return at.date() if isinstance(at, dt.datetime) else at


def test_orphans_by_age(answer: Callable[[str], list[Any]]) -> None:
    ((state, days, segments, size_bytes),) = answer(ORPHANS)
    assert (state, segments, size_bytes) == ("COPY_SEGMENT_STARTED", 1, 3 * MIB)
    assert days == (NOW_MS // DAY_MS) - (NOW_MS - 30 * DAY_MS + DAY_MS // 12) // DAY_MS


def test_small_segments(answer: Callable[[str], list[Any]]) -> None:
    assert answer(SMALL) == [("audit", 1, 5 * MIB)]


def test_what_expires_tomorrow(answer: Callable[[str], list[Any]]) -> None:
    assert answer(EXPIRING) == [("orders", 1, 50 * MIB), ("audit", 1, 5 * MIB)]
