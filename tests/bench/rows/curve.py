"""Cost curves: the same work at 0.1 to 2.6 million segments, and at 10 million when asked for `large`.

The user partitions are the same 10,000 at every point. The README's second table is made of these rows.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.clusters import scaled
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
    return _state_next(shape, folder)


def _state_next(shape: Shape, folder: Path) -> Measured:
    return sizes(metadata_log(shape), "--state-dir", str(folder / "state"))


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


def _register(key: str, name: str, work: Work, segments: int, rounds: int) -> None:
    shape = scaled(Shape(segments=segments, user_partitions=10_000))

    @row(key, work=name, shape=str(shape), rounds=rounds, amount=segments, on_request=True)
    def point(folder: Path) -> Iterator[Comparison]:
        """One point of a curve."""
        metadata_log(shape)
        if work is _state_next:
            work(shape, folder)
        yield Comparison(Side("tierctl", lambda: work(shape, folder)))


for _name, (_text, _work) in WORKS.items():
    for _segments_count in POINTS:
        _register(f"curve-{_name}-{_segments_count / 1e6:g}M", _text, _work, _segments_count, 3)
    _register(f"large-{_name}-{LARGE / 1e6:g}M", _text, _work, LARGE, 1)
