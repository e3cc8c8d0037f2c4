"""The log start: what files state, whether a broker raised it, what is refused; events since the plan."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.commands.restore.inventory import DecidingLogs, inputs_of, problems_of
from tierctl.commands.restore.to_metadata import plan_rebuild
from tierctl.model import LocalLog, LogEnd, ObjectSet, RemoteLogSegmentState
from tierctl.model.local import LARGEST_OFFSET
from tierctl.plan.partition_choice import (
    AskedLogStart,
    PartitionDecision,
    PartitionInputs,
    decide_partition,
    why_refused,
)
from tierctl.plan.reasons import is_not_understood
from tierctl.plan.recheck import recheck
from tierctl.plan.steps import Action
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState

from tests.plan.rebuild.sets import PARTITION, object_set
from tests.plan.tier import local_log

LOG = ((0, 0), (2, 150), (4, 300))
FIVE = [object_set(n + 1, 100 * n, 100 * n + 99, LOG) for n in range(5)]
TIER, DISK = AskedLogStart.parse("tier"), AskedLogStart.parse("disk")


def disk(log_start: int, local_start: int, *epochs: tuple[int, int], end: int = 500) -> LocalLog:
    """Return the log of a replica, of which one segment is local."""
    return local_log([local_start], end, epochs=epochs, log_start_offset=log_start, partition=PARTITION)


def decided(
    sets: list[ObjectSet], log: LocalLog | None, asked: AskedLogStart | None = None
) -> PartitionDecision:
    return decide_partition(PartitionInputs(partition=PARTITION, sets=sets, leader=log), asked)


def starts(decision: PartitionDecision) -> list[int]:
    return [segment.start_offset for segment in decision.choice.chain]


CASES: dict[str, tuple[list[ObjectSet], LocalLog | None, list[int], str | None]] = {
    "undamaged": (FIVE, disk(0, 400, *LOG), [0, 100, 200, 300, 400], None),
    "log start within a segment": (FIVE, disk(250, 400, (2, 250), (4, 300)), [200, 300, 400], None),
    "raised to the local start": (FIVE, disk(400, 400, (4, 400)), [], "complete segments from 0 on"),
    "raised within a segment of another replica": (FIVE, disk(450, 450, (4, 450)), [], "from 0 on"),
    "raised within a segment, and copied from there by another replica": (
        [*FIVE, object_set(6, 250, 349, LOG)],
        disk(250, 400, (2, 250), (4, 300)),
        [],
        "from 0 on",
    ),
    "raised to a known segment": (FIVE, disk(200, 400, (2, 200), (4, 300)), [], "from 0 on"),
    "nothing below": (FIVE[2:], disk(200, 400, (2, 200), (4, 300)), [200, 300, 400], None),
    "a gap below": ([FIVE[0], *FIVE[2:]], disk(200, 400, (2, 200), (4, 300)), [200, 300, 400], None),
    "a gap above": (FIVE[:3], disk(0, 400, *LOG), [], "a gap: the tier ends at offset 299"),
    "only newer segments": (FIVE[2:], disk(0, 100, *LOG), [], "deletes its records below them"),
    "lost in the middle": ([*FIVE[:2], *FIVE[3:]], disk(0, 400, *LOG), [300, 400], None),
    "lost and local": ([*FIVE[:2], *FIVE[3:]], disk(0, 200, *LOG), [0, 100], None),
    "behind": (FIVE, disk(0, 100, *LOG[:2]), [], "the log is behind: its latest leader epoch is 2"),
    "only the epochs cut, at the local start": (
        FIVE,
        disk(0, 400, (4, 400)),
        [],
        "is 0, but the leader epochs begin at 400",
    ),
    "only the epochs cut, within a segment": (FIVE, disk(0, 450, (4, 450)), [], "segments from 0 on"),
    "epochs cut higher than the log start": (
        FIVE,
        disk(100, 450, (2, 250), (4, 300)),
        [],
        "is 100, but the leader epochs begin",
    ),
    "epochs cut, nothing below": (FIVE[2:], disk(0, 400, (2, 200), (4, 300)), [200, 300, 400], None),
    "an empty log directory": (FIVE, disk(0, 0, *LOG, end=0), [], "and the local log ends at 0"),
    "the local log ends within the tier": (FIVE, disk(0, 400, *LOG, end=499), [], "ends at 499"),
    "the local log ends with the tier": (FIVE, disk(0, 500, *LOG), [0, 100, 200, 300, 400], None),
    "no brokers": (FIVE, None, [0, 100, 200, 300, 400], None),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    sets, log, chain, refused = CASES[case]
    decision = decided(sets, log)
    if refused is None:
        assert (decision.refused, starts(decision)) == (None, chain)
    else:
        assert refused in (decision.refused or "")


RAISED = disk(400, 400, (4, 400), (6, 450))
LATER = object_set(9, 400, 499, ((4, 400), (6, 450)), log_start=400)


@pytest.mark.parametrize(
    ("asked", "start", "chain"),
    [("tier", 0, [0, 100, 200, 300, 400]), ("disk", 400, [400]), ("150", 150, [100, 200, 300, 400]),
     ("0", 0, [0, 100, 200, 300, 400]), ("400", 400, [400])],
)  # fmt: skip
def test_what_is_asked_for_decides(asked: str, start: int, chain: list[int]) -> None:
    sets = [*FIVE[:4], LATER]
    assert decided(sets, RAISED).is_damaged
    decision = decided(sets, RAISED, AskedLogStart.parse(asked))
    assert (decision.refused, decision.start_offset, starts(decision)) == (None, start, chain)
    assert decision.lineage.entries == ((0, 0), (2, 150), (4, 300), (6, 450))


IMPOSSIBLE: dict[str, tuple[list[ObjectSet], LocalLog | None, str]] = {
    "above the log start": ([*FIVE[:4], LATER], RAISED, "--log-start 401 .* from 0 to 400, .* start is 400"),
    "below the tier": ([*FIVE[1:4], LATER], RAISED, "--log-start 99 .* from 100 to 400, .* begin at 100"),
    "undamaged": (FIVE, disk(250, 400, (2, 250), (4, 300)), "--log-start 150 .* is 250, .* it stays"),
    "no brokers": (FIVE, None, "--log-start 150 .* is 0, .* it stays"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_offset_at_which_a_log_cannot_start_is_refused(case: str) -> None:
    sets, log, expected = IMPOSSIBLE[case]
    asked = AskedLogStart.parse(expected.split()[1])
    decision = decided(sets, log, asked)
    assert re.search(expected, decision.refused or "")
    assert (starts(decision), decision.choice.discarded) == ([], ())
    at_the_log_start = AskedLogStart(decision.log_start.offset)
    assert decided(sets, log, at_the_log_start).refused is None


def test_the_tier_remembers_a_log_start_that_was_raised_lawfully_before() -> None:
    """DeleteRecords to 130, then a copy from 300 on, whose objects state the log start, then the damage."""
    sets = [*FIVE[1:3], object_set(4, 300, 399, LOG, log_start=130), LATER]
    assert decided(sets, RAISED, TIER).start_offset == 130
    assert decided(sets, RAISED, DISK).start_offset == 400
    without_brokers = [*FIVE[1:3], object_set(4, 300, 399, LOG, log_start=130)]
    assert decided(without_brokers, None).start_offset == 130


def test_the_first_segment_was_copied_after_the_log_start_was_raised_within_it() -> None:
    """Brokers cut its leader epochs at the log start; the segment keeps its start offset."""
    cut = ((0, 50), (2, 150), (4, 300))
    sets = [object_set(n + 1, 100 * n, 100 * n + 99, cut) for n in range(5)]
    for log in (None, disk(50, 400, *cut)):
        found = decided(sets, log)
        assert (found.refused, found.start_offset, starts(found)) == (None, 50, [0, 100, 200, 300, 400])
        assert found.choice.chain[0].segment_leader_epochs == ((0, 50),)


def test_a_former_leader_may_have_the_only_copy_of_the_first_records() -> None:
    """A later leader diverged within its segment, and retention removed everything below the segment."""
    epochs = ((0, 0), (1, 50))
    loser = object_set(1, 40, 99, epochs[:1])
    sets = [loser, object_set(2, 50, 79, epochs), object_set(3, 80, 120, epochs)]
    found = decided(sets, None)
    assert (starts(found), found.choice.discarded) == ([50, 80], ())
    assert "no other set and no given log has offset 40" in (why_refused(found, after_hole=False) or "")
    assert why_refused(found, after_hole=True) is None
    (problem,) = problems_of(PARTITION, found, has_log=False)
    assert f"segment {loser.listed.segment_id} is not read" in str(problem)
    logged = decided(sets, disk(40, 110, (0, 40), (1, 50), end=130))
    assert "1 segment (offsets 40 to 99) has epochs that they lack" in (logged.refused or "")


def test_leader_epochs_that_begin_within_a_segment_above_others_are_not_understood() -> None:
    """The log has epochs down to the segment's start, so those of the segment lost entries."""
    second = object_set(2, 100, 199, ((0, 120), (2, 150), (4, 300)))
    found = decided([FIVE[0], second, *FIVE[2:]], None)
    assert "its leader epochs do not reach down to offset 100" in (found.refused or "")
    assert found.choice.discarded == ()


