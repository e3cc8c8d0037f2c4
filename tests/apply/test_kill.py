"""kill -9 before and after every labelled side effect: later runs reach the result of an undisturbed run."""

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import LABELS
from tierctl.model import RemoteLogSegmentMetadata, Uuid

from tests.apply.commands import marking
from tests.apply.repairs import a_day_passes, age
from tests.apply.test_kill_restore import ID_LABELS, LOG_LABELS
from tests.apply.worlds import DAY_MS, RETENTION, World, check_deleted, check_durable, copy_world
from tests.cli.shell import tierctl
from tests.commands.ended import ended
from tests.metadata.topics import manager_at, topic_in
from tests.support.amounts import TRIES_ALL
from tests.support.killing import RESTORE_LABELS, SIGKILLED, Zygote, met, moments
from tests.support.topic_settings import enabled
from tests.verify.cases import S, update
from tests.verify.tiers import Spoilt

SEED = 20260405


UNSAFE_OFFSET = 99_999


@dataclass(frozen=True, slots=True)
class Case:
    """One command over one world. `labels` are the side effects that it performs."""

    name: str
    labels: tuple[str, ...]
    args: Callable[[World], tuple[object, ...]]
    where: Callable[[World], tuple[object, ...]] = lambda world: world.where
    publishes: bool = False
    """Whether the command publishes segments whose objects exist already."""
    plans: Callable[[World], tuple[object, ...]] | None = None
    """The command that writes the plan, for cases that carry out a saved plan."""

    def command(self, world: World) -> tuple[object, ...]:
        if self.plans is not None:
            world.state_dir.mkdir(exist_ok=True)
            name, *options = self.plans(world)
            # Two runs, a day apart, must have seen an orphan.
            tierctl(name, *self.where(world), *options)
            a_day_passes(world.state_dir)
            tierctl(name, *self.where(world), *options)
        name, *rest = self.args(world)
        return (name, *self.where(world), *rest, "--apply", "--wave-size", 2, "--threads", 2)


def _copy(world: World) -> tuple[object, ...]:
    return ("copy", "--layout", "kafka", "--log-dir", world.logs, *enabled(world.logs))


def _copy_tier(world: World) -> tuple[object, ...]:
    return ("copy", "--layout", "kafka")


def _between_tiers(world: World) -> tuple[object, ...]:
    """Make a world whose source tier is in the place of the log directory."""
    source = ("--metadata", world.logs / "metadata", "--from-remote", world.logs / "remote")
    return (*source, "--to-metadata", world.metadata, "--remote", world.remote)


def _clean(world: World) -> tuple[object, ...]:
    return (*_copy(world), "--clean-dangling")


def _sweep(world: World) -> tuple[object, ...]:
    configs = world.logs / "configs"
    return ("sweep", "--log-dir", world.logs, "--topic-configs", configs, "--state-dir", world.state_dir)


def _mark(world: World) -> tuple[object, ...]:
    return ("delete", *marking(world.metadata, "bills"))


def _delete(world: World) -> tuple[object, ...]:
    return ("delete", "--state-dir", world.state_dir)


def _rebuild(world: World) -> tuple[object, ...]:
    return ("rebuild", "--layout", "kafka", "--log-dir", world.logs, "--log-start", "tier")


def _plan_repair(world: World) -> tuple[object, ...]:
    logs = ("--log-dir", world.logs, "--state-dir", world.state_dir)
    return ("verify", *logs, "--plan-out", world.state_dir / "plan")


def _repair(world: World) -> tuple[object, ...]:
    logs = ("--log-dir", world.logs, "--state-dir", world.state_dir)
    return ("apply", world.state_dir / "plan", *logs)


_COPIES = ("tier.identity.write", "copy.started.publish", "copy.segment.store", "copy.finished.publish")
_WITHDRAWALS = ("copy.cleanup_started.publish", "copy.cleanup.delete", "copy.cleanup_finished.publish")
COPY = Case("copy", _COPIES, _copy)
COPY_TIER = Case("copy from a tier", _COPIES, _copy_tier, _between_tiers)
# What follows the withdrawal is the same as in COPY.
COPY_AGAIN = Case("copy after a kill", (*_WITHDRAWALS, *(_COPIES[1:] if TRIES_ALL else ())), _copy)
CLEAN = Case("clean", _WITHDRAWALS, _clean)
SWEEP = Case("sweep", tuple(label for label in LABELS if label.startswith("sweep.")), _sweep)
MARK = Case("mark", ("delete.marked.publish",), _mark)
DELETE = Case(
    "delete",
    tuple(label for label in LABELS if label.startswith("delete.") and label not in MARK.labels),
    _delete,
)
REBUILD = Case(
    "rebuild", tuple(label for label in LABELS if label.startswith("rebuild.")), _rebuild, publishes=True
)
REPAIR = Case(
    "repair",
    # It also publishes segments and deletes objects, by the acts of rebuild and sweep.
    ("repair.orphans.publish", "repair.indexes.store", "repair.offsets.write", "sweep.started.publish"),
    _repair,
    plans=_plan_repair,
)
CASES = (COPY, COPY_TIER, COPY_AGAIN, CLEAN, SWEEP, MARK, DELETE, REBUILD, REPAIR)


