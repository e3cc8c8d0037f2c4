"""Plans to delete partitions, and their limits."""

from dataclasses import replace

import pytest
from tierctl.errors import CorruptInputError, LimitExceeded, NotFoundError, SafetyRefusal, UsageError
from tierctl.model import (
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.plan.partition_deletes import ClusterAnswer, DeletionEvidence, plan_mark, plan_removal
from tierctl.plan.retention.expiry import plan_retention
from tierctl.plan.safety import check_limits
from tierctl.plan.steps import Plan, delete_step
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import MissingEvents, Quarantined, TierState

from tests.plan.tier import (
    NOW_MS,
    OTHER_ID,
    PARTITION,
    TOPIC_ID,
    S,
    advance,
    local_log,
    segment,
    tier,
)

P = RemotePartitionDeleteState
GONE = DeletionEvidence(cluster=ClusterAnswer(cluster_id="cluster", existing=frozenset(), is_own=True))
RECREATED = TopicIdPartition(OTHER_ID, "orders", 0)


def deletion(state: TierState, partition: TopicIdPartition, *states: P, metadata_partition: int = 0) -> None:
    for target in states:
        at = state.read.get(metadata_partition, 0)
        state.read[metadata_partition] = at + 1
        event = RemotePartitionDeleteMetadata(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            broker_id=1,
            event_timestamp_ms=1,
            state=target,
        )
        fold_event(event, state, metadata_partition=metadata_partition, metadata_offset=at)


def quarantine(state: TierState) -> None:
    state.quarantined.append(Quarantined(0, 7, CorruptInputError("record", expected="a", found="b")))


def every_state() -> TierState:
    """Return segments 1 to 5: copying, finished, being deleted, deleted, and replaced by segment 6."""
    state = tier()
    advance(state, segment(1, 500, 599))
    advance(state, segment(2, 100, 199), S.COPY_SEGMENT_FINISHED)
    advance(state, segment(3, 200, 299), S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
    gone = (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    advance(state, segment(4, 300, 399), *gone)
    advance(state, segment(5, 0, 99), S.COPY_SEGMENT_FINISHED)
    advance(state, segment(6, 0, 89), S.COPY_SEGMENT_FINISHED)
    advance(state, segment(9, 0, 99, partition=RECREATED), S.COPY_SEGMENT_FINISHED)
    advance(state, segment(8, 0, 9, partition=replace(PARTITION, partition=1)), S.COPY_SEGMENT_FINISHED)
    return state


def brief(plan: Plan) -> list[tuple[str, int, int | None]]:
    return [
        (step.action, step.partition, step.segment_id and int.from_bytes(step.segment_id.bytes))
        for step in plan.steps
    ]


def test_marks_every_partition_of_a_topic_id() -> None:
    plan = plan_mark(every_state(), [TOPIC_ID], GONE)
    assert brief(plan) == [("mark_partition", 0, None), ("mark_partition", 1, None)]
    assert {step.topic_id for step in plan.steps} == {TOPIC_ID}


@pytest.mark.parametrize(
    "states",
    [(P.DELETE_PARTITION_MARKED,), (P.DELETE_PARTITION_MARKED, P.DELETE_PARTITION_STARTED), tuple(P)],
)
def test_marks_no_partition_twice(states: tuple[P, ...]) -> None:
    state = every_state()
    deletion(state, PARTITION, *states)
    plan = plan_mark(state, [TOPIC_ID], GONE)
    assert brief(plan) == [("mark_partition", 1, None)]
    assert [skip.reason for skip in plan.skipped] == [f"already {states[-1]}"]


@pytest.mark.parametrize("name", [".", "..", "a/b", "x" * 250])
def test_marks_no_name_that_no_topic_can_have(name: str) -> None:
    state, hostile = tier(), TopicIdPartition(OTHER_ID, name, 0)
    event = segment(0, 0, 99, partition=hostile)
    fold_event(event, state, metadata_partition=0, metadata_offset=state.read.get(0, 0))
    plan = plan_mark(state, [OTHER_ID], GONE)
    assert plan.steps == ()
    assert [(skip.topic, "no topic can have" in skip.reason) for skip in plan.skipped] == [(name, True)]


def test_marking_refuses_what_still_exists_or_never_did() -> None:
    state = every_state()
    with pytest.raises(SafetyRefusal, match=TOPIC_ID):
        plan_mark(state, [TOPIC_ID], DeletionEvidence())
    unknown = Uuid.from_bytes(bytes(16))
    with pytest.raises(NotFoundError, match=unknown):
        plan_mark(state, [TOPIC_ID, unknown], GONE)
    with pytest.raises(UsageError, match=OTHER_ID):
        plan_mark(state, [TOPIC_ID], DeletionEvidence(overridden=frozenset({TOPIC_ID, OTHER_ID})))
    # Without a partition to mark, no evidence is needed.
    for number in range(2):
        deletion(state, replace(PARTITION, partition=number), P.DELETE_PARTITION_MARKED)
    assert plan_mark(state, [TOPIC_ID], DeletionEvidence()).steps == ()


def test_removes_every_segment_of_a_marked_partition() -> None:
    state = every_state()
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED, P.DELETE_PARTITION_MARKED)
    plan = plan_removal(state)
    assert brief(plan) == [
        ("delete_partition", 0, None),
        ("delete_segment", 0, 5),
        ("delete_segment", 0, 6),
        ("delete_segment", 0, 2),
        ("delete_segment", 0, 3),
        ("delete_segment", 0, 1),
    ]
    assert {step.topic_id for step in plan.steps} == {TOPIC_ID}
    whole = plan.steps[0]
    assert (whole.details["segments"], whole.details["size_bytes"]) == (5, 500)
    assert (whole.details["metadata_partition"], whole.details["state"]) == (0, "DELETE_PARTITION_MARKED")


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((), 0),
        ((P.DELETE_PARTITION_MARKED,), 6),
        ((P.DELETE_PARTITION_MARKED, P.DELETE_PARTITION_STARTED), 6),
        # Segments that a finished deletion left behind.
        (tuple(P), 6),
    ],
)
def test_what_is_removed_by_state(states: tuple[P, ...], wanted: int) -> None:
    state = every_state()
    deletion(state, PARTITION, *states)
    assert len(plan_removal(state).steps) == wanted


