"""`report --what-if` keeps what sweep keeps, for random histories of a broker."""

from collections.abc import Callable

from hypothesis import assume, given
from hypothesis import strategies as st
from tierctl.commands.sweep import RetentionInputs
from tierctl.commands.what_if_facts import FactsRequest, gather_facts
from tierctl.model import Selection, TopicConfig
from tierctl.plan.forecast import (
    DAY_MS,
    HORIZONS_DAYS,
    Holding,
    ObjectCounts,
    Outlook,
    PartitionFacts,
)
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.steps import Plan

from tests.plan.retention.kip_broker import KipBroker
from tests.plan.retention.test_kip_model import LIMITS_BYTES, LIMITS_MS, happenings, log_of, run, state_of
from tests.plan.tier import NOW_MS, S
from tests.support.amounts import examples

OBJECTS = ObjectCounts(always=5, transactions=1)
PRESENT = TopicConfig(retention_ms=DAY_MS, remote_storage_enable=True)
Happened = list[Callable[[KipBroker], None]]


def inputs_of(broker: KipBroker, config: TopicConfig, now_ms: int = NOW_MS) -> RetentionInputs:
    logs = [log_of(broker)]
    return RetentionInputs(
        state=state_of(broker),
        logs=logs,
        configs={"orders": config},
        now_ms=now_ms,
        topics=CurrentTopics.of(logs),
    )


def facts_of(broker: KipBroker, present: TopicConfig, changed: TopicConfig) -> list[PartitionFacts]:
    asked = FactsRequest(changed={"orders": changed}, selection=Selection(), objects=OBJECTS)
    return list(gather_facts(inputs_of(broker, present), asked).facts)


def left_by(plan: Plan, inputs: RetentionInputs) -> Holding:
    """Return the finished segments that remain after the steps of a plan, added up one by one."""
    deleted = {step.segment_id for step in plan.steps}
    left = [
        segment
        for part in inputs.state
        for segment in part.segments
        if segment.state is S.COPY_SEGMENT_FINISHED and segment.segment_id not in deleted
    ]
    return Holding(
        segments=len(left),
        log_bytes=sum(segment.segment_size_in_bytes for segment in left),
        objects=sum(5 + (not segment.txn_index_empty) for segment in left),
    )


@examples(100)
@given(st.lists(happenings(unclean=True), min_size=3, max_size=30), LIMITS_MS, LIMITS_BYTES)
def test_a_change_leaves_what_a_sweep_leaves(
    happened: Happened, retention_ms: int, retention_bytes: int
) -> None:
    """With both sets of settings, the result is the present size minus what a sweep deletes."""
    broker = run(happened, -1, -1)
    changed = TopicConfig(
        retention_ms=retention_ms, retention_bytes=retention_bytes, remote_storage_enable=True
    )
    for facts in facts_of(broker, PRESENT, changed):
        for config, outlook in ((PRESENT, facts.unchanged), (changed, facts.changed)):
            inputs = inputs_of(broker, config)
            plan = inputs.plan(inputs.configs)
            if outlook.is_undecided:
                assert _is_undecided(plan, outlook, facts)
                continue
            assert outlook.left[0] == left_by(plan, inputs)
            starts = [step.details.get("new_log_start_offset", -1) for step in plan.steps]
            assert (outlook.log_start_offset or -1) == max(starts, default=-1)


def _is_undecided(plan: Plan, outlook: Outlook, facts: PartitionFacts) -> bool:
    """Return whether the partition is undecided, because of the plan or an unknown size of the log."""
    return bool(plan.skipped) or (outlook.retention_bytes >= 0 and facts.local_only_bytes is None)


@examples(100)
@given(st.lists(happenings(unclean=False), min_size=3, max_size=30), st.integers(0, 100))
def test_time_leaves_what_a_sweep_leaves_then(happened: Happened, days: int) -> None:
    """Without new data, the result equals that of a sweep in 30, 60 and 90 days."""
    broker = run(happened, -1, -1)
    config = TopicConfig(retention_ms=days * DAY_MS, remote_storage_enable=True)
    for facts in facts_of(broker, PRESENT, config):
        assume(not facts.changed.is_held and not facts.changed.is_undecided)
        for at, left in zip(HORIZONS_DAYS, facts.changed.left, strict=True):
            inputs = inputs_of(broker, config, NOW_MS + at * DAY_MS)
            plan = inputs.plan(inputs.configs)
            assume(not any("hole" in skip.reason for skip in plan.skipped))
            assert left == left_by(plan, inputs)
