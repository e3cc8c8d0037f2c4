"""The metadata topic on real brokers: what they wrote is read, what is appended they read."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tierctl.errors import (
    MetadataError,
    MetadataWriteFailed,
    MetadataWriteUnknown,
    NotFoundError,
    SafetyRefusal,
    UsageError,
)
from tierctl.locallog import read_log_dirs
from tierctl.metadata import open_metadata, open_metadata_topic, topic_reader
from tierctl.metadata.base import METADATA_TOPIC, MetadataChunk, MetadataTopic, RemoteLogMetadataManager
from tierctl.metadata.client_settings import ClientSettings
from tierctl.metadata.log_on_disk import MetadataLogOnDisk
from tierctl.metadata.partition_log import PartitionLog
from tierctl.metadata.topic_on_cluster import MetadataTopicOnCluster
from tierctl.metadata.topic_settings import MetadataClients, MetadataTopicSettings
from tierctl.model import (
    EpochEntry,
    LocalLog,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicPartition,
)
from tierctl.plan.copy import plan_copy
from tierctl.storage import open_remote
from tierctl.storage.base import RemoteStorageManager
from tierctl.wire.checkpoints import read_offset_checkpoint, write_leader_epoch_checkpoint

from tests.broker import METADATA_PARTITIONS, Broker, Brokers
from tests.metadata.events import FINISHED, segment_id, started, update

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Open = Callable[..., MetadataTopicOnCluster]


@pytest.fixture
def on(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a topic of a broker for writing; closed with the test."""
    opened: list[MetadataTopicOnCluster] = []

    def open_topic(
        broker: Broker, topic: str = METADATA_TOPIC, *, make: MetadataTopicSettings | None = None, **more: int
    ) -> MetadataTopicOnCluster:
        settings = ClientSettings(bootstrap_servers=(broker.bootstrap,), **more)
        found = MetadataTopicOnCluster(MetadataClients.same(settings), topic=topic, writable=True, make=make)
        opened.append(found)
        return found

    yield open_topic
    for topic in opened:
        topic.close()


@pytest.fixture(scope="module")
def alone(brokers: Brokers) -> Iterator[Broker]:
    """A broker that the tests of this module stop and start."""
    broker = brokers.own("4.3.0")
    yield broker
    broker.stop()


def name_of(request: pytest.FixtureRequest) -> str:
    return "t-" + request.node.name.translate(dict.fromkeys(map(ord, "[]"), "-")).lower()


def rows(chunks: Sequence[MetadataChunk]) -> list[tuple[int, int, bytes | None]]:
    """(offset, timestamp, value) of every record."""
    return [
        row
        for chunk in chunks
        for row in zip(
            chunk.offsets.tolist(), chunk.timestamps_ms.tolist(), chunk.values.to_pylist(), strict=True
        )
    ]


def missing(chunks: Sequence[MetadataChunk]) -> list[tuple[int, int, bool]]:
    return [(bad.offset, bad.next_offset, bad.is_gap) for chunk in chunks for bad in chunk.bad]


def values(chunks: Sequence[MetadataChunk]) -> list[bytes | None]:
    return [value for _, _, value in rows(chunks)]


