"""A real broker goes on with a metadata log that tierctl appended to while it was stopped."""

from pathlib import Path

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.metadata.log_on_disk import MetadataLogOnDisk
from tierctl.wire.metadata import encode

from tests.kafka import Broker, KafkaRelease, free_ports, running_broker
from tests.metadata.events import OTHER_ID, started

VALUES = [encode(started(number, topic_id=OTHER_ID)) for number in range(100)]


def produce(broker: Broker, records: int) -> None:
    broker.release.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "tiered", "--num-records", str(records), "--record-size", "1000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )


def tiered_segments(broker: Broker) -> int:
    return len(list(broker.remote_dir.glob("kafka-tiered-storage/tiered-0-*/*.log")))


def values_of(folder: Path) -> dict[int, list[bytes | None]]:
    log = MetadataLogOnDisk(folder)
    found: dict[int, list[bytes | None]] = {}
    for partition, end in log.end_offsets().items():
        chunks = list(log.read(partition, 0, end))
        assert not any(chunk.bad for chunk in chunks)
        found[partition] = [value for chunk in chunks for value in chunk.values.to_pylist()]
    return found


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_adopts_what_was_appended(tmp_path: Path, kafka: KafkaRelease) -> None:
    port, controller_port = free_ports(2)
    with running_broker(kafka, tmp_path, (port, controller_port)) as broker:
        broker.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--create", "--topic", "tiered", "--partitions", "1", "--config", "remote.storage.enable=true"),
            *("--config", "segment.bytes=1048576", "--config", "local.retention.bytes=1"),
        )
        produce(broker, 3500)
        broker.wait_for("segments to be tiered", lambda: tiered_segments(broker) >= 3)
        with pytest.raises(SafetyRefusal, match="a broker is running"):
            MetadataLogOnDisk(broker.log_dir, writable=True)
    before = values_of(broker.log_dir)

    log = MetadataLogOnDisk(broker.log_dir, writable=True)
    for partition in before:
        log.append([(partition, value) for value in VALUES])
    log.close()
    ours = {partition: [*values, *VALUES] for partition, values in before.items()}
    assert values_of(broker.log_dir) == ours

    with running_broker(kafka, tmp_path, (port, controller_port)) as broker:
        ends = broker.tool("org.apache.kafka.tools.GetOffsetShell", "--topic", "__remote_log_metadata")
        assert {int(line.split(":")[1]): int(line.split(":")[2]) for line in ends.splitlines()} == {
            partition: len(values) for partition, values in ours.items()
        }
        tiered = tiered_segments(broker)
        produce(broker, 3500)
        broker.wait_for("the broker to tier on", lambda: tiered_segments(broker) >= tiered + 3)
    after = values_of(broker.log_dir)
    assert {partition: values[: len(ours[partition])] for partition, values in after.items()} == ours
    assert sum(map(len, after.values())) > sum(map(len, ours.values()))
    for partition in after:
        folder = broker.log_dir / f"__remote_log_metadata-{partition}"
        assert (folder / f"{0:020d}.index").exists(), "the broker made the indexes anew"
        assert (folder / f"{0:020d}.timeindex").stat().st_size > 0
        dumped = kafka.dump_log(folder / f"{0:020d}.log")
        assert dumped.count("isvalid: true") == len(after[partition])
        assert "Mismatches" not in kafka.dump_log(folder / f"{0:020d}.index")
    assert "ERROR Fatal" not in broker.said()
