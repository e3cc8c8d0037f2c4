"""copy, sweep and delete have the same results on threads and on every kind of Spark, byte for byte.

tests/spark/scenes.py and test_engine_s3.py use local[2].
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apply.worlds import World, check_deleted, check_durable, objects_of
from tests.cli.shell import tierctl
from tests.spark.clusters import ENGINES, Engine
from tests.spark.worlds import (
    Capture,
    End,
    Run,
    copying,
    deleting,
    end_of,
    marking,
    sweeping,
    tiered,
    untiered,
)


def _copied(run: Run, capture: Capture, target: Path) -> list[End]:
    world = untiered(capture, target)
    return _ends(run, world, copying(world))


def _swept_and_deleted(run: Run, capture: Capture, target: Path) -> list[End]:
    world = tiered(capture, target)
    return _ends(run, world, sweeping(world), marking(world), deleting(world))


def _copied_from_an_encrypted_tier(run: Run, capture: Capture, target: Path) -> list[End]:
    """Copy from an encrypted tier, with a private key that executors read from a file."""
    key = capture("aiven-encrypted") / "keys" / "private.pem"
    world, root = World(*map(target.joinpath, ("metadata", "remote", "logs", "state"))), key.parents[1]
    source = ("--metadata", root / "broker-logs", "--from-remote", root / "bucket", "--from-layout", "aiven")
    target_options = ("--to-metadata", world.metadata, "--remote", world.remote, "--layout", "kafka")
    keys = ("--aiven-private-key", f"key1={key}")
    return _ends(run, world, ("copy", *source, *target_options, *keys, "-o", "json", "--apply"))


def _ends(run: Run, world: World, *commands: tuple[object, ...]) -> list[End]:
    ends = []
    for command in commands:
        ran = run(*command)
        assert ran.code == 0, ran.err
        ends.append(end_of(ran, world))
        check_durable(world)
        check_deleted(world)
    return ends


SCENES: tuple[Callable[[Run, Capture, Path], list[End]], ...] = (
    _copied,
    _swept_and_deleted,
    _copied_from_an_encrypted_tier,
)


@pytest.fixture(scope="module")
def on_threads(
    capture: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[End]]:
    folder = tmp_path_factory.mktemp("threads")
    return {scene.__name__: scene(tierctl, capture, folder / scene.__name__) for scene in SCENES}


@pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__.strip("_"))
def test_it_ends_as_on_threads(
    engine: Engine,
    scene: Callable[[Run, Capture, Path], list[End]],
    on_threads: dict[str, list[End]],
    capture: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    ends = scene(engine.tierctl, capture, tmp_path / "world")
    assert ends == on_threads[scene.__name__]
    assert all(end.printed["outcomes"] for end in ends)


def test_on_threads_it_ends_as_brokers_did(
    on_threads: dict[str, list[End]], capture: Callable[[str], Path]
) -> None:
    (copied,) = on_threads["_copied"]
    assert copied.objects == objects_of(capture("untiered-broker") / "tiered-remote")
    deleted = on_threads["_swept_and_deleted"][-1]
    assert deleted.objects == objects_of(capture("tiered-cluster") / "after-remote")
