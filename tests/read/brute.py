"""What consumers see of whole segments, by a slow decoder of records, with which the reader is compared."""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierctl.wire.batches.record_batch import batches

from tests.wire.batches import plain


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


def decode(data: bytes) -> Iterator[BruteRecord]:
    """Return every record of a complete, valid segment."""
    for batch in batches(data):
        for record in plain.records(batch):
            yield BruteRecord(
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                epoch=batch.head.partition_leader_epoch,
                producer_id=batch.head.producer_id,
                transactional=batch.head.is_transactional,
                control=batch.head.is_control,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )


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
