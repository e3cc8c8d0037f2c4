"""Cost curves: the same work at 0.1 to 2.6 million segments, and at 10 million when asked for `large`.

The user partitions are the same 10,000 at every point. The README's second table is made of these rows. Large
points run once, because a long run averages noise itself.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.bench.cache import folder as cache_folder
from tests.bench.clusters import scaled, sweep_inputs
from tests.bench.harness import Comparison, Side, row
from tests.bench.metadata_log import Shape, metadata_log
from tests.bench.process import Measured
from tests.bench.rows.pipeline import tables
from tests.bench.rows.segments import sizes
from tests.bench.rows.sweep import sweep_plan

POINTS = (100_000, 500_000, 1_000_000, 2_600_000)
LARGE = 10_000_000

Work = Callable[[Shape, Path], Measured]


def _segments(shape: Shape, _folder: Path) -> Measured:
    return sizes(metadata_log(shape))


def _sweep(shape: Shape, _folder: Path) -> Measured:
    return sweep_plan(shape)


def _state_first(shape: Shape, folder: Path) -> Measured:
    shutil.rmtree(folder / "state", ignore_errors=True)
    return _with_state(shape, folder / "state")


def _state_next(shape: Shape, _folder: Path) -> Measured:
    return _with_state(shape, _state_of(shape))


def _with_state(shape: Shape, state: Path) -> Measured:
    return sizes(metadata_log(shape), "--state-dir", str(state))


def _state_of(shape: Shape) -> Path:
    """Return the state directory that the first runs of this process keep."""
    return Path(_kept().name) / shape.name


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=cache_folder(), prefix="run-curve-states-")


def _pipeline(shape: Shape, folder: Path) -> Measured:
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    return tables(metadata_log(shape).folder, folder / "warehouse")


WORKS: dict[str, tuple[str, Work]] = {
    "segments": ("`segments --sizes`", _segments),
    "sweep": ("`sweep` plan", _sweep),
    "state-first": ("`--state-dir`, first run", _state_first),
    "state-next": ("`--state-dir`, no new events", _state_next),
    "pipeline": ("`pipeline run`, first", _pipeline),
}


ROUNDS = {100_000: 3, 500_000: 3, 1_000_000: 2}


def _register(key: str, name: str, work: Work, segments: int) -> None:
    shape = scaled(Shape(segments=segments, user_partitions=10_000))

    @row(key, work=name, shape=str(shape), rounds=ROUNDS.get(segments, 1), amount=segments, on_request=True)
    def point(folder: Path) -> Iterator[Comparison]:
        """One point of a curve."""
        metadata_log(shape)
        if work is _state_next and not _state_of(shape).is_dir():
            work(shape, folder)
        if work is _sweep:
            sweep_inputs(metadata_log(shape))
        yield Comparison(Side("tierctl", lambda: work(shape, folder)))
        if work is _state_first:
            # The next run of the curve after this one needs what this run made.
            shutil.rmtree(_state_of(shape), ignore_errors=True)
            shutil.move(folder / "state", _state_of(shape))


for _name, (_text, _work) in WORKS.items():
    for _segments_count in POINTS:
        _register(f"curve-{_name}-{_segments_count / 1e6:g}M", _text, _work, _segments_count)
    _register(f"large-{_name}-{LARGE / 1e6:g}M", _text, _work, LARGE)
