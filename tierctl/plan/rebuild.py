"""Plan a rebuild: put checkpoint files back, then publish the segments whose metadata are lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.choose_sets import Choice, merge_lineage
from tierctl.plan.partition_choice import (
    GOING,
    AskedLogStart,
    PartitionDecision,
    PartitionInputs,
    decide_partition,
    is_not_understood,
    why_undecided,
)
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import LINEAGE_EPOCH, LOG_DIR, REBUILD, STATES, Action, Plan, Skip, Step, segment_step
from tierctl.state.log_start import replica_start
from tierctl.state.tier_state import TierState

_K = ReasonKind
_S = RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A partition about which nothing may be published, and why; `is_damaged` if --log-start decides it."""

    partition: TopicIdPartition
    reason: str
    is_damaged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """The plan, the partitions that forbid to carry it out, and the decision about each of the others."""

    plan: Plan
    refused: tuple[Refused, ...]
    decisions: Mapping[TopicIdPartition, PartitionDecision]


def plan_rebuild(
    state: TierState,
    partitions: Iterable[PartitionInputs],
    asked: AskedLogStart | None = None,
    *,
    after_hole: bool = False,
) -> RebuildPlan:
    """Return the steps that publish the lost metadata of `partitions`.

    `state` are the metadata that are left. `after_hole` accepts that a log begins after offsets of which it
    is not known what became of their records. Per partition, the steps of checkpoint files come first, then
    the chain in order of offsets, then the sets that are published as being deleted.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    refused: list[Refused] = []
    decisions: dict[TopicIdPartition, PartitionDecision] = {}
    for inputs in partitions:
        partition = inputs.partition
        reason = _why_not(state, partition)
        if reason is not None:
            skipped.append(Skip.of(partition, reason))
            continue
        decision = decide_partition(inputs, asked)
        reason = why_undecided(decision, after_hole=after_hole)
        if reason is not None:
            skipped += [Skip.of(partition, reason), *unclear_skips(inputs, decision.choice)]
            if is_not_understood(reason):
                # This is about the partition alone: the others are published.
                continue
            refused.append(
                Refused(
                    partition=partition,
                    reason=reason,
                    is_damaged=decision.is_damaged and asked is None,
                )
            )
            continue
        decisions[partition] = decision
        if decision.start_offset < decision.log_start.offset:
            lineage, start = decision.lineage.entries, decision.start_offset
            steps += checkpoint_steps(partition, inputs.replicas, lineage, start_offset=start)
        steps += segment_steps(inputs, decision)
        skipped += skips_of(inputs, decision.choice)
    plan = Plan(command=REBUILD, steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))
    return RebuildPlan(plan=plan, refused=tuple(refused), decisions=decisions)


def _why_not(state: TierState, partition: TopicIdPartition) -> str | None:
    if partition.topic in INTERNAL_TOPICS:
        return "internal topics are never tiered"
    part = state.partition(partition)
    if part is None:
        return None
    if part.delete_state is not None:
        return f"the partition is being deleted ({part.delete_state})"
    if state.is_damaged(part.metadata_partition):
        return f"metadata partition {part.metadata_partition} has records that could not be understood"
    return None


def segment_steps(inputs: PartitionInputs, decision: PartitionDecision) -> Iterator[Step]:
    """Yield the steps that publish the chain in order of offsets, then those of discarded sets."""
    damaged = {each.listed.segment_id: each.damaged_indexes for each in inputs.sets}
    yield from (
        publish_step(segment, inputs.known, decision, damaged.get(segment.segment_id, ()))
        for segment in decision.choice.chain
        if inputs.known.get(segment.segment_id) is not _S.COPY_SEGMENT_FINISHED
    )
    yield from (
        _segment_step(Action.DISCARD_SEGMENT, segment, reason, _DISCARDED, decision)
        for segment, reason in decision.choice.discarded
        if segment.segment_id not in inputs.known
    )


_UNINDEXED = "brokers fail to read it until tierctl verify --deep --plan-out has derived it from the log"
_PUBLISHED = (_S.COPY_SEGMENT_STARTED, _S.COPY_SEGMENT_FINISHED)
_DISCARDED = (_S.COPY_SEGMENT_STARTED, _S.DELETE_SEGMENT_STARTED)


def publish_step(
    segment: RemoteLogSegmentMetadata,
    known: Mapping[Uuid, RemoteLogSegmentState],
    decision: PartitionDecision,
    damaged_indexes: Sequence[str] = (),
) -> Step:
    """Return the step that publishes the lacking events of a segment that the decision's chain has.

    `known` are the states of the segments in the metadata; the reason names the segment's `damaged_indexes`.
    """
    hole = next((each for each in decision.choice.compacted if each.last == segment.end_offset), None)
    detail = "" if hole is None else f"; no set has a record from {hole.first} to {hole.last}: compacted once"
    if damaged_indexes:
        detail += f"; its {' and '.join(damaged_indexes)} can't be decoded: {_UNINDEXED}"
    reason = Reason(_K.ON_LINEAGE, first=segment.start_offset, last=segment.end_offset, detail=detail)
    states = _PUBLISHED[1:] if known.get(segment.segment_id) is _S.COPY_SEGMENT_STARTED else _PUBLISHED
    return _segment_step(Action.PUBLISH_SEGMENT, segment, reason, states, decision)


def _segment_step(
    action: Action,
    segment: RemoteLogSegmentMetadata,
    reason: Reason,
    states: Sequence[RemoteLogSegmentState],
    decision: PartitionDecision,
) -> Step:
    custom = segment.custom_metadata
    details = {
        STATES: ",".join(states),
        "max_timestamp_ms": segment.max_timestamp_ms,
        "segment_size_in_bytes": segment.segment_size_in_bytes,
        "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
        "custom_metadata": None if custom is None else custom.hex(),
        "txn_index_empty": segment.txn_index_empty,
        LINEAGE_EPOCH: decision.lineage.entries[-1].epoch,
    }
    return segment_step(action, segment, reason, details)


def checkpoint_steps(
    partition: TopicIdPartition,
    replicas: Sequence[LocalLog],
    lineage: Sequence[EpochEntry],
    *,
    start_offset: int,
) -> Iterator[Step]:
    """Yield a step per replica whose log start or first leader epoch is above `start_offset`.

    Each step has both files: a leader deletes the published segments that end below either.
    """
    for log in replicas:
        raised = replica_start(log)
        if raised <= start_offset:
            continue
        entries = merge_lineage(log.leader_epochs, [lineage]).truncate_from_start(start_offset).entries
        yield Step(
            action=Action.WRITE_CHECKPOINTS,
            reason=Reason(_K.LOG_START_DAMAGED, raised=raised, offset=start_offset),
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            start_offset=start_offset,
            details={
                LOG_DIR: str(log.directory.parent),
                "leader_epoch_checkpoint": [list(entry) for entry in entries],
                "raised_log_start_offset": raised,
            },
        )


def skips_of(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield the sets about which no event is published, except those with correct metadata."""
    partition = inputs.partition
    for each, reason in choice.left:
        yield Skip.of(partition, reason, each.listed.segment_id)
    for each in inputs.sets:
        state = inputs.known.get(each.listed.segment_id)
        if state in GOING:
            yield Skip.of(partition, Reason(_K.ALREADY_KNOWN, state=str(state)), each.listed.segment_id)
    for segment, _ in choice.discarded:
        state = inputs.known.get(segment.segment_id)
        if state is not None:
            yield Skip.of(partition, Reason(_K.ALREADY_KNOWN, state=str(state)), segment.segment_id)
    if choice.hole is not None:
        is_lost = not any(is_not_understood(reason) for _, reason in choice.left)
        sets, what = ("set", "these records are lost, and ") if is_lost else ("usable set", "")
        yield Skip.of(
            partition,
            f"no {sets} has offsets {choice.hole.first} to {choice.hole.last}: {what}the log begins at "
            f"{choice.first_offset}",
        )


def unused_of(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield every set that is not in the chain, where no event is planned about those that are discarded."""
    yield from skips_of(inputs, choice)
    for segment, reason in choice.discarded:
        if segment.segment_id not in inputs.known:
            yield Skip.of(inputs.partition, reason, segment.segment_id)


def unclear_skips(inputs: PartitionInputs, choice: Choice) -> Iterator[Skip]:
    """Yield the sets whose records are unknown, because they are incomplete or not understood."""
    for each, reason in choice.left:
        if each.segment is None or is_not_understood(reason):
            yield Skip.of(inputs.partition, reason, each.listed.segment_id)
