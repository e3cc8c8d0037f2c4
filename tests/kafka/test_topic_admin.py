"""Clients with fake answers: failures that librdkafka leaves to its user, groups, imports."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tierctl import kafka as sdk
from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, UsageError
from tierctl.kafka import leader_log, librdkafka, topic_client
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import Cluster, CommittedOffset
from tierctl.kafka.leader_log import LATEST_TIERED, LeaderLogs
from tierctl.kafka.topic_client import TopicAdmin, TopicShape
from tierctl.metadata.topic import cluster_topic
from tierctl.metadata.topic.cluster_topic import ClusterTopic
from tierctl.model import TopicPartition, Uuid
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.wire.batches.samples import record

SILENT, UNHEARD_OF = -1001, -3
PARTITIONS = [TopicPartition("t", number) for number in range(2)]


def done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def answer(offset: int) -> "Future[Any]":
    if offset != UNHEARD_OF:
        return done(SimpleNamespace(offset=offset))
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    return future


class Client:
    """A fake client that returns prepared lists of offsets, and describes topics after a metadata refresh."""

    def __init__(self, *offsets: list[int]) -> None:
        self.offsets = list(offsets)
        self.timeouts_s: list[float] = []
        self._described: Future[Any] = Future()

    def list_offsets(self, asked: Any, *, isolation_level: Any, request_timeout: float) -> Any:
        assert isolation_level is not None
        self.timeouts_s.append(request_timeout)
        offsets = self.offsets.pop(0) if len(self.offsets) > 1 else self.offsets[0]
        return {key: answer(at) for key, at in zip(asked, offsets, strict=True)}

    def describe_topics(self, names: Any, *, request_timeout: float) -> Any:
        assert (len(names.topic_names), request_timeout > 0) == (1, True)
        if not self.offsets:
            return {"t": self._described}
        return {"t": done(self._topic)}

    @property
    def _topic(self) -> Any:
        topic_id = SimpleNamespace(get_most_significant_bits=lambda: 1, get_least_significant_bits=lambda: 2)
        return SimpleNamespace(topic_id=topic_id, partitions=[0, 1])

    def list_topics(self, *, timeout: float) -> None:
        assert timeout > 0
        self._described.set_result(self._topic)

    def poll(self, _timeout: float) -> None:
        pass


def admin_of(client: Client, monkeypatch: pytest.MonkeyPatch, **settings: int) -> TopicAdmin:
    monkeypatch.setattr(topic_client, "_LEADER_WAIT_S", 0.01)
    monkeypatch.setattr(librdkafka, "_STUCK_S", 0.05)
    admin = TopicAdmin(ClientSettings(bootstrap_servers=("localhost:1",), **settings))  # type: ignore[arg-type]
    admin.client = client
    return admin


class Hearing(Client):
    """A fake client of a cluster whose brokers hear of a new topic one after the other."""

    def __init__(self, unheard: int) -> None:
        super().__init__()
        self.unheard = unheard

    def describe_topics(
        self, names: Any, *, request_timeout: float, include_authorized_operations: bool = False
    ) -> Any:
        assert (len(names.topic_names), request_timeout > 0, include_authorized_operations) == (1, True, True)
        self.unheard -= 1
        rights = SimpleNamespace(authorized_operations=[SimpleNamespace(name="READ")])
        return {"t": answer(UNHEARD_OF) if self.unheard >= 0 else done(rights)}


def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_for_rights_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin_of(Hearing(3), monkeypatch).require("t", "Read")
    with pytest.raises(AuthenticationError):
        admin_of(Hearing(3), monkeypatch).require("t", "Write")
    monkeypatch.setattr(librdkafka, "_HEARING_S", 0.05)
    with pytest.raises(NotFoundError):
        admin_of(Hearing(1000), monkeypatch).require("t", "Read")


class Shaped:
    """A fake TopicAdmin that asks brokers of which the first ones have not heard of the topic."""

    def __init__(self, unheard: int) -> None:
        self.unheard = unheard

    def shape(self, name: str) -> TopicShape:
        self.unheard -= 1
        if self.unheard >= 0:
            raise NotFoundError(f"no topic {name}")
        return TopicShape(topic_id=Uuid.from_bytes(bytes(16)), partition_count=3)

    def require(self, _topic: str, *_operations: str) -> None:
        """Allow everything."""


@pytest.mark.parametrize(
    ("writable", "unheard", "is_found"), [(True, 3, True), (True, 1000, False), (False, 1, False)]
)
def test_a_run_that_writes_waits_until_brokers_have_heard_of_a_new_topic(
    monkeypatch: pytest.MonkeyPatch, *, writable: bool, unheard: int, is_found: bool
) -> None:
    monkeypatch.setattr(librdkafka, "_HEARING_S", 1.5)
    admin = Shaped(unheard)
    monkeypatch.setattr(cluster_topic, "TopicAdmin", lambda _settings: admin)
    for name in ("TopicReader", "TopicPublisher"):
        monkeypatch.setattr(cluster_topic, name, lambda *_: None)
    settings = ClientSettings(bootstrap_servers=("localhost:1",))
    clients: Any = SimpleNamespace(admin=settings, consumer=None, producer=None)
    if is_found:
        assert ClusterTopic(clients, writable=writable).partition_count == 3
        return
    with pytest.raises(NotFoundError, match="has no topic __remote_log_metadata"):
        ClusterTopic(clients, writable=writable)
    assert writable == (unheard - admin.unheard > 1)


def test_a_silent_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client([7, SILENT], [SILENT, 8], [7, 8])
    found = admin_of(client, monkeypatch).list_offsets(PARTITIONS, latest=True)
    assert list(found.values()) == [7, 8]
    assert client.timeouts_s == [2, 4, 8]


def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = admin_of(Client([7, UNHEARD_OF], [7, 8]), monkeypatch).list_offsets(PARTITIONS, latest=True)
    assert list(found.values()) == [7, 8]
    admin = admin_of(Client([UNHEARD_OF, 8]), monkeypatch, request_timeout_ms=50)
    with pytest.raises(NotFoundError, match="asking for the offsets of t-0"):
        admin.list_offsets(PARTITIONS, latest=True)
    missing = [TopicPartition("t", 2)]
    with pytest.raises(NotFoundError, match="topic t has no partition 2"):
        admin_of(Client([UNHEARD_OF]), monkeypatch).list_offsets(missing, latest=True)


def test_one_that_stays_silent_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_of(Client([7, SILENT]), monkeypatch, request_timeout_ms=50)
    with pytest.raises(MetadataError, match="its leader did not answer") as caught:
        admin.list_offsets(PARTITIONS, latest=True)
    assert caught.value.exit_code == 5


def test_a_controller_that_is_gone_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_of(Client(), monkeypatch, request_timeout_ms=5000)
    assert admin.shape("t").partition_count == 2


def test_a_leader_that_came_after_the_connection_is_asked_by_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kafka-python also says so of a partition without a leader, whose broker id is -1."""
    answers: list[Any] = [
        sdk.kafka_errors.UnknownBrokerIdError(2),
        {"metadata.version": {"supported": (1, 25)}},
    ]

    def asked() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    connections: list[Any] = []

    def connect(_settings: ClientSettings) -> Any:
        connections.append(SimpleNamespace(describe_features=asked, close=lambda: None))
        return connections[-1]

    monkeypatch.setattr(leader_log, "connect", connect)
    leaders = LeaderLogs(ClientSettings(bootstrap_servers=("localhost:1",)))
    assert (leaders.metadata_version_level(), len(connections)) == (25, 2)


