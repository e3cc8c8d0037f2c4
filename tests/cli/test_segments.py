"""`tierctl segments` as a command, compared with brokers' tools and captured buckets."""

import csv
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from tierctl.commands.resources import Resources
from tierctl.commands.segments import SEGMENTS
from tierctl.errors import NotFoundError
from tierctl.locallog import read_log_dirs
from tierctl.model import RemoteLogSegmentState, TopicIdPartition, TopicPartition
from tierctl.model.local import ClusterLog
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.cli.shell import rows, tierctl
from tests.locallog.made import raise_log_start
from tests.metadata.events import update_of
from tests.metadata.topics import topic_in
from tests.plan.tier import segment as made
from tests.support.fake_cluster import LoggedCluster

Capture = Callable[[str], Path]


def of(root: Path, stage: str) -> list[str]:
    return ["segments", f"--metadata={root / stage}", f"--remote={root / f'{stage}-remote'}"]


def unclean(capture: Capture, stage: str) -> list[str]:
    root = capture("unclean-leader") / stage
    return ["segments", f"--metadata={root / 'broker-1'}"]


def with_logs(capture: Capture, stage: str) -> list[str]:
    root = capture("unclean-leader") / stage
    return [f"--remote={root / 'remote'}", *(f"--log-dir={root / b}" for b in ("broker-1", "broker-2"))]


@pytest.mark.parametrize("stage", ["before", "after"])
def test_live_segments_are_those_in_the_bucket(capture: Capture, stage: str) -> None:
    root = capture("tiered-cluster")
    in_bucket = {(log.parent.name, log.stem) for log in (root / f"{stage}-remote").rglob("*.log")}
    found = rows(*of(root, stage))
    assert {
        (f"{r['topic']}-{r['partition']}-{r['topic_id']}", f"{r['start_offset']:020d}-{r['segment_id']}")
        for r in found
    } == in_bucket
    assert all(tuple(r) == SEGMENTS.names for r in found)
    order = [(r["topic"], r["partition"], r["start_offset"], r["event_timestamp_ms"]) for r in found]
    assert order == sorted(order)


def test_all_segments_are_those_the_broker_ever_wrote_of(capture: Capture) -> None:
    root = capture("tiered-cluster")
    text = (root / "answers" / "formatter.txt").read_text()
    ever = set(re.findall(r", id=([A-Za-z0-9_-]{22})\}", text))
    found = rows(*of(root, "after"), "--all")
    assert {r["segment_id"] for r in found} == ever
    assert len(found) == len(ever)
    states = {r["segment_id"]: r["state"] for r in found}
    last = dict(re.findall(r", id=([A-Za-z0-9_-]{22})\}[^\n]*state=([A-Z_]+)", text))
    assert states == last


@pytest.mark.parametrize("stage", ["before", "after"])
def test_sizes_are_those_of_the_objects(capture: Capture, stage: str) -> None:
    root = capture("tiered-cluster")
    for row in rows(*of(root, stage), "--sizes"):
        files = list((root / f"{stage}-remote").rglob(f"*-{row['topic_id']}/*"))
        assert row["objects"] == len(files)
        assert row["object_bytes"] == sum(file.stat().st_size for file in files)
        assert row["log_bytes"] == sum(f.stat().st_size for f in files if f.suffix == ".log")
        assert row["object_bytes"] > row["log_bytes"]


def test_sizes_tell_finished_segments_from_those_being_copied_or_deleted(tmp_path: Path) -> None:
    """Brokers count no segment in state COPY_SEGMENT_STARTED as size (KAFKA-17062)."""
    topic = topic_in(tmp_path, writable=True)
    for steps in range(1, 5):
        metadata = made(steps, 100 * steps, 100 * steps + 99, size=10**steps)
        events = [metadata, *(update_of(metadata, state) for state in list(RemoteLogSegmentState)[1:steps])]
        partition = metadata_partition(metadata.topic_id, metadata.partition, topic.partition_count)
        topic.append([(partition, encode(event)) for event in events])
    topic.close()
    [row] = rows("segments", "--metadata", str(tmp_path), "--sizes")
    assert (row["segments"], row["log_bytes"]) == (1, 10**2)
    assert (row["copying_segments"], row["copying_bytes"]) == (1, 10**1)
    assert (row["deleting_segments"], row["deleting_bytes"]) == (1, 10**3)


