"""The README and tierctl-speed(7) have the figures of bench.json, which come from pytest-benchmark."""

import json
import sys
from typing import Any

from tests.bench import figures
from tests.bench.process import usage
from tests.bench.rows import ROWS

STORED = json.loads(figures.BENCH_JSON.read_text())


def test_the_readme_and_the_manual_have_the_figures_of_bench_json() -> None:
    assert figures.readme_section(STORED) in figures.README.read_text()
    assert figures.page(STORED, figures.PAGE.read_text()) == figures.PAGE.read_text()
    assert set(STORED["rows"]) <= set(ROWS)


def test_a_row_is_replaced_when_both_contestants_were_measured() -> None:
    def result(key: str, contestant: str, seconds: float) -> dict[str, Any]:
        params = {"contestant": contestant}
        stats, more = {"median": seconds}, {"peak_mb": 7}
        return {"group": key, "params": params, "stats": stats, "extra_info": more}

    both = [result("format-kip", "tierctl", 2), result("format-kip", "rival", 9)]
    results = {
        "benchmarks": [*both, result("format-json", "tierctl", 1), result("large-sweep", "tierctl", 80)],
        "datetime": "2030-01-02T03:04:05",
        "commit_info": {"id": "f" * 40, "dirty": True},
        "machine_info": {"cpu": {"brand_raw": "C"}, "system": "L", "release": "1", "python_version": "3"},
    }
    found = figures.merged(STORED, results)
    changed = [key for key, row in found["rows"].items() if row != STORED["rows"].get(key)]
    assert changed == ["format-kip", "large-sweep"]
    assert "tierctl 2.0 s; rival kafka-dump-log: 9.0 s; ratio 4.50×; memory 7 MB : 7 MB" in figures.page(
        found, ""
    )


def test_memory_and_processor_time_are_those_of_the_command() -> None:
    found = usage([sys.executable, "-c", "held = bytearray(200_000_000); sum(range(10_000_000))"])
    assert 200 < found["peak_mb"] < 250
    assert found["cpu_s"] > 0.05


def test_a_shape_is_compared_by_processor_time_per_event() -> None:
    row = next(row for row in ROWS.values() if row.is_per_event)
    costs = {"tierctl": {"seconds": 9, "cpu_s": 3, "events": 2e6, "peak_mb": 7}}
    costs["rival"] = costs["tierctl"] | {"cpu_s": 2.7, "events": 1e6}
    text = figures.page({"machine": STORED["machine"], "rows": {row.key: costs | {"date": "2030-01-02"}}}, "")
    assert f"tierctl 1.50 µs per event; rival {row.rival}: 2.70 µs per event; ratio 1.80×" in text
