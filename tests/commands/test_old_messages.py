"""Every command that reads segments reads the message formats 0 and 1, which Kafka 4 tiers as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tierctl.spark.sources.remote_log import rows_of
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.cli.shell import tierctl
from tests.commands.restore.test_materialise import log_dir, new_id, records, restore, restored, rows
from tests.commands.restore.test_without_keys import emptied, key, options
from tests.locallog.made import PARTITION, TIME_MS, write_log
from tests.spark.sources.log.loads import tasks_of
from tests.support.faults import flip_bit
from tests.wire.batches.messages import message, wrapper

__all__ = ["key", "log_dir"]

GZIP, SNAPPY, LZ4 = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4
APPENDED_MS = TIME_MS + 99_000


def made(*offsets: int) -> list[Record]:
    return [Record(at, TIME_MS - 7 * (at % 3), b"k%d" % at, b"value %d " % at * 9) for at in offsets]


def plain(magic: int, *offsets: int) -> bytes:
    return b"".join(message(record, magic) for record in made(*offsets))


def old(magic: int, base: int) -> list[bytes]:
    """Return messages at 13 offsets from `base` on; the last wrapper of format 1 has the broker's time."""
    return [
        plain(magic, base, base + 1),
        wrapper(made(base + 2, base + 3, base + 4), magic, GZIP),
        wrapper(made(base + 5, base + 6, base + 8), magic, LZ4),
        plain(magic, base + 9),
        wrapper(made(base + 10, base + 12), magic, SNAPPY, appended_ms=APPENDED_MS if magic else None),
    ]


SEGMENTS: list[list[bytes]] = [
    old(0, 0),
    old(1, 13),
    [
        plain(0, 26),
        wrapper(made(27, 28, 29), 1, GZIP),
        encode_batch(made(30, 31), compression=LZ4),
        plain(1, 32),
        encode_batch(made(33, 34)),
    ],
    [],
]
END = 35
OF_0 = {*range(7), 8, 9, 10, 12, 26}
OF_1 = {13 + at for at in OF_0 - {26}} | {27, 28, 29, 32}
OF_2 = {30, 31, 33, 34}
APPENDED = {23, 25}


def expected(record: Record) -> dict[str, object]:
    """Return what a consumer receives."""
    at, timestamp_ms, kind = record.offset, record.timestamp_ms, "CreateTime"
    if at in OF_0:
        timestamp_ms, kind = -1, "NoTimestampType"
    elif at in APPENDED:
        timestamp_ms, kind = APPENDED_MS, "LogAppendTime"
    return {
        "offset": at,
        "timestamp_ms": timestamp_ms,
        "timestamp_type": kind,
        "leader_epoch": 0 if at in OF_2 else -1,
        "key": (record.key or b"").decode(),
        "value": (record.value or b"").decode(),
    }


EXPECTED = [expected(record) for record in made(*sorted(OF_0 | OF_1 | OF_2))]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_log(tmp_path / "logs", SEGMENTS, snapshots={13: (), 26: (), END: ()}, interval_bytes=150)
    return tmp_path / "logs"


@pytest.fixture
def tier(tmp_path: Path, logs: Path) -> tuple[object, ...]:
    """Return the options of a tier to which `copy` copied all segments."""
    (tmp_path / "metadata").mkdir()
    where = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "old-tier")
    topic = ("--topic", PARTITION.topic, "--assume-enabled", "--layout", "kafka")
    copied = tierctl("copy", *where, "--log-dir", logs, *topic, "--apply", "--output", "json").ok()
    assert [each["status"] for each in copied.json["outcomes"]] == ["done"] * 3
    return where


def shown(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in EXPECTED[0]} for row in found]


