"""Messages of the formats 0 and 1, as old brokers store them."""

import struct
import zlib
from collections.abc import Sequence

from tierctl.wire.batches.batch_head import CompressionType, Record, compress

LOG_APPEND_TIME = 8


def message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """Return one message; with format 0 without its timestamp."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", record.timestamp_ms)
    for part in (record.key, record.value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", record.offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    records: Sequence[Record], magic: int, kind: CompressionType, *, appended_ms: int | None = None
) -> bytes:
    """Return a message of compressed messages; `appended_ms` is the broker's time instead of the records'.

    Offsets are relative in format 1. An lz4 frame of format 0 has the wrong header of old clients.
    """
    first, last = (records[0].offset, records[-1].offset) if magic else (0, records[-1].offset)
    inner = b"".join(message(each._replace(offset=each.offset - first), magic) for each in records)
    value = compress(kind, inner)
    if magic == 0 and kind is CompressionType.LZ4:
        value = value[:6] + b"\x1a" + value[7:]
    latest_ms = max(each.timestamp_ms for each in records) if appended_ms is None else appended_ms
    attributes = kind if appended_ms is None else kind | LOG_APPEND_TIME
    return message(Record(last, latest_ms, None, value), magic, attributes)
