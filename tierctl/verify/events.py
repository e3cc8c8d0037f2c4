"""Checks of the metadata topic: damaged records, dropped events, partition deletes that did not finish."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.model.engine import Severity
from tierctl.state.tier import Anomaly, PartitionState, TierState
from tierctl.verify.findings import Finding, FindingKind, finding_of

_K = FindingKind
_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState


WasDeleted = Callable[[Uuid], bool]
"""Returns whether the metadata topic has DELETE_SEGMENT_FINISHED of the segment."""


def check_events(state: TierState, was_deleted: WasDeleted) -> Iterator[Finding]:
    """Yield the records that could not be used and the events that brokers drop without an error."""
    for bad in state.quarantined:
        yield Finding(
            kind=_K.CORRUPT_METADATA,
            severity=Severity.ERROR,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=bad.metadata_partition,
            start_offset=bad.metadata_offset,
            end_offset=bad.metadata_offset,
            message=bad.error.message,
        )
    for anomaly in state.anomalies:
        yield _dropped(anomaly, state, was_deleted)
    more = state.anomaly_count - len(state.anomalies)
    if more > 0:
        yield Finding(
            kind=_K.DROPPED_EVENT,
            severity=Severity.WARNING,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=None,
            message=f"{more} more events were dropped",
        )


def _dropped(anomaly: Anomaly, state: TierState, was_deleted: WasDeleted) -> Finding:
    part = state.partition(anomaly.topic_id_partition)
    missing = state.missing_of(anomaly.metadata_partition)
    event = anomaly.event
    segment_id = getattr(event, "segment_id", None)
    where = f"{METADATA_TOPIC}-{anomaly.metadata_partition} offset {anomaly.metadata_offset}"
    severity, why = Severity.WARNING, "the state of the segment or partition does not allow it"
    is_live = part is not None and segment_id is not None and part.get(segment_id) is not None
    if isinstance(event, RemoteLogSegmentMetadataUpdate) and not is_live and was_deleted(event.segment_id):
        why = "the segment was deleted before"
        if event.state in {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}:
            # After an election two brokers may delete the same segment, which does no harm.
            severity = Severity.INFO
    elif isinstance(event, RemoteLogSegmentMetadataUpdate) and not is_live and missing:
        severity, why = Severity.INFO, f"{missing[0]}, its COPY_SEGMENT_STARTED among them"
    target = getattr(event, "state", type(event).__name__)
    found = finding_of(
        anomaly.topic_id_partition, _K.DROPPED_EVENT, severity, f"{target} at {where} was dropped: {why}"
    )
    if isinstance(event, RemoteLogSegmentMetadata):
        found = replace(found, start_offset=event.start_offset, end_offset=event.end_offset)
    return replace(found, segment_id=segment_id)


def check_partition_delete(part: PartitionState) -> Iterator[Finding]:
    """Yield a finding if the partition's deletion was marked and segments are left."""
    if part.delete_state in {_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED}:
        message = f"the partition is {part.delete_state}, and {part.segment_count} segments are left"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.WARNING, message)
    elif part.delete_state is _P.DELETE_PARTITION_FINISHED and part.segment_count:
        message = f"the partition is {part.delete_state}, yet {part.segment_count} segments are left"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.ERROR, message)
