"""Sets of objects for the tests that choose between them."""

from collections.abc import Sequence

from tierctl.model import ListedSet, ObjectSet, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.state.lineage import Lineage

PARTITION = TopicIdPartition(Uuid("2QZ5FAXaQrqgUzsReWnweA"), "orders", 3)
Pairs = Sequence[tuple[int, int]]


def object_set(
    number: int,
    start: int,
    end: int,
    log: Pairs,
    *,
    log_start: int = 0,
    sealed: bool = False,
    half: bool = False,
) -> ObjectSet:
    """Return the set of segment `number` with these offsets, copied from a log with the epochs `log`."""
    whole = Lineage(log)
    segment_id = Uuid.from_bytes(number.to_bytes(16, "big"))
    listed = ListedSet(
        partition=PARTITION,
        segment_id=segment_id,
        start_offset=start,
        sizes_bytes={1: 100},
        modified_ms=number,
    )
    if half:
        return ObjectSet(listed=listed, why_incomplete="it has no .log")
    epochs = tuple((e, at) for e, at in whole.entries_in_range(start, end + 1))
    index = whole.truncate_from_start(log_start).truncate_from_end(end + 1).entries
    segment = RemoteLogSegmentMetadata(
        topic=PARTITION.topic,
        topic_id=PARTITION.topic_id,
        partition=PARTITION.partition,
        segment_id=segment_id,
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=end,
        event_timestamp_ms=number,
        segment_leader_epochs=epochs,
        segment_size_in_bytes=100,
    )
    return ObjectSet(listed=listed, segment=segment, lineage=index)
