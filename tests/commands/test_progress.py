"""Every phase that can take longer than a second shows a bar, with a total where one is known."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl import commands
from tierctl.model.progress import Advance, SilentProgress, Unit

Capture = Callable[[str], Path]


@dataclass(slots=True)
class Recorded(SilentProgress):
    """The bars by title: unit, total, and the amount done."""

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
        {"printing": ("records", None, 118)},
    ),
    "cache build": (
        lambda where, progress: commands.build_cache(
            commands.BuildCacheRequest(metadata=where["metadata"], state_dir=where["state_dir"]), progress
        ),
        {"reading metadata": ("events", 118, 118)},
    ),
    "cache verify": (
        lambda where, progress: read(
            commands.verify_cache(commands.CacheRequest(state_dir=where["state_dir"]), progress).rows
        ),
        {"verifying": ("files", None, 0)},
    ),
    "cache show": (
        lambda where, progress: read(
            commands.show_cache(commands.CacheRequest(state_dir=where["state_dir"]), progress).rows
        ),
        {"reading caches": ("files", None, 0)},
    ),
    "cache compact": (
        lambda where, progress: commands.compact_cache(
            commands.CompactCacheRequest(state_dir=where["state_dir"]), progress
        ),
        {"compacting": ("files", None, 0)},
    ),
    "verify": (
        lambda where, progress: read(
            commands.verify(
                commands.VerifyRequest(metadata=where["metadata"], remote=where["remote"]), progress
            )
        ),
        {"reading metadata": ("events", 0, 0), "listing": ("objects", None, 0)},
    ),
}


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
        elif title != "listing" and phase != "verify":
            assert found[1:] == (total, done)
