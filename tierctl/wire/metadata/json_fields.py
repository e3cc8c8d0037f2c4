"""The JSON-ready fields of metadata events."""

from collections.abc import Callable
from typing import Any

from tierctl.model.events import MetadataEvent, dialect_of
from tierctl.model.stored import StoredPartitionState, StoredSegment
from tierctl.wire.metadata.schema import (
    METADATA_RECORDS,
    STORED_RECORDS,
    Array,
    Field,
    Fixed,
    RecordSchema,
    Variable,
    field_names,
    leaf_fields,
)


def json_fields(event: MetadataEvent | StoredSegment | StoredPartitionState) -> dict[str, Any]:
    """Return the fields of the event's record in its dialect, and `type`, in the order of FIELD_NAMES.

    Ids are base64url, custom metadata is hex (None for null), leader epochs are [epoch, offset] lists, and
    states are Kafka's names.
    """
    dialect = None if isinstance(event, StoredSegment | StoredPartitionState) else dialect_of(event)
    converters = _CONVERTERS[type(event), dialect]
    fields = {name: convert(getattr(event, name)) for name, convert in converters}
    return fields | {"type": event.type}


def _json_converter(field: Field | None) -> Callable[[Any], Any]:
    """Return the function that converts a value of `field` (None: of a flag) for JSON."""
    if field is None:
        return bool
    if isinstance(field.kind, Array):
        return lambda rows: [list(row) for row in rows]
    if field.kind in {Variable.BYTES, Variable.NULLABLE_BYTES}:
        return lambda value: None if value is None else value.hex()
    if field.kind in {Fixed.UUID, Variable.STRING} or field.states is not None:
        return str
    return int


def _converters(record: RecordSchema) -> list[tuple[str, Callable[[Any], Any]]]:
    fields = {field.name: field for field in leaf_fields(record.body)}
    return [(name, _json_converter(fields.get(name))) for name in field_names(record)]


_CONVERTERS = {
    (record.event, dialect): _converters(record)
    for dialect, records in (*METADATA_RECORDS.items(), (None, STORED_RECORDS))
    for record in records
}
