"""Writes and reads a snapshot: the state of one metadata partition as bytes, from which the fold continues.

A snapshot is an Arrow stream of named byte strings: the columns of the segments, and for user partitions with
an irregular history their caches. Its size grows with the segments that are not deleted, not with the events.
"""

import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, IllegalEventError, UnsupportedFormatError
from tierctl.model import MetadataEvent, RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.model.events import Dialect, dialect_of
from tierctl.state.segment_cache import CacheParts, FormerEpoch, RemoteLogMetadataCache
from tierctl.state.segment_table import NO_OFFSET, SegmentTable
from tierctl.state.segments.columns import ROW_COLUMNS, SegmentColumns, SegmentIds
from tierctl.state.segments.epochs import EpochIndex
from tierctl.state.tier_state import Anomaly, MissingEvents, PartitionState, Quarantined, TierState
from tierctl.wire.metadata import decode, encode

Blobs = MutableMapping[str, bytes | npt.NDArray[np.uint8]]
"""Byte strings by name; an array shares the memory of a column, which cannot grow while the array exists."""

StoredBlobs = Mapping[str, memoryview]

_BY_PARTITION: Final = ("last_event_offsets", "lowest_starts", "top_starts", "waiting", "counts")


def store_table(table: SegmentTable, blobs: Blobs) -> None:
    """Add the content of `table` to `blobs`; compact it."""
    table.compact()
    store_columns(table.columns, "", blobs)
    for name in _BY_PARTITION:
        blobs[name] = _little(getattr(table, name))
    former = [
        (number, epoch, NO_OFFSET if facts.highest_offset is None else facts.highest_offset, facts.table_size)
        for number, epochs in table.former.items()
        for epoch, facts in epochs.items()
    ]
    blobs["former"] = _little(np.array(former, dtype=np.int64))
    blobs["table"] = json.dumps({"clock": table.clock, "irregular": sorted(table.irregular)}).encode()
    for number, cache in table.irregular.items():
        _store_cache(cache, f"{number}/", blobs)


def load_table(blobs: StoredBlobs) -> SegmentTable:
    """Return the table that `store_table` stored; raise KeyError, ValueError or TypeError for other blobs."""
    table = SegmentTable()
    table.columns = load_columns("", blobs)
    facts = _json(blobs["table"])
    for number, name in enumerate(table.columns.names):
        table.numbers[name.topic_id.bytes, name.partition] = number
    for name_of_column in _BY_PARTITION:
        setattr(table, name_of_column, _native("q", blobs[name_of_column]))
    for number, epoch, highest, size in np.frombuffer(blobs["former"], "<i8").reshape(-1, 4).tolist():
        known = FormerEpoch(None if highest == NO_OFFSET else highest, size)
        table.former.setdefault(number, {})[epoch] = known
    table.clock = facts["clock"]
    table.irregular = {number: _load_cache(f"{number}/", blobs) for number in facts["irregular"]}
    return table


def store_columns(columns: SegmentColumns, prefix: str, blobs: Blobs) -> None:
    """Add `columns`, in which no row is dead, to `blobs` under names that begin with `prefix`."""
    # Ids are bytes, so they have no byte order.
    blobs[f"{prefix}ids"] = np.asarray(columns.ids.words).view(np.uint8)
    for name in (*ROW_COLUMNS, "pool"):
        blobs[f"{prefix}{name}"] = _little(getattr(columns, name))
    if columns.customs is not None:
        blobs[f"{prefix}customs"] = _little(columns.customs)
        blobs[f"{prefix}blob"] = bytes(columns.blob)
    sparse = {
        "names": [[name.topic_id, name.topic, name.partition] for name in columns.names],
        "odd_epochs": list(columns.odd_epochs.items()),
        "wide_ends": list(columns.wide_ends.items()),
        "tags": [[row, _tags(own), [[p, _tags(t)] for p, t in n]] for row, (own, n) in columns.tags.items()],
    }
    blobs[f"{prefix}sparse"] = json.dumps(sparse).encode()


