"""Answers of a cluster, compared with Kafka's own tools and the brokers' files."""

import base64
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.leader_log import LATEST_TIERED, lineage_of
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import EpochEntry, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.events import ZERO_UUID
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.support.broker import NODE_ID, Broker, Brokers

BROKERS = [pytest.mark.kafka, pytest.mark.slow]
NOBODYS_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")


@pytest.fixture(scope="module")
def tiered(broker: Broker) -> Broker:
    if "facts" not in broker.admin.list_topics(timeout=10).topics:
        broker.create_topic("facts", 2, tiered=True, retention_ms="3600000")
        broker.produce("facts", 3500)
        broker.produce("facts", 2500, partition=1)
        broker.create_topic("local-facts", retention_bytes="-1")
        broker.produce("local-facts", 100)
        broker.await_idle()
        broker.delete_records("facts", 1, 1200)
    return broker


@pytest.fixture
def cluster(tiered: Broker) -> Iterator[Cluster]:
    found = Cluster(ClientSettings.of(tiered.bootstrap))
    yield found
    found.close()


class TestFacts:
    pytestmark = BROKERS

    def test_offsets_are_those_of_get_offset_shell(self, tiered: Broker, cluster: Cluster) -> None:
        with tiered.transaction("local-facts", 5, transactional_id="open-local-facts") as producer:
            partitions = [
                TopicPartition("facts", 0),
                TopicPartition("facts", 1),
                TopicPartition("local-facts", 0),
            ]
            found = cluster.partition_offsets(partitions)
            for time_spec, field in (
                ("earliest-local", "local_log_start_offset"),
                ("latest-tiered", "latest_tiered_offset"),
            ):
                answers = tiered.offsets(time_spec, "facts", "local-facts")
                for partition, offsets in found.items():
                    answer = answers.get((partition.topic, partition.partition), -1)
                    ours = getattr(offsets, field)
                    assert (-1 if ours is None else ours) == answer, (time_spec, partition)
            producer.abort_transaction(30)
        whole, facts, local = (found[partition] for partition in partitions)
        assert (whole.log_start_offset, whole.high_watermark) == (0, 3500)
        assert facts.log_start_offset == 1200
        assert facts.latest_tiered_offset is not None
        assert facts.log_start_offset < (facts.local_log_start_offset or 0) <= facts.latest_tiered_offset + 1
        assert local.latest_tiered_offset is None
        # The open transaction limits the last stable offset.
        assert local.high_watermark - local.last_stable_offset == 5
        assert facts.last_stable_offset == facts.high_watermark == 2500

    def test_logs(self, tiered: Broker, cluster: Cluster) -> None:
        facts = cluster.topics(["facts"])["facts"]
        logs = cluster.logs(facts.topic_id_partitions)
        assert [log.topic_id_partition for log in logs] == list(facts.topic_id_partitions)
        for log in logs:
            folder = tiered.log_dir / str(log.topic_partition)
            on_disk = read_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())
            assert log.leader_epochs == on_disk
            assert log.local_log_bytes == sum(path.stat().st_size for path in folder.glob("*.log"))
            assert log.leader == NODE_ID
            bases = sorted(int(path.stem) for path in folder.glob("*.log"))
            assert log.local_log_start_offset == bases[0]
            # Here all local records lie above the tier, so the size is that of the files.
            assert log.latest_tiered_offset == bases[0] - 1
            measured = cluster.leaders.batch_bytes(
                log.topic_partition, bases[0], log.high_watermark, bytes_max=1 << 30
            )
            assert measured == log.local_log_bytes
        part, start = logs[0].topic_partition, logs[0].local_log_start_offset
        some = cluster.leaders.batch_bytes(part, start, logs[0].high_watermark, bytes_max=1)
        assert 1 < some <= (logs[0].local_log_bytes or 0)

    def test_topics_ids_and_leaders(self, tiered: Broker, cluster: Cluster) -> None:
        topics = cluster.topics()
        assert topics["facts"].topic_id == tiered.topic_id("facts")
        assert topics[METADATA_TOPIC].topic_id == tiered.topic_id(METADATA_TOPIC)
        assert [(p.partition, p.leader, p.replicas, p.in_sync) for p in topics["facts"].partitions] == [
            (number, NODE_ID, (NODE_ID,), (NODE_ID,)) for number in range(2)
        ]
        assert set(topics) == set(tiered.admin.list_topics(timeout=10).topics)
        # Brokers refuse a name that is not legal, such as one in a foreign record, instead of not knowing it.
        assert cluster.topics(["facts", "no-such", "a/b", "", "x" * 250]).keys() == {"facts"}
        assert cluster.topics([]) == {}
        written = (tiered.log_dir / "facts-0" / "partition.metadata").read_text()
        assert f"topic_id: {topics['facts'].topic_id}" in written

    def test_ids_that_nobody_knows(self, tiered: Broker, cluster: Cluster) -> None:
        name = f"recreated-{time.time_ns()}"
        old = tiered.create_topic(name)
        assert cluster.leaders.unknown_topic_ids([old, NOBODYS_ID]) == {NOBODYS_ID}
        tiered.delete_topic(name)
        new = tiered.create_topic(name)
        assert cluster.leaders.unknown_topic_ids([old, new]) == {old}
        assert cluster.leaders.unknown_topic_ids([old, new], by_any=True) == {old}
        assert cluster.leaders.unknown_topic_ids([]) == frozenset()
        # The id 0 is missing in the answers.
        assert cluster.leaders.unknown_topic_ids([ZERO_UUID, NOBODYS_ID]) == {NOBODYS_ID}
        with pytest.raises(NotFoundError, match=f"of id {old}"):
            cluster.logs([TopicIdPartition(old, name, 0)])

    def test_the_version_of_the_brokers(self, tiered: Broker, cluster: Cluster) -> None:
        version = KafkaVersion.parse(tiered.release.version)
        assert cluster.kafka_version() == version
        assert {config.kafka_version for config in cluster.topic_configs(["facts"]).values()} == {version}

    def test_settings(self, cluster: Cluster) -> None:
        configs = cluster.topic_configs(["facts", "local-facts"])
        facts = configs["facts"]
        assert (facts.retention_ms, facts.retention_bytes) == (3_600_000, -1)
        assert facts.remote_storage_enable is True
        assert facts.cleanup_policy == {"delete"}
        # The default value of a setting does not show what the operator wants.
        assert configs["local-facts"].remote_storage_enable is None
        (broker,) = cluster.brokers()
        assert (broker.broker_id, broker.tiers, broker.unreadable) == (NODE_ID, True, None)
        with pytest.raises(NotFoundError):
            cluster.topic_configs(["no-such"])

    def test_delete_records(self, tiered: Broker, cluster: Cluster) -> None:
        name = f"cut-{time.time_ns()}"
        tiered.create_topic(name, 2)
        tiered.produce(name, 50)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        assert cluster.delete_records({first: 20, second: 0}) == {first: 20, second: 0}
        assert cluster.partition_offsets([first])[first].log_start_offset == 20
        # DeleteRecords never lowers a log start.
        assert cluster.delete_records({first: 10}) == {first: 20}
        with pytest.raises(UsageError, match="above its high watermark"):
            cluster.delete_records({first: 51})
        assert cluster.delete_records({}) == {}

    def test_what_is_not_there(self, cluster: Cluster) -> None:
        for partition in (TopicPartition("no-such", 0), TopicPartition("facts", 9)):
            for call in (
                lambda p=partition: cluster.partition_offsets([p]),
                lambda p=partition: cluster.leader_epochs(p),
                lambda p=partition: cluster.leaders.offsets([p], LATEST_TIERED),
            ):
                with pytest.raises(NotFoundError) as caught:
                    call()
                assert caught.value.exit_code is ExitCode.NOT_FOUND


