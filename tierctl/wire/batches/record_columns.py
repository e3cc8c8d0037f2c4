"""Decodes the records of many batches to Arrow columns, with the results of `RecordBatch.records`.

Only the walk over the records' length fields is a loop. A batch that fails a check here is decoded by the
scalar decoder, so one decoder decides which records are good and words the errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_heads import MAGIC, BatchHead
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.batches.record_parser import DecompressedBatch, ParsedRecords, RecordSpans, parse, slices
from tierctl.wire.batches.records import Record

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("leader_epoch", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", HEADER))),
    ]
)
"""The columns of a consumer's records; null keys, values and header values are null."""

Decode = Callable[[RecordBatch], Iterable[Record]]
"""The scalar decoder of a batch; it reports or raises errors itself."""

_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


ROWS_MAX = 16384
BYTES_MAX = 8 << 20
_SCALAR_BYTES = 1 << 20


def record_columns(
    batches: Iterable[RecordBatch], decode: Decode, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `batches` in order, as columns of SCHEMA with at most `rows_max` rows.

    `decode` decodes the batches that fail a check of the columnar decoder. Memory holds at most `bytes_max`
    of decompressed records plus one batch.
    """
    for group in _groups(batches, rows_max, bytes_max):
        for columns in _decoded(group, decode):
            for at in range(0, columns.num_rows, rows_max):
                yield columns.slice(at, rows_max)


def _groups(
    batches: Iterable[RecordBatch], rows_max: int, bytes_max: int
) -> Iterator[list[DecompressedBatch]]:
    group: list[DecompressedBatch] = []
    rows = size = 0
    for batch in batches:
        opened = DecompressedBatch(batch, _uncompressed(batch))
        group.append(opened)
        rows += batch.head.record_count
        size += len(batch.payload if opened.data is None else opened.data)
        if rows >= rows_max or size >= bytes_max:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _uncompressed(batch: RecordBatch) -> bytes | None:
    if batch.head.magic < MAGIC:
        return None
    try:
        return batch.uncompressed()
    except (CorruptInputError, LimitExceeded):
        return None


def _decoded(group: Sequence[DecompressedBatch], decode: Decode) -> Iterator[pa.RecordBatch]:
    found = RecordSpans.over(group)
    parsed = parse(found)
    odd = found.odd | parsed.odd_batches(found)
    names = parsed.header_names(found)
    if names is None:
        odd |= parsed.batches_with_headers(found)
    for is_odd, numbers in groupby(range(len(group)), key=odd.__contains__):
        if is_odd:
            yield from _scalar((group[number].batch for number in numbers), decode)
        else:
            run = list(numbers)
            heads = [each.batch.head for each in group[run[0] : run[-1] + 1]]
            yield from _columns(parsed, found, heads, run[0], names)


def _columns(
    parsed: ParsedRecords,
    found: RecordSpans,
    heads: Sequence[BatchHead],
    first: int,
    names: pa.StringArray | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the good batches that have `heads`; `first` is the number of the first batch."""
    begin, end = np.searchsorted(found.batch, [first, first + len(heads)])
    if begin == end:
        return
    rows = slice(int(begin), int(end))
    of_heads = np.array(
        [(h.base_offset, h.base_timestamp_ms, h.max_timestamp_ms, h.partition_leader_epoch) for h in heads]
    )
    base, created, appended, epochs = of_heads[found.batch[rows] - first].T
    is_appended = np.array([h.is_log_append_time for h in heads])[found.batch[rows] - first]
    # Not when the module is imported: the first conversion of a process imports pandas (`arrow_start`).
    names_of_types = pa.array(_TIMESTAMP_TYPES, pa.string())
    types = pa.DictionaryArray.from_arrays(is_appended.astype(np.int8), names_of_types)
    bounds = parsed.bounds[rows]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(base + parsed.offset_delta[rows]),
            pa.array(np.where(is_appended, appended, created + parsed.timestamp_delta[rows])),
            types.cast(pa.string()),
            pa.array(epochs.astype(np.int32)),
            slices(found.data, bounds, 0, parsed.null_key[rows]),
            slices(found.data, bounds, 2, parsed.null_value[rows]),
            _header_lists(parsed, found, rows, names),
        ],
        schema=SCHEMA,
    )


def _header_lists(
    parsed: ParsedRecords, found: RecordSpans, rows: slice, names: pa.StringArray | None
) -> pa.ListArray:
    headers = parsed.headers
    begin, end = np.searchsorted(headers.record, [rows.start, rows.stop])
    if begin == end or names is None:
        return _lists(np.zeros(rows.stop - rows.start + 1, np.int32), _structs(None, None))
    counts = np.bincount(headers.record[begin:end] - rows.start, minlength=rows.stop - rows.start)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    # `names` has no headers of bad records, so skip only the headers of good records before `rows`.
    skipped = int(parsed.good[headers.record[:begin]].sum())
    values = slices(found.data, headers.bounds[begin:end], 2, headers.is_null[begin:end])
    return _lists(offsets, _structs(names.slice(skipped, int(end - begin)), values))


def _structs(names: pa.Array | None, values: pa.Array | None) -> pa.StructArray:
    names = pa.array([], pa.string()) if names is None else names
    values = pa.array([], pa.binary()) if values is None else values
    return pa.StructArray.from_arrays([names, values], fields=list(HEADER))


def _lists(offsets: npt.NDArray[np.int32], items: pa.StructArray) -> pa.ListArray:
    type_ = SCHEMA.field("headers").type
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers, children=[items])


def _scalar(batches: Iterable[RecordBatch], decode: Decode) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches that the scalar decoder decodes, about _SCALAR_BYTES at once."""
    records: list[Record] = []
    heads: list[BatchHead] = []
    size = 0
    for batch in batches:
        found = list(decode(batch))
        records += found
        heads += [batch.head] * len(found)
        size += sum(len(record.key or b"") + len(record.value or b"") for record in found)
        if size >= _SCALAR_BYTES:
            yield _rows(records, heads)
            records, heads, size = [], [], 0
    if records:
        yield _rows(records, heads)


def _rows(records: Sequence[Record], heads: Sequence[BatchHead]) -> pa.RecordBatch:
    """Return the records, whose batches have `heads`, as columns."""
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([_wrapped(each) for each in timestamps], pa.int64()),
            pa.array([head.timestamp_type for head in heads], pa.string()),
            pa.array([head.partition_leader_epoch for head in heads], pa.int32()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(
                [[{"key": name, "value": value} for name, value in each] for each in headers],
                SCHEMA.field("headers").type,
            ),
        ],
        schema=SCHEMA,
    )


def _wrapped(number: int) -> int:
    """Return `number` wrapped to 64 bits, as the JVM wraps the sum of base and delta."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
