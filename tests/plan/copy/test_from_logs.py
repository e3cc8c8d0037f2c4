"""The decisions of RLMCopyTask, case by case."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.plan.copy import plan_copy
from tierctl.plan.dangling import WITHDRAWN_REASON, Dangling
from tierctl.plan.steps import Action, Plan
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import metadata_partition

from tests.plan.test_partition_deletes import quarantine
from tests.plan.tier import (
    DAY_MS,
    NOW_MS,
    OTHER_ID,
    PARTITION,
    advance,
    local_log,
    reasons,
    segment,
    segment_id,
    through_json,
    tier,
)
from tests.support.topic_settings import ENABLED


def ranges(plan: Plan) -> list[tuple[int | None, int | None]]:
    return [(s.start_offset, s.end_offset) for s in plan.steps if s.action is Action.COPY_SEGMENT]


CONFIGS = {PARTITION.topic: ENABLED}
BASES = [0, 100, 200, 300]

OPEN_AT = "a transaction is open at the last stable offset"
MARK_AT = "the last stable offset is the high watermark"
COPIED = segment(1, 0, 99)
CASES: dict[str, tuple[dict[str, Any], list[Any], list[int], str]] = {
    # Facts of the log, copied segments, the start offsets of planned ones of 100 offsets, and a reason.
    "all rolled segments": ({}, [], [0, 100, 200], ""),
    "after what is copied": ({}, [COPIED], [100, 200], ""),
    "next base offset at the last stable offset": (
        *({"last_stable_offset": 200}, [], [0, 100]),
        f"1 segment (from offset 200) not copied yet: {OPEN_AT} 200",
    ),
    "next base offset above it": (
        *({"last_stable_offset": 199}, [], [0]),
        f"2 segments (from offset 100) not copied yet: {OPEN_AT} 199",
    ),
    "next base offset above the high watermark": (
        *({"last_stable_offset": 150, "high_watermark": 150}, [], [0]),
        f"2 segments (from offset 100) not copied yet: {MARK_AT} 150",
    ),
    "nothing is stable": (
        *({"last_stable_offset": 0, "high_watermark": 0}, [], []),
        f"3 segments (from offset 0) not copied yet: {MARK_AT} 0",
    ),
    "all stable offsets are copied": (
        *({"last_stable_offset": 200}, [segment(1, 0, 200)], []),
        f"1 segment (from offset 200) not copied yet: {OPEN_AT} 200",
    ),
    "from the log start": ({"log_start_offset": 200}, [], [200], ""),
    "a log start inside a segment": ({"log_start_offset": 150}, [], [100, 200], ""),
    "copied up to inside a segment": ({}, [segment(1, 0, 149)], [100, 200], ""),
    "no producer snapshot": ({"no_snapshot_at": 200}, [], [0], "no producer snapshot at offset 200"),
    "no leader epochs": ({"epochs": ()}, [], [], "leader epochs of segment 0 are not all known"),
    "epochs begin late": ({"epochs": ((3, 150),)}, [], [], "are not all known (the log has 3@150)"),
    "epochs begin inside": ({"epochs": ((3, 50),)}, [], [], "are not all known (the log has 3@50)"),
    "epochs go back": ({"epochs": ((0, 0), (3, 50), (1, 80))}, [], [], "(the log has 0@0, 3@50, 1@80)"),
    "the epoch that began below the log start is known from there": (
        *({"epochs": ((3, 150),), "log_start_offset": 150}, [], [100, 200], ""),
    ),
    "local segments that begin above the tier: brokers delete the records before a hole": (
        *({"bases": [200, 300]}, [COPIED], [], "offsets 100 to 199 are neither in the tier nor in the log"),
    ),
    "larger than metadata can say": ({"sizes": [1, 1 << 31, 1, 1]}, [], [0], "2147483648 bytes"),
    "the log is behind the tier": (
        *({"epochs": ((0, 0), (2, 120))}, [COPIED, segment(2, 100, 199, (3, 100))], []),
        "the log is behind: its latest leader epoch is 2, the tier knows epoch 3",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_which_segments_are_copied(case: str) -> None:
    log, copied, starts, reason = CASES[case]
    facts = {"bases": BASES, "log_end_offset": 350} | log
    plan = plan_copy(tier(*copied), [local_log(**facts)], CONFIGS)
    assert ranges(plan) == [(start, start + 99) for start in starts]
    assert reason in reasons(plan)
    assert bool(reason) == bool(plan.skipped)


def test_a_log_that_lost_its_beginning_is_copied_from_where_it_begins() -> None:
    """The tier is empty, so brokers delete nothing that lies before the first copy."""
    log = local_log([200, 300], 350, log_start_offset=100)
    assert ranges(plan_copy(TierState(), [log], CONFIGS)) == [(200, 299)]
    begun = tier()
    advance(begun, segment(1, 100, 199))
    assert ranges(plan_copy(begun, [log], CONFIGS)) == []


def test_a_hole_between_local_segments_ends_the_copy() -> None:
    log = local_log(BASES, 350)
    torn = (log.segments[0], replace(log.segments[1], next_base_offset=150), *log.segments[2:])
    plan = plan_copy(TierState(), [replace(log, segments=torn)], CONFIGS)
    assert ranges(plan) == [(0, 99)]
    assert "the log has a hole between 150 and 200" in reasons(plan)


def test_a_new_leader_copies_the_segment_across_the_divergence_whole() -> None:
    """Offsets above 150 copied in epoch 0 are not in the lineage, so copying resumes inside [100, 199]."""
    state = tier(segment(1, 0, 99), segment(2, 100, 199), segment(3, 200, 299, (0, 200), (2, 250)))
    plan = plan_copy(state, [local_log(BASES, 350, epochs=((0, 0), (4, 150)))], CONFIGS)
    assert ranges(plan) == [(100, 199), (200, 299)]
    first, second = plan.steps
    assert first.details["segment_leader_epochs"] == [[0, 100], [4, 150]]
    assert first.details["leader_epoch_checkpoint"] == [[0, 0], [4, 150]]
    assert second.details["segment_leader_epochs"] == [[4, 200]]


def test_epochs_that_begin_at_the_next_base_offset_belong_to_the_next_segment() -> None:
    epochs = [[0, 0], [1, 100], [2, 130], [5, 200]]
    plan = plan_copy(TierState(), [local_log(BASES, 350, epochs=[(e, at) for e, at in epochs])], CONFIGS)
    assert [s.details["segment_leader_epochs"] for s in plan.steps] == [epochs[:1], epochs[1:3], epochs[3:]]
    assert [s.details["leader_epoch_checkpoint"] for s in plan.steps] == [epochs[:1], epochs[:3], epochs]


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        ({"epochs": ((0, 0),)}, {"epochs": ((0, 0), (2, 300))}, "/logs/b2"),
        ({"epochs": ((0, 0), (2, 300)), "end": 320}, {"epochs": ((0, 0),), "end": 900}, "/logs/b1"),
        ({"end": 350}, {"end": 360}, "/logs/b2"),
        ({"end": 360}, {"end": 350}, "/logs/b1"),
    ],
)
def test_of_two_replicas_the_newest_is_copied(
    one: dict[str, Any], other: dict[str, Any], winner: str
) -> None:
    logs = [
        local_log(BASES, facts.pop("end", 350), directory=directory, **facts)
        for facts, directory in ((dict(one), "/logs/b1"), (dict(other), "/logs/b2"))
    ]
    for order in (logs, logs[::-1]):
        plan = plan_copy(TierState(), order, CONFIGS)
        assert {str(Path(step.details["log"]).parents[1]) for step in plan.steps} == {winner}


def test_two_topics_of_one_name_are_told_apart_by_nobody() -> None:
    other = local_log(BASES, 350, partition=TopicIdPartition(OTHER_ID, "orders", 0), directory="/logs/b2")
    plan = plan_copy(TierState(), [local_log(BASES, 350), other], CONFIGS)
    assert plan.steps == ()
    assert "2 topics of this name" in reasons(plan)


def test_metadata_that_are_not_understood_decide_nothing() -> None:
    state = tier(segment(1, 0, 99))
    quarantine(state)
    plan = plan_copy(state, [local_log(BASES, 350)], CONFIGS)
    assert plan.steps == ()
    assert "could not be understood" in reasons(plan)


@pytest.mark.parametrize(
    ("read", "bad", "copies"),
    [
        ({0: 9, 1: 9, 2: 9}, 1, False),
        ({0: 9, 1: 9, 2: 9}, 2, True),
        ({0: 9, 1: 9, 2: 9}, None, True),
        # The number of metadata partitions is unknown, so any of them may have this partition's events.
        ({0: 9, 2: 9}, 1, False),
    ],
)
def test_a_partition_no_understood_record_speaks_of(
    read: dict[int, int], bad: int | None, copies: bool
) -> None:
    """Kafka's partitioner puts partition 0 of the topic into metadata partition 1 of 3."""
    assert metadata_partition(PARTITION.topic_id, 0, 3) == 1
    state = TierState(read=read)
    if bad is not None:
        quarantine(state, bad)
    plan = plan_copy(state, [local_log(BASES, 350)], CONFIGS)
    assert bool(plan.steps) == copies
    assert ("could not be understood" in reasons(plan)) != copies