ASKED = [TopicPartition("t", number) for number in range(4)]
REFUSED = SimpleNamespace(str=lambda: "the offset is not stable")
ANSWERED = ((0, 7, None), (1, -1001, REFUSED), (2, -1001, None), (9, -1001, REFUSED))
"""Partition, offset and error: committed, failed, never committed, and not requested."""


class GroupClient:
    """A fake client of a cluster with one group, which allows all operations."""

    def list_consumer_group_offsets(self, asked: Any, *, request_timeout: float) -> Any:
        assert request_timeout > 0
        found = [SimpleNamespace(topic="t", partition=p, offset=o, error=e) for p, o, e in ANSWERED]
        return {each.group_id: done(SimpleNamespace(topic_partitions=found)) for each in asked}

    def describe_cluster(self, *, include_authorized_operations: bool, request_timeout: float) -> Any:
        assert (include_authorized_operations, request_timeout > 0) == (True, True)
        return done(SimpleNamespace(authorized_operations=[SimpleNamespace(name="DESCRIBE")]))


def test_an_offset_that_could_not_be_read_is_no_missing_one() -> None:
    cluster = Cluster(ClientSettings(bootstrap_servers=("localhost:1",)))
    cluster.admin.client = GroupClient()
    listed = [
        {"group_id": "readers", "protocol_type": "streams"},
        {"group_id": "s", "protocol_type": "share"},
    ]
    cluster.leaders._client = SimpleNamespace(list_groups=lambda: listed)
    found = cluster.committed_offsets(ASKED)
    assert found.offsets == (CommittedOffset(group="readers", partition=ASKED[0], offset=7),)
    assert found.unreadable == (
        "group readers: its offset of t-1 could not be read: the offset is not stable",
    )
    assert (found.groups, found.lists_all) == (1, True)


ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("start", "end", "batches"),
    [(0, 20, [0, 1]), (0, 10, [0]), (10, 20, [1]), (4, 5, [0]), (9, 11, [0, 1]), (15, 20, [1]), (20, 20, [])],
)
def test_a_batch_counts_if_it_has_one_of_the_offsets(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, batches: list[int]
) -> None:
    log = [encode_batch([record(n) for n in range(base, base + 10)]) for base in (0, 10)]

    def fetched(_leaders: Any, partition: TopicPartition, offset: int) -> bytes:
        assert partition == ORDERS
        return b"".join(batch for at, batch in enumerate(log) if offset < 10 * at + 10)

    monkeypatch.setattr(LeaderLogs, "fetch", fetched)
    leaders = LeaderLogs.__new__(LeaderLogs)
    found = leaders.batch_bytes(ORDERS, start, end, bytes_max=1 << 20)
    assert found == sum(len(log[at]) for at in batches)
    # No data in time, and damage, are no batches of 0 bytes.
    for last in (b"", bytes(100)):
        log[1] = last
        with pytest.raises(MetadataError, match="orders-0: its leader serves no batch at offset 10"):
            leaders.batch_bytes(ORDERS, 0, 20, bytes_max=1 << 20)


