"""Sums of reports: of a tier in parts, and of changed settings beside those of a sweep."""

import pickle
from collections.abc import Callable, Collection, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tierctl.commands import tier_digest
from tierctl.commands.sweep import RetentionInputs
from tierctl.commands.tier_digest import TierDigest
from tierctl.commands.what_if_facts import FactsRequest, gather_facts
from tierctl.metadata.parallel_fold import part_of
from tierctl.model import RemoteLogSegmentMetadataUpdate, Selection, TopicConfig, TopicIdPartition
from tierctl.plan.expiry import plan_retention
from tierctl.plan.forecast import DAY_MS, HORIZONS_DAYS, Holding, ObjectCounts, Outlook, PartitionFacts
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.steps import Plan
from tierctl.report.html_lanes import LaneItems, SegmentKind
from tierctl.spark.executors.task import dumps, loads
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import Question, TierState

from tests.plan.retention.kip_broker import KipBroker
from tests.plan.retention.test_kip_model import LIMITS_BYTES, LIMITS_MS, happenings, log_of, run, state_of
from tests.plan.tier import NOW_MS, OTHER_ID, PARTITION, TOPIC_ID, S, local_log, segment
from tests.support.amounts import examples

PARTITIONS = [
    TopicIdPartition(topic_id, name, number)
    for topic_id, name in ((TOPIC_ID, "orders"), (OTHER_ID, "clicks"))
    for number in range(3)
]
CONFIGS = {"orders": TopicConfig(retention_ms=DAY_MS), "clicks": TopicConfig(retention_ms=3 * DAY_MS)}
LOGS = [local_log([1000], 2000, partition=partition) for partition in PARTITIONS]
Rows = list[tuple[TopicIdPartition, int, int, bool]]


def many_segments(fewest: int) -> st.SearchStrategy[Rows]:
    """Return lists with the partition of each segment, its age, its size, and whether it is finished."""
    ages_ms = st.one_of(st.sampled_from([0, -DAY_MS, 100 * DAY_MS]), st.integers(0, 4 * DAY_MS))
    rows = st.tuples(st.sampled_from(PARTITIONS), ages_ms, st.integers(0, 1 << 20), st.booleans())
    return st.lists(rows, min_size=fewest, max_size=30)


def folded(rows: Rows) -> TierState:
    """Return a tier whose user partitions are in three metadata partitions."""
    state = TierState(read=dict.fromkeys(range(3), 0))
    ends = dict.fromkeys(PARTITIONS, 0)
    for number, (partition, age_ms, size, is_finished) in enumerate(rows):
        start, at = ends[partition], partition.partition
        ends[partition] = start + 10
        found = segment(
            number, start, start + 9, size=size, max_timestamp_ms=NOW_MS - age_ms, partition=partition
        )
        finished = RemoteLogSegmentMetadataUpdate.of(
            found, S.COPY_SEGMENT_FINISHED, broker_id=1, event_timestamp_ms=NOW_MS - DAY_MS
        )
        for event in (found, finished)[: 1 + is_finished]:
            fold_event(event, state, metadata_partition=at, metadata_offset=state.read[at])
            state.read[at] += 1
    return state


def elsewhere(state: TierState) -> TierState:
    """Return facts of `state`; questions are asked as executors ask them, of each metadata partition."""

    def ask(question: Question, metadata_partitions: Collection[int]) -> Iterator[Any]:
        for number in metadata_partitions:
            asked = pickle.loads(pickle.dumps(question))
            for answer in asked(part_of(state, [number])):
                yield loads(dumps(answer))

    there = part_of(state, range(3))
    there.elsewhere = ask
    return there


def digest_of(state: TierState, empty: TierDigest) -> TierDigest:
    plan = plan_retention(
        state,
        LOGS,
        CONFIGS,
        now_ms=NOW_MS,
        topics=CurrentTopics.of(LOGS),
        explained=Selection(),
        digest=empty,
    )
    assert (plan.steps, plan.kept) == ((), ())
    return empty


def new_digest(limit: int = 4, **facts: Any) -> TierDigest:
    return TierDigest(now_ms=NOW_MS, limit=limit, **({"removed": (), "unreadable": ()} | facts))