def load_columns(prefix: str, blobs: StoredBlobs) -> SegmentColumns:
    """Return the columns that `store_columns` stored."""
    columns, sparse = SegmentColumns(), _json(blobs[f"{prefix}sparse"])
    columns.ids = SegmentIds.of_bytes(blobs[f"{prefix}ids"])
    for name in (*ROW_COLUMNS, "pool"):
        setattr(columns, name, _native(getattr(columns, name).typecode, blobs[f"{prefix}{name}"]))
    if f"{prefix}customs" in blobs:
        columns.customs = _native("q", blobs[f"{prefix}customs"])
        columns.blob = bytearray(blobs[f"{prefix}blob"])
    columns.names = [TopicIdPartition(Uuid(i), topic, number) for i, topic, number in sparse["names"]]
    columns.odd_epochs = {number: tuple((e, o) for e, o in pairs) for number, pairs in sparse["odd_epochs"]}
    columns.wide_ends = dict(sparse["wide_ends"])
    columns.tags = {
        number: (_tags_of(own), tuple((place, _tags_of(tags)) for place, tags in nested))
        for number, own, nested in sparse["tags"]
    }
    return columns


def _store_cache(cache: RemoteLogMetadataCache, prefix: str, blobs: Blobs) -> None:
    cache.compact()
    columns, epochs, reshaped, dangling = cache.parts
    store_columns(columns, prefix, blobs)
    facts = {
        "reshaped": sorted(each.hex() for each in reshaped),
        "dangling": [[each.hex(), named] for each, named in sorted(dangling.items())],
        "epochs": [[epoch, index.highest_offset, index.table_size] for epoch, index in epochs.items()],
    }
    blobs[f"{prefix}cache"] = json.dumps(facts).encode()
    for epoch, index in epochs.items():
        blobs[f"{prefix}rows/{epoch}"] = _little(index.rows)
        blobs[f"{prefix}unreferenced/{epoch}"] = _little(array("i", index.unreferenced))


def _load_cache(prefix: str, blobs: StoredBlobs) -> RemoteLogMetadataCache:
    columns, facts = load_columns(prefix, blobs), _json(blobs[f"{prefix}cache"])
    epochs = {}
    for epoch, highest, size in facts["epochs"]:
        index = epochs[epoch] = EpochIndex(epoch, columns)
        index.rows = _native("i", blobs[f"{prefix}rows/{epoch}"])
        index.unreferenced = dict.fromkeys(_native("i", blobs[f"{prefix}unreferenced/{epoch}"]))
        index.highest_offset, index.table_size = highest, size
    parts = CacheParts(
        columns,
        epochs,
        {bytes.fromhex(each) for each in facts["reshaped"]},
        {bytes.fromhex(each): named for each, named in facts["dangling"]},
    )
    return RemoteLogMetadataCache.of_parts(parts, initialized=False)


def _little(column: Any) -> npt.NDArray[np.uint8]:
    """Return the items of a column as little-endian bytes, which share its memory if it has this order."""
    values = np.asarray(column)
    return values.astype(values.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)


def _native(typecode: str, data: memoryview) -> "array[Any]":
    """Return a column of the items in `data`, which is copied once."""
    column: array[Any] = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _json(data: memoryview) -> Any:
    return json.loads(bytes(data))


def _tags(tags: Iterable[tuple[int, bytes]]) -> list[list[Any]]:
    return [[number, data.hex()] for number, data in tags]


def _tags_of(raw: Iterable[list[Any]]) -> tuple[tuple[int, bytes], ...]:
    return tuple((number, bytes.fromhex(data)) for number, data in raw)


VERSION: Final = 2
_ERRORS: Final = {
    kind.__name__: kind for kind in (CorruptInputError, UnsupportedFormatError, IllegalEventError)
}
_SCHEMA: Final = pa.schema([("name", pa.string()), ("data", pa.large_binary())])
_META: Final = b"tierctl"
_LARGE_BYTES: Final = 1 << 16


class RestoredState(NamedTuple):
    """The state and the notes of a snapshot."""

    state: TierState
    notes: dict[str, list[str]]


def write_snapshot(
    state: TierState, metadata_partition: int, notes: Mapping[str, Sequence[str]] | None = None
) -> bytes:
    """Return a snapshot of the part of `state` that comes from one metadata partition; compact its columns.

    `notes` are further texts of the caller, which `read_snapshot` returns.
    """
    facts = {
        "version": VERSION,
        "metadata_partition": metadata_partition,
        "read": state.read.get(metadata_partition, 0),
        "quarantined": [
            _quarantined(q) for q in state.quarantined if q.metadata_partition == metadata_partition
        ],
        "missing": [[m.first_offset, m.end_offset] for m in state.missing_of(metadata_partition)],
        "anomalies": [_anomaly(a) for a in state.anomalies if a.metadata_partition == metadata_partition],
        "anomaly_count": state.anomaly_count,
        "deletions": _deletions(state, metadata_partition),
        "notes": {name: list(texts) for name, texts in (notes or {}).items()},
    }
    schema = _SCHEMA.with_metadata({_META: json.dumps(facts).encode()})
    blobs: Blobs = {}
    store_table(state.table(metadata_partition), blobs)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in _batches(blobs):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batches(blobs: Blobs) -> Iterator[pa.RecordBatch]:
    """Yield batches of _SCHEMA: each large byte string is alone in one that shares its memory."""
    small: dict[str, bytes] = {}
    for name, blob in blobs.items():
        if len(blob) < _LARGE_BYTES:
            small[name] = bytes(blob)
        else:
            yield _batch([name], [len(blob)], blob)
    yield _batch([*small], [*map(len, small.values())], b"".join(small.values()))


