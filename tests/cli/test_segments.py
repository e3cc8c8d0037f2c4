"""`tierctl segments` as a command, compared with brokers' tools and captured buckets."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.cli.entry import run
from tierctl.commands.segments import SEGMENTS
from tierctl.model import (
    RemoteLogSegmentState,
    TopicPartition,
)
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.locallog.made import raise_log_start
from tests.metadata.events import update_of
from tests.metadata.topics import topic_in
from tests.plan.tier import segment as made

Capture = Callable[[str], Path]
Captured = pytest.CaptureFixture[str]


def rows(capsys: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of(root: Path, stage: str) -> list[str]:
    return ["segments", f"--metadata={root / stage}", f"--remote={root / f'{stage}-remote'}", "-o", "jsonl"]


def unclean(capture: Capture, stage: str) -> list[str]:
    root = capture("unclean-leader") / stage
    return ["segments", f"--metadata={root / 'broker-1'}", "-o", "jsonl"]


def with_logs(capture: Capture, stage: str) -> list[str]:
    root = capture("unclean-leader") / stage
    return [f"--remote={root / 'remote'}", *(f"--log-dir={root / b}" for b in ("broker-1", "broker-2"))]


@pytest.mark.parametrize("stage", ["before", "after"])
def test_live_segments_are_those_in_the_bucket(capture: Capture, capsys: Captured, stage: str) -> None:
    root = capture("tiered-cluster")
    in_bucket = {(log.parent.name, log.stem) for log in (root / f"{stage}-remote").rglob("*.log")}
    assert run(of(root, stage)) == 0
    found = rows(capsys)
    assert {
        (f"{r['topic']}-{r['partition']}-{r['topic_id']}", f"{r['start_offset']:020d}-{r['segment_id']}")
        for r in found
    } == in_bucket
    assert all(tuple(r) == SEGMENTS.names for r in found)
    order = [(r["topic"], r["partition"], r["start_offset"], r["event_timestamp_ms"]) for r in found]
    assert order == sorted(order)


def test_all_segments_are_those_the_broker_ever_wrote_of(capture: Capture, capsys: Captured) -> None:
    root = capture("tiered-cluster")
    text = (root / "answers" / "formatter.txt").read_text()
    ever = set(re.findall(r", id=([A-Za-z0-9_-]{22})\}", text))
    assert run([*of(root, "after"), "--all"]) == 0
    found = rows(capsys)
    assert {r["segment_id"] for r in found} == ever
    assert len(found) == len(ever)
    states = {r["segment_id"]: r["state"] for r in found}
    last = dict(re.findall(r", id=([A-Za-z0-9_-]{22})\}[^\n]*state=([A-Z_]+)", text))
    assert states == last


@pytest.mark.parametrize("stage", ["before", "after"])
def test_sizes_are_those_of_the_objects(capture: Capture, capsys: Captured, stage: str) -> None:
    root = capture("tiered-cluster")
    assert run([*of(root, stage), "--sizes"]) == 0
    for row in rows(capsys):
        files = list((root / f"{stage}-remote").rglob(f"*-{row['topic_id']}/*"))
        assert row["objects"] == len(files)
        assert row["object_bytes"] == sum(file.stat().st_size for file in files)
        assert row["log_bytes"] == sum(f.stat().st_size for f in files if f.suffix == ".log")
        assert row["object_bytes"] > row["log_bytes"]


def test_sizes_tell_finished_segments_from_those_being_copied_or_deleted(
    tmp_path: Path, capsys: Captured
) -> None:
    """Brokers count no segment in state COPY_SEGMENT_STARTED as size (KAFKA-17062)."""
    topic = topic_in(tmp_path, writable=True)
    for steps in range(1, 5):
        metadata = made(steps, 100 * steps, 100 * steps + 99, size=10**steps)
        events = [metadata, *(update_of(metadata, state) for state in list(RemoteLogSegmentState)[1:steps])]
        partition = metadata_partition(metadata.topic_id, metadata.partition, topic.partition_count)
        topic.append([(partition, encode(event)) for event in events])
    topic.close()
    assert run(["segments", "--metadata", str(tmp_path), "--sizes", "-o", "jsonl"]) == 0
    [row] = rows(capsys)
    assert (row["segments"], row["log_bytes"]) == (1, 10**2)
    assert (row["copying_segments"], row["copying_bytes"]) == (1, 10**1)
    assert (row["deleting_segments"], row["deleting_bytes"]) == (1, 10**3)


def test_sizes_by_epoch_count_a_segment_in_each_of_its_epochs(capture: Capture, capsys: Captured) -> None:
    metadata = f"--metadata={capture('delete-across-epoch') / 'before'}"
    assert run(["segments", metadata, "-o", "json"]) == 0
    expected: dict[tuple[str, int, int], list[int]] = {}
    for row in json.loads(capsys.readouterr().out):
        for epoch, _ in row["segment_leader_epochs"]:
            key = row["topic"], row["partition"], epoch
            expected.setdefault(key, []).append(row["segment_size_in_bytes"])
    assert run(["segments", metadata, "--sizes", "--by", "epoch", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    found = {(row["topic"], row["partition"], row["leader_epoch"]): row for row in rows}
    assert list(found) == sorted(expected)
    assert len({epoch for _, _, epoch in found}) > 2
    for key, sizes in expected.items():
        assert (found[key]["segments"], found[key]["log_bytes"]) == (len(sizes), sum(sizes))


@pytest.mark.parametrize(
    ("epoch", "offset", "start"),
    [(0, 450, 432), (4, 520, 432), (4, 600, 576), (2, 900, 864), (5, 1443, 1300)],
)
def test_find_by_epoch_and_offset(
    capture: Capture, capsys: Captured, epoch: int, offset: int, start: int
) -> None:
    args = ["--topic", "wallets", "--epoch", str(epoch), "--offset", str(offset)]
    assert run([*unclean(capture, "before"), *args]) == 0
    (found,) = rows(capsys)
    assert found["start_offset"] == start
    assert epoch in dict(found["segment_leader_epochs"])


@pytest.mark.parametrize("more", [[], ["logs"]])
def test_an_offset_needs_no_epoch(capture: Capture, capsys: Captured, more: list[str]) -> None:
    """The lineage knows the epoch of an offset: the answer is the segment from which fetch reads it."""
    args = [*unclean(capture, "before"), *(with_logs(capture, "before") if more else ())]
    where = [*args, "--topic", "wallets", "--partition", "0"]
    assert run([*where, "--offsets"]) == 0
    (offsets,) = rows(capsys)
    found = set()
    for offset in range(offsets["earliest"], offsets["latest_tiered"] + 1, 97):
        assert run([*where, "--offset", str(offset)]) == 0
        (segment,) = rows(capsys)
        assert segment["start_offset"] <= offset <= segment["end_offset"]
        epochs = [epoch for epoch, start in segment["segment_leader_epochs"] if start <= offset]
        assert run([*where, "--offset", str(offset), "--epoch", str(epochs[-1])]) == 0
        assert rows(capsys) == [segment]
        found.add(segment["segment_id"])
    assert len(found) > 5
    assert run([*where, "--offset", "999999"]) == 10


def test_find_by_time(capture: Capture, capsys: Captured) -> None:
    args = [*unclean(capture, "before"), *with_logs(capture, "before")]
    assert run([*args, "--topic", "wallets"]) == 0
    lineage = ["B-9R", "KpHY", "nI0K", "UC8F", "PwIE", "Q1jl", "QnWN", "eclL", "dxgv", "n4zA"]
    current = [r for r in rows(capsys) if r["segment_id"][:4] in lineage]
    for at, segment in enumerate(current):
        time_ms = segment["max_timestamp_ms"]
        expected = next(r for r in current[: at + 1] if r["max_timestamp_ms"] >= time_ms)
        assert run([*args, "--topic", "wallets", "--time", str(time_ms)]) == 0
        assert [r["segment_id"] for r in rows(capsys)] == [expected["segment_id"]]
    assert run([*args, "--time", "2100-01-01"]) == 10


DOUBLED = {"wallets": "YKjh5jBvR9ebdjZhpxTgaA", "payouts": "vYb3dxNaR5eobyDFHg903A"}
DIVERGENT = {
    "wallets": {"Ko5D", "eDNI", "q4IL", "Ii0D"},
    "payouts": {"uiIj", "Dubm", "b-1l", "tw3D"},
}


@pytest.mark.parametrize(("stage", "with_store"), [("before", True), ("after", False)])
def test_check_names_the_doubled_segment_and_the_divergent_ones(
    capture: Capture, capsys: Captured, stage: str, with_store: bool
) -> None:
    more = with_logs(capture, stage) if with_store else []
    assert run([*unclean(capture, stage), "--check", *more]) == 3
    found = rows(capsys)
    doubled = {r["topic"]: r["segment_id"] for r in found if r["check"] == "doubled_segment"}
    assert doubled == DOUBLED
    for topic, expected in DIVERGENT.items():
        divergent = {
            r["segment_id"][:4] for r in found if (r["topic"], r["check"]) == (topic, "divergent_segment")
        }
        # In the later stage the brokers had deleted these segments, and leaked the duplicate one.
        assert divergent == (expected if stage == "before" else set())
    assert len(found) == (10 if stage == "before" else 2)


def test_offsets_name_what_is_still_to_be_copied(capture: Capture, tmp_path: Path, capsys: Captured) -> None:
    """Without a cluster, it is the offset after the last copied one, at least the log start (KIP-1023)."""
    root = capture("tiered-cluster")
    shutil.copytree(root / "before", tmp_path / "log")
    command = [*of(root, "before"), "--offsets", f"--log-dir={tmp_path / 'log'}", "--topic", "clicks"]
    assert run([*command, "--partition", "0"]) == 0
    [row] = rows(capsys)
    assert row["latest_tiered"] == 4799
    assert row["earliest_pending_upload"] == 4800
    raise_log_start(tmp_path / "log", TopicPartition("clicks", 0), 5000)
    assert run([*command, "--partition", "0"]) == 0
    [row] = rows(capsys)
    assert (row["earliest"], row["earliest_pending_upload"]) == (5000, 5000)


def test_check_holds_offsets_against_each_other(capture: Capture, tmp_path: Path, capsys: Captured) -> None:
    """The log was cut below the copied offsets, so Ly >= Ry does not hold."""
    root = capture("tiered-cluster")
    shutil.copytree(root / "before", tmp_path / "log")
    checkpoint = tmp_path / "log" / "replication-offset-checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace("clicks 0 5500", "clicks 0 4600"))
    more = [f"--log-dir={tmp_path / 'log'}", "--topic", "clicks"]
    assert run([*of(root, "before"), "--check", *more]) == 3
    found = [r for r in rows(capsys) if r["check"] == "offsets"]
    assert [(r["partition"], r["severity"]) for r in found] == [(0, "error"), (0, "error")]
    assert "Ly (last stable offset) 4600 is below Ry (remote log end) 4800" in found[1]["found"]


WRONG = [
    ["--epoch", "1"],
    ["--offset", "1", "--time", "5"],
    ["--all", "--check"],
    ["--by", "epoch"],
]


@pytest.mark.parametrize("args", WRONG)
def test_options_that_contradict_each_other(capture: Capture, capsys: Captured, args: list[str]) -> None:
    assert run([*of(capture("tiered-cluster"), "before"), *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")
