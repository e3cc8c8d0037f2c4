"""Copies of whole captured tiers that a test may change, and their state without ids and times."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apply.commands import marking as mark
from tests.apply.worlds import World, objects_of, segments_of
from tests.cli.shell import Ran
from tests.metadata.topics import topic_in
from tests.support.topic_settings import enabled

Capture = Callable[[str], Path]

NOW_MS = 1795392000000
"""The time of all runs, after the captures; from 2026-11-23T10:30Z on, more segments are expired."""

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"


def untiered(capture: Capture, target: Path) -> World:
    """Return a broker's log directory, and an empty tier."""
    target.mkdir()
    world = World(target / "metadata", target / "remote", capture("untiered-broker") / "local", target / "s")
    topic_in(world.metadata, writable=True, partition_count=50).close()
    return world


def tiered(capture: Capture, target: Path) -> World:
    """Return a cluster's tier before its brokers deleted any segment."""
    before = capture("tiered-cluster") / "before"
    world = World(before, before.with_name("before-remote"), before, target / "none").clone(target)
    (world.logs / "configs").write_text(CONFIGS)
    return world


def copying(world: World) -> tuple[object, ...]:
    """Return a command that copies everything that can be copied."""
    logs = ("--log-dir", world.logs, *enabled(world.logs))
    return ("copy", *world.where, "--layout", "kafka", *logs, "-o", "json", "--apply")


def sweeping(world: World) -> tuple[object, ...]:
    """Return a command that deletes what the brokers deleted later."""
    configs = ("--topic-configs", world.logs / "configs", "--log-start-offset", "orders-1=1500")
    options = ("--log-dir", world.logs, *configs, "--now", NOW_MS)
    return ("sweep", *world.where, *options, "-o", "json", "--apply")


def marking(world: World, topic: str = "shortlived") -> tuple[object, ...]:
    """Return a command that marks the deleted topic."""
    return ("delete", *world.where, *mark(world.metadata, topic), "-o", "json", "--apply")


def deleting(world: World) -> tuple[object, ...]:
    """Return a command that deletes the topic's segments from the tier."""
    return ("delete", *world.where, "-o", "json", "--apply")


@dataclass(frozen=True, slots=True)
class End:
    """The output of a run, and the state after it."""

    code: int
    printed: dict[str, Any]
    objects: dict[tuple[str, str, str], str]
    segments: list[dict[str, Any]]


def end_of(ran: Ran, world: World) -> End:
    """Return a value that is equal for two runs with the same effects."""
    shown = json.loads(ran.out)
    outcomes = [
        {name: value for name, value in outcome.items() if _is_lasting(name, outcome)}
        for outcome in shown["outcomes"]
    ]
    # Each run has its own time and folders, and therefore its own digest.
    lasting = {name: value for name, value in shown.items() if name not in {"identity", "digest"}}
    return End(
        ran.code, lasting | {"outcomes": outcomes}, objects_of(world.remote), segments_of(world.metadata)
    )


def _is_lasting(name: str, outcome: dict[str, Any]) -> bool:
    return name != "segment_id" or outcome["action"] != "copy_segment"