def test_sizes_by_epoch_count_a_segment_in_each_of_its_epochs(capture: Capture) -> None:
    metadata = f"--metadata={capture('delete-across-epoch') / 'before'}"
    expected: dict[tuple[str, int, int], list[int]] = {}
    for row in rows("segments", metadata):
        for epoch, _ in row["segment_leader_epochs"]:
            key = row["topic"], row["partition"], epoch
            expected.setdefault(key, []).append(row["segment_size_in_bytes"])
    by_epoch = rows("segments", metadata, "--sizes", "--by", "epoch")
    found = {(row["topic"], row["partition"], row["leader_epoch"]): row for row in by_epoch}
    assert list(found) == sorted(expected)
    assert len({epoch for _, _, epoch in found}) > 2
    for key, sizes in expected.items():
        assert (found[key]["segments"], found[key]["log_bytes"]) == (len(sizes), sum(sizes))


@pytest.mark.parametrize(
    ("epoch", "offset", "start"),
    [(0, 450, 432), (4, 520, 432), (4, 600, 576), (2, 900, 864), (5, 1443, 1300)],
)
def test_find_by_epoch_and_offset(capture: Capture, epoch: int, offset: int, start: int) -> None:
    args = ["--topic", "wallets", "--epoch", str(epoch), "--offset", str(offset)]
    (found,) = rows(*unclean(capture, "before"), *args)
    assert found["start_offset"] == start
    assert epoch in dict(found["segment_leader_epochs"])


@pytest.mark.parametrize("more", [[], ["logs"]])
def test_an_offset_needs_no_epoch(capture: Capture, more: list[str]) -> None:
    """The lineage knows the epoch of an offset: the answer is the segment from which fetch reads it."""
    args = [*unclean(capture, "before"), *(with_logs(capture, "before") if more else ())]
    where = [*args, "--topic", "wallets", "--partition", "0"]
    (offsets,) = rows(*where, "--offsets")
    found = set()
    for offset in range(offsets["earliest"], offsets["latest_tiered"] + 1, 97):
        (segment,) = rows(*where, "--offset", offset)
        assert segment["start_offset"] <= offset <= segment["end_offset"]
        epochs = [epoch for epoch, start in segment["segment_leader_epochs"] if start <= offset]
        assert rows(*where, "--offset", offset, "--epoch", epochs[-1]) == [segment]
        found.add(segment["segment_id"])
    assert len(found) > 5
    assert tierctl(*where, "--offset", "999999").code == 10


def test_find_by_time(capture: Capture) -> None:
    args = [*unclean(capture, "before"), *with_logs(capture, "before")]
    lineage = ["B-9R", "KpHY", "nI0K", "UC8F", "PwIE", "Q1jl", "QnWN", "eclL", "dxgv", "n4zA"]
    current = [r for r in rows(*args, "--topic", "wallets") if r["segment_id"][:4] in lineage]
    for at, segment in enumerate(current):
        time_ms = segment["max_timestamp_ms"]
        expected = next(r for r in current[: at + 1] if r["max_timestamp_ms"] >= time_ms)
        found = rows(*args, "--topic", "wallets", "--time", time_ms)
        assert [r["segment_id"] for r in found] == [expected["segment_id"]]
    assert tierctl(*args, "--time", "2100-01-01").code == 10


