"""Runs rows: tierctl and its baseline alternately, then medians, as results."""

import statistics
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench import cache, machine
from tests.bench.harness import Comparison, MissingBaselineError, Row, Side
from tests.bench.process import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of a row: medians of its rounds. `ratio` is the speed relative to the baseline."""

    key: str
    work: str
    shape: str
    rounds: int
    tierctl_s: float
    peak_mb: float
    baseline: str | None
    baseline_s: float | None
    baseline_peak_mb: float | None
    ratio: float | None
    required: str
    missed: list[str]
    """The missed requirements; empty if the row meets them or has none."""
    met: bool | None
    """None if nothing is required, or if a required baseline is missing."""
    missing: str | None
    """Why the baseline is missing."""
    limit: str
    amount: int | None
    date: str
    commit: str

    def as_json(self) -> dict[str, Any]:
        """Return the row of bench.json."""
        return asdict(self)


def run_row(row: Row, rounds: int | None = None) -> Result:
    """Set a row up, run its rounds, and return the medians."""
    count = rounds or row.rounds
    with (
        tempfile.TemporaryDirectory(dir=cache.folder(), prefix=f"run-{row.key}-") as folder,
        contextmanager(row.setup)(Path(folder)) as pair,
    ):
        sides = [pair.tierctl, *([pair.baseline] if isinstance(pair.baseline, Side) else [])]
        runs: list[list[Measured]] = [[] for _ in sides]
        for number in range(count):
            # The side that runs first alternates.
            turns = list(zip(sides, runs, strict=True))
            for side, own in turns if number % 2 == 0 else turns[::-1]:
                side.prepare()
                own.append(side.run())
                print(f"  {row.key}, round {number + 1}: {side.name} {_text(own[-1])}", flush=True)
        if len(sides) > 1:
            pair.check()
        return _result(row, pair, *runs)


def _text(measured: Measured) -> str:
    return f"{measured.seconds:.3f} s, {measured.peak_bytes / 1e6:.0f} MB"


def _result(row: Row, pair: Comparison, own: list[Measured], other: list[Measured] | None = None) -> Result:
    baseline, missing = pair.baseline, None
    if isinstance(baseline, MissingBaselineError):
        baseline, missing = None, " ".join(str(baseline).split())
    own_s, own_mb = _medians(own)
    other_s, other_mb = _medians(other) if other else (None, None)
    ratio = None if other_s is None else round(other_s / own_s, 3)
    missed = row.required.missed(ratio, own_s, own_mb)
    is_known = str(row.required) != "" and (row.required.ratio is None or ratio is not None)
    return Result(
        key=row.key,
        work=row.work,
        shape=row.shape,
        rounds=len(own),
        tierctl_s=_rounded(own_s),
        peak_mb=round(own_mb),
        baseline=baseline.name if baseline else None,
        baseline_s=None if other_s is None else _rounded(other_s),
        baseline_peak_mb=None if other_mb is None else round(other_mb),
        ratio=ratio,
        required=str(row.required),
        missed=missed,
        met=not missed if is_known else None,
        missing=missing,
        limit=row.limit if missed else "",
        amount=row.amount,
        date=machine.today(),
        commit=machine.commit(),
    )


def _medians(runs: list[Measured]) -> tuple[float, float]:
    """Return the medians of seconds, and of peaks in 10^6 bytes."""
    return statistics.median(run.seconds for run in runs), statistics.median(
        run.peak_bytes for run in runs
    ) / 1e6


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
