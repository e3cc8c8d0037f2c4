"""Commands beside the actions of real brokers: on the same logs, and on logs that a broker changes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import Status
from tierctl.model import RemoteLogSegmentMetadata

from tests.apply.commands import marking
from tests.apply.faults import Meddling
from tests.apply.runs import put, run_on, statuses
from tests.apply.worlds import World, check_durable, objects_of, segments_of
from tests.cli.shell import tierctl
from tests.support.faults import observed
from tests.support.topic_settings import enabled

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"
NOW = "2026-11-21T10:40:00Z"
"""A time just after the capture; two days later, retention.ms would expire more segments of `metrics`."""
BROKER_DELETED = [
    ("clicks", 0, 2400),
    ("clicks", 1, 2400),
    ("metrics", 0, 0),
    ("metrics", 0, 800),
    ("metrics", 0, 1600),
    ("orders", 1, 0),
    ("orders", 1, 600),
]


@pytest.mark.parametrize("allocated_bytes", [0, 240])
def test_copy_stores_what_the_broker_stored(
    allocated_bytes: int, capture: Callable[[str], Path], writable: Callable[[str], Path], tmp_path: Path
) -> None:
    """A broker that ended uncleanly leaves zeros in the indexes, which it removes when it starts again."""
    broker, logs = capture("untiered-broker"), writable("untiered-broker/local")
    for index in (*logs.rglob("*.index"), *logs.rglob("*.timeindex")):
        put(index, index.read_bytes() + bytes(allocated_bytes))
    world = World(tmp_path / "metadata", tmp_path / "remote", logs, tmp_path / "state")
    logs = ("--log-dir", world.logs, *enabled(world.logs))
    command = ("copy", *world.where, "--layout", "kafka", *logs, "-o", "json", "--apply")
    first = tierctl(*command, "--state-dir", world.state_dir).ok()
    assert [outcome["status"] for outcome in first.json["outcomes"]] == ["done"] * 14
    assert len(first.json["steps"]) == 14
    assert objects_of(world.remote) == objects_of(broker / "tiered-remote")
    assert segments_of(world.metadata) == segments_of(broker / "tiered-metadata")
    for state_dir in ((), ("--state-dir", world.state_dir)):
        again = tierctl(*command, *state_dir)
        assert (again.code, again.json["steps"], again.json["outcomes"]) == (0, [], [])


def test_a_copy_says_which_offsets_of_a_segment_have_no_record(
    writable: Callable[[str], Path], tmp_path: Path
) -> None:
    """A broker copies the segment before a lost one up to the next one that is left (RLMCopyTask)."""
    logs = writable("untiered-broker/local")
    for file in (logs / "bills-0").glob("00000000000000001200.*"):
        file.unlink()
    world = World(tmp_path / "metadata", tmp_path / "remote", logs, tmp_path / "state")
    options = ("--layout", "kafka", "--log-dir", logs, *enabled(logs), "--topic", "bills", "--partition", 0)
    ran = tierctl(
        "copy", *world.where, *options, "--state-dir", world.state_dir, "-o", "json", "--apply"
    ).ok()
    notes = {each["start_offset"]: each["why"] for each in ran.json["outcomes"]}
    assert list(notes) == [0, 600, 1800, 2400]
    assert [start for start, note in notes.items() if note is not None] == [600]
    assert "the log holds offsets 600 to 1199, the metadata say 600 to 1799" in notes[600]
    assert "the topic was compacted once, or a part of its log was lost" in notes[600]


def _sweep(cluster: World, tmp_path: Path, *more: object) -> tuple[object, ...]:
    configs = tmp_path / "configs"
    configs.write_text(CONFIGS)
    options = ("--log-dir", cluster.logs, "--topic-configs", configs)
    return ("sweep", *cluster.where, *options, "--log-start-offset", "orders-1=1500", "--now", NOW, *more)


def _brief(steps: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(step["topic"], step["partition"], step["start_offset"]) for step in steps]


def test_sweep_and_delete_leave_what_the_broker_left(
    cluster: World, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    assert tierctl(*_sweep(cluster, tmp_path, "--detailed-exitcode")).code == 9
    other = tierctl(*_sweep(cluster, tmp_path, "--topic", "clicks", "--partition", 1))
    assert (other.code, "orders-1: " in other.err, "is not selected" in other.err) == (4, True, True)
    narrowed = tierctl(*_sweep(cluster, tmp_path, "-o", "json", "--topic", "orders", "--partition", 1))
    of_orders = [each for each in BROKER_DELETED if each[:2] == ("orders", 1)]
    assert (narrowed.code, _brief(narrowed.json["steps"])) == (0, of_orders)
    swept = tierctl(
        *_sweep(cluster, tmp_path, "--output", "json", "--state-dir", cluster.state_dir, "--apply")
    ).ok()
    assert _brief(swept.json["outcomes"]) == BROKER_DELETED
    # GetOffsetShell printed the log starts after the broker's deletions.
    starts = {f"{s['topic']}:{s['partition']}": s["new_log_start_offset"] for s in swept.json["steps"]}
    printed = (capture("tiered-cluster") / "answers/after-offsets-earliest.txt").read_text().split()
    assert {f"{partition}:{start}" for partition, start in starts.items()} <= {*printed}
    again = tierctl(*_sweep(cluster, tmp_path, "--output", "json", "--state-dir", cluster.state_dir))
    assert again.json["steps"] == []
    delete = ("delete", *cluster.where, "--state-dir", cluster.state_dir, "-o", "json", "--apply")
    before = tierctl(*delete)
    assert (before.code, before.json["steps"]) == (0, [])
    marked = tierctl(*delete, *marking(cluster.metadata, "shortlived"))
    assert (marked.code, len(marked.json["outcomes"])) == (0, 2)
    deleted = tierctl(*delete).ok()
    assert {step["topic"] for step in deleted.json["steps"]} == {"shortlived"}
    assert tierctl(*delete).json["steps"] == []
    broker = capture("tiered-cluster")
    assert objects_of(cluster.remote) == objects_of(broker / "after-remote")
    assert segments_of(cluster.metadata) == segments_of(broker / "after")


def test_without_a_log_directory_the_tier_gives_the_lineage(cluster: World, tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    configs.write_text(CONFIGS)
    plan = tierctl("sweep", *cluster.where, "--topic-configs", configs, "--now", NOW, "-o", "json")
    assert _brief(plan.json["steps"]) == [("metrics", 0, 0), ("metrics", 0, 800), ("metrics", 0, 1600)]
    assert "retention.bytes" in plan.err


DONE, FAILED, DROPPED = Status.DONE, Status.FAILED, Status.DROPPED
COPIED = 600
"""Base offset of the segment that is being copied when the broker acts; the next segment begins at 1200."""


def _files(world: World, offset: int) -> list[Path]:
    found = (world.logs / "bills-0").glob(f"{offset:020d}.*")
    # The producer snapshot with this name belongs to the previous segment.
    return [path for path in found if path.suffix != ".snapshot"]


def delete_by_retention(world: World) -> None:
    """Rename the files as a broker does, which unlinks them a minute later (log.segment.delete.delay.ms)."""
    for path in _files(world, COPIED):
        path.rename(path.with_name(path.name + ".deleted"))


def unlink(world: World) -> None:
    for path in _files(world, COPIED):
        path.unlink()


def rewrite_index_in_place(world: World) -> None:
    """Write an index through a memory map, which changes neither the size nor, before a flush, the time."""
    path = world.logs / "bills-0" / f"{COPIED:020d}.index"
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )


def truncate(world: World) -> None:
    path = world.logs / "bills-0" / f"{COPIED:020d}.log"
    put(path, path.read_bytes()[:-1])


def write_snapshot_again(world: World) -> None:
    path = world.logs / "bills-0" / f"{1200:020d}.snapshot"
    put(path, path.read_bytes())


def append(world: World) -> None:
    """Append to the active segment only; the records are above the stored high watermark."""
    *_, active = sorted((world.logs / "bills-0").glob("*.log"))
    put(active, active.read_bytes() + b"\x00" * 100)


def write_epochs_again(world: World) -> None:
    path = world.logs / "bills-0" / "leader-epoch-checkpoint"
    put(path, b"0\n2\n0 0\n9 3500\n")


CHANGED = (delete_by_retention, unlink, rewrite_index_in_place, truncate, write_snapshot_again)


CASES = [(change, "opened") for change in CHANGED]
# A write before the files are opened, with the same size and time, is only found by the bytes.
CASES += [(change, "published") for change in CHANGED if change is not rewrite_index_in_place]


@pytest.mark.parametrize(("change", "moment"), CASES)
def test_a_changed_source_is_not_finished(change: Callable[[World], None], moment: str, empty: World) -> None:
    for path in (empty.logs / "bills-0").glob("*.index"):
        put(path, path.read_bytes())
    calls: list[str] = []

    def meddle(metadata: RemoteLogSegmentMetadata) -> None:
        if moment == "opened" and metadata.start_offset == COPIED:
            change(empty)

    def observe(label: str, at: str) -> None:
        if (label, at) == ("copy.started.publish", "after"):
            calls.append(label)
            # The first wave has the segments from offsets 0 and 600.
            if moment == "published" and len(calls) == 1:
                change(empty)

    with observed(observe):
        outcomes = run_on("copy", empty, lambda inner: Meddling(inner, meddle))
    assert statuses(outcomes) == [DONE, FAILED, DROPPED]
    error = outcomes[1].error
    assert error is not None
    changed = "changed or was deleted while it was being copied" in error.message
    assert changed or (change is not rewrite_index_in_place and "No such file" in error.message)
    assert [segment.end_offset for segment in empty.segments()] == [COPIED - 1]
    assert not [key for key in empty.objects() if f"{COPIED:020d}-" in key], "its objects are cleaned up"


@pytest.mark.parametrize("change", [append, write_epochs_again])
def test_what_a_broker_does_elsewhere_changes_nothing(change: Callable[[World], None], empty: World) -> None:
    def meddle(metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.start_offset == COPIED:
            change(empty)

    outcomes = run_on("copy", empty, lambda inner: Meddling(inner, meddle))
    assert statuses(outcomes) == [DONE, DONE, DONE]
    check_durable(empty)
