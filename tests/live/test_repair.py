"""Damage made while the broker was down is repaired, and the broker serves every record."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import RemoteLogSegmentState, Uuid

from tests.apply.repairs import a_day_passes, age, ago_ms
from tests.live.commands import refused, tierctl, where
from tests.support.broker import Broker, Brokers
from tests.verify.cases import update
from tests.verify.tiers import Spoilt

# Without a broker, tests/apply/test_repair.py, test_repair_indexes.py and tests/plan/test_fencing.py test the
# same.
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPIC = "damaged"
S = RemoteLogSegmentState
HALF, ORPHAN, LOST = (Uuid(f"{letter}AAAAAAAAAAAAAAAAAAAAQ") for letter in "ABC")


@pytest.fixture
def broker(brokers: Brokers) -> Iterator[Broker]:
    """A stopped broker that tiered five segments."""
    made = brokers.own()
    made.create_topic(TOPIC, tiered=True)
    made.produce(TOPIC, 5500)
    made.await_idle()
    made.stop()
    yield made
    made.stop()


def damage(broker: Broker) -> None:
    """Add an unfinished copy, a lost FINISHED event, an orphan, and an unfinished delete of a second copy."""
    tier = Spoilt(broker.log_dir, broker.remote_dir)
    segments = tier.segments(TOPIC)
    assert len(segments) == 5
    old = {"event_timestamp_ms": ago_ms(2), "broker_id": 99, "state": S.COPY_SEGMENT_STARTED}
    half = replace(segments[1], segment_id=HALF, **old)
    lost = replace(segments[2], segment_id=LOST, **old)
    stuck = replace(segments[3], segment_id=Uuid("DAAAAAAAAAAAAAAAAAAAAQ"), **old)
    tier.object(half, ".log").write_bytes(bytes(8) + b"half")
    copies = ((2, lost), (3, stuck), (1, replace(segments[1], segment_id=ORPHAN)))
    for number, again in copies:
        age(tier.copy_objects(segments[number], again))
    for path in tier.files(segments[2]):
        path.unlink()
    gone = [update(segments[2], state) for state in (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)]
    tier.append(*gone, half, lost, stuck, update(stuck, S.DELETE_SEGMENT_STARTED, ago_ms(2)))


def verify(broker: Broker, plan: Path) -> list[dict[str, Any]]:
    options = ("--topic", TOPIC, "--state-dir", state_of(broker), "--plan-out", plan, "--output", "jsonl")
    ran = tierctl("verify", *where(broker), *options)
    assert ran.code in {0, 3}, ran.err
    return [finding for finding in ran.rows if finding["severity"] != "info"]


def verify_over_a_day(broker: Broker, plan: Path) -> None:
    """Verify, and once more a day later: what was there both times may be deleted."""
    verify(broker, plan)
    a_day_passes(state_of(broker))
    verify(broker, plan)


def check_whole(broker: Broker, plan: Path) -> None:
    """Check that the broker serves every record, and that nothing is left to repair."""
    broker.wait_for("all offsets", lambda: broker.offsets("earliest", TOPIC) == {(TOPIC, 0): 0})
    assert [record[0] for record in broker.records(TOPIC, start=0)] == list(range(5500))
    assert verify(broker, plan) == []


def state_of(broker: Broker) -> Path:
    state = broker.folder / "state"
    state.mkdir(exist_ok=True)
    return state


def actions(plan: Path) -> list[tuple[str, str]]:
    return sorted((step["action"], step["segment_id"][0]) for step in json.loads(plan.read_text())["steps"])


def test_beside_a_broker_that_tiers_only_the_operator_allows_repairs(broker: Broker, tmp_path: Path) -> None:
    """Then all damage is repaired beside the running broker, which serves every record."""
    damage(broker)
    broker.start()
    plan = tmp_path / "plan.json"
    verify_over_a_day(broker, plan)
    apply = ("apply", plan, *where(broker), "--state-dir", state_of(broker))
    assert "brokers may do this work themselves" in refused(*apply)
    assert actions(plan) == [*(("delete_segment", each) for each in "ABD"), ("publish_segment", "C")]
    tierctl(*apply, "--allow-live-brokers", "--apply").ok()
    check_whole(broker, plan)
    assert actions(plan) == []


def test_a_broker_that_forgot_the_log_start_judges_no_object(broker: Broker, tmp_path: Path) -> None:
    """The broker's log starts above the tier, but all objects of the tier are needed."""
    damage(broker)
    broker.tiered = False
    broker.start()
    plan = tmp_path / "plan.json"
    verify_over_a_day(broker, plan)
    assert actions(plan) == [("delete_segment", "D")]
    assert "forgot the log start" in plan.read_text()
