"""What commands refuse, drop and report: other writers, limits, void plans and damaged metadata."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.acts import segment_update
from tierctl.apply.outcome import Status
from tierctl.apply.run_context import new_segment_id, observe
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.plan.copy import WITHDRAWN_REASON

from tests.apply import runs
from tests.apply.commands import apply, copy, delete, files, sweep
from tests.apply.conftest import Ran
from tests.apply.faults import Meddling
from tests.apply.runs import NOW_MS, opened, put, statuses
from tests.apply.worlds import World
from tests.metadata.topics import topic_in
from tests.support.broker_lock import running_broker

Tierctl = Callable[..., Ran]
_S = RemoteLogSegmentState


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


def test_a_copy_reads_a_running_brokers_log(empty: World, tierctl: Tierctl) -> None:
    """Reading the log needs no fence, because the run writes to a metadata topic that no broker uses."""
    with running_broker(empty.logs):
        ran = tierctl(*copy(empty, "--apply"))
    assert (ran.code, [o["status"] for o in ran.json["outcomes"]]) == (0, ["done"] * 3), ran.err


def test_a_running_broker_that_may_tier(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    (empty.logs / "__remote_log_metadata-3").mkdir()
    kept = tmp_path / "plan"
    with running_broker(empty.logs):
        before = files(empty)
        planned = tierctl(*copy(empty, "--plan-out", kept))
        assert (planned.code, "--apply would refuse this" in planned.err) == (0, True)
        for command in (copy(empty), apply(empty, kept)):
            ran = tierctl(*command, "--apply")
            assert (ran.code, "may tier these partitions itself" in ran.err) == (4, True)
            assert files(empty) == before
        ran = tierctl(*copy(empty, "--apply", "--allow-live-brokers"))
        assert (ran.code, "bills copy every segment of this plan again" in ran.err) == (0, True), ran.err
    assert "may tier" not in tierctl(*copy(empty)).err, "no broker runs any more"


def test_a_sweep_is_not_decided_from_a_running_brokers_log(tiered: World, tierctl: Tierctl) -> None:
    with running_broker(tiered.logs):
        before = files(tiered)
        ran = tierctl(*sweep(tiered, "--apply"))
        assert (ran.code, "a broker is running" in ran.err, "log start" in ran.err) == (4, True, True)
        assert files(tiered) == before
        assert tierctl(*sweep(tiered, "--apply", "--allow-live-brokers")).code == 0


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_metadata_of_a_running_broker_are_never_written(
    command: Any, tiered: World, tierctl: Tierctl
) -> None:
    with running_broker(tiered.metadata):
        before = files(tiered)
        for flags in ((), ("--allow-live-brokers",)):
            ran = tierctl(*command(tiered, "--apply", *flags))
            assert (ran.code, "no option overrides" in ran.err) == (4, True)
        assert files(tiered) == before


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
            context: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
            manager.publish([segment_update(segment, state, context)])


def test_a_plan_of_what_a_broker_deleted_meanwhile(tiered: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    tierctl(*sweep(tiered, "--plan-out", kept))
    _broker_deletes(tiered, 0, _S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED)
    ran = tierctl(*apply(tiered, kept, "--apply"))
    assert (ran.code, [step["start_offset"] for step in ran.json["outcomes"]]) == (0, [600])
    assert [skip["reason"] for skip in ran.json["skipped"]] == ["the segment is deleted already"]


def test_a_broker_writes_between_the_waves(tiered: World) -> None:
    """A broker deletes the second wave's segment after its DELETE_SEGMENT_STARTED, during the first wave."""
    with opened(tiered):
        second = next(s for s in tiered.segments() if s.start_offset == 600)

    def meddle(metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.start_offset == 0:
            manager = meddled[0]
            for state in (_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED):
                context: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
                manager.publish([segment_update(second, state, context)])

    meddled: list[Any] = []
    with opened(tiered) as manager:
        meddled.append(manager)
        plan = runs.plan_of("sweep", tiered, manager)
        context = runs.context_of(tiered, manager, lambda inner: Meddling(inner, meddle), wave_size=1)
        outcomes = runs.run(plan, context, runs.acts_of("sweep", tiered))
    assert statuses(outcomes) == [Status.DONE, Status.DONE]
    with opened(tiered):
        assert not {0, 600} & {segment.start_offset for segment in tiered.segments()}


def test_a_log_that_changed_since_the_plan(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    kept = tmp_path / "plan"
    assert len(tierctl(*copy(empty, "--plan-out", kept)).json["steps"]) == 3
    log = empty.logs / "bills-0" / f"{600:020d}.log"
    for path in (empty.logs / "bills-0").glob(f"{1200:020d}.*"):
        path.unlink()
    ran = tierctl(*apply(empty, kept, "--apply"))
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done"]
    assert (ran.code, len(ran.json["skipped"])) == (0, 2)
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
    """If a damaged segment were copied, brokers would delete their undamaged replicas of it."""
    damage(empty.logs / "bills-0" / f"{600:020d}.log")
    ran = tierctl(*copy(empty, "--apply"))
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done", "failed", "dropped"]
    assert ran.code in {3, 7}
    assert f"{600:020d}.log" in ran.err
    assert [s.end_offset for s in empty.segments() if s.state is _S.COPY_SEGMENT_FINISHED] == [599]
    assert not list(empty.remote.rglob(f"{600:020d}-*"))


def test_damaged_metadata_decide_no_deletes(tiered: World, tierctl: Tierctl) -> None:
    mine = next(iter(tiered.state())).metadata_partition
    topic = topic_in(tiered.metadata, writable=True)
    topic.append([(mine, b"\x01\x63\x00nonsense")])
    topic.close()
    for command in (sweep, delete):
        for more in ((), ("--apply",)):
            ran = tierctl(*command(tiered, *more))
            assert (ran.code, ran.json["steps"]) == (7, [])
            assert f"__remote_log_metadata-{mine}, offset" in ran.err


def test_damage_elsewhere_keeps_nothing_from_being_done(tiered: World, tierctl: Tierctl) -> None:
    mine = next(iter(tiered.state())).metadata_partition
    topic = topic_in(tiered.metadata, writable=True)
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
    # A lower log start offset has no effect.
    tierctl(*sweep(tiered, "--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=5", "--apply"))
    again = (tiered.state_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert again == kept


@pytest.mark.parametrize(
    "text", ["bills-0", "bills=5", "bills-0=-1", "bills-0=x", "nobody-0=5", "bills-0=99999"]
)
def test_log_starts_that_make_no_sense(text: str, tiered: World, tierctl: Tierctl) -> None:
    assert tierctl(*sweep(tiered, "--log-start-offset", text)).code == 2


def _begun(world: World, broker_id: int) -> RemoteLogSegmentMetadata:
    """Begin the copy of a segment that is copied already."""
    begun = replace(
        next(iter(world.segments())),
        segment_id=new_segment_id(),
        state=_S.COPY_SEGMENT_STARTED,
        broker_id=broker_id,
        event_timestamp_ms=NOW_MS,
    )
    with opened(world) as manager:
        manager.refresh()
        manager.publish([begun])
    return begun


@pytest.mark.parametrize(("broker_id", "more"), [(7, ()), (-1, ("--no-lease",))], ids=["broker", "no lease"])
def test_a_copy_that_may_go_on_is_reported(
    broker_id: int, more: tuple[str, ...], tiered: World, tierctl: Tierctl
) -> None:
    begun = _begun(tiered, broker_id)
    ran = tierctl(*copy(tiered, "--apply", *more))
    assert (ran.code, ran.json["steps"]) == (0, [])
    assert begun.segment_id in ran.err
    early = tierctl(*copy(tiered, "--clean-dangling", "--now", NOW_MS + 1000, *more))
    assert early.json["steps"] == []
    late = tierctl(*copy(tiered, "--clean-dangling", "--now", NOW_MS + 25 * 3_600_000, *more))
    assert [step["segment_id"] for step in late.json["steps"]] == [begun.segment_id]


def test_the_copy_of_a_killed_run_is_withdrawn(tiered: World, tierctl: Tierctl) -> None:
    begun = _begun(tiered, -1)
    plan = tierctl(*copy(tiered))
    assert [(step["segment_id"], step["reason"]) for step in plan.json["steps"]] == [
        (begun.segment_id, WITHDRAWN_REASON)
    ]
    assert tierctl(*copy(tiered, "--apply")).code == 0
    assert {segment.state for segment in tiered.segments()} == {_S.COPY_SEGMENT_FINISHED}


def test_custom_metadata_limit_is_a_setting(empty: World, tierctl: Tierctl, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("remote.log.metadata.custom.metadata.max.bytes=x\n")
    assert tierctl(*copy(empty, "--broker-config", settings, "--apply")).code == 2
    good = ("--override", "remote.log.metadata.custom.metadata.max.bytes=64", "--attempts", 1)
    assert tierctl(*copy(empty, "--broker-config", settings, *good, "--apply")).code == 0
    assert tierctl(*copy(empty, "--override", "nonsense", "--apply")).code == 2
    ran = tierctl(*copy(empty, "--override", "remote.log.manager.task.retry.backof.ms=1", "--apply"))
    assert ran.code == 2
    assert 'did you mean "remote.log.manager.task.retry.backoff.ms"?' in ran.err
