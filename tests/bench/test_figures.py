"""The README's figures are those of bench.json."""

import json
import re

from tests.bench import report
from tests.bench.harness import ROWS
from tests.bench.rows import load

_SPEED = re.compile(r"\b\d[\d.,]* (?:times as fast|[µmn]s\b|segments a second|records/s|[MG]iB/s)")


def test_the_readme_has_the_figures_of_bench_json() -> None:
    text, found = report.README.read_text(), json.loads(report.BENCH_JSON.read_text())
    assert report.readme_section(found) in text, "run `python -m tests.bench --readme`"


def test_the_readme_has_no_other_figures_of_speed() -> None:
    before, _, rest = report.README.read_text().partition(report.BEGIN)
    assert _SPEED.findall(before + rest.partition(report.END)[2]) == []


def test_bench_json_has_only_rows_that_exist_and_says_what_limits_those_that_miss() -> None:
    load()
    rows = json.loads(report.BENCH_JSON.read_text())["rows"]
    assert [row["key"] for row in rows if row["key"] not in ROWS] == []
    assert [row["key"] for row in rows if row["missed"] and not row["limit"]] == []