@pytest.mark.parametrize("end", [350, 399, 400, 450])
@pytest.mark.parametrize("kind", ["whole", "not understood", "cut"])
def test_a_set_that_begins_below_others_may_have_the_end_of_the_log(kind: str, end: int) -> None:
    """Another leader, which had rolled elsewhere, copied it: a restored log would go on below its end."""
    last = object_set(9, 250, end, ((2, 280), (4, 300)))
    if kind == "not understood":
        named = {"segment": None, "why_not_understood": "it has no .index"}
        last = replace(last, **named, log_end=LogEnd(offset=end))
    elif kind == "cut":
        last = replace(last, segment=None, why_incomplete="its index goes on", stated_end_offset=end)
    found = decided([*FIVE[:4], last], None)
    assert (starts(found), found.choice.next_offset) == ([0, 100, 200, 300], 400)
    reason = why_refused(found, after_hole=kind != "cut")
    assert (reason is None) == (end < 400)
    assert reason is None or str(last.listed.segment_id) in reason
    assert kind != "cut" or why_refused(found, after_hole=True) is None


@pytest.mark.parametrize(("start", "is_above"), [(250, False), (400, False), (500, True), (600, True)])
def test_an_incomplete_set_above_all_others_may_have_records_that_they_lack(
    start: int, is_above: bool
) -> None:
    """One that begins with the last segment, or below it, is usually a copy of its records that failed."""
    found = decided([*FIVE, object_set(9, start, 0, LOG, half=True)], None)
    reason = why_refused(found, after_hole=False) or ""
    assert (found.choice.next_offset, "goes on at 500" in reason) == (500, is_above)
    assert not is_not_understood(reason)
    assert why_refused(found, after_hole=True) is None


