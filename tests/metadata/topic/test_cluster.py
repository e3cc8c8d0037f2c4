"""The metadata topic on real brokers: tierctl reads their records, and they read tierctl's."""

import threading
import time
from pathlib import Path

import pytest
from tierctl.errors import MetadataError, MetadataWriteFailed, NotFoundError, SafetyRefusal
from tierctl.kafka import librdkafka
from tierctl.metadata.topic import METADATA_TOPIC, IfMissing, open_topic

from tests.kafka.cluster_topics import Open, missing, name_of, rows, values, whole
from tests.metadata.topics import at, manager_at, topic_in
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers
from tests.wire.batches.same import scan

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class TestWhatBrokersWrote:
    def test_reads_the_same_as_the_log_on_disk(self, tiered: Broker, on: Open) -> None:
        topic, disk = on(tiered), topic_in(tiered.log_dir)
        ends = topic.end_offsets()
        assert (topic.partition_count, topic.topic_id) == (METADATA_PARTITIONS, disk.topic_id)
        assert topic.identity() == disk.identity()
        assert None not in {topic.identity().cluster_id, topic.identity().metadata_topic_id}
        assert sum(ends.values()) >= 10
        for partition, end in ends.items():
            ours, theirs = (list(log.read(partition, 0, end)) for log in (topic, disk))
            assert rows(ours) == rows(theirs)
            assert [offset for offset, _, _ in rows(ours)] == list(range(end))
            assert missing(ours) == []
            assert not ours or ours[-1].next_offset == end
        partition, end = max(ends.items(), key=lambda item: item[1])
        everything = rows(list(disk.read(partition, 0, end)))
        for low in (0, 1, end // 2, end - 1, end):
            for high in (low, min(low + 1, end), end):
                assert rows(list(topic.read(partition, low, high))) == everything[low:high]

    def test_segments_are_those_in_the_store(self, tiered: Broker, tmp_path: Path) -> None:
        manager = manager_at(f"kafka://{tiered.bootstrap}", state_dir=tmp_path / "state")
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

        again = manager_at(f"kafka://{tiered.bootstrap}", state_dir=tmp_path / "state")
        assert dict(again.refresh().read) == dict(state.read)
        again.close()

    def test_a_brokers_own_settings_lead_there(self, tiered: Broker) -> None:
        topic = open_topic(at("kafka://", broker_config=tiered.properties))
        assert topic.partition_count == METADATA_PARTITIONS
        with pytest.raises(MetadataError, match="opened for reading only"):
            topic.append([(0, b"x")])
        topic.close()


class TestPublishing:
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


class TestTheTopicItself:
    def test_missing(self, brokers: Brokers) -> None:
        broker = brokers.shared(tiered=False)
        with pytest.raises(NotFoundError, match="has no topic __remote_log_metadata") as caught:
            manager_at(f"kafka://{broker.bootstrap}")
        assert "check that this is the cluster" in str(caught.value.hint)
        assert METADATA_TOPIC not in broker.admin.list_topics(timeout=10).topics

    def test_made_on_request_as_brokers_make_it(self, brokers: Brokers, tmp_path: Path) -> None:
        broker = brokers.shared(tiered=False)
        config = tmp_path / "server.properties"
        prefix = "rlmm.config.remote.log.metadata.topic"
        config.write_text(
            f"{prefix}.num.partitions=3\n{prefix}.replication.factor=1\n{prefix}.min.isr=1\n"
            f"{prefix}.retention.ms=-1\n"
        )
        uri = f"kafka://{broker.bootstrap}"
        topic = open_topic(at(uri, broker_config=config), if_missing=IfMissing.CREATE)
        try:
            assert topic.partition_count == 3
            again = open_topic(at(uri, broker_config=config), if_missing=IfMissing.CREATE)
            assert again.topic_id == topic.topic_id == broker.topic_id(METADATA_TOPIC)
            settings = broker.topic_settings(METADATA_TOPIC)
            wanted = ("cleanup.policy", "retention.ms", "min.insync.replicas", "remote.storage.enable")
            assert [settings[key] for key in wanted] == ["delete", "-1", "1", "false"]
            again.close()
            config.write_text(f"{prefix}.num.partitions=4\n")
            with pytest.raises(SafetyRefusal, match="has 3 partitions, expected are 4"):
                open_topic(at(uri, broker_config=config))
        finally:
            topic.close()
            broker.delete_topic(METADATA_TOPIC)

    def test_a_count_or_id_that_changes_stops_everything(
        self, tiered: Broker, on: Open, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(librdkafka, "_HEARING_S", 1)
        name = name_of(request)
        tiered.create_topic(name, 2)
        topic = on(tiered, name)
        topic.append([(1, b"x")])
        tiered.add_partitions(name, 3)
        calls = [topic.beginning_offsets, topic.end_offsets, lambda: topic.offsets_for_time([1], 0)]
        calls.append(lambda: topic.append([(0, b"x")]))
        for call in calls:
            with pytest.raises(SafetyRefusal, match=r"3 partitions now; it had .* and 2"):
                call()
        tiered.delete_topic(name)
        with pytest.raises(NotFoundError):
            topic.end_offsets()
        tiered.create_topic(name, 2)
        for call in calls:
            with pytest.raises(SafetyRefusal, match="has id"):
                call()

    def test_nobody_there(self, tmp_path: Path) -> None:
        config = tmp_path / "client.properties"
        config.write_text("request.timeout.ms=1500\n")
        began = time.monotonic()
        with pytest.raises(MetadataError) as caught:
            manager_at("kafka://localhost:1", command_config=config)
        assert "refused" in caught.value.message
        assert time.monotonic() - began < 10
        assert caught.value.exit_code == 5
