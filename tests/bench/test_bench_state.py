"""What a segment costs in memory, and how fast events fold: by columns, against the loop of add and update.

Sizes are KIP-405's when measured (2.6 million segments: one a second for thirty days), a fraction of that
when run as a plain test. Seconds are of processor time, all threads together.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold import fold
from tierctl.state.fold.event_columns import event_columns
from tierctl.state.tier import TierState
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA

pytestmark = pytest.mark.benchmark(timer=time.process_time)

SEGMENTS_OF_THE_KIP = 2_600_000
SEGMENTS_OF_A_TEST = 100_000
BYTES_OF_THE_KIP = 100
SEGMENTS_A_CHUNK = 200_000
SEGMENTS_ONE_BY_ONE = 10_000
SEED = 1

_TYPES = [RemoteLogSegmentMetadata.type, RemoteLogSegmentMetadataUpdate.type]


def _epochs(first: int, count: int, epochs_each: int) -> pa.Array:
    """A list for each event: of a segment its epochs, of an update none; the first changes now and then."""
    number = np.repeat(np.arange(first, first + count), epochs_each)
    within = np.tile(np.arange(epochs_each), count)
    words = np.stack([number // 100_000 + within, number * 1000 + within * 10], axis=1).reshape(-1)
    inner = pa.ListArray.from_arrays(np.arange(0, len(words) + 1, 2, dtype=np.int32), words.astype(np.int64))
    ends = np.repeat(np.arange(1, count + 1) * epochs_each, 2)
    return pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), inner)


def _table(first: int, count: int, epochs_each: int) -> pa.Table:
    """COPY_SEGMENT_STARTED and COPY_SEGMENT_FINISHED of segments `first`, `first` + 1, …, decoded."""
    rows = 2 * count
    ids = np.random.default_rng((SEED, first)).bytes(16 * count)
    raw = np.frombuffer(ids, dtype=np.uint8).reshape(count, 16)
    number = np.repeat(np.arange(first, first + count), 2)
    is_update = np.tile([False, True], count)
    columns: dict[str, pa.Array] = {
        "topic": pa.array(["orders"]).take(pa.array(np.zeros(rows, dtype=np.int32))),
        "topic_id": _ids(np.zeros((rows, 16), dtype=np.uint8)),
        "partition": pa.array(np.zeros(rows, dtype=np.int32)),
        "segment_id": _ids(np.repeat(raw, 2, axis=0)),
        "start_offset": pa.array(number * 1000, mask=is_update),
        "end_offset": pa.array(number * 1000 + 999, mask=is_update),
        "broker_id": pa.array(np.full(rows, 1, dtype=np.int32)),
        "max_timestamp_ms": pa.array(1_700_000_000_000 + number, mask=is_update),
        "event_timestamp_ms": pa.array(1_700_000_000_500 + number),
        "segment_leader_epochs": _epochs(first, count, epochs_each),
        "segment_size_in_bytes": pa.array(np.full(rows, 1 << 29, dtype=np.int32), mask=is_update),
        "txn_index_empty": pa.array(np.ones(rows, dtype=bool), mask=is_update),
        "state": _names(is_update, ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"]),
        "type": _names(is_update, _TYPES),
    }
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in EVENT_SCHEMA]
    return pa.table(arrays, schema=EVENT_SCHEMA)


def _ids(raw: npt.NDArray[np.uint8]) -> pa.Array:
    storage = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(raw), [None, pa.py_buffer(np.ascontiguousarray(raw))]
    )
    return pa.ExtensionArray.from_storage(EVENT_SCHEMA.field("topic_id").type, storage)


def _names(second: npt.NDArray[np.bool_], names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(second.astype(np.int8)), pa.array(names))


def _tables(segments: int, epochs_each: int) -> Iterator[pa.Table]:
    for first in range(0, segments, SEGMENTS_A_CHUNK):
        yield _table(first, min(SEGMENTS_A_CHUNK, segments - first), epochs_each)


def _folded(
    tables: Iterable[pa.Table], least_bulk_events: int = 1, *, keep_deleted: bool = False
) -> TierState:
    state = TierState(keep_deleted=keep_deleted)
    for table in tables:
        begin = state.read.get(0, 0)
        offsets = np.arange(begin, begin + table.num_rows)
        fold(
            table, state, metadata_partition=0, metadata_offsets=offsets, least_bulk_events=least_bulk_events
        )
    return state


def _cache(state: TierState) -> RemoteLogMetadataCache:
    (part,) = state.partitions.values()
    return part.cache


def _segments(benchmark: BenchmarkFixture) -> int:
    return SEGMENTS_OF_THE_KIP if benchmark.enabled else SEGMENTS_OF_A_TEST


@pytest.mark.parametrize(("epochs_each", "most_bytes"), [(1, BYTES_OF_THE_KIP), (3, 115)])
def test_bytes_of_a_segment(benchmark: BenchmarkFixture, epochs_each: int, most_bytes: int) -> None:
    """All that Python and NumPy have allocated for the state, room to grow included."""
    segments = _segments(benchmark)
    # What is imported or cached at first use is no segment's.
    _folded(_tables(100, epochs_each))
    gc.collect()
    tracemalloc.start()
    try:
        state = benchmark.pedantic(lambda: _folded(_tables(segments, epochs_each)), rounds=1)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    cache = _cache(state)
    assert len(cache) == segments
    benchmark.extra_info["bytes a segment"] = round(held / segments, 1)
    benchmark.extra_info["of these in columns"] = round(cache.nbytes / segments, 1)
    assert held / segments <= most_bytes


_seconds: dict[str, float] = {}
"""Of the best round, an event."""


def _measure(benchmark: BenchmarkFixture, name: str, events: int, work: Callable[[], Any]) -> Any:
    made = benchmark.pedantic(work, rounds=3, iterations=1)
    if benchmark.stats is not None:
        _seconds[name] = min(benchmark.stats.stats.data) / events
        benchmark.extra_info["events_per_second"] = round(1 / _seconds[name])
    return made


def test_loop_of_add_and_update(benchmark: BenchmarkFixture) -> None:
    events = list(event_columns(_table(0, SEGMENTS_ONE_BY_ONE, 1)).events(np.arange(2 * SEGMENTS_ONE_BY_ONE)))
    cache = _measure(benchmark, "loop", len(events), lambda: _added(events))
    assert len(cache) == SEGMENTS_ONE_BY_ONE


def _added(events: list[MetadataEvent]) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for event in events:
        if isinstance(event, RemoteLogSegmentMetadata):
            cache.add(event)
        elif isinstance(event, RemoteLogSegmentMetadataUpdate):
            cache.update(event)
    return cache


def test_fold_row_by_row(benchmark: BenchmarkFixture) -> None:
    tables = [_table(0, SEGMENTS_ONE_BY_ONE, 1)]
    events = 2 * SEGMENTS_ONE_BY_ONE
    state = _measure(benchmark, "rows", events, lambda: _folded(tables, least_bulk_events=1 << 60))
    assert len(_cache(state)) == SEGMENTS_ONE_BY_ONE


def test_fold_by_columns(benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]) -> None:
    segments = 500_000 if benchmark.enabled else SEGMENTS_ONE_BY_ONE
    tables = list(_tables(segments, 1))
    state = _measure(benchmark, "columns", 2 * segments, lambda: _folded(tables))
    assert len(_cache(state)) == segments
    if {"loop", "rows", "columns"} <= _seconds.keys():
        columns, rows, loop = (_seconds[name] for name in ("columns", "rows", "loop"))
        with capsys.disabled():
            print(
                f"\nfold by columns: {1 / columns:,.0f} events/s, {rows / columns:.0f} times as fast as "
                f"row by row, {loop / columns:.0f} times a loop of add and update over ready events"
            )
        assert loop / columns > 5


def test_fold_that_keeps_deleted_segments(benchmark: BenchmarkFixture) -> None:
    segments = 500_000 if benchmark.enabled else SEGMENTS_ONE_BY_ONE
    tables = list(_tables(segments, 1))
    state = _measure(benchmark, "kept", 2 * segments, lambda: _folded(tables, keep_deleted=True))
    (part,) = state.partitions.values()
    assert next(part.cache.list_remote_log_segments()).start_offset == 0