def contents(digest: TierDigest) -> tuple[Any, ...]:
    expirations = digest.expirations
    return sorted(digest.ages.rows()), expirations.days, expirations.next(), digest.lanes, digest.unread


@examples(60)
@given(rows=many_segments(0), most=st.integers(1, 5), limit=st.integers(4, 8))
def test_parts_that_are_summed_up_elsewhere_have_the_sums_of_the_whole(
    rows: Rows, most: int, limit: int
) -> None:
    state = folded(rows)
    with mock.patch.object(tier_digest, "EXPIRATIONS_MAX", most):
        here, there = (digest_of(each, new_digest(limit)) for each in (state, elsewhere(state)))
        assert contents(here) == contents(there)
        assert len(here.expirations.next()) <= most
    finished = [row for row in rows if row[3]]
    assert sum(counts[0] for _, ages in here.ages.rows() for counts in ages) == len(finished)
    assert sum(lane.segments for lane, _ in here.lanes.values()) == len(rows)
    assert all(len(lane) <= limit for lane, _ in here.lanes.values())


@examples(60)
@given(rows=many_segments(12), most=st.integers(1, 6))
def test_the_next_expirations_are_the_first_of_the_plan(rows: Rows, most: int) -> None:
    state = folded(rows)
    plan = plan_retention(state, LOGS, CONFIGS, now_ms=NOW_MS, explained=Selection())
    due = [(each.due_ms, each.partition, each.start_offset) for each in plan.decisions(NOW_MS) if each.due_ms]
    ordered = sorted((at, each.topic, *each.key, start) for at, each, start in due)
    with mock.patch.object(tier_digest, "EXPIRATIONS_MAX", most):
        for asked in (state, elsewhere(state)):
            found = digest_of(asked, new_digest()).expirations
            assert sum(count for count, _ in found.days.values()) == len(due)
            assert [(each.due_ms, *each[:3], each.start_offset) for each in found.next()] == ordered[:most]


TWO = [(PARTITION, 2 * DAY_MS, 100, True), (PARTITION, 0, 100, True)]


@pytest.mark.parametrize(
    ("facts", "kinds", "unread"),
    [
        ({}, [SegmentKind.DUE, SegmentKind.CURRENT], []),
        (
            {"unreadable": {PARTITION.topic_partition}},
            [SegmentKind.UNDECIDED, SegmentKind.CURRENT],
            [PARTITION],
        ),
        ({"removed": {PARTITION.key}}, [SegmentKind.GONE] * 2, []),
        (
            {"removed": {PARTITION.key}, "unreadable": {PARTITION.topic_partition}},
            [SegmentKind.UNDECIDED, SegmentKind.CURRENT],
            [PARTITION],
        ),
    ],
    ids=["decided", "its log can't be read", "removed", "removed, and its log can't be read"],
)
def test_steps_that_a_run_leaves_out_decide_nothing(
    facts: dict[str, Any], kinds: list[SegmentKind], unread: list[TopicIdPartition]
) -> None:
    found = digest_of(folded(TWO), new_digest(**facts))
    lane, next_ms = found.lanes[PARTITION.key]
    assert [code >> 1 for code in lane.column("kind")] == [kind.code for kind in kinds]
    assert (next_ms == NOW_MS, found.unread) == (SegmentKind.UNDECIDED not in kinds, unread)


def test_a_lane_without_segments_has_no_items() -> None:
    assert (len(LaneItems()), LaneItems().column("kind").tolist()) == (0, [])


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
            if is_careful(plan):
                continue
            assert outlook.left[0] == left_by(plan, inputs)
            starts = [step.details.get("new_log_start_offset", -1) for step in plan.steps]
            assert (outlook.log_start_offset or -1) == max(starts, default=-1)


def is_careful(plan: Plan) -> bool:
    """Return whether brokers delete segments that `sweep` leaves: the outlook is that of brokers."""
    return any("sweep does not" in skip.reason for skip in plan.skipped)


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
            assume(not is_careful(plan))
            assert left == left_by(plan, inputs)
