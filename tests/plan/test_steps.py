"""Plans as text: an invalid plan is refused with the name of the wrong field."""

from typing import Any

import pytest
from tierctl.errors import UsageError
from tierctl.plan.steps import Plan, Step

from tests.plan.test_recheck import SWEPT, sweep
from tests.plan.tier import (
    tier,
)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"command": "sweep", "steps": [{}], "read": {}, "skipped": []},
        {"command": "sweep", "steps": [1], "read": {}, "skipped": []},
        {"command": "sweep", "steps": [], "read": {}, "skipped": [{}]},
        {"command": "sweep", "steps": [], "read": {}, "skipped": ["x"]},
        {"command": "sweep", "steps": [], "read": {"x": 1}, "skipped": []},
        {"command": "sweep", "steps": [], "read": [], "skipped": []},
    ],
)
def test_what_is_no_plan(raw: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Plan.from_json(raw)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_offset", "0"),
        ("start_offset", -1),
        ("end_offset", 1.5),
        ("end_offset", True),
        ("action", "explode"),
        ("topic_id", "short"),
        ("topic_id", None),
        ("segment_id", 7),
        ("partition", "x"),
    ],
)
def test_what_is_no_step(field: str, value: object) -> None:
    [step, *_] = sweep(tier(*SWEPT)).steps
    with pytest.raises(UsageError):
        Step.from_json({**step.to_json(), field: value})
