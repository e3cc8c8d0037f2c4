"""When a run begins nothing more, and which steps later waves drop."""

from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.apply import run
from tierctl.apply.outcome import Outcome, Status
from tierctl.errors import AuthenticationError, RemoteStorageError, TierctlError
from tierctl.plan.recheck import Dropped, Recheck
from tierctl.plan.steps import LINEAGE_EPOCH, Action, Plan, Step

from tests.apply.commands import OTHER_ID

DENIED, STORE = AuthenticationError("x"), RemoteStorageError("x")
DONE = (Status.DONE, None)


def steps(count: int) -> list[Step]:
    shared: dict[str, Any] = {"reason": "", "topic": "t", "topic_id": OTHER_ID, "partition": 0}
    details = {LINEAGE_EPOCH: 0}
    return [
        Step(action=Action.DELETE_SEGMENT, start_offset=at, details=details, **shared) for at in range(count)
    ]


def run_of(wave: list[Step]) -> run.Run:
    context: Any = SimpleNamespace(metadata=SimpleNamespace(refresh=lambda: None))
    return run.Run(Plan(command="x", steps=tuple(wave), read={}), context, None)


@pytest.mark.parametrize(
    ("ends", "is_halted"),
    [
        ([(Status.FAILED, DENIED)] * 2, True),
        ([(Status.FAILED, DENIED), (Status.DROPPED, None)], True),
        ([(Status.FAILED, DENIED), DONE], False),
        ([(Status.FAILED, DENIED), (Status.FAILED, STORE)], False),
        ([DONE, (Status.DROPPED, None)], False),
        ([(Status.DROPPED, None)], False),
    ],
)
def test_a_wave_of_which_all_is_refused_is_the_last(
    ends: list[tuple[Status, TierctlError | None]], is_halted: bool
) -> None:
    wave = steps(len(ends))
    this = run_of(wave)
    this.record(Outcome(step=s, status=end, error=error) for s, (end, error) in zip(wave, ends, strict=True))
    assert this.is_halted == is_halted


def test_what_follows_a_dropped_step_is_dropped_in_later_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(lost: bool, done: bool = False) -> None:
        def recheck(plan: Plan, _state: object) -> Recheck:
            dropped = tuple(Dropped(step=step, reason="x", is_done=done) for step in plan.steps if lost)
            return Recheck(plan=Plan(command="x", steps=() if lost else plan.steps, read={}), dropped=dropped)

        monkeypatch.setattr(run, "recheck", recheck)

    first, second, third, fourth = steps(4)
    this = run_of([first, second, third, fourth])
    drop(lost=True, done=True)
    assert this.recheck([first]) == ([], [])
    drop(lost=False)
    assert this.recheck([second]) == ([second], [])
    drop(lost=True)
    assert this.recheck([third]) == ([], [third])
    drop(lost=False)
    assert this.recheck([fourth]) == ([], [fourth])
