"""A real broker continues a metadata log to which tierctl appended while the broker was stopped."""

from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.wire.metadata.values import encode

from tests.metadata.events import OTHER_ID, started
from tests.metadata.topics import topic_in
from tests.support.broker import Broker, Brokers

VALUES = [encode(started(number, topic_id=OTHER_ID)) for number in range(100)]


def tiered_segments(broker: Broker) -> int:
    return len(list(broker.remote_dir.glob("kafka-tiered-storage/tiered-0-*/*.log")))


def values_of(folder: Path) -> dict[int, list[bytes | None]]:
    log = topic_in(folder)
    found: dict[int, list[bytes | None]] = {}
    for partition, end in log.end_offsets().items():
        chunks = list(log.read(partition, 0, end))
        assert not any(chunk.damage for chunk in chunks)
        found[partition] = [value for chunk in chunks for value in chunk.values.to_pylist()]
    return found


@pytest.mark.matrix
@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_adopts_what_was_appended(brokers: Brokers) -> None:
    broker = brokers.own()
    broker.create_topic("tiered", tiered=True)
    broker.produce("tiered", 3500)
    broker.wait_for("segments to be tiered", lambda: tiered_segments(broker) >= 3)
    with pytest.raises(SafetyRefusal, match="a broker is running"):
        topic_in(broker.log_dir, writable=True)
    broker.stop()
    before = values_of(broker.log_dir)

    log = topic_in(broker.log_dir, writable=True)
    for partition in before:
        log.append([(partition, value) for value in VALUES])
    log.close()
    ours = {partition: [*values, *VALUES] for partition, values in before.items()}
    assert values_of(broker.log_dir) == ours

    indexes = [broker.log_dir / f"__remote_log_metadata-{n}/{0:020d}.index" for n in ours]
    assert not any(index.exists() for index in indexes)
    broker.start()
    assert all(index.exists() for index in indexes), "the broker made the indexes anew"
    ends = broker.tool("org.apache.kafka.tools.GetOffsetShell", "--topic", "__remote_log_metadata")
    assert sorted(ends.splitlines()) == [
        f"__remote_log_metadata:{partition}:{len(values)}" for partition, values in sorted(ours.items())
    ]
    tiered = tiered_segments(broker)
    broker.produce("tiered", 3500)
    broker.wait_for("the broker to tier on", lambda: tiered_segments(broker) >= tiered + 3)
    broker.stop()
    after = values_of(broker.log_dir)
    assert {partition: values[: len(ours[partition])] for partition, values in after.items()} == ours
    assert sum(map(len, after.values())) > sum(map(len, ours.values()))
    folders = [broker.log_dir / f"__remote_log_metadata-{partition}" for partition in after]
    for folder in folders:
        assert (folder / f"{0:020d}.index").exists(), "the broker made the indexes anew"
        assert (folder / f"{0:020d}.timeindex").stat().st_size > 0
    files = [
        str(folder / f"{0:020d}.{suffix}") for folder in folders for suffix in ("log", "index", "timeindex")
    ]
    dumped = broker.release.dump_log(",".join(files))
    assert dumped.count("isvalid: true") == sum(map(len, after.values()))
    assert "Mismatches" not in dumped
