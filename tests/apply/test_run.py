"""When a run begins nothing more, which steps later waves drop, and the exit code."""

from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.apply import run
from tierctl.apply.run_context import Outcome, Status, exit_code
from tierctl.errors import (
    AuthenticationError,
    LimitExceeded,
    MetadataError,
    ObjectArchived,
    RemoteStorageError,
    TierctlError,
    UnsupportedFormatError,
)
from tierctl.plan import recheck
from tierctl.plan.steps import LINEAGE_EPOCH, Action, Plan, Step
from tierctl.state.tier_state import TierState

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
    context: Any = SimpleNamespace(metadata=SimpleNamespace(refresh=TierState))
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
    def answer(reason: str | None) -> None:
        monkeypatch.setattr(recheck._Checker, "check", lambda _checker, _step: reason)

    monkeypatch.setattr(recheck._Checker, "check_contiguous", lambda *_: None)
    first, second, third, fourth = steps(4)
    this = run_of([first, second, third, fourth])
    answer(recheck._Done("another program did it"))
    assert this.recheck([first]) == ([], [])
    answer(None)
    assert this.recheck([second]) == ([second], [])
    answer("it no longer holds")
    assert this.recheck([third]) == ([], [third])
    answer(None)
    assert this.recheck([fourth]) == ([], [fourth])


_LIMIT = LimitExceeded("x")
_UNREAD = UnsupportedFormatError("x", expected="y", found="z")


@pytest.mark.parametrize(
    ("ends", "quarantined", "code"),
    [
        ([], False, 0),
        ([], True, 7),
        ([DONE], False, 0),
        ([DONE], True, 7),
        ([(Status.FAILED, STORE)] * 2, False, 5),
        ([(Status.FAILED, STORE)] * 2, True, 7),
        ([DONE, (Status.FAILED, _UNREAD), (Status.DROPPED, None)], False, 7),
        ([(Status.FAILED, ObjectArchived("x")), (Status.FAILED, STORE)], False, 7),
        ([DONE, (Status.FAILED, STORE)], True, 7),
        ([(Status.FAILED, DENIED), (Status.DROPPED, None)], False, 11),
        ([DONE, (Status.FAILED, DENIED)], False, 3),
        ([(Status.FAILED, DENIED)], True, 7),
        ([(Status.FAILED, _LIMIT), (Status.DROPPED, None)], False, 8),
        ([(Status.FAILED, _LIMIT), (Status.FAILED, STORE)], False, 3),
        ([(Status.FAILED, MetadataError("x")), (Status.FAILED, STORE)], False, 5),
        ([DONE, (Status.FAILED, STORE)], False, 3),
        ([DONE, (Status.DROPPED, None)], False, 3),
        ([(Status.DROPPED, None)], True, 7),
        ([(Status.PENDING, None)], False, 3),
    ],
)
def test_exit_codes(ends: list[tuple[Status, Any]], quarantined: bool, code: int) -> None:
    (step,) = steps(1)
    outcomes = [Outcome(step=step, status=status, error=error) for status, error in ends]
    assert exit_code(outcomes, quarantined=quarantined) == code
