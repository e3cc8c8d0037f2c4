"""A sweep decides as of a time that the clock, or what brokers wrote, has come to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.model import TopicConfig
from tierctl.plan.retention.sweep import check_not_ahead, decided_as_of_ms, plan_retention
from tierctl.plan.steps import Plan

from tests.cli.shell import tierctl
from tests.plan.tier import DAY_MS, NOW_MS, local_log, segment, tier

SECOND_MS = 1000
SKEW_MS = 300 * SECOND_MS
EVENT_MS = NOW_MS - DAY_MS
OLD = segment(1, 0, 99, max_timestamp_ms=EVENT_MS)
LOG = local_log([100], 150)


@pytest.mark.parametrize(
    ("now_ms", "clock_ms", "is_ahead"),
    [
        (NOW_MS - 10 * DAY_MS, NOW_MS, False),
        (NOW_MS, NOW_MS, False),
        (NOW_MS + SKEW_MS, NOW_MS, False),
        (NOW_MS + SKEW_MS + 1, NOW_MS, True),
        # The clock is behind; events say that this time has come.
        (EVENT_MS + SKEW_MS, EVENT_MS - DAY_MS, False),
        (EVENT_MS + SKEW_MS + 1, EVENT_MS - DAY_MS, True),
    ],
)
def test_ahead(now_ms: int, clock_ms: int, is_ahead: bool) -> None:
    if not is_ahead:
        check_not_ahead(tier(OLD), now_ms, clock_ms=clock_ms)
        return
    with pytest.raises(SafetyRefusal, match="s ahead of the clock and of the newest event"):
        check_not_ahead(tier(OLD), now_ms, clock_ms=clock_ms)


def test_a_kept_plan_tells_its_time() -> None:
    later_ms = NOW_MS + 30 * DAY_MS
    config = TopicConfig(retention_ms=7 * DAY_MS)
    plan = plan_retention(tier(OLD), [LOG], {"orders": config}, now_ms=later_ms)
    assert decided_as_of_ms(Plan.loads(plan.dumps())) == later_ms
    by_size = tuple(
        replace(step, details={**step.details, "breach": "retention.bytes"}) for step in plan.steps
    )
    assert decided_as_of_ms(replace(plan, steps=by_size)) == 0
    odd = tuple(replace(step, details={**step.details, "cutoff_ms": "soon"}) for step in plan.steps)
    assert decided_as_of_ms(replace(plan, steps=odd)) == 0


def test_a_plan_may_look_ahead_and_is_not_carried_out(
    writable: Callable[[str], Path], tmp_path: Path
) -> None:
    logs, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    configs, kept = tmp_path / "configs", tmp_path / "plan.json"
    configs.write_text("orders.retention.ms=86400000\n")
    where = ("--metadata", logs, "--remote", remote, "--log-dir", logs)
    sweep = ("sweep", *where, "--topic-configs", configs, "--topic", "orders", "--max-fraction", 1)
    ahead = (*sweep, "--now", 1 << 45, "--plan-out", kept)
    planned = tierctl(*ahead, "--detailed-exitcode")
    assert (planned.code, "--apply would refuse this" in planned.err) == (9, True)
    before = sorted(path.name for path in remote.rglob("*"))
    for command in (ahead, ("apply", kept, *where, "--max-fraction", 1)):
        ran = tierctl(*command, "--apply")
        assert (ran.code, "ahead of the clock" in ran.err) == (4, True), ran.err
    assert sorted(path.name for path in remote.rglob("*")) == before