def test_a_removed_partition_needs_no_step() -> None:
    state = tier(segment(1, 0, 9))
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    advance(state, segment(1, 0, 9), S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    deletion(state, PARTITION, P.DELETE_PARTITION_STARTED, P.DELETE_PARTITION_FINISHED)
    assert plan_removal(state).steps == ()


def test_removal_decides_nothing_from_metadata_it_does_not_understand() -> None:
    state = every_state()
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    quarantine(state)
    for plan in (plan_removal(state), plan_mark(state, [OTHER_ID], GONE)):
        assert plan.steps == ()
        assert "could not be understood" in plan.skipped[0].reason


def test_removal_decides_nothing_where_events_are_missing() -> None:
    state = every_state()
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    state.add_missing(MissingEvents(0, 0, 28))
    for plan in (plan_removal(state), plan_mark(state, [OTHER_ID], GONE)):
        assert plan.steps == ()
        assert "metadata partition 0 begins at offset 28" in plan.skipped[0].reason
    state.accepts_missing = True
    assert plan_removal(state).steps


def test_partitions_are_removed_in_the_order_of_their_marks() -> None:
    state = tier()
    parts = [TopicIdPartition(TOPIC_ID, "orders", n) for n in range(4)]
    for part, metadata_partition in ((parts[3], 1), (parts[2], 1), (parts[1], 0), (parts[0], 0)):
        deletion(state, part, P.DELETE_PARTITION_MARKED, metadata_partition=metadata_partition)
    assert [step.partition for step in plan_removal(state).steps] == [1, 0, 3, 2]
    assert plan_removal(state, topic_ids=[OTHER_ID]).steps == ()


def deletes(count: int, *, resumed: int = 0) -> tuple[Plan, TierState]:
    """Return a plan that deletes `count` of 40 segments, of which `resumed` are being deleted already."""
    segments = [segment(n, 10 * n, 10 * n + 9) for n in range(40)]
    state = tier(*segments)
    for metadata in segments[:resumed]:
        advance(state, metadata, S.DELETE_SEGMENT_STARTED)
    plan = plan_retention(
        state,
        [local_log([400], 410)],
        {},
        now_ms=NOW_MS,
        log_start_offsets={TopicPartition("orders", 0): 10 * count},
    )
    assert len(plan.steps) == count
    return plan, state


@pytest.mark.parametrize(
    ("count", "limits", "message"),
    [
        (20, {}, None),
        (21, {}, "21 of the 40 finished segments of .*orders-0, more than --max-fraction 0.5"),
        (40, {"max_fraction": 1.0}, None),
        (1, {"max_fraction": 0.0}, "1 of the 40 finished segments"),
        (20, {"max_deletes": 20}, None),
        (20, {"max_deletes": 19}, "deletes 20 segments, more than --max-deletes 19"),
    ],
)
def test_limits(count: int, limits: dict[str, float], message: str | None) -> None:
    plan, state = deletes(count)
    if message is None:
        check_limits(plan, state, **limits)  # type: ignore[arg-type]
    else:
        with pytest.raises(LimitExceeded, match=message):
            check_limits(plan, state, **limits)  # type: ignore[arg-type]


def test_resumed_deletions_are_no_share_of_the_partition() -> None:
    """30 deletions were begun earlier; 5 of the other 10 segments are half. One more is too many."""
    check_limits(*deletes(35, resumed=30), max_fraction=0.1)
    check_limits(*deletes(30, resumed=20))
    with pytest.raises(LimitExceeded, match="11 of the 20 finished segments"):
        check_limits(*deletes(31, resumed=20))


def test_unfinished_copies_are_no_share_of_the_partition() -> None:
    """The limit protects records that consumers can read; 30 unfinished copies have none."""
    segments = [segment(n, 10 * n, 10 * n + 9) for n in range(40)]
    cut_off = [replace(each, state=S.COPY_SEGMENT_STARTED) for each in segments[:30]]
    finished = [replace(each, state=S.COPY_SEGMENT_FINISHED) for each in segments]
    steps = [delete_step(each, "any") for each in (*cut_off, *finished[:20])]
    check_limits(Plan(command="sweep", steps=tuple(steps), read={}), tier(*segments))
    steps.append(delete_step(finished[20], "any"))
    with pytest.raises(LimitExceeded, match="21 of the 40 finished segments"):
        check_limits(Plan(command="sweep", steps=tuple(steps), read={}), tier(*segments))


def test_small_partitions_are_exempt_from_the_share() -> None:
    segments = [segment(n, 10 * n, 10 * n + 9) for n in range(20)]
    raised = {TopicPartition("orders", 0): 190}
    for count, refused in ((19, False), (20, True)):
        state = tier(*segments[:count])
        logs = [local_log([10 * count], 10 * count + 5)]
        plan = plan_retention(state, logs, {}, now_ms=NOW_MS, log_start_offsets=raised)
        assert len(plan.steps) == 19
        if refused:
            with pytest.raises(LimitExceeded):
                check_limits(plan, state)
        else:
            check_limits(plan, state)


def test_whole_partitions_count_against_max_deletes_only() -> None:
    state = tier(*(segment(n, 10 * n, 10 * n + 9) for n in range(40)))
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    check_limits(plan_removal(state), state)
    with pytest.raises(LimitExceeded, match="40 segments"):
        check_limits(plan_removal(state), state, max_deletes=39)
