"""Read a topic of a real broker: missing records are reported, and a broker restart has no effect."""

import threading
import time
from pathlib import Path

import pytest
from tierctl.errors import (
    MetadataError,
    MetadataWriteUnknown,
)
from tierctl.kafka import topic_client

from tests.kafka.cluster_topics import Open, missing, name_of, on_disk, rows, values, whole
from tests.metadata.events import FINISHED, segment_id, started, update
from tests.metadata.topics import manager_at
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def alone(brokers: Brokers) -> Broker:
    """Return a broker that tests stop and start."""
    return brokers.disturbed()


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
        tiered.wait_for("compaction", lambda: bool(missing(on_disk(tiered, name))), timeout_s=60)
        time.sleep(2)
        chunks, disk = whole(on(tiered, name)), on_disk(tiered, name)
        assert rows(chunks) == rows(disk)
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

    def test_damage_on_the_brokers_disk_is_told_and_passed(
        self, alone: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        alone.create_topic(name)
        topic = on(alone, name)
        for number in range(6):
            topic.append([(0, b"record %d, %d" % (number, each)) for each in range(3)])
        alone.stop()
        path = alone.log_dir / f"{name}-0" / f"{0:020d}.log"
        data = path.read_bytes()
        path.write_bytes(data.replace(b"record 2, 1", b"record X, 1").replace(b"record 5, 2", b"record Y, 2"))
        alone.start()
        chunks = whole(topic)
        lost = {offset for low, high, _ in missing(chunks) for offset in range(low, high)}
        assert lost == {6, 7, 8, 15, 16, 17}
        assert [offset for offset, _, _ in rows(chunks)] == [n for n in range(18) if n not in lost]
        assert not any(is_gap for _, _, is_gap in missing(chunks))
        assert chunks[-1].next_offset == 18


class TestRestarts:
    def test_mid_read(
        self, alone: Broker, on: Open, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(topic_client, "CHUNK_RECORDS_MAX", 40)
        name = name_of(request)
        alone.create_topic(name)
        topic = on(alone, name)
        sent = [b"%d" % number * 300 for number in range(3000)]
        topic.append([(0, value) for value in sent])
        reading = topic.read(0, 0, topic.end_offsets()[0])
        chunks = [next(reading)]
        alone.restart()
        chunks += reading
        assert values(chunks) == sent
        assert missing(chunks) == []

    def test_mid_append(self, alone: Broker, on: Open, request: pytest.FixtureRequest) -> None:
        name = name_of(request)
        alone.create_topic(name, 2)
        topic = on(alone, name)
        topic.append([(0, b"first")])
        wave = [(number % 2, b"%d" % number) for number in range(5000)]
        found: list[int] = []
        worker = threading.Thread(target=lambda: found.extend(topic.append(wave)))
        alone.stop()
        # The client first refreshes the topic's metadata, so the publication begins before the broker is
        # back.
        worker.start()
        time.sleep(0.5)
        alone.start()
        worker.join(90)
        assert len(found) == len(wave)
        expected = [b"first", *(value for partition, value in wave if partition == 0)]
        assert values(whole(topic)) == expected
        assert values(whole(topic, 1)) == [value for partition, value in wave if partition == 1]

    def test_no_acknowledgement_is_unknown_and_a_rerun_converges(
        self, alone: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = tmp_path / "client.properties"
        config.write_text("delivery.timeout.ms=1000\nrequest.timeout.ms=5000\n")
        uri = f"kafka://{alone.bootstrap}"
        event = started(77)
        first = manager_at(uri, writable=True)
        first.publish([event])
        first.close()
        manager = manager_at(uri, writable=True, command_config=config)
        manager.refresh()
        # The broker stops between the client's metadata refresh and the append.
        publisher = manager._topic._publisher  # type: ignore[attr-defined]
        append = publisher.append
        monkeypatch.setattr(publisher, "append", lambda records: alone.stop() or append(records))
        with pytest.raises(MetadataWriteUnknown, match="0 were acknowledged") as caught:
            manager.publish([update(77)])
        assert caught.value.exit_code == 5
        monkeypatch.undo()
        manager.close()
        alone.start()

        again = manager_at(uri, writable=True)
        again.refresh()
        again.publish([update(77)])
        (found,) = [
            segment
            for segment in again.state.segments_of(event.topic_id_partition)
            if segment.segment_id == segment_id(77)
        ]
        assert found.state is FINISHED
        again.close()
