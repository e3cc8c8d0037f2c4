"""Derive the logs that brokers must serve from the objects of the tier, without a request to a broker."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from tierctl.commands.recovery.derived_metadata import DerivedMetadata
from tierctl.commands.recovery.materialise import until_offset
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode, NotFoundError, TierctlError, UsageError
from tierctl.kafka.cluster import Cluster
from tierctl.model import EpochEntry, IsolationLevel, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.local import TopicFacts
from tierctl.plan.materialise import Until
from tierctl.plan.rebuild.choice import Choice
from tierctl.plan.rebuild.partition import PartitionDecision
from tierctl.read.partition_reader import PartitionReader, ReadablePartition, readable_partitions
from tierctl.read.readable_log import ReadableLog
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import DerivedSets, Log, log_start_in_force


@dataclass(slots=True, kw_only=True)
class ExpectedLog:
    """The log of one partition that brokers must serve; RESTORE.md calls its bounds and epochs S, X and E.

    `start_offset` is S, `end_offset` (exclusive) is X, and `lineage` is E, which begins at S. `name` is the
    partition's name on the cluster, and `topic_id` is the topic's id there. A materialised log has new leader
    epochs, and may end before the tier does (`is_cut`). `problems` are errors that occurred while the tier
    was read.
    """

    source: TopicIdPartition
    name: TopicPartition
    topic_id: Uuid
    log: ReadableLog
    decision: PartitionDecision
    resources: Resources
    start_offset: int
    end_offset: int
    lineage: Lineage
    is_materialised: bool = False
    is_cut: bool = False
    problems: list[TierctlError] = field(default_factory=list)

    @property
    def key(self) -> tuple[Uuid, int]:
        """Return the topic's id on the cluster, and the number of the partition."""
        return (self.topic_id, self.name.partition)

    @property
    def epoch_starts(self) -> list[int]:
        """Return the start offset of each leader epoch of the tier's records, from `start_offset` on."""
        own = self.decision.lineage.entries_in_range(self.start_offset, self.end_offset)
        return [entry.start_offset for entry in own]

    @property
    def is_damaged(self) -> bool:
        """Return whether something of the tier that was read is not understood."""
        return any(each.exit_code is ExitCode.CORRUPT for each in self.problems)

    def reader(self, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> PartitionReader:
        """Return a reader of the tier's records; it adds its errors to `problems`."""
        return PartitionReader(self.log, self.resources.indexes, self.problems.append, isolation=isolation)


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """What a leader reports of a log, as `log_start_in_force` needs it."""

    leader_epochs: tuple[EpochEntry, ...]
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int

    @classmethod
    def asked(cls, leaders: Cluster | None, name: TopicPartition) -> Self | None:
        """Return the log of `name` on its leader; None if it can't be asked, which other checks report."""
        if leaders is None:
            return None
        try:
            found = leaders.partition_offsets([name])[name]
            epochs = leaders.leader_epochs(name) if found.log_start_offset else ()
        except TierctlError:
            return None
        local = found.local_log_start_offset
        start = found.log_start_offset
        return cls(epochs, start, start if local is None else local, found.high_watermark)


@dataclass(frozen=True, slots=True)
class Naming:
    """Map topics of the tier to the topics of the cluster that should have their records.

    `current` are the cluster's topics by name; None without a cluster. `as_topic` is the name of a
    materialised topic, if it differs from the name in the tier.
    """

    current: Mapping[str, TopicFacts] | None
    as_topic: str | None = None

    def name_of(self, source: TopicIdPartition) -> TopicPartition:
        """Return the name that the partition has on the cluster."""
        return TopicPartition(self.as_topic or source.topic, source.partition)

    def why_not_there(self, source: TopicIdPartition) -> str | None:
        """Return why the cluster can't have the partition under any topic id; None if it can."""
        if self.current is None:
            return None
        name = self.name_of(source)
        topic = self.current.get(name.topic)
        if topic is None:
            return f"the cluster has no topic {name.topic}"
        if source.partition not in {each.partition for each in topic.partitions}:
            return f"the cluster's topic {name.topic} has no partition {source.partition}"
        return None

    def is_same_id(self, source: TopicIdPartition) -> bool:
        """Return whether the cluster's topic has the tier's topic id, so that its brokers serve this tier."""
        return self.topic_id(source) == source.topic_id

    def topic_id(self, source: TopicIdPartition) -> Uuid:
        """Return the id of the cluster's topic; without a cluster, the id in the tier."""
        topic = None if self.current is None else self.current.get(self.name_of(source).topic)
        return source.topic_id if topic is None else topic.topic_id


def decided_partitions(derived: DerivedMetadata, resources: Resources) -> list[ReadablePartition]:
    """Return the selected partitions of the tier that have segments to serve; read the tier.

    Raise UsageError if the tier has several topics of one selected name, and NotFoundError if it has no
    segment.
    """
    state = derived.refresh()
    selection = resources.selection
    by_name = bool(selection.topics) and not selection.topic_ids
    try:
        return readable_partitions(state, (), selection, by_name=by_name)
    except NotFoundError:
        # No partition can be read; the decisions contain the reason for each.
        if derived.decisions:
            return []
        raise


def expected_log(
    resources: Resources,
    partition: ReadablePartition,
    decision: PartitionDecision,
    naming: Naming,
    until: Until,
    *,
    leader: Log | None = None,
) -> ExpectedLog:
    """Return the log that brokers must serve for one partition of the tier; `leader` is its leader's log."""
    source = partition.topic_id_partition
    problems: list[TierctlError] = []
    is_materialised = not naming.is_same_id(source)
    # Readers begin after the last hole, because brokers serve no segment before it.
    start = max(
        decision.start_offset, decision.choice.first_offset or 0, _lawful_start(decision.choice, leader)
    )
    end = decision.choice.next_offset or start
    log = resources.readable_log(partition, start, problems.append)
    cut = until_offset(resources, log, until) if is_materialised else None
    stop = end if cut is None else max(min(cut, end), start)
    own = decision.lineage.truncate_from_start(start).truncate_from_end(stop)
    return ExpectedLog(
        source=source,
        name=naming.name_of(source),
        topic_id=naming.topic_id(source),
        log=log,
        decision=decision,
        resources=resources,
        start_offset=start,
        end_offset=stop,
        lineage=Lineage([(0, start)]) if is_materialised else own,
        is_materialised=is_materialised,
        is_cut=stop < end,
        problems=problems,
    )


def _lawful_start(choice: Choice, leader: Log | None) -> int:
    """Return the log start of the leader if DeleteRecords must have raised it, as `rebuild` decides; else 0.

    A leader that raised it because it knew no segments takes the start of a segment, and its leader epochs
    begin at the log start in any case.
    """
    if leader is None or not choice.chain:
        return 0
    if not leader.leader_epochs or leader.leader_epochs[0].start_offset != leader.log_start_offset:
        return 0
    found = log_start_in_force([leader], DerivedSets([choice.chain], [each for each, _ in choice.left]))
    is_within = found.raised_from is None and found.offset <= choice.chain[-1].end_offset
    return found.offset if is_within else 0


def require_one_topic(partitions: Sequence[ReadablePartition], as_topic: str | None) -> None:
    """Raise UsageError if `as_topic` is given and `partitions` are of several topics."""
    topics: Collection[str] = {each.topic_id_partition.topic for each in partitions}
    if as_topic is not None and len(topics) > 1:
        raise UsageError(
            f"--as needs exactly one topic, selected are {', '.join(sorted(topics))}",
            hint="check one at a time",
        )
