"""How fast decoded records become text: by columns, against the scalar text a record at a time."""

import time
from typing import Any

import pyarrow as pa
import pytest
from tierctl.report.formatters.records import Records
from tierctl.report.formatters.registry import load
from tierctl.wire.metadata import decode

from tests.conftest import vectors
from tests.wire.metadata.java_text import to_string

pytestmark = pytest.mark.benchmark(timer=time.process_time)

_ROWS = {True: 200_000, False: 2_000}
_SCALAR_ROWS = 10_000

_rates: dict[str, float] = {}


@pytest.fixture(scope="module")
def values(request: pytest.FixtureRequest) -> list[bytes]:
    """What Kafka's classes wrote, again and again."""
    some = [bytes.fromhex(vector["hex"]) for vector in vectors("serde-kafka.jsonl")]
    rows = _ROWS[bool(request.config.getoption("benchmark_enable"))]
    return (some * (rows // len(some) + 1))[:rows]


def _measure(benchmark: Any, name: str, rows: int, work: Any) -> Any:
    made = benchmark.pedantic(work, rounds=3, iterations=1)
    if benchmark.stats is not None:
        _rates[name] = rows / benchmark.stats.stats.min
        benchmark.extra_info["lines_per_second"] = round(_rates[name])
    return made


def test_a_record_at_a_time(benchmark: Any, values: list[bytes]) -> None:
    some = values[:_SCALAR_ROWS]
    lines = _measure(benchmark, "scalar", len(some), lambda: [to_string(decode(value)) for value in some])
    assert len(lines) == len(some)


@pytest.mark.parametrize("style", ["kafka", "kip", "json"])
def test_by_columns(
    style: str, benchmark: Any, values: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """From values to lines, decoding included."""
    column = pa.array(values, pa.binary())
    offsets = pa.array(range(len(values)), pa.int64())
    formatter = load(style, {})

    def work() -> list[str]:
        return list(formatter.lines(Records.of(0, offsets, offsets, column)))

    assert len(_measure(benchmark, style, len(values), work)) == len(values)
    if "scalar" in _rates:
        with capsys.disabled():
            ratio = _rates[style] / _rates["scalar"]
            print(f"\n--style {style}: {_rates[style]:,.0f} lines/s; {ratio:.1f} times a record at a time")
