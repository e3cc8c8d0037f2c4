"""KIP-405's RemotePartitionRemover: deletes the remote segments of partitions whose topic was deleted.

Partitions are identified by topic id and number, since a recreated topic has the same name.
"""

from collections.abc import Collection

from tierctl.errors import NotFoundError
from tierctl.model import RemoteLogSegmentMetadata, Uuid, is_legal_topic_name
from tierctl.plan.deletion_evidence import DeletionEvidence
from tierctl.plan.preconditions import why_unreadable
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Plan, Skip, Step, delete_step, partition_step
from tierctl.state.tier import PartitionState, TierState


def plan_mark(
    state: TierState,
    topic_ids: Collection[Uuid],
    evidence: DeletionEvidence,
) -> Plan:
    """Return the plan to mark all known partitions of `topic_ids` as KIP-405's controller marks deleted ones.

    Raises SafetyRefusal for a topic that `evidence` does not show to be deleted, and NotFoundError for an id
    that is not in the metadata.
    """
    wanted = set(topic_ids)
    parts = [part for part in state if part.topic_id_partition.topic_id in wanted]
    missing = wanted - {part.topic_id_partition.topic_id for part in parts}
    if missing:
        raise NotFoundError(f"no topic in the metadata has the id {', '.join(sorted(missing))}")
    evidence.require_overridden_among(wanted)
    steps: list[Step] = []
    skipped: list[Skip] = []
    for part in parts:
        reason = _why_not_marked(state, part)
        if reason:
            skipped.append(Skip.of(part.topic_id_partition, reason))
        else:
            steps.append(partition_step(Action.MARK_PARTITION, part, "the topic is deleted"))
    evidence.require_deleted({step.topic_id: step.topic for step in steps})
    return Plan(command="delete", steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def _why_not_marked(state: TierState, part: PartitionState) -> str | None:
    if part.delete_state is not None:
        return f"already {part.delete_state}"
    if not is_legal_topic_name(part.topic_id_partition.topic):
        # No store can have objects under such a name, so a marked partition could never be deleted.
        return "its topic has a name no topic can have: the metadata record is wrong or hostile"
    return why_unreadable(state, part)


def plan_removal(state: TierState, *, topic_ids: Collection[Uuid] | None = None) -> Plan:
    """Return the plan to delete all segments of partitions whose deletion was marked, even if it finished.

    Each partition has one DELETE_PARTITION step, followed by one DELETE_SEGMENT step for each of its segments
    in any state. Partitions come in the order of their marks, so that the processed offsets of a metadata
    partition grow without gaps. `topic_ids` restricts the plan to these topics.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    for part in sorted((p for p in state if p.is_to_remove), key=_marked_order):
        if topic_ids is not None and part.topic_id_partition.topic_id not in topic_ids:
            continue
        reason = why_unreadable(state, part)
        if reason:
            skipped.append(Skip.of(part.topic_id_partition, reason))
        else:
            steps += _steps_of(part)
    return Plan(command="delete", steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def _marked_order(part: PartitionState) -> tuple[int, int]:
    return (part.metadata_partition, part.delete_marked_offset or 0)


def _steps_of(part: PartitionState) -> list[Step]:
    segments = sorted(part.cache.list_remote_log_segments(), key=_segment_order)
    whole = partition_step(
        Action.DELETE_PARTITION,
        part,
        f"{part.delete_state}",
        state=part.delete_state,
        delete_marked_offset=part.delete_marked_offset,
        segments=len(segments),
        size_bytes=sum(segment.segment_size_in_bytes for segment in segments),
    )
    return [whole, *(delete_step(segment, Reason(ReasonKind.TOPIC_DELETED)) for segment in segments)]


def _segment_order(segment: RemoteLogSegmentMetadata) -> tuple[int, Uuid]:
    return (segment.start_offset, segment.segment_id)