def test_a_copy_of_which_no_end_is_known_may_be_one_that_failed() -> None:
    failed = replace(
        object_set(9, 250, 0, LOG, half=True),
        why_incomplete=None,
        why_not_understood="it has no .rsm-manifest",
        log_end=LogEnd(offset=LARGEST_OFFSET),
    )
    assert why_refused(decided([*FIVE, failed], None), after_hole=False) is None


def test_a_set_that_is_being_deleted_serves_nothing() -> None:
    known = {FIVE[4].listed.segment_id: RemoteLogSegmentState.DELETE_SEGMENT_STARTED}
    inputs = PartitionInputs(partition=PARTITION, sets=FIVE, known=known, leader=disk(0, 400, *LOG))
    decision = decide_partition(inputs)
    assert starts(decision) == [0, 100, 200, 300]


def test_without_the_log_that_decides_nothing_is_decided() -> None:
    """On a cluster without a leader the tier alone must not decide, although it does without brokers."""
    inputs = PartitionInputs(partition=PARTITION, sets=FIVE, why_no_log="it has no leader now")
    found = plan_rebuild(TierState(), [inputs], TIER)
    assert found.plan.steps == ()
    assert [each.reason for each in found.refused] == ["it has no leader now"]
    assert "no leader" in found.plan.skipped[0].reason


