"""`apply` keeps the steps that are both in the saved plan and in the plan for the current state."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import LocalLog, TopicConfig, TopicIdPartition, Uuid
from tierctl.plan.copy import plan_copy
from tierctl.plan.expiry import plan_retention
from tierctl.plan.repair import lower_offset
from tierctl.plan.saved import SavedPlan, still_decided
from tierctl.plan.steps import VERIFY, Plan
from tierctl.state.tier_state import TierState

from tests.plan.test_properties import LIMITS, MANY, World, chains, histories
from tests.plan.test_saved import PLAN, SEGMENTS
from tests.plan.tier import NOW_MS, S, local_log, through_json, tier

LOG = local_log([0], 500)
EVERYTHING = TopicConfig(retention_ms=1)


def sweep(state: TierState, config: TopicConfig, log: LocalLog = LOG, now_ms: int = NOW_MS + 10) -> Plan:
    return plan_retention(state, [log], {"orders": config}, now_ms=now_ms)


def copy(state: TierState, log: LocalLog) -> Plan:
    return plan_copy(state, [log], {"orders": TopicConfig(remote_storage_enable=True)})


def kept(plan: Plan) -> SavedPlan:
    """Return the plan as `apply` reads it."""
    made = SavedPlan.of(plan, PLAN.identity, {})
    return replace(made, plan=through_json(plan))


def left(planned: Plan, current: Plan, state: TierState) -> tuple[list[int | None], list[str]]:
    """Return the start offsets of the kept steps, and the reasons for the dropped ones."""
    plan = still_decided(kept(planned), current, state).plan
    return [step.start_offset for step in plan.steps], [skip.reason for skip in plan.skipped]


@pytest.mark.parametrize(
    ("config", "log", "starts", "reason"),
    [
        (EVERYTHING, LOG, [0, 100, 200], ""),
        (TopicConfig(retention_ms=2), LOG, [0, 100, 200], ""),
        (TopicConfig(retention_ms=1 << 40), LOG, [], "retention_ms was 1 and is 1099511627776"),
        (TopicConfig(), LOG, [], "retention_ms was 1 and is -1"),
        (TopicConfig(), local_log([0], 500, log_start_offset=200), [0, 100], "retention_ms was 1 and is -1"),
        (
            TopicConfig(retention_ms=1, remote_storage_enable=False),
            LOG,
            [],
            "remote_storage_enable was None and is False",
        ),
    ],
)
def test_settings_and_log_starts_of_now_decide(
    config: TopicConfig, log: LocalLog, starts: list[int], reason: str
) -> None:
    state = tier(*SEGMENTS)
    found, reasons = left(sweep(state, EVERYTHING), sweep(state, config, log), state)
    assert found == starts
    assert len(reasons) == 3 - len(starts)
    assert all(reason in each for each in reasons)


def test_a_log_start_that_fell_is_a_reason() -> None:
    state = tier(*SEGMENTS)
    before = sweep(state, TopicConfig(), local_log([0], 500, log_start_offset=200))
    found, reasons = left(before, sweep(state, TopicConfig()), state)
    assert (found, len(reasons)) == ([], 2)
    assert all("the log started at 200 and starts at 0" in reason for reason in reasons)


def test_each_of_two_files_keeps_its_step() -> None:
    """Two brokers before Kafka 3.6 may have unsafe offsets of one metadata partition."""
    partition = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "__remote_log_metadata", 3)
    steps = tuple(lower_offset(file, partition, (9, 4), "ahead") for file in ("/a/offsets", "/b/offsets"))
    plan = Plan(command=VERIFY, steps=steps, read={})
    assert still_decided(kept(plan), plan, tier()).plan.steps == steps


def test_copies_of_a_plan_do_not_depend_on_the_replica_that_is_read() -> None:
    """Segments that both replicas have are copied also if the other one has become the newest."""
    state, one, other = (
        TierState(),
        *(
            local_log([0, 100, 200], end, directory=f"/logs/b{number}")
            for number, end in ((1, 250), (2, 260))
        ),
    )
    configs = {"orders": TopicConfig(remote_storage_enable=True)}
    found, reasons = left(plan_copy(state, [one], configs), plan_copy(state, [one, other], configs), state)
    assert (found, reasons) == ([0, 100], [])


def raised(plan: Plan) -> list[object]:
    return [step.details.get("new_log_start_offset") for step in plan.steps]


def test_the_log_start_rises_no_further_than_both_plans_say() -> None:
    """Three segments end below 300 now, but the plan raises the log start to 200 only, or vice versa."""
    state = tier(*SEGMENTS)
    below = [sweep(state, TopicConfig(), local_log([0], 500, log_start_offset=start)) for start in (200, 300)]
    for planned, current in (below, below[::-1]):
        plan = still_decided(kept(planned), current, state).plan
        assert [step.start_offset for step in plan.steps] == [0, 100]
        assert raised(plan) == [200, 200]
    assert raised(still_decided(kept(sweep(state, EVERYTHING)), below[1], state).plan) == [100, 200, 300]


def test_a_log_start_that_must_rise_now_is_not_raised_by_the_plan() -> None:
    state = tier(*SEGMENTS)
    current = sweep(state, EVERYTHING)
    plain = [
        replace(step, details={name: v for name, v in step.details.items() if name != "new_log_start_offset"})
        for step in current.steps
    ]
    planned = replace(current, steps=tuple(plain))
    found, reasons = left(planned, current, state)
    assert (found, len(reasons)) == ([], 3)
    assert "the log must start at 100 first" in reasons[0]
    assert raised(still_decided(kept(current), planned, state).plan) == [None, None, None]


@pytest.mark.parametrize(
    ("steps", "starts"),
    [({0, 1, 2}, [0, 100, 200]), ({0, 1}, [0, 100]), ({0, 2}, [0]), ({1, 2}, []), (set(), [])],
)
def test_copies_leave_no_hole(steps: Collection[int], starts: list[int]) -> None:
    log = local_log([0, 100, 200, 300], 350)
    state = tier()
    current = copy(state, log)
    assert [step.start_offset for step in current.steps] == [0, 100, 200]
    planned = replace(current, steps=tuple(current.steps[number] for number in sorted(steps)))
    found, reasons = left(planned, current, state)
    assert found == starts
    assert len(reasons) == len(steps) - len(starts)


def test_a_segment_that_expired_before_the_planned_ones_holds_them() -> None:
    planned = sweep(tier(*SEGMENTS[1:]), EVERYTHING)
    state = tier(*SEGMENTS)
    found, reasons = left(planned, sweep(state, EVERYTHING), state)
    assert (found, len(reasons)) == ([], 2)
    assert "must be deleted before it, stays" in reasons[0]


@MANY
@given(world=st.one_of(chains(), histories()), off_lineage=st.booleans())
def test_an_unchanged_state_decides_the_whole_plan(world: World, off_lineage: bool) -> None:
    plan = world.sweep(off_lineage=off_lineage)
    assert through_json(still_decided(kept(plan), plan, world.state).plan) == through_json(plan)


def raises(plan: Plan) -> dict[object, int]:
    """Return the log start to which each segment's step raises it; 0 if it does not."""
    return {step.segment_id: step.details.get("new_log_start_offset", 0) for step in plan.steps}


@MANY
@given(world=st.one_of(chains(), histories()), config=LIMITS, raised_to=st.integers(0, 60))
def test_a_step_needs_both_plans_and_leaves_no_hole(
    world: World, config: TopicConfig, raised_to: int
) -> None:
    """The settings and the log start have changed."""
    changed = replace(world, config=config, raised_to=min(raised_to, world.log.high_watermark))
    planned, current = world.sweep(off_lineage=True), changed.sweep(off_lineage=True)
    left_over = still_decided(kept(planned), current, world.state).plan
    before, after, now = raises(planned), raises(left_over), raises(current)
    assert after.keys() <= before.keys() & now.keys()
    assert all(start <= min(before[segment_id], now[segment_id]) for segment_id, start in after.items())
    finished = {s.segment_id for s in world.segments if s.state is S.COPY_SEGMENT_FINISHED}
    for step in left_over.steps:
        follows = step.details.get("follows")
        assert follows is None or follows in after or follows not in finished
    reasons = {skip.segment_id: skip.reason for skip in left_over.skipped}
    assert before.keys() - after.keys() <= reasons.keys(), "each step that is dropped has a reason"
