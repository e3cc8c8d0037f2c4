"""Plans to delete partitions, and their limits."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import pytest
from tierctl.errors import CorruptInputError, LimitExceeded, NotFoundError, SafetyRefusal, UsageError
from tierctl.model import RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.plan.partition_deletes import ClusterAnswer, DeletionEvidence, plan_mark, plan_removal
from tierctl.plan.preconditions import check_limits
from tierctl.plan.steps import Plan, delete_step
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import MissingEvents, Quarantined, TierState

from tests.plan.tier import OTHER_ID, PARTITION, TOPIC_ID, S, advance, segment, tier
from tests.state import histories

P = RemotePartitionDeleteState
GONE = DeletionEvidence(cluster=ClusterAnswer(cluster_id="cluster", existing=frozenset(), is_own=True))
RECREATED = TopicIdPartition(OTHER_ID, "orders", 0)


def deletion(state: TierState, partition: TopicIdPartition, *states: P, metadata_partition: int = 0) -> None:
    for target in states:
        at = state.read.get(metadata_partition, 0)
        state.read[metadata_partition] = at + 1
        event = histories.deletion(target, partition)
        fold_event(event, state, metadata_partition=metadata_partition, metadata_offset=at)


def quarantine(state: TierState, metadata_partition: int = 0) -> None:
    error = CorruptInputError("record", expected="a", found="b")
    state.quarantined.append(Quarantined(metadata_partition, 7, error))


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


@pytest.mark.parametrize("count", range(4))
def test_what_is_marked_and_removed_by_state(count: int) -> None:
    """A partition is marked once; segments that a finished deletion left behind are removed, too."""
    states, state = tuple(P)[:count], every_state()
    deletion(state, PARTITION, *states)
    marks = plan_mark(state, [TOPIC_ID], GONE)
    assert brief(marks) == [("mark_partition", number, None) for number in ((1,) if count else (0, 1))]
    assert [skip.reason for skip in marks.skipped] == [f"already {each}" for each in states[-1:]]
    assert len(plan_removal(state).steps) == (6 if count else 0)


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


def test_a_removed_partition_needs_no_step() -> None:
    state = tier(segment(1, 0, 9))
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    advance(state, segment(1, 0, 9), S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    deletion(state, PARTITION, P.DELETE_PARTITION_STARTED, P.DELETE_PARTITION_FINISHED)
    assert plan_removal(state).steps == ()


@pytest.mark.parametrize("is_damaged", [True, False])
def test_nothing_is_decided_from_metadata_that_are_not_known_completely(is_damaged: bool) -> None:
    state = every_state()
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    if is_damaged:
        quarantine(state)
    else:
        state.add_missing(MissingEvents(0, 0, 28))
    why = "could not be understood" if is_damaged else "metadata partition 0 begins at offset 28"
    for plan in (plan_removal(state), plan_mark(state, [OTHER_ID], GONE)):
        assert plan.steps == ()
        assert why in plan.skipped[0].reason
    state.accepts_missing = True
    assert bool(plan_removal(state).steps) != is_damaged


def test_partitions_are_removed_in_the_order_of_their_marks() -> None:
    state = tier()
    parts = [TopicIdPartition(TOPIC_ID, "orders", n) for n in range(4)]
    for part, metadata_partition in ((parts[3], 1), (parts[2], 1), (parts[1], 0), (parts[0], 0)):
        deletion(state, part, P.DELETE_PARTITION_MARKED, metadata_partition=metadata_partition)
    assert [step.partition for step in plan_removal(state).steps] == [1, 0, 3, 2]


F, BEGUN, CUT_OFF = S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.COPY_SEGMENT_STARTED


@pytest.mark.parametrize(
    ("known", "deleted", "limits", "message"),
    [
        (40, {F: 20}, {}, None),
        (40, {F: 21}, {}, "21 of the 40 finished segments of .*orders-0, more than --max-fraction 0.5"),
        (40, {F: 40}, {"max_fraction": 1.0}, None),
        (40, {F: 1}, {"max_fraction": 0.0}, "1 of the 40 finished segments"),
        (40, {F: 20}, {"max_deletes": 20}, None),
        (40, {F: 20}, {"max_deletes": 19}, "deletes 20 segments, more than --max-deletes 19"),
        # Small partitions are exempt from the share.
        (19, {F: 19}, {}, None),
        (20, {F: 19}, {}, "19 of the 20 finished segments"),
        # Deletions that were begun earlier are no share of the partition: 10 of 20 segments are half.
        (40, {F: 10, BEGUN: 20}, {}, None),
        (40, {F: 11, BEGUN: 20}, {}, "11 of the 20 finished segments"),
        (40, {F: 5, BEGUN: 30}, {"max_fraction": 0.1}, None),
        # The limit protects records that consumers can read: unfinished copies have none.
        (40, {F: 20, CUT_OFF: 30}, {}, None),
        (40, {F: 21, CUT_OFF: 30}, {}, "21 of the 40 finished segments"),
        (1, {F: 10_001}, {"max_fraction": 1.0}, "deletes 10001 segments, more than --max-deletes 10000"),
    ],
)
def test_limits(known: int, deleted: dict[S, int], limits: dict[str, Any], message: str | None) -> None:
    segments = [segment(n, 10 * n, 10 * n + 9) for n in range(known)]
    state = tier(*segments)
    for metadata in segments[known - deleted.get(BEGUN, 0) :]:
        advance(state, metadata, BEGUN)
    steps = tuple(
        delete_step(replace(metadata, state=of), "any")
        for of, count in deleted.items()
        for metadata in islice(cycle(segments), count)
    )
    plan = Plan(command="sweep", steps=steps, read={})
    with nullcontext() if message is None else pytest.raises(LimitExceeded, match=message):
        check_limits(plan, state, **limits)


def test_whole_partitions_count_against_max_deletes_only() -> None:
    state = tier(*(segment(n, 10 * n, 10 * n + 9) for n in range(40)))
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    check_limits(plan_removal(state), state)
    with pytest.raises(LimitExceeded, match="40 segments"):
        check_limits(plan_removal(state), state, max_deletes=39)


@pytest.mark.parametrize(
    ("known", "max_fraction", "is_noted"),
    [(19, 0.1, True), (19, 0.5, False), (19, None, False), (19, 0.0, True), (20, 0.5, False)],
)
def test_a_given_fraction_that_does_not_apply_is_noted(
    known: int, max_fraction: float | None, is_noted: bool
) -> None:
    segments = [segment(n, 10 * n, 10 * n + 9) for n in range(known)]
    steps = tuple(delete_step(replace(each, state=F), "any") for each in segments[:9])
    plan = Plan(command="sweep", steps=steps, read={})
    note = check_limits(plan, tier(*segments), max_fraction=max_fraction)
    assert (note is not None) is is_noted
    if note is not None:
        assert f"--max-fraction {max_fraction:g} does not apply to partitions with fewer than 20" in note
        assert note.endswith("the plan deletes more of orders-0")
