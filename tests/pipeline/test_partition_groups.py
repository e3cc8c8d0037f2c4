"""The tables of the pipeline have what the caches of the user partitions answer."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import RemoteResourceNotFound
from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.pipeline import partition_groups
from tierctl.pipeline.tables import MetadataPartitionTables
from tierctl.state.tier_state import PartitionState, TierState

from tests.state.folding import encodable, folded, values_of
from tests.state.histories import ORDERS, histories, regular_histories
from tests.support.amounts import examples

METADATA_PARTITION = 3
"""The metadata partition into which `folded` folds events."""
NOW_MS = 1_700_000_150_000 + 86_400_000
NAMES = [
    ORDERS,
    replace(ORDERS, topic="ledger", topic_id=Uuid.from_bytes(b"topic-id-ledger!")),
    ORDERS,
    ORDERS,
]


def whose(number: int) -> TopicIdPartition:
    return replace(NAMES[number], partition=number)


def of_partition(number: int, event: Any) -> Any:
    """Return the event for another user partition, with another segment id."""
    name = whose(number)
    moved = replace(event, topic=name.topic, topic_id=name.topic_id, partition=number)
    own = Uuid.from_bytes(bytes([number]) + moved.segment_id.bytes[1:])
    return replace(moved, segment_id=own)


def tables(state: TierState) -> tuple[Any, ...]:
    made = MetadataPartitionTables(state, METADATA_PARTITION, NOW_MS)
    segments = [
        row
        for _, chosen in made.segment_files().to_write()
        for batch in made.segments(chosen)
        for row in batch.to_pylist()
    ]
    _, partitions, anomalies = zip(*made.blocks(lambda _: False), strict=True)
    rows = [[row for table in blocks for row in table.to_pylist()] for blocks in (partitions, anomalies)]
    return sorted(segments, key=repr), *rows, made.due_ms


def by_epoch(part: PartitionState) -> tuple[dict[int, int], dict[int, int]]:
    """Return the highest offset and the bytes of each leader epoch by a broker's cache."""
    cache, highest, sizes = part.cache, {}, {}
    for epoch in cache.leader_epochs():
        offset = cache.highest_offset_for_epoch(epoch)
        if offset is not None:
            highest[epoch] = offset
        with suppress(RemoteResourceNotFound):
            listed = cache.list_remote_log_segments(epoch)
            sizes[epoch] = sum(segment.segment_size_in_bytes for segment in listed)
    return highest, {epoch: size for epoch, size in sizes.items() if size}


@pytest.mark.parametrize("group_rows", [1, 5, 1000])
@examples(40)
@given(st.lists(st.one_of(regular_histories(8), regular_histories(8), histories(6)), min_size=1, max_size=4))
def test_tables_have_what_caches_answer(group_rows: int, lives: list[list[MetadataEvent]]) -> None:
    events = [of_partition(number, e) for number, life in enumerate(lives) for e in life if encodable(e)]
    state = folded(values_of(events))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_groups, "GROUP_ROWS", group_rows)
        segments, rows, *_ = tables(state)
    assert len(rows) == len(state.partitions)
    assert len(segments) == sum(part.segment_count for part in state)
    for part in state:
        whose = part.topic_id_partition
        name = str(whose.topic_id), whose.partition
        (row,) = [row for row in rows if (row["topic_id"], row["partition"]) == name]
        highest, sizes = by_epoch(part)
        assert dict(row["highest_offset_by_epoch"]) == highest
        assert dict(row["remote_log_size_bytes_by_epoch"]).items() >= sizes.items()
        assert row["copy_segment_finished"] == part.finished_count