def test_every_label_has_a_case() -> None:
    own = set(LABELS) - set(LOG_LABELS) - set(RESTORE_LABELS) - set(ID_LABELS)
    assert {label for case in CASES for label in case.labels} == own


@pytest.fixture(scope="module")
def worlds(capture: Callable[[str], Path], module_folder: Path, forked: Zygote) -> dict[str, World]:
    """Return the world in which each case begins."""
    empty = copy_world(module_folder / "empty", capture("untiered-broker"))
    killed = empty.clone(module_folder / "killed")
    _run(forked, COPY, killed, SIGKILLED, kills=[["copy.finished.publish", "before", 1]])
    dangling = empty.clone(module_folder / "dangling")
    _run(forked, COPY, dangling)
    _begin_copy(dangling, broker_id=7, age_ms=2 * DAY_MS)
    tiered = empty.clone(module_folder / "tiered")
    _run(forked, COPY, tiered)
    (tiered.logs / "configs").write_text(RETENTION)
    marked = tiered.clone(module_folder / "marked")
    _run(forked, MARK, marked)
    target = World(*(module_folder / "target" / name for name in ("m", "r", "logs", "state")))
    topic_in(target.metadata, writable=True, partition_count=3).close()
    shutil.copytree(tiered.metadata, target.logs / "metadata")
    shutil.copytree(tiered.remote, target.logs / "remote")
    return {
        "copy": empty,
        "copy from a tier": target,
        "copy after a kill": killed,
        "clean": dangling,
        "sweep": tiered,
        "mark": tiered,
        "delete": marked,
        "repair": _to_repair(tiered.clone(module_folder / "to-repair")),
        "rebuild": _damaged(tiered.clone(module_folder / "damaged")),
    }


def _damaged(world: World) -> World:
    """Make a world without metadata whose broker has started since, raised log starts and cut the epochs."""
    shutil.rmtree(world.metadata)
    topic_in(world.metadata, writable=True, partition_count=2).close()
    for path in world.logs.glob("bills-0/*.*"):
        if path.name[:20] in {"00000000000000000000", "00000000000000000600", "00000000000000001200"}:
            path.unlink()
    (world.logs / "log-start-offset-checkpoint").write_text("0\n1\nbills 0 1800\n")
    (world.logs / "bills-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 1800\n2 2000\n")
    return world


def _to_repair(world: World) -> World:
    """Make a world with a dangling copy, an orphan, and segments without events or without indexes.

    It also has an unsafe committed offset.
    """
    _begin_copy(world, broker_id=7, age_ms=2 * DAY_MS)
    tier = Spoilt(world.metadata, world.remote)
    bare = next(s for s in world.segments() if s.start_offset == 0 and s.state is S.COPY_SEGMENT_FINISHED)
    for suffix in (".index", ".snapshot"):
        tier.object(bare, suffix).unlink()
    first, lost = (s for s in world.segments() if s.start_offset in {600, 1200})
    for segment, new_id in ((first, "BAAAAAAAAAAAAAAAAAAAAQ"), (lost, "CAAAAAAAAAAAAAAAAAAAAQ")):
        age(tier.copy_objects(segment, replace(segment, segment_id=Uuid(new_id))))
    for path in tier.files(lost):
        path.unlink()
    tier.append(update(lost, S.DELETE_SEGMENT_STARTED), update(lost, S.DELETE_SEGMENT_FINISHED))
    (world.logs / "_rlmm_committed_offsets").write_text(f"0\n1\n0 {UNSAFE_OFFSET}\n")
    return world


def _begin_copy(world: World, *, broker_id: int, age_ms: int = 0) -> RemoteLogSegmentMetadata:
    """Begin a copy: publish COPY_SEGMENT_STARTED and store a part of the objects."""
    manager = manager_at(world.metadata, writable=True)
    part = next(iter(manager.refresh()))
    like = next(part.cache.list_remote_log_segments())
    begun = replace(
        like,
        segment_id=Uuid("AAAAAAAAAAAAAAAAAAAAAQ"),
        state=S.COPY_SEGMENT_STARTED,
        broker_id=broker_id,
        event_timestamp_ms=int(time.time() * 1000) - age_ms,
    )
    manager.publish([begun])
    manager.close()
    folder = world.remote / "kafka-tiered-storage" / f"bills-0-{like.topic_id}"
    (folder / f"{0:020d}-{begun.segment_id}.log").write_bytes(bytes(8) + b"half")
    return begun


