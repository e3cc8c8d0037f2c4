"""A sweep does not decide as of a time that is in the future of the clock or behind brokers' events."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.plan.steps import check_not_ahead

from tests.cli.shell import tierctl
from tests.plan.tier import DAY_MS, NOW_MS, local_log, segment

SECOND_MS = 1000
SKEW_MS = 300 * SECOND_MS
EVENT_MS = NOW_MS - DAY_MS
OLD = segment(1, 0, 99, max_timestamp_ms=EVENT_MS)
LOG = local_log([100], 150)


@pytest.mark.parametrize(
    ("now_ms", "is_ahead"),
    [
        (NOW_MS - 10 * DAY_MS, False),
        (NOW_MS, False),
        (NOW_MS + SKEW_MS, False),
        (NOW_MS + SKEW_MS + 1, True),
        (NOW_MS + 10 * DAY_MS, True),
    ],
)
def test_ahead(now_ms: int, is_ahead: bool) -> None:
    if not is_ahead:
        check_not_ahead(now_ms, clock_ms=NOW_MS)
        return
    with pytest.raises(SafetyRefusal, match="s ahead of the clock"):
        check_not_ahead(now_ms, clock_ms=NOW_MS)


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
    for command in (ahead, ("apply", kept, *where, "--topic-configs", configs, "--max-fraction", 1)):
        ran = tierctl(*command, "--apply")
        assert (ran.code, "ahead of the clock" in ran.err) == (4, True), ran.err
    assert sorted(path.name for path in remote.rglob("*")) == before