def bases(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.log")]


def checkpointed(broker: Broker, topic: str) -> int | None:
    """The high watermark that the broker has written down for partition 0."""
    text = (broker.log_dir / "replication-offset-checkpoint").read_bytes()
    return read_offset_checkpoint(text).get(TopicPartition(topic, 0))


def whole(topic: MetadataTopic, partition: int = 0) -> list[MetadataChunk]:
    return list(topic.read(partition, topic.beginning_offsets()[partition], topic.end_offsets()[partition]))


def on_disk(broker: Broker, topic: str, partition: int = 0) -> list[MetadataChunk]:
    """The same partition of any topic, by the reader of log directories."""
    log = PartitionLog(broker.log_dir / f"{topic}-{partition}", partition)
    return list(log.read(0, log.end_offset()))


@pytest.fixture(scope="module", params=["4.3.0", "3.9.1"])
def tiered(request: pytest.FixtureRequest, brokers: Brokers) -> Broker:
    """A shared broker that has tiered something."""
    broker = brokers.shared(request.param)
    if "tiered-a" not in broker.admin.list_topics(timeout=10).topics:
        broker.create_topic("tiered-a", 2, tiered=True)
        broker.produce("tiered-a", 3500)
        broker.produce("tiered-a", 2500, partition=1)
        broker.await_idle()
    return broker


class TestWhatBrokersWrote:
    def test_reads_the_same_as_the_log_on_disk(self, tiered: Broker, on: Open) -> None:
        topic, disk = on(tiered), MetadataLogOnDisk(tiered.log_dir)
        ends = topic.end_offsets()
        assert (topic.partition_count, topic.topic_id) == (METADATA_PARTITIONS, disk.topic_id)
        assert sum(ends.values()) >= 10
        for partition, end in ends.items():
            ours, theirs = (list(log.read(partition, 0, end)) for log in (topic, disk))
            assert rows(ours) == rows(theirs)
            assert [offset for offset, _, _ in rows(ours)] == list(range(end))
            assert missing(ours) == []
            assert not ours or ours[-1].next_offset == end

    def test_any_range(self, tiered: Broker, on: Open) -> None:
        topic = on(tiered)
        partition, end = max(topic.end_offsets().items(), key=lambda item: item[1])
        everything = rows(list(topic.read(partition, 0, end)))
        for low in range(end + 1):
            for high in (low, low + 1, end):
                chunks = list(topic.read(partition, low, min(high, end)))
                assert rows(chunks) == everything[low : min(high, end)]

    def test_segments_are_those_in_the_store(self, tiered: Broker, tmp_path: Path) -> None:
        manager = open_metadata(f"kafka://{tiered.bootstrap}", state_dir=tmp_path / "state")
        state = manager.refresh()
        manager.close()
        topic_id = tiered.topic_id("tiered-a")
        known = {
            f"{segment.start_offset:020d}-{segment.segment_id}.log"
            for part in state
            for segment in part.cache.list_remote_log_segments()
            if part.topic_id_partition.topic_id == topic_id
        }
        stored = {path.name for path in tiered.remote_dir.glob(f"*/tiered-a-*-{topic_id}/*.log")}
        assert known == stored
        assert len(stored) >= 4
        assert state.quarantined == []

        again = open_metadata(f"kafka://{tiered.bootstrap}", state_dir=tmp_path / "state")
        assert dict(again.refresh().read) == dict(state.read)
        again.close()

    def test_a_brokers_own_settings_lead_there(self, tiered: Broker) -> None:
        topic = open_metadata_topic("kafka://", server_config=tiered.properties)
        assert topic.partition_count == METADATA_PARTITIONS
        with pytest.raises(MetadataError, match="opened for reading only"):
            topic.append([(0, b"x")])
        topic.close()


def copy_by_hand(log: LocalLog, remote: RemoteStorageManager, manager: RemoteLogMetadataManager) -> int:
    """Copy what may be copied, and publish it as a broker does; returns the last offset."""
    plan = plan_copy(manager.refresh(), [log], {})
    for number, step in enumerate(plan.steps):
        found = step.details
        metadata = RemoteLogSegmentMetadata(
            topic=log.topic_id_partition.topic,
            topic_id=log.topic_id_partition.topic_id,
            partition=log.topic_id_partition.partition,
            segment_id=segment_id(1000 + number),
            start_offset=step.start_offset or 0,
            end_offset=step.end_offset or 0,
            broker_id=-1,
            max_timestamp_ms=found["max_timestamp_ms"],
            event_timestamp_ms=found["max_timestamp_ms"],
            segment_leader_epochs=tuple((epoch, start) for epoch, start in found["segment_leader_epochs"]),
            segment_size_in_bytes=found["segment_size_in_bytes"],
            txn_index_empty=found["txn_index_empty"],
        )
        epochs = [EpochEntry(*entry) for entry in found["leader_epoch_checkpoint"]]
        data = LogSegmentData(
            log_segment=Path(found["log"]),
            offset_index=Path(found["offset_index"]),
            time_index=Path(found["time_index"]),
            transaction_index=None,
            producer_snapshot_index=Path(found["producer_snapshot"]),
            leader_epoch_index=write_leader_epoch_checkpoint(epochs),
        )
        manager.add_remote_log_segment_metadata(metadata)
        remote.copy_log_segment_data(metadata, data)
        finished = RemoteLogSegmentMetadataUpdate(
            topic=metadata.topic,
            topic_id=metadata.topic_id,
            partition=metadata.partition,
            segment_id=metadata.segment_id,
            broker_id=-1,
            event_timestamp_ms=metadata.event_timestamp_ms,
            state=FINISHED,
        )
        manager.update_remote_log_segment_metadata(finished)
    return plan.steps[-1].end_offset or 0


class TestPublishing:
    def test_a_running_broker_adopts_what_was_published(
        self, tiered: Broker, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        topic_id = tiered.create_topic(name)
        tiered.produce(name, 3500)
        before = tiered.records(name)
        folder = tiered.log_dir / f"{name}-0"
        # Brokers write their checkpoints every few seconds; until then nothing counts as stable.
        tiered.wait_for("the high watermark's checkpoint", lambda: checkpointed(tiered, name) == 3500)
        (log,) = read_log_dirs([tiered.log_dir], select=lambda partition: partition.topic == name)
        manager = open_metadata(f"kafka://{tiered.bootstrap}", writable=True)
        copied = copy_by_hand(log, open_remote(tiered.remote_dir.as_uri(), layout="kafka"), manager)
        manager.close()
        objects = {path.name for path in tiered.remote_dir.glob(f"*/{name}-0-{topic_id}/*")}

        tiered.alter_topic(name, remote_storage_enable="true", local_retention_bytes="1")
        tiered.wait_for("the local copies to go", lambda: min(bases(folder)) == copied + 1)
        assert tiered.offsets("latest-tiered", name) == {(name, 0): copied}
        assert tiered.records(name) == before
        # It copied none of them again.
        assert {path.name for path in tiered.remote_dir.glob(f"*/{name}-0-{topic_id}/*")} == objects

    def test_own_events_are_read_back(self, tiered: Broker, tmp_path: Path) -> None:
        event = started(5, topic="published", partition=3)
        uri = f"kafka://{tiered.bootstrap}"
        manager = open_metadata(uri, writable=True, state_dir=tmp_path / "state")
        manager.add_remote_log_segment_metadata(event)
        segments = list(manager.list_remote_log_segments(event.topic_id_partition))
        manager.close()
        assert event in segments

        other = open_metadata(uri)
        other.refresh()
        assert event in list(other.list_remote_log_segments(event.topic_id_partition))
        other.close()

    def test_records_are_as_brokers_write_them(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name, 2)
        topic = on(tiered, name)
        wave = [(number % 2, b"value-%d" % number) for number in range(200)]
        assert topic.append(wave) == [number // 2 for number in range(200)]
        assert topic.append(wave[:3]) == [100, 100, 101]
        assert topic.append([]) == []
        assert [value for _, _, _, value in tiered.records(name)] == [
            v for p, v in [*wave, *wave[:3]] if p == 0
        ]
        assert all(key is None for _, _, key, _ in tiered.records(name))
        log = (tiered.log_dir / f"{name}-0" / f"{0:020d}.log").read_bytes()
        from tierctl.wire.records import scan

        heads = list(scan(log))
        assert not any(head.is_transactional or head.is_control for head in heads)
        assert all(head.producer_id >= 0 and head.base_sequence >= 0 for head in heads)

    def test_refused_as_a_whole(self, tiered: Broker, on: Open, request: pytest.FixtureRequest) -> None:
        name = name_of(request)
        tiered.create_topic(name, max_message_bytes="2000")
        topic = on(tiered, name)
        with pytest.raises(MetadataWriteFailed, match="none was written"):
            topic.append([(0, b"x" * 5000)])
        assert topic.append([(0, b"small")]) == [0]
        with pytest.raises(MetadataWriteFailed, match="none was written"):
            topic.append([(0, b"x" * (2 << 20))])
        assert topic.append([(0, b"small")]) == [1]
        assert values(whole(topic)) == [b"small", b"small"]

    def test_many_threads(self, tiered: Broker, on: Open, request: pytest.FixtureRequest) -> None:
        name = name_of(request)
        tiered.create_topic(name, 4)
        topic = on(tiered, name)
        offsets: dict[int, list[int]] = {}

        def work(partition: int) -> None:
            mine = []
            for number in range(10):
                mine += topic.append([(partition, b"%d" % number)] * 5)
                assert len(rows(list(topic.read(partition, 0, mine[-1] + 1)))) == len(mine)
            offsets[partition] = mine

        threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert offsets == {partition: list(range(50)) for partition in range(4)}


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
        # Markers are written after the producer was told that its transaction ended.
        tiered.wait_for("the last marker", lambda: topic.end_offsets()[0] == 4 * 8 + 4)
        chunks = whole(topic)
        assert missing(chunks) == []
        assert rows(chunks) == rows(on_disk(tiered, name))
        assert len(rows(chunks)) == 4 * 7 + 3
        assert chunks[-1].next_offset == 4 * 8 + 4
        # Ranges that are nothing but a control record.
        for offset in set(range(36)) - {offset for offset, _, _ in rows(chunks)}:
            (control,) = topic.read(0, offset, offset + 1)
            assert (rows([control]), control.next_offset, control.bad) == ([], offset + 1, ())
        # Nor does a transaction that is still open hold anything back.
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
        with pytest.raises(MetadataError, match="offset 2 is not there any more"):
            list(topic.read(0, 2, 10))

    def test_an_end_that_never_comes_is_a_stall_with_facts(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name)
        tiered.produce(name, 3)
        topic = on(tiered, name, stall_timeout_ms=1500)
        with pytest.raises(MetadataError, match=r"nothing came for 1500 ms at offset 3, and the end is 9"):
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


class TestTheTopicItself:
    def test_missing(self, brokers: Brokers) -> None:
        broker = brokers.shared("4.3.0", tiered=False)
        with pytest.raises(NotFoundError, match="has no topic __remote_log_metadata") as caught:
            open_metadata(f"kafka://{broker.bootstrap}")
        assert "is this the cluster" in str(caught.value.hint)
        assert METADATA_TOPIC not in broker.admin.list_topics(timeout=10).topics

    def test_made_on_request_as_brokers_make_it(self, brokers: Brokers, tmp_path: Path) -> None:
        broker = brokers.shared("4.3.0", tiered=False)
        config = tmp_path / "server.properties"
        prefix = "rlmm.config.remote.log.metadata.topic"
        config.write_text(
            f"{prefix}.num.partitions=3\n{prefix}.replication.factor=1\n{prefix}.min.isr=1\n"
            f"{prefix}.retention.ms=-1\n"
        )
        uri = f"kafka://{broker.bootstrap}"
        topic = open_metadata_topic(uri, server_config=config, make_topic=True)
        try:
            assert topic.partition_count == 3
            again = open_metadata_topic(uri, server_config=config, make_topic=True)
            assert again.topic_id == topic.topic_id == broker.topic_id(METADATA_TOPIC)
            settings = broker.topic_settings(METADATA_TOPIC)
            wanted = ("cleanup.policy", "retention.ms", "min.insync.replicas", "remote.storage.enable")
            assert [settings[key] for key in wanted] == ["delete", "-1", "1", "false"]
            again.close()
            config.write_text(f"{prefix}.num.partitions=4\n")
            with pytest.raises(SafetyRefusal, match="has 3 partitions, expected are 4"):
                open_metadata_topic(uri, server_config=config)
        finally:
            topic.close()
            broker.delete_topic(METADATA_TOPIC)

    def test_a_count_or_id_that_changes_stops_everything(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest
    ) -> None:
        name = name_of(request)
        tiered.create_topic(name, 2)
        topic = on(tiered, name)
        topic.append([(1, b"x")])
        tiered.add_partitions(name, 3)
        for call in (topic.end_offsets, lambda: topic.append([(0, b"x")])):
            with pytest.raises(SafetyRefusal, match=r"3 partitions now; it had .* and 2"):
                call()
        tiered.delete_topic(name)
        with pytest.raises(NotFoundError):
            topic.end_offsets()
        tiered.create_topic(name, 2)
        with pytest.raises(SafetyRefusal, match="has id"):
            topic.append([(0, b"x")])

    def test_nobody_there(self, tmp_path: Path) -> None:
        config = tmp_path / "client.properties"
        config.write_text("request.timeout.ms=1500\n")
        began = time.monotonic()
        with pytest.raises(MetadataError) as caught:
            open_metadata("kafka://localhost:1", command_config=config)
        assert "refused" in caught.value.message
        assert time.monotonic() - began < 10
        assert caught.value.exit_code == 5

    @pytest.mark.parametrize(
        "uri",
        [
            "kafka://nowhere",
            "kafka://a:1/topic",
            "kafka://",
            "redis://a:1",
            "kafka://[::1",
            "kafka://u:pw@a:1",
        ],
    )
    def test_no_address(self, uri: str) -> None:
        with pytest.raises(UsageError) as caught:
            open_metadata(uri)
        assert "pw" not in caught.value.message


class TestRestarts:
    def test_mid_read(
        self, alone: Broker, on: Open, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(topic_reader, "CHUNK_RECORDS_MAX", 40)
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
        # What was known of the topic is asked again first, so the wave begins before the broker is back.
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
        manager = open_metadata(uri, writable=True, command_config=config)
        manager.add_remote_log_segment_metadata(event)
        # The broker goes away between the look at the topic and the append.
        publisher = manager._topic._publisher  # type: ignore[attr-defined]
        append = publisher.append
        monkeypatch.setattr(publisher, "append", lambda records: alone.stop() or append(records))
        with pytest.raises(MetadataWriteUnknown, match="0 were acknowledged") as caught:
            manager.publish([update(77)])
        assert caught.value.exit_code == 5
        monkeypatch.undo()
        manager.close()
        alone.start()

        again = open_metadata(uri, writable=True)
        again.refresh()
        again.publish([update(77)])
        (found,) = [
            segment
            for segment in again.list_remote_log_segments(event.topic_id_partition)
            if segment.segment_id == segment_id(77)
        ]
        assert found.state is FINISHED
        again.close()
