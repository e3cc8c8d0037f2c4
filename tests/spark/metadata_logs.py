"""Metadata logs for tests of the data source, and its rows in the form of `tierctl format`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.report.formatters.json_lines import FIELDS
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch

NOW_MS = 1_700_000_000_000

Row = dict[str, Any]


def topic_folders(capture: Path) -> list[Path]:
    """Return every folder of a capture that has metadata partitions."""
    return sorted({path.parent for path in capture.rglob(f"{METADATA_TOPIC}-*") if path.is_dir()})


def batches(values: Iterable[bytes | None], base_offset: int = 0) -> list[bytes]:
    """Return one batch per record, as brokers write them."""
    return [
        encode_batch([Record(offset, NOW_MS + offset, None, value)])
        for offset, value in enumerate(values, base_offset)
    ]


def write_log(folder: Path, partition: int, data: Sequence[bytes], *, base_offset: int = 0) -> Path:
    """Write a segment of a metadata partition."""
    path = folder / f"{METADATA_TOPIC}-{partition}" / f"{base_offset:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(data))
    return path


def as_json(row: Row) -> Row:
    """Return a row of the data source in the form of `format --style json`."""
    fields: Row = {}
    if row["type"] is not None:
        fields = {name: row[name] for name in FIELDS[row["type"], row["dialect"]]}
    if "segment_leader_epochs" in fields:
        epochs = fields["segment_leader_epochs"]
        fields["segment_leader_epochs"] = [[each["leader_epoch"], each["offset"]] for each in epochs]
    if fields.get("custom_metadata") is not None:
        fields["custom_metadata"] = bytes(fields["custom_metadata"]).hex()
    names = ("type", "dialect", "metadata_partition", "metadata_offset", "timestamp_ms")
    fields |= {name: row[name] for name in names}
    if row["error"] is not None:
        fields |= {"error": row["error"], "value": bytes(row["value"] or b"").hex()}
    return fields