def test_copies_begun_before_are_named() -> None:
    state = tier(segment(1, 0, 99))
    advance(state, segment(2, 100, 199))
    first, second = plan_copy(state, [local_log(BASES, 350)], CONFIGS).steps
    assert first.details["begun_copies"] == [segment_id(2)]
    assert second.details["begun_copies"] == []


@pytest.mark.parametrize(
    ("age_ms", "alive", "reason"),
    [
        (DAY_MS + 1, (), None),
        (DAY_MS, (), "may still be running"),
        (-1, (), "may still be running"),
        (DAY_MS + 1, (7, 1), "started by broker 1, which is alive"),
    ],
)
def test_dangling_copies_are_cleaned_when_old_and_orphaned(
    age_ms: int, alive: tuple[int, ...], reason: str | None
) -> None:
    state = tier(segment(1, 0, 99, event_timestamp_ms=1), segment(2, 100, 199, event_timestamp_ms=1))
    advance(state, segment(3, 100, 199, event_timestamp_ms=NOW_MS - age_ms))
    logs = [local_log([0, 100, 200], 250)]
    assert plan_copy(state, logs, CONFIGS).steps == ()
    dangling = Dangling(now_ms=NOW_MS, alive=alive)
    plan = plan_copy(state, logs, CONFIGS, dangling=dangling)
    if reason is None:
        [step] = plan.steps
        assert (step.action, step.segment_id) == (Action.DELETE_SEGMENT, segment_id(3))
        assert step.reason == "dangling copy"
    else:
        assert plan.steps == ()
        assert reason in reasons(plan)


