"""Edited plans: no step leaves a hole, and no step applies to another topic's name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tierctl.errors import UsageError
from tierctl.model import TopicConfig
from tierctl.plan.recheck import recheck
from tierctl.plan.retention.expiry import plan_retention
from tierctl.plan.steps import Plan, Step
from tierctl.state.tier_state import TierState

from tests.plan.tier import NOW_MS, S, advance, local_log, segment, through_json, tier

SEGMENTS = (segment(0, 0, 99), segment(1, 100, 199), segment(2, 200, 299))


def decided(state: TierState, config: dict[str, int], log_starts: dict[str, int] | None = None) -> Plan:
    """Return a plan to sweep everything, saved and read again."""
    log = local_log([0], 500, log_start_offset=(log_starts or {}).get("orders", 0))
    plan = plan_retention(state, [log], {"orders": TopicConfig(**config)}, now_ms=NOW_MS + 10)  # type: ignore[arg-type]
    assert [step.start_offset for step in plan.steps] == [0, 100, 200]
    return through_json(plan)


def kept(plan: Plan, state: TierState) -> list[int | None]:
    return [step.start_offset for step in recheck(plan, state).plan.steps]


EDITS: list[tuple[str, Callable[[tuple[Step, ...]], tuple[Step, ...]], list[int]]] = [
    ("nothing", lambda steps: steps, [0, 100, 200]),
    ("the newest left out", lambda steps: steps[:2], [0, 100]),
    ("the oldest left out", lambda steps: steps[1:], []),
    ("the middle left out", lambda steps: (steps[0], steps[2]), [0]),
    ("newest first", lambda steps: tuple(reversed(steps)), []),
]


@pytest.mark.parametrize(
    ("config", "log_starts"),
    [({"retention_ms": 1}, {}), ({"retention_bytes": 0}, {}), ({}, {"orders": 300})],
    ids=["retention.ms", "retention.bytes", "log start"],
)
@pytest.mark.parametrize(("edit", "left"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_steps_left_out_make_no_hole(
    edit: Callable[[tuple[Step, ...]], tuple[Step, ...]],
    left: list[int],
    config: dict[str, int],
    log_starts: dict[str, int],
) -> None:
    state = tier(*SEGMENTS)
    plan = decided(state, config, log_starts)
    assert kept(replace(plan, steps=edit(plan.steps)), state) == left


@pytest.mark.parametrize("states", [(S.DELETE_SEGMENT_STARTED,), tuple(S)[2:]], ids=["begun", "deleted"])
def test_a_later_wave_follows_what_an_earlier_one_did(states: tuple[S, ...]) -> None:
    state = tier(*SEGMENTS)
    plan = decided(state, {"retention_ms": 1})
    advance(state, SEGMENTS[0], *states)
    assert kept(replace(plan, steps=plan.steps[1:]), state) == [100, 200]


def test_a_step_under_another_topics_name_is_dropped() -> None:
    state = tier(*SEGMENTS)
    plan = decided(state, {"retention_ms": 1})
    other = replace(plan.steps[0], topic="../../payments")
    [first, *_] = recheck(replace(plan, steps=(other, *plan.steps[1:])), state).dropped
    assert first.reason == "the metadata call this topic 'orders'"
    assert not first.is_done


@pytest.mark.parametrize("partition", [1.5, True, "0", None])
def test_a_partition_is_a_whole_number(partition: Any) -> None:
    raw = decided(tier(*SEGMENTS), {"retention_ms": 1}).to_json()
    raw["steps"][0]["partition"] = partition
    with pytest.raises(UsageError, match="not a step"):
        Plan.from_json(raw)
