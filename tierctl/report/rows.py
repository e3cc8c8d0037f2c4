"""Rows of the commands that read: the columns of each kind, and how a typed result becomes a row."""

import io
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from tierctl.model import RemoteLogSegmentMetadata
from tierctl.report.render import render
from tierctl.wire.metadata.json_fields import json_fields
from tierctl.wire.metadata.schema import FIELD_NAMES


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of csv in their order, and those of the narrower table; None shows all in the table, too.

    json and jsonl show every field of a row.
    """

    names: tuple[str, ...]
    in_table: tuple[str, ...] | None = None


SEGMENTS = Columns(
    (
        "topic",
        "topic_id",
        "partition",
        "segment_id",
        "start_offset",
        "end_offset",
        "broker_id",
        "max_timestamp_ms",
        "event_timestamp_ms",
        "segment_leader_epochs",
        "segment_size_in_bytes",
        "custom_metadata",
        "state",
        "txn_index_empty",
    ),
    (
        "topic",
        "partition",
        "segment_id",
        "start_offset",
        "end_offset",
        "segment_leader_epochs",
        "segment_size_in_bytes",
        "state",
    ),
)
TOPIC_SIZES = Columns(
    (
        "topic",
        "topic_id",
        "partitions",
        "segments",
        "log_bytes",
        "copying_segments",
        "copying_bytes",
        "deleting_segments",
        "deleting_bytes",
        "objects",
        "object_bytes",
    ),
    ("topic", "partitions", "segments", "log_bytes", "copying_segments", "deleting_segments", "object_bytes"),
)
PARTITION_OFFSETS = Columns(
    (
        "topic",
        "topic_id",
        "partition",
        "earliest",
        "earliest_local",
        "latest_tiered",
        "earliest_pending_upload",
        "latest",
    )
)
SEGMENT_FINDINGS = Columns(
    (
        "severity",
        "kind",
        "topic",
        "topic_id",
        "partition",
        "segment_id",
        "start_offset",
        "end_offset",
        "message",
    ),
    ("severity", "kind", "topic", "partition", "segment_id", "start_offset", "end_offset", "message"),
)

FINDINGS = Columns(
    (
        "severity",
        "kind",
        "topic",
        "topic_id",
        "partition",
        "segment_id",
        "start_offset",
        "end_offset",
        "key",
        "message",
        "hint",
    ),
    ("severity", "kind", "topic", "partition", "segment_id", "start_offset", "end_offset", "key", "message"),
)

_RECORD_POSITION = ("metadata_partition", "metadata_offset", "timestamp_ms")
EVENTS = Columns(
    (*FIELD_NAMES, "dialect", *_RECORD_POSITION, "error", "value"),
    (
        *_RECORD_POSITION,
        *("type", "topic", "partition", "segment_id", "start_offset", "end_offset", "state", "error"),
    ),
)


def show_rows(items: Iterable[Any], output: str, columns: Columns) -> None:
    """Print one row per item: a mapping as it is, a segment or another dataclass by its fields."""
    render(map(_row_of, items), output, columns.names, table_columns=columns.in_table)


def _row_of(item: Any) -> dict[str, Any]:
    if isinstance(item, RemoteLogSegmentMetadata):
        return segment_row(item)
    return asdict(item) if is_dataclass(item) and not isinstance(item, type) else item


def segment_row(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Return the segment as a row of `SEGMENTS`; a field that its dialect does not have is None."""
    shown = json_fields(segment)
    return {name: shown.get(name) for name in SEGMENTS.names}


def show_texts(texts: Iterable[str], output: str, columns: Columns) -> None:
    """Print rows that executors have rendered: text of csv without its header, otherwise of jsonl.

    What is printed equals `show_rows` of the same rows, byte for byte.
    """
    out = sys.stdout
    match output:
        case "table":
            lines = (line for text in texts for line in io.StringIO(text))
            show_rows(map(json.loads, lines), output, columns)
        case "json":
            separator = "["
            for text in texts:
                out.write(f"{separator}\n" + text.rstrip("\n").replace("\n", ",\n"))
                separator = ","
            out.write("[]\n" if separator == "[" else "\n]\n")
        case _:
            if output == "csv":
                show_rows([], output, columns)
            out.writelines(texts)