@pytest.mark.parametrize(
    ("begun", "bases", "is_withdrawn"),
    [
        ({"broker_id": -1}, [0, 100, 200], True),
        ({"broker_id": 1}, [0, 100, 200], False),
        # The log lost the offsets, but a finished segment has them.
        ({"broker_id": -1}, [200, 300], True),
        # As a rebuild that was killed leaves a segment: its objects may be the only ones.
        ({"broker_id": -1, "end": 299}, [300, 400], False),
        ({"broker_id": -1, "end": 249}, [250, 300], False),
    ],
)
def test_copies_of_ended_runs_are_withdrawn(
    begun: dict[str, int], bases: list[int], is_withdrawn: bool
) -> None:
    state = tier(segment(1, 0, 99), segment(2, 100, 199))
    end = begun.pop("end", 199)
    advance(state, replace(segment(3, 100, end, event_timestamp_ms=NOW_MS), **begun))
    logs = [local_log(bases, bases[-1] + 50)]
    deleted = [s for s in plan_copy(state, logs, CONFIGS, ended_writer=-1).steps if s.segment_id]
    assert [(s.segment_id, s.reason) for s in deleted] == [(segment_id(3), WITHDRAWN_REASON)] * is_withdrawn
    assert not [s for s in plan_copy(state, logs, CONFIGS).steps if s.segment_id]


@pytest.mark.parametrize(
    ("begun", "bases", "log_start", "is_deleted"),
    [
        (segment(3, 100, 299), [100, 300], 0, True),
        (segment(3, 100, 299), [200, 300], 0, True),  # finished up to 199, and local from 200 on
        (segment(3, 100, 299), [250, 300], 0, False),
        (segment(3, 200, 299), [300, 400], 0, False),
        (segment(3, 200, 299), [300, 400], 300, True),
        (segment(3, 200, 299), [300, 400], 250, False),
        (segment(3, 300, 399), [200, 300], 0, False),  # the log ends at 350
        (segment(3, 0, 99), [300, 400], 0, True),
        # The finished segment 2 of another lineage has the offsets, but no reader of this log finds it.
        (segment(3, 100, 199, (1, 100)), [200, 300], 0, False),
    ],
)
def test_a_dangling_copy_that_may_be_the_only_one_is_left(
    begun: RemoteLogSegmentMetadata, bases: list[int], log_start: int, is_deleted: bool
) -> None:
    state = tier(segment(1, 0, 99), segment(2, 100, 199))
    advance(state, replace(begun, event_timestamp_ms=NOW_MS - 2 * DAY_MS))
    epochs = ((0, 0), (1, 100)) if begun.segment_leader_epochs[0][0] else ((0, 0),)
    log = local_log(bases, bases[-1] + 50, log_start_offset=log_start, epochs=epochs)
    plan = plan_copy(state, [log], CONFIGS, dangling=Dangling(now_ms=NOW_MS))
    assert [s.segment_id for s in plan.steps if s.segment_id] == [begun.segment_id] * is_deleted
    assert ("verify --plan-out" in reasons(plan)) == (not is_deleted)


def test_details_carry_what_a_started_event_says() -> None:
    log = replace(local_log([0, 100], 150), leader_epochs=(EpochEntry(0, 0), EpochEntry(1, 60)))
    [step] = plan_copy(TierState(), [log], CONFIGS).steps
    assert through_json(plan_copy(TierState(), [log], CONFIGS)).steps == (step,)
    assert dict(step.details) == {
        "lineage_epoch": 1,
        "max_timestamp_ms": NOW_MS,
        "written_ms": NOW_MS,
        "segment_size_in_bytes": 100,
        "segment_leader_epochs": [[0, 0], [1, 60]],
        "leader_epoch_checkpoint": [[0, 0], [1, 60]],
        "txn_index_empty": True,
        "log": "/logs/b1/orders-0/00000000000000000000.log",
        "begun_copies": [],
    }