def _run(forked: Zygote, case: Case, world: World, code: int = 0, **kill: Any) -> Any:
    ran = forked(*case.command(world), **kill)
    assert ran.code == code, ran.err
    return ran


@dataclass(frozen=True, slots=True)
class End:
    """The result of an undisturbed run, and how often it performed each side effect."""

    facts: Any
    objects: Any
    checkpoints: dict[Path, bytes]
    met: dict[tuple[str, str], int]


@pytest.fixture(scope="module")
def ends(worlds: dict[str, World], forked: Zygote, module_folder: Path) -> dict[str, End]:
    """Return the results of undisturbed runs; after each of them, another run does nothing."""
    ends = {}
    for case in CASES:
        world = worlds[case.name].clone(module_folder / f"end-{case.name}")
        ran = _run(forked, case, world)
        ends[case.name] = End(world.facts(), _stored(world), _checkpoints(world), met(ran))
        again = _run(forked, case, world)
        assert {label for label, _ in met(again)} <= {"file"}, f"a rerun of {case.name} still did something"
    return ends


def _checkpoints(world: World) -> dict[Path, bytes]:
    found = [path for path in world.logs.rglob("*-checkpoint") if path.is_file()]
    return {path.relative_to(world.logs): path.read_bytes() for path in found}


def _stored(world: World) -> dict[tuple[str, str], bytes]:
    """Return the objects by folder, start offset and kind, because ids differ from run to run."""
    stored = {}
    for key, data in world.objects().items():
        folder, name = key.rsplit("/", 1)
        place = (folder, name[:20] + name.rsplit(".", 1)[1])
        assert place not in stored, f"two objects at {place}"
        stored[place] = data
    return stored


def _converge(forked: Zygote, case: Case, world: World, end: End) -> None:
    """Run the command once more: it reaches the result of an undisturbed run."""
    if case.plans is not None:
        assert not _missing_objects(world)
    elif not case.publishes:
        check_durable(world)
    elif world.segments():
        # With another log start or other epochs, a broker would delete the published segments.
        assert _checkpoints(world) == end.checkpoints
    check_deleted(world)
    _run(forked, case, world)
    assert world.facts() == end.facts
    check_durable(world)
    assert _stored(world) == end.objects
    assert _checkpoints(world) == end.checkpoints
    for committed in world.logs.glob("_rlmm_committed_offsets"):
        # The new committed offset depends on the events that the killed run published.
        assert int(committed.read_text().split()[-1]) < UNSAFE_OFFSET
    assert not [s for s in world.segments() if s.state != "COPY_SEGMENT_FINISHED"]


def test_a_link_stops_a_rebuild_before_a_file_is_changed(
    worlds: dict[str, World], forked: Zygote, tmp_path: Path
) -> None:
    world = worlds["rebuild"].clone(tmp_path / "world")
    starts = world.logs / "log-start-offset-checkpoint"
    starts.rename(tmp_path / "moved")
    starts.symlink_to(tmp_path / "moved")
    before = _checkpoints(world)
    ended(forked(*REBUILD.command(world)), 4, f"{starts} is a symbolic link")
    assert _checkpoints(world) == before


def _missing_objects(world: World) -> list[str]:
    """Return the finished segments without a log in the tier."""
    stored = " ".join(world.objects())
    finished = [s for s in world.segments() if s.state == "COPY_SEGMENT_FINISHED"]
    return [s.segment_id for s in finished if f"{s.segment_id}.log" not in stored]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kill_around_every_side_effect(
    case: Case, worlds: dict[str, World], ends: dict[str, End], forked: Zygote, tmp_path: Path
) -> None:
    for at, kill in enumerate(moments(ends[case.name].met, case.labels)):
        world = worlds[case.name].clone(tmp_path / str(at))
        _run(forked, case, world, SIGKILLED, kills=[kill])
        _converge(forked, case, world, ends[case.name])


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kill_at_any_change_of_a_file(
    case: Case, worlds: dict[str, World], ends: dict[str, End], forked: Zygote, tmp_path: Path
) -> None:
    count = ends[case.name].met["file", "changes"]
    chosen = random.Random(SEED).sample(range(1, count + 1), min(6, count))
    for nth in chosen:
        world = worlds[case.name].clone(tmp_path / str(nth))
        _run(forked, case, world, SIGKILLED, files=nth)
        _converge(forked, case, world, ends[case.name])
