"""Check before each batch of events that a rebuild beside running brokers may still publish them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tierctl.commands.recovery.copying import require_copying_disabled
from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import SafetyRefusal
from tierctl.model import TopicIdPartition


@dataclass(frozen=True, slots=True)
class PublishingFence:
    """Refuse to publish segments that a leader would delete; `log_starts` are those the plan was made with.

    Deriving the metadata may take hours. Meanwhile an operator may enable copying, or a leader may raise its
    log start; a leader deletes segments that are published below its log start.
    """

    cluster: RunningCluster
    log_starts: Mapping[TopicIdPartition, int]

    def __call__(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if brokers copy these topics, or if a log start has risen or is unknown."""
        if not partitions:
            return
        require_copying_disabled(self.cluster, {partition.topic for partition in partitions})
        logs = self.cluster.leaders(partitions).logs
        for partition in sorted(partitions):
            name, planned, log = (
                partition.topic_partition,
                self.log_starts[partition],
                logs.get(partition.key),
            )
            if log is None:
                raise SafetyRefusal(
                    f"{name} has no leader any more, so its log start is unknown",
                    hint="run again once it has one",
                )
            if log.log_start_offset > planned:
                raise SafetyRefusal(
                    f"the log start of {name} rose from {planned} to {log.log_start_offset} since the plan "
                    "was made: its leader would delete segments that are published below it",
                    hint="find the reason in the log of the leader, then run again",
                )
