"""Checks that batches read as columns have the results of batches read one by one."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.wire.batches import plain
from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import MAGIC, BatchHead, Record
from tierctl.wire.batches.record_batch import RecordBatch, batch_at, batches
from tierctl.wire.batches.records import SCHEMA, read_values, record_columns
from tierctl.wire.batches.scan import BadRange, OffsetBounds, TornTail, scan_heads, walk

END = (1 << 63) - 1


def _damage(bad: BadRange) -> tuple[object, ...]:
    return bad.position, bad.end, bad.first_offset, bad.next_offset, str(bad.error)


def check_heads(data: bytes, **arguments: int) -> None:
    """Compare `scan_heads` with `walk`."""
    pieces = list(walk(data, **arguments))
    columns = scan_heads(data, OffsetBounds(arguments.get("expected_offset")))
    heads = [piece for piece in pieces if isinstance(piece, BatchHead)]
    assert [columns.head(row) for row in range(len(columns))] == heads
    assert [*map(_damage, columns.bad)] == [_damage(piece) for piece in pieces if isinstance(piece, BadRange)]
    assert columns.torn == (pieces[-1] if pieces and isinstance(pieces[-1], TornTail) else None)
    assert columns.next_offsets.tolist() == [head.next_offset for head in heads]
    assert columns.sizes_bytes.tolist() == [head.size_bytes for head in heads]
    assert columns.fields["max_timestamp_ms"].tolist() == [head.max_timestamp_ms for head in heads]


def scan(data: bytes) -> list[BatchHead]:
    """Return the heads of the batches up to a torn end; raise CorruptInputError for damage."""
    return [batch.head for batch in batches(data)]


def check_values(data: bytes, start: int = 0, end: int = END) -> None:
    """Compare `read_values` with the records that a plain decoder finds in the batches of `walk`."""
    want: list[Record] = []
    bad = []
    for piece in walk(data):
        if not isinstance(piece, BatchHead) or piece.is_control:
            continue
        if piece.next_offset <= start or piece.base_offset >= end:
            continue
        batch = batch_at(data, piece)
        try:
            whole = list(_expected(batch))
        except (CorruptInputError, ValueError):
            with pytest.raises(CorruptInputError) as e:
                list(batch.records())
            bad.append((piece.position, piece.end, piece.base_offset, piece.next_offset, str(e.value)))
        else:
            want += [each for each in whole if start <= each.offset < end]
    got = read_values(data, scan_heads(data), start, end)
    values = got.values.array
    values.validate(full=True)
    assert got.offsets.tolist() == [each.offset for each in want]
    assert values.to_pylist() == [each.value for each in want]
    assert got.timestamps_ms.tolist() == [each.timestamp_ms for each in want]
    assert sorted(map(_damage, got.damaged)) == bad


def decoded(batch: RecordBatch) -> Iterator[Record]:
    """Decode like a reader, up to the first error."""
    try:
        yield from batch.records()
    except (CorruptInputError, LimitExceeded):
        return


def _expected(batch: RecordBatch) -> Iterator[Record]:
    return batch.records() if batch.head.magic < MAGIC else plain.records(batch)


def _up_to_the_first_error(batch: RecordBatch) -> Iterator[Record]:
    with suppress(CorruptInputError, LimitExceeded, ValueError):
        yield from _expected(batch)


def check_columns(found: Sequence[RecordBatch], rows_max: int = 4096) -> None:
    """Compare `record_columns`, and `records`, with the records of batches up to their first error."""
    assert all(list(decoded(batch)) == list(_up_to_the_first_error(batch)) for batch in found)
    tables = list(record_columns(found, decoded, rows_max=rows_max))
    for table in tables:
        table.validate(full=True)
        assert 0 < table.num_rows <= rows_max
    rows = pa.Table.from_batches(tables, SCHEMA).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (
            record.offset,
            record.timestamp_ms,
            batch.head.timestamp_type,
            batch.head.partition_leader_epoch,
            record.key,
            record.value,
            [{"key": name, "value": value} for name, value in record.headers],
        )
        for batch in found
        for record in _up_to_the_first_error(batch)
    ]