def without_type(found: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Leave out the type of the timestamps: changed messages are in batches of format 2, which have one."""
    return [(*each[:3], *each[4:]) for each in found]


def test_every_record_is_read(tier: tuple[object, ...]) -> None:
    assert shown(rows("fetch", *tier)) == EXPECTED
    for start in range(0, END, 3):
        found = rows("fetch", *tier, "--topic", PARTITION.topic, "--partition", "0", "--offset", start)
        assert shown(found) == [row for row in EXPECTED if int(str(row["offset"])) >= start]
    verified = tierctl("verify", *tier, "--deep", "--output", "json")
    assert (verified.code, verified.json) == (0, [])


def test_segments_are_what_their_messages_say(tier: tuple[object, ...]) -> None:
    found = sorted(rows("segments", *tier), key=lambda row: int(row["start_offset"]))
    assert [(row["start_offset"], row["end_offset"]) for row in found] == [(0, 12), (13, 25), (26, 34)]
    # Without a timestamp, a broker uses the time at which the file was changed.
    assert [row["max_timestamp_ms"] for row in found][1:] == [APPENDED_MS, TIME_MS]
    assert found[0]["max_timestamp_ms"] > APPENDED_MS


def test_rebuild_publishes_them(tmp_path: Path, tier: tuple[object, ...]) -> None:
    where = ("--metadata", tmp_path / "new", "--remote", tmp_path / "old-tier")
    ran = tierctl("rebuild", *where, "--apply", "--output", "json").ok()
    steps = ran.json["steps"]
    assert [(s["action"], s["start_offset"], s["end_offset"]) for s in steps] == [
        ("publish_segment", 0, 12),
        ("publish_segment", 13, 25),
        ("publish_segment", 26, 34),
    ]
    assert shown(rows("fetch", *where)) == EXPECTED
    assert tierctl("verify", *where, "--deep").code == 0


def test_restored_logs_have_them(log_dir: Path, tier: tuple[object, ...]) -> None:
    everything = records(*tier)
    for end in (1, 4, 12, 15, 24, 28, END):
        chosen = ("--topic", PARTITION.topic, "--as", f"then-{end}", "--as-id", new_id(f"{end:x}f"))
        restore(log_dir, *tier, *chosen, "--until", f"{PARTITION}={end}", "--apply").ok()
        found = restored(log_dir, f"then-{end}", "read_uncommitted")
        wanted = [each for each in everything if int(str(each[1])) < end]
        assert without_type(found) == without_type(wanted)


def test_the_data_source_reads_them(tier: tuple[object, ...]) -> None:
    source = {"metadata": str(tier[1]), "remote": str(tier[3]), "topic": PARTITION.topic}
    found = [row for task in tasks_of(source) for batch in rows_of(task) for row in batch.to_pylist()]
    wanted = [row | {name: str(row[name]).encode() for name in ("key", "value")} for row in EXPECTED]
    assert shown(found) == wanted


def test_records_of_a_key_are_emptied(log_dir: Path, tier: tuple[object, ...], key: Path) -> None:
    keys = {f"k{at}".encode().hex() for at in (0, 3, 8, 14, 23, 28, 32, 34)}
    more = options(key, log_dir, [f"hex:{each}" for each in keys])
    chosen = ("--topic", PARTITION.topic, "--as-id", new_id("emptied"))
    ran = restore(log_dir, *tier, *chosen, *more, "--apply").ok()
    assert "left out 8 records with 8 of 8 keys" in ran.err
    wanted = [emptied(each, set(keys)) for each in records(*tier)]
    found = restored(log_dir, PARTITION.topic, "read_uncommitted")
    assert without_type(found) == without_type(wanted)


@pytest.mark.parametrize(
    ("start", "at", "lost"),
    [(0, 40, (0, 0)), (0, 300, (2, 4)), (13, 130, (14, 14)), (13, 500, (18, 21)), (26, 200, (27, 29))],
)
def test_a_flipped_bit_costs_one_entry(
    tmp_path: Path, tier: tuple[object, ...], start: int, at: int, lost: tuple[int, int]
) -> None:
    first, last = lost
    (log,) = (tmp_path / "old-tier").rglob(f"{start:020d}-*.log")
    flip_bit(log, at)
    fetched = tierctl("fetch", *tier, "--output", "jsonl")
    assert fetched.code == 7
    assert f"offsets {first} to {last} may be lost there" in fetched.err
    found = fetched.rows
    assert shown(found) == [row for row in EXPECTED if not first <= int(str(row["offset"])) <= last]
    verified = tierctl("verify", *tier, "--deep", "--output", "json")
    (finding,) = verified.json
    assert (finding["check"], finding["start_offset"]) == ("corrupt_log", start)
    assert "CRC-32" in finding["found"]
    assert "at byte" in finding["found"]
