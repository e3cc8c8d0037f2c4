"""A set that is to be discarded, and events that others published about it since the plan was made."""

from dataclasses import replace

import pytest
from tierctl.commands.restore.to_metadata import plan_rebuild
from tierctl.plan.partition_choice import PartitionInputs
from tierctl.plan.recheck import recheck
from tierctl.plan.steps import Action
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState

from tests.plan.rebuild.sets import PARTITION, object_set

LOG = ((0, 0),)
WHOLE = [object_set(1, 0, 99, LOG), object_set(2, 100, 299, LOG)]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_copy_that_another_writer_began_is_not_discarded(is_started: bool) -> None:
    state = TierState()
    state.read[0] = 0
    sets = [*WHOLE, object_set(3, 200, 0, LOG, half=True)]
    plan = plan_rebuild(state, [PartitionInputs(partition=PARTITION, sets=sets)]).plan
    assert [step.action for step in plan.steps][-1] is Action.DISCARD_SEGMENT
    copied = object_set(3, 200, 299, LOG).segment
    assert copied is not None
    if is_started:
        fold_event(replace(copied, broker_id=2), state, metadata_partition=0, metadata_offset=0)
    checked = recheck(plan, state)
    kept = [step.action for step in checked.plan.steps]
    assert kept == [Action.PUBLISH_SEGMENT] * 2 + [Action.DISCARD_SEGMENT] * (not is_started)
    assert [dropped.is_done for dropped in checked.dropped] == [False] * is_started