@pytest.mark.parametrize("log", [disk(400, 400, (4, 400)), disk(0, 0, (4, 400)), disk(400, 400, *LOG)])
def test_both_files_are_put_back_whichever_of_them_is_damaged(log: LocalLog) -> None:
    inputs = PartitionInputs(partition=PARTITION, sets=FIVE, leader=log, replicas=[log])
    (step,) = [
        step
        for step in plan_rebuild(TierState(), [inputs], TIER).plan.steps
        if step.action is Action.WRITE_CHECKPOINTS
    ]
    assert step.start_offset == 0
    assert step.details["leader_epoch_checkpoint"] == [list(pair) for pair in LOG]
    assert "400 offsets between that DeleteRecords removed before are served again" in step.reason


@pytest.mark.parametrize("is_doubtful", [True, False], ids=["epochs restored", "epochs cut"])
def test_a_follower_that_was_cut_below_its_local_log(is_doubtful: bool) -> None:
    """UnifiedLog.truncateTo starts its log there: within a segment, and above the other replica's start."""
    cut = replace(disk(250, 400, (2, 250), (4, 300)), is_log_start_doubtful=is_doubtful)
    for others in ([], [disk(0, 400, *LOG)]):
        replicas = [cut, *others]
        inputs = PartitionInputs(partition=PARTITION, sets=FIVE, leader=cut, replicas=replicas)
        if not is_doubtful and not others:
            assert starts(decide_partition(inputs)) == [200, 300, 400]
            continue
        refused = decide_partition(inputs).refused or ""
        assert "the log start is 250, and complete segments from 0 on, which join it" in refused
        plan = plan_rebuild(TierState(), [inputs], TIER).plan
        published = [s.start_offset for s in plan.steps if s.action is Action.PUBLISH_SEGMENT]
        assert published == [0, 100, 200, 300, 400]
        (step,) = (s for s in plan.steps if s.action is Action.WRITE_CHECKPOINTS)
        assert step.details["leader_epoch_checkpoint"] == [list(pair) for pair in LOG]


def test_a_replica_that_was_away_does_not_disagree() -> None:
    away, cut = disk(0, 100, (0, 0), end=240), disk(250, 400, (2, 250), (4, 300))
    inputs = PartitionInputs(partition=PARTITION, sets=FIVE, leader=cut, replicas=[away, cut])
    assert starts(decide_partition(inputs)) == [200, 300, 400]


@pytest.mark.parametrize("raised_on", ["a", "b"])
def test_every_replica_tells_the_log_start_to_every_target(raised_on: str) -> None:
    """A leader deletes what is published below its log start: the highest start of a replica counts."""
    starts_of = {"a": disk(0, 400, *LOG), "b": disk(0, 400, *LOG)}
    starts_of[raised_on] = disk(250, 400, (2, 250), (4, 300))
    logs = [replace(each, directory=Path(f"/{name}/orders-3")) for name, each in starts_of.items()]
    decision = decide_partition(inputs_of(PARTITION, FIVE, logs=DecidingLogs.newest([PARTITION], logs)))
    assert decision.log_start.offset == 250


NO_LOG = ((0, 0),)
TWO_SETS = [object_set(1, 0, 99, NO_LOG), object_set(2, 100, 299, NO_LOG)]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_copy_that_another_writer_began_is_not_discarded(is_started: bool) -> None:
    state = TierState()
    state.read[0] = 0
    sets = [*TWO_SETS, object_set(3, 200, 0, NO_LOG, half=True)]
    plan = plan_rebuild(state, [PartitionInputs(partition=PARTITION, sets=sets)]).plan
    assert [step.action for step in plan.steps][-1] is Action.DISCARD_SEGMENT
    copied = object_set(3, 200, 299, NO_LOG).segment
    assert copied is not None
    if is_started:
        fold_event(replace(copied, broker_id=2), state, metadata_partition=0, metadata_offset=0)
    checked = recheck(plan, state)
    kept = [step.action for step in checked.plan.steps]
    assert kept == [Action.PUBLISH_SEGMENT] * 2 + [Action.DISCARD_SEGMENT] * (not is_started)
    assert [dropped.is_done for dropped in checked.dropped] == [False] * is_started
