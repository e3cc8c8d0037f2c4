"""What the commands refuse, drop and say: rivals, limits, plans that no longer hold, damaged metadata."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.deletion import segment_update
from tierctl.apply.effects import observe
from tierctl.apply.outcome import Outcome, Status, exit_code
from tierctl.cli.delete import with_default_interval
from tierctl.cli.mutation import new_segment_id
from tierctl.errors import LimitExceeded, MetadataError, RemoteStorageError
from tierctl.metadata.log_on_disk import MetadataLogOnDisk
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.model import Action, Step

from tests.apply import bench
from tests.apply.bench import NOW_MS, opened, put, run_on, statuses
from tests.apply.conftest import Ran
from tests.apply.faults import Meddling
from tests.apply.test_faults import mark
from tests.apply.worlds import RETENTION, World, copy_world

Tierctl = Callable[..., Ran]
_S = RemoteLogSegmentState
OTHER_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")


@pytest.fixture(scope="module")
def beginning(capture: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    world = copy_world(tmp_path_factory.mktemp("empty"), capture("untiered-broker"))
    (world.logs / "configs").write_text(RETENTION)
    return world


@pytest.fixture(scope="module")
def copied(beginning: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = beginning.clone(tmp_path_factory.mktemp("tiered"))
    assert set(statuses(run_on("copy", world))) == {Status.DONE}
    return world


@pytest.fixture
def empty(beginning: World, tmp_path: Path) -> World:
    return beginning.clone(tmp_path / "empty")


@pytest.fixture
def tiered(copied: World, tmp_path: Path) -> World:
    return copied.clone(tmp_path / "tiered")


def copy(world: World, *more: object) -> tuple[object, ...]:
    return ("copy", *world.where, "--layout", "kafka", "--log-dir", world.logs, "-o", "json", *more)


def sweep(world: World, *more: object) -> tuple[object, ...]:
    configs = world.logs / "configs"
    options = ("--log-dir", world.logs, "--topic-configs", configs, "--now", NOW_MS, "-o", "json")
    return ("sweep", *world.where, *options, *more)


def delete(world: World, *more: object) -> tuple[object, ...]:
    return ("delete", *world.where, "-o", "json", *more)


def files(world: World) -> dict[str, bytes]:
    """Every byte of metadata and tier; lock files hold none."""
    found = {}
    for root in (world.metadata, world.remote):
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.stat().st_size:
                found[str(path)] = path.read_bytes()
    return found


@contextmanager
def running_broker(log_dir: Path) -> Iterator[None]:
    """Another process that holds the directory's lock, as a broker does."""
    (log_dir / ".lock").touch()
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print(1, flush=True); input()"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", script, str(log_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert broker.stdout is not None
    broker.stdout.readline()
    try:
        yield
    finally:
        broker.communicate(b"\n")


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_without_apply_nothing_changes(command: Any, tiered: World, tierctl: Tierctl) -> None:
    before = files(tiered)
    assert tierctl(*command(tiered)).code == 0
    assert files(tiered) == before


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_the_second_of_two_is_locked_out(command: Any, tiered: World, tierctl: Tierctl) -> None:
    with opened(tiered):
        before = files(tiered)
        assert tierctl(*command(tiered, "--apply")).code == 6
        assert files(tiered) == before
        assert tierctl(*command(tiered)).code == 0, "looking needs no lock"


@pytest.mark.parametrize("command", [copy, sweep], ids=["copy", "sweep"])
def test_a_running_broker_is_no_place_to_work(command: Any, tiered: World, tierctl: Tierctl) -> None:
    with running_broker(tiered.logs):
        before = files(tiered)
        assert tierctl(*command(tiered, "--apply")).code == 4
        assert files(tiered) == before
        assert tierctl(*command(tiered, "--apply", "--allow-live-brokers")).code == 0


def test_metadata_of_a_running_broker_are_never_written(tiered: World, tierctl: Tierctl) -> None:
    with running_broker(tiered.metadata):
        assert tierctl(*sweep(tiered, "--apply", "--allow-live-brokers")).code == 4
        assert tierctl(*delete(tiered, "--apply")).code == 4


@pytest.mark.parametrize("limit", [("--max-deletes", 1), ("--max-deletes", 0)])
def test_limits_stop_a_sweep_before_its_first_delete(
    limit: tuple[object, ...], tiered: World, tierctl: Tierctl
) -> None:
    before = files(tiered)
    shown = tierctl(*sweep(tiered, *limit))
    assert (shown.code, len(shown.json["steps"])) == (0, 2)
    assert "--max-deletes" in shown.err
    refused = tierctl(*sweep(tiered, *limit, "--apply"))
    assert refused.code == 8
    assert files(tiered) == before


def _broker_deletes(world: World, offset: int, *states: RemoteLogSegmentState) -> None:
    with opened(world) as manager:
        manager.refresh()
        segment = next(s for s in world.segments() if s.start_offset == offset)
        for state in states:
            tools: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
            manager.publish([segment_update(segment, state, tools)])


def test_a_plan_of_what_a_broker_deleted_meanwhile(tiered: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    tierctl(*sweep(tiered, "--plan-out", kept))
    _broker_deletes(tiered, 0, _S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED)
    ran = tierctl("apply", kept, *tiered.where, "-o", "json", "--apply")
    assert (ran.code, [step["start_offset"] for step in ran.json["outcomes"]]) == (0, [600])
    assert [skip["reason"] for skip in ran.json["skipped"]] == ["the segment is deleted already"]


def test_a_broker_writes_between_the_waves(tiered: World) -> None:
    """The second wave's segment is deleted by somebody else while the first is under way."""
    with opened(tiered):
        second = next(s for s in tiered.segments() if s.start_offset == 600)

    def meddle(metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.start_offset == 0:
            manager = meddled[0]
            for state in (_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED):
                tools: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
                manager.publish([segment_update(second, state, tools)])

    meddled: list[Any] = []
    with opened(tiered) as manager:
        meddled.append(manager)
        plan = bench.plan_of("sweep", tiered, manager)
        tools = bench.tools_of(tiered, manager, lambda inner: Meddling(inner, meddle), wave_size=1)
        outcomes = bench.run(plan, tools)
    assert statuses(outcomes) == [Status.DONE, Status.DONE]
    assert outcomes[1].reason == "the segment is deleted already"


def test_a_log_that_changed_since_the_plan(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    assert len(tierctl(*copy(empty, "--plan-out", kept)).json["steps"]) == 3
    log = empty.logs / "bills-0" / f"{600:020d}.log"
    for path in (empty.logs / "bills-0").glob(f"{1200:020d}.*"):
        path.unlink()
    ran = tierctl("apply", kept, *empty.where, "--log-dir", empty.logs, "-o", "json", "--apply")
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done", "dropped", "dropped"]
    assert ran.code == 3
    assert log.exists()
    assert [segment.end_offset for segment in empty.segments()] == [599]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    put(path, data)


def _cut(path: Path) -> None:
    put(path, path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [_flip, _cut], ids=["a flipped bit", "a lost end"])
def test_a_damaged_local_segment_is_not_copied(
    damage: Callable[[Path], None], empty: World, tierctl: Tierctl
) -> None:
    """Brokers with a sound replica would delete it, trusting the copy."""
    damage(empty.logs / "bills-0" / f"{600:020d}.log")
    ran = tierctl(*copy(empty, "--apply"))
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done", "failed", "dropped"]
    assert ran.code in {3, 7}
    assert f"{600:020d}.log" in ran.err
    assert [s.end_offset for s in empty.segments() if s.state is _S.COPY_SEGMENT_FINISHED] == [599]
    assert not list(empty.remote.rglob(f"{600:020d}-*"))


def test_a_copy_needs_the_logs_of_its_plan(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    tierctl(*copy(empty, "--plan-out", kept))
    assert tierctl("apply", kept, *empty.where, "--apply").code == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"command": "copy", "steps": [{}], "read": {}}', "\x00"])
def test_a_file_that_is_no_plan(text: str, tiered: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    kept.write_text(text)
    assert tierctl("apply", kept, *tiered.where).code == 2


def test_damaged_metadata_decide_no_deletes(tiered: World, tierctl: Tierctl) -> None:
    mine = next(iter(tiered.state())).metadata_partition
    topic = MetadataLogOnDisk(tiered.metadata, writable=True)
    topic.append([(mine, b"\x01\x63\x00nonsense")])
    topic.close()
    for command in (sweep, delete):
        for apply in ((), ("--apply",)):
            ran = tierctl(*command(tiered, *apply))
            assert (ran.code, ran.json["steps"]) == (7, [])
            assert f"__remote_log_metadata-{mine} offset" in ran.err


def test_damage_elsewhere_keeps_nothing_from_being_done(tiered: World, tierctl: Tierctl) -> None:
    mine = next(iter(tiered.state())).metadata_partition
    topic = MetadataLogOnDisk(tiered.metadata, writable=True)
    topic.append([(1 - mine, b"\x01\x63\x00nonsense")])
    topic.close()
    ran = tierctl(*sweep(tiered, "--apply"))
    assert ran.code == 7
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done", "done"]


def test_an_unreadable_log_keeps_its_partition(tiered: World, tierctl: Tierctl) -> None:
    (tiered.logs / "bills-0" / "leader-epoch-checkpoint").write_text("nonsense")
    ran = tierctl(*sweep(tiered, "--apply"))
    assert (ran.code, ran.json["steps"]) == (7, [])
    assert "unreadable" in ran.err


def _recreated(world: World) -> None:
    """Another topic of the same name, with a copy of one segment's metadata and objects."""
    with opened(world) as manager:
        manager.refresh()
        segment = replace(next(iter(world.segments())), topic_id=OTHER_ID, state=_S.COPY_SEGMENT_STARTED)
        manager.publish([segment])
        tools: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
        manager.publish([segment_update(segment, _S.COPY_SEGMENT_FINISHED, tools)])
    root = world.remote / "kafka-tiered-storage"
    source = next(root.glob("bills-0-*"))
    target = root / f"bills-0-{OTHER_ID}"
    target.mkdir()
    for path in source.glob(f"*{segment.segment_id}*"):
        (target / path.name).write_bytes(path.read_bytes())


def test_a_name_with_two_topics_is_not_marked(tiered: World, tierctl: Tierctl) -> None:
    _recreated(tiered)
    first = next(part.topic_id_partition.topic_id for part in tiered.state())
    before = files(tiered)
    refused = tierctl(*delete(tiered, "--mark", "--topic", "bills", "--apply"))
    assert refused.code == 4
    assert OTHER_ID in refused.err
    assert first in refused.err
    assert files(tiered) == before


def test_a_recreated_topic_is_untouched(tiered: World, tierctl: Tierctl) -> None:
    _recreated(tiered)
    old = next(
        p.topic_id_partition.topic_id for p in tiered.state() if p.topic_id_partition.topic_id != OTHER_ID
    )
    live = {key: data for key, data in tiered.objects().items() if OTHER_ID in key}
    assert tierctl(*delete(tiered, "--mark", "--topic-id", old, "--apply")).code == 0
    ran = tierctl(*delete(tiered, "--apply"))
    assert ran.code == 0, ran.err
    assert {step["topic_id"] for step in ran.json["steps"]} == {old}
    assert tiered.objects() == live
    assert [segment.topic_id for segment in tiered.segments()] == [OTHER_ID]
    # Now the name means one topic only.
    assert tierctl(*delete(tiered, "--mark", "--topic", "bills")).json["steps"][0]["topic_id"] == OTHER_ID


def test_a_topic_that_is_still_there_is_marked_only_by_force(
    tiered: World, tierctl: Tierctl, tmp_path: Path
) -> None:
    wanted = ("--mark", "--topic", "bills", "--log-dir", tiered.logs)
    assert tierctl(*delete(tiered, *wanted, "--apply")).code == 4
    kept = tmp_path / "plan"
    assert tierctl(*delete(tiered, "--mark", "--topic", "bills", "--plan-out", kept)).code == 0
    apply = ("apply", kept, *tiered.where, "--log-dir", tiered.logs, "-o", "json", "--apply")
    assert tierctl(*apply).code == 4
    assert tierctl(*delete(tiered, *wanted, "--force", "--apply")).code == 0
    assert next(iter(tiered.state())).delete_state == "DELETE_PARTITION_MARKED"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--mark",), 2),
        (("--mark", "--topic", "nobody"), 10),
        (("--mark", "--topic-id", OTHER_ID), 10),
        (("--mark", "--topic", "bills", "--interval", "5", "--apply"), 2),
        (("--interval", "5"), 2),
    ],
)
def test_delete_refuses(more: tuple[str, ...], code: int, tiered: World, tierctl: Tierctl) -> None:
    assert tierctl(*delete(tiered, *more)).code == code


def test_segments_that_appear_while_their_partition_goes(tiered: World) -> None:
    """A broker that still copies: its new segment is deleted too, before FINISHED."""
    with opened(tiered) as manager:
        mark(manager)
        late = replace(
            next(iter(tiered.segments())), segment_id=new_segment_id(), state=_S.COPY_SEGMENT_STARTED
        )
        published: list[Uuid] = []

        def meddle(metadata: RemoteLogSegmentMetadata) -> None:
            if not published:
                published.append(late.segment_id)
                manager.publish([late])

        plan = bench.plan_of("delete", tiered, manager)
        outcomes = bench.run(plan, bench.tools_of(tiered, manager, lambda inner: Meddling(inner, meddle)))
    assert set(statuses(outcomes)) == {Status.DONE}
    assert tiered.segments() == []
    assert next(iter(tiered.state())).delete_state == "DELETE_PARTITION_FINISHED"


def test_the_log_start_moves_before_anything_is_deleted(tiered: World, tierctl: Tierctl) -> None:
    met: list[str] = []
    observe(lambda label, moment: met.append(label) if moment == "before" else None)
    try:
        ran = tierctl(
            *sweep(tiered, "--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=1300", "--apply")
        )
    finally:
        observe(None)
    assert ran.code == 0, ran.err
    assert met[0] == "sweep.log_start.write"
    kept = (tiered.state_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert [line.split()[1:] for line in kept] == [["0", "1300"]]
    # A lower one later changes nothing.
    tierctl(*sweep(tiered, "--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=5", "--apply"))
    again = (tiered.state_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert again == kept


@pytest.mark.parametrize(
    "text", ["bills-0", "bills=5", "bills-0=-1", "bills-0=x", "nobody-0=5", "bills-0=99999"]
)
def test_log_starts_that_make_no_sense(text: str, tiered: World, tierctl: Tierctl) -> None:
    assert tierctl(*sweep(tiered, "--log-start-offset", text)).code == 2


def test_what_a_killed_copy_left_is_reported(tiered: World, tierctl: Tierctl) -> None:
    begun = replace(next(iter(tiered.segments())), segment_id=new_segment_id(), state=_S.COPY_SEGMENT_STARTED)
    with opened(tiered) as manager:
        manager.refresh()
        manager.publish([replace(begun, event_timestamp_ms=NOW_MS)])
    ran = tierctl(*copy(tiered, "--apply"))
    assert (ran.code, ran.json["steps"]) == (0, [])
    assert begun.segment_id in ran.err
    early = tierctl(*copy(tiered, "--clean-dangling", "--now", NOW_MS + 1000))
    assert early.json["steps"] == []
    late = tierctl(*copy(tiered, "--clean-dangling", "--now", NOW_MS + 25 * 3_600_000))
    assert [step["segment_id"] for step in late.json["steps"]] == [begun.segment_id]


def test_custom_metadata_limit_is_a_setting(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("remote.log.metadata.custom.metadata.max.bytes=x\n")
    assert tierctl(*copy(empty, "--config", settings, "--apply")).code == 2
    good = ("--override", "remote.log.metadata.custom.metadata.max.bytes=64", "--attempts", 1)
    assert tierctl(*copy(empty, "--config", settings, *good, "--apply")).code == 0
    assert tierctl(*copy(empty, "--override", "nonsense", "--apply")).code == 2


def test_the_remover_repeats_until_it_is_told_to_stop(tiered: World, tmp_path: Path) -> None:
    with opened(tiered) as manager:
        mark(manager)
    command = [*map(str, delete(tiered, "--interval", 50, "--apply"))]
    out = tmp_path / "out"
    with out.open("wb") as stream:
        remover = subprocess.Popen([sys.executable, "-m", "tierctl", *command], stdout=stream, stderr=stream)
        try:
            deadline = time.monotonic() + 60
            while out.read_bytes().count(b'"outcomes": []') < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            remover.send_signal(signal.SIGTERM)
            assert remover.wait(60) == 128 + signal.SIGTERM
        finally:
            # It would go on for ever, beyond the tests.
            remover.kill()
            remover.wait()
    assert tiered.segments() == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--interval"], ["--interval=3600000"]),
        (["--interval", "--apply"], ["--interval=3600000", "--apply"]),
        (["--interval", "50", "--apply"], ["--interval", "50", "--apply"]),
        (["--interval=50"], ["--interval=50"]),
        (["--apply"], ["--apply"]),
    ],
)
def test_interval_may_stand_without_a_value(args: list[str], expected: list[str]) -> None:
    assert with_default_interval(args) == expected


_STEP = Step(action=Action.DELETE_SEGMENT, reason="", topic="t", topic_id=OTHER_ID, partition=0)
_LIMIT = LimitExceeded("x")
_STORE = RemoteStorageError("x")


@pytest.mark.parametrize(
    ("ends", "quarantined", "code"),
    [
        ([], False, 0),
        ([], True, 7),
        ([(Status.DONE, None)], False, 0),
        ([(Status.DONE, None)], True, 7),
        ([(Status.FAILED, _STORE)] * 2, False, 5),
        ([(Status.FAILED, _STORE)] * 2, True, 5),
        ([(Status.FAILED, _LIMIT), (Status.DROPPED, None)], False, 8),
        ([(Status.FAILED, _LIMIT), (Status.FAILED, _STORE)], False, 3),
        ([(Status.FAILED, MetadataError("x")), (Status.FAILED, _STORE)], False, 5),
        ([(Status.DONE, None), (Status.FAILED, _STORE)], False, 3),
        ([(Status.DONE, None), (Status.DROPPED, None)], False, 3),
        ([(Status.DROPPED, None)], True, 7),
        ([(Status.PENDING, None)], False, 3),
    ],
)
def test_exit_codes(ends: list[tuple[Status, Any]], quarantined: bool, code: int) -> None:
    outcomes = [Outcome(step=_STEP, status=status, error=error) for status, error in ends]
    assert exit_code(outcomes, quarantined=quarantined) == code
