"""Writes Descriptions.java: the records' layout and text for the jar, from what tierctl itself goes by.

The layout is `tierctl.wire.metadata.schema`, the text is the templates of `tierctl.report.formatters`;
neither is written down in Java a second time.
"""

import json
from collections.abc import Callable, Iterable
from itertools import groupby

from tierctl.model.events import Dialect
from tierctl.report.formatters.json_lines import FIELDS, JsonFormatter
from tierctl.report.formatters.kafka import KafkaFormatter
from tierctl.report.formatters.kip import KipFormatter
from tierctl.report.formatters.text import Named, Template
from tierctl.wire.metadata.schema import (
    METADATA_RECORDS,
    Array,
    Field,
    Fixed,
    RecordSchema,
    Rule,
    Struct,
    Variable,
)

# Separators that no template has in it, to be found again.
_SEP, _VS = "\x01", "\x02"
_HEAD = """package tierctl.formatter;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Written by tierctl/formatter/describe.py. */
final class Descriptions {
    private Descriptions() {
    }
"""
_TAIL = """
    private static Schema.Struct struct(List<Schema.Field> fields, List<Schema.Flag> flags) {
        return new Schema.Struct(fields, flags);
    }

    private static Schema.Field field(
            String name, Schema.Kind kind, List<String> states, Schema.Struct inner) {
        return new Schema.Field(name, kind, states, inner);
    }

    private static Map<String, String[]> templates(String[]... rows) {
        Map<String, String[]> templates = new HashMap<>();
        for (String[] row : rows) {
            templates.put(row[0], java.util.Arrays.copyOfRange(row, 1, row.length));
        }
        return templates;
    }
}
"""


def descriptions() -> str:
    """The source of class Descriptions."""
    kip, kip_all = (
        KipFormatter({"sep": _SEP, "vs": _VS, "print.all.event.value.fields": flag})
        for flag in ("false", "true")
    )
    parts = [
        _schemas("KAFKA", METADATA_RECORDS[Dialect.KAFKA]),
        _schemas("KIP405", METADATA_RECORDS[Dialect.KIP405]),
        _templates("JSON", JsonFormatter({}).template),
        _templates("KAFKA_TEXT", KafkaFormatter({}).template),
        _templates("KIP", lambda *shape: _kip_event(kip.template(*shape))),
        _templates("KIP_ALL_FIELDS", lambda *shape: _kip_event(kip_all.template(*shape))),
        _kip_types(kip),
    ]
    return _HEAD + "".join(parts) + _TAIL


def _text(text: str) -> str:
    """A Java string; JSON's escapes are Java's, too."""
    return json.dumps(text)


def _list(items: Iterable[str]) -> str:
    return f"List.of({', '.join(items)})"


def _schemas(name: str, records: tuple[RecordSchema, ...]) -> str:
    if [record.api_key for record in records] != list(range(len(records))):
        raise ValueError(f"{name}: record types are not counted from 0")
    rows = ",\n        ".join(map(_schema, records))
    return f"\n    static final List<Schema> {name} = List.of(\n        {rows});\n"


def _schema(record: RecordSchema) -> str:
    flexible = "true" if record.flexible else "false"
    return (
        f"new Schema({record.api_key}, {_text(record.name)}, {_text(record.event.type)}, {flexible},"
        f" {_struct(record.body)}, {_list(map(_rule, record.rules))})"
    )


def _struct(body: Struct) -> str:
    flags = (f"new Schema.Flag({_text(flag.name)}, {flag.tag})" for flag in body.flags)
    return f"struct({_list(map(_field, body.fields))}, {_list(flags)})"


def _field(field: Field) -> str:
    inner = "null"
    match field.kind:
        case Fixed() | Variable() as kind:
            name = kind.name
        case Struct() as struct:
            name, inner = "STRUCT", _struct(struct)
        case Array() as array:
            name, inner = "ARRAY", _struct(array.element)
    states = _list(_text(str(state)) for state in field.states or ())
    return f"field({_text(field.name)}, Schema.Kind.{name}, {states}, {inner})"


def _rule(rule: Rule) -> str:
    least = f"{rule.least}L" if isinstance(rule.least, int) else "null"
    other = _text(rule.least) if isinstance(rule.least, str) else "null"
    return f"new Schema.Rule({_text(rule.field)}, {_text(rule.expected)}, {least}, {other})"


def _shape(event_type: str, dialect: Dialect) -> str:
    return _text(f"{event_type}/{dialect}")


def _templates(name: str, template: Callable[[str, Dialect], Template]) -> str:
    rows = (
        f"{{{', '.join([_shape(*shape), *map(_text, _alternating(template(*shape)))])}}}" for shape in FIELDS
    )
    text = ",\n        ".join(f"new String[] {row}" for row in rows)
    return f"\n    static final Map<String, String[]> {name} = templates(\n        {text});\n"


def _alternating(parts: Template) -> list[str]:
    """Literals at even places, names at odd ones."""
    out = [""]
    for is_name, group in groupby(parts, lambda part: isinstance(part, Named)):
        for part in group:
            if is_name:
                assert isinstance(part, Named)
                out += [part.name, ""]
            else:
                out[-1] += str(part)
    return out


def _kip_event(parts: Template) -> Template:
    """What follows `event-value:`, with a name where a separator is."""
    out: list[str | Named] = []
    for part in _after_head(parts):
        if isinstance(part, Named):
            out.append(part)
            continue
        for i, piece in enumerate(part.split(_SEP)):
            out += [Named("sep"), piece] if i else [piece]
    return out


def _after_head(parts: Template) -> Template:
    start = list(parts).index(_VS)
    if parts[start + 1] != "event-value:":
        raise ValueError(f"expected event-value: after the separator, found {parts[start + 1]!r}")
    return parts[start + 2 :]


def _kip_types(kip: KipFormatter) -> str:
    """What the KIP calls each type, which stands before the separator."""
    rows = []
    for shape in FIELDS:
        parts = list(kip.template(*shape))
        head = "".join(str(part) for part in parts[: parts.index(_VS)])
        rows.append(f"Map.entry({_shape(*shape)}, {_text(head.removeprefix('type:'))})")
    text = ",\n        ".join(rows)
    return f"\n    static final Map<String, String> KIP_TYPES = Map.ofEntries(\n        {text});\n"
