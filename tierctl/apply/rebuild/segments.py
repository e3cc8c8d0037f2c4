"""Publish the metadata of segments whose objects already exist in the tier."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tierctl.apply.delete.segments import segment_update
from tierctl.apply.labels import Label, effect
from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run_context import RunContext
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from tierctl.plan.steps import STATES, Step
from tierctl.state.tier import TierState

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def publish_segments(
    steps: Sequence[Step], context: RunContext, label: Label = "rebuild.segments.publish"
) -> list[Outcome]:
    """Publish the events of `steps` in their order, with one acknowledgement for all.

    The order of a partition's steps is that of offsets: after a crash the metadata lack only newer segments,
    which the next run publishes.
    """
    state = context.metadata.state
    events = [event for step in steps for event in _events(step, state, context)]
    with effect(label):
        context.publish(events)
    return [Outcome(step=step, status=Status.DONE) for step in steps]


def _events(step: Step, state: TierState, context: RunContext) -> Iterator[MetadataEvent]:
    """Yield COPY_SEGMENT_STARTED, unless the metadata have it, and the later states of the step."""
    segment = _segment(step, context)
    if state.segment(step.topic_id_partition, segment.segment_id) is None:
        # As in brokers' events, COPY_SEGMENT_STARTED has no custom metadata; the events after the copy have
        # it.
        yield replace(segment, custom_metadata=None)
    for name in step.details[STATES].split(","):
        target = RemoteLogSegmentState(name)
        if target is not _STARTED:
            yield segment_update(segment, target, context)


def _segment(step: Step, context: RunContext) -> RemoteLogSegmentMetadata:
    if step.segment_id is None or step.start_offset is None or step.end_offset is None:
        raise ValueError(f"a step to publish names no segment: {step}")
    details = step.details
    custom = details["custom_metadata"]
    return RemoteLogSegmentMetadata(
        topic=step.topic,
        topic_id=step.topic_id,
        partition=step.partition,
        segment_id=step.segment_id,
        start_offset=step.start_offset,
        end_offset=step.end_offset,
        broker_id=context.broker_id,
        max_timestamp_ms=details["max_timestamp_ms"],
        event_timestamp_ms=context.clock_ms(),
        segment_leader_epochs=tuple((epoch, start) for epoch, start in details["segment_leader_epochs"]),
        segment_size_in_bytes=details["segment_size_in_bytes"],
        custom_metadata=None if custom is None else bytes.fromhex(custom),
        state=_STARTED,
        txn_index_empty=details["txn_index_empty"] and context.kafka_version.has_txn_index_empty,
    )
