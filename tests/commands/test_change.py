"""Every field of a planning request is an option of apply, or is saved with the plan."""

from dataclasses import fields
from typing import Any

import pytest
from tierctl.commands.apply import ApplyRequest
from tierctl.commands.change import Change
from tierctl.commands.copy.command import Copy
from tierctl.commands.delete import Delete
from tierctl.commands.sweep import Sweep

CHANGES = (Copy, Sweep, Delete)
OF_APPLY = {field.name for field in fields(ApplyRequest)}
WITHOUT_EFFECT = {"interval": "a plan is carried out once"}
BOTH = {
    "topic": "--assume-enabled goes with the topics that were named; apply narrows them",
    "metadata_partitions": "apply uses the number that the plan was decided with",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.command)
def test_apply_decides_with_every_field(change: type[Change[Any]]) -> None:
    own = {field.name for field in fields(change.request_type)} - OF_APPLY
    assert own == set(change.saved) - BOTH.keys() | (own & WITHOUT_EFFECT.keys())
