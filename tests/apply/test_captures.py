"""Compare the commands with the actions of real brokers on the same log directories."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apply.commands import marking
from tests.apply.conftest import Ran
from tests.apply.worlds import World, objects_of, segments_of
from tests.support.topic_settings import enabled

Tierctl = Callable[..., Ran]

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"
NOW = "2026-11-21T10:40:00Z"
"""A time just after the capture; two days later, retention.ms would expire more segments of `metrics`."""
BROKER_DELETED = [
    ("clicks", 0, 2400),
    ("clicks", 1, 2400),
    ("metrics", 0, 0),
    ("metrics", 0, 800),
    ("metrics", 0, 1600),
    ("orders", 1, 0),
    ("orders", 1, 600),
]


def test_copy_stores_what_the_broker_stored(
    tierctl: Tierctl, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    broker = capture("untiered-broker")
    world = World(tmp_path / "metadata", tmp_path / "remote", broker / "local", tmp_path / "state")
    logs = ("--log-dir", world.logs, *enabled(world.logs))
    command = ("copy", *world.where, "--layout", "kafka", *logs, "-o", "json", "--apply")
    first = tierctl(*command, "--state-dir", world.state_dir)
    assert first.code == 0, first.err
    assert [outcome["status"] for outcome in first.json["outcomes"]] == ["done"] * 14
    assert len(first.json["steps"]) == 14
    assert objects_of(world.remote) == objects_of(broker / "tiered-remote")
    assert segments_of(world.metadata) == segments_of(broker / "tiered-metadata")
    for state_dir in ((), ("--state-dir", world.state_dir)):
        again = tierctl(*command, *state_dir)
        assert (again.code, again.json["steps"], again.json["outcomes"]) == (0, [], [])


@pytest.fixture
def cluster(writable: Callable[[str], Path], tmp_path: Path) -> World:
    """The captured tiered cluster before the broker deleted any segment."""
    metadata = writable("tiered-cluster/before")
    return World(metadata, writable("tiered-cluster/before-remote"), metadata, tmp_path / "state")


def _sweep(cluster: World, tmp_path: Path, *more: object) -> tuple[object, ...]:
    configs = tmp_path / "configs"
    configs.write_text(CONFIGS)
    options = ("--log-dir", cluster.logs, "--topic-configs", configs)
    return ("sweep", *cluster.where, *options, "--log-start-offset", "orders-1=1500", "--now", NOW, *more)


def _brief(steps: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(step["topic"], step["partition"], step["start_offset"]) for step in steps]


def test_sweep_plans_what_the_broker_deleted(tierctl: Tierctl, cluster: World, tmp_path: Path) -> None:
    plan = tierctl(*_sweep(cluster, tmp_path, "--output", "json"))
    assert (plan.code, _brief(plan.json["steps"])) == (0, BROKER_DELETED)
    assert tierctl(*_sweep(cluster, tmp_path, "--detailed-exitcode")).code == 9
    narrowed = tierctl(*_sweep(cluster, tmp_path, "--output", "jsonl", "--topic", "clicks", "--partition", 1))
    assert _brief([json.loads(line) for line in narrowed.out.splitlines()]) == [("clicks", 1, 2400)]


def test_sweep_and_delete_leave_what_the_broker_left(
    tierctl: Tierctl, cluster: World, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    swept = tierctl(
        *_sweep(cluster, tmp_path, "--output", "json", "--state-dir", cluster.state_dir, "--apply")
    )
    assert swept.code == 0, swept.err
    assert _brief(swept.json["outcomes"]) == BROKER_DELETED
    again = tierctl(*_sweep(cluster, tmp_path, "--output", "json", "--state-dir", cluster.state_dir))
    assert again.json["steps"] == []
    delete = ("delete", *cluster.where, "--state-dir", cluster.state_dir, "-o", "json", "--apply")
    before = tierctl(*delete)
    assert (before.code, before.json["steps"]) == (0, [])
    marked = tierctl(*delete, *marking(cluster.metadata, "shortlived"))
    assert (marked.code, len(marked.json["outcomes"])) == (0, 2)
    deleted = tierctl(*delete)
    assert deleted.code == 0, deleted.err
    assert {step["topic"] for step in deleted.json["steps"]} == {"shortlived"}
    assert tierctl(*delete).json["steps"] == []
    broker = capture("tiered-cluster")
    assert objects_of(cluster.remote) == objects_of(broker / "after-remote")
    assert segments_of(cluster.metadata) == segments_of(broker / "after")


def test_without_a_log_directory_the_tier_gives_the_lineage(
    tierctl: Tierctl, cluster: World, tmp_path: Path
) -> None:
    configs = tmp_path / "configs"
    configs.write_text(CONFIGS)
    plan = tierctl("sweep", *cluster.where, "--topic-configs", configs, "--now", NOW, "-o", "json")
    assert _brief(plan.json["steps"]) == [("metrics", 0, 0), ("metrics", 0, 800), ("metrics", 0, 1600)]
    assert "retention.bytes" in plan.err
