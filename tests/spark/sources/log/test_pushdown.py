"""Conditions pushed down to `remote_log` drop no row; with damage, all other records are returned."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import EqualTo
from tierctl.errors import CorruptInputError, NotFoundError, RemoteResourceNotFound, TierctlError, UsageError
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.spark import register
from tierctl.spark.sources.load_options import LogOptions
from tierctl.spark.sources.metadata_splits import Predicate, Window
from tierctl.spark.sources.remote_log import RemoteLogReader
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.record_batch import ControlType

from tests.locallog.made import damage_last_batch
from tests.metadata.topics import manager_at
from tests.read.made import HOUR_MS, Asked, counting, day, made_tier
from tests.read.test_damage import heads
from tests.read.test_partition_reader import cut
from tests.read.test_transactions import Log, World
from tests.read.tier import Tier
from tests.spark.sources.log.loads import rows
from tests.spark.sources.metadata.test_rows import is_true
from tests.spark.worlds import Capture
from tests.storage.tiers import local_tier
from tests.support.amounts import rest_in_matrix
from tests.support.faults import flip_bit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARTITION = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "hours", 3)
DAY_MS = 10 * HOUR_MS
"""The start of the day."""
FROM_MS, TO_MS = DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS
SPAN = {"from_time": str(FROM_MS), "to_time": str(TO_MS - 1)}


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


@pytest.mark.parametrize("seed", rest_in_matrix([7, 8, 9]))
@pytest.mark.parametrize("more", [{}, {"late_ms": str(3 * HOUR_MS)}, SPAN, {"to_time": SPAN["to_time"]}])
def test_conditions_leave_the_rows_they_are_true_of(
    late: dict[str, str], more: dict[str, str], seed: int
) -> None:
    options, rng = late | more, random.Random(seed)
    everything = rows(options)
    assert ("to_time" in more) == (len(everything) < 24 * 60 * 3)
    above = [Predicate("offset", ">=", everything[-1]["offset"] + 50)]
    asked = [above, *islice(some_predicates(rng), 9)]
    for predicates, split in zip(asked, cycle(["9000", "50000", "134217728"]), strict=False):
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


HOUR = (Predicate("timestamp_ms", ">=", FROM_MS), Predicate("timestamp_ms", "<", TO_MS))

BEGIN = Predicate("timestamp", ">=", moment(DAY_MS + 23 * HOUR_MS + HOUR_MS // 2))
OFFSETS = (Predicate("offset", ">=", 1000), Predicate("offset", "<=", 1090))
AN_HOUR = slice(9 * 180, 10 * 180)


@dataclass(frozen=True, slots=True)
class Cost:
    """The rows that are asked for, and the most logs, indexes and share of bytes that are read for them."""

    rows: slice
    logs: int
    indexes: int
    share: float


COSTS: dict[str, tuple[dict[str, str], tuple[Predicate, ...], Cost]] = {
    # The indexes are also read to find the first and last offset.
    "an hour by options": (SPAN, (), Cost(AN_HOUR, 2, 3, 5 / 24)),
    "an hour by conditions": ({"late_ms": "0"}, HOUR, Cost(AN_HOUR, 2, 3, 5 / 24)),
    "an hour by both": (SPAN, HOUR, Cost(AN_HOUR, 2, 3, 5 / 24)),
    "from a time on": ({}, (BEGIN,), Cost(slice(4230, None), 1, 24, 1.5 / 24)),
    "offsets": ({}, OFFSETS, Cost(slice(1000, 1091), 2, 3, 2 / 24)),
    "nothing": ({}, (Predicate("topic", "=", "other"),), Cost(slice(0), 0, 0, 0)),
}


@pytest.mark.parametrize("what", COSTS)
def test_what_is_asked_for_is_all_that_is_read(
    what: str, ordered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more, predicates, cost = COSTS[what]
    whole, everything = asked_for(monkeypatch, ordered)
    assert (len(whole.logs), len(everything)) == (24, 24 * 180)
    asked, found = asked_for(monkeypatch, ordered | more, *predicates)
    assert found == everything[cost.rows]
    assert len(asked.logs) <= cost.logs
    assert len({segment_id for segment_id, _ in asked.indexes}) <= cost.indexes
    assert asked.log_bytes <= cost.share * whole.log_bytes


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


def test_no_filter_is_accepted_without_push_down(late: dict[str, str]) -> None:
    filters = [EqualTo(("offset",), 3)]
    readers = [RemoteLogReader(LogOptions.of(late | more), ()) for more in ({}, {"push_down": "false"})]
    assert [[*reader.pushFilters(filters)] for reader in readers] == [[], filters]


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
    "bytes": ({"bytes_per_task": "0"}, "1 or more"),
    "limits": ({"limit_factor": "1000000"}, "up to 31"),
    "late": ({"late_ms": "-1"}, "0 or more"),
    "time": ({"from_time": "soon"}, "not a time"),
    "rate": ({"throttle_fetch": "0"}, "no number of bytes per second"),
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


PERMISSIVE = {"mode": "permissive"}


class Damaged:
    """A copy of one partition of a tier, and its segments."""

    def __init__(self, root: Path, folder: Path) -> None:
        shutil.copytree(root / "before-remote", folder / "remote", ignore=shutil.ignore_patterns("[!o]*-?-*"))
        self.tier = Tier.of(root / "before", folder / "remote")
        self.segments: list[RemoteLogSegmentMetadata] = self.tier.segments("orders")
        self.options = {
            "metadata": str(root / "before"),
            "remote": str(folder / "remote"),
            "topic": "orders",
            "partition": "0",
        }

    def object(self, number: int, suffix: str) -> Path:
        return self.tier.object(self.segments[number], suffix)

    def flip_batch(self, number: int, batch: int) -> tuple[int, int]:
        """Flip a bit in a batch; return its first and last offset."""
        log = self.object(number, ".log")
        position, first, last = heads(log)[batch]
        flip_bit(log, position + 200)
        return first, last


@pytest.fixture
def damaged(capture: Capture, tmp_path: Path) -> Damaged:
    return Damaged(capture("tiered-cluster"), tmp_path)


def split(found: list[dict[str, Any]]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the offsets of records, and the rows of errors."""
    errors = [row for row in found if row["error"] is not None]
    assert all(row["value"] is None and row["timestamp_ms"] is None for row in errors)
    return [row["offset"] for row in found if row["error"] is None], errors


