"""KIP-405's RemotePartitionRemover: what is to be deleted of partitions whose topic is gone.

Everything here goes by (topic id, partition): a topic recreated under the same name has another id.
"""

from collections.abc import Collection

from tierctl.errors import NotFoundError, SafetyRefusal
from tierctl.model import RemoteLogSegmentMetadata, RemotePartitionDeleteState, Uuid, is_legal_topic_name
from tierctl.plan.steps import Action, Plan, Skip, Step, delete_step, partition_step
from tierctl.state.tier import PartitionState, TierState

_P = RemotePartitionDeleteState
_TO_DELETE = (_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED)


def plan_mark(
    state: TierState,
    topic_ids: Collection[Uuid],
    *,
    current_topic_ids: Collection[Uuid] = (),
    force: bool = False,
) -> Plan:
    """Mark every partition of `topic_ids` that the metadata know, as KIP-405's controller would.

    `current_topic_ids` are topics that still exist (in the log directories at hand, on the cluster);
    marking one of them raises SafetyRefusal unless `force`. NotFoundError for an id the metadata never
    spoke of.
    """
    wanted = set(topic_ids)
    parts = [part for part in state if part.topic_id_partition.topic_id in wanted]
    missing = wanted - {part.topic_id_partition.topic_id for part in parts}
    if missing:
        raise NotFoundError(f"the metadata know no topic with id {', '.join(sorted(missing))}")
    _refuse_current(wanted & set(current_topic_ids), force)
    steps: list[Step] = []
    skipped: list[Skip] = []
    for part in parts:
        reason = _why_not_marked(state, part)
        if reason:
            skipped.append(Skip.of(part.topic_id_partition, reason))
        else:
            steps.append(partition_step(Action.MARK_PARTITION, part, "the topic is deleted"))
    return Plan(command="delete", steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def _refuse_current(still_there: set[Uuid], force: bool) -> None:
    if still_there and not force:
        raise SafetyRefusal(
            f"topic id {', '.join(sorted(still_there))} is that of a topic that is still there",
            hint="delete the topic first; --force marks it all the same",
        )


def _why_not_marked(state: TierState, part: PartitionState) -> str | None:
    if part.delete_state is not None:
        return f"already {part.delete_state}"
    if not is_legal_topic_name(part.topic_id_partition.topic):
        # No store has objects under such a name, and a mark that can't be carried out would stay for ever.
        return "its topic has a name no topic can have: the record that says it is wrong or hostile"
    return _why_unreadable(state, part)


def _why_unreadable(state: TierState, part: PartitionState) -> str | None:
    if state.is_complete(part.metadata_partition):
        return None
    return (
        f"metadata partition {part.metadata_partition} has records that could not be understood: "
        "it decides no deletes"
    )


def plan_removal(state: TierState, *, topic_ids: Collection[Uuid] | None = None) -> Plan:
    """Delete everything of the partitions that are marked for deletion, or whose deletion was begun.

    One DELETE_PARTITION step a partition, followed by one DELETE_SEGMENT step for each of its segments in
    whatever state, COPY_SEGMENT_STARTED and segments no read can reach included. Partitions come in the
    order in which they were marked, so that a metadata partition's processed offsets grow without gaps.
    `topic_ids`, when given, narrows to these topics.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    for part in sorted((p for p in state if p.delete_state in _TO_DELETE), key=_marked_order):
        if topic_ids is not None and part.topic_id_partition.topic_id not in topic_ids:
            continue
        reason = _why_unreadable(state, part)
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
    return [whole, *(delete_step(segment, "its partition is deleted") for segment in segments)]


def _segment_order(segment: RemoteLogSegmentMetadata) -> tuple[int, Uuid]:
    return (segment.start_offset, segment.segment_id)
