"""Events for tests of metadata logs."""

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)

TOPIC_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")
OTHER_ID = Uuid("u6uHqOrgTh-HLODx2Wo0EA")
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segment_id(number: int) -> Uuid:
    """Return a segment id."""
    return Uuid.from_bytes(number.to_bytes(16, "big"))


def started(
    number: int, *, partition: int = 0, topic: str = "orders", topic_id: Uuid = TOPIC_ID
) -> RemoteLogSegmentMetadata:
    """Return COPY_SEGMENT_STARTED of the segment with offsets from 100·number on."""
    return RemoteLogSegmentMetadata(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        segment_id=segment_id(number),
        start_offset=100 * number,
        end_offset=100 * number + 99,
        broker_id=-1,
        max_timestamp_ms=1_700_000_000_000 + number,
        event_timestamp_ms=1_700_000_100_000 + number,
        segment_leader_epochs=((0, 100 * number),),
        segment_size_in_bytes=1000 + number,
    )


def update(
    number: int, state: RemoteLogSegmentState = FINISHED, *, partition: int = 0
) -> RemoteLogSegmentMetadataUpdate:
    """Return a later event of the same segment."""
    return RemoteLogSegmentMetadataUpdate(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=partition,
        segment_id=segment_id(number),
        broker_id=-1,
        event_timestamp_ms=1_700_000_200_000 + number,
        state=state,
    )


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
    return RemotePartitionDeleteMetadata(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=partition,
        broker_id=-1,
        event_timestamp_ms=1_700_000_300_000,
        state=state,
    )


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