@pytest.mark.parametrize("bytes_per_task", ["300000", "134217728"])
def test_a_damaged_batch_costs_itself(damaged: Damaged, bytes_per_task: str) -> None:
    first, last = damaged.flip_batch(1, 1)
    options = damaged.options | {"bytes_per_task": bytes_per_task}
    with pytest.raises(CorruptInputError) as e:
        rows(options)
    segment_id = damaged.segments[1].segment_id
    assert segment_id in e.value.message
    assert "at byte" in e.value.message
    assert "mode=PERMISSIVE" in e.value.__notes__[0]

    offsets, errors = split(rows(options | PERMISSIVE))
    assert offsets == [*range(first), *range(last + 1, 3000)]
    assert {row["offset"] for row in errors} <= set(range(first, last + 1))
    for row in errors:
        assert (row["topic"], row["partition"]) == ("orders", 0)
        assert segment_id in row["error"]
        assert f"to {last} may be lost there" in row["error"] or bytes_per_task == "300000"
    assert len(errors) == 1 or bytes_per_task == "300000"


def test_a_damaged_index_costs_nothing(damaged: Damaged, capfd: pytest.CaptureFixture[str]) -> None:
    damaged.object(1, ".index").write_bytes(b"\x00\x01\x02")
    asked = Predicate("offset", ">=", damaged.segments[1].start_offset + 300)
    found = rows(damaged.options, asked)
    assert [row["offset"] for row in found] == list(range(damaged.segments[1].start_offset + 300, 3000))
    assert "offset index" in capfd.readouterr().err
    offsets, (error,) = split(rows(damaged.options | PERMISSIVE, asked))
    assert offsets == [row["offset"] for row in found]
    assert error["offset"] is None
    assert "offset index" in error["error"]


def test_damage_out_of_range_is_nobodys_concern(damaged: Damaged) -> None:
    first, last = damaged.flip_batch(3, 1)
    asked = Predicate("offset", "<", first)
    assert [row["offset"] for row in rows(damaged.options, asked)] == list(range(first))
    asked = Predicate("offset", ">", last)
    assert [row["offset"] for row in rows(damaged.options | PERMISSIVE, asked)] == list(range(last + 1, 3000))


