"""What a sweep is not certain of: its clock, copies that may still run, and epochs of no leader."""

from dataclasses import replace
from typing import Any

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.model import RemoteLogSegmentMetadata, Selection, TopicConfig, TopicPartition
from tierctl.plan.expiry import plan_retention
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.steps import check_not_ahead

from tests.plan.retention.test_sweep import numbers, sweep
from tests.plan.tier import DAY_MS, NOW_MS, S, advance, local_log, segment, segment_id, tier

YOUNG_MS = NOW_MS - DAY_MS
RECOPIED = segment(2, 0, 99)
EPOCHS = ((0, 0), (2, 150), (4, 300))
CUT_AT_200 = ((2, 200), (4, 300))
CUT_LOG = local_log([400], 450, epochs=CUT_AT_200, log_start_offset=200)


@pytest.mark.parametrize(
    ("broker_id", "gone"), [(7, ", once broker 7 is gone, and sweep"), (-1, ", and sweep")]
)
def test_an_unfinished_copy_at_which_brokers_stop_says_what_deletes_it(broker_id: int, gone: str) -> None:
    """copy --clean-dangling keeps the copies of brokers that are alive (`Dangling`)."""
    state = tier()
    advance(state, replace(segment(1, 0, 99), broker_id=broker_id))
    old = segment(2, 100, 199, max_timestamp_ms=NOW_MS - 2 * DAY_MS)
    advance(state, old, S.COPY_SEGMENT_FINISHED)
    log, config = local_log([200], 250), {"orders": TopicConfig(retention_ms=DAY_MS)}
    plan = plan_retention(state, [log], config, now_ms=NOW_MS, explained=Selection())
    (note,) = (skip.reason for skip in plan.skipped)
    assert f"copy --clean-dangling deletes it 24 hours after it began{gone} once it lies below" in note
    (kept,) = (each.reason for each in plan.kept if each.reason.kind is ReasonKind.COPY_STARTED)
    assert broker_id < 0 or gone in kept


@pytest.mark.parametrize(
    ("begun_ms", "later", "log", "options", "wanted"),
    [
        # The segment was copied again: of a removed epoch, of the first epoch, and above the log start.
        (YOUNG_MS, RECOPIED, (200, CUT_AT_200), {}, {1, 2}),
        (YOUNG_MS, RECOPIED, (120, ((0, 120), *EPOCHS[1:])), {}, {1, 2}),
        (YOUNG_MS, RECOPIED, (99, ((0, 99), *EPOCHS[1:])), {}, set()),
        # The log start passed the segment before it was copied again, and a later epoch was copied since.
        (YOUNG_MS, segment(2, 200, 299, (2, 200)), (200, CUT_AT_200), {}, {1}),
        # A later copy that ends below the segment may be older, or from another leader.
        (YOUNG_MS, segment(2, 0, 98), (200, CUT_AT_200), {}, {2}),
        # No later copy finished: the segment is deleted after 24 hours.
        (YOUNG_MS, None, (200, CUT_AT_200), {}, set()),
        (YOUNG_MS - 1, None, (200, CUT_AT_200), {}, {1}),
        # An event without a time has no age.
        (0, None, (200, CUT_AT_200), {}, set()),
        # Segments above the log start are deleted only with the option, as for finished segments, and only
        # if the local log has the records of its own epochs there.
        (YOUNG_MS, RECOPIED, (50, ((2, 50), (4, 300))), {}, set()),
        (YOUNG_MS, RECOPIED, (50, ((2, 50), (4, 300))), {"unreferenced_epochs": True}, {1, 2}),
    ],
)
def test_copies_that_were_cut_off(
    begun_ms: int, later: Any, log: tuple[int, Any], options: dict[str, bool], wanted: set[int]
) -> None:
    state = tier()
    advance(state, segment(1, 0, 99, event_timestamp_ms=begun_ms))
    if later is not None:
        advance(state, later, S.COPY_SEGMENT_FINISHED)
    log_start, epochs = log
    logs = [local_log([50 if options else 400], 450, epochs=epochs, log_start_offset=log_start)]
    plan = plan_retention(state, logs, {}, now_ms=NOW_MS, explained=Selection(), **options)
    assert set(numbers(plan)) == wanted
    # sweep and explain print the same reason for a copy that may still run.
    said = {skip.segment_id: skip.reason for skip in plan.skipped if skip.segment_id}
    kept = {k.segment_id: k.reason for k in plan.kept if k.reason.kind is ReasonKind.COPY_MAY_RUN}
    assert said == kept
    assert bool(said) == (1 not in wanted and log_start > 99)


def test_a_later_copy_is_no_evidence_for_a_write_of_tierctl_whose_outcome_is_unknown() -> None:
    for begun_ms, wanted in ((YOUNG_MS, [2]), (YOUNG_MS - 1, [1, 2])):
        state = tier()
        advance(state, replace(segment(1, 0, 99, event_timestamp_ms=begun_ms), broker_id=-1))
        advance(state, RECOPIED, S.COPY_SEGMENT_FINISHED)
        plan = plan_retention(state, [CUT_LOG], {}, now_ms=NOW_MS)
        assert sorted(numbers(plan)) == wanted
        said = [str(skip.reason) for skip in plan.skipped if skip.segment_id]
        assert ["by tierctl" in text and "a later copy" not in text for text in said] == [True] * len(said)
        assert bool(said) == (wanted == [2])


