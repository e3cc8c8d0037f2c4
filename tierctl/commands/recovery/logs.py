"""Find the logs that a rebuild is based on: the leaders' on a cluster, else the newest local replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.commands.mutation import Mutation
from tierctl.model import LocalLog, TopicIdPartition
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.rebuild.log_start import Log

_NO_LEADER = "it has no leader now, so its log start is unknown: wait until it has one"
_NO_DIRECTORY = (
    "no log directory has this partition, but others of its topic: name the log directories of all replicas"
)


@dataclass(frozen=True, slots=True)
class DecidingLogs:
    """The log of each partition that a rebuild is based on; for partitions without one, the reason.

    Without a cluster and without log directories both are empty: then a rebuild uses the tier alone.
    """

    leaders: Mapping[TopicIdPartition, Log]
    missing: Mapping[TopicIdPartition, str]

    @classmethod
    def of(cls, run: Mutation, partitions: Sequence[TopicIdPartition], logs: Sequence[LocalLog]) -> Self:
        """Return the logs of `partitions`, which must all exist; `logs` are those in the log directories.

        Unreadable logs are neither in `leaders` nor in `missing`: `run.unreadable` has them.
        """
        if run.cluster is not None:
            on_cluster = run.cluster.leaders(partitions).logs
            leaders: dict[TopicIdPartition, Log] = {
                p: on_cluster[p.key] for p in partitions if p.key in on_cluster
            }
            return cls(leaders, dict.fromkeys((p for p in partitions if p not in leaders), _NO_LEADER))
        if not run.request.log_dir:
            return cls({}, {})
        newest = newest_replicas(logs)
        leaders = {p: newest[p.key] for p in partitions if p.key in newest}
        absent = [p for p in partitions if p not in leaders and p.topic_partition not in run.unreadable]
        return cls(leaders, dict.fromkeys(absent, _NO_DIRECTORY))
