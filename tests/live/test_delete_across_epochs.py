"""DeleteRecords moves log starts across leader epochs: sweep plans what the broker then deletes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import objects, plan, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DELETED_BEFORE = {"within": 500, "second": 1700, "third": 3200, "all": -1}
"""DeleteRecords by topic; -1 is the high watermark. Epochs have 1500 records, segments about 1000."""
TASKS = "remote.log.manager.task.interval.ms"


@pytest.fixture
def broker(brokers: Brokers) -> Iterator[Broker]:
    """A broker that tiered topics of three leader epochs, and whose tasks now wait for an hour."""
    made = brokers.own()
    for topic in DELETED_BEFORE:
        made.create_topic(topic, tiered=True, local_retention_bytes="-2")
    for epoch in range(3):
        if epoch:
            # A copy that a restart cuts off stays COPY_SEGMENT_STARTED. A broker (seen: 3.9.1) deletes it
            # with its epochs; sweep leaves it to `copy --clean-dangling`.
            made.await_idle()
            made.restart()
        for topic in DELETED_BEFORE:
            made.produce(topic, 1500, seed=epoch)
    made.await_idle()
    made.settings[TASKS] = "3600000"
    made.restart()
    yield made
    made.stop()


def segment_ids(broker: Broker, topic: str) -> set[str]:
    """Of the segments in the tier."""
    return {name.rsplit("/", 1)[1][21:43] for name in objects(broker, topic) if name.endswith(".log")}


def planned(*where: object) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {topic: set() for topic in DELETED_BEFORE}
    steps: list[dict[str, Any]] = plan("sweep", *where)["steps"]
    for step in steps:
        assert step["action"] == "delete_segment"
        found[step["topic"]].add(step["segment_id"])
    return found


def test_sweep_plans_what_the_broker_deletes(broker: Broker, tmp_path: Path) -> None:
    before = {topic: segment_ids(broker, topic) for topic in DELETED_BEFORE}
    assert all(len(found) >= 4 for found in before.values()), before
    for topic, offset in DELETED_BEFORE.items():
        broker.delete_records(topic, 0, offset)
    beside = planned(*where(broker))
    broker.stop()
    settings = tmp_path / "topics.properties"
    settings.write_text("".join(f"{topic}.remote.storage.enable=true\n" for topic in DELETED_BEFORE))
    offline = planned(
        *("--metadata", broker.log_dir, "--remote", broker.remote_dir, "--log-dir", broker.log_dir),
        *("--topic-configs", settings),
    )
    assert {topic: segment_ids(broker, topic) for topic in DELETED_BEFORE} == before, "the tasks did wait"

    broker.settings[TASKS] = "500"
    broker.start()
    broker.wait_for("the broker to delete a whole topic's segments", lambda: not segment_ids(broker, "all"))
    broker.await_idle()
    deleted = {topic: found - segment_ids(broker, topic) for topic, found in before.items()}
    # Where a segment ends depends on the producer's batches, and so does their number.
    assert not deleted["within"]
    assert 1 <= len(deleted["second"]) < len(deleted["third"])
    assert offline == deleted
    assert beside == deleted
    assert planned(*where(broker)) == {topic: set() for topic in DELETED_BEFORE}
