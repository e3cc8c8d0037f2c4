"""`status` with a broker that tiers: sizes, copy lag, a leak, and exit code 3 while an operator must act."""

import json
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import Ran
from tests.live.commands import base_offsets, rows, tierctl, where
from tests.live.test_leaks import leak
from tests.support.broker import Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def shown(ran: Ran) -> dict[str, dict[str, Any]]:
    return {row["topic"]: row for row in ran.json}


@pytest.mark.matrix
def test_lag_leaks_and_runs(brokers: Brokers, tmp_path: Path) -> None:
    broker = brokers.own()
    (tmp_path / "state").mkdir()
    status = ("status", *where(broker), "--log-dir", broker.log_dir, "--state-dir", tmp_path / "state")
    broker.create_topic("waiting", tiered=True)
    broker.create_topic("plain")
    broker.produce("waiting", 2500)
    broker.produce("plain", 1500)
    more = {"transaction_timeout_ms": "600000"}
    with broker.transaction("waiting", 2500, transactional_id="open", **more) as producer:
        broker.await_idle()
        ran = tierctl(*status, "--output", "json")
        assert (ran.code, ran.err) == (ExitCode.OK, ""), "a topic that is not tiered needs no note"
        row = shown(ran)["waiting"]
        in_tier = base_offsets(broker, "waiting")
        assert (row["segments"], row["first_offset_in_tier"], row["problems"]) == (len(in_tier), 0, 0)
        assert row["lag_segments"] >= 2
        assert row["lag_bytes"] > 2 * 900_000
        assert "next: tierctl explain waiting-0 --metadata" in ran.summary
        late = (*status, "--now", "+2h", "--show", "problems", "--output", "json")
        ran = tierctl(*late)
        assert ran.code == ExitCode.PARTIAL
        (problem,) = ran.json
        assert (problem["check"], problem["subject"]) == ("open_transaction", "waiting-0")
        assert tierctl(*late, "--copy-limit", "3h").code == ExitCode.OK
        producer.commit_transaction(30)
    broker.await_idle()
    later = shown(tierctl(*status, "--output", "json"))["waiting"]
    assert (later["lag_segments"], later["lag_bytes"]) == (0, 0)
    assert later["segments"] == row["segments"] + row["lag_segments"]

    topic_id = leak(broker, "leaked")
    ran = tierctl(*status)
    assert ran.code == ExitCode.PARTIAL
    assert "unknown_topic" in ran.out
    assert "tierctl delete --find --mark" in ran.out
    explained = rows("explain", "leaked", 0, *status[1:-2])
    assert {(row["next_action"], row["reason_kind"]) for row in explained} == {("none", "leaked")}
    two_days = tierctl(*status, "--now", "+2d", "--output", "json")
    assert shown(two_days)["leaked"]["stuck_deletes"] == len(base_offsets(broker, "leaked")) == 5
    for step in ("--mark", None):
        words = ("delete", *where(broker), "--topic-id", topic_id, "--apply", *filter(None, [step]))
        assert tierctl(*words, *(() if step else ("--yes",))).code == 0
    assert tierctl(*status).code == ExitCode.OK
    runs = tierctl(*status, "--show", "runs", "--output", "json")
    assert {row["command"] for row in json.loads(runs.out)} == {"status"}
    broker.stop()
