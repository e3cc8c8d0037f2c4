"""Checks against a running cluster: its topics, its leaders' logs, a second look at transient findings."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.kafka.cluster import Cluster
from tierctl.model import TopicConfig, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.engine import Severity
from tierctl.read.leader_logs import LeaderLogs, reliable_leader_logs
from tierctl.read.partition_reader import ReadablePartition
from tierctl.state.tier import TierState
from tierctl.verify.findings import Finding, FindingKind, finding_of
from tierctl.verify.partition import PartitionFacts, check_partition, facts_of_leader
from tierctl.verify.topics import KnownTopics

_K = FindingKind
_TRANSIENT = frozenset({_K.OFFSETS, _K.GAP, _K.BEYOND_LOG_END, _K.DIVERGENT_SEGMENT, _K.CUT_EPOCHS})
"""Kinds that a working broker may show for a moment: its log and its metadata are not read at one time."""

_Identity = tuple[str | None, Uuid | None, int | None, FindingKind, Uuid | None, int | None, str]


@dataclass(slots=True)
class Unconfirmed:
    """Findings that may be transient, by partition; `facts` are those of the partitions with a leader."""

    facts: Mapping[TopicIdPartition, PartitionFacts]
    findings: dict[TopicIdPartition, list[Finding]] = field(default_factory=dict)

    def add_if_transient(self, finding: Finding) -> bool:
        """Keep a finding that may be transient and return True; return False for any other."""
        if finding.kind not in _TRANSIENT or finding.topic is None or finding.topic_id is None:
            return False
        partition = TopicIdPartition(finding.topic_id, finding.topic, finding.partition or 0)
        if partition not in self.facts:
            return False
        self.findings.setdefault(partition, []).append(finding)
        return True


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """A running cluster with which the metadata are compared; every call asks it again."""

    cluster: Cluster

    def topics(self, state: TierState) -> KnownTopics:
        """Return the topic ids that the cluster has under the topic names in the metadata."""
        names = {part.topic_id_partition.topic for part in state}
        found = self.cluster.topics({name for name in names if is_legal_topic_name(name)})
        ids = {name: frozenset({topic.topic_id}) for name, topic in found.items()}
        return KnownTopics(ids, complete=True)

    def configs(self, topics: Collection[str]) -> dict[str, TopicConfig]:
        """Return the settings of those topics that the cluster has and that may be read."""
        found: dict[str, TopicConfig] = {}
        for topic in sorted(topics):
            if is_legal_topic_name(topic):
                with suppress(AuthenticationError, NotFoundError):
                    found |= self.cluster.topic_configs([topic])
        return found

    def leader_facts(
        self, readables: Sequence[ReadablePartition]
    ) -> tuple[dict[TopicIdPartition, PartitionFacts], Iterator[Finding]]:
        """Return the facts of partitions whose leader knows its log start, and findings about the others.

        Call it after reading the metadata: the leader's log then holds every offset of the tier.
        """
        logs = reliable_leader_logs(self.cluster, [readable.topic_id_partition for readable in readables])
        return _facts(logs, readables), _unseen(logs)

    def confirmed(
        self,
        unconfirmed: Unconfirmed,
        readables: Callable[[Collection[TopicIdPartition]], Sequence[ReadablePartition]],
        now_ms: int,
    ) -> Iterator[Finding]:
        """Yield the unconfirmed findings that a second check finds again.

        The second check asks the leader first and reads the metadata to their new end, by `readables`, after
        it: a finding of both orders is no effect of the order.
        """
        if not unconfirmed.findings:
            return
        logs = reliable_leader_logs(self.cluster, sorted(unconfirmed.findings))
        again = readables(unconfirmed.findings)
        facts = _facts(logs, again)
        for readable in again:
            before = {_identity(f) for f in unconfirmed.findings.get(readable.topic_id_partition, ())}
            known = facts.get(readable.topic_id_partition)
            if known is not None:
                found = check_partition(readable, None, _no_index_error, now_ms=now_ms, facts=known)
                yield from (f for f in found if f.kind in _TRANSIENT and _identity(f) in before)


def _facts(
    leaders: LeaderLogs, readables: Sequence[ReadablePartition]
) -> dict[TopicIdPartition, PartitionFacts]:
    return {
        readable.topic_id_partition: facts_of_leader(
            readable.cache, leaders.logs[readable.topic_id_partition]
        )
        for readable in readables
        if readable.topic_id_partition in leaders.logs
    }


def _unseen(leaders: LeaderLogs) -> Iterator[Finding]:
    for partition, reason in leaders.leaderless.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.WARNING, reason)
    for partition, reason in leaders.start_unknown.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.INFO, reason)


def _identity(finding: Finding) -> _Identity:
    """Return the parts of a finding that do not change while offsets advance."""
    where = (finding.topic, finding.topic_id, finding.partition)
    what = re.sub(r"\d+", "#", finding.message)
    return (*where, finding.kind, finding.segment_id, finding.start_offset, what)


def _no_index_error(_error: Exception) -> None:
    """Ignore an error of an index: with the facts of a leader, no index is read."""
