"""`--style json`: one object a line, for jq and for other programs.

The record's fields by the names tierctl uses everywhere, then `type`, `dialect`, `metadata_partition`,
`metadata_offset` and `timestamp_ms` (null where it is not known). A field that the record's dialect does not
have is left out. A tombstone has type null; a bad record has type null, `error` and its bytes as `value`.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tierctl.model.events import Dialect
from tierctl.report.formatters.base import Record, Records, as_array, json_text
from tierctl.report.formatters.shaped import POSITION, ShapedFormatter, no_properties
from tierctl.report.formatters.text import Template, hex_text, mapped, pairs_text, template
from tierctl.wire.metadata.schema import METADATA_RECORDS, field_names

FIELDS: dict[tuple[str, Dialect], tuple[str, ...]] = {
    (record.event.type, dialect): field_names(record)
    for dialect, records in METADATA_RECORDS.items()
    for record in records
}
"""The fields of each type of event in each dialect, in the order in which they are printed."""
_QUOTED = frozenset({"topic_id", "segment_id", "state", "type", "dialect"})
_POSITION = ("metadata_partition", "metadata_offset", "timestamp_ms")


def _object(event_type: str, dialect: Dialect) -> str:
    fields = (*FIELDS[event_type, dialect], "type", "dialect", *_POSITION)
    return ", ".join(f'"{name}": "<{name}>"' if name in _QUOTED else f'"{name}": <{name}>' for name in fields)


def _epochs(records: Records) -> pa.StringArray:
    column = as_array(records.events.column("segment_leader_epochs"))
    inner = pairs_text(column, between=", ", pair=("[", ", ", "]"))
    return as_array(pc.binary_join_element_wise("[", inner, "]", ""))


def _custom(records: Records) -> pa.StringArray:
    text = hex_text(as_array(records.events.column("custom_metadata")))
    return as_array(pc.fill_null(pc.binary_join_element_wise('"', text, '"', ""), "null"))


def _timestamps(records: Records) -> pa.StringArray:
    return as_array(pc.fill_null(records.timestamps_ms.cast(pa.string()), "null"))


class JsonFormatter(ShapedFormatter):
    """One JSON object a line, in ASCII."""

    makers = POSITION | {
        "topic": lambda records: mapped(as_array(records.events.column("topic")), json_text),
        "segment_leader_epochs": _epochs,
        "custom_metadata": _custom,
        "timestamp_ms": _timestamps,
    }

    def __init__(self, properties: Mapping[str, str]) -> None:
        no_properties("json", properties)

    def template(self, event_type: str, dialect: Dialect) -> Template:
        """An object with the fields this type has in this dialect."""
        return ["{", *template(_object(event_type, dialect)), "}"]

    def other_line(self, record: Record) -> str:
        """An object without an event's fields."""
        what: dict[str, Any] = {"type": None, "dialect": None}
        where = {name: getattr(record, name) for name in _POSITION}
        if record.error is not None:
            where |= {"error": record.error, "value": record.value_hex}
        return json_text(what | where)