def test_offsets_name_what_is_still_to_be_copied(capture: Capture, tmp_path: Path) -> None:
    """Without a cluster, it is the offset after the last copied one, at least the log start (KIP-1023)."""
    root = capture("tiered-cluster")
    shutil.copytree(root / "before", tmp_path / "log")
    command = [*of(root, "before"), "--offsets", f"--log-dir={tmp_path / 'log'}", "--topic", "clicks"]
    [row] = rows(*command, "--partition", "0")
    assert row["latest_tiered"] == 4799
    assert row["earliest_pending_upload"] == 4800
    raise_log_start(tmp_path / "log", TopicPartition("clicks", 0), 5000)
    [row] = rows(*command, "--partition", "0")
    assert (row["earliest"], row["earliest_pending_upload"]) == (5000, 5000)


def test_offsets_of_an_empty_replica_are_those_of_the_tier(capture: Capture, tmp_path: Path) -> None:
    """A log without leader epochs never contained a record: fetch reads the tier."""
    root, log_dir = capture("tiered-cluster"), tmp_path / "log"
    shutil.copytree(root / "before", log_dir)
    for file in (log_dir / "clicks-0").glob("*0*"):
        file.unlink()
    (log_dir / "clicks-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    command = [*of(root, "before"), "--topic", "clicks", "--partition", "0"]
    [expected] = rows(*command, "--offsets")
    assert (expected["earliest"], expected["latest_tiered"]) == (2400, 4799)
    assert rows(*command, "--offsets", "--log-dir", log_dir) == [expected]
    [segment] = rows(*command, "--offset", 4000)
    assert rows(*command, "--offset", 4000, "--log-dir", log_dir) == [segment]


def test_offsets_begin_where_fetch_does(writable: Capture) -> None:
    """Records were deleted before the newest segment was copied: its leader-epoch index has the log start."""
    metadata, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    where = ["--metadata", metadata, "--remote", remote, "--topic", "clicks", "--partition", "0"]
    newest = max(rows("segments", *where), key=lambda each: int(each["end_offset"]))
    [index] = remote.glob(f"*/*/*{newest['segment_id']}*leader_epoch_checkpoint")
    index.write_text(re.sub(r"\A0\n(\d+)\n(\d+) \d+", r"0\n\1\n\2 2450", index.read_text()))
    [offsets] = rows("segments", *where, "--offsets")
    assert offsets["earliest"] == rows("fetch", *where, "--limit", 1)[0]["offset"] == 2450


def test_a_partition_that_is_deleted_meanwhile_takes_no_other_along(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Racing(LoggedCluster):
        def kafka_version(self) -> KafkaVersion:
            return KafkaVersion(4, 1)

        def logs(self, partitions: Collection[TopicIdPartition]) -> list[ClusterLog]:
            if any(each.topic == "clicks" for each in partitions):
                raise NotFoundError("it was deleted")
            return super().logs(partitions)

    root = capture("tiered-cluster")
    monkeypatch.setattr(Resources, "cluster", Racing(read_log_dirs([root / "before"]), {}, forgets=False))
    brokers = ("--bootstrap-server", "broker1:9092")
    offsets = {each["topic"]: each["latest"] for each in rows(*of(root, "before"), "--offsets", *brokers)}
    assert offsets["clicks"] is None
    assert None not in {latest for topic, latest in offsets.items() if topic != "clicks"}


@pytest.mark.parametrize(("stage", "with_store", "divergent"), [("before", True, 8), ("after", False, 0)])
def test_check_has_each_finding_with_its_remedy(
    capture: Capture, stage: str, with_store: bool, divergent: int
) -> None:
    """tests/verify/test_verify.py compares these findings; brokers deleted the divergent segments later."""
    where = (*unclean(capture, stage), "--check", *(with_logs(capture, stage) if with_store else ()))
    found = rows(*where, code=3)
    kinds = {"doubled_segment": 2, "divergent_segment": divergent}
    assert Counter(each["check"] for each in found) == +Counter(kinds)
    printed = csv.DictReader(tierctl(*where, "-o", "csv").lines)
    assert [each["fix"] for each in printed] == [each["fix"] for each in found]
    assert all(each["fix"] for each in found)
