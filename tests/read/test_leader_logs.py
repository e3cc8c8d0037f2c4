"""Which leaders' logs are trusted when all leaders are asked together."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.model import TopicConfig, TopicIdPartition, Uuid
from tierctl.model.local import ClusterLog
from tierctl.read.readable_log import reliable_leader_log, reliable_leader_logs

from tests.plan.tier import OTHER_ID, TOPIC_ID
from tests.support.fake_cluster import FakeCluster, cluster_log, topic_facts

LEADERS = {0: 1, 1: 2, 2: None}
"""Leaders by partition of the topic orders; broker 1 tiers, broker 2 no longer does."""
TIERED, FORGOTTEN, LEADERLESS = (TopicIdPartition(TOPIC_ID, "orders", number) for number in LEADERS)
GONE = TopicIdPartition(OTHER_ID, "orders", 0)


class Cluster(FakeCluster):
    def __init__(self, *, tells_settings: bool = True) -> None:
        orders = topic_facts("orders", TOPIC_ID, [*LEADERS.values()])
        super().__init__(facts={"orders": orders}, tiering=[1])
        self.tells_settings = tells_settings
        self.asked = 0

    def logs(self, partitions: Sequence[TopicIdPartition]) -> list[ClusterLog]:
        self.asked += 1
        if GONE in partitions:
            raise NotFoundError("made anew")
        return [cluster_log(p, leader) for p in partitions if (leader := LEADERS[p.partition]) is not None]

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        if not self.tells_settings:
            raise AuthenticationError("no")
        return super().topic_configs(names)


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
