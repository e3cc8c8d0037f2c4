"""The tables of the pipeline have what caches of user partitions answer, and the fold goes on from them."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.model import MetadataEvent, TopicIdPartition, Uuid
from tierctl.pipeline.tables import PARTITION_SCHEMA, PartitionGroup, partition_batch
from tierctl.spark.fold_rows import (
    FOLDED,
    KNOWN_PARTITION,
    KNOWN_SEGMENT,
    SEGMENTS,
    Rows,
    batch_of_columns,
    partition_names,
    rows_of_task,
    segment_columns,
)
from tierctl.spark.sources.metadata_splits import COLUMNS
from tierctl.state.fold import fold
from tierctl.state.stored_rows import table_of_rows, words_of_ids
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import DANGLING
from tierctl.state.tier_state import PartitionState, TierState

from tests.metadata.events import started, update
from tests.state.folding import encodable, events_of, facts_of, folded, values_of
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


def partitions_of(state: TierState) -> pa.Table:
    """Return the rows of the table `partitions`."""
    rows = [PARTITION_SCHEMA.empty_table()]
    for number, table in state.tables.items():
        group = PartitionGroup.of(table, [part for part in state if part.table is table])
        batch = partition_batch(group, group.in_order(), number, NOW_MS)
        rows.append(pa.Table.from_batches([batch]))
    return pa.concat_tables(rows)


def segments_of(table: SegmentTable, metadata_partition: int = METADATA_PARTITION) -> pa.Table:
    """Return the rows of the table `segments`."""
    names = partition_names([*table.topic_id_partitions()], metadata_partition)
    columns = segment_columns(table, table.live_rows(), names, SEGMENTS.names)
    return pa.Table.from_batches([batch_of_columns(columns, SEGMENTS)])


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


@examples(40)
@given(st.lists(st.one_of(regular_histories(8), regular_histories(8), histories(6)), min_size=1, max_size=4))
def test_tables_have_what_caches_answer(lives: list[list[MetadataEvent]]) -> None:
    events = [of_partition(number, e) for number, life in enumerate(lives) for e in life if encodable(e)]
    state = folded(values_of(events))
    rows = partitions_of(state).to_pylist()
    assert len(rows) == len(state.partitions)
    for part in state:
        whose = part.topic_id_partition
        name = str(whose.topic_id), whose.partition
        (row,) = [row for row in rows if (row["topic_id"], row["partition"]) == name]
        highest, sizes = by_epoch(part)
        assert dict(row["highest_offset_by_epoch"]) == highest
        assert dict(row["remote_log_size_bytes_by_epoch"]).items() >= sizes.items()
        assert row["copy_segment_finished"] == part.finished_count


def continued(values: list[bytes], cuts: list[int]) -> TierState:
    """Return the state of a fold that goes on from rows of tables after each of the cuts."""
    state, begin = TierState(), 0
    for end in (*sorted(cuts), len(values)):
        offsets = range(begin, max(begin, end))
        fold(
            events_of(values[begin:end]),
            state,
            metadata_partition=METADATA_PARTITION,
            metadata_offsets=offsets,
        )
        begin = max(begin, end)
        table = table_of_rows(segments_of(state.table(METADATA_PARTITION)), partitions_of(state))
        state = TierState()
        state.put_table(METADATA_PARTITION, table)
    return state


OTHER_EPOCHS = [
    replace(started(7), segment_leader_epochs=((0, 700), (1, 700), (0, 700), (3, 700))),
    started(7),
]
"""A copy that is begun again with other leader epochs."""


@examples(60)
@given(st.lists(histories(8), min_size=1, max_size=3), st.lists(st.integers(0, 30), max_size=3))
@example([OTHER_EPOCHS], [])
def test_a_fold_goes_on_from_the_rows(lives: list[list[MetadataEvent]], cuts: list[int]) -> None:
    values = values_of([of_partition(n, e) for n, life in enumerate(lives) for e in life if encodable(e)])
    whole, found = folded(values), continued(values, cuts)
    is_dangling = (whole.table(METADATA_PARTITION).segments["flags"] & DANGLING).any()
    assert found.partitions.keys() == whole.partitions.keys()
    rows, known_rows = (segments_of(each.table(METADATA_PARTITION)).to_pylist() for each in (found, whole))
    assert plain(rows) == plain(known_rows)
    for key, part in found.partitions.items():
        known = whole.partitions[key]
        assert facts_of(part) == facts_of(known)
        assert part.failed_copies == known.failed_copies
        assert part.segments.latest_epoch() == known.segments.latest_epoch()
        assert plain(part.segments) == plain(known.segments)
        for epoch in part.cache.leader_epochs():
            assert part.cache.highest_offset_for_epoch(epoch) == known.cache.highest_offset_for_epoch(epoch)
            if not is_dangling:
                assert listed(part, epoch) == listed(known, epoch)
            for offset in range(-1, 60, 3):
                found_at, known_at = (
                    each.cache.remote_log_segment_metadata(epoch, offset) for each in (part, known)
                )
                assert plain([found_at]) == plain([known_at])


def plain(segments: Iterable[Any]) -> list[Any]:
    """Return the segments in an order of their texts; None stands for no segment."""
    return sorted(segments, key=repr)


def listed(part: PartitionState, epoch: int) -> list[Any]:
    return plain(part.cache.list_remote_log_segments(epoch))


WRONG = {
    "a state": ("segments", "state", "COPIED"),
    "an id with another character": ("segments", "segment_id", "!" * 22),
    "an id that is too short": ("partitions", "topic_id", "abc"),
    "a user partition without a row": ("segments", "partition", 77),
}


@pytest.mark.parametrize("what", WRONG)
def test_rows_that_are_no_state(what: str) -> None:
    state = folded(values_of([started(1), update(1), started(2)]))
    rows = {"segments": segments_of(state.table(METADATA_PARTITION)), "partitions": partitions_of(state)}
    table, column, value = WRONG[what]
    changed = rows[table].to_pylist()
    changed[-1][column] = value
    rows[table] = pa.Table.from_pylist(changed, schema=rows[table].schema)
    with pytest.raises(CorruptInputError):
        table_of_rows(rows["segments"], rows["partitions"])


def known_batch(name: str, rows: pa.Table, *, is_large: bool) -> pa.RecordBatch:
    """Return rows of a state as Spark sends them; `is_large` is its setting arrow.useLargeVarTypes."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()} if is_large else {}
    kinds = [field.with_type(large.get(field.type, field.type)) for field in rows.schema]
    columns = {each: pa.nulls(len(rows), COLUMNS.field(each).type) for each in FOLDED}
    columns[name] = rows.cast(pa.schema(kinds)).to_struct_array().combine_chunks()
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_task_goes_on_from_the_rows_of_several_metadata_partitions(*, is_large: bool) -> None:
    state, segments = TierState(), []
    for number in range(3):
        values = values_of([of_partition(number, started(each)) for each in range(number + 1)])
        fold(events_of(values), state, metadata_partition=number, metadata_offsets=range(len(values)))
        segments.append(segments_of(state.table(number), number))
    known = {KNOWN_SEGMENT: pa.concat_tables(segments), KNOWN_PARTITION: partitions_of(state)}
    batches = [known_batch(name, rows, is_large=is_large) for name, rows in known.items()]
    found = pa.Table.from_batches(rows_of_task({Rows.SEGMENTS}, SEGMENTS, None, batches))
    assert found.to_pylist() == known[KNOWN_SEGMENT].to_pylist()


@given(
    st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=4),
    st.integers(0, 21),
    st.sampled_from("+/=. \n\0~"),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 3),
)
def test_words_of_ids(ids: list[bytes], at: int, other: str, kind: pa.DataType, first: int) -> None:
    texts = [Uuid.from_bytes(each) for each in ids]
    words = words_of_ids(pa.array([str(each) for each in texts], kind)[first:])
    read = [high.tobytes()[::-1] + low.tobytes()[::-1] for high, low in zip(*words, strict=True)]
    assert read == ids[first:]
    spoilt = texts[-1][:at] + other + texts[-1][at + 1 :]
    with pytest.raises(CorruptInputError):
        words_of_ids(pa.array([*texts[:-1], spoilt]))