def test_errors_are_rows_as_to_all_but_their_place(damaged: Damaged) -> None:
    first, last = damaged.flip_batch(1, 0)
    only = rows(damaged.options | PERMISSIVE, Predicate("error", "is null", is_negated=True))
    assert len(only) == 1
    assert only[0]["offset"] == first
    for predicates in (
        [Predicate("offset", ">=", last - 1)],
        [Predicate("timestamp_ms", ">", 5)],
        [Predicate("topic", "=", "orders"), Predicate("offset", "is null", is_negated=True)],
    ):
        _, errors = split(rows(damaged.options | PERMISSIVE, *predicates))
        assert len(errors) == 1, predicates
    for predicates in ([Predicate("error", "is null")], [Predicate("value", "is null", is_negated=True)]):
        _, errors = split(rows(damaged.options | PERMISSIVE, *predicates))
        assert errors == [], predicates


@pytest.mark.parametrize("is_missing", [True, False], ids=["no log", "damaged batch"])
def test_a_seek_over_what_can_not_be_read_is_no_silent_one(damaged: Damaged, *, is_missing: bool) -> None:
    """The first record of the time may be there."""
    position, first, last = heads(damaged.object(1, ".log"))[1]
    stamp_ms = 1 + max(row["timestamp_ms"] for row in rows(damaged.options) if row["offset"] < first)
    if is_missing:
        damaged.object(1, ".log").unlink()
        last = damaged.segments[1].end_offset
    else:
        flip_bit(damaged.object(1, ".log"), position + 200)
    lost = f"offsets {damaged.segments[1].start_offset} to {last} may be lost there"
    options = damaged.options | {"from_time": str(stamp_ms)}
    with pytest.raises(TierctlError, match=damaged.segments[1].segment_id) as e:
        rows(options)
    assert f"{lost}; with option mode=PERMISSIVE" in e.value.__notes__[0]
    offsets, (error,) = split(rows(options | PERMISSIVE))
    assert offsets == [*range(last + 1, 3000)]
    assert lost in error["error"]


def stored(log: Log, folder: Path) -> dict[str, str]:
    """Store the segments of a log as a tier without transaction indexes; return its options."""
    world, remote = World(random.Random(1)), local_tier(folder / "remote")
    for number, segment in enumerate(log.segments):
        world.copy(segment, [(0, 0)], flagged=False, lost="transaction indexes")
        started = world.events[2 * number]
        assert isinstance(started, RemoteLogSegmentMetadata)
        kept = world.store.objects
        (folder / "log").write_bytes(segment[2])
        data = LogSegmentData(
            log_segment=hashed_file(folder / "log"),
            indexes={
                IndexType.OFFSET: b"",
                IndexType.TIMESTAMP: b"",
                IndexType.TRANSACTION: None,
                IndexType.PRODUCER_SNAPSHOT: kept[started.segment_id, IndexType.PRODUCER_SNAPSHOT],
                IndexType.LEADER_EPOCH: kept[started.segment_id, IndexType.LEADER_EPOCH],
            },
        )
        remote.copy_log_segment_data(started, data)
    with closing(manager_at(folder / "metadata", writable=True)) as metadata:
        metadata.publish(world.events)
    return {"metadata": str(folder / "metadata"), "remote": str(folder / "remote")}


def test_a_transaction_whose_end_can_not_be_read_is_no_silent_one(tmp_path: Path) -> None:
    """Its records are left out, and the segment with its end has none of the rows that are asked for."""
    log = Log()
    log.plain()
    log.write(1, 2)
    log.roll()
    log.plain()
    log.end(1, ControlType.COMMIT)
    log.roll()
    log.plain()
    log.roll()
    options = stored(log, tmp_path) | {"isolation_level": "read_committed"}
    asked = Predicate("offset", "<", 3)
    assert [row["offset"] for row in rows(options, asked)] == [0, 1, 2]
    (end,) = (tmp_path / "remote").rglob(f"{3:020}-*.log")
    end.unlink()
    with pytest.raises(RemoteResourceNotFound) as e:
        rows(options, asked)
    assert "offsets 1 to 4 may be lost there" in e.value.__notes__[0]
    offsets, (error,) = split(rows(options | PERMISSIVE, asked))
    assert offsets == [0]
    assert "offsets 1 to 4 may be lost there" in error["error"]


