"""Conditions pushed down to `remote_log` reduce the reads and never drop a row."""

import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.errors import UsageError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.spark import register
from tierctl.spark.sources.load_options import LogOptions
from tierctl.spark.sources.metadata_splits import Predicate, Window

from tests.read.made import HOUR_MS, Asked, counting, day, made_tier
from tests.spark.sources.log.loads import rows
from tests.spark.sources.metadata.test_rows import is_true

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = Callable[[str], Path]
PARTITION = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "hours", 3)
DAY_MS = 10 * HOUR_MS
"""The start of the day."""


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a day without late records."""
    return made_tier(tmp_path_factory.mktemp("ordered"), PARTITION, day(random.Random(1)))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a day of records up to three hours late."""
    segments = day(random.Random(2), late_ms=3 * HOUR_MS)
    return made_tier(tmp_path_factory.mktemp("late"), PARTITION, segments)


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def some_predicates(rng: random.Random) -> Iterator[list[Predicate]]:
    """Return one to three conditions of all kinds."""

    def one() -> Predicate:
        column = rng.choice(["offset", "timestamp_ms", "timestamp", "partition", "topic", "leader_epoch"])
        value: Any
        match column:
            case "offset":
                value = rng.randrange(-5, 24 * 180 + 5)
            case "timestamp_ms":
                value = DAY_MS + rng.randrange(-HOUR_MS, 25 * HOUR_MS)
            case "timestamp":
                value = moment(DAY_MS + rng.randrange(25 * HOUR_MS)) + timedelta(
                    microseconds=rng.randrange(1000)
                )
            case "topic":
                value = rng.choice(["hours", "days"])
            case _:
                value = rng.choice([0, 3])
        kind = rng.choice(["<", "<=", ">", ">=", "=", "in"])
        if kind == "in":
            value = (value, value)
        return Predicate(column, kind, value, rng.random() < 0.15)

    while True:
        yield [one() for _ in range(rng.randint(1, 3))]


@pytest.mark.parametrize("late_ms", [None, 3 * HOUR_MS])
def test_conditions_leave_the_rows_they_are_true_of(late: dict[str, str], late_ms: int | None) -> None:
    everything = rows(late)
    assert len(everything) == 24 * 60 * 3
    rng = random.Random(7)
    options = late if late_ms is None else late | {"late_ms": str(late_ms)}
    for predicates, split in zip(some_predicates(rng), ["9000", "50000", "134217728"] * 8, strict=False):
        found = rows(options | {"bytes_per_task": split}, *predicates)
        assert found == [row for row in everything if all(is_true(p, row) for p in predicates)], predicates


def test_bounds_are_no_narrower_than_what_they_come_from() -> None:
    assert Window.of([], "offset") == Window((-(1 << 63) + 1, (1 << 63) - 1), None, None)
    at = moment(5000) + timedelta(microseconds=1)
    assert Window.of([Predicate("timestamp", ">=", at), Predicate("timestamp", "<", at)], "offset") == Window(
        (-(1 << 63) + 1, (1 << 63) - 1), 5001, 5000
    )
    assert Window.of(
        [Predicate("offset", "in", (9, 4)), Predicate("offset", "=", 3, True)], "offset"
    ).offsets == (4, 9)


def asked_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], *predicates: Predicate
) -> tuple[Asked, list[dict[str, Any]]]:
    with counting(monkeypatch) as asked:
        found = rows(options, *predicates)
    return asked, found


FROM_MS, TO_MS = DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS
HOUR = (Predicate("timestamp_ms", ">=", FROM_MS), Predicate("timestamp_ms", "<", TO_MS))


