"""`--style kip`: the text of KIP-405, "Message Formatter for the internal topic", which Kafka never built.

    partition:<val><sep>message-offset:<val><sep>type:<type><sep>version:<no><vs>event-value:<event>

Properties, named as the KIP names them for the console consumer's --property:

    print.partition               partition:<val>        default false
    print.message.offset          message-offset:<val>   default false
    print.version                 version:<no>           default false
    print.all.event.value.fields  every field of the event, not only the KIP's short form; default false
    sep                           between parts and between fields; default ","
    vs                            before event-value; default as sep (the KIP gives it no default)

`type` is always printed; the KIP calls a partition's delete event DeletePartitionState. Where kip405 records
have a leader epoch, Kafka's have the writing broker, printed as `broker-id`. The KIP's short form of
DeletePartitionState lacks its last brace; here it is there.
"""

from collections.abc import Mapping

import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.model.events import Dialect
from tierctl.report.formatters.records import Record
from tierctl.report.formatters.templates import (
    POSITION,
    ChosenRows,
    Named,
    Template,
    TemplateFormatter,
    Text,
    hex_text,
    pairs_text,
    require_known,
    template,
    with_null,
)
from tierctl.report.table import printable

_FLAGS = ("print.partition", "print.message.offset", "print.version", "print.all.event.value.fields")
_SEPARATORS = ("sep", "vs")
_VERSION = "0"
_WRITER = {Dialect.KAFKA: "broker-id:<broker_id>", Dialect.KIP405: "leader-epoch:<leader_epoch>"}
_KAFKA_EXTRA = ("custom-metadata:<custom>", "txn-index-empty:<txn_index_empty>")


class KipFormatter(TemplateFormatter):
    """Formats records as KIP-405 describes it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        require_known("kip", properties, (*_FLAGS, *_SEPARATORS))
        self._partition, self._offset, self._version, self._all_fields = (
            _flag(name, properties.get(name, "false")) for name in _FLAGS
        )
        for name in _SEPARATORS:
            _require_utf8(name, properties.get(name, ""))
        self._sep = properties.get("sep", ",")
        self._vs = properties.get("vs", self._sep)
        self.makers = POSITION | {"epochs": self._epochs, "custom": _custom}

    def template(self, event_type: str, dialect: Dialect) -> Template:
        """Implement `TemplateFormatter.template`: the head, then the short or full form of the event."""
        shown = "DeletePartitionState" if event_type == "RemotePartitionDeleteMetadata" else event_type
        head = self._head("<metadata_partition>", "<metadata_offset>", shown)
        return [*self._joined(head), self._vs, "event-value:", *self._event(event_type, dialect)]

    def other_line(self, record: Record) -> str:
        """Implement `TemplateFormatter.other_line`: the type Tombstone, or Error with the value's bytes."""
        shown = "Tombstone" if record.error is None else "Error"
        head = self._head(str(record.metadata_partition), str(record.metadata_offset), shown, version=False)
        value = "null"
        if record.error is not None:
            value = f"{{error:{record.printable_error}{self._sep}bytes:{record.value_hex}}}"
        return f"{self._sep.join(head)}{self._vs}event-value:{value}"

    def _head(self, partition: str, offset: str, shown: str, *, version: bool = True) -> list[str]:
        return [
            *([f"partition:{partition}"] if self._partition else []),
            *([f"message-offset:{offset}"] if self._offset else []),
            f"type:{shown}",
            *([f"version:{_VERSION}"] if self._version and version else []),
        ]

    def _joined(self, fields: list[str]) -> list[str | Named]:
        """Return `fields` as template parts joined by the separator, which is never read as a template."""
        parts: list[str | Named] = []
        for field in fields:
            parts.extend([self._sep] if parts else [])
            parts.extend(template(field))
        return parts

    def _braced(self, fields: list[str]) -> list[str | Named]:
        return ["{", *self._joined(fields), "}"]

    def _event(self, event_type: str, dialect: Dialect) -> list[str | Named]:
        partition = ["topicId:<topic_id>", "topicName:<topic>", "partition:<partition>"]
        if event_type == "RemotePartitionDeleteMetadata":
            writer = "epoch:<epoch>" if dialect is Dialect.KIP405 else _WRITER[dialect]
            when = ["event-timestamp:<event_timestamp_ms>"] if self._all_fields else []
            rest = [writer, *when, "remote-partition-delete-state:<state>"]
            return ["{topic-id-partition:", *self._braced(partition), self._sep, *self._joined(rest), "}"]
        own_id = ["id:<segment_id>"] if event_type.endswith("Snapshot") else ["id:<segment_id>", *partition]
        rest = self._segment_fields(event_type, dialect)
        return ["{remote-log-segment-id:", *self._braced(own_id), self._sep, *self._joined(rest), "}"]

    def _segment_fields(self, event_type: str, dialect: Dialect) -> list[str]:
        is_update = event_type == "RemoteLogSegmentMetadataUpdate"
        every, kafka = self._all_fields, dialect is Dialect.KAFKA
        custom, txn_index_empty = ([field] if every and kafka else [] for field in _KAFKA_EXTRA)
        when = ["event-timestamp:<event_timestamp_ms>"] if every else []
        state = "remote-log-segment-state:<state>"
        if is_update:
            return [_WRITER[dialect], *when, *custom, state]
        offsets = ["start-offset:<start_offset>", "end-offset:<end_offset>"]
        largest = ["max-timestamp:<max_timestamp_ms>"] if every else []
        sizes = ["segment-leader-epochs:[<epochs>]", "segment-size-in-bytes:<segment_size_in_bytes>"]
        size = sizes if every else []
        return [*offsets, _WRITER[dialect], *largest, *when, *size, *custom, *txn_index_empty, state]

    def _epochs(self, rows: ChosenRows) -> pa.StringArray:
        column = rows.column("segment_leader_epochs")
        return pairs_text(column, between=self._sep, pair=("{leader-epoch:", f"{self._sep}offset:", "}"))


def _custom(rows: ChosenRows) -> Text:
    return with_null(hex_text, "null", rows.column("custom_metadata"))


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise UsageError(f"{name}={printable(text)}: expected true or false")
    return text.lower() == "true"


def _require_utf8(name: str, text: str) -> None:
    """Raise UsageError for a separator with bytes of a command line that are no UTF-8, as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name}={printable(text)}: expected text in UTF-8", hint="as sep=';'") from None
