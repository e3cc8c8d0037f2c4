"""A broker that starts to tier uses tierctl's copies: it copies none again and serves every record."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in

from tests.live.commands import (
    assumed,
    base_offsets,
    first_offset,
    local_start,
    metadata_settings,
    on_disk,
    plan,
    rows,
    where,
)
from tests.live.history import Records, served_from
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPICS = ("adopt-plain", "adopt-tx")


@pytest.fixture
def untiered(brokers: Brokers) -> Iterator[Broker]:
    """Return a broker without tiering: a plain topic and one with transactions, both of two leader epochs."""
    broker = brokers.own(tiered=False, replica_high_watermark_checkpoint_interval_ms="200")
    for topic in TOPICS:
        broker.create_topic(topic)
    fill(broker, seed=1)
    broker.restart()
    fill(broker, seed=2)
    yield broker
    broker.stop()


def fill(broker: Broker, *, seed: int) -> None:
    broker.produce("adopt-plain", 1800, seed=seed)
    for number in range(6):
        broker.produce_transaction("adopt-tx", 250, commit=number % 3 != 1)
        broker.produce("adopt-tx", 30, seed=number + seed)


def served(broker: Broker, topics: Iterable[str] = TOPICS) -> Records:
    return served_from(broker, {(topic, 0): 0 for topic in topics})


def await_tier_alone(broker: Broker, ends: Mapping[str, int]) -> None:
    """Wait until the broker has dropped its own copies up to the ends of the topics."""
    for topic in ends:
        broker.alter_topic(topic, remote_storage_enable="true", local_retention_bytes="1")
    broker.wait_for(
        "the broker to drop its own copies",
        lambda: all(local_start(broker, topic) > end for topic, end in ends.items()),
    )


def check_seeks(broker: Broker, topic: str) -> None:
    """Seek into each segment: an offset of an epoch that the metadata lacks is out of range."""
    found = rows("segments", *where(broker)[:2], "--topic", topic)
    spans = [(row["start_offset"], row["end_offset"]) for row in found]
    assert all(start == end + 1 for (_, end), (start, _) in pairwise(spans))
    for start, end in spans:
        for offset in (start, (start + end) // 2, end):
            assert first_offset(broker, topic, offset) >= offset


def copy_to_the_cluster(broker: Broker, tmp_path: Path) -> list[dict[str, Any]]:
    """Copy to a metadata topic that tierctl creates, while the broker runs without tiering."""
    command = ("copy", *where(broker), "--log-dir", broker.log_dir, *assumed(*TOPICS))
    command = (*command, "--broker-config", metadata_settings(tmp_path), "--create-metadata-topic")
    done = plan(*command, "--apply")
    assert plan(*command, "--apply")["steps"] == []
    return list(done["outcomes"])


def copy_to_the_stopped_broker(broker: Broker) -> list[dict[str, Any]]:
    """Copy to the metadata log on the stopped broker's disk, which its first start with tiering created."""
    broker.restart(tiered=True)
    broker.wait_for("the metadata topic", lambda: len(partitions_in(broker.log_dir)) == METADATA_PARTITIONS)
    broker.stop()
    command = ("copy", *on_disk(broker), *assumed(*TOPICS))
    done = plan(*command, "--apply")
    assert plan(*command, "--apply")["steps"] == []
    indexes = [broker.log_dir / f"{METADATA_TOPIC}-{n}/{0:020d}.index" for n in range(METADATA_PARTITIONS)]
    dropped = [index for index in indexes if not index.exists()]
    assert dropped
    broker.start()
    assert all(index.exists() for index in dropped), "the broker made the indexes anew"
    return list(done["outcomes"])


@pytest.mark.matrix
@pytest.mark.parametrize("target", ["files", "cluster"])
def test_a_broker_adopts_what_was_copied(target: str, untiered: Broker, tmp_path: Path) -> None:
    broker = untiered
    with broker.transaction("adopt-tx", 1200, transactional_id="open") as _:
        before = served(broker)
        if target == "files":
            outcomes = copy_to_the_stopped_broker(broker)
        else:
            outcomes = copy_to_the_cluster(broker, tmp_path)
            broker.restart(tiered=True)
        assert {outcome["status"] for outcome in outcomes} == {"done"}
        copied = {topic: base_offsets(broker, topic) for topic in TOPICS}
        assert all(len(found) >= 3 for found in copied.values())
        ends = {topic: max(o["end_offset"] for o in outcomes if o["topic"] == topic) for topic in TOPICS}
        await_tier_alone(broker, ends)
        broker.await_idle()
        assert served(broker) == before
    # The broker copied no segment again, and its own copies continue from there.
    for topic in TOPICS:
        assert base_offsets(broker, topic)[: len(copied[topic])] == copied[topic]
        check_seeks(broker, topic)
    earliest = broker.offsets("earliest", *TOPICS)
    assert earliest == {(topic, 0): 0 for topic in TOPICS}
