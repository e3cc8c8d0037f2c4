"""sweep with brokers whose tiering is off deletes the same segments as their copies with tiering on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.live.commands import base_offsets, hasty, plan, rows, tierctl, twin_of, where
from tests.support.broker import Broker, Brokers
from tests.support.faults import observed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# The broker has all segments of "kept" locally, and of "gone" only those that are not in the tier.
TOPICS = ("kept", "gone")
SHORTENED = {"log.retention.bytes": "3300000"}
TASKS = "remote.log.manager.task.interval.ms"


@pytest.fixture
def broker(brokers: Brokers) -> Iterator[Broker]:
    """Return a stopped broker that tiered five segments of each topic; none had expired."""
    made = brokers.own(log_retention_bytes="-1")
    made.create_topic("kept", tiered=True, local_retention_bytes="-2")
    made.create_topic("gone", tiered=True)
    for topic in TOPICS:
        made.produce(topic, 5500)
    made.await_idle()
    assert all(len(base_offsets(made, topic)) == 5 for topic in TOPICS)
    made.stop()
    yield made
    made.stop()


def what_a_broker_deletes(broker: Broker, folder: Path) -> dict[str, list[int]]:
    """Return the starts of the segments of each topic after the broker's copy has deleted expired ones."""
    twin = twin_of(broker, folder)
    try:
        twin.start()
        # Until a broker knows what was copied, its size retention deletes too much (KAFKA-20732).
        twin.wait_for(
            "the twin to know its tier", lambda: len(twin.offsets("latest-tiered", *TOPICS)) == len(TOPICS)
        )
        time.sleep(2)
        for topic in TOPICS:
            twin.alter_topic(topic, retention_bytes=SHORTENED["log.retention.bytes"])
        twin.wait_for(
            "the twin to expire something",
            lambda: all(len(base_offsets(twin, topic)) < 5 for topic in TOPICS),
        )
        twin.await_idle()
        return {topic: base_offsets(twin, topic) for topic in TOPICS}
    finally:
        twin.stop()


@pytest.mark.matrix
def test_sweep_deletes_what_a_broker_would(broker: Broker, tmp_path: Path) -> None:
    left = what_a_broker_deletes(broker, tmp_path / "twin")
    broker.settings |= SHORTENED | {TASKS: "500"}
    broker.tiered = False
    broker.start()
    # Ten task intervals after the broker's last event.
    time.sleep(5)
    ends = {topic: tier_end(broker, topic) for topic in TOPICS}
    assert broker.offsets("earliest", "gone") == {("gone", 0): ends["gone"]}, "it forgot the tier"
    sweep = ("sweep", *where(broker), "--wave-size", 1, "--apply")
    assert {(step["topic"], step["breach"]) for step in plan(*sweep[:-1])["steps"]} <= {
        *((topic, "retention.bytes") for topic in TOPICS),
        ("kept", "log_start_offset"),
    }
    restarted_meanwhile(broker, sweep, tmp_path)
    plan(*sweep)
    assert {topic: base_offsets(broker, topic) for topic in TOPICS} == left
    assert plan(*sweep)["steps"] == []
    assert broker.offsets("earliest", "kept")["kept", 0] >= left["kept"][0]
    assert {row["state"] for row in rows("segments", *where(broker)[:2])} == {"COPY_SEGMENT_FINISHED"}

    # The remaining segments are the topic: a broker that tiers again serves them.
    broker.settings |= {"log.retention.bytes": "-1"}
    broker.restart(tiered=True)
    start = left["gone"][0]
    broker.wait_for(
        "the broker to see its tier", lambda: broker.offsets("earliest", "gone") == {("gone", 0): start}
    )
    assert [record[0] for record in broker.records("gone", start=start)] == list(range(start, 5500))


def tier_end(broker: Broker, topic: str) -> int:
    found = rows("segments", *where(broker)[:2], "--topic", topic)
    return max(int(row["end_offset"]) for row in found) + 1


def restarted_meanwhile(broker: Broker, sweep: tuple[object, ...], tmp_path: Path) -> None:
    """The broker stops between an object's deletion and its DELETE_SEGMENT_FINISHED, and restarts."""

    def stop(label: str, moment: str) -> None:
        if (label, moment) == ("sweep.segment.delete", "after") and broker.is_running:
            broker.stop(kill=True)

    with observed(stop):
        ran = tierctl(*sweep, "--command-config", hasty(tmp_path))
    assert ran.code in {ExitCode.PARTIAL, ExitCode.RETRYABLE}, ran.err
    broker.start()
    states = {row["state"] for row in rows("segments", *where(broker)[:2])}
    assert "DELETE_SEGMENT_STARTED" in states