def _batch(names: list[str], lengths: list[int], data: bytes | npt.NDArray[np.uint8]) -> pa.RecordBatch:
    ends = np.cumsum([0, *lengths], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string()), column], schema=_SCHEMA)


def _deletions(state: TierState, metadata_partition: int) -> list[list[Any]]:
    """Return the number and the state of the deletion of each user partition that has one."""
    return [
        [part.number, part.delete_state, part.delete_marked_offset]
        for part in state.partitions.values()
        if part.metadata_partition == metadata_partition and part.delete_state is not None
    ]


def read_snapshot(data: bytes | pa.Buffer) -> RestoredState:
    """Return the state in a snapshot; raise UnsupportedFormatError for another version, CorruptInputError."""
    try:
        with pa.ipc.open_stream(data) as reader:
            facts = json.loads((reader.schema.metadata or {})[_META])
            if facts["version"] != VERSION:
                raise UnsupportedFormatError(
                    "folded state", expected=f"version {VERSION}", found=f"version {facts['version']}"
                )
            state = _state_of(facts)
            blobs = {
                name.as_py(): memoryview(data.as_buffer())
                for batch in reader
                for name, data in zip(*batch.columns, strict=True)
            }
            _add_partitions(state, facts, blobs)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as e:
        raise CorruptInputError(
            "folded state", expected=f"version {VERSION} as Arrow", found=f"{type(e).__name__}: {e}"
        ) from e
    return RestoredState(state, facts["notes"])


def _add_partitions(state: TierState, facts: dict[str, Any], blobs: StoredBlobs) -> None:
    metadata_partition = facts["metadata_partition"]
    table = state.tables[metadata_partition] = load_table(blobs)
    deletions = {number: (deletion, marked) for number, deletion, marked in facts["deletions"]}
    for number, name in enumerate(table.columns.names):
        part = PartitionState(name, metadata_partition, table, number)
        deletion, part.delete_marked_offset = deletions.get(number, (None, None))
        part.delete_state = None if deletion is None else RemotePartitionDeleteState(deletion)
        state.partitions[name.key] = part


def _state_of(facts: dict[str, Any]) -> TierState:
    partition = facts["metadata_partition"]
    return TierState(
        read={partition: facts["read"]},
        quarantined=[_quarantined_of(partition, raw) for raw in facts["quarantined"]],
        missing=[MissingEvents(partition, *offsets) for offsets in facts["missing"]],
        anomalies=[_anomaly_of(partition, raw) for raw in facts["anomalies"]],
        anomaly_count=facts["anomaly_count"],
    )


def _quarantined(bad: Quarantined) -> list[Any]:
    e = bad.error
    facts = [bad.metadata_offset, type(e).__name__, e.what, e.expected, e.found, e.at, e.source, e.hint]
    return [*facts, True] if bad.is_misplaced else facts


def _quarantined_of(partition: int, raw: list[Any]) -> Quarantined:
    offset, kind, what, expected, found, at, source, hint, *more = raw
    error = _ERRORS[kind](what, expected=expected, found=found, at=at, source=source, hint=hint)
    return Quarantined(partition, offset, error, is_misplaced=bool(more))


def _anomaly(anomaly: Anomaly) -> list[Any]:
    dialect = dialect_of(anomaly.event)
    return [anomaly.metadata_offset, str(dialect), encode(anomaly.event, dialect).hex()]


def _anomaly_of(partition: int, raw: list[Any]) -> Anomaly:
    offset, dialect, value = raw
    event: Any = decode(bytes.fromhex(value), Dialect(dialect))
    whose: TopicIdPartition = event.topic_id_partition
    known: MetadataEvent = event
    return Anomaly(partition, offset, whose, known)