def test_an_answer_that_ends_within_a_batch_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in the part of the batch, itself a batch, was taken for the last one."""
    inner = encode_batch([record(5000)])
    log = [encode_batch([Record(n, 1, None, bytes(300) + inner + bytes(900))]) for n in range(4)]

    def fetched(_leaders: Any, _partition: TopicPartition, offset: int) -> bytes:
        return b"".join(log[offset:])[: len(log[0]) + 700]

    monkeypatch.setattr(LeaderLogs, "fetch", fetched)
    leaders = LeaderLogs.__new__(LeaderLogs)
    assert leaders.batch_bytes(ORDERS, 0, 3, bytes_max=1 << 20) == sum(map(len, log[:3]))


class Upgraded:
    """A fake kafka-python client of two brokers, of which broker 1 is too old for a kind of offset."""

    _manager = property(lambda self: self)
    _list_partition_offsets_process_response = staticmethod(dict)

    def run(self, asked: Any, *args: Any) -> Any:
        return asyncio.run(asked(*args))

    async def _async_get_leader_for_partitions(self, asked: set[Any]) -> dict[int, set[Any]]:
        return {each.partition + 1: {each} for each in asked}

    async def send(self, request: Any, *, node_id: int) -> Any:
        if node_id == 1:
            raise sdk.kafka_errors.IncompatibleBrokerVersion
        (found,) = request.topics[0].partitions
        key = sdk.kafka_python.TopicPartition(request.topics[0].name, found.partition_index)
        return {key: SimpleNamespace(offset=7)}


def test_a_leader_that_is_too_old_hides_no_answer_of_another() -> None:
    leaders = LeaderLogs(ClientSettings(bootstrap_servers=("localhost:1",)))
    leaders._client = Upgraded()
    assert leaders.offsets(PARTITIONS, LATEST_TIERED) == {PARTITIONS[0]: None, PARTITIONS[1]: 7}


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _package: None)
    for name in ("confluent_kafka", "confluent_admin"):
        monkeypatch.delitem(vars(sdk), name, raising=False)
    with pytest.raises(UsageError, match="confluent_kafka, which is not installed") as caught:
        Cluster(ClientSettings(bootstrap_servers=("localhost:1",)))
    assert caught.value.hint == "pip install tierctl[kafka]"
