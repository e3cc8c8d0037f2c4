"""Decide what a formatted node needs to serve the topics of a tier under their old ids; pure functions.

`new_log` has the files of one partition, `topics` the records of cluster metadata, `plan` makes the plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from zlib import crc32

from tierctl.errors import CorruptInputError
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.settings import topic
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.rebuild.choice import Choice
from tierctl.plan.rebuild.partition_choice import (
    PartitionDecision,
    PartitionInputs,
    why_end_unknown,
    why_undecided,
)
from tierctl.plan.rebuild.plan import segment_steps, skips_of, unclear_skips, unused_of
from tierctl.plan.steps import LOG_DIR, Action, Basis, Plan, Skip, Step, segment_step
from tierctl.wire.batches.record_batch import encode_abort_marker
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    ProducerEntry,
    decode_producer_snapshot,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.kraft import (
    PartitionRegistration,
    config_record,
    next_producer_id,
    partition_record,
    producer_ids_record,
    topic_of,
    topic_record,
)


@dataclass(frozen=True, kw_only=True)
class NewLog:
    """A partition's log in `log_dir` from `start_offset` on; the tier has the offsets below `tier_end`.

    `leader_epochs` are the epochs from `start_offset` on; `latest_epoch` is the highest epoch of any leader
    of the partition. `snapshot` is the producer snapshot at `tier_end`; None if the tier has no readable one.
    The snapshot is written only if `has_producers` is set: an existing cluster may have assigned the producer
    ids in it to other producers. `timestamp_ms` is the timestamp of the newest record.
    """

    partition: TopicIdPartition
    log_dir: Path
    start_offset: int
    tier_end: int
    leader_epochs: Sequence[EpochEntry]
    latest_epoch: int
    snapshot: bytes | None
    timestamp_ms: int
    has_producers: bool = True

    @cached_property
    def producers(self) -> Sequence[ProducerEntry]:
        """Return the producers in the snapshot; raise CorruptInputError if the snapshot is damaged."""
        return () if self.snapshot is None else decode_producer_snapshot(self.snapshot)

    @property
    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction at the tier's end, sorted by its first offset."""
        found = [each for each in self.producers if each.current_txn_first_offset >= 0]
        return sorted(found, key=lambda each: each.current_txn_first_offset)

    @property
    def files(self) -> Mapping[str, bytes]:
        """Return the content of each file in the partition's folder, by file name.

        The log file is named by the end of the tier. It has an abort marker for each open transaction:
        without a marker, read_committed consumers would wait forever, since no transaction coordinator knows
        the transaction.
        """
        found = {
            f"{self.tier_end:020d}.log": b"".join(self._markers()),
            LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint(self.leader_epochs),
            PARTITION_METADATA_FILE: write_partition_metadata(self.partition.topic_id),
        }
        if self.snapshot is not None and self.has_producers:
            found[f"{self.tier_end:020d}.snapshot"] = self.snapshot
        return found

    def _markers(self) -> list[bytes]:
        return [
            encode_abort_marker(
                self.tier_end + number,
                self.timestamp_ms,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                coordinator_epoch=max(each.coordinator_epoch, 0),
                partition_leader_epoch=self.leader_epochs[-1].epoch,
            )
            for number, each in enumerate(self.open_transactions)
        ]


