"""The harness: rounds alternate, medians and requirements are computed, bench.json keeps a row by its key."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import harness, report
from tests.bench.harness import Comparison, MissingBaselineError, Required, Row, Side
from tests.bench.process import Measured, run
from tests.bench.runner import run_row

MB = 1_000_000
NOTHING = Required()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERCTL_BENCH_CACHE", str(tmp_path / "cache"))


def row_of(comparison: Comparison, required: Required = NOTHING) -> Row:
    def setup(_folder: Path) -> Iterator[Comparison]:
        yield comparison

    return Row(key="key", work="work", shape="shape", required=required, setup=setup, rounds=3, limit="why")


def side(name: str, seconds: list[float], turns: list[str] | None = None, megabytes: int = 10) -> Side:
    """Return a side whose runs take the given times."""
    left = iter(seconds)

    def work() -> Measured:
        if turns is not None:
            turns.append(name)
        return Measured(next(left), megabytes * MB)

    return Side(name, work)


def test_rounds_alternate_and_medians_count() -> None:
    turns: list[str] = []
    comparison = Comparison(side("own", [5, 1, 2], turns), side("other", [3, 4, 90], turns))
    result = run_row(row_of(comparison, Required(ratio=2)))
    assert turns == ["own", "other", "other", "own", "own", "other"]
    assert (result.tierctl_s, result.baseline_s, result.ratio, result.met) == (2, 4, 2, True)


@pytest.mark.parametrize(
    ("required", "missed", "text"),
    [
        (Required(), None, ""),
        (Required(ratio=1.5), ["1.00× of 1.5×"], "≥ 1.5×"),
        (Required(ratio=0.5, seconds=1), ["2 s of 1 s"], "≥ 0.5×, ≤ 1 s"),
        (Required(ratio=20, seconds=2, ratio_or_seconds=True), [], "≥ 20× or ≤ 2 s"),
        (
            Required(ratio=20, seconds=1, ratio_or_seconds=True),
            ["1.00× of 20×", "2 s of 1 s"],
            "≥ 20× or ≤ 1 s",
        ),
        (Required(peak_mb=9), ["10 MB of 9 MB"], "≤ 9 MB"),
    ],
)
def test_requirements(required: Required, missed: list[str] | None, text: str) -> None:
    result = run_row(row_of(Comparison(side("own", [2] * 3), side("other", [2] * 3)), required))
    assert result.required == text
    assert result.met is (None if missed is None else not missed)
    assert result.missed == (missed or [])
    assert result.limit == ("why" if missed else "")


def test_a_missing_baseline_is_named_and_the_row_is_measured() -> None:
    error = MissingBaselineError("needs\nJava")
    result = run_row(row_of(Comparison(side("own", [2] * 3), error), Required(ratio=1)))
    assert (result.tierctl_s, result.ratio, result.met, result.missing) == (2, None, None, "needs Java")
    assert "baseline missing: needs Java" in report.table([result.as_json()])


def test_results_that_differ_fail_the_row() -> None:
    def check() -> None:
        raise AssertionError("they differ")

    with pytest.raises(AssertionError, match="they differ"):
        run_row(row_of(Comparison(side("own", [2] * 3), side("other", [2] * 3), check)))


def test_a_row_replaces_the_older_one_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    rows = [
        {"key": "b", "old": 1, "missed": []},
        {"key": "a", "missed": ["x"]},
        {"key": "gone", "missed": []},
    ]
    report.merge(rows, {"a": "", "b": "", "gone": ""}, path)
    point = {"key": "curve", "missed": [], "amount": 7}
    report.merge([{"key": "b", "missed": []}, point], {"a": "why", "b": "why", "curve": "steep"}, path)
    assert json.loads(path.read_text())["rows"] == [
        {"key": "a", "missed": ["x"], "limit": "why"},
        {"key": "b", "missed": [], "limit": ""},
        point | {"limit": "steep"},
    ]


def test_curves_say_whether_a_segment_costs_the_same() -> None:
    def points(work: str, *seconds: float) -> list[dict[str, object]]:
        amounts = (100_000, 500_000, 1_000_000)
        pairs = zip(amounts, seconds, strict=False)
        return [{"work": work, "amount": n, "tierctl_s": s, "peak_mb": 7, "limit": "Why."} for n, s in pairs]

    text = report.curves(points("even", 1, 2, 4) + points("steep", 1, 2, 8) + points("short", 1))
    assert "0.1 M segments" in text
    table, _, notes = text.partition("\n\n")
    lines = {line.split("|")[1].strip(): line.rstrip("| ").split("| ")[-1] for line in table.splitlines()}
    assert lines["even"] == "4 → 4 µs, linear"
    assert lines["steep"] == "4 → 8 µs, more than linear"
    assert lines["short"] == "–"
    assert notes == "- steep: more than linear. Why."


def test_memory_is_that_of_the_command_and_its_children() -> None:
    hold = "import time; held = bytearray(200_000_000); time.sleep(1.5)"
    own = bytearray(400 * MB)
    plain, one = run(sys.executable, "-c", "pass"), run(sys.executable, "-c", hold)
    start = f"subprocess.Popen([sys.executable, '-c', {hold!r}])"
    two = run(sys.executable, "-c", f"import subprocess, sys; a = {start}; b = {start}; a.wait(); b.wait()")
    del own
    assert plain.peak_bytes < 50 * MB
    assert 200 * MB < one.peak_bytes < 250 * MB
    assert 350 * MB < two.peak_bytes < 500 * MB
    assert one.seconds > 1.5


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.process.TIMEOUT_S", 2)
    target = tmp_path / "pid"
    code = f"import os, time; open({str(target)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(RuntimeError, match="did not end"):
        run(sys.executable, "-c", code)
    assert not Path(f"/proc/{target.read_text()}").exists()


def test_a_command_that_fails_shows_its_errors() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3:\nthe reason"):
        run(sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)")
    code = "print('{\"seconds\": 0.25}')"
    assert run(sys.executable, "-c", code, is_self_timed=True).seconds == 0.25


def test_compiled_modules_are_kept_as_those_of_an_installed_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    printed = tmp_path / "printed"
    run(sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)", stdout=printed)
    assert printed.read_text() == "False\n"


def test_rows_are_selected_by_the_beginnings_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = row_of(Comparison(side("own", [])))
    rows = [
        replace(plain, key="a-1"),
        replace(plain, key="a-2"),
        replace(plain, key="curve", on_request=True),
    ]
    monkeypatch.setattr(harness, "ROWS", {each.key: each for each in rows})
    assert harness.selected("") == rows[:2]
    assert harness.selected("curve,a-2") == rows[1:]
    with pytest.raises(SystemExit, match="no row begins with 'b'"):
        harness.selected("a,b")


@pytest.mark.matrix
def test_rows_run_at_a_small_scale(tmp_path: Path) -> None:
    """Run the rows that need neither Java nor Spark at a small scale, from the generator to the table."""
    found = tmp_path / "bench.json"
    words = ["start-version", "segments-skew", "sweep-plan", "state-new", "curve-pipeline-0.1M"]
    environment = os.environ | {
        "TIERCTL_BENCH_SCALE": "0.001",
        "TIERCTL_BENCH_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-m", "tests.bench", ",".join(words), "--rounds", "1", "--json", str(found)]
    done = subprocess.run(
        command, env=environment, cwd=report.REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(found.read_text())["rows"]
    assert sorted(row["key"] for row in rows) == sorted(words)
    assert all(row["tierctl_s"] > 0 and row["peak_mb"] > 5 for row in rows)
    assert done.stdout.endswith(report.summary(rows) + "\n")
    assert not list((tmp_path / "cache").glob("run-*"))
