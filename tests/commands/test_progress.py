"""Every phase that can take longer than a second shows a bar, with a total if it is known."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model.progress import Advance, SilentProgress, Unit
from tierctl.wire.batches.segment_file import RecordChunk

from tests.metadata.events import started, update
from tests.metadata.topics import manager_at

SEGMENT = "nZUY_6-wRoqbn6andmnDWQ"
Capture = Callable[[str], Path]


@dataclass(slots=True)
class Recorded(SilentProgress):
    """The bars by title: unit, total, and the completed amount."""

    bars: dict[str, tuple[str, int | None, int]] = field(default_factory=dict)

    @contextmanager
    def bar(self, title: str, *, unit: Unit, total: int | None = None) -> Iterator[Advance]:
        done = [0]
        yield done.append
        self.bars[title] = (unit, total, sum(done))


def read(rows: Iterable[object]) -> list[object]:
    return list(rows)


PHASES: dict[str, tuple[Callable[..., Any], dict[str, tuple[str, int | None, int]]]] = {
    "segments": (
        lambda where, progress: commands.segments(
            commands.SegmentsRequest(metadata=where["metadata"]), progress
        ),
        {"reading metadata": ("events", 118, 118)},
    ),
    "sweep": (
        lambda where, progress: commands.sweep(commands.SweepRequest(**where), progress),
        {"reading metadata": ("events", 118, 118)},
    ),
    "format": (
        lambda where, progress: read(
            commands.format_records(commands.FormatRequest(metadata=where["metadata"]), progress)
        ),
        {"printing": ("records", 118, 118)},
    ),
    "fetch": (
        lambda where, progress: read(commands.fetch(commands.FetchRequest(**where), progress)),
        {"reading metadata": ("events", 118, 118), "reading": ("offsets", 16785, 16785)},
    ),
    "cache build": (
        lambda where, progress: commands.build_cache(
            commands.BuildCacheRequest(metadata=where["metadata"], out=where["state_dir"]), progress
        ),
        {"reading metadata": ("events", 118, 118)},
    ),
    "cache verify": (
        lambda where, progress: read(
            commands.verify_cache(commands.CacheRequest(files=[where["state_dir"]]), progress).rows
        ),
        {"verifying": ("files", None, 0)},
    ),
    "verify": (
        lambda where, progress: read(
            commands.verify(
                commands.VerifyRequest(metadata=where["metadata"], remote=where["remote"]), progress
            )
        ),
        {
            "reading metadata": ("events", 0, 0),
            "listing": ("objects", None, 130),
            "checking": ("partitions", 9, 9),
        },
    ),
    "verify --deep": (
        lambda where, progress: read(
            commands.verify(
                commands.VerifyRequest(
                    metadata=where["metadata"],
                    remote=where["remote"],
                    log_dir=(Path(where["metadata"]),),
                    deep=True,
                ),
                progress,
            )
        ),
        {
            "reading log directories": ("partitions", 7, 7),
            "reading segments": ("bytes", 23624946, 23624946),
        },
    ),
    "fetch a segment": (
        lambda where, progress: read(
            commands.fetch(commands.FetchRequest(**where, raw_segment=SEGMENT), progress)
        ),
        {"reading": ("bytes", 971188, 971188)},
    ),
    "copy from another tier": (
        lambda where, progress: commands.copy(
            commands.CopyRequest(
                metadata=where["metadata"],
                from_remote=where["remote"],
                remote=str(where["state_dir"] / "remote"),
                to_metadata=str(where["state_dir"] / "metadata"),
            ),
            progress,
        ),
        {"reading leader epochs": ("files", None, 0)},
    ),
}


def test_reading_metadata_advances_with_each_chunk_that_a_slow_store_gives(tmp_path: Path) -> None:
    class SlowTopic(FolderTopic):
        """Return one record at a time, and record the shown progress before each."""

        def read(self, partition: int, start: int, end: int) -> Iterator[RecordChunk]:
            for offset in range(start, end):
                shown.append(sum(done))
                yield from super().read(partition, offset, offset + 1)

    manager = manager_at(tmp_path, writable=True)
    manager.publish([started(0), update(0), started(1)])
    manager.close()
    shown: list[int] = []
    done: list[int] = []

    @contextmanager
    def reading(total: int) -> Iterator[Advance]:
        assert total == 3
        yield done.append

    TopicBasedRemoteLogMetadataManager(SlowTopic(tmp_path), reading=reading).refresh()
    assert shown == [0, 1, 2]
    assert sum(done) == 3


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_shows_its_progress(phase: str, capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    where = {"metadata": str(root / "after"), "remote": str(root / "after-remote")}
    given: dict[str, Any] = where if phase == "sweep" else where | {"state_dir": tmp_path / "state"}
    if phase.startswith("cache") and phase != "cache build":
        PHASES["cache build"][0](given, SilentProgress())
    progress = Recorded()
    do, expected = PHASES[phase]
    do(given, progress)
    assert expected.keys() <= progress.bars.keys()
    for title, (unit, total, done) in expected.items():
        found = progress.bars[title]
        assert found[0] == unit
        if unit == "files":
            assert found[1] == found[2] > 0
        else:
            assert found[1:] == (total, done)
