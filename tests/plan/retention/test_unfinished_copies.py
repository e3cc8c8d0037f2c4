"""Unfinished copies below the log start are deleted, as by brokers, once they certainly no longer run."""

from dataclasses import replace
from typing import Any

import pytest
from tierctl.model import Selection
from tierctl.plan.expiry import plan_retention
from tierctl.plan.reasons import ReasonKind

from tests.plan.retention.test_sweep import numbers
from tests.plan.tier import DAY_MS, NOW_MS, S, advance, local_log, segment, tier

YOUNG_MS = NOW_MS - DAY_MS
RECOPIED = segment(2, 0, 99)
EPOCHS = ((0, 0), (2, 150), (4, 300))
CUT_AT_200 = ((2, 200), (4, 300))


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
    log = local_log([400], 450, epochs=CUT_AT_200, log_start_offset=200)
    for begun_ms, wanted in ((YOUNG_MS, [2]), (YOUNG_MS - 1, [1, 2])):
        state = tier()
        advance(state, replace(segment(1, 0, 99, event_timestamp_ms=begun_ms), broker_id=-1))
        advance(state, RECOPIED, S.COPY_SEGMENT_FINISHED)
        plan = plan_retention(state, [log], {}, now_ms=NOW_MS)
        assert sorted(numbers(plan)) == wanted
        said = [str(skip.reason) for skip in plan.skipped if skip.segment_id]
        assert ["by tierctl" in text and "a later copy" not in text for text in said] == [True] * len(said)
        assert bool(said) == (wanted == [2])


def test_evidence_outlives_the_deletion_of_the_later_copy() -> None:
    state = tier()
    advance(state, segment(1, 0, 99))
    advance(state, RECOPIED, S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
    log = local_log([400], 450, epochs=CUT_AT_200, log_start_offset=200)
    plan = plan_retention(state, [log], {}, now_ms=NOW_MS)
    assert numbers(plan) == [1]
    assert plan.steps[0].reason.startswith("unfinished copy of unreferenced epochs")


def test_a_copy_that_began_after_every_other_one_may_run() -> None:
    state = tier(RECOPIED)
    advance(state, segment(1, 0, 99))
    log = local_log([400], 450, epochs=CUT_AT_200, log_start_offset=200)
    plan = plan_retention(state, [log], {}, now_ms=NOW_MS)
    assert numbers(plan) == [2]
