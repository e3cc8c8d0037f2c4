"""Every phase that can take longer than a second shows a bar, with a total if it is known."""

from collections.abc import Callable, Iterator
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


READING = {"reading metadata": ("events", 118, 118)}
PHASES: dict[str, tuple[Callable[..., Any], type, dict[str, Any], dict[str, tuple[str, int | None, int]]]] = {
    "segments": (commands.segments, commands.SegmentsRequest, {"metadata": "metadata"}, READING),
    "format": (
        commands.format_records,
        *(commands.FormatRequest, {"metadata": "metadata"}, {"printing": ("records", 118, 118)}),
    ),
    "fetch": (
        commands.fetch,
        commands.FetchRequest,
        {"metadata": "metadata", "remote": "remote"},
        {**READING, "reading": ("offsets", 16785, 16785)},
    ),
    "cache build": (
        commands.build_cache,
        *(commands.BuildCacheRequest, {"metadata": "metadata", "out": "folder"}, READING),
    ),
    "cache verify": (
        commands.verify_cache,
        *(commands.CacheRequest, {"files": ["folder"]}, {"verifying": ("files", None, 0)}),
    ),
    "verify": (
        commands.verify,
        commands.VerifyRequest,
        {"metadata": "metadata", "remote": "remote"},
        {"listing": ("objects", None, 130), "checking": ("partitions", 9, 9)},
    ),
    "verify --deep": (
        commands.verify,
        commands.VerifyRequest,
        {"metadata": "metadata", "remote": "remote", "log_dir": ["metadata"], "deep": True},
        {
            "reading log directories": ("partitions", 7, 7),
            "reading segments": ("bytes", 23624946, 23624946),
        },
    ),
    "fetch a segment": (
        commands.fetch,
        commands.FetchRequest,
        {"metadata": "metadata", "remote": "remote", "raw_segment": SEGMENT},
        {"reading": ("bytes", 971188, 971188)},
    ),
    "copy from another tier": (
        lambda *of: [commands.copy(*of)],
        commands.CopyRequest,
        {"metadata": "metadata", "from_remote": "remote", "remote": "tier", "to_metadata": "new"},
        {"reading leader epochs": ("files", None, 0)},
    ),
}
"""Use case, request and its fields, and the bars: unit, total, and what is counted at the end.

A text that names one of the places of the test stands for this place.
"""


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
    root, folder = capture("tiered-cluster"), tmp_path / "folder"
    places = {name: str(tmp_path / name) for name in ("tier", "new")}
    places |= {"metadata": str(root / "after"), "remote": str(root / "after-remote")}
    if phase == "cache verify":
        commands.build_cache(commands.BuildCacheRequest(metadata=places["metadata"], out=folder))

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [Path(placed(each)) for each in value]
        return folder if value == "folder" else places.get(value, value)

    use_case, request, fields, expected = PHASES[phase]
    progress = Recorded()
    result = use_case(request(**{name: placed(value) for name, value in fields.items()}), progress)
    # Some results are read while they are produced.
    list(getattr(result, "rows", result))
    assert expected.keys() <= progress.bars.keys()
    for title, (unit, total, done) in expected.items():
        found = progress.bars[title]
        assert found[0] == unit
        if unit == "files":
            assert found[1] == found[2] > 0
        else:
            assert found[1:] == (total, done)
