"""Messages of the formats 0 and 1, as old brokers store them."""

import struct
import zlib
from collections.abc import Sequence

from tierctl.wire.batches.batch_head import CompressionType, Record, compress
from tierctl.wire.batches.record_batch import encode_batch

LOG_APPEND_TIME = 8
TIME_MS = 1_700_000_000_000


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


def records_at(*offsets: int) -> list[Record]:
    return [Record(at, TIME_MS + at, b"k%d" % at, b"value %d" % at * 5) for at in offsets]


def all_formats() -> bytes:
    """Return a log of all formats, with 28 records at the offsets 0 to 33."""
    parts: list[bytes] = []
    at = 0
    for magic in (0, 1):
        parts += [message(record, magic) for record in records_at(at, at + 1)]
        at += 2
        for kind in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4):
            parts.append(wrapper(records_at(at, at + 1, at + 3), magic, kind))
            at += 4
    parts.append(encode_batch(records_at(at, at + 1)))
    parts.append(message(records_at(at + 2)[0], 1))
    parts.append(encode_batch(records_at(at + 3, at + 4), compression=CompressionType.ZSTD))
    parts.append(message(Record(at + 5, TIME_MS, None, None), 0))
    return b"".join(parts)