def without_topic_id(folder: Path) -> int:
    """Damage partition.metadata; return the offset at which the tier ends."""
    (folder / "partition.metadata").write_bytes(b"version: 0\n")
    return 1444


@pytest.mark.parametrize("damage", [damage_last_batch, without_topic_id])
def test_a_log_that_can_not_be_read_is_no_silent_one(
    capture: Capture, writable: Capture, damage: Callable[[Path], int]
) -> None:
    """What lies above the asked offsets, or is another topic's, is nobody's concern."""
    root, log_dir = capture("unclean-leader") / "before", writable("unclean-leader/before/broker-1")
    options = {"metadata": str(root / "broker-1"), "remote": str(root / "remote"), "log_dir": str(log_dir)}
    wallets = options | {"topic": "wallets"}
    assert [row["offset"] for row in rows(wallets)] == [*range(1550)]
    end = damage(log_dir / "wallets-0")
    with pytest.raises(CorruptInputError, match="wallets-0"):
        rows(wallets)
    offsets, (error,) = split(rows(wallets | PERMISSIVE))
    assert offsets == [*range(end)]
    assert "wallets-0" in error["error"]
    assert rows(options | {"topic": "payouts"})
    if damage is damage_last_batch:
        assert len(rows(wallets, Predicate("offset", "<", end))) == end


def test_a_log_that_lags_behind_the_tier_is_no_silent_one(capture: Capture, writable: Capture) -> None:
    root, log_dir = capture("unclean-leader") / "before", writable("unclean-leader/before/broker-2")
    cut(log_dir / "wallets-0", 576)
    options = {"metadata": str(root / "broker-2"), "remote": str(root / "remote"), "log_dir": str(log_dir)}
    wallets = options | {"topic": "wallets"}
    below = Predicate("offset", "<", 576)
    for asked in ({}, {"to_time": "2100-01-01T00:00:00Z"}, {"from_time": "2100-01-01T00:00:00Z"}):
        with pytest.raises(NotFoundError, match="offsets 576 to 1443"):
            rows(wallets | asked)
        offsets, (error,) = split(rows(wallets | asked | PERMISSIVE))
        assert offsets == ([] if "from_time" in asked else [*range(576)])
        assert "offsets 576 to 1443" in error["error"]
    assert [row["offset"] for row in rows(wallets, below)] == [*range(576)]


def test_a_folder_that_is_no_log_directory_is_told(damaged: Damaged) -> None:
    with pytest.raises(NotFoundError, match="no broker's log directory"):
        rows(damaged.options | PERMISSIVE | {"log_dir": damaged.options["remote"] + "/.."})


def test_metadata_that_can_not_be_read_may_hide_segments(damaged: Damaged, tmp_path: Path) -> None:
    shutil.copytree(damaged.options["metadata"], tmp_path / "metadata")
    (log, *_) = (log for log in (tmp_path / "metadata").rglob("__remote_log*/*.log") if log.stat().st_size)
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    options = {"metadata": str(tmp_path / "metadata"), "remote": damaged.options["remote"]}
    with pytest.raises(TierctlError):
        rows(options)
    _, errors = split(rows(options | PERMISSIVE))
    assert any("__remote_log_metadata" in row["error"] and row["topic"] is None for row in errors)


def test_spark_shows_the_error_or_the_rows(spark: "SparkSession", damaged: Damaged) -> None:
    from pyspark.errors import PySparkException

    register(spark)
    first, last = damaged.flip_batch(1, 1)
    damaged.object(3, ".log").unlink()
    reader = spark.read.format("remote_log").options(**damaged.options)
    with pytest.raises(PySparkException) as e:
        reader.load().toArrow()
    assert damaged.segments[1].segment_id in str(e.value)
    assert "may be lost there; with option mode=PERMISSIVE" in str(e.value)

    frame = reader.option("mode", "PERMISSIVE").load()
    offsets, errors = split(frame.where(f"offset >= {first}").toArrow().to_pylist())
    missing = damaged.segments[3]
    expected = {*range(first, 3000)} - {*range(first, last + 1)}
    assert set(offsets) == expected - {*range(missing.start_offset, missing.end_offset + 1)}
    assert [row["offset"] for row in errors] == [first, missing.start_offset]
    assert frame.where("error is not null").count() == 2
