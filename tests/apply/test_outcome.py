"""The exit code of a run."""

from typing import Any

import pytest
from tierctl.apply.run_context import Outcome, Status, exit_code
from tierctl.errors import (
    AuthenticationError,
    LimitExceeded,
    MetadataError,
    ObjectArchived,
    RemoteStorageError,
    UnsupportedFormatError,
)
from tierctl.plan.steps import Action, Step

from tests.apply.commands import OTHER_ID

_STEP = Step(action=Action.DELETE_SEGMENT, reason="", topic="t", topic_id=OTHER_ID, partition=0)
_LIMIT = LimitExceeded("x")
_STORE = RemoteStorageError("x")
_UNREAD = UnsupportedFormatError("x", expected="y", found="z")
_DENIED = AuthenticationError("x")


@pytest.mark.parametrize(
    ("ends", "quarantined", "code"),
    [
        ([], False, 0),
        ([], True, 7),
        ([(Status.DONE, None)], False, 0),
        ([(Status.DONE, None)], True, 7),
        ([(Status.FAILED, _STORE)] * 2, False, 5),
        ([(Status.FAILED, _STORE)] * 2, True, 7),
        ([(Status.DONE, None), (Status.FAILED, _UNREAD), (Status.DROPPED, None)], False, 7),
        ([(Status.FAILED, ObjectArchived("x")), (Status.FAILED, _STORE)], False, 7),
        ([(Status.DONE, None), (Status.FAILED, _STORE)], True, 7),
        ([(Status.FAILED, _DENIED), (Status.DROPPED, None)], False, 11),
        ([(Status.DONE, None), (Status.FAILED, _DENIED)], False, 3),
        ([(Status.FAILED, _DENIED)], True, 7),
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
