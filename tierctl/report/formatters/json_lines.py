"""`--style json`: one JSON object per line, for other programs.

An object has the fields of the event, named as in all of tierctl's output, then `type`, `dialect`,
`metadata_partition`, `metadata_offset` and `timestamp_ms` (null where it is not known). Fields that the
event's dialect does not have are left out. A tombstone has type null; an unreadable record has type null,
`error`, and its bytes as `value`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.model.events import Dialect
from tierctl.report.formatters.column_texts import Template, hex_text, mapped, pairs_text, template
from tierctl.report.formatters.records import Record, Records, as_array, json_text
from tierctl.report.formatters.template_formatter import POSITION, TemplateFormatter, no_properties
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


def _maker(field: Field) -> Callable[[Records], pa.StringArray] | None:
    """Return the function that makes a field's column of JSON values; None if its plain text is JSON."""
    if field.kind is Variable.STRING:
        return lambda records: mapped(as_array(records.events.column(field.name)), json_text)
    if field.kind in {Variable.BYTES, Variable.NULLABLE_BYTES}:
        return lambda records: _hex(as_array(records.events.column(field.name)))
    if isinstance(field.kind, Array):
        return lambda records: _lists(as_array(records.events.column(field.name)))
    return None


def _hex(column: pa.Array) -> pa.StringArray:
    quoted = pc.binary_join_element_wise('"', hex_text(column), '"', "")
    return as_array(pc.fill_null(quoted, "null"))


def _lists(column: pa.Array) -> pa.StringArray:
    inner = pairs_text(column, between=", ", pair=("[", ", ", "]"))
    return as_array(pc.binary_join_element_wise("[", inner, "]", ""))


_FIELD_MAKERS = {
    field.name: maker
    for field in EVENT_FIELDS
    if isinstance(field, Field) and (maker := _maker(field)) is not None
}


def _timestamps(records: Records) -> pa.StringArray:
    return as_array(pc.fill_null(records.timestamps_ms.cast(pa.string()), "null"))


class JsonFormatter(TemplateFormatter):
    """Formats a record as one line with a JSON object in ASCII."""

    makers = POSITION | _FIELD_MAKERS | {"timestamp_ms": _timestamps}

    def __init__(self, properties: Mapping[str, str]) -> None:
        no_properties("json", properties)

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
