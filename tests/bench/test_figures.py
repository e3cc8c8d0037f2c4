"""The README has the figures of bench.json."""

import json

from tests.bench import report
from tests.bench.harness import ROWS
from tests.bench.rows import load


def test_the_readme_has_the_figures_of_bench_json() -> None:
    text, found = report.README.read_text(), json.loads(report.BENCH_JSON.read_text())
    assert report.readme_section(found) in text, "run `python -m tests.bench --readme`"


def test_bench_json_has_only_rows_that_exist_and_says_what_limits_those_that_miss() -> None:
    load()
    rows = json.loads(report.BENCH_JSON.read_text())["rows"]
    assert [row["key"] for row in rows if row["key"] not in ROWS] == []
    assert [row["key"] for row in rows if row["missed"] and not row["limit"]] == []