@pytest.mark.kafka
@pytest.mark.slow
def test_a_cluster_without_tiering(brokers: Brokers) -> None:
    broker = brokers.shared(tiered=False)
    name = f"plain-{time.time_ns()}"
    topic_id = broker.create_topic(name)
    broker.produce(name, 10)
    cluster = Cluster(ClientSettings.of(f"kafka://{broker.bootstrap}"))
    try:
        assert [found.tiers for found in cluster.brokers()] == [False]
        (log,) = cluster.logs([TopicIdPartition(topic_id, name, 0)])
        assert (log.log_start_offset, log.local_log_start_offset, log.high_watermark) == (0, 0, 10)
        assert log.latest_tiered_offset is None
        assert log.leader_epochs == (EpochEntry(0, 0),)
    finally:
        cluster.close()


@pytest.mark.matrix
@pytest.mark.kafka
@pytest.mark.slow
def test_epochs_after_restarts_and_deletes_are_the_brokers_own(brokers: Brokers) -> None:
    broker = brokers.own(tiered=False)
    try:
        topic_id = broker.create_topic("lineage")
        broker.produce("lineage", 10)
        partition = TopicPartition("lineage", 0)
        checkpoint = broker.log_dir / "lineage-0" / "leader-epoch-checkpoint"
        cluster = Cluster(ClientSettings.of(broker.bootstrap))
        assert cluster.leader_epochs(partition) == (EpochEntry(0, 0),)
        broker.restart()
        broker.produce("lineage", 20)
        # The same clients reconnect.
        assert cluster.leader_epochs(partition)[-1].start_offset == 10
        # A leader epoch without records.
        broker.restart()
        for before in (None, 5, 15, 30):
            if before is not None:
                broker.delete_records("lineage", 0, before)
            ours = cluster.leader_epochs(partition)
            # Brokers write the checkpoint a moment after they responded.
            broker.wait_for(
                "the same on disk",
                lambda ours=ours: ours == read_leader_epoch_checkpoint(checkpoint.read_bytes()),  # type: ignore[misc]
                timeout_s=20,
            )
            assert len(ours) >= 1
        (log,) = cluster.logs([TopicIdPartition(topic_id, "lineage", 0)])
        assert log.log_start_offset == 30
        cluster.close()
    finally:
        broker.stop()


