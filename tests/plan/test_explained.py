"""A plan and its explanation never disagree: each segment has a step or a reason, and one row."""

from dataclasses import dataclass, field, replace
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.commands.tier_digest import segment_kinds
from tierctl.model import LocalLog, Selection, TopicConfig, TopicIdPartition
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.settings.topic import CopyLag
from tierctl.plan.copy import plan_copy
from tierctl.plan.decisions import EXPIRED, KEPT, NEVER, Decision, DecisionColumns, NextAction, stop_lines
from tierctl.plan.expiry import PartitionDecisions, plan_retention
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Plan
from tierctl.report.html_lanes import SegmentKind
from tierctl.state.fold import fold_event
from tierctl.state.table_arrays import FINISHED
from tierctl.state.tier_state import PartitionState, TierState

from tests.plan.test_properties import MANY, World, chains, histories
from tests.plan.tier import (
    DAY_MS,
    NOW_MS,
    PARTITION,
    S,
    advance,
    columns_of,
    local_log,
    segment,
    segment_id,
    tier,
)

EVERYTHING = Selection()
K = ReasonKind
ACTED_ON = {
    *(K.ROLLED, K.RETENTION_MS, K.RETENTION_BYTES, K.LOG_START_OFFSET, K.UNREFERENCED_EPOCHS, K.OFF_LINEAGE),
    *(K.DOUBLED_SEGMENT, K.DELETE_STARTED),
}
"""The kinds of reasons of steps."""


def check_remote(plan: Plan, state: TierState) -> None:
    """Check that every remote segment has either a step or a reason to stay."""
    known = [s.segment_id for part in state for s in part.cache.list_remote_log_segments()]
    acted = [step.segment_id for step in plan.steps]
    kept = [each.segment_id for each in plan.kept]
    assert sorted(known) == sorted([*filter(None, acted), *filter(None, kept)])
    assert {Reason.of(step.reason).kind for step in plan.steps} <= ACTED_ON
    by_brokers = {each.segment_id for each in plan.kept if each.action is NextAction.DELETE}
    staying = [each.reason.kind for each in plan.kept if each.segment_id not in by_brokers]
    assert {*staying} <= {*K} - ACTED_ON | {K.OFF_LINEAGE, K.DOUBLED_SEGMENT}
    check_times(plan)


def check_times(plan: Plan) -> None:
    """Check that kept segments with an expiration time have not expired yet."""
    for each in plan.kept:
        if each.reason.kind is K.WILL_EXPIRE and each.reason.facts["held_by"] is None:
            assert each.reason.facts["expires_at_ms"] > NOW_MS


VERSIONS = st.sampled_from([KafkaVersion.parse(text) for text in ("3.6", "3.9", "4.2", "4.3", "4.4")])


@MANY
@given(st.one_of(histories(), chains()), VERSIONS)
def test_every_remote_segment_has_a_step_or_a_reason(world: World, version: KafkaVersion) -> None:
    """The tiers have deletes in progress, unfinished copies, and segments of other leaders and topic ids."""
    world = replace(world, config=replace(world.config, kafka_version=version))
    plan = world.sweep(explained=EVERYTHING)
    assert plan == world.sweep(explained=None)
    check_remote(plan, world.state)


@dataclass
class Columns:
    """A `Digest` that has the columns of each partition."""

    found: dict[TopicIdPartition, DecisionColumns] = field(default_factory=dict)

    def empty(self) -> Self:
        return replace(self, found={})

    def add(self, part: PartitionState, decisions: PartitionDecisions) -> None:
        self.found[part.topic_id_partition] = decisions.columns(part, NOW_MS)

    def answer(self) -> Self:
        return self

    def merge(self, other: Self) -> None:
        self.found |= other.found


@MANY
@given(
    st.one_of(histories(), chains()),
    VERSIONS,
    st.sampled_from([-1, 0, DAY_MS, 3 * DAY_MS, (1 << 63) - 1]),
    st.sampled_from([-1, 0, 50, 10**9]),
)
def test_the_columns_of_a_digest_are_those_of_the_explained_decisions(
    world: World, version: KafkaVersion, retention_ms: int, retention_bytes: int
) -> None:
    limits = {"retention_ms": retention_ms, "retention_bytes": retention_bytes}
    world = replace(world, config=replace(world.config, kafka_version=version, **limits))
    digest, plan = Columns(), world.sweep(explained=EVERYTHING)
    assert world.sweep(explained=EVERYTHING, digest=digest).kept == ()
    decisions = list(plan.decisions(NOW_MS))
    for part in world.state:
        whose = part.topic_id_partition
        own = columns_of(part, (each for each in decisions if each.partition == whose))
        if whose in digest.found:
            assert own.kinds.tolist() == digest.found[whose].kinds.tolist()
            assert own.due_ms.tolist() == digest.found[whose].due_ms.tolist()
        else:
            assert not own.is_decided.any()
    assert sum(len(columns.kinds) for columns in digest.found.values()) >= len(
        {d.segment_id for d in decisions}
    )


