"""Transfers of executors count in the metrics file and the summary, as on the local engine."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tierctl.model.choices import EngineName
from tierctl.storage.throttle import Direction, Fetches, Throttle, ThrottleSettings, Waits

from tests.cli.shell import tierctl
from tests.spark.on_engines import SPARK
from tests.spark.scenes import Capture
from tests.spark.worlds import tiered, untiered

FETCHED_BYTES = "kafka_server_brokertopicmetrics_remotefetchbytes_total"


def counters(file: Path) -> dict[tuple[str, ...], float]:
    """Return the counters in a metrics file by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if family.type == "counter"
    }


@pytest.mark.usefixtures("spark")
def test_reads_of_the_source_of_a_copy(capture: Capture, tmp_path: Path) -> None:
    source = tiered(capture, tmp_path / "source")
    found = []
    for engine in EngineName:
        target = untiered(capture, tmp_path / engine)
        places = ("--metadata", source.metadata, "--from-remote", source.remote, "--remote", target.remote)
        more = SPARK if engine is EngineName.SPARK else ()
        file = tmp_path / f"{engine}.prom"
        ran = tierctl(
            *("copy", *places, "--to-metadata", target.metadata, "--apply", "--metrics-file", file, *more)
        )
        assert ran.code == 0, ran.err
        found.append(counters(file))
    assert found[0] == found[1]
    assert found[0][FETCHED_BYTES, "payments"] > 0


@pytest.mark.matrix
@pytest.mark.usefixtures("spark")
def test_waits_of_executors_are_reported(capture: Capture, tmp_path: Path) -> None:
    world, file = tiered(capture, tmp_path / "world"), tmp_path / "x.prom"
    limit = ("--throttle-fetch", "2M", "--metrics-file", file)
    ran = tierctl("verify", *world.where[:4], "--deep", *limit, *SPARK)
    assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.summary
    values = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines() if line[0] != "#")
    name = "kafka_server_remotelogmanager_remote_fetch_throttle_time_"
    assert 0 < float(values[f"{name}avg"]) <= float(values[f"{name}max"])


def test_waits_of_processes_may_overlap() -> None:
    """A run's wait is that of the process that waited longest; counts and sums cover all processes."""
    throttle = Throttle(ThrottleSettings())
    for process, elapsed_s in (("a:1", 2.0), ("b:1", 3.0), ("a:1", 4.0)):
        waits = {Direction.FETCH: Waits(2, elapsed_s + 1, elapsed_s, elapsed_s)}
        throttle.add_waits(process, waits)
    times = throttle.times[Direction.FETCH].ended
    assert (times.count, times.sum_s, times.max_s, throttle.elapsed_s) == (6, 12.0, 4.0, 6.0)


def test_reads_are_added_by_topic() -> None:
    assert Fetches(1, 2, 3) + Fetches(4, 5, 6) == Fetches(5, 7, 9)


@pytest.mark.usefixtures("spark")
def test_the_line_that_ends_a_fetch_counts_topics(capture: Capture) -> None:
    root = capture("tiered-cluster")
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "-o", "jsonl")
    here, there = (tierctl("fetch", *where, *more).summary.partition(" (")[0] for more in ((), SPARK))
    assert here == there
    assert re.search(r"records of \d topics$", here)