def test_evidence_outlives_the_deletion_of_the_later_copy() -> None:
    state = tier()
    advance(state, segment(1, 0, 99))
    advance(state, RECOPIED, S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    plan = plan_retention(state, [CUT_LOG], {}, now_ms=NOW_MS)
    assert numbers(plan) == [1]
    assert plan.steps[0].reason.startswith("unfinished copy of unreferenced epochs")


def test_a_copy_that_began_after_every_other_one_may_run() -> None:
    state = tier(RECOPIED)
    advance(state, segment(1, 0, 99))
    plan = plan_retention(state, [CUT_LOG], {}, now_ms=NOW_MS)
    assert numbers(plan) == [2]


@pytest.mark.parametrize(
    ("config", "copy_ms", "copy_size", "wanted"),
    [
        # The copy is younger than retention.ms, or larger than the excess: brokers stop at it.
        (TopicConfig(retention_ms=DAY_MS), YOUNG_MS, 100, []),
        (TopicConfig(retention_bytes=300), YOUNG_MS, 101, []),
        # It breaches the limit: brokers delete it first; a sweep once the log start is above it.
        (TopicConfig(retention_ms=DAY_MS), YOUNG_MS - 1, 100, [2, 1]),
        (TopicConfig(retention_bytes=300), YOUNG_MS, 100, [2, 1]),
    ],
)
def test_a_sweep_stops_where_brokers_stop_at_an_unfinished_copy(
    config: TopicConfig, copy_ms: int, copy_size: int, wanted: list[int]
) -> None:
    """A leader abandoned its copy, and the next one rolled its segments at other offsets."""
    state = tier()
    advance(state, segment(1, 0, 99, max_timestamp_ms=copy_ms, size=copy_size))
    for number, start in ((2, 50), (3, 150), (4, 250)):
        finished = segment(number, start, start + 99, max_timestamp_ms=YOUNG_MS - (number == 2))
        advance(state, finished, S.COPY_SEGMENT_FINISHED)
    log = local_log([350], 360)
    plan = plan_retention(state, [log], {"orders": config}, now_ms=NOW_MS, explained=Selection())
    assert numbers(plan) == wanted
    notes = [str(skip.reason) for skip in plan.skipped if "unfinished copy" in skip.reason]
    assert bool(notes) == (wanted == [])
    held = {kept.start_offset: kept.reason.facts.get("held_by") for kept in plan.kept}
    assert (held.get(50) == segment_id(1)) == (wanted == [])


def test_an_unfinished_copy_that_brokers_delete_now_holds_no_segment() -> None:
    """The excess of 100 bytes has the copy of 60, which is younger than the segment that stays."""
    state = tier()
    advance(state, segment(1, 0, 99, size=60))
    for number, size in ((2, 60), (3, 100)):
        later = segment(number, 100 * number - 200, 100 * number - 101, size=size, max_timestamp_ms=YOUNG_MS)
        advance(state, later, S.COPY_SEGMENT_FINISHED)
    config = TopicConfig(retention_ms=2 * DAY_MS, retention_bytes=60)
    plan = sweep(state, config, logs=[local_log([200], 200, sizes=[0])], explained=Selection())
    assert numbers(plan) == [2, 1]
    (kept,) = plan.kept
    assert (kept.reason.facts["held_by"], kept.due_ms) == (None, YOUNG_MS + 2 * DAY_MS + 1)


SECOND_MS = 1000
SKEW_MS = 300 * SECOND_MS
EVENT_MS = NOW_MS - DAY_MS
LOG = local_log([100], 150)


def test_a_time_more_than_the_skew_ahead_is_refused() -> None:
    """tests/apply/test_apply.py has the plans of such a time, which are not carried out."""
    check_not_ahead(NOW_MS - 10 * DAY_MS, clock_ms=NOW_MS)
    check_not_ahead(NOW_MS + SKEW_MS, clock_ms=NOW_MS)
    with pytest.raises(SafetyRefusal, match="s ahead of the clock"):
        check_not_ahead(NOW_MS + SKEW_MS + 1, clock_ms=NOW_MS)


def _diverged() -> list[RemoteLogSegmentMetadata]:
    """Return epochs 0 and 2 of the first leader, and epoch 4 of the second from 150 on (unclean election)."""
    return [
        segment(1, 0, 99),
        segment(2, 100, 199),
        segment(3, 200, 299, (0, 200), (2, 250)),
        segment(4, 100, 199, (0, 100), (4, 150)),
        segment(5, 200, 299, (4, 200)),
        segment(6, 300, 399, (4, 300), (5, 350)),
    ]


def test_off_lineage_deletes_wait_for_the_log_start() -> None:
    log = local_log([400], 450, epochs=((0, 0), (4, 150), (5, 350)))
    raised = {TopicPartition("orders", 0): 200}
    plan = sweep(tier(*_diverged()), logs=[log], log_start_offsets=raised, off_lineage=True)
    off = [step for step in plan.steps if step.details["breach"] == "off_lineage"]
    assert numbers(plan) == [1, 4, 2, 3]
    assert [step.details["new_log_start_offset"] for step in off] == [200, 200]
    assert [step.details["earliest_epoch"] for step in off] == [4, 4]
