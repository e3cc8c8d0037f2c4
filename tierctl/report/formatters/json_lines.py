"""`--style json`: one JSON object per line, for other programs.

An object has the fields of the event, named as in all of tierctl's output, then `type`, `dialect`,
`metadata_partition`, `metadata_offset` and `timestamp_ms` (null where it is not known). Fields that the
event's dialect does not have are left out. A tombstone has type null; an unreadable record has type null,
`error`, and its bytes as `value`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tierctl.model.events import Dialect
from tierctl.report.formatters.records import Record, json_text
from tierctl.report.formatters.templates import (
    POSITION,
    ChosenRows,
    Template,
    TemplateFormatter,
    Text,
    hex_text,
    join,
    mapped,
    number_text,
    pairs_text,
    require_known,
    template,
    with_null,
)
from tierctl.wire.metadata.schema import (
    EVENT_FIELDS,
    METADATA_RECORDS,
    Array,
    Field,
    Fixed,
    Variable,
    field_names,
)

FIELDS: dict[tuple[str, Dialect], tuple[str, ...]] = {
    (record.event.type, dialect): field_names(record)
    for dialect, records in METADATA_RECORDS.items()
    for record in records
}
"""The fields of each type of event in each dialect, in the order in which they are printed."""
_IDS_AND_STATES = frozenset(
    field.name
    for field in EVENT_FIELDS
    if isinstance(field, Field) and (field.kind is Fixed.UUID or field.states is not None)
)
_QUOTED = _IDS_AND_STATES | {"type", "dialect"}
_POSITION = ("metadata_partition", "metadata_offset", "timestamp_ms")


def _object(event_type: str, dialect: Dialect) -> str:
    fields = (*FIELDS[event_type, dialect], "type", "dialect", *_POSITION)
    return ", ".join(f'"{name}": "<{name}>"' if name in _QUOTED else f'"{name}": <{name}>' for name in fields)


def _maker(field: Field) -> Callable[[ChosenRows], Text] | None:
    """Return the function that makes a field's column of JSON values; None if its plain text is JSON."""
    if field.kind is Variable.STRING:
        return lambda rows: mapped(rows.column(field.name), json_text)
    if field.kind is Variable.NULLABLE_BYTES:
        return lambda rows: with_null(_hex, "null", rows.column(field.name))
    if isinstance(field.kind, Array):
        return lambda rows: _lists(rows.column(field.name))
    return None


def _hex(column: pa.BinaryArray) -> pa.StringArray:
    return join(['"', hex_text(column), '"'], len(column))


def _lists(column: pa.ListArray) -> pa.StringArray:
    return join(["[", pairs_text(column, between=", ", pair=("[", ", ", "]")), "]"], len(column))


_FIELD_MAKERS = {
    field.name: maker
    for field in EVENT_FIELDS
    if isinstance(field, Field) and (maker := _maker(field)) is not None
}


def _timestamps(rows: ChosenRows) -> Text:
    return with_null(number_text, "null", rows.timestamps_ms)


class JsonFormatter(TemplateFormatter):
    """Formats a record as one line with a JSON object in ASCII."""

    makers = POSITION | _FIELD_MAKERS | {"timestamp_ms": _timestamps}

    def __init__(self, properties: Mapping[str, str]) -> None:
        require_known("json", properties)

    def template(self, event_type: str, dialect: Dialect) -> Template:
        """Implement `TemplateFormatter.template`: an object with the fields of the type in the dialect."""
        return ["{", *template(_object(event_type, dialect)), "}"]

    def other_line(self, record: Record) -> str:
        """Implement `TemplateFormatter.other_line`: an object without fields of an event."""
        fields: dict[str, Any] = {"type": None, "dialect": None}
        position = {name: getattr(record, name) for name in _POSITION}
        if record.error is not None:
            position |= {"error": record.error, "value": record.value_hex}
        return json_text(fields | position)
