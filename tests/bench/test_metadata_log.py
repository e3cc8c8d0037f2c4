"""Generated metadata logs have the events of brokers, and documents have the figures of bench.json."""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tierctl.model.events import is_valid_transition
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata.values import decode

from tests.bench import figures
from tests.bench.metadata_log import DELETE_FINISHED, DELETE_STARTED, Shape, metadata_log
from tests.bench.process import usage
from tests.bench.rows import FEW, MANY, ROWS, SHAPES, WIDE


@pytest.mark.parametrize(
    "shape",
    [
        *(WIDE, replace(FEW, failed=0.1), MANY, *(shape for _, shape in SHAPES.values())),
        replace(WIDE, deleted=0.4, doubled=0.2, unclean=0.2, interrupted=0.2, terms=40, events_of_a_batch=7),
    ],
    ids=repr,
)
def test_every_event_follows_from_the_one_before(shape: Shape) -> None:
    shape = replace(shape, segments=600, user_partitions=60, metadata_partitions=2)
    last, owners = {}, []
    for file in metadata_log(shape).glob("*/*.log"):
        records = [record for batch in batches(file.read_bytes()) for record in batch.records()]
        for offset, record in enumerate(records):
            event = decode(record.value)
            assert (record.offset, record.timestamp_ms) == (offset, event.event_timestamp_ms)
            assert is_valid_transition(last.get(event.segment_id), event.state)
            last[event.segment_id] = event.state
            owners.append((event.topic, event.partition))
    assert (len(last) > shape.segments) == (shape.doubled > 0)
    assert (DELETE_FINISHED in last.values()) == (shape.deleted > 0 or shape.failed > 0)
    assert (DELETE_STARTED in last.values()) >= (shape.interrupted > 0)
    assert sum(a == b for a, b in pairwise(owners)) < 0.2 * len(owners)


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


def test_an_executor_is_watched_with_its_workers() -> None:
    worker = "import time; held = bytearray(200_000_000); sum(range(10_000_000)); time.sleep(1)"
    started = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    executor = [sys.executable, "-c", started, "-c", worker, "CoarseGrainedExecutorBackend"]
    found = usage(executor)
    assert 200 < found["executor_mb"] < 300
    assert found["executor_cpu_s"] > 0.05


def test_a_shape_is_compared_by_processor_time_per_event() -> None:
    row = next(row for row in ROWS.values() if row.is_per_event)
    costs = {"tierctl": {"seconds": 9, "cpu_s": 3, "events": 2e6, "peak_mb": 7}}
    costs["rival"] = costs["tierctl"] | {"cpu_s": 2.7, "events": 1e6}
    text = figures.page({"machine": STORED["machine"], "rows": {row.key: costs | {"date": "2030-01-02"}}}, "")
    assert f"tierctl 1.50 µs per event; rival {row.rival}: 2.70 µs per event; ratio 1.80×" in text
