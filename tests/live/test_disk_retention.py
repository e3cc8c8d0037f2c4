"""What a broker deletes from its disk by local retention is what `explain` said before it did."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import tierctl
from tests.live.test_explained import KEPT
from tests.support.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
DAY_MS = 86_400_000
CHECKS_S = 6
"""Time in which the broker looks for segments to delete more than once (log.retention.check.interval.ms)."""


def _local(broker: Broker, topic: str) -> list[int]:
    return sorted(int(log.stem) for log in (broker.log_dir / f"{topic}-0").glob("*.log"))


def _explained(broker: Broker, topic: str, folder: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of local segments with settings that the broker does not have yet."""
    configs = folder / "topics.properties"
    lines = {"remote.storage.enable": "true", "retention.ms": "-1", **settings}
    configs.write_text("".join(f"{topic}.{name}={value}\n" for name, value in lines.items()))
    version = ".".join(map(str, broker.release.number[:2]))
    where = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir, "--topic-configs", configs)
    found = tierctl("explain", topic, 0, *where, "--kafka-version", version, "--output", "jsonl")
    assert found.code in {0, 3}, found.err
    return [row for row in map(json.loads, found.lines) if row["location"] == "local"]


def _predicted_and_left(
    broker: Broker, topic: str, folder: Path, settings: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows with `settings`, and the segments on the disk after the broker has applied them."""
    found = _explained(broker, topic, folder, settings)
    left = [row["start_offset"] for row in found if row["next_action"] != "delete_local"]
    broker.alter_topic(topic, **{name.replace(".", "_"): str(value) for name, value in settings.items()})
    broker.wait_for("the deletions", lambda: _local(broker, topic) == left)
    time.sleep(CHECKS_S)
    return found, _local(broker, topic)


def test_by_size_and_by_time(broker: Broker, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    for topic, settings, kind in (
        ("local-size", {"local.retention.bytes": 2_500_000}, "local_retention_bytes"),
        ("local-time", {"local.retention.ms": DAY_MS}, "local_retention_ms"),
    ):
        broker.create_topic(topic, **KEPT, retention_ms="-1")
        broker.produce(topic, 3000, timestamp_ms=now_ms - 2 * DAY_MS)
        broker.produce(topic, 2500)
        broker.await_idle()
        found, left = _predicted_and_left(broker, topic, tmp_path, settings)
        deleted = [row for row in found if row["next_action"] == "delete_local"]
        assert len(deleted) >= 2
        assert {row["reason_kind"] for row in deleted} == {kind}
        assert left == [row["start_offset"] for row in found if row not in deleted]
        (name, value), *_ = settings.items()
        assert deleted[0]["settings"][0] == {
            "name": name,
            "value": str(value),
            "source": "topic settings file",
        }


@pytest.mark.matrix
def test_a_timestamp_in_the_future_holds_segments(broker: Broker, tmp_path: Path) -> None:
    topic, now_ms = "local-future", time.time_ns() // 1_000_000
    broker.create_topic(topic, **KEPT, retention_ms="-1", message_timestamp_after_max_ms=str(2 * DAY_MS))
    for count, at_ms in ((1500, now_ms - 2 * DAY_MS), (100, now_ms + DAY_MS), (3000, now_ms - 2 * DAY_MS)):
        broker.produce(topic, count, timestamp_ms=at_ms)
    broker.await_idle()
    found, left = _predicted_and_left(broker, topic, tmp_path, {"local.retention.ms": 1000})
    assert left == [row["start_offset"] for row in found if row["next_action"] != "delete_local"]
    assert len(found) > len(left) > 1
    if broker.release.number < (4, 5):
        held = _explained(broker, topic, tmp_path, {"local.retention.ms": 1000})[0]
        assert (held["reason_kind"], held["start_offset"]) == ("local_held", left[0])
        assert "KAFKA-20609" in str(held["reason"])


@pytest.mark.matrix
def test_what_is_not_copied_stays(broker: Broker, tmp_path: Path) -> None:
    topic = "local-open"
    broker.create_topic(topic, **KEPT, retention_ms="-1")
    broker.produce(topic, 2500)
    with broker.transaction(topic, 2500, transactional_id=topic) as producer:
        broker.await_idle()
        found, left = _predicted_and_left(broker, topic, tmp_path, {"local.retention.bytes": 1})
        # The checkpoint of the high watermark, which is read here, is older than the broker's own.
        kinds = {"open_transaction", "not_replicated"}
        waiting = [row["start_offset"] for row in found if row["reason_kind"] in kinds]
        assert waiting == left[:-1]
        assert len(found) > len(left) > 1
        producer.commit_transaction(30)
