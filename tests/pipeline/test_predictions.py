"""`pipeline plan` predicts from the printed costs, and states that it is a prediction."""

import json

import pytest
from tierctl.errors import UsageError
from tierctl.pipeline.predictions import FOLD_US, STARTING_S, TABLES_US, TWO_CORES, Cluster, predictions

from tests.cli.shell import tierctl


def values(cluster: Cluster) -> dict[str, float]:
    return {row["what"]: row["value"] for row in predictions(cluster)}


def test_one_executor_does_it_all() -> None:
    found = values(Cluster(segments=1_000_000, deleted=500_000, executors=1))
    assert found["events in the metadata topic"] == 4_000_000
    assert found["tasks at a time"] == 1
    assert found["fold on executors"] == pytest.approx(STARTING_S + 4 * FOLD_US, abs=0.06)


@pytest.mark.parametrize(
    ("executors", "cores", "slots", "rounds"),
    [(10, 1, 10, 5), (25, 2, 50, 1), (40, 1, 40, 2), (500, 4, 50, 1)],
)
def test_no_more_tasks_than_metadata_partitions(executors: int, cores: int, slots: int, rounds: int) -> None:
    found = values(Cluster(segments=10_000_000, executors=executors, cores=cores))
    assert found["tasks at a time"] == slots
    # As many rounds as the task slots need for 50 metadata partitions.
    expected = STARTING_S + 20_000_000 * TABLES_US / 1e6 / 50 * rounds / TWO_CORES
    assert found["first pipeline run"] == pytest.approx(expected, abs=0.06)


def test_it_says_what_it_is() -> None:
    ran = tierctl("pipeline", "plan", "--segments", 10**6, "--executors", 8, "--output", "json")
    assert ran.code == 0, ran.err
    assert "not a measurement" in ran.err
    assert "make bench" in ran.err
    assert {row["unit"] for row in json.loads(ran.out)} == {"events", "tasks", "s", "bytes", "waves"}


def test_nothing_of_nothing() -> None:
    with pytest.raises(UsageError, match="executors"):
        Cluster(segments=1, executors=0)
