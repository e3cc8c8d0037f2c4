"""`restore check` with brokers: no problem after a rebuild or restore, and every fatal fault is found."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import EpochEntry, TopicPartition
from tierctl.wire.batches.batch_head import LEADER_EPOCH_AT
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.files.checkpoints import (
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
)

from tests.cli.shell import environment
from tests.live.commands import Ran, applied, base_offsets, plan, refused, rows, tierctl
from tests.live.history import PARTITIONS, cut_epochs, epoch_starts, fill, lose_metadata
from tests.live.test_rebuild import offline
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
EVERYWHERE = {(topic, number) for topic, number in PARTITIONS}


@dataclass
class Checked:
    """The results of a check by severity and kind of check."""

    code: int
    err: str
    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, ran: Ran) -> "Checked":
        return cls(ran.code, ran.err, ran.rows)

    def found(self, severity: str) -> dict[str, set[tuple[str | None, int | None]]]:
        found: dict[str, set[tuple[str | None, int | None]]] = {}
        for row in self.rows:
            if row["severity"] == severity:
                topic, _, number = row["subject"].rpartition("-")
                found.setdefault(row["check"], set()).add((topic, int(number)) if topic else (None, None))
        return found

    def text(self, check: str) -> str:
        return " ".join(row["found"] for row in self.rows if row["check"] == check)


def where(broker: Broker) -> tuple[object, ...]:
    """Return the options of a check with a running broker."""
    return (
        *("restore", "check", "--metadata", f"kafka://{broker.bootstrap}", "--remote", broker.remote_dir),
        *("--log-dir", broker.log_dir, "--output", "jsonl"),
    )


def check(broker: Broker, *more: object) -> Checked:
    return Checked.of(tierctl(*where(broker), *more))


def check_over_restart(broker: Broker, *more: object) -> Checked:
    """Run the check, and restart the broker when the consumers hold their positions."""
    return check_over_election(broker, broker.restart, *more)


def check_over_election(broker: Broker, elect: Callable[[], object], *more: object) -> Checked:
    """Run the check, and call `elect` when the consumers hold their positions."""
    words = [str(word) for word in (*where(broker), "--election-timeout", "3m", *more)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tierctl", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if "consumers hold" in line:
                elect()
                break
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return Checked.of(Ran.of(process.returncode, out, "".join(said) + err))


def listing(broker: Broker) -> Path:
    """Write the listing of the tier before the broker starts."""
    path = broker.folder / "before.listing"
    tierctl("restore", "check", "--remote", broker.remote_dir, "--listing-out", path).ok()
    return path


def log_of(broker: Broker, since: int) -> Path:
    """Return the broker's log after the first `start` characters."""
    path = broker.folder / "server.log"
    path.write_text(broker.said()[since:])
    return path


def rebuild(broker: Broker, *more: object) -> None:
    applied(*offline(broker, *more, "--apply"))


def test_a_rebuilt_cluster_is_clean(twin: Broker) -> None:
    before = listing(twin)
    lose_metadata(twin)
    rebuild(twin)
    since = len(twin.said())
    twin.start()
    twin.await_idle()
    found = check(twin, "--before", before, "--broker-log", log_of(twin, since))
    assert found.code == 0, (found.rows, found.err)
    made = ("deletions", "metadata", "offsets", "leader_epochs", "records", "seeks")
    assert found.found("ok") == {
        **dict.fromkeys(made, EVERYWHERE),
        **{name: {(None, None)} for name in ("objects", "broker_logs", "restarts")},
    }
    assert found.found("not_checked") == {
        "next_copy": EVERYWHERE,
        **{name: {(None, None)} for name in ("election", "producers")},
    }
    assert "not checked, or not all of it: election, next_copy, producers" in found.err

    starts = base_offsets(twin, "plain")
    fill(twin, seed=7)
    twin.wait_for("new copies", lambda: len(base_offsets(twin, "plain")) > len(starts))
    twin.await_idle()
    assert len(base_offsets(twin, "plain")) > len(starts)
    found = check_over_restart(twin, "--before", before, "--produce", "plain", "--topic", "plain")
    assert found.code == 0, (found.rows, found.err)
    plain = {("plain", 0), ("plain", 1)}
    assert found.found("ok") == {
        **dict.fromkeys((*made, "election", "next_copy", "producers"), plain),
        **{name: {(None, None)} for name in ("objects", "restarts")},
    }
    assert found.found("not_checked") == {"broker_logs": {(None, None)}}
    assert twin.records("plain")[-1][3] == b"written by tierctl restore check"


def test_a7_lost_epochs_and_the_deletions_that_follow_are_found(twin: Broker) -> None:
    before = listing(twin)
    lose_metadata(twin)
    rebuild(twin)
    cut_epochs(twin, "plain")
    since = len(twin.said())
    twin.start()
    twin.wait_for("the tier to be deleted", lambda: "Deleted remote log segment" in twin.said()[since:])
    twin.await_idle()
    found = check(twin, "--before", before, "--broker-log", log_of(twin, since))
    assert found.code == 3
    failed = found.found("error")
    assert failed["deletions"] == {("plain", 0)}
    assert failed["objects"] == failed["broker_logs"] == {(None, None)}
    assert "segments were deleted: plain-0 segment" in found.text("objects")
    # Without the earlier listing, the remaining objects look like a complete log.
    assert ("tx", 0) in found.found("ok")["records"]


