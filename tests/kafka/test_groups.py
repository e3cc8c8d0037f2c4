"""Committed offsets of consumer groups, and errors of the broker."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import CommittedOffset, committed_offsets
from tierctl.kafka.topic_client import TopicAdmin
from tierctl.model import TopicPartition

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
