"""Decodes the records of many batches to Arrow columns, with the results of `RecordBatch.records`.

Only the walk over the records' length fields is a loop. A batch that fails a check here is decoded by the
scalar decoder, so one decoder decides which records are good and words the errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import MAGIC, BatchHead, Record, read_varint
from tierctl.wire.batches.batch_heads import Int64s
from tierctl.wire.batches.record_batch import RecordBatch

# Parses the fields of many records at once; `records` parses the same fields record by record.
#
# Bad bytes raise no error here: the result marks the records and batches that fail a check.

_PAD = bytes(16)
_VARINT_BYTES_MAX = 9
_HEADERS_MAX = 64


class DecompressedBatch(NamedTuple):
    """A batch and the bytes of its records; None if they cannot be decompressed."""

    batch: RecordBatch
    data: bytes | None


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """The positions of the records of many batches in one buffer.

    Record i is `data[starts[i]:ends[i]]` and belongs to batch number `batch[i]`. `last_delta` has, per batch,
    the highest offset delta that its records may have. `odd` are the numbers of batches that cannot be
    parsed; their records are left out.
    """

    data: bytes
    starts: Int64s
    ends: Int64s
    batch: Int64s
    last_delta: Int64s
    odd: frozenset[int]

    @classmethod
    def over(cls, group: Sequence[DecompressedBatch]) -> Self:
        payloads: list[bytes] = []
        starts: list[int] = []
        ends: list[int] = []
        counts = np.zeros(len(group), np.int64)
        odd = []
        at = 0
        for number, (batch, data) in enumerate(group):
            before = len(starts)
            if data is not None and _walk(data, batch.head.record_count, at, starts, ends):
                counts[number] = len(starts) - before
                payloads.append(data)
                at += len(data)
            else:
                odd.append(number)
                del starts[before:], ends[before:]
        return cls(
            data=b"".join([*payloads, _PAD]),
            starts=np.array(starts, np.int64),
            ends=np.array(ends, np.int64),
            batch=np.repeat(np.arange(len(group)), counts),
            last_delta=np.array([each.batch.head.last_offset_delta for each in group], np.int64),
            odd=frozenset(odd),
        )


def _walk(data: bytes, count: int, base: int, starts: list[int], ends: list[int]) -> bool:
    """Append the positions of `count` records; return whether the records fill `data` exactly."""
    at, size = 0, len(data)
    try:
        for _ in range(count):
            low = data[at]
            if low < 0x80:
                length = (low >> 1) ^ -(low & 1)
                at += 1
            elif data[at + 1] < 0x80:
                length = ((low & 0x7F | data[at + 1] << 7) >> 1) ^ -(low & 1)
                at += 2
            else:
                length, at = read_varint(data, at)
            starts.append(base + at)
            at += length
            ends.append(base + at)
            if length < 0:
                return False
    except (IndexError, CorruptInputError):
        return False
    return at == size


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """The headers of all records, in order; `record[i]` is the index of header i's record.

    `bounds` has one row per header: begin and end of the name, begin and end of the value.
    """

    record: Int64s
    bounds: Int64s
    is_null: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRecords:
    """The fields of all records; the fields of a record that is not `good` are undefined.

    `bounds` has one row per record: begin and end of the key, begin and end of the value.
    """

    good: npt.NDArray[np.bool_]
    timestamp_delta: Int64s
    offset_delta: Int64s
    bounds: Int64s
    null_key: npt.NDArray[np.bool_]
    null_value: npt.NDArray[np.bool_]
    headers: Headers

    def odd_batches(self, found: RecordSpans) -> frozenset[int]:
        """Return the numbers of batches with a record that is not good."""
        return frozenset(np.unique(found.batch[~self.good]).tolist())

    def batches_with_headers(self, found: RecordSpans) -> frozenset[int]:
        """Return the numbers of batches with a record that has headers."""
        return frozenset(np.unique(found.batch[self.headers.record]).tolist())

    def header_names(self, found: RecordSpans) -> pa.StringArray | None:
        """Return the names of the headers of good records; None if a name is not UTF-8."""
        if not len(self.headers.record):
            return pa.array([], pa.string())
        ok = self.good[self.headers.record]
        names = slices(found.data, self.headers.bounds[ok], 0)
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:
            return None


def slices(
    data: bytes, bounds: Int64s, column: int, is_null: npt.NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """Return the bytes between bounds `column` and `column` + 1 of each row; null where `is_null`."""
    if not len(bounds):
        return pa.array([], pa.binary())
    between = pa.Array.from_buffers(
        pa.binary(),
        bounds.size - 1,
        [None, pa.py_buffer(np.ascontiguousarray(bounds, np.int32)), pa.py_buffer(data)],
    )
    wanted = np.arange(column, bounds.size, bounds.shape[1])
    return between.take(pa.array(wanted, mask=is_null))


def parse(found: RecordSpans) -> ParsedRecords:
    """Parse the fields of all records in `found`."""
    buf = np.frombuffer(found.data, np.uint8)
    ends = found.ends
    timestamp_delta, at, good = _varints(buf, found.starts + 1, ends)
    offset_delta, at, ok = _varints(buf, at, ends)
    good &= ok
    key_at, key_end, null_key, ok = _blobs(buf, at, ends)
    good &= ok
    value_at, value_end, null_value, ok = _blobs(buf, key_end, ends)
    good &= ok
    counts, at, ok = _varints(buf, value_end, ends)
    good &= ok & (counts >= 0) & (counts <= np.minimum((ends - at) // 2, _HEADERS_MAX))
    headers, at, good = _parse_headers(buf, at, ends, np.where(good, counts, 0), good)
    good &= at == ends
    good &= _rise(offset_delta, found.batch) & (offset_delta <= found.last_delta[found.batch])
    return ParsedRecords(
        good=good,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        bounds=np.stack([key_at, key_end, value_at, value_end], axis=1),
        null_key=null_key,
        null_value=null_value,
        headers=headers,
    )


def _rise(offset_delta: Int64s, batch: Int64s) -> npt.NDArray[np.bool_]:
    """Return which offsets are above that of the record before in the same batch."""
    good = offset_delta >= 0
    good[1:] &= (offset_delta[1:] > offset_delta[:-1]) | (batch[1:] != batch[:-1])
    return good


def _parse_headers(
    buf: npt.NDArray[np.uint8], at: Int64s, ends: Int64s, counts: Int64s, good: npt.NDArray[np.bool_]
) -> tuple[Headers, Int64s, npt.NDArray[np.bool_]]:
    """Parse the first headers of all records, then the second headers, and so on; return them in order."""
    records, bounds, nulls = [], [], []
    at, good = at.copy(), good.copy()
    for rank in range(int(counts.max(initial=0))):
        rows = np.flatnonzero((counts > rank) & good)
        name_at, name_end, null_name, ok = _blobs(buf, at[rows], ends[rows])
        value_at, value_end, null_value, also = _blobs(buf, name_end, ends[rows])
        good[rows] = ok & also & ~null_name
        at[rows] = value_end
        records.append(rows)
        bounds.append(np.stack([name_at, name_end, value_at, value_end], axis=1))
        nulls.append(null_value)
    record = np.concatenate(records) if records else np.empty(0, np.int64)
    order = np.argsort(record, kind="stable")
    # Remove the headers of bad records: their bounds are not used and need not ascend.
    order = order[good[record[order]]]
    return (
        Headers(
            record=record[order],
            bounds=np.concatenate(bounds)[order] if bounds else np.empty((0, 4), np.int64),
            is_null=np.concatenate(nulls)[order] if nulls else np.empty(0, np.bool_),
        ),
        at,
        good,
    )


def _blobs(
    buf: npt.NDArray[np.uint8], at: Int64s, ends: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Parse lengths and the bytes after them: return begins, ends, which are null, and which are good."""
    sizes, start, good = _varints(buf, at, ends)
    is_null = sizes < 0
    good &= sizes <= ends - start
    stop = np.where(good & ~is_null, start + sizes, start)
    return start, stop, is_null, good


def _varints(
    buf: npt.NDArray[np.uint8], at: Int64s, ends: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Parse zigzag varints; return values, positions after them, and which are complete and < 2^63."""
    # Positions of bad records may be anywhere; a good varint may extend into the padding.
    following = np.clip(at, 0, len(buf) - len(_PAD))
    byte = buf[following]
    raw = (byte & 0x7F).astype(np.int64)
    following += 1
    more = np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        if not len(more):
            break
        byte = buf[following[more]]
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        following[more] += 1
        more = more[(byte & 0x80) != 0]
    good = following <= ends
    good[more] = False
    return (raw >> 1) ^ -(raw & 1), following, good


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
