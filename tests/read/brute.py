"""An independent, slow decoder of uncompressed batches, with which the reader is compared."""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BruteRecord:
    """A record with the fields of its batch."""

    offset: int
    timestamp_ms: int
    epoch: int
    producer_id: int
    transactional: bool
    control: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def answer(self) -> tuple[int, int, str | None, str | None]:
        return self.offset, self.timestamp_ms, sha(self.key), sha(self.value)


def sha(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        raw = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (raw >> 1) ^ -(raw & 1)

    def blob(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def decode(data: bytes) -> Iterator[BruteRecord]:
    """Return every record of a complete, valid segment."""
    position = 0
    while position < len(data):
        base, length, epoch = struct.unpack_from(">qii", data, position)
        attributes, _delta, first_ms, max_ms = struct.unpack_from(">hiqq", data, position + 21)
        (producer_id,) = struct.unpack_from(">q", data, position + 43)
        (count,) = struct.unpack_from(">i", data, position + 57)
        assert attributes & 7 == 0, "this decoder knows no compression"
        cursor = _Cursor(data[position + 61 : position + 12 + length])
        for _ in range(count):
            cursor.varint()
            cursor.at += 1
            timestamp_ms = first_ms + cursor.varint()
            offset = base + cursor.varint()
            key, value = cursor.blob(), cursor.blob()
            headers = tuple(((cursor.blob() or b"").decode(), cursor.blob()) for _ in range(cursor.varint()))
            yield BruteRecord(
                offset=offset,
                timestamp_ms=max_ms if attributes & 8 else timestamp_ms,
                epoch=epoch,
                producer_id=producer_id,
                transactional=bool(attributes & 16),
                control=bool(attributes & 32),
                key=key,
                value=value,
                headers=headers,
            )
        position += 12 + length


def decode_files(files: list[Path]) -> list[BruteRecord]:
    """Return every record of these segments, each offset once, in offset order."""
    found = {record.offset: record for file in files for record in decode(file.read_bytes())}
    return [found[offset] for offset in sorted(found)]


def visible(records: list[BruteRecord]) -> list[BruteRecord]:
    """Return the records that read_uncommitted shows."""
    return [record for record in records if not record.control]


def committed(records: list[BruteRecord]) -> list[BruteRecord]:
    """Return the records that read_committed shows, up to the first open transaction."""
    pending: dict[int, list[BruteRecord]] = {}
    outcome: dict[int, bool] = {}
    for record in records:
        if record.control:
            (kind,) = struct.unpack_from(">h", record.key or b"", 2)
            outcome |= {waiting.offset: kind == 1 for waiting in pending.pop(record.producer_id, [])}
        elif record.transactional:
            pending.setdefault(record.producer_id, []).append(record)
    open_from = min((waiting[0].offset for waiting in pending.values()), default=None)
    return [
        record
        for record in visible(records)
        if outcome.get(record.offset, not record.transactional)
        and (open_from is None or record.offset < open_from)
    ]


def answers(file: Path) -> list[tuple[int, int, str | None, str | None]]:
    """Return a consumer's records: offset, timestamp, SHA-256 of key and value; line one is a header."""
    rows = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    return [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows]