def metadata_folders(broker: Broker) -> list[Path]:
    return list(broker.log_dir.glob("__remote_log_metadata-*"))


def with_epoch_0(data: bytes) -> bytes:
    """Return the batches with leader epoch 0, which their CRC does not cover: rebuild compares the epochs."""
    changed = bytearray(data)
    for batch in batches(data):
        at = batch.head.position + LEADER_EPOCH_AT
        changed[at : at + 4] = bytes(4)
    return bytes(changed)


def restore_with_one_epoch(old: Broker, broker: Broker) -> None:
    """Restore plain-0 of a stopped broker under a new topic id, with leader epoch 0 for all offsets.

    The batches keep their epochs, which are above those of the new topic for a while.
    """
    topic_id = broker.create_topic("plain", 1, tiered=True)
    broker.wait_for("the metadata topic", lambda: len(metadata_folders(broker)) == METADATA_PARTITIONS)
    broker.stop()
    own = [row for row in rows("segments", "--metadata", old.log_dir) if row["topic"] == "plain"]
    end = max(row["end_offset"] + 1 for row in own if row["partition"] == 0)
    name = TopicPartition("plain", 0)
    (source,) = old.remote_dir.glob("kafka-tiered-storage/plain-0-*")
    target = broker.remote_dir / "kafka-tiered-storage" / f"plain-0-{topic_id}"
    shutil.copytree(source, target)
    pretended = broker.folder / "one-epoch"
    shutil.copytree(broker.remote_dir, pretended)
    one = write_leader_epoch_checkpoint([EpochEntry(0, 0)])
    for path in pretended.rglob("*.leader_epoch_checkpoint"):
        path.write_bytes(one)
    for path in pretended.rglob("*.log"):
        path.write_bytes(with_epoch_0(path.read_bytes()))
    folder = broker.log_dir / str(name)
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (folder / f"{end:020d}.log").touch()
    (folder / "leader-epoch-checkpoint").write_bytes(one)
    starts = {"log-start-offset": 0, "recovery-point-offset": end, "replication-offset": end}
    for kind, offset in starts.items():
        path = broker.log_dir / f"{kind}-checkpoint"
        path.write_bytes(write_offset_checkpoint({**read_offset_checkpoint(path.read_bytes()), name: offset}))
    lose_metadata(broker)
    own = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir)
    said = refused("rebuild", *own, "--remote", broker.remote_dir)
    assert "its latest leader epoch is 0, the tier knows epoch" in said
    assert plan("rebuild", *own, "--remote", pretended, "--apply")["outcomes"]


def test_c1hi_batches_of_epochs_above_those_of_the_log_are_found(twin: Broker, brokers: Brokers) -> None:
    """All records are served and all seeks are right, but consumers see a truncation at the next election."""
    twin.start()
    fill(twin, seed=4)
    twin.await_idle()
    twin.stop()
    assert len(epoch_starts(twin)["plain", 0]) > 3
    broker = brokers.own()
    restore_with_one_epoch(twin, broker)
    broker.start()
    broker.await_idle()
    found = check_over_restart(broker)
    assert found.code == 3
    failed = found.found("error")
    plain = {("plain", 0)}
    assert failed == dict.fromkeys(("metadata", "leader_epochs", "election"), plain), found.rows
    assert "truncat" in found.text("election")
    assert found.found("ok")["records"] == plain
    broker.stop()


def test_d0_a_materialised_topic_is_compared_with_the_old_one(twin: Broker, brokers: Brokers) -> None:
    broker = brokers.own()
    remote = ("--remote", twin.remote_dir)
    broker.create_topic("then", 1, tiered=True)
    broker.stop()
    chosen = ("--topic", "plain", "--partition", 0, "--as", "then", *remote)
    plan("restore", "log", "--log-dir", broker.log_dir, *chosen, "--apply")
    broker.start()
    broker.wait_for("the first copy", lambda: base_offsets(broker, "then") != [])
    broker.await_idle()
    cluster = ("--metadata", f"kafka://{broker.bootstrap}", "--output", "jsonl")
    found = Checked.of(tierctl("restore", "check", *chosen, *cluster, "--produce", "then"))
    assert found.code == 0, (found.rows, found.err)
    then = {("then", 0)}
    names = ("deletions", "offsets", "leader_epochs", "records", "seeks", "next_copy", "producers")
    assert found.found("ok") == {**dict.fromkeys(names, then), "objects": {(None, None)}}
    missing = Checked.of(tierctl("restore", "check", "--topic", "tx", *remote, *cluster))
    assert (missing.code, missing.found("error")) == (3, {"offsets": {("tx", 0)}})
    assert "the cluster has no topic tx" in missing.text("offsets")
    broker.stop()
