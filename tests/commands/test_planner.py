"""Planners: every field of a planning request is an option of apply, or is saved with the plan."""

from dataclasses import fields

import pytest
from tierctl.commands.apply import ApplyRequest
from tierctl.commands.copy import PLANNER as COPY
from tierctl.commands.delete import PLANNER as DELETE
from tierctl.commands.planner import Planner
from tierctl.commands.sweep import PLANNER as SWEEP

PLANNERS = (COPY, SWEEP, DELETE)
OF_APPLY = {field.name for field in fields(ApplyRequest)}
WITHOUT_EFFECT = {"interval": "a plan is carried out once"}
BOTH = {
    "topic": "--assume-enabled goes with the topics that were named; apply narrows them",
    "metadata_partitions": "apply uses the number that the plan was decided with",
}


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.command)
def test_apply_decides_with_every_field(planner: Planner) -> None:  # type: ignore[type-arg]
    own = {field.name for field in fields(planner.request)} - OF_APPLY
    assert own == set(planner.options) - BOTH.keys() | (own & WITHOUT_EFFECT.keys())
