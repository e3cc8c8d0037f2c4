"""Which leaders' logs are trusted when all leaders are asked together."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.model import EpochEntry, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.local import BrokerFacts, ClusterLog, PartitionFacts, TopicFacts
from tierctl.read.readable_log import reliable_leader_log, reliable_leader_logs

from tests.plan.tier import OTHER_ID, TOPIC_ID

LEADERS = {0: 1, 1: 2, 2: None}
"""Leaders by partition of the topic orders; broker 1 tiers, broker 2 no longer does."""
TIERED, FORGOTTEN, LEADERLESS = (TopicIdPartition(TOPIC_ID, "orders", number) for number in LEADERS)
GONE = TopicIdPartition(OTHER_ID, "orders", 0)


class Cluster:
    def __init__(self, *, tells_settings: bool = True) -> None:
        self.tells_settings = tells_settings
        self.asked = 0

    def topics(self, names: Collection[str]) -> dict[str, TopicFacts]:
        parts = tuple(
            PartitionFacts(partition=n, leader=b, replicas=(), in_sync=()) for n, b in LEADERS.items()
        )
        topic = TopicFacts(topic="orders", topic_id=TOPIC_ID, partitions=parts, is_internal=False)
        return {"orders": topic} if "orders" in names else {}

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        self.asked += 1
        if GONE in partitions:
            raise NotFoundError("made anew")
        return [_log(p, leader) for p in partitions if (leader := LEADERS[p.partition]) is not None]

    def brokers(self, ids: Collection[int]) -> tuple[BrokerFacts, ...]:
        return tuple(BrokerFacts(broker_id=b, host="b", port=1, tiers=b == 1) for b in sorted(ids))

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        if not self.tells_settings:
            raise AuthenticationError("no")
        return {name: TopicConfig(remote_storage_enable=True) for name in names}


def _log(partition: TopicIdPartition, leader: int) -> ClusterLog:
    return ClusterLog(
        topic_id_partition=partition,
        leader=leader,
        leader_epochs=(EpochEntry(0, 0),),
        log_start_offset=0,
        local_log_start_offset=50,
        high_watermark=100,
        last_stable_offset=100,
        log_end_offset=100,
        latest_tiered_offset=79,
        local_log_bytes=None,
    )


@pytest.mark.parametrize("tells_settings", [True, False])
def test_believed(tells_settings: bool) -> None:
    cluster: Any = Cluster(tells_settings=tells_settings)
    illegal = TopicIdPartition(Uuid(TOPIC_ID), "../up", 0)
    found = reliable_leader_logs(cluster, [TIERED, FORGOTTEN, LEADERLESS, GONE, illegal])
    assert list(found.logs) == [TIERED]
    reason = "its leader, broker 2, tiers no more and has lost the log start offset"
    assert found.start_unknown == {FORGOTTEN: reason}
    assert found.leaderless == {LEADERLESS: "it has no leader now"}
    assert cluster.asked == 1
    assert reliable_leader_log(cluster, TIERED) is not None
    assert reliable_leader_log(cluster, GONE) is None


def test_one_that_is_deleted_meanwhile_takes_no_other_along() -> None:
    class Racing(Cluster):
        def topics(self, names: Collection[str]) -> dict[str, TopicFacts]:
            again = TopicFacts(topic="again", topic_id=OTHER_ID, partitions=(), is_internal=False)
            return super().topics(names) | {"again": again}

        def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
            if any(p.topic == "again" for p in partitions):
                raise NotFoundError("it was deleted")
            return super().logs(partitions)

    cluster: Any = Racing()
    deleted = TopicIdPartition(OTHER_ID, "again", 0)
    found = reliable_leader_logs(cluster, [TIERED, deleted])
    assert (list(found.logs), found.leaderless) == ([TIERED], {deleted: "it was deleted"})
