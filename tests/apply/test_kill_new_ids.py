"""kill -9 around every side effect of `restore new-ids`: the next run reaches the undisturbed result."""

import shutil
from pathlib import Path

import pytest
from tierctl.apply.run_context import LABELS
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.wire.files.checkpoints import read_offset_checkpoint

from tests.apply.worlds import World
from tests.support.killing import SIGKILLED, Zygote, met, moments

OWN_LABELS = [label for label in LABELS if label.startswith("restore.") and "bootstrap" not in label]
NEW_ID = Uuid("NewIdNewIdNewIdNewIdNQ")
TIER = "kafka-tiered-storage"


def partitions(world: World) -> list[str]:
    """Return the names of the partitions of bills that have objects."""
    found = {path.name[:-23] for path in (world.remote / TIER).iterdir()}
    return sorted(name for name in found if name.startswith("bills-"))


def with_new_topic(world: World, target: Path, epochs: str = "1\n99 0\n") -> World:
    """Return a copy of the world whose broker has the empty logs of a new topic."""
    found = world.clone(target)
    (found.metadata / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    for name in partitions(world):
        folder = found.metadata / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{epochs}")
        (folder / "00000000000000000000.log").touch()
    return found


def command(world: World, *more: object) -> tuple[object, ...]:
    return (
        *("restore", "new-ids", *world.where, "--log-dir", world.metadata, "--topic", "bills"),
        *("--assume-enabled", "--apply", *more),
    )


def copies(world: World) -> dict[str, bytes]:
    """Return the objects under the new id, by the keys that they have under the old id."""
    old = next(
        path.name[-22:]
        for path in (world.remote / TIER).iterdir()
        if path.name.startswith("bills-") and path.name[-22:] != NEW_ID
    )
    return {key.replace(NEW_ID, old): data for key, data in world.objects().items() if NEW_ID in key}


def segments(world: World) -> set[tuple[object, ...]]:
    return {_facts(segment) for segment in world.segments() if segment.topic_id == NEW_ID}


def _facts(s: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (s.partition, s.segment_id, s.start_offset, s.end_offset, s.segment_leader_epochs, s.state)


def logs(world: World) -> dict[str, bytes]:
    """Return the files of the new topic's logs, and the topic's entries in the checkpoint files."""
    found = {
        str(path.relative_to(world.metadata)): path.read_bytes()
        for path in world.metadata.glob("bills-*/*")
        if not path.parent.name.endswith("-delete")
    }
    for path in world.metadata.glob("*-offset-checkpoint"):
        own = {p: o for p, o in read_offset_checkpoint(path.read_bytes()).items() if p.topic == "bills"}
        found[path.name] = str(sorted(own.items())).encode()
    return found


@pytest.mark.slow
def test_kill_around_every_side_effect(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole = with_new_topic(tiered, tmp_path / "whole")
    ran = forked(*command(whole))
    assert ran.code == 0, ran.err
    end = (copies(whole), logs(whole), segments(whole))
    objects = tiered.objects()
    of_bills = {key: data for key, data in objects.items() if key.startswith(f"{TIER}/bills-")}
    assert end[0] == of_bills
    assert len(end[2]) == sum(key.endswith(".log") for key in of_bills)
    assert objects.items() <= whole.objects().items()
    for at, kill in enumerate(moments(met(ran), OWN_LABELS)):
        world = with_new_topic(tiered, tmp_path / str(at))
        assert forked(*command(world), kills=[kill]).code == SIGKILLED
        if segments(world):
            # Events are written last: every segment that they name is in the tier, and the logs are renamed.
            assert (copies(world), logs(world)) == end[:2], kill
        for _ in range(2):
            again = forked(*command(world))
            assert again.code == 0, again.err
        assert (copies(world), logs(world), segments(world)) == end, kill
        assert objects.items() <= world.objects().items()
        assert not list(world.metadata.glob("*-delete"))


def test_what_is_refused(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    low = with_new_topic(tiered, tmp_path / "low", epochs="0\n")
    used = with_new_topic(tiered, tmp_path / "used")
    (used.metadata / "bills-0" / "00000000000000000000.log").write_bytes(b"\0" * 100)
    missing = with_new_topic(tiered, tmp_path / "missing")
    shutil.rmtree(missing.metadata / "bills-0")
    replicas = with_new_topic(tiered, tmp_path / "replicas")
    other = tmp_path / "other"
    shutil.copytree(replicas.metadata, other)
    damaged = with_new_topic(tiered, tmp_path / "hole")
    logs_of = sorted((damaged.remote / TIER).glob("bills-0-*/*.log"))
    logs_of[1].unlink()
    for world, more, why in (
        (low, (), "would truncate the lineage"),
        (used, (), "has or had records"),
        (missing, (), "no log directory has a folder of bills-0"),
        (replicas, ("--log-dir", other), "with one replica"),
        (damaged, (), "no set of objects has offsets"),
    ):
        before = world.objects()
        ran = forked(*command(world, *more))
        assert (ran.code, why in ran.err) == (4, True), ran.err
        assert world.objects() == before
        assert not segments(world)


def test_a_saved_plan_is_carried_out(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole, planned = (with_new_topic(tiered, tmp_path / name) for name in ("whole", "planned"))
    assert forked(*command(whole)).code == 0
    saved = tmp_path / "plan.json"
    ran = forked(*command(planned)[:-1], "--plan-out", saved)
    assert ran.code == 0, ran.err
    assert not copies(planned)
    apply = ("apply", saved, *planned.where, "--log-dir", planned.metadata, "--apply")
    for _ in range(2):
        ran = forked(*apply)
    for found in (copies, logs, segments):
        assert found(planned) == found(whole)
    ran = forked(*command(planned), "--topic-id", NEW_ID)
    assert (ran.code, "--from-id" in ran.err) == (2, True), ran.err
