"""Changes a record batch inside: keeps its first records, or empties some, in a batch with a new CRC."""

from collections.abc import Container, Sequence

from tierctl.wire.batches.batch_heads import MAGIC, BatchHead, Buffer
from tierctl.wire.batches.compression import compress
from tierctl.wire.batches.record_batch import Record, batch_at, encode_batch, seal
from tierctl.wire.batches.records import emptied_records, encode_records


def batch_before(buf: Buffer, head: BatchHead, end_offset: int) -> bytes:
    """Return the batch with `head` in `buf` without its records from `end_offset` on; empty if none is left.

    `end_offset` is above the batch's base offset and at most its last offset. Compression, producer,
    sequence and timestamps stay; the batch then ends at `end_offset` - 1. Raise CorruptInputError for records
    that can't be decoded.
    """
    records = [record for record in batch_at(buf, head).records() if record.offset < end_offset]
    if not records:
        return b""
    if head.magic < MAGIC:
        return _as_batch(head, records, end_offset - 1)
    latest_ms = max(record.timestamp_ms for record in records)
    kept = head._replace(
        last_offset_delta=end_offset - 1 - head.base_offset,
        max_timestamp_ms=head.max_timestamp_ms if head.is_log_append_time else latest_ms,
        record_count=len(records),
    )
    data = encode_records(records, base_offset=head.base_offset, base_timestamp_ms=head.base_timestamp_ms)
    return seal(kept, compress(head.compression, data))


def batch_emptied(buf: Buffer, head: BatchHead, offsets: Container[int]) -> bytes:
    """Return the batch with `head` in `buf`, its records at `offsets` without key, value and headers.

    Every other byte of the records, and every field of the head but for length and CRC, stays; the records
    are compressed anew with the same codec. The batch must have been decoded before. Messages of magic 0 and
    1 become a batch of magic 2.
    """
    if head.magic < MAGIC:
        records = [
            record._replace(key=None, value=None) if record.offset in offsets else record
            for record in batch_at(buf, head).records()
        ]
        return _as_batch(head, records, head.last_offset)
    data = emptied_records(batch_at(buf, head).uncompressed(), head, offsets)
    return seal(head, compress(head.compression, data))


def _as_batch(head: BatchHead, records: Sequence[Record], last_offset: int) -> bytes:
    """Return the messages of the entry with `head` as a batch of magic 2, the format that brokers write."""
    return encode_batch(
        records,
        base_offset=head.base_offset,
        last_offset=last_offset,
        compression=head.compression,
        log_append_time=head.is_log_append_time,
        max_timestamp_ms=head.max_timestamp_ms if head.is_log_append_time else None,
    )
