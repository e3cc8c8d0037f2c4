"""Tiers of whole captures that a test may change, and what became of them, ids and times left out."""

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
Run = Callable[..., Ran]

NOW_MS = 1795392000000
"""One time for all runs, after the captures; from 2026-11-23T10:30Z on more of their segments are expired."""

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"


def untiered(capture: Capture, target: Path) -> World:
    """A broker's log directory, and an empty tier."""
    target.mkdir()
    world = World(target / "metadata", target / "remote", capture("untiered-broker") / "local", target / "s")
    topic_in(world.metadata, writable=True, partition_count=50).close()
    return world


def tiered(capture: Capture, target: Path) -> World:
    """A cluster's tier before its brokers deleted anything."""
    before = capture("tiered-cluster") / "before"
    world = World(before, before.with_name("before-remote"), before, target / "none").clone(target)
    (world.logs / "configs").write_text(CONFIGS)
    return world


def unclean(capture: Capture, target: Path) -> World:
    """A tier with what two leaders wrote of the same offsets; metadata and logs are one broker's each."""
    before = capture("unclean-leader") / "before"
    world = World(before / "broker-1", before / "remote", before / "broker-2", target / "none").clone(target)
    (world.logs / "configs").write_text("payouts.retention.bytes=3145728\nwallets.retention.bytes=3145728\n")
    return world


def aivens(capture: Capture, target: Path) -> World:
    """A tier that Aiven's plugin wrote."""
    root = capture("aiven-plain")
    world = World(root / "broker-logs", root / "bucket", root / "broker-logs", target / "none").clone(target)
    (world.logs / "configs").write_text("sensors.retention.bytes=500000\n")
    return world


def copying(world: World) -> tuple[object, ...]:
    """Everything that can be copied."""
    logs = ("--log-dir", world.logs, *enabled(world.logs))
    return ("copy", *world.where, "--layout", "kafka", *logs, "-o", "json", "--apply")


def sweeping(world: World) -> tuple[object, ...]:
    """What the brokers deleted afterwards."""
    configs = ("--topic-configs", world.logs / "configs", "--log-start-offset", "orders-1=1500")
    options = ("--log-dir", world.logs, *configs, "--now", NOW_MS)
    return ("sweep", *world.where, *options, "-o", "json", "--apply")


def trimming(world: World, *more: str) -> tuple[object, ...]:
    """What the world's limits leave no room for."""
    logs = ("--log-dir", world.metadata, "--log-dir", world.logs)
    options = (*logs, "--topic-configs", world.logs / "configs", "--now", NOW_MS, *more)
    return ("sweep", *world.where, *options, "-o", "json", "--apply")


def marking(world: World, topic: str = "shortlived") -> tuple[object, ...]:
    """The topic that was deleted."""
    return ("delete", *world.where, *mark(world.metadata, topic), "-o", "json", "--apply")


def deleting(world: World) -> tuple[object, ...]:
    """What the tier has of it."""
    return ("delete", *world.where, "-o", "json", "--apply")


@dataclass(frozen=True, slots=True)
class End:
    """What a run printed, and what there is after it."""

    code: int
    printed: dict[str, Any]
    objects: dict[tuple[str, str, str], str]
    segments: list[dict[str, Any]]


def end_of(ran: Ran, world: World) -> End:
    """Equal for two runs that did the same, whatever did it."""
    shown = json.loads(ran.out)
    outcomes = [
        {name: value for name, value in outcome.items() if _is_lasting(name, outcome)}
        for outcome in shown["outcomes"]
    ]
    # Each run has its own time and its own folders, and so a digest of its own.
    lasting = {name: value for name, value in shown.items() if name not in {"identity", "digest"}}
    return End(
        ran.code, lasting | {"outcomes": outcomes}, objects_of(world.remote), segments_of(world.metadata)
    )


def _is_lasting(name: str, outcome: dict[str, Any]) -> bool:
    return name != "segment_id" or outcome["action"] != "copy_segment"
