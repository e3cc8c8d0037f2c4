"""The columns of a metadata partition as named byte strings, little-endian, and back."""

import json
import sys
from array import array
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierctl.model import TopicIdPartition, Uuid
from tierctl.state.cache import CacheParts, RemoteLogMetadataCache
from tierctl.state.rebuilt_cache import FormerEpoch
from tierctl.state.segments.columns import ROW_COLUMNS, SegmentColumns
from tierctl.state.segments.epoch_index import EpochIndex
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.table import NO_OFFSET, SegmentTable

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
