"""The table of decisions: a row per segment, of steps and of what stays, and its columns for a whole tier."""

from dataclasses import replace

import pytest
from tierctl.commands.tier_digest import segment_kinds
from tierctl.model import Selection, TopicConfig
from tierctl.plan.copy import plan_copy
from tierctl.plan.decisions import EXPIRED, KEPT, NEVER, Decision, NextAction, stop_lines
from tierctl.plan.expiry import plan_retention
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.report.html_lanes import SegmentKind
from tierctl.state.table_arrays import FINISHED
from tierctl.state.tier_state import TierState

from tests.plan.tier import DAY_MS, NOW_MS, PARTITION, S, advance, columns_of, local_log, segment, tier

EVERYTHING = Selection()
K = ReasonKind
OLD_MS, YOUNG_MS = NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS // 2


def aged_tier() -> TierState:
    """Return an expired segment, one that expires in half a day, and an unfinished copy above them."""
    state = tier(
        segment(1, 0, 9, max_timestamp_ms=OLD_MS),
        segment(2, 10, 19, max_timestamp_ms=YOUNG_MS),
    )
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
