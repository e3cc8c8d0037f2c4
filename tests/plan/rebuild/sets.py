"""Sets of objects for the tests that choose between them."""

from collections.abc import Sequence

from tierctl.model import ListedSet, ObjectSet, TopicIdPartition, Uuid
from tierctl.state.lineage import Lineage

from tests.plan.tier import segment, segment_id

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
    listed = ListedSet(
        partition=PARTITION,
        segment_id=segment_id(number),
        start_offset=start,
        sizes_bytes={1: 100},
        modified_ms=number,
    )
    if half:
        return ObjectSet(listed=listed, why_incomplete="it has no .log")
    epochs = tuple((e, at) for e, at in whole.entries_in_range(start, end + 1))
    index = whole.truncate_from_start(log_start).truncate_from_end(end + 1).entries
    copied = segment(
        number, start, end, *epochs, max_timestamp_ms=end, event_timestamp_ms=number, partition=PARTITION
    )
    return ObjectSet(listed=listed, segment=copied, lineage=index)
