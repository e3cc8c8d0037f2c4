"""Publish the metadata of segments whose objects already exist in the tier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run import Run
from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import Label, effect
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.plan.steps import STATES, Step

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def publish_segments(
    steps: Sequence[Step], context: RunContext, label: Label = "rebuild.segments.publish"
) -> list[Outcome]:
    """Publish the events of `steps` in their order, with one acknowledgement for all.

    The order of a partition's steps is that of offsets: after a crash the metadata lack only newer segments,
    which the next run publishes.
    """
    state = context.metadata.state
    fields = EventFields(
        broker_id=context.broker_id,
        timestamp_ms=context.clock_ms(),
        has_txn_index_empty=context.kafka_version.has_txn_index_empty,
    )
    events = [
        event
        for step in steps
        for event in segment_events(
            step,
            fields,
            is_known=state.segment(step.topic_id_partition, _segment_id(step)) is not None,
        )
    ]
    with effect(label):
        context.publish(events)
    return [Outcome(step=step, status=Status.DONE) for step in steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFields:
    """The fields of events that do not come from their step."""

    broker_id: int
    timestamp_ms: int
    has_txn_index_empty: bool


def segment_events(step: Step, fields: EventFields, *, is_known: bool) -> Iterator[MetadataEvent]:
    """Yield COPY_SEGMENT_STARTED, unless the metadata have it (`is_known`), and the step's later states."""
    segment = _segment(step, fields)
    if not is_known:
        # As in brokers' events, COPY_SEGMENT_STARTED has no custom metadata; the events after the copy have
        # it.
        yield replace(segment, custom_metadata=None)
    for name in step.details[STATES].split(","):
        target = RemoteLogSegmentState(name)
        if target is not _STARTED:
            yield RemoteLogSegmentMetadataUpdate.of(
                segment, target, broker_id=fields.broker_id, event_timestamp_ms=fields.timestamp_ms
            )


def introduces(step: Step) -> bool:
    """Return whether the metadata that the step was decided from lack its segment."""
    return str(step.details[STATES]).startswith(_STARTED)


def _segment_id(step: Step) -> Uuid:
    if step.segment_id is None:
        raise ValueError(f"a step to publish names no segment: {step}")
    return step.segment_id


def _segment(step: Step, fields: EventFields) -> RemoteLogSegmentMetadata:
    if step.start_offset is None or step.end_offset is None:
        raise ValueError(f"a step to publish names no offsets: {step}")
    details = step.details
    custom = details["custom_metadata"]
    return RemoteLogSegmentMetadata(
        topic=step.topic,
        topic_id=step.topic_id,
        partition=step.partition,
        segment_id=_segment_id(step),
        start_offset=step.start_offset,
        end_offset=step.end_offset,
        broker_id=fields.broker_id,
        max_timestamp_ms=details["max_timestamp_ms"],
        event_timestamp_ms=fields.timestamp_ms,
        segment_leader_epochs=tuple((epoch, start) for epoch, start in details["segment_leader_epochs"]),
        segment_size_in_bytes=details["segment_size_in_bytes"],
        custom_metadata=None if custom is None else bytes.fromhex(custom),
        state=_STARTED,
        txn_index_empty=details["txn_index_empty"] and fields.has_txn_index_empty,
    )


def publish_in_waves(run: Run, steps: Sequence[Step]) -> None:
    """Publish the events of valid steps; the act of PUBLISH_SEGMENT and DISCARD_SEGMENT."""
    for wave in run.context.delete_waves(steps):
        run.attempt(wave, lambda kept: publish_segments(kept, run.context), rechecked=True)
