"""Whether each step of a plan is still valid after the metadata has changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tierctl.model import IndexType, TopicConfig
from tierctl.plan.copy import plan_copy
from tierctl.plan.dangling import Dangling
from tierctl.plan.expiry import plan_retention
from tierctl.plan.partition_deletes import DeletionEvidence, plan_mark, plan_removal
from tierctl.plan.recheck import recheck
from tierctl.plan.repair import index_step
from tierctl.plan.steps import FOLLOWS, REBUILD, STATES, VERIFY, Action, Plan, Step, delete_step, segment_step
from tierctl.state.tier_state import TierState

from tests.plan.test_partition_deletes import P, deletion, quarantine
from tests.plan.tier import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    S,
    advance,
    local_log,
    segment,
    segment_id,
    through_json,
    tier,
)
from tests.support.topic_settings import ENABLED

COPIED, GONE = S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_FINISHED
SWEPT = [segment(n, 100 * n, 100 * n + 99, max_timestamp_ms=1) for n in range(3)]


def sweep(state: TierState) -> Plan:
    configs = {"orders": TopicConfig(retention_ms=1)}
    return plan_retention(state, [local_log([300], 310)], configs, now_ms=NOW_MS)


def _copy(state: TierState) -> Plan:
    return plan_copy(state, [local_log([0, 100, 200, 300], 310)], {PARTITION.topic: ENABLED})


def _remove(state: TierState) -> Plan:
    deletion(state, PARTITION, P.DELETE_PARTITION_MARKED)
    return plan_removal(state)


def _mark(state: TierState) -> Plan:
    return plan_mark(state, [TOPIC_ID], DeletionEvidence(overridden=frozenset({TOPIC_ID})))


def _delete(number: int, *more: S) -> Callable[[TierState], None]:
    return lambda state: advance(state, SWEPT[number], S.DELETE_SEGMENT_STARTED, *more)


def _copied(number: int, *states: S) -> Callable[[TierState], None]:
    return lambda state: advance(state, replace(SWEPT[number], segment_id=segment_id(70 + number)), *states)


def _lineage(state: TierState) -> None:
    advance(state, segment(60, 300, 309, (7, 300)), S.COPY_SEGMENT_FINISHED)


def _deleted_partition(*states: P) -> Callable[[TierState], None]:
    return lambda state: deletion(state, PARTITION, *states)


_marked = _deleted_partition(P.DELETE_PARTITION_MARKED)


def _finished(state: TierState) -> None:
    advance(state, SWEPT[0], COPIED)


def _removed(state: TierState) -> None:
    deletion(state, PARTITION, P.DELETE_PARTITION_STARTED)
    for each in SWEPT:
        advance(state, each, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    deletion(state, PARTITION, P.DELETE_PARTITION_FINISHED)


def _nothing(state: TierState) -> None:
    pass


def _plan(command: str, *steps: Step) -> Callable[[TierState], Plan]:
    return lambda state: Plan(command=command, steps=steps, read=dict(state.read))


_FINISH = segment_step(Action.PUBLISH_SEGMENT, SWEPT[0], "finish a copy", {STATES: S.COPY_SEGMENT_FINISHED})
_CHECKPOINTS = replace(_FINISH, action=Action.WRITE_CHECKPOINTS, segment_id=None, end_offset=None, details={})
_INDEXES = index_step(SWEPT[0], [IndexType.OFFSET])
_REPAIR = delete_step(replace(SWEPT[0], state=S.COPY_SEGMENT_FINISHED), "a repair deletes it")


def _publish(state: TierState) -> Plan:
    """Plan to finish the copy of segment 0 and to write the checkpoints of the partition."""
    advance(state, SWEPT[0])
    return _plan(REBUILD, _FINISH, _CHECKPOINTS)(state)


def _all(reason: str) -> dict[int | None, str]:
    return dict.fromkeys(range(3), reason)


INDEXES, REPAIR = _plan(VERIFY, _INDEXES), _plan(VERIFY, _REPAIR)
RECHECKS: dict[str, tuple[Any, ...]] = {
    "nothing happened": (sweep, SWEPT, _nothing, [0, 1, 2], {}),
    "a deletion was begun": (sweep, SWEPT, _delete(0), [0, 1, 2], {}),
    "a deletion was finished": (sweep, SWEPT, _delete(0, GONE), [1, 2], {0: "deleted already"}),
    "another leader wrote": (sweep, SWEPT, _lineage, [], _all("a leader of epoch 7 wrote since")),
    "a bad record came": (sweep, SWEPT, quarantine, [], _all("could not be understood")),
    "the topic was deleted": (sweep, SWEPT, _marked, [], _all("is being deleted")),
    "nothing happened to copies": (_copy, [], _nothing, [0, 1, 2], {}),
    "a segment was copied": (_copy, [], _copied(0, COPIED), [1, 2], {0: "already copied as"}),
    "a copy was begun": (_copy, [], _copied(1), [0], {1: "was started since", 2: "an earlier step"}),
    # Perhaps of the partition that is copied first.
    "a bad record came before copies": (_copy, [], quarantine, [], _all("could not be understood")),
    "a copy failed": (_copy, [], _copied(1, S.DELETE_SEGMENT_STARTED), [0, 1, 2], {}),
    "another leader copied": (_copy, [], _lineage, [], _all("a leader of epoch 7")),
    "nothing happened to the removal": (_remove, SWEPT, _nothing, [None, 0, 1, 2], {}),
    "a copy was finished meanwhile": (_remove, SWEPT, _copied(1, COPIED), [None, 0, 1, 2], {}),
    "one of its segments is gone": (_remove, SWEPT, _delete(1, GONE), [None, 0, 2], {1: "deleted already"}),
    "the partition is gone": (
        *(_remove, SWEPT, _removed, []),
        {None: "the partition is deleted already"} | _all("deleted"),
    ),
    "the deletion was finished with segments left": (
        *(_remove, SWEPT, _deleted_partition(*list(P)[1:]), [None, 0, 1, 2], {}),
    ),
    "a bad record came before the removal": (
        *(_remove, SWEPT, quarantine, []),
        {None: "metadata partition 0"} | _all("metadata partition 0"),
    ),
    "nothing happened to a copy to finish": (_publish, [], _nothing, [0, None], {}),
    "a copy to finish was finished": (_publish, [], _finished, [None], {0: "already COPY_SEGMENT_FINISHED"}),
    "it was withdrawn": (_publish, [], _delete(0, GONE), [None], {0: "the segment was deleted since"}),
    "nothing happened to indexes": (INDEXES, SWEPT, _nothing, [0], {}),
    "their segment is being deleted": (INDEXES, SWEPT, _delete(0), [], {0: "DELETE_SEGMENT_STARTED by now"}),
    "their segment was deleted": (INDEXES, SWEPT, _delete(0, GONE), [], {0: "the segment was deleted since"}),
    "no partition has the indexes": (INDEXES, [], _nothing, [], {0: "was deleted since"}),
    "their partition was marked": (INDEXES, SWEPT, _marked, [], {0: "the partition is being deleted"}),
    "nothing happened to a repair that deletes": (REPAIR, SWEPT, _nothing, [0], {}),
    "the partition of a repair was marked": (REPAIR, SWEPT, _marked, [0], {}),
    "still to be marked": (_mark, SWEPT, _nothing, [None], {}),
    "marked by another program": (_mark, SWEPT, _marked, [], {None: "already DELETE_PARTITION_MARKED"}),
}


def _number(step: Step) -> int | None:
    if step.action is Action.COPY_SEGMENT:
        return (step.start_offset or 0) // 100
    return None if step.segment_id is None else int.from_bytes(step.segment_id.bytes)


@pytest.mark.parametrize("name", RECHECKS)
def test_recheck(name: str) -> None:
    decide, segments, happens, kept, dropped = RECHECKS[name]
    state = tier(*segments)
    plan = through_json(decide(state))
    happens(state)
    checked = recheck(plan, state)
    assert [_number(step) for step in checked.plan.steps] == kept
    assert {_number(d.step): dropped[_number(d.step)] in d.reason for d in checked.dropped} == dict.fromkeys(
        dropped, True
    )
    assert checked.plan.read == state.read


def test_a_dangling_copy_that_was_finished_after_all_stays() -> None:
    state = tier()
    advance(state, segment(1, 0, 99, event_timestamp_ms=1))
    plan = plan_copy(
        state, [local_log([0], 100)], {PARTITION.topic: ENABLED}, dangling=Dangling(now_ms=NOW_MS)
    )
    assert len(plan.steps) == 1
    assert len(recheck(plan, state).plan.steps) == 1
    advance(state, segment(1, 0, 99), S.COPY_SEGMENT_FINISHED)
    [dropped] = recheck(plan, state).dropped
    assert "COPY_SEGMENT_FINISHED now, it was COPY_SEGMENT_STARTED" in dropped.reason


def test_a_copy_begun_before_the_plan_does_not_stop_it() -> None:
    state = tier()
    advance(state, segment(70, 0, 99))
    plan = through_json(_copy(state))
    assert [_number(step) for step in recheck(plan, state).plan.steps] == [0, 1, 2]


def test_a_removal_takes_a_copy_that_was_finished_meanwhile() -> None:
    state = tier()
    advance(state, segment(1, 0, 99))
    plan = _remove(state)
    advance(state, segment(1, 0, 99), S.COPY_SEGMENT_FINISHED)
    assert recheck(plan, state).dropped == ()


def test_of_a_broken_chain_nothing_later_is_kept() -> None:
    """The id of segment 1 has other offsets now, which is impossible; later segments must stay."""
    plan = sweep(tier(*SWEPT))
    other = tier(SWEPT[0], replace(SWEPT[1], end_offset=188), SWEPT[2])
    checked = recheck(plan, other)
    assert [_number(step) for step in checked.plan.steps] == [0]
    assert [d.reason for d in checked.dropped] == [
        "the segment's offsets have changed since this was decided",
        f"segment {SWEPT[1].segment_id}, which must be deleted before it, stays",
    ]


@pytest.mark.parametrize("stays", [0, 1])
def test_behind_a_segment_that_cannot_be_deleted_nothing_is_kept(stays: int) -> None:
    """Neither in this wave nor in a later one, also what does not follow the segment itself."""
    plan, broken = sweep(tier(*SWEPT)), set[Any]()
    first, second, third = plan.steps
    unchained = replace(third, details={**third.details, FOLLOWS: None})
    wave, staying = replace(plan, steps=(first, second, unchained)), {SWEPT[stays].segment_id}
    checked = recheck(wave, tier(*SWEPT), broken, staying)
    assert [_number(step) for step in checked.plan.steps] == list(range(stays + 1))
    assert recheck(replace(plan, steps=(unchained,)), tier(*SWEPT), broken).plan.steps == ()


@pytest.mark.parametrize(
    ("copied", "planned", "log_start", "is_copy"),
    [
        (((0, 0),), ((0, 0),), 0, True),
        # The log start rose between the other copy and the plan, or between the plan and the other copy.
        (((0, 0),), ((0, 0),), 40, True),
        (((0, 40),), ((0, 0),), 0, True),
        (((0, 0), (1, 50)), ((0, 0), (1, 50)), 60, True),
        (((1, 60),), ((0, 0), (1, 50)), 0, True),
        # Copies of another log with the same offsets.
        (((0, 0),), ((0, 0), (1, 50)), 0, False),
        (((0, 0), (1, 40)), ((0, 0), (1, 50)), 0, False),
        (((0, 0),), ((1, 0),), 0, False),
        (((1, 0),), ((0, 0), (1, 100)), 0, False),
    ],
)
def test_a_copy_is_known_again_whatever_the_log_start_was(
    copied: tuple[tuple[int, int], ...], planned: tuple[tuple[int, int], ...], log_start: int, is_copy: bool
) -> None:
    state = tier()
    first = max(0, *(at for at, (_, start) in enumerate(planned) if start <= log_start))
    epochs = [(planned[first][0], log_start), *planned[first + 1 :]]
    log = local_log([0, 100], 110, epochs=epochs, log_start_offset=log_start)
    plan = plan_copy(state, [log], {PARTITION.topic: ENABLED})
    assert len(plan.steps) == 1
    advance(state, segment(70, 0, 99, *copied), S.COPY_SEGMENT_FINISHED)
    dropped = recheck(plan, state).dropped
    assert [found.is_done for found in dropped if "already copied" in found.reason] == [True] * is_copy


@pytest.mark.parametrize(
    ("log_start", "numbers", "left"),
    [(0, (0, 1), [0, 1]), (0, (1, 2), []), (0, (0, 2), [0]), (0, (2, 1, 0), []), (300, (1, 2), [])],
)
def test_steps_that_an_edit_leaves_out_make_no_hole(
    log_start: int, numbers: tuple[int, ...], left: list[int]
) -> None:
    state = tier(*SWEPT)
    log = local_log([300], 310, log_start_offset=log_start)
    plan = plan_retention(state, [log], {"orders": TopicConfig(retention_ms=1)}, now_ms=NOW_MS)
    plan = through_json(plan)
    edited = replace(plan, steps=tuple(plan.steps[number] for number in numbers))
    assert [_number(step) for step in recheck(edited, state).plan.steps] == left


@pytest.mark.parametrize("states", [(S.DELETE_SEGMENT_STARTED,), tuple(S)[2:]], ids=["begun", "deleted"])
def test_a_later_wave_follows_what_an_earlier_one_did(states: tuple[S, ...]) -> None:
    state = tier(*SWEPT)
    plan = through_json(sweep(state))
    advance(state, SWEPT[0], *states)
    later = recheck(replace(plan, steps=plan.steps[1:]), state).plan
    assert [_number(step) for step in later.steps] == [1, 2]


def test_a_step_under_another_topics_name_is_dropped() -> None:
    state = tier(*SWEPT)
    plan = sweep(state)
    other = replace(plan.steps[0], topic="../../payments")
    [first, *_] = recheck(replace(plan, steps=(other, *plan.steps[1:])), state).dropped
    assert first.reason == "the metadata call this topic 'orders'"
    assert not first.is_done
