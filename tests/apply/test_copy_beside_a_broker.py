"""A running broker changes its log directory while a segment of it is being copied."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply import run_context
from tierctl.apply.run_context import Status
from tierctl.model import RemoteLogSegmentMetadata

from tests.apply.faults import Meddling
from tests.apply.runs import put, run_on, statuses
from tests.apply.worlds import World, check_durable

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

    run_context.observe(observe)
    try:
        outcomes = run_on("copy", empty, lambda inner: Meddling(inner, meddle))
    finally:
        run_context.observe(None)
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
