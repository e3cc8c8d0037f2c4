"""Topics of real brokers: missing records are reported, and a broker that goes away and comes back."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import CorruptInputError, ExitCode, MetadataError, MetadataWriteUnknown
from tierctl.kafka import librdkafka, topic_client
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.model import TopicPartition
from tierctl.wire.batches.segment_file import RecordChunk

from tests.kafka.cluster_topics import Open, missing, name_of, on_disk, rows, values, whole
from tests.metadata.events import FINISHED, segment_id, started, update
from tests.metadata.topics import manager_at
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class TestWhatIsMissing:
    def test_control_records_are_none_of_it(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name)
        for number in range(4):
            tiered.produce_transaction(name, 5, commit=number % 2 == 0)
            tiered.produce(name, 2)
        tiered.produce_transaction(name, 3)
        topic = on(tiered, name)
        # The producer learns that its transaction ended before the markers are written.
        tiered.wait_for("the last marker", lambda: topic.end_offsets()[0] == 4 * 8 + 4)
        chunks = whole(topic)
        assert missing(chunks) == []
        assert rows(chunks) == rows(on_disk(tiered, name))
        assert len(rows(chunks)) == 4 * 7 + 3
        assert chunks[-1].next_offset == 4 * 8 + 4
        # Ranges that contain only a control record.
        for offset in set(range(36)) - {offset for offset, _, _ in rows(chunks)}:
            (control,) = topic.read(0, offset, offset + 1)
            assert (rows([control]), control.next_offset, control.damage) == ([], offset + 1, ())
        # An open transaction does not limit what is read.
        with tiered.transaction(name, 3, transactional_id=name) as producer:
            patient = on(tiered, name, stall_timeout_ms=5000)
            assert [offset for offset, _, _ in rows(list(patient.read(0, 36, 39)))] == [36, 37, 38]
            producer.abort_transaction(30)

    def test_compacted_offsets_are_told(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(
            name,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_ms="500",
            max_compaction_lag_ms="1",
        )
        for number in range(3):
            tiered.produce(name, 30, seed=number, batch=7)
            time.sleep(0.6)
        tiered.produce(name, 1)

        def is_compacted() -> bool:
            """Return whether the disk lacks offsets, and the broker serves what it has."""
            found.clear()
            # The broker may replace a file while it is read.
            with suppress(MetadataError, CorruptInputError):
                found.extend((whole(topic), on_disk(tiered, name)))
            return len(found) == 2 and bool(missing(found[1])) and rows(found[0]) == rows(found[1])

        topic = on(tiered, name)
        found: list[list[RecordChunk]] = []
        tiered.wait_for("compaction", is_compacted, timeout_s=60)
        chunks, disk = found
        assert {offset for low, high, _ in missing(chunks) for offset in range(low, high)} == {
            offset for low, high, _ in missing(disk) for offset in range(low, high)
        }
        assert all(is_gap for _, _, is_gap in missing(chunks))

    def test_a_beginning_that_was_deleted(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name)
        tiered.produce(name, 10)
        tiered.delete_records(name, 0, 4)
        topic = on(tiered, name)
        assert (topic.beginning_offsets(), topic.end_offsets()) == ({0: 4}, {0: 10})
        assert [offset for offset, _, _ in rows(whole(topic))] == list(range(4, 10))
        with pytest.raises(MetadataError, match="offset 2 no longer exists"):
            list(topic.read(0, 2, 10))

    def test_an_end_that_never_comes_is_a_stall_with_facts(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name)
        tiered.produce(name, 3)
        topic = on(tiered, name, stall_timeout_ms=1500)
        with pytest.raises(MetadataError, match=r"no data arrived for 1500 ms at offset 3, and the end is 9"):
            list(topic.read(0, 0, 9))


CONNECTIONS_MAX = 20_000
"""A client that connects again at once begins 8,000 a second; tests that run at the same time, some 400."""


def opened_connections() -> int:
    """Return how many TCP connections the processes of this machine have begun."""
    names, values = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if "Tcp:" in line
    ]
    return int(values[names.index("ActiveOpens")])


def publish_while_it_goes(broker: Broker, manager: TopicBasedRemoteLogMetadataManager) -> None:
    """Stop the broker between the client's metadata refresh and the append."""
    publisher: Any = manager._topic._publisher  # type: ignore[attr-defined]
    append = publisher.append
    publisher.append = lambda records: broker.stop() or append(records)
    with pytest.raises(MetadataWriteUnknown, match="0 were acknowledged") as caught:
        manager.publish([update(77)])
    assert caught.value.exit_code == 5
    manager.close()


