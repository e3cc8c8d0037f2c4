"""Tiers of Aiven's plugin come back as local logs: a broker without the plugin serves and tiers them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.commands import base_offsets, plan
from tests.live.history import ISOLATIONS
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPICS = {"sensors": 2, "audit": 1}
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]


def answers(root: Path, topic: str, partition: int, isolation: str) -> list[tuple[object, ...]]:
    """What a consumer read when the bucket was captured: offset, timestamp, SHA-256 of key and value."""
    lines = (root / "answers" / f"{topic}-{partition}.{isolation}.jsonl").read_text().splitlines()[1:]
    found = [json.loads(line) for line in lines]
    return [(each["offset"], each["timestamp"], each["key"], each["value"]) for each in found]


def tier_ends(root: Path) -> dict[tuple[str, int], int]:
    """The offset after the last one in the tier, by partition, as Kafka's GetOffsetShell told them."""
    lines = (root / "answers" / "offsets-latest-tiered.txt").read_text().split()
    parts = [line.split(":") for line in lines if line.count(":") == 2]
    return {(topic, int(number)): int(offset) + 1 for topic, number, offset in parts}


def served(broker: Broker, topic: str, partition: int, isolation: str) -> list[tuple[object, ...]]:
    return [
        (offset, timestamp_ms, _sha256(key), _sha256(value))
        for offset, timestamp_ms, key, value in broker.records(topic, partition, isolation=isolation)
    ]


def _sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["aiven-plain", "aiven-encrypted"])
def test_a_broker_serves_what_the_plugin_stored(
    capture: Callable[[str], Path], brokers: Brokers, name: str
) -> None:
    root = capture(name)
    broker = brokers.own()
    for topic, count in TOPICS.items():
        # The captured records are older than a broker's default retention.
        broker.create_topic(topic, count, tiered=True, retention_ms="-1")
    broker.stop()
    keys = [word for key in root.glob("keys/private*") for word in ("--aiven-private-key", key)]
    topics = [word for topic in TOPICS for word in ("--topic", topic)]
    tier = ("--remote", root / "bucket", *keys, *topics)
    done = plan("restore", "log", "--log-dir", broker.log_dir, *tier, "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}

    broker.start()
    check_served(broker, root)
    broker.await_idle()
    assert len(base_offsets(broker, "sensors")) > 4
    for topic, number in PARTITIONS:
        assert broker.offsets("earliest-local", topic)[topic, number] > 0
    check_served(broker, root)
    for topic in TOPICS:
        broker.delete_topic(topic)
    broker.wait_for(
        "an empty tier", lambda: not [path for path in broker.remote_dir.rglob("*.*") if path.is_file()]
    )
    broker.stop()


def check_served(broker: Broker, root: Path) -> None:
    """Every record that was in the tier; of a transaction that is open at its end, none is committed."""
    ends = tier_ends(root)
    for topic, number in PARTITIONS:
        end = ends[topic, number]
        for how in ISOLATIONS:
            found = served(broker, topic, number, how)
            wanted = [each for each in answers(root, topic, number, how) if int(str(each[0])) < end]
            assert found == wanted, (topic, number, how)
            assert found
