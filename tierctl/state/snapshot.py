"""Writes and reads a snapshot: the state of one metadata partition as bytes, from which the fold continues.

A snapshot is an Arrow stream with one row per user partition: its segments' columns, little-endian, and its
indexes of leader epochs. Its size grows with the segments that are not deleted, not with the events.
"""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError, IllegalEventError, UnsupportedFormatError
from tierctl.model import MetadataEvent, RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.model.events import Dialect, dialect_of
from tierctl.state.cache import CacheParts, RemoteLogMetadataCache
from tierctl.state.segments.columns import SegmentColumns
from tierctl.state.segments.epoch_index import EpochIndex
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.tier import Anomaly, MissingEvents, PartitionState, Quarantined, TierState
from tierctl.wire.metadata import decode, encode

VERSION: Final = 1
_ERRORS: Final = {
    kind.__name__: kind for kind in (CorruptInputError, UnsupportedFormatError, IllegalEventError)
}
_COLUMNS: Final = (
    "starts",
    "flags",
    "epochs",
    "pool",
    "ends",
    "max_timestamps",
    "event_timestamps",
    "writers",
    "sizes",
)
_EPOCH: Final = pa.struct(
    [
        ("epoch", pa.int64()),
        ("rows", pa.large_binary()),
        ("unreferenced", pa.large_binary()),
        ("highest_offset", pa.int64()),
        ("table_size", pa.int64()),
    ]
)
_SCHEMA: Final = pa.schema(
    [
        ("topic_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("delete_state", pa.string()),
        ("delete_marked_offset", pa.int64()),
        ("last_event_offset", pa.int64()),
        ("ids", pa.large_binary()),
        *((name, pa.large_binary()) for name in (*_COLUMNS, "customs", "blob")),
        ("sparse", pa.large_string()),
        ("epoch_indexes", pa.list_(_EPOCH)),
    ]
)
_META: Final = b"tierctl"
_PARTS_A_BATCH: Final = 64


class RestoredState(NamedTuple):
    """The state and the notes of a snapshot."""

    state: TierState
    notes: dict[str, list[str]]


def write_snapshot(
    state: TierState, metadata_partition: int, notes: Mapping[str, Sequence[str]] | None = None
) -> bytes:
    """Return a snapshot of the part of `state` that comes from one metadata partition; compact its caches.

    `notes` are further texts of the caller, which `read_snapshot` returns.
    """
    parts = [part for part in state if part.metadata_partition == metadata_partition]
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
        "notes": {name: list(texts) for name, texts in (notes or {}).items()},
    }
    schema = _SCHEMA.with_metadata({_META: json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for first in range(0, len(parts), _PARTS_A_BATCH):
            rows = [_row_of(part) for part in parts[first : first + _PARTS_A_BATCH]]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_snapshot(data: bytes) -> RestoredState:
    """Return the state in a snapshot; raise UnsupportedFormatError for another version, CorruptInputError."""
    try:
        with pa.ipc.open_stream(data) as reader:
            facts = json.loads((reader.schema.metadata or {})[_META])
            if facts["version"] != VERSION:
                raise UnsupportedFormatError(
                    "folded state", expected=f"version {VERSION}", found=f"version {facts['version']}"
                )
            state = _state_of(facts)
            for batch in reader:
                for row in batch.to_pylist():
                    part = _partition_of(row, facts["metadata_partition"])
                    state.partitions[part.topic_id_partition.key] = part
    except (pa.ArrowException, KeyError, ValueError, TypeError) as e:
        raise CorruptInputError(
            "folded state", expected=f"version {VERSION} as Arrow", found=f"{type(e).__name__}: {e}"
        ) from e
    return RestoredState(state, facts["notes"])


def _state_of(facts: dict[str, Any]) -> TierState:
    partition = facts["metadata_partition"]
    return TierState(
        read={partition: facts["read"]},
        quarantined=[_quarantined_of(partition, raw) for raw in facts["quarantined"]],
        missing=[MissingEvents(partition, *offsets) for offsets in facts.get("missing", [])],
        anomalies=[_anomaly_of(partition, raw) for raw in facts["anomalies"]],
        anomaly_count=facts["anomaly_count"],
    )


def _quarantined(bad: Quarantined) -> list[Any]:
    e = bad.error
    return [bad.metadata_offset, type(e).__name__, e.what, e.expected, e.found, e.at, e.source, e.hint]


def _quarantined_of(partition: int, raw: list[Any]) -> Quarantined:
    offset, kind, what, expected, found, at, source, hint = raw
    error = _ERRORS[kind](what, expected=expected, found=found, at=at, source=source, hint=hint)
    return Quarantined(partition, offset, error)


def _anomaly(anomaly: Anomaly) -> list[Any]:
    dialect = dialect_of(anomaly.event)
    return [anomaly.metadata_offset, str(dialect), encode(anomaly.event, dialect).hex()]


def _anomaly_of(partition: int, raw: list[Any]) -> Anomaly:
    offset, dialect, value = raw
    event: Any = decode(bytes.fromhex(value), Dialect(dialect))
    whose: TopicIdPartition = event.topic_id_partition
    known: MetadataEvent = event
    return Anomaly(partition, offset, whose, known)


def _row_of(part: PartitionState) -> dict[str, Any]:
    part.cache.compact()
    columns, epochs, reshaped, dangling = part.cache.parts
    whose = part.topic_id_partition
    sparse = {
        "partition": _tip(columns.partition),
        "partitions": [[row, _tip(tip)] for row, tip in columns.partitions.items()],
        "odd_epochs": list(columns.odd_epochs.items()),
        "wide_ends": list(columns.wide_ends.items()),
        "tags": [[row, _tags(own), [[p, _tags(t)] for p, t in n]] for row, (own, n) in columns.tags.items()],
        "reshaped": sorted(each.hex() for each in reshaped),
        "dangling": [[each.hex(), named] for each, named in sorted(dangling.items())],
        "initialized": part.cache.initialized,
        "lowest_start_offset": part.lowest_start_offset,
    }
    return {
        "topic_id": whose.topic_id,
        "topic": whose.topic,
        "partition": whose.partition,
        "delete_state": part.delete_state,
        "delete_marked_offset": part.delete_marked_offset,
        "last_event_offset": part.last_event_offset,
        # Ids are bytes, so they have no byte order.
        "ids": columns.ids.words.tobytes(),
        **{name: _little(getattr(columns, name)) for name in _COLUMNS},
        "customs": None if columns.customs is None else _little(columns.customs),
        "blob": bytes(columns.blob),
        "sparse": json.dumps(sparse),
        "epoch_indexes": [_index(index) for index in epochs.values()],
    }


def _partition_of(row: dict[str, Any], metadata_partition: int) -> PartitionState:
    sparse = json.loads(row["sparse"])
    columns = _columns_of(row, sparse)
    parts = CacheParts(
        columns,
        {raw["epoch"]: _index_of(raw, columns) for raw in row["epoch_indexes"]},
        {bytes.fromhex(each) for each in sparse["reshaped"]},
        {bytes.fromhex(each): named for each, named in sparse["dangling"]},
    )
    state = row["delete_state"]
    return PartitionState(
        TopicIdPartition(Uuid(row["topic_id"]), row["topic"], row["partition"]),
        metadata_partition,
        RemoteLogMetadataCache.of_parts(parts, initialized=sparse["initialized"]),
        delete_state=None if state is None else RemotePartitionDeleteState(state),
        delete_marked_offset=row["delete_marked_offset"],
        last_event_offset=row["last_event_offset"],
        lowest_start_offset=sparse.get("lowest_start_offset"),
    )


def _columns_of(row: dict[str, Any], sparse: dict[str, Any]) -> SegmentColumns:
    columns = SegmentColumns()
    ids = np.frombuffer(row["ids"], dtype=np.uint64).reshape(-1, 2)
    columns.ids = SegmentIds()
    columns.ids.extend(ids, np.ones(len(ids), dtype=bool))
    for name in _COLUMNS:
        setattr(columns, name, _native(getattr(columns, name).typecode, row[name]))
    columns.customs = None if row["customs"] is None else _native("q", row["customs"])
    columns.blob = bytearray(row["blob"])
    columns.partition = _tip_of(sparse["partition"])
    for number, raw in sparse["partitions"]:
        whose = _tip_of(raw)
        assert whose is not None
        columns.partitions[number] = whose
    columns.odd_epochs = {number: tuple((e, o) for e, o in pairs) for number, pairs in sparse["odd_epochs"]}
    columns.wide_ends = dict(sparse["wide_ends"])
    columns.tags = {
        number: (_tags_of(own), tuple((place, _tags_of(tags)) for place, tags in nested))
        for number, own, nested in sparse["tags"]
    }
    return columns


def _index(index: EpochIndex) -> dict[str, Any]:
    return {
        "epoch": index.epoch,
        "rows": _little(index.rows),
        "unreferenced": _little(array("i", index.unreferenced)),
        "highest_offset": index.highest_offset,
        "table_size": index.table_size,
    }


def _index_of(raw: dict[str, Any], columns: SegmentColumns) -> EpochIndex:
    index = EpochIndex(raw["epoch"], columns)
    index.rows = _native("i", raw["rows"])
    index.unreferenced = dict.fromkeys(_native("i", raw["unreferenced"]))
    index.highest_offset = raw["highest_offset"]
    index.table_size = raw["table_size"]
    return index


def _little(column: "array[Any]") -> bytes:
    """Return the items of a column as little-endian bytes."""
    values = np.asarray(column)
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _native(typecode: str, data: bytes) -> "array[Any]":
    kind = np.dtype(typecode)
    return array(typecode, np.frombuffer(data, kind.newbyteorder("<")).astype(kind, copy=False).tobytes())


def _tip(whose: TopicIdPartition | None) -> list[Any] | None:
    return None if whose is None else [whose.topic_id, whose.topic, whose.partition]


def _tip_of(raw: list[Any] | None) -> TopicIdPartition | None:
    return None if raw is None else TopicIdPartition(Uuid(raw[0]), raw[1], raw[2])


def _tags(tags: Iterable[tuple[int, bytes]]) -> list[list[Any]]:
    return [[number, data.hex()] for number, data in tags]


def _tags_of(raw: Iterable[list[Any]]) -> tuple[tuple[int, bytes], ...]:
    return tuple((number, bytes.fromhex(data)) for number, data in raw)