def test_an_hour_of_a_day_is_read_as_an_hour(
    ordered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everything = asked_for(monkeypatch, ordered)
    an_hour = [row for row in everything if FROM_MS <= row["timestamp_ms"] < TO_MS]
    assert len(whole.logs) == 24
    assert len(an_hour) == 180
    span = {"from_time": str(FROM_MS), "to_time": str(TO_MS - 1)}
    for options, predicates in (
        (ordered | span, ()),
        (ordered | {"late_ms": "0"}, HOUR),
        (ordered | span, HOUR),
    ):
        asked, found = asked_for(monkeypatch, options, *predicates)
        assert found == an_hour
        assert len(asked.logs) <= 2
        # The indexes are also read to find the first and last offset.
        assert asked.log_bytes <= 5 * whole.log_bytes / 24
        assert len({segment_id for segment_id, _ in asked.indexes}) <= 3


def test_from_a_time_on_nothing_before_it_is_read(
    ordered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everything = asked_for(monkeypatch, ordered)
    begin = DAY_MS + 23 * HOUR_MS + HOUR_MS // 2
    asked, found = asked_for(monkeypatch, ordered, Predicate("timestamp", ">=", moment(begin)))
    assert found == [row for row in everything if row["timestamp_ms"] >= begin]
    assert len(asked.logs) == 1
    assert asked.log_bytes < whole.log_bytes / 24 * 1.5


def test_up_to_a_time_all_that_may_be_late_is_read(
    late: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is hours later may contain a record of this hour."""
    everything = rows(late)
    an_hour = [row for row in everything if FROM_MS <= row["timestamp_ms"] < TO_MS]
    asked, found = asked_for(monkeypatch, late, *HOUR)
    assert found == an_hour
    assert len(asked.logs) == 15
    promised, found = asked_for(monkeypatch, late | {"late_ms": str(3 * HOUR_MS)}, *HOUR)
    assert found == an_hour
    assert len(promised.logs) == 5
    assert promised.log_bytes < asked.log_bytes / 2


def test_a_range_of_offsets_is_all_that_is_read(
    ordered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everything = asked_for(monkeypatch, ordered)
    asked, found = asked_for(
        monkeypatch, ordered, Predicate("offset", ">=", 1000), Predicate("offset", "<=", 1090)
    )
    assert found == everything[1000:1091]
    assert len(asked.logs) == 2
    assert asked.log_bytes < whole.log_bytes / 12
    asked, found = asked_for(monkeypatch, ordered, Predicate("topic", "=", "other"))
    assert (found, asked.log_bytes, asked.indexes) == ([], 0, {})


def test_spark_pushes_what_is_asked(
    spark: "SparkSession", late: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions as f

    register(spark)
    frame = spark.read.format("remote_log").options(**late).load()
    everything = rows(late)
    low, high = moment(FROM_MS), moment(TO_MS)
    asked = frame.where(
        (f.col("timestamp") >= low) & (f.col("timestamp") < high) & (f.col("topic") == "hours")
    )
    found = asked.where("partition in (3, 4) and offset % 2 = 0 and value is not null").toArrow().to_pylist()
    wanted = [r for r in everything if FROM_MS <= r["timestamp_ms"] < TO_MS and r["offset"] % 2 == 0]
    assert [r["offset"] for r in found] == [r["offset"] for r in wanted]
    asked.explain()
    plan = capfd.readouterr().out
    assert not re.search(r"\bFilter\b", plan), "Spark has nothing left to apply"


WRONG = {
    "no metadata": ({"metadata": ""}, "metadata is missing"),
    "unknown": ({"topics": "x"}, "no option topics"),
    "mode": ({"mode": "DROPMALFORMED"}, "mode: 'DROPMALFORMED'"),
    "isolation": ({"isolation_level": "all"}, "isolation_level"),
    "partition": ({"partition": "1-2"}, "numbers, commas between"),
    "empty": ({"topic": ""}, "topic is empty"),
    "bytes": ({"bytes_per_task": "0"}, "1 or more"),
    "late": ({"late_ms": "-1"}, "0 or more"),
    "time": ({"from_time": "soon"}, "not a time"),
    "store": ({"remote": "ftp://x/y"}, "unknown scheme"),
    "layout": ({"layout": "flat"}, "layout: 'flat'"),
    "topic id": ({"topic_id": "short"}, "short"),
}


@pytest.mark.parametrize("what", WRONG)
def test_options_that_make_no_sense_are_told(ordered: dict[str, str], what: str) -> None:
    change, told = WRONG[what]
    with pytest.raises(UsageError) as e:
        LogOptions.of(ordered | change)
    assert told in f"{e.value.message} {e.value.hint}"
