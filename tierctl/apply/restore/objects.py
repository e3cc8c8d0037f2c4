"""Copy the objects of segments within the tier to the names of another topic id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tierctl.apply.labels import effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult
from tierctl.errors import TierctlError
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.plan.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCopies:
    """The segments to copy, by new partition and segment id; a copy keeps the segment id."""

    segments: Mapping[tuple[TopicIdPartition, Uuid], RemoteLogSegmentMetadata]

    def copy(self, context: RunContext, steps: Sequence[Step]) -> list[Outcome]:
        """Copy the objects of each step's segment, several segments at a time; return an outcome per step."""
        context.engine.ready()
        inputs = [_CopyInput(self._segment(step), step.topic_id_partition) for step in steps]
        results = context.engine.map(_copy, inputs, context.side_effect_context())
        return [_outcome(step, result) for step, result in zip(steps, results, strict=True)]

    def _segment(self, step: Step) -> RemoteLogSegmentMetadata:
        if step.segment_id is None:
            raise ValueError(f"a step to copy objects names no segment: {step}")
        return self.segments[step.topic_id_partition, step.segment_id]


@dataclass(frozen=True, slots=True)
class _CopyInput:
    segment: RemoteLogSegmentMetadata
    partition: TopicIdPartition


def _copy(context: SideEffectContext, each: _CopyInput) -> SideEffectResult:
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        with effect("restore.objects.copy"):
            context.remote.copy_objects(each.segment, each.partition)
    except TierctlError as e:
        return SideEffectResult(begun=True, error=e)
    context.advance(each.segment.segment_size_in_bytes)
    return SideEffectResult(begun=True)


def _outcome(step: Step, result: SideEffectResult) -> Outcome:
    if result.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(
        step=step, status=Status.DONE if result.error is None else Status.FAILED, error=result.error
    )
