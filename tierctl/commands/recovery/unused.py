"""What a restore as a local log does not use: every partition and segment, with the reason."""

from collections.abc import Iterator, Mapping, Sequence

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierctl.plan.materialise import SEGMENTS, Source
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.partition import PartitionDecision, PartitionInputs
from tierctl.plan.rebuild.plan import unused_of
from tierctl.plan.steps import Skip, Step
from tierctl.read.partitions import PartitionSet
from tierctl.state.tier import TierState


def unused(
    state: TierState,
    chosen: PartitionSet,
    decisions: Mapping[TopicIdPartition, PartitionDecision],
    sources: Sequence[Source],
    steps: Sequence[Step],
) -> Iterator[Skip]:
    """Yield each chosen partition that is in none of `sources`, and each segment that no step has.

    `decisions` are those about the sets of objects, without metadata. Partitions without a step have another
    reason in the plan already.
    """
    by_partition = {source.partition: source for source in sources}
    for partition, decision in decisions.items():
        # The reason of a partition with a source is in the plan.
        if partition not in by_partition:
            yield Skip.of(partition, decision.refused or "the tier has no complete segment of it")
        yield from unused_of(PartitionInputs(partition=partition, sets=()), decision.choice)
    used = {step.topic_id_partition: step for step in steps}
    for part in state:
        partition = part.topic_id_partition
        if partition not in chosen:
            continue
        if partition in used:
            yield from _unused_segments(
                list(part.cache.list_remote_log_segments()), by_partition[partition], used[partition]
            )
        elif partition not in by_partition and partition not in decisions:
            yield Skip.of(partition, "the metadata have no finished segment of it")


def _unused_segments(
    segments: Sequence[RemoteLogSegmentMetadata], source: Source, step: Step
) -> Iterator[Skip]:
    written = {each["segment_id"] for each in step.details[SEGMENTS]}
    for segment in segments:
        if str(segment.segment_id) not in written:
            yield Skip.of(source.partition, _why(segment, source, step), segment.segment_id)


def _why(segment: RemoteLogSegmentMetadata, source: Source, step: Step) -> str:
    if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return Reason(ReasonKind.ALREADY_KNOWN, state=str(segment.state))
    span = f"offsets {segment.start_offset} to {segment.end_offset}"
    if source.until_offset is not None and segment.start_offset >= source.until_offset:
        return f"{span}: --until ends the log at {source.until_offset}"
    if step.start_offset is not None and segment.end_offset < step.start_offset:
        return f"{span}: the log begins at {step.start_offset}"
    return f"{span}: other segments of the lineage serve them"
