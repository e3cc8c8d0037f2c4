"""Offsets of consumer groups, and sizes of batches, with fake answers of brokers."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import CommittedOffset, committed_offsets
from tierctl.kafka.leader_log import LeaderLogs
from tierctl.kafka.topic_client import TopicAdmin
from tierctl.model import TopicPartition
from tierctl.wire.batches.record_batch import encode_batch

from tests.wire.batches.samples import record

ASKED = [TopicPartition("t", number) for number in range(4)]
REFUSED = SimpleNamespace(str=lambda: "the offset is not stable")
ANSWERED = ((0, 7, None), (1, -1001, REFUSED), (2, -1001, None), (9, -1001, REFUSED))
"""Partition, offset and error: committed, failed, never committed, and not requested."""


class Client:
    """A fake client of a cluster with one group, which allows all operations."""

    def list_consumer_groups(self, *, request_timeout: float) -> Any:
        assert request_timeout > 0
        return done(SimpleNamespace(errors=[], valid=[SimpleNamespace(group_id="readers")]))

    def list_consumer_group_offsets(self, asked: Any, *, request_timeout: float) -> Any:
        assert request_timeout > 0
        found = [SimpleNamespace(topic="t", partition=p, offset=o, error=e) for p, o, e in ANSWERED]
        return {each.group_id: done(SimpleNamespace(topic_partitions=found)) for each in asked}

    def describe_cluster(self, *, include_authorized_operations: bool, request_timeout: float) -> Any:
        assert (include_authorized_operations, request_timeout > 0) == (True, True)
        return done(SimpleNamespace(authorized_operations=[SimpleNamespace(name="DESCRIBE")]))


def done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_an_offset_that_could_not_be_read_is_no_missing_one() -> None:
    admin = TopicAdmin(ClientSettings(bootstrap_servers=("localhost:1",)))
    admin.client = Client()
    found = committed_offsets(admin, ASKED)
    assert found.offsets == (CommittedOffset(group="readers", partition=ASKED[0], offset=7),)
    assert found.unreadable == (
        "group readers: its offset of t-1 could not be read: the offset is not stable",
    )
    assert (found.groups, found.lists_all) == (1, True)


ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("start", "end", "batches"),
    [(0, 20, [0, 1]), (0, 10, [0]), (10, 20, [1]), (4, 5, [0]), (9, 11, [0, 1]), (15, 20, [1]), (20, 21, [])],
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