def ask_while_it_is_away(cluster: Cluster, partition: TopicPartition) -> None:
    """Check that each request ends, and that its client connects a few times a second until then.

    The client of `cluster` keeps the broker, as it does if only some of several are down.
    """
    before = opened_connections()
    for call in (
        cluster.cluster_id,
        lambda: cluster.partition_offsets([partition]),
        lambda: cluster.leader_epochs(partition),
    ):
        began = time.monotonic()
        with pytest.raises(MetadataError) as caught:
            call()
        assert caught.value.exit_code is ExitCode.RETRYABLE
        assert time.monotonic() - began < 15
    assert opened_connections() - before < CONNECTIONS_MAX
    cluster.close()


def test_a_broker_that_goes_away_and_comes_back(
    brokers: Brokers, on: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read and a publication go on, requests of less patience end, and damage on its disk is passed."""
    monkeypatch.setattr(topic_client, "CHUNK_RECORDS_MAX", 40)
    configuration = librdkafka.configuration
    broker = brokers.disturbed()
    for name, partitions in (("read", 1), ("written", 2), ("damaged", 1)):
        broker.create_topic(name, partitions)
    read, written, damaged = (on(broker, name) for name in ("read", "written", "damaged"))
    sent = [b"%d" % number * 300 for number in range(3000)]
    read.append([(0, value) for value in sent])
    reading = read.read(0, 0, read.end_offsets()[0])
    chunks = [next(reading)]
    for number in range(6):
        damaged.append([(0, b"record %d, %d" % (number, each)) for each in range(3)])
    written.append([(0, b"first")])
    with monkeypatch.context() as patch:
        patch.setattr(
            librdkafka,
            "configuration",
            lambda *given: {**configuration(*given), "metadata.recovery.strategy": "none"},
        )
        asked = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": "1500"}
        cluster = Cluster(ClientSettings.from_properties(asked))
        partition = TopicPartition("written", 0)
        assert cluster.partition_offsets([partition])[partition].high_watermark == 1
    uri, impatient, event = f"kafka://{broker.bootstrap}", tmp_path / "client.properties", started(77)
    impatient.write_text("delivery.timeout.ms=1000\nrequest.timeout.ms=5000\n")
    first = manager_at(uri, writable=True)
    first.publish([event])
    first.close()
    manager = manager_at(uri, writable=True, command_config=impatient)
    manager.refresh()

    publish_while_it_goes(broker, manager)
    ask_while_it_is_away(cluster, partition)
    path = broker.log_dir / "damaged-0" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"record 2, 1", b"record X, 1").replace(b"record 5, 2", b"record Y, 2"))
    wave = [(number % 2, b"%d" % number) for number in range(5000)]
    found: list[int] = []
    worker = threading.Thread(target=lambda: found.extend(written.append(wave)))
    # The client first refreshes the topic's metadata, so the publication begins before the broker is back.
    worker.start()
    time.sleep(0.5)
    broker.start()
    worker.join(90)

    assert len(found) == len(wave)
    assert values(whole(written)) == [b"first", *(value for number, value in wave if number == 0)]
    assert values(whole(written, 1)) == [value for number, value in wave if number == 1]
    chunks += reading
    assert values(chunks) == sent
    assert missing(chunks) == []
    chunks = whole(damaged)
    lost = {offset for low, high, _ in missing(chunks) for offset in range(low, high)}
    assert lost == {6, 7, 8, 15, 16, 17}
    assert [offset for offset, _, _ in rows(chunks)] == [n for n in range(18) if n not in lost]
    assert not any(is_gap for _, _, is_gap in missing(chunks))
    assert chunks[-1].next_offset == 18
    again = manager_at(uri, writable=True)
    again.refresh()
    again.publish([update(77)])
    segments = again.state.segments_of(event.topic_id_partition)
    assert [s.state for s in segments if s.segment_id == segment_id(77)] == [FINISHED]
    again.close()
