"""Events for tests of metadata logs."""

from dataclasses import replace

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)

from tests.plan.tier import segment, segment_id

__all__ = ["segment_id"]

TOPIC_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")
OTHER_ID = Uuid("u6uHqOrgTh-HLODx2Wo0EA")
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def started(
    number: int, *, partition: int = 0, topic: str = "orders", topic_id: Uuid = TOPIC_ID
) -> RemoteLogSegmentMetadata:
    """Return COPY_SEGMENT_STARTED of the segment with offsets from 100·number on."""
    begun = segment(
        *(number, 100 * number, 100 * number + 99),
        size=1000 + number,
        max_timestamp_ms=1_700_000_000_000 + number,
        event_timestamp_ms=1_700_000_100_000 + number,
        partition=TopicIdPartition(topic_id, topic, partition),
    )
    return replace(begun, broker_id=-1)


def update(
    number: int, state: RemoteLogSegmentState = FINISHED, *, partition: int = 0
) -> RemoteLogSegmentMetadataUpdate:
    """Return a later event of the same segment."""
    later = update_of(started(number, partition=partition), state, at_ms=1_700_000_200_000 + number)
    return replace(later, broker_id=-1)


def repeated_and_lost() -> list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]:
    """Return events of segments 1 and 2, which were copied, some of them twice; 1 was deleted."""
    deleted = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    events = [started(1), started(1), update(1), update(1), started(2), update(2), update(1, deleted)]
    # The first event of segment 9 is missing, and segment 3 was never finished.
    events += [update(1, deleted), started(3), update(9)]
    # The copy of segment 4 failed and was withdrawn.
    return [*events, started(4), update(4, RemoteLogSegmentState.DELETE_SEGMENT_STARTED), update(4, deleted)]


def partition_delete(
    state: RemotePartitionDeleteState, *, partition: int = 0
) -> RemotePartitionDeleteMetadata:
    """Return an event with the partition's delete state."""
    whose = TopicIdPartition(TOPIC_ID, "orders", partition)
    return replace(deletion_of(whose, state, at_ms=1_700_000_300_000), broker_id=-1)


def update_of(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, *, at_ms: int | None = None
) -> RemoteLogSegmentMetadataUpdate:
    """Return the event with which broker 1 moves a segment to a state, by default at the time of its copy."""
    event_ms = segment.event_timestamp_ms if at_ms is None else at_ms
    return RemoteLogSegmentMetadataUpdate.of(segment, state, broker_id=1, event_timestamp_ms=event_ms)


def deletion_of(
    whose: RemoteLogSegmentMetadata | TopicIdPartition, state: RemotePartitionDeleteState, *, at_ms: int = 0
) -> RemotePartitionDeleteMetadata:
    """Return the event of broker 1 with the delete state of a partition, or of a segment's partition."""
    return RemotePartitionDeleteMetadata(
        topic=whose.topic,
        topic_id=whose.topic_id,
        partition=whose.partition,
        broker_id=1,
        event_timestamp_ms=at_ms,
        state=state,
    )
