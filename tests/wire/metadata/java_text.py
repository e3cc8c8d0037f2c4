"""Metadata events as text of Kafka's classes (`toString`), which Kafka's formatter prints."""

from typing import assert_never

from tierctl.model.events import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)


def to_string(event: MetadataEvent, *, txn_index: bool = True) -> str:
    """Return the event as Kafka 4.3's `toString`; `txn_index=False` as before 4.0, without txnIdxEmpty.

    An event of dialect kip405, for which Kafka has no class, has `leaderEpoch=` or `epoch=` instead of
    `brokerId=`.
    """
    match event:
        case RemoteLogSegmentMetadata():
            return _segment(event, txn_index=txn_index)
        case RemoteLogSegmentMetadataUpdate():
            return _update(event)
        case RemotePartitionDeleteMetadata():
            return _partition_delete(event)
        case RemoteLogSegmentMetadataSnapshot():
            return _snapshot(event, txn_index=txn_index)
        case _:
            assert_never(event)


def _segment(event: RemoteLogSegmentMetadata, *, txn_index: bool) -> str:
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(event)}"
        f", startOffset={event.start_offset}, endOffset={event.end_offset}"
        f", {_writer(event.broker_id, event.leader_epoch)}"
        f", maxTimestampMs={event.max_timestamp_ms}, eventTimestampMs={event.event_timestamp_ms}"
        f", {_copied(event)}{_txn_index(event, shown=txn_index)}}}"
    )


def _snapshot(event: RemoteLogSegmentMetadataSnapshot, *, txn_index: bool) -> str:
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={event.segment_id}"
        f", startOffset={event.start_offset}, endOffset={event.end_offset}"
        f", maxTimestampMs={event.max_timestamp_ms}"
        f", {_copied(event)}{_txn_index(event, shown=txn_index)}}}"
    )


def _update(event: RemoteLogSegmentMetadataUpdate) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(event)}"
        f", customMetadata={_custom(event.custom_metadata)}, state={event.state}"
        f", eventTimestampMs={event.event_timestamp_ms}, {_writer(event.broker_id, event.leader_epoch)}}}"
    )


def _partition_delete(event: RemotePartitionDeleteMetadata) -> str:
    writer = f"epoch={event.epoch}" if event.broker_id is None else f"brokerId={event.broker_id}"
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={event.topic_id_partition}, state={event.state}"
        f", eventTimestampMs={event.event_timestamp_ms}, {writer}}}"
    )


def _segment_id(event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={event.topic_id_partition}, id={event.segment_id}}}"


def _writer(broker_id: int | None, leader_epoch: int | None) -> str:
    return f"leaderEpoch={leader_epoch}" if broker_id is None else f"brokerId={broker_id}"


def _copied(event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataSnapshot) -> str:
    # Kafka stores epochs in a sorted map: for a repeated epoch, the last offset counts.
    epochs = ", ".join(
        f"{epoch}={offset}" for epoch, offset in sorted(dict(event.segment_leader_epochs).items())
    )
    return (
        f"segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={event.segment_size_in_bytes}"
        f", customMetadata={_custom(event.custom_metadata)}, state={event.state}"
    )


def _custom(value: bytes | None) -> str:
    return "Optional.empty" if value is None else f"Optional[CustomMetadata{{{len(value)} bytes}}]"


def _txn_index(event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataSnapshot, *, shown: bool) -> str:
    return f", txnIdxEmpty={str(event.txn_index_empty).lower()}" if shown else ""
