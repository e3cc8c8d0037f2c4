"""Growth and steady state of one partition, computed by hand."""

from dataclasses import replace

import pytest
from tierctl.model import TopicConfig
from tierctl.plan import forecast
from tierctl.plan.forecast import (
    DAY_MS,
    MICRO,
    Holding,
    LocalFacts,
    Outlook,
    PartitionColumns,
    PartitionFacts,
    grown,
    growth_since_ms,
    held,
    local_later,
    requests,
    sum_of,
)

from tests.plan.tier import NOW_MS, TOPIC_ID, columns_of, segment, tier

NOTHING = Holding()
HELD = Holding(segments=11, log_bytes=1100, objects=55)
LATER = Holding(segments=10, log_bytes=1000, objects=50)
"""Ten segments of 100 bytes and 5 objects in the ten days after the first one, one per day."""


def outlook(*left: Holding, **facts: int) -> Outlook:
    limits = {"retention_ms": -1, "retention_bytes": -1, "is_held": False}
    return Outlook(left=left or (HELD, HELD, HELD, HELD), **limits | facts)


def facts(changed: Outlook, *, days: int = 10, local_only_bytes: int | None = 40) -> PartitionFacts:
    return PartitionFacts(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        now=HELD,
        first_ms=NOW_MS - days * DAY_MS,
        later=LATER,
        local_only_bytes=local_only_bytes,
        unchanged=outlook(),
        changed=changed,
    )


SEVEN = Holding(segments=7, log_bytes=700, objects=35)
LEFT = (SEVEN, NOTHING, NOTHING, NOTHING)
WEEK_MS = 7 * DAY_MS
CASES = {
    "nothing expires": (outlook(), 90, 1100 + 9000),
    "nothing expires in a month": (outlook(), 30, 1100 + 3000),
    "now is exact": (outlook(*LEFT, retention_ms=WEEK_MS), 0, 700),
    "a week of growth": (outlook(*LEFT, retention_ms=WEEK_MS), 90, 700),
    "retention beyond the horizon": (outlook(retention_ms=200 * DAY_MS), 90, 1100 + 9000),
    "100 days, of which 10 are left": (outlook(retention_ms=100 * DAY_MS), 30, 1100 + 3000),
    "a timestamp stops retention.ms": (outlook(retention_ms=WEEK_MS, is_held=True), 90, 1100 + 9000),
    "size is the smaller limit": (outlook(retention_bytes=540), 90, 500),
    "size is the larger limit": (outlook(*LEFT, retention_ms=WEEK_MS, retention_bytes=5000), 90, 700),
    "the log alone is above the size": (outlook(retention_bytes=30), 90, 0),
    "size limits what is held": (outlook(retention_ms=WEEK_MS, retention_bytes=540, is_held=True), 90, 500),
    "copying is disabled": (replace(outlook(), is_copied=False), 90, 1100),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_tier_holds(name: str) -> None:
    changed, days, expected = CASES[name]
    assert sum_of([held(facts(changed), changed, days, NOW_MS)]).log_bytes == expected
    assert sum_of([held(facts(changed), changed, days, NOW_MS)]).segments == expected // 100


def test_growth() -> None:
    """1000 bytes in 10 days; with less than a day of history, the growth of a topic is unknown."""
    young = replace(facts(outlook()), first_ms=NOW_MS - DAY_MS // 2)
    assert grown(facts(outlook()), DAY_MS, NOW_MS).log_bytes == 100 * MICRO
    assert grown(young, DAY_MS, NOW_MS).log_bytes == 1000 * MICRO
    assert growth_since_ms([facts(outlook()), young], NOW_MS) == NOW_MS - 10 * DAY_MS
    assert growth_since_ms([young], NOW_MS) is None
    assert growth_since_ms([replace(young, first_ms=NOW_MS - DAY_MS)], NOW_MS) == NOW_MS - DAY_MS
    assert growth_since_ms([replace(young, first_ms=None)], NOW_MS) is None


def test_requests_of_a_month() -> None:
    """150 objects are stored per month. With a week's retention, all but 35 of all objects are deleted."""
    changed = outlook(*LEFT, retention_ms=WEEK_MS)
    found = facts(changed)
    assert requests(found, found.unchanged, 0, NOW_MS) == 150 * MICRO
    assert requests(found, changed, 0, NOW_MS) == (150 + 55 + 150 - 35) * MICRO
    assert requests(found, changed, 60, NOW_MS) == (150 + 150) * MICRO
    assert requests(found, replace(changed, is_copied=False), 0, NOW_MS) == 55 * MICRO


def test_growth_is_that_of_the_segments_after_the_oldest() -> None:
    """The time is the largest timestamp, or that of the last event if it is unset or in the future."""
    at = [NOW_MS - 8 * DAY_MS, NOW_MS - 6 * DAY_MS, 0, NOW_MS + DAY_MS]
    each = [
        segment(n, 100 * n, 100 * n + 99, max_timestamp_ms=time_ms, event_timestamp_ms=NOW_MS - DAY_MS)
        for n, time_ms in enumerate(at)
    ]
    (part,) = tier(*each)
    assert PartitionColumns(part, None).growth(NOW_MS) == (
        at[0],
        Holding(segments=3, log_bytes=300, objects=0),
    )


def test_without_a_plan_nothing_is_deleted() -> None:
    state = tier(segment(1, 0, 99))
    (part,) = state
    columns = PartitionColumns(part, None)
    found = forecast.outlook(
        columns,
        columns_of(part, ()),
        TopicConfig(retention_bytes=5, is_copy_disabled=True),
        now_ms=NOW_MS,
        is_known=True,
    )
    assert (found.is_copied, found.is_age_stated) == (False, False)
    assert found.left == (Holding(segments=1, log_bytes=100, objects=0),) * 4


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "expected"),
    [(-1, -1, 10 + 2 * 9000), (DAY_MS, -1, 10 + 2 * 100), (DAY_MS, 70, 140), (-1, 4, 9), (-1, 0, 8)],
)
def test_the_disks_of_two_replicas(retention_ms: int, retention_bytes: int, expected: int) -> None:
    local = LocalFacts(
        active_bytes=(3, 5),
        log_bytes=30,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        left_bytes=20,
        later_bytes=10,
    )
    assert local_later(replace(facts(outlook()), local=local), NOW_MS) == expected * MICRO
    assert local_later(facts(outlook()), NOW_MS) is None
