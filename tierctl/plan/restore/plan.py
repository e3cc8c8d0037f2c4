"""Plan a restore into a formatted node: first the logs, then the metadata events, then the topics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.settings import topic
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.rebuild.not_understood import why_end_unknown
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs, why_undecided
from tierctl.plan.rebuild.plan import segment_steps, skips_of, unclear_skips, unused_of
from tierctl.plan.restore.new_log import NewLog
from tierctl.plan.restore.topics import NewBroker, NewTopic
from tierctl.plan.steps import LOG_DIR, Action, Plan, Skip, Step
from tierctl.wire.kraft.records import next_producer_id, producer_ids_record, topic_of

RESTORE = "restore"
"""The command name in these plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """A partition with objects in the tier; `decision` says which of its segments are restored.

    `snapshot` is the producer snapshot of the last restored segment. `found` maps each folder of the
    partition in the node's log directories to the files in it.
    """

    inputs: PartitionInputs
    decision: PartitionDecision
    snapshot: bytes | None = None
    found: Mapping[Path, Mapping[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic to restore, with its own settings; `partitions` are those with objects in the tier."""

    topic: str
    topic_id: Uuid
    partition_count: int
    settings: Mapping[str, str]
    partitions: Mapping[int, PartitionSource]

    @property
    def is_tiered(self) -> bool:
        """Return whether the topic has objects in the tier, or has remote.storage.enable=true."""
        return bool(self.partitions) or self.settings.get(topic.REMOTE_STORAGE_ENABLE.name) == "true"

    def partition(self, number: int) -> TopicIdPartition:
        """Return the topic's partition with this number."""
        return TopicIdPartition(self.topic_id, self.topic, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The plan; per refused partition, the reason; and the logs and the cluster metadata records to write."""

    plan: Plan
    refused: Mapping[TopicIdPartition, str]
    logs: Mapping[TopicIdPartition, NewLog]
    records: Sequence[bytes]


@dataclass(slots=True, kw_only=True)
class RestorePlanner:
    """Make the plan for `broker`; `present` are the records in the controller's bootstrap file.

    If `metadata_topic` is None, the brokers create the metadata topic later, and no event is planned.
    """

    broker: NewBroker
    metadata_topic: NewTopic | None
    present: Sequence[bytes]
    after_hole: bool = False
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    refused: dict[TopicIdPartition, str] = field(default_factory=dict)
    logs: dict[TopicIdPartition, NewLog] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)

    def plan(self, topics: Sequence[TopicSource], *, read: Mapping[int, int]) -> RestorePlan:
        """Plan for each partition its log and its events, and then the creation of each topic.

        A topic whose records are in the bootstrap file is restored already, since these records are written
        last. `read` maps each partition of the node's metadata topic to the offset up to which it was read.
        """
        created = [step for each in topics for step in self._topic(each)]
        if created:
            if self.metadata_topic is not None:
                self._add(self.metadata_topic)
            self.records += self._producer_ids()
        plan = Plan(
            command=RESTORE,
            steps=(*self.steps, *created),
            read=read,
            skipped=tuple(self.skipped),
        )
        return RestorePlan(plan=plan, refused=self.refused, logs=self.logs, records=self.records)

    def _topic(self, source: TopicSource) -> Iterator[Step]:
        """Plan the partitions of a topic; yield the step that creates the topic, unless it exists."""
        logs = {number: self._log(each) for number, each in sorted(source.partitions.items())}
        settings = dict(source.settings)
        if source.is_tiered:
            settings |= {**self.broker.start_settings, topic.REMOTE_STORAGE_ENABLE.name: "true"}
        new = NewTopic(
            topic=source.topic,
            topic_id=source.topic_id,
            settings=settings,
            leader_epochs=[_epoch_after(logs.get(number)) for number in range(source.partition_count)],
        )
        problem = self._conflict(new)
        if problem is not None:
            self._refuse(source.partition(0), problem)
        elif self._is_present(new):
            self.skipped.append(Skip.of(source.partition(0), "the node has the topic already"))
        elif not any(source.partition(number) in self.refused for number in source.partitions):
            for number, log in logs.items():
                self._partition(source.partitions[number], log)
            self._add(new)
            yield _create(source, new)

    def _log(self, source: PartitionSource) -> NewLog | None:
        """Return the new log of a partition; None without segments to restore, or if it is refused."""
        partition, choice = source.inputs.partition, source.decision.choice
        reason = why_refused(source.decision, after_hole=self.after_hole)
        if reason is not None:
            self._refuse(partition, reason)
            self.skipped += unclear_skips(source.inputs, choice)
            return None
        if not choice.chain:
            return None
        lineage, tier_end = source.decision.lineage, choice.chain[-1].end_offset + 1
        start = max(source.decision.start_offset, choice.chain[0].start_offset)
        log = NewLog(
            partition=partition,
            log_dir=self.broker.log_dir(partition.topic, partition.partition),
            start_offset=start,
            tier_end=tier_end,
            leader_epochs=lineage.truncate_from_start(start).truncate_from_end(tier_end).entries,
            latest_epoch=lineage.entries[-1].epoch,
            snapshot=source.snapshot,
            timestamp_ms=max(segment.max_timestamp_ms for segment in choice.chain),
        )
        reason = _why_not_into(source, log)
        if reason is not None:
            self._refuse(partition, reason)
        return log

    def _partition(self, source: PartitionSource, log: NewLog | None) -> None:
        unused = unused_of if log is None or self.metadata_topic is None else skips_of
        self.skipped += unused(source.inputs, source.decision.choice)
        if log is None:
            return
        self.logs[log.partition] = log
        self.steps.append(restore_step(log, len(source.decision.choice.chain)))
        if self.metadata_topic is not None:
            self.steps += segment_steps(source.inputs, source.decision)

    def _refuse(self, partition: TopicIdPartition, reason: str) -> None:
        self.refused[partition] = reason
        self.skipped.append(Skip.of(partition, reason))

    def _conflict(self, new: NewTopic) -> str | None:
        """Return how the bootstrap file's topics conflict with the new topic; None without a conflict."""
        there = [found for found in map(topic_of, self.present) if found is not None]
        names = [found for found in there if new.topic == found[0] or new.topic_id == found[1]]
        if names and not self._is_present(new):
            return (
                f"the node was prepared with topic {names[0][0]} of id {names[0][1]} and other partitions or "
                "settings: format it again"
            )
        return None

    def _is_present(self, new: NewTopic) -> bool:
        return set(new.records(self.broker)) <= set(self.present)

    def _add(self, new: NewTopic) -> None:
        present = set(self.present)
        self.records += [value for value in new.records(self.broker) if value not in present]

    def _producer_ids(self) -> list[bytes]:
        """Return the record that stops the controller from assigning the producer ids of restored producers.

        Producers that are in no restored snapshot are unknown to the brokers, so their ids may be assigned
        again.
        """
        known = [each.producer_id for log in self.logs.values() for each in log.producers]
        stated = [found for found in map(next_producer_id, self.present) if found is not None]
        following = max(known, default=-1) + 1
        return [producer_ids_record(following)] if following > max(stated, default=0) else []


def why_refused(decision: PartitionDecision, *, after_hole: bool) -> str | None:
    """Return why a partition can't be restored completely; None if it can, or `after_hole` accepts it."""
    reason = why_undecided(decision, after_hole=after_hole) or why_end_unknown(decision.choice)
    if reason is not None or after_hole:
        return reason
    hole = decision.choice.hole
    if hole is not None:
        return (
            f"no set of objects has offsets {hole.first} to {hole.last}: --after-hole begins the log "
            "after them"
        )
    lost = why_incomplete_below(decision)
    if lost is not None:
        return f"{lost}: --after-hole begins the log after it"
    if not decision.choice.chain:
        return "the tier has no complete segment of it: --after-hole begins with an empty log at offset 0"
    return None


def why_incomplete_below(decision: PartitionDecision) -> str | None:
    """Return which set below the chain is incomplete, so that the log may begin only above it; else None."""
    first = decision.choice.first_offset
    for each, reason in decision.choice.left:
        start = each.listed.start_offset
        is_lost = each.segment is None and reason.kind is ReasonKind.NOT_SERVED
        if first is not None and start < first and is_lost:
            return f"the set of objects from offset {start} on is not complete ({each.why_incomplete})"
    return None


def _epoch_after(log: NewLog | None) -> int:
    """Return a leader epoch above those of the log's records."""
    return 0 if log is None else log.latest_epoch + 1


def _why_not_into(source: PartitionSource, log: NewLog) -> str | None:
    """Return why `log` can't be written; None if it can, or if a killed run wrote it already."""
    try:
        files = log.files
    except CorruptInputError as e:
        return f"the producer snapshot of its last segment is damaged: {e.message}"
    folder = log.log_dir / f"{log.partition.topic}-{log.partition.partition}"
    for path, found in source.found.items():
        if path != folder or found != files:
            return f"{path} has other files than the log that is restored"
    return None


def restore_step(log: NewLog, segments: int) -> Step:
    """Return the step that writes the log; `segments` is the number of its segments in the tier."""
    return Step(
        action=Action.RESTORE_PARTITION,
        reason=f"an empty log at offset {log.tier_end}, behind {segments} segments in the tier",
        topic=log.partition.topic,
        topic_id=log.partition.topic_id,
        partition=log.partition.partition,
        start_offset=log.start_offset,
        end_offset=log.tier_end - 1,
        details={
            LOG_DIR: str(log.log_dir),
            "leader_epoch_checkpoint": [list(entry) for entry in log.leader_epochs],
            "leader_epoch": _epoch_after(log),
            "producers": len(log.producers),
            "aborted_transactions": len(log.open_transactions),
            "has_producer_snapshot": log.snapshot is not None and log.has_producers,
        },
    )


def _create(source: TopicSource, new: NewTopic) -> Step:
    return Step(
        action=Action.CREATE_TOPIC,
        reason=f"{source.partition_count} partitions under the old id, {len(source.partitions)} in the tier",
        topic=source.topic,
        topic_id=source.topic_id,
        partition=0,
        details={
            "partitions": source.partition_count,
            "settings": [{"name": name, "value": value} for name, value in sorted(new.settings.items())],
        },
    )
