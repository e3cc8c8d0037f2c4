"""Tables made in columns for regular histories equal those made from a cache of each user partition."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.pipeline import partition_groups
from tierctl.pipeline.tables import MetadataPartitionTables
from tierctl.state.tier_state import TierState

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


@pytest.mark.parametrize("group_rows", [1, 5, 1000])
@examples(40)
@given(st.lists(st.one_of(regular_histories(8), regular_histories(8), histories(6)), min_size=1, max_size=4))
def test_columns_and_caches_give_the_same_rows(group_rows: int, lives: list[list[MetadataEvent]]) -> None:
    events = [of_partition(number, e) for number, life in enumerate(lives) for e in life if encodable(e)]
    state = folded(values_of(events))
    by_cache = deepcopy(state)
    for part in by_cache.partitions.values():
        part.table.make_irregular(part.number)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_groups, "GROUP_ROWS", group_rows)
        found = tables(state)
    assert len(found[1]) == len(state.partitions)
    assert found == tables(by_cache)
