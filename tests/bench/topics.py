"""Metadata topics of millions of events as brokers write them: a record a batch, most segments deleted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.wire.batches.record_batch import Record, encode_batch
from tierctl.wire.metadata import encode_column
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA
from tierctl.wire.metadata.event_table import scatter
from tierctl.wire.metadata.partitioner import metadata_partition

PARTITIONS = 50
USER_PARTITIONS = 500
KEPT = 400
"""Segments of a user partition that retention leaves."""

_EVENTS_A_CHUNK = 100_000
_ROWS_AN_ENTRY = 28
_CRC, _CHECKED = 17, 21
_NOW_MS = 1_700_000_000_000
_STATES = [str(state) for state in RemoteLogSegmentState]
_TYPES = [RemoteLogSegmentMetadata.type, RemoteLogSegmentMetadataUpdate.type]

Int64s = npt.NDArray[np.int64]


def make_topic(folder: Path, events: int, *, partitions: int = PARTITIONS, seed: int = 1) -> int:
    """A topic of about so many events in `folder`; how many there are."""
    rng = np.random.default_rng(seed)
    users = min(USER_PARTITIONS, max(events // 200, 1))
    homes: dict[int, list[tuple[str, Uuid, int]]] = {number: [] for number in range(partitions)}
    for number in range(users):
        whose = (f"topic-{number % 60:02d}", Uuid.from_bytes(rng.bytes(16)), number // 60)
        homes[metadata_partition(whose[1], whose[2], partitions)].append(whose)
    each = events // users
    # Of n segments all are copied, which is two events, and all but the last KEPT deleted, two more.
    segments = max(each // 2 if each < 2 * KEPT else (each + 2 * KEPT) // 4, 1)
    written = 0
    for number, owners in homes.items():
        own = folder / f"__remote_log_metadata-{number}"
        own.mkdir(parents=True)
        offset = 0
        with (own / f"{0:020d}.log").open("wb") as log, (own / f"{0:020d}.index").open("wb") as index:
            for table in _tables(owners, segments, rng):
                batches, places = _batches(encode_column(table), offset)
                index.write(_index(offset, log.tell() + places))
                log.write(batches)
                offset += table.num_rows
        written += offset
    return written


def _tables(
    owners: list[tuple[str, Uuid, int]], segments: int, rng: np.random.Generator
) -> Iterator[pa.Table]:
    """Events of a metadata partition, all its user partitions going on side by side."""
    if not owners:
        return
    ids = np.frombuffer(rng.bytes(16 * segments * len(owners)), np.uint8).reshape(segments, len(owners), 16)
    rounds = max(_EVENTS_A_CHUNK // (4 * len(owners)), 1)
    for first in range(0, segments, rounds):
        numbers = np.arange(first, min(first + rounds, segments))
        # Axes: round, user partition, event: started, finished, and of an older segment both deletions.
        shape = (len(numbers), len(owners), 4)
        segment = np.broadcast_to(numbers[:, None, None] - np.array([0, 0, KEPT, KEPT]), shape).reshape(-1)
        owner = np.broadcast_to(np.arange(len(owners))[None, :, None], shape).reshape(-1)
        state = np.broadcast_to(np.arange(4), shape).reshape(-1)
        there = segment >= 0
        yield _table(owners, segment[there], owner[there], state[there], ids)


def _table(
    owners: list[tuple[str, Uuid, int]],
    segment: Int64s,
    owner: Int64s,
    state: Int64s,
    ids: npt.NDArray[np.uint8],
) -> pa.Table:
    is_update = state > 0
    start = segment * 1000
    topics, topic_ids, numbers = zip(*owners, strict=True)
    raw_ids = np.frombuffer(b"".join(each.bytes for each in topic_ids), np.uint8).reshape(-1, 16)
    columns: dict[str, Any] = {
        "topic": pa.array(topics).take(pa.array(owner)),
        "topic_id": _ids(raw_ids[owner]),
        "partition": pa.array(np.array(numbers, np.int32)[owner]),
        "segment_id": _ids(ids[segment, owner]),
        "start_offset": pa.array(start, mask=is_update),
        "end_offset": pa.array(start + 999, mask=is_update),
        "broker_id": pa.array((owner % 9).astype(np.int32)),
        "max_timestamp_ms": pa.array(_NOW_MS + start, mask=is_update),
        "event_timestamp_ms": pa.array(_NOW_MS + start + state),
        "segment_leader_epochs": _epochs(start, is_update),
        "segment_size_in_bytes": pa.array(np.full(len(state), 1 << 29, np.int32), mask=is_update),
        "txn_index_empty": pa.array(np.ones(len(state), bool), mask=is_update),
        "state": pa.DictionaryArray.from_arrays(pa.array(state.astype(np.int8)), pa.array(_STATES)),
        "type": pa.DictionaryArray.from_arrays(pa.array(is_update.astype(np.int8)), pa.array(_TYPES)),
    }
    arrays = [columns.get(field.name, pa.nulls(len(state), field.type)) for field in EVENT_SCHEMA]
    return pa.table(arrays, schema=EVENT_SCHEMA)


def _ids(raw: npt.NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(raw))
    storage = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(raw), [None, data])
    return pa.ExtensionArray.from_storage(EVENT_SCHEMA.field("topic_id").type, storage)


def _epochs(start: Int64s, is_update: npt.NDArray[np.bool_]) -> pa.Array:
    """One pair for a new segment, the epoch rising now and then."""
    own = start[~is_update]
    words = np.stack([own // 300_000, own], axis=1).reshape(-1)
    inner = pa.ListArray.from_arrays(np.arange(0, len(words) + 1, 2, dtype=np.int32), words)
    offsets = np.concatenate([[0], np.cumsum(~is_update)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), inner, mask=pa.array(is_update))


def _index(first_offset: int, places: Int64s) -> bytes:
    """Entries of an offset index, one every few kilobytes as brokers write them."""
    rows = np.arange(_ROWS_AN_ENTRY, len(places), _ROWS_AN_ENTRY)
    return np.stack([first_offset + rows, places[rows]], axis=1).astype(">i4").tobytes()


def _batches(values: pa.Array, first_offset: int) -> tuple[memoryview, Int64s]:
    """Each value as a record batch of its own, and where it begins.

    Those of one length differ in offset, value and CRC.
    """
    starts = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
    data, lengths = np.frombuffer(values.buffers()[2], np.uint8), np.diff(starts)
    frames = {length: _frame(length) for length in np.unique(lengths).tolist()}
    overhead = {length: len(frame) - length for length, (frame, _) in frames.items()}
    sizes = lengths + np.array([overhead[length] for length in lengths.tolist()])
    places = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for length, (frame, at) in frames.items():
        rows = np.flatnonzero(lengths == length)
        batches = np.tile(np.frombuffer(frame, np.uint8), (len(rows), 1))
        batches[:, at : at + length] = data[starts[rows][:, None] + np.arange(length)]
        batches[:, :8] = (first_offset + rows).astype(">i8").view(np.uint8).reshape(-1, 8)
        whole = batches[:, _CHECKED:].tobytes()
        width = len(frame) - _CHECKED
        crcs = [google_crc32c.value(whole[i : i + width]) for i in range(0, len(whole), width)]
        batches[:, _CRC:_CHECKED] = np.array(crcs, ">u4").view(np.uint8).reshape(-1, 4)
        scatter(out, places[rows], batches)
    return memoryview(out), places


def _frame(length: int) -> tuple[bytes, int]:
    """A batch with a value of that length, and where in it the value lies."""
    mark = b"\xa5" * length
    frame = encode_batch([Record(offset=0, timestamp_ms=_NOW_MS, key=None, value=mark, headers=())])
    return frame, frame.index(mark)
