"""What `verify` asks of a running cluster, and which of its answers a moment later still hold."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tierctl.kafka.cluster import Cluster
from tierctl.model import TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.read.leader_logs import LeaderLogs, reliable_leader_logs
from tierctl.read.partitions import ReadablePartition
from tierctl.state.tier import TierState
from tierctl.verify.metadata import KnownTopics
from tierctl.verify.offsets import PartitionFacts, check_partition, facts_of_leader
from tierctl.verify.segments import Finding, FindingKind, Severity, finding_of

_K = FindingKind
_PASSING = frozenset({_K.OFFSETS, _K.GAP, _K.BEYOND_LOG_END, _K.DIVERGENT_SEGMENT})
"""What a broker at work shows for a moment, since its log and its metadata are read one after the other."""

_Identity = tuple[str | None, Uuid | None, int | None, FindingKind, Uuid | None, int | None, str]


@dataclass(slots=True)
class Doubtful:
    """Findings that would pass if brokers were at work, with the partitions that they are about."""

    facts: Mapping[TopicIdPartition, PartitionFacts]
    findings: dict[TopicIdPartition, list[Finding]] = field(default_factory=dict)

    def take(self, finding: Finding) -> bool:
        """Whether the finding is doubtful; it is kept then."""
        if finding.kind not in _PASSING or finding.topic is None or finding.topic_id is None:
            return False
        partition = TopicIdPartition(finding.topic_id, finding.topic, finding.partition or 0)
        if partition not in self.facts:
            return False
        self.findings.setdefault(partition, []).append(finding)
        return True


@dataclass(frozen=True, slots=True)
class LeaderSide:
    """A running cluster beside the metadata; every call asks it anew."""

    cluster: Cluster

    def topics(self, state: TierState) -> KnownTopics:
        """Of the names in the metadata, the topic ids that the cluster has."""
        names = {part.topic_id_partition.topic for part in state}
        found = self.cluster.topics({name for name in names if is_legal_topic_name(name)})
        ids = {name: frozenset({topic.topic_id}) for name, topic in found.items()}
        return KnownTopics(ids, complete=True)

    def ask(
        self, readables: Sequence[ReadablePartition]
    ) -> tuple[dict[TopicIdPartition, PartitionFacts], Iterator[Finding]]:
        """Facts of the partitions whose leader can be believed, and findings about the others.

        To be asked after the metadata were read: the log is never behind its tier.
        """
        told = reliable_leader_logs(self.cluster, [readable.topic_id_partition for readable in readables])
        return _facts(told, readables), _unseen(told)

    def confirmed(
        self,
        doubtful: Doubtful,
        readables: Callable[[Collection[TopicIdPartition]], Sequence[ReadablePartition]],
        now_ms: int,
    ) -> Iterator[Finding]:
        """The doubtful findings that are still there when the leader is asked first and the metadata after.

        `readables` reads the metadata to their new end.
        """
        if not doubtful.findings:
            return
        told = reliable_leader_logs(self.cluster, sorted(doubtful.findings))
        again = readables(doubtful.findings)
        facts = _facts(told, again)
        for readable in again:
            before = {_identity(f) for f in doubtful.findings.get(readable.topic_id_partition, ())}
            known = facts.get(readable.topic_id_partition)
            if known is not None:
                found = check_partition(readable, None, _unheard, now_ms=now_ms, facts=known)
                yield from (f for f in found if f.kind in _PASSING and _identity(f) in before)


def _facts(
    told: LeaderLogs, readables: Sequence[ReadablePartition]
) -> dict[TopicIdPartition, PartitionFacts]:
    return {
        readable.topic_id_partition: facts_of_leader(readable.cache, told.logs[readable.topic_id_partition])
        for readable in readables
        if readable.topic_id_partition in told.logs
    }


def _unseen(told: LeaderLogs) -> Iterator[Finding]:
    for partition, reason in told.leaderless.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.WARNING, reason)
    for partition, reason in told.start_unknown.items():
        yield finding_of(partition, _K.UNSEEN_LEADER, Severity.INFO, reason)


def _identity(finding: Finding) -> _Identity:
    """What stays the same of a finding while offsets go on."""
    where = (finding.topic, finding.topic_id, finding.partition)
    what = re.sub(r"\d+", "#", finding.message)
    return (*where, finding.kind, finding.segment_id, finding.start_offset, what)


def _unheard(_error: Exception) -> None:
    """With facts of a leader no index is read."""