class TestLineage:
    """`lineage_of` compared with a leader's epoch cache (after LeaderEpochFileCache.endOffsetFor)."""

    @staticmethod
    def ends(entries: list[EpochEntry], log_end: int, latest: int) -> dict[int, tuple[int, int]]:
        answers = {}
        for asked in range(latest + 1):
            if entries and asked == entries[-1].epoch:
                answers[asked] = (asked, log_end)
                continue
            higher = [entry for entry in entries if entry.epoch > asked]
            lower = [entry for entry in entries if entry.epoch <= asked]
            if not higher:
                answers[asked] = (-1, -1)
            else:
                answers[asked] = (lower[-1].epoch if lower else asked, higher[0].start_offset)
        return answers

    @given(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), max_size=12),
        st.integers(0, 3),
        st.integers(0, 100),
        st.integers(0, 3),
    )
    def test_any(self, steps: list[tuple[int, int]], first: int, start: int, later: int) -> None:
        entries, epoch, offset = [], first, start
        for epochs, offsets in steps:
            entries.append(EpochEntry(epoch, offset))
            epoch, offset = epoch + epochs, offset + offsets
        latest = (entries[-1].epoch if entries else 0) + later
        assert lineage_of(self.ends(entries, offset, latest), start) == tuple(entries)


def test_uuids_print_as_kafkas() -> None:
    from confluent_kafka import Uuid as Theirs
    from tierctl.kafka.topic_client import uuid_of

    for raw in (b"\xff" * 16, b"\x00" * 15 + b"\x01", bytes(range(16)), b"\x80" + b"\x7f" * 15):
        most, least = (int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:]))
        found = uuid_of(Theirs(most, least))
        assert found == base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
