"""Plan a restore into a cluster whose topics were created again under new ids (RESTORE.md, R2)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.plan.basis import Basis
from tierctl.plan.rebuild.choice import Choice
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs
from tierctl.plan.rebuild.plan import segment_steps, unused_of
from tierctl.plan.restore.new_log import NewLog
from tierctl.plan.restore.plan import restore_step, why_refused
from tierctl.plan.steps import Action, Plan, Skip, Step, segment_step

NEW_IDS = "restore_new_ids"
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
            reason = _why_not_into(source, source.targets[0], log)
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


def _why_not_into(source: NewIdSource, target: Target, log: NewLog) -> str | None:
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
