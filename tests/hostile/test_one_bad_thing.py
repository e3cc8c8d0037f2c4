"""One bad record of the metadata, or one bad object, ends no run: the others are read and acted on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.cli.entry import run
from tierctl.errors import ExitCode
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.wire.batches.batch_head import CompressionType
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata.values import decode, encode, metadata_partition

from tests.hostile.worlds import World, joined, plain_batch
from tests.metadata.events import update_of
from tests.storage.segments import metadata_of
from tests.wire.batches.messages import message, wrapper

LARGEST = (1 << 63) - 1
RECORDS: dict[str, dict[str, Any]] = {
    "partition -5": {"partition": -5},
    "lowest partition": {"partition": -1 << 31},
    "highest partition": {"partition": (1 << 31) - 1},
    "highest offset": {"start_offset": LARGEST, "end_offset": LARGEST},
    "all offsets": {"start_offset": 0, "end_offset": LARGEST},
    "negative size": {"segment_size_in_bytes": -5},
    "name with a path": {"topic": "../x/\x1b[31m\n"},
    "name beyond ASCII": {"topic": "é\u2028"},
    "folder above": {"topic": ".."},
    "lowest broker": {"broker_id": -1 << 31},
    "id of zeros": {"topic_id": Uuid("AAAAAAAAAAAAAAAAAAAAAA")},
    "custom metadata": {"custom_metadata": b"\xff\xff\xff\xff\xff\xff\x01\x00"},
    "latest event": {"event_timestamp_ms": LARGEST},
    "highest epoch": {"segment_leader_epochs": (((1 << 31) - 1, LARGEST),)},
}


@pytest.fixture(params=RECORDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    made = World(tmp_path).partitions(2)
    bad = replace(metadata_of(7), **RECORDS[request.param])
    found = decode(encode(bad))
    assert isinstance(found, RemoteLogSegmentMetadata)
    made.append(encode(bad), partition=metadata_partition(bad.topic_id, bad.partition, 50))
    return made


def test_every_command_goes_on(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["verify", "--deep"],
        ["segments", "--all"],
        ["segments", "--sizes"],
        ["status"],
        ["report"],
        ["explain", "orders", "0"],
        ["delete"],
        ["fetch"],
    ):
        code = run([*command, *world.where])
        said = capfd.readouterr()
        assert code in {0, 3, 4, 7}, (command, said.err)
        assert "internal:" not in said.err
        assert "\x1b" not in said.out + said.err
        if command == ["fetch"]:
            assert len(said.out.splitlines()) >= 10
        if command[0] == "segments":
            assert "orders" in said.out


def test_a_plan_of_the_others_can_be_applied(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    settings = world.folder / "topics.properties"
    settings.write_text("orders.retention.ms=1000\n")
    plan = world.folder / "plan.json"
    common = [*world.where, "--topic-configs", str(settings)]
    assert run(["sweep", *common, "--plan-out", str(plan)]) in {0, 7}
    steps = [step["partition"] for step in json.loads(plan.read_text())["steps"]]
    assert 1 in steps
    assert run(["apply", str(plan), *common, "--apply", "--yes"]) in {0, 3, 7}, capfd.readouterr().err
    assert "internal:" not in capfd.readouterr().err
    assert not list(world.remote.rglob("orders-1-*/*.log"))


def _with_finished(world: World, name: str) -> None:
    """Append a bad record and the event that its copy has finished, so that it has records to read."""
    bad = replace(metadata_of(7), **RECORDS[name])
    partition = metadata_partition(bad.topic_id, bad.partition, 50)
    for event in (bad, update_of(bad, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)):
        world.append(encode(event), partition=partition)


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(
    "name", ["partition -5", "name with a path", "name beyond ASCII", "folder above", "lowest partition"]
)
def test_a_tier_is_looked_for_without_illegal_names(
    name: str, is_finished: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No other segment is finished, so that only the bad one could identify the tier."""
    world = World(tmp_path)
    (world.remote / "kafka-tiered-storage").mkdir(parents=True)
    bad = replace(metadata_of(7), topic_id=Uuid("AAAAAAAAAAAAAAAAAAAABQ"), **RECORDS[name])
    world.append(bad, metadata_of(8))
    if is_finished:
        world.append(update_of(bad, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    for command in ("segments", "status", "report", "sweep", "delete", "verify"):
        code = run([command, *world.where, "-o", "jsonl"])
        said = capfd.readouterr()
        assert code in {0, 3, 7}, (command, said.err)
        if command == "segments":
            assert [json.loads(line)["segment_id"] for line in said.out.splitlines()].count(
                metadata_of(8).segment_id
            ) == 1


def test_custom_metadata_that_name_no_place_are_a_finding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world, log = World(tmp_path), joined([plain_batch(offset, b"value") for offset in range(10)])
    for number in range(2):
        made = world.segment(number, log, end_offset=9, partition=number, layout=AivenLayout(AivenSettings()))
    next(world.remote.rglob(f"*{made.segment_id}*.log")).unlink()
    _with_finished(world, "custom metadata")
    assert run(["verify", *world.where, "-o", "jsonl"]) == ExitCode.CORRUPT
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    missing = {row["segment_id"]: row["found"] for row in rows if row["check"] == "missing_object"}
    assert set(missing) == {made.segment_id, metadata_of(7).segment_id}
    assert "expected a number of 32 bits" in missing[metadata_of(7).segment_id]


@pytest.fixture
def two_partitions(tmp_path: Path) -> World:
    return World(tmp_path).partitions(2)


def _restored(world: World, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, list[str]]:
    """Return exit code, messages and the logs written by a restore of all topics to a new broker."""
    broker = world.folder / "broker"
    for number in range(2):
        folder = broker / f"orders-{number}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA\n")
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    code = run(["restore", "log", "--topic", "*", "--log-dir", str(broker), *world.where, "--apply"])
    written = sorted({path.parent.name for path in broker.rglob("*.log")})
    return code, capfd.readouterr().err, written


def test_an_illegal_partition_does_not_end_a_restore(
    two_partitions: World, capfd: pytest.CaptureFixture[str]
) -> None:
    _with_finished(two_partitions, "partition -5")
    code, err, written = _restored(two_partitions, capfd)
    assert code == ExitCode.CORRUPT
    assert "skipped orders--5: not understood: " in err
    assert written == ["orders-0", "orders-1"]


def test_an_illegal_name_in_a_partition_keeps_this_partition_only(
    two_partitions: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """The record has the topic id and the number of a legal partition, and another name."""
    _with_finished(two_partitions, "name with a path")
    assert run(["fetch", *two_partitions.where]) == ExitCode.NOT_FOUND
    said = capfd.readouterr()
    assert len(said.out.splitlines()) == 20
    assert "not a legal topic partition for a path" in said.err
    code, err, written = _restored(two_partitions, capfd)
    assert (code, written) == (ExitCode.REFUSED, [])
    assert "skipped orders-0: not understood: not a legal topic partition" in err


@pytest.mark.parametrize("count", [1, 2])
def test_events_of_the_future_keep_their_partition_only(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`count` of three partitions have one: with two of three, the clock is wrong."""
    world = World(tmp_path).partitions(3)
    for number in range(count):
        world.append(replace(metadata_of(7 + number, partition=number), event_timestamp_ms=1 << 44))
    settings = tmp_path / "topics.properties"
    settings.write_text("orders.retention.ms=1000\n")
    common = [*world.where, "--topic-configs", str(settings)]
    plan = tmp_path / "plan.json"

    code = run(["sweep", *common, "--plan-out", str(plan)])
    err = capfd.readouterr().err
    assert code == (7 if count == 1 else 4)
    assert "orders-0 has an event of 2527-" in err
    if count == 2:
        assert not plan.exists()
        return
    assert {step["partition"] for step in json.loads(plan.read_text())["steps"]} == {1, 2}
    assert run(["report", *common, "-o", "json"]) in {0, 3, 7}
    assert '"orders"' in capfd.readouterr().out
    for partition in range(3):
        assert run(["explain", "orders", str(partition), *common, "-o", "jsonl"]) in (
            {0} if partition else {0, 7}
        )
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert "orders" in {row["topic"] for row in rows}


@pytest.mark.parametrize("kind", [None, CompressionType.GZIP, CompressionType.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_metadata_in_old_formats_are_read_whole(
    magic: int, kind: CompressionType | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The offset in the head of compressed messages is that of the last one."""
    world = World(tmp_path)
    for number in range(9):
        start = 10 * number
        log = joined([plain_batch(offset, b"value") for offset in range(start, start + 10)])
        world.segment(number, log, start_offset=start, end_offset=start + 9)
    expected = _read(world, capfd)
    assert len(expected) == 9
    for file in world.metadata.glob("__remote_log_metadata-*/*.log"):
        records = [record for batch in batches(file.read_bytes()) for record in batch.records()]
        groups = [records[at : at + 5] for at in range(0, len(records), 5)]
        wrappers = (wrapper(each, magic, kind or CompressionType.NONE) for each in groups)
        parts = wrappers if kind else (message(each, magic) for each in records)
        file.write_bytes(joined(list(parts)))
        for index in (*file.parent.glob("*.index"), *file.parent.glob("*.timeindex")):
            index.unlink()
    assert _read(world, capfd) == expected
    state = tmp_path / "state"
    for _ in range(2):
        assert _read(world, capfd, "--state-dir", str(state)) == expected
    partition = metadata_partition(metadata_of(0).topic_id, 0, 50)
    for start in range(18):
        part = ("--metadata-partition", str(partition), "--from-offset", str(start), "-o", "jsonl")
        assert run(["format", "--metadata", str(world.metadata), *part]) == 0
        assert len(capfd.readouterr().out.splitlines()) == 18 - start
    world.segment(9, plain_batch(90, b"value"), start_offset=90, end_offset=90)
    assert _read(world, capfd, "--state-dir", str(state)) == [*expected, 90]


def _read(world: World, capfd: pytest.CaptureFixture[str], *more: str) -> list[Any]:
    assert run(["segments", *world.where, "-o", "jsonl", *more]) == 0, capfd.readouterr().err
    return [json.loads(line)["start_offset"] for line in capfd.readouterr().out.splitlines()]
