"""The file of records that a controller appends to its empty metadata log when it is first started.

Layout: a control batch (the snapshot's header, and voters, if there are any), batches of records, and a
control batch (the footer). `kafka-storage format` writes it as `bootstrap.checkpoint`, from 4.4 on as the
snapshot 0-0 of `__cluster_metadata-0`. Source: BootstrapDirectory, RecordsSnapshotWriter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tierctl.errors import CorruptInputError
from tierctl.wire.batches.record_batch import ControlType, RecordBatch, batches, control_record, encode_batch
from tierctl.wire.batches.records import Record

_BATCH_RECORDS = 500
"""Records in one batch; a controller reads batches of up to 8 MiB."""


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """The records of a file in their order; `footer_at` is the position of its footer, `data` its bytes."""

    data: bytes
    values: tuple[bytes, ...]
    footer_at: int
    footer_offset: int
    timestamp_ms: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the file with these bytes; CorruptInputError without a header or a footer."""
        found = list(batches(data))
        if len(found) < 2 or _first_control(found[0]) is not ControlType.SNAPSHOT_HEADER:
            raise _corrupt("a control batch with the snapshot's header", found[:1])
        footer = found[-1]
        if _first_control(footer) is not ControlType.SNAPSHOT_FOOTER or footer.head.end != len(data):
            raise _corrupt("a control batch with the snapshot's footer at the end", found[-1:])
        records = [record for batch in found if not batch.head.is_control for record in batch.records()]
        return cls(
            data=data,
            values=tuple(record.value or b"" for record in records),
            footer_at=footer.head.position,
            footer_offset=footer.head.base_offset,
            timestamp_ms=footer.head.base_timestamp_ms,
        )

    def extended(self, values: Sequence[bytes]) -> bytes:
        """Return the bytes of the file with `values` as its last records."""
        offset = self.footer_offset
        added = []
        for start in range(0, len(values), _BATCH_RECORDS):
            group = values[start : start + _BATCH_RECORDS]
            records = [
                Record(offset + number, self.timestamp_ms, None, value) for number, value in enumerate(group)
            ]
            added.append(encode_batch(records))
            offset += len(group)
        # The CRC of a batch does not cover its base offset.
        footer = offset.to_bytes(8, "big") + self.data[self.footer_at + 8 :]
        return b"".join([self.data[: self.footer_at], *added, footer])


def _first_control(batch: RecordBatch) -> ControlType | None:
    if not batch.head.is_control:
        return None
    first = next(iter(batch.records()), None)
    return None if first is None else control_record(first).type


def _corrupt(expected: str, found: Sequence[RecordBatch]) -> CorruptInputError:
    at = found[0].head.position if found else 0
    what = "a batch of records" if found and not found[0].head.is_control else "none"
    return CorruptInputError("bootstrap file", expected=expected, found=what, at=at)
