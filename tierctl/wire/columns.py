"""The columnar codec: a whole Arrow column of metadata values to a table, and back."""

from dataclasses import fields
from typing import Any

import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.model.events import FIELD_ORDER, MetadataEvent, RemotePartitionDeleteMetadata, dialect_of
from tierctl.model.states import RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.wire.arrow_types import EVENT_SCHEMA, EVENT_TYPES, UUID
from tierctl.wire.metadata import decode, encode


def decode_column(values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The events of a binary column as a table of EVENT_SCHEMA, row for row.

    A value that can't be decoded gives nulls and an `error`; a null value (a tombstone) nulls only.
    """
    rows = [_row(value.as_py()) for value in values]
    return pa.Table.from_arrays(
        [_array([row[f.name] for row in rows], f.type) for f in EVENT_SCHEMA], schema=EVENT_SCHEMA
    )


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == UUID:
        storage = pa.array([None if v is None else v.bytes for v in values], pa.binary(16))
        return pa.ExtensionArray.from_storage(UUID, storage)
    return pa.array(values, kind)


def _row(value: bytes | None) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(EVENT_SCHEMA.names)
    if value is None:
        return row
    try:
        event = decode(value)
    except CorruptInputError as error:
        row["error"] = str(error)
        return row
    row.update({name: getattr(event, name) for name in FIELD_ORDER if hasattr(event, name)})
    row["dialect"] = str(dialect_of(event))
    places = (("", event.unknown_tags), *event.nested_tags)
    row["unknown_tags"] = [
        {"place": place, "tag": tag, "data": data} for place, tags in places for tag, data in tags
    ] or None
    return row


def event_at(table: pa.Table, row: int) -> MetadataEvent | None:
    """One row as an event; None for a tombstone or a row that failed."""
    values = {name: table.column(name)[row].as_py() for name in EVENT_SCHEMA.names}
    if values["type"] is None:
        return None
    event = next(event for event in EVENT_TYPES if event.type == values["type"])
    values.update(_tags(values["unknown_tags"] or []))
    values["segment_leader_epochs"] = tuple(tuple(pair) for pair in values["segment_leader_epochs"] or ())
    states = RemotePartitionDeleteState if event is RemotePartitionDeleteMetadata else RemoteLogSegmentState
    values["state"] = states(values["state"])
    made: MetadataEvent = event(**{f.name: values[f.name] for f in fields(event)})
    return made


def _tags(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The column's tags as an event's `unknown_tags` and `nested_tags`."""
    places: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows:
        places.setdefault(row["place"], []).append((row["tag"], row["data"]))
    unknown = tuple(places.pop("", ()))
    return {"unknown_tags": unknown, "nested_tags": tuple((p, tuple(tags)) for p, tags in places.items())}


def encode_column(table: pa.Table) -> pa.Array:
    """The values of a decoded table; null where the row holds no event."""
    events = [event_at(table, row) for row in range(table.num_rows)]
    return pa.array(
        [None if event is None else encode(event, dialect_of(event)) for event in events], pa.binary()
    )