COPYING_DISABLED: Mapping[str, str] = {
    topic.COPY_DISABLE.name: "true",
    topic.LOCAL_RETENTION_MS.name: "-2",
    topic.LOCAL_RETENTION_BYTES.name: "-2",
}
"""Topic settings that stop brokers from copying segments and from raising the log start (KIP-950)."""
COPY_DISABLE_LEVEL = 21
"""The feature level of metadata.version in Kafka 3.9, the first version with remote.log.copy.disable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBroker:
    """The broker that gets every partition; `directories` maps its log directories to their directory ids."""

    node_id: int
    directories: Mapping[Path, Uuid]
    metadata_version: int

    def log_dir(self, topic: str, partition: int) -> Path:
        """Return the log directory for a partition; the choice is the same in each run."""
        dirs = list(self.directories)
        return dirs[(crc32(topic.encode()) + partition) % len(dirs)]

    @property
    def start_settings(self) -> Mapping[str, str]:
        """Return the settings that override the topic's own ones until the restore has been checked."""
        # Older brokers do not have these settings. They know all segments when they start, so they may copy.
        return COPYING_DISABLED if self.metadata_version >= COPY_DISABLE_LEVEL else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create with `settings`; `leader_epochs[i]` is the leader epoch of partition i.

    All partitions are in `log_dir`; if that is None, they are spread over the broker's log directories.
    """

    topic: str
    topic_id: Uuid
    settings: Mapping[str, str]
    leader_epochs: Sequence[int]
    log_dir: Path | None = None

    def records(self, broker: NewBroker) -> list[bytes]:
        """Return the records of the topic, its settings and its partitions; `broker` is the only replica."""
        partitions = [
            PartitionRegistration(
                topic_id=self.topic_id,
                partition=number,
                node_id=broker.node_id,
                leader_epoch=epoch,
                directory_id=broker.directories[self.log_dir or broker.log_dir(self.topic, number)],
            )
            for number, epoch in enumerate(self.leader_epochs)
        ]
        settings = sorted(self.settings.items())
        return [
            topic_record(self.topic, self.topic_id),
            *(config_record(self.topic, name, value) for name, value in settings),
            *map(partition_record, partitions),
        ]


RESTORE = "restore into"
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


NEW_IDS = "restore new-ids"
"""The command name in these plans."""
SOURCE_TOPIC_ID = "source_topic_id"
"""Detail: the id of the topic whose objects are copied."""

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The folder of the new topic's partition in a log directory of a stopped broker.

    `files` maps the names of the folder's files to their content; it is empty if the folder has many records.
    `segments` has the base offset and the size in bytes of each local segment. `leader_epochs` are the
    entries of the folder's leader-epoch-checkpoint.
    """

    partition: TopicIdPartition
    log_dir: Path
    files: Mapping[str, bytes]
    segments: Sequence[tuple[int, int]]
    leader_epochs: Sequence[EpochEntry]

    @property
    def folder(self) -> Path:
        """Return the path of the partition's folder."""
        return self.log_dir / str(self.partition.topic_partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIdSource:
    """A partition of the lost topic with objects in the tier, and the folders to which it is restored.

    `decision` states which segments are restored. `renamed` are these segments under the id of the new topic.
    `known` has the states of the new partition's segments in the metadata topic. `targets` are the
    partition's folders in the log directories.
    """

    inputs: PartitionInputs
    decision: PartitionDecision
    renamed: Sequence[RemoteLogSegmentMetadata]
    targets: Sequence[Target]
    known: Mapping[Uuid, RemoteLogSegmentState] = field(default_factory=dict)
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIdPlan:
    """The plan; per refused partition, the reason; and per restored partition, the log to write."""

    plan: Plan
    refused: Mapping[TopicIdPartition, str]
    logs: Mapping[TopicIdPartition, NewLog]


def plan_new_ids(
    sources: Sequence[NewIdSource], *, read: Mapping[int, int], after_hole: bool = False
) -> NewIdPlan:
    """Plan for each partition: copy its objects, write its local log, publish its segment events.

    `read` maps each metadata partition to the offset up to which it was read. A partition is refused if the
    tier lacks offsets of it, unless `after_hole` is set: then the log begins after the last missing offset.
    It is also refused if its folder has records, or if the leader epoch in the folder is lower than that of
    the records.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    refused: dict[TopicIdPartition, str] = {}
    logs: dict[TopicIdPartition, NewLog] = {}
    for source in sources:
        partition = source.inputs.partition
        skipped += unused_of(source.inputs, source.decision.choice)
        reason = why_refused(source.decision, after_hole=after_hole) or _why_no_target(source)
        log = None if reason is not None else _new_log(source, source.targets[0])
        if log is not None and not _is_restored(source):
            reason = _why_not_under_new_ids(source, source.targets[0], log)
        if reason is not None:
            refused[partition] = reason
            skipped.append(Skip.of(partition, reason))
        elif log is None or _is_restored(source):
            skipped.append(Skip.of(partition, "it is restored already" if log else "the tier has no records"))
        else:
            logs[log.partition] = log
            steps += _steps(source, log)
    plan = Plan(command=NEW_IDS, steps=tuple(steps), read=read, skipped=tuple(skipped), basis=Basis())
    return NewIdPlan(plan=plan, refused=refused, logs=logs)


def _is_restored(source: NewIdSource) -> bool:
    """Return whether every segment is published; a run publishes the segments last."""
    return all(source.known.get(segment.segment_id) is _FINISHED for segment in source.renamed)


def _why_no_target(source: NewIdSource) -> str | None:
    name = source.inputs.partition.topic_partition
    if not source.targets:
        return (
            f"no log directory has a folder of {name} of a new topic: create the topic with as many "
            "partitions and one replica, and name the log directories of its brokers"
        )
    if len(source.targets) > 1:
        return (
            f"{source.targets[0].folder} and {source.targets[1].folder} are replicas of {name}: create the "
            "topic with one replica, and add others by reassignment after the restore"
        )
    return None


def _new_log(source: NewIdSource, target: Target) -> NewLog | None:
    chain, decision = source.decision.choice.chain, source.decision
    if not chain:
        return None
    start, tier_end = max(decision.start_offset, chain[0].start_offset), chain[-1].end_offset + 1
    return NewLog(
        partition=target.partition,
        log_dir=target.log_dir,
        start_offset=start,
        tier_end=tier_end,
        leader_epochs=decision.lineage.truncate_from_start(start).truncate_from_end(tier_end).entries,
        latest_epoch=decision.lineage.entries[-1].epoch,
        snapshot=source.snapshot,
        timestamp_ms=max(segment.max_timestamp_ms for segment in chain),
        has_producers=False,
    )


def _why_not_under_new_ids(source: NewIdSource, target: Target, log: NewLog) -> str | None:
    """Return why `log` may not replace the folder; None if it may, or if a killed run wrote it already."""
    try:
        files = log.files
    except CorruptInputError as e:
        return f"the producer snapshot of its last segment is damaged: {e.message}"
    if target.files == files:
        return None
    if source.known:
        return (
            f"the metadata have {len(source.known)} segments of {target.partition}: brokers ran since a "
            "restore of it was stopped; delete the topic, create it again, and run again"
        )
    if [(base, size) for base, size in target.segments if base or size]:
        return f"{target.folder} has or had records: create the topic again"
    reached = target.leader_epochs[-1].epoch if target.leader_epochs else -1
    if reached < log.latest_epoch:
        return (
            f"the leader epoch of the new {target.partition.topic_partition} is "
            f"{reached if reached >= 0 else 'unknown'}, its records have epoch {log.latest_epoch}: brokers "
            "would truncate the lineage; each restart of its only broker raises the epoch"
        )
    return None


def _steps(source: NewIdSource, log: NewLog) -> Iterator[Step]:
    unpublished = [each for each in source.renamed if source.known.get(each.segment_id) is not _FINISHED]
    sizes = {each.listed.segment_id: each.listed.sizes_bytes for each in source.inputs.sets}
    for segment in unpublished:
        details = {
            SOURCE_TOPIC_ID: str(source.inputs.partition.topic_id),
            "segment_size_in_bytes": segment.segment_size_in_bytes,
            "objects": len(sizes.get(segment.segment_id, ())),
            "bytes": sum(sizes.get(segment.segment_id, {}).values()),
        }
        reason = f"the objects of topic id {source.inputs.partition.topic_id} under the new id"
        yield segment_step(Action.COPY_OBJECTS, segment, reason, details)
    yield restore_step(log, len(source.renamed))
    inputs = replace(source.inputs, partition=log.partition, known=source.known)
    choice = Choice(chain=tuple(source.renamed))
    yield from segment_steps(inputs, replace(source.decision, choice=choice))
