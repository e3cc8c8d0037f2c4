"""DeleteRecords moves log starts across leader epochs: sweep plans the deletes that the broker makes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import plan, rows, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

DELETED_BEFORE = {"within": 500, "second": 1700, "behind": 2700, "third": 3200, "all": -1}
"""DeleteRecords by topic; -1 is the high watermark. Epochs have 1500 records, segments about 1000."""
CUT_OFF_EPOCHS = 2
TASKS = "remote.log.manager.task.interval.ms"


@pytest.fixture(params=["idle", "copying"])
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> Iterator[Broker]:
    """Return a broker that tiered topics of three leader epochs, and whose tasks now wait for an hour.

    Each epoch ends with a restart of an idle broker, or with kill -9 of a broker that is copying each topic.
    """
    made = brokers.own()
    for topic in DELETED_BEFORE:
        made.create_topic(topic, tiered=True, local_retention_bytes="-2")
    for _ in range(CUT_OFF_EPOCHS):
        if request.param == "copying":
            cut_off_copies(made)
        else:
            fill(made)
            made.await_idle()
            made.restart()
    fill(made)
    made.await_idle()
    made.settings[TASKS] = "3600000"
    made.restart()
    started = [row for row in segments(made) if row["state"] == "COPY_SEGMENT_STARTED"]
    assert len(started) == (CUT_OFF_EPOCHS * len(DELETED_BEFORE) if request.param == "copying" else 0)
    yield made
    made.stop()


def fill(broker: Broker) -> None:
    for topic in DELETED_BEFORE:
        broker.produce(topic, 1500)


def cut_off_copies(broker: Broker) -> None:
    """Block the broker in the copy of a segment of each topic, kill it there, and start it again.

    The broker opens the file by its name, and blocks because the file is replaced by a named pipe.
    """
    known = len(segments(broker))
    active = [max((broker.log_dir / f"{topic}-0").glob("*.log")) for topic in DELETED_BEFORE]
    for log in active:
        log.rename(log.with_suffix(".kept"))
        os.mkfifo(log)
    fill(broker)
    broker.wait_for(
        "a copy of each topic to begin", lambda: len(segments(broker)) == known + len(DELETED_BEFORE)
    )
    broker.stop(kill=True)
    for log in active:
        log.with_suffix(".kept").replace(log)
    broker.start()
    broker.await_idle()


def segments(broker: Broker) -> list[dict[str, Any]]:
    return rows("segments", *where(broker)[:2])


def segment_ids(broker: Broker) -> dict[str, set[str]]:
    """Return the segments that are not deleted, by topic."""
    found: dict[str, set[str]] = {topic: set() for topic in DELETED_BEFORE}
    for row in segments(broker):
        found[row["topic"]].add(row["segment_id"])
    return found


def planned(*where: object) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {topic: set() for topic in DELETED_BEFORE}
    steps: list[dict[str, Any]] = plan("sweep", *where)["steps"]
    for step in steps:
        assert step["action"] == "delete_segment"
        found[step["topic"]].add(step["segment_id"])
    return found


def test_sweep_plans_what_the_broker_deletes(broker: Broker, tmp_path: Path) -> None:
    before = segment_ids(broker)
    assert all(len(found) >= 4 for found in before.values()), before
    for topic, offset in DELETED_BEFORE.items():
        broker.delete_records(topic, 0, offset)
    beside = planned(*where(broker))
    assert segment_ids(broker) == before, "the tasks did wait"
    broker.stop()
    settings = tmp_path / "topics.properties"
    settings.write_text("".join(f"{topic}.remote.storage.enable=true\n" for topic in DELETED_BEFORE))
    offline = planned(
        *("--metadata", broker.log_dir, "--remote", broker.remote_dir, "--log-dir", broker.log_dir),
        *("--topic-configs", settings),
    )

    broker.settings[TASKS] = "500"
    broker.start()
    broker.wait_for("the broker to delete a whole topic's segments", lambda: not segment_ids(broker)["all"])
    broker.await_idle()
    left = segment_ids(broker)
    deleted = {topic: found - left[topic] for topic, found in before.items()}
    # The ends of segments, and their number, depend on the producer's batches.
    assert not deleted["within"]
    assert 1 <= len(deleted["second"]) < len(deleted["third"])
    assert offline == deleted
    assert beside == deleted
    assert planned(*where(broker)) == {topic: set() for topic in DELETED_BEFORE}