def test_a_leader_epoch_that_lists_a_segment_that_is_gone_leaves_the_plan_as_it_is() -> None:
    """Brokers read the epochs one after the other, and stop at the first segment that stays."""
    expired, young = NOW_MS - 9 * DAY_MS, NOW_MS - DAY_MS
    state = tier(segment(1, 0, 9, max_timestamp_ms=expired), segment(2, 10, 19, max_timestamp_ms=young))
    again = segment(3, 20, 29, (2, 20))
    # It is begun in epoch 1, and again in epoch 2: epoch 1 still lists it when it is gone.
    advance(state, segment(3, 20, 29, (1, 20)))
    fold_event(again, state, metadata_partition=0, metadata_offset=state.read[0])
    state.read[0] += 1
    advance(state, again, S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    log = local_log([30], 40, epochs=((0, 0), (1, 20), (2, 20 + 5)))
    configs = {"orders": TopicConfig(retention_ms=3 * DAY_MS)}
    plan = plan_retention(state, [log], configs, now_ms=NOW_MS, explained=EVERYTHING)
    assert plan == plan_retention(state, [log], configs, now_ms=NOW_MS)
    assert [step.start_offset for step in plan.steps] == [0]
    (kept,) = plan.kept
    assert (kept.start_offset, kept.reason.kind) == (10, K.UNDECIDED)
    assert "leader epoch 1 lists a segment without metadata" in kept.reason


def carried_out(plan: Plan, world: World) -> World:
    """Return the world after the steps of `plan`, and after the deletes that only brokers do next."""
    by_id = {s.segment_id: s for s in world.segments}
    by_brokers = [each for each in plan.kept if each.action is NextAction.DELETE]
    for deleted in (*plan.steps, *by_brokers):
        segment = by_id[deleted.segment_id or ""]
        advance(world.state, segment, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    moved = [step.details.get("new_log_start_offset", 0) for step in plan.steps]
    moved += [each.end_offset + 1 for each in by_brokers if each.end_offset is not None]
    return replace(world, raised_to=max(world.raised_to, *moved, 0))


@MANY
@given(chains(), VERSIONS, st.sampled_from([DAY_MS, 3 * DAY_MS]))
def test_a_segment_is_deleted_at_the_explained_time(
    world: World, version: KafkaVersion, retention_ms: int
) -> None:
    config = replace(world.config, kafka_version=version, retention_ms=retention_ms)
    world = replace(world, config=config)
    plan = world.sweep(explained=EVERYTHING)
    unfinished, begun = (
        {s.segment_id for part in world.state for s in part.segments.in_state(state)}
        for state in (S.COPY_SEGMENT_STARTED, S.DELETE_SEGMENT_STARTED)
    )
    deleted = {each.segment_id for each in plan.kept if each.action is NextAction.DELETE}
    if unfinished & {*deleted, *(step.segment_id for step in plan.steps)}:
        # Its bytes are subtracted from the excess, in which brokers did not count them.
        return
    world = carried_out(plan, world)
    for each in plan.kept:
        if each.reason.kind is not K.WILL_EXPIRE or each.reason.facts["held_by"] in begun:
            # Kafka 3.9 waits until a begun deletion expires; a sweep resumes it now.
            continue
        at_ms = each.reason.facts["expires_at_ms"]
        before, then = (world.sweep(explained=None, now_ms=now_ms) for now_ms in (at_ms - 1, at_ms))
        assert each.segment_id not in {step.segment_id for step in before.steps}
        # A run stops before a hole, and before a segment without a timestamp; brokers do not.
        is_careful = any("sweep does not" in skip.reason or "hole" in skip.reason for skip in then.skipped)
        assert each.segment_id in {step.segment_id for step in then.steps} or is_careful


@MANY
@given(histories(), st.integers(0, 85), st.integers(0, 85), st.booleans(), st.sampled_from([0, 5, 10**9]))
def test_every_local_segment_has_a_step_or_a_reason(
    world: World, stable: int, log_start: int, is_disabled: bool, lag_bytes: int
) -> None:
    log = local_log(
        [0, 10, 25, 40, 60, 80],
        85,
        epochs=world.log.leader_epochs,
        last_stable_offset=stable,
        log_start_offset=max(log_start, world.log.log_start_offset),
    )
    config = TopicConfig(
        remote_storage_enable=True, is_copy_disabled=is_disabled, copy_lag=CopyLag(ms=DAY_MS, bytes=lag_bytes)
    )
    configs = {"orders": config}
    plan = plan_copy(world.state, [log], configs, now_ms=NOW_MS, explained=EVERYTHING)
    assert plan == plan_copy(world.state, [log], configs, now_ms=NOW_MS)
    check_local(plan, [log])


def check_local(plan: Plan, logs: list[LocalLog]) -> None:
    known = {(log.topic_id_partition, s.base_offset) for log in logs for s in log.segments}
    acted = [(step.topic_id_partition, step.start_offset) for step in plan.steps]
    kept = [(each.partition, each.start_offset) for each in plan.kept]
    assert sorted(known) == sorted([*acted, *kept])
    assert {Reason.of(step.reason).kind for step in plan.steps} <= {K.ROLLED}
    assert K.ROLLED not in {each.reason.kind for each in plan.kept}


def test_kinds_of_reasons() -> None:
    """One tier has a segment for each reason for which retention keeps segments."""
    old, young, future = NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS // 2, NOW_MS + 1
    state = tier(
        segment(1, 0, 9, max_timestamp_ms=old),
        segment(2, 10, 19, max_timestamp_ms=young),
        segment(3, 20, 29, max_timestamp_ms=young - 1),
        segment(4, 30, 39, max_timestamp_ms=future),
        segment(5, 40, 49, max_timestamp_ms=old),
        segment(6, 40, 49, (7, 40)),
    )
    advance(state, segment(7, 50, 59))
    advance(state, segment(8, 0, 9), S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
    log = local_log([50], 60, epochs=((0, 0), (8, 50)))
    config = TopicConfig(retention_ms=DAY_MS)
    plan = plan_retention(state, [log], {"orders": config}, now_ms=NOW_MS, explained=EVERYTHING)
    check_remote(plan, state)
    kinds = {each.segment_id: each.reason.kind for each in plan.kept}
    ids = [segment(number, 0, 0).segment_id for number in range(2, 8)]
    assert [kinds[each] for each in ids] == [
        K.WILL_EXPIRE,
        K.WILL_EXPIRE,
        K.STALLED,
        K.STALLED,
        K.OFF_LINEAGE,
        K.COPY_STARTED,
    ]
    reasons = {each.segment_id: each.reason for each in plan.kept}
    assert reasons[ids[0]].facts["expires_at_ms"] == young + DAY_MS + 1
    assert reasons[ids[1]].facts["held_by"] == ids[0]
    assert [reasons[each].facts["is_holder"] for each in ids[2:4]] == [True, False]
    assert plan.kept[0].partition == PARTITION


def test_a_topic_that_was_created_again_leaks() -> None:
    state = tier(segment(1, 0, 9))
    other = replace(PARTITION, topic_id=segment(9, 0, 0).segment_id)
    log = local_log([0], 60, partition=other)
    plan = plan_retention(state, [log], {}, now_ms=NOW_MS, explained=EVERYTHING)
    assert [each.reason.kind for each in plan.kept] == [K.LEAKED]


def test_a_cut_checkpoint_explains_the_segments_that_it_lost_and_no_others() -> None:
    """Epochs 0 and 1 were cut: the log starts at 0, and its checkpoint begins with epoch 2 at 20."""
    state = tier(segment(1, 0, 9, (0, 0)), segment(2, 10, 19, (1, 10)), segment(3, 20, 29, (2, 20)))
    advance(state, segment(4, 20, 29, (1, 20)), S.COPY_SEGMENT_FINISHED)
    log = local_log([30], 40, epochs=((2, 20),))
    configs = {"orders": TopicConfig(retention_ms=DAY_MS)}
    plan = plan_retention(state, [log], configs, now_ms=NOW_MS, explained=EVERYTHING)
    kinds = {each.segment_id: each.reason.kind for each in plan.kept}
    found = [kinds[segment_id(number)] for number in (1, 2, 4)]
    assert found == [K.CUT_EPOCHS, K.CUT_EPOCHS, K.UNREFERENCED_EPOCHS]


def test_of_two_copies_whose_epochs_were_cut_brokers_delete_the_second_only() -> None:
    state = tier(segment(1, 0, 9, (0, 0)), segment(2, 10, 19, (0, 10)), segment(3, 0, 9, (0, 0)))
    log = local_log([30], 40, epochs=((2, 20),))
    plan = plan_retention(state, [log], {"orders": TopicConfig()}, now_ms=NOW_MS, explained=EVERYTHING)
    assert {each.reason.kind for each in plan.kept} == {K.CUT_EPOCHS}
    deleted = {each.segment_id for each in plan.kept if each.action is NextAction.DELETE}
    assert deleted == {segment_id(2), segment_id(3)}


OLD_MS, YOUNG_MS = NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS // 2


def aged_tier() -> TierState:
    """Return an expired segment, one that expires in half a day, and an unfinished copy above them."""
    state = tier(segment(1, 0, 9, max_timestamp_ms=OLD_MS), segment(2, 10, 19, max_timestamp_ms=YOUNG_MS))
    advance(state, segment(3, 20, 29))
    return state


def test_copies_that_stopped_have_one_line_per_reason() -> None:
    facts = {"from_offset": 0, "size_bytes": 200, "limit_bytes": 128}
    stopped = {
        replace(PARTITION, partition=number): Reason(K.CUSTOM_METADATA, **facts) for number in range(1_200)
    }
    (line,) = stop_lines(stopped)
    assert (
        line == f"{PARTITION.topic}-0: {Reason(K.CUSTOM_METADATA, **facts)}; 1,199 more, see tierctl explain"
    )
    assert stop_lines({PARTITION: Reason(K.CUSTOM_METADATA, **facts)}) == [
        f"{PARTITION.topic_partition}: {Reason(K.CUSTOM_METADATA, **facts)}"
    ]


def test_every_segment_has_a_row_with_action_reason_and_time() -> None:
    state, config = aged_tier(), TopicConfig(retention_ms=DAY_MS, remote_storage_enable=True)
    log = local_log([10, 20, 30], 40)
    deletes = plan_retention(state, [log], {"orders": config}, now_ms=NOW_MS, explained=EVERYTHING)
    rows = {each.start_offset: each for each in deletes.decisions(NOW_MS)}
    assert [(at, rows[at].action, rows[at].reason.kind, rows[at].due_ms) for at in sorted(rows)] == [
        (0, NextAction.DELETE, K.RETENTION_MS, NOW_MS),
        (10, NextAction.NONE, K.WILL_EXPIRE, YOUNG_MS + DAY_MS + 1),
        (20, NextAction.NONE, K.COPY_STARTED, None),
    ]
    copies = plan_copy(state, [log], {"orders": config}, now_ms=NOW_MS, explained=EVERYTHING)
    local = {each.start_offset: each for each in copies.decisions(NOW_MS)}
    assert [(at, local[at].action, local[at].segment_id) for at in sorted(local)] == [
        (10, NextAction.NONE, None),
        (20, NextAction.COPY, None),
        (30, NextAction.NONE, None),
    ]


def test_columns_have_the_last_decision_about_each_segment() -> None:
    state = aged_tier()
    (part,) = state
    plan = plan_retention(
        state, [local_log([10], 40)], {"orders": TopicConfig(retention_ms=DAY_MS)}, now_ms=NOW_MS
    )
    assert not columns_of(part, ()).is_decided.any()
    staying = Reason(K.NO_LIMIT_REACHED, is_age_stated=True)
    kept = [Decision.kept(each, staying) for each in part.segments if each.start_offset < 20]
    found = columns_of(part, [*kept, *plan.decisions(NOW_MS)])
    starts = part.segments.columns.column("start").tolist()
    assert {starts[row]: bool(found.has(EXPIRED)[row]) for row in range(3)} == {0: True, 10: False, 20: False}
    assert {starts[row]: bool(found.has(KEPT)[row]) for row in range(3)} == {0: False, 10: True, 20: False}
    assert {starts[row]: found.due_ms[row] for row in range(3)} == {0: NOW_MS, 10: NEVER, 20: NEVER}
    assert sorted(starts[row] for row in range(3) if found.is_decided[row]) == [0, 10]


@pytest.mark.parametrize("kind", [K.COPY_STARTED, K.COPY_MAY_RUN])
def test_the_page_shows_a_copy_that_may_still_run_as_a_copy(kind: ReasonKind) -> None:
    """Brokers keep a segment that is being copied, also below the log start."""
    state = tier(segment(1, 0, 9))
    advance(state, segment(2, 10, 19))
    (part,) = state
    facts = {"broker_id": 1, "begun": "2026-11-22T12:00:00Z", "end_offset": 19}
    kept = (
        Decision.kept(each, Reason(kind, **facts))
        for each in part.segments
        if each.state is not S.COPY_SEGMENT_FINISHED
    )
    states = part.segments.columns.states
    kinds = segment_kinds(columns_of(part, kept), states)
    assert part.topic_id_partition == PARTITION
    assert kinds[states != FINISHED].tolist() == [SegmentKind.COPYING.code]
    assert kinds[states == FINISHED].tolist() == [SegmentKind.UNDECIDED.code]
