"""The records of many batches as Arrow columns: what `RecordBatch.records` yields, without a loop a field.

Only the walk over the records' length fields is a loop. A batch that anything is odd about is decoded by the
scalar decoder, so there is one notion of a good record, and one text for each thing that is wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batch_columns import Int64s
from tierctl.wire.batch_heads import BatchHead
from tierctl.wire.record_codec import Record, read_varint
from tierctl.wire.records import RecordBatch

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
"""A record as a consumer sees it; null keys, values and header values are null."""

Decode = Callable[[RecordBatch], Iterable[Record]]
"""The scalar decoder of a batch; says itself what it can't decode."""

_PAD = bytes(16)
_VARINT_BYTES_MAX = 9
_HEADERS_MAX = 64
_TIMESTAMP_TYPES = pa.array(["CreateTime", "LogAppendTime"])


ROWS_MAX = 4096
BYTES_MAX = 8 << 20


def record_columns(
    batches: Iterable[RecordBatch], decode: Decode, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """The records of these batches in order, with SCHEMA's columns, `rows_max` at a time at most.

    `decode` is asked for the batches that are not plainly good; what it yields takes their place. In memory
    are `bytes_max` of decompressed records, and one batch more.
    """
    for group in _groups(batches, rows_max, bytes_max):
        for columns in _decoded(group, decode):
            for at in range(0, columns.num_rows, rows_max):
                yield columns.slice(at, rows_max)


class _Opened(NamedTuple):
    """A batch and its records' bytes; None when they can't be decompressed."""

    batch: RecordBatch
    data: bytes | None


def _groups(batches: Iterable[RecordBatch], rows_max: int, bytes_max: int) -> Iterator[list[_Opened]]:
    group: list[_Opened] = []
    rows = size = 0
    for batch in batches:
        opened = _Opened(batch, _uncompressed(batch))
        group.append(opened)
        rows += batch.head.record_count
        size += len(opened.data or b"")
        if rows >= rows_max or size >= bytes_max:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _uncompressed(batch: RecordBatch) -> bytes | None:
    try:
        return batch.uncompressed()
    except (CorruptInputError, LimitExceeded):
        return None


def _decoded(group: Sequence[_Opened], decode: Decode) -> Iterator[pa.RecordBatch]:
    found = _Walk.over(group)
    parsed = _parse(found)
    odd = found.odd | parsed.odd_batches(found)
    names = parsed.header_names(found)
    if names is None:
        odd |= parsed.batches_with_headers(found)
    for is_odd, numbers in groupby(range(len(group)), key=odd.__contains__):
        if is_odd:
            for number in numbers:
                yield from _scalar(group[number].batch, decode)
        else:
            run = list(numbers)
            heads = [each.batch.head for each in group[run[0] : run[-1] + 1]]
            yield from parsed.columns(found, heads, run[0], names)


@dataclass(frozen=True, slots=True)
class _Walk:
    """All batches' records in one buffer: where each begins and ends, and which batch it is of."""

    data: bytes
    starts: Int64s
    ends: Int64s
    batch: Int64s
    last_delta: Int64s
    """Of each batch, the offset delta its records may have at most."""
    odd: frozenset[int]

    @classmethod
    def over(cls, group: Sequence[_Opened]) -> "_Walk":
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
    """Adds where each record's body lies, as its length says; False unless they fill the bytes exactly."""
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
class _Headers:
    """Every header of every record, in order: bounds of names and values, and the record it is of."""

    record: Int64s
    bounds: Int64s
    """Shape (headers, 4): where name and value begin and end."""
    is_null: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """Fields of every record; those of records that are not `good` mean nothing."""

    good: npt.NDArray[np.bool_]
    timestamp_delta: Int64s
    offset_delta: Int64s
    bounds: Int64s
    """Shape (records, 4): where key and value begin and end."""
    null_key: npt.NDArray[np.bool_]
    null_value: npt.NDArray[np.bool_]
    headers: _Headers

    def odd_batches(self, found: _Walk) -> frozenset[int]:
        """Batches with a record that is not good."""
        return frozenset(np.unique(found.batch[~self.good]).tolist())

    def batches_with_headers(self, found: _Walk) -> frozenset[int]:
        """Batches with a record that has any."""
        return frozenset(np.unique(found.batch[self.headers.record]).tolist())

    def header_names(self, found: _Walk) -> pa.StringArray | None:
        """All headers' names; None when one of them is not UTF-8."""
        if not len(self.headers.record):
            return pa.array([], pa.string())
        ok = self.good[self.headers.record]
        names = _slices(found.data, self.headers.bounds[ok], 0)
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:
            return None

    def columns(
        self, found: _Walk, heads: Sequence[BatchHead], first: int, names: pa.StringArray | None
    ) -> Iterator[pa.RecordBatch]:
        """The records of the batches from number `first` on that have these heads, all of them good."""
        begin, end = np.searchsorted(found.batch, [first, first + len(heads)])
        if begin == end:
            return
        rows = slice(int(begin), int(end))
        of_heads = np.array(
            [
                (h.base_offset, h.base_timestamp_ms, h.max_timestamp_ms, h.partition_leader_epoch)
                for h in heads
            ]
        )
        base, created, appended, epochs = of_heads[found.batch[rows] - first].T
        is_appended = np.array([h.is_log_append_time for h in heads])[found.batch[rows] - first]
        types = pa.DictionaryArray.from_arrays(is_appended.astype(np.int8), _TIMESTAMP_TYPES)
        bounds = self.bounds[rows]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(base + self.offset_delta[rows]),
                pa.array(np.where(is_appended, appended, created + self.timestamp_delta[rows])),
                types.cast(pa.string()),
                pa.array(epochs.astype(np.int32)),
                _slices(found.data, bounds, 0, self.null_key[rows]),
                _slices(found.data, bounds, 2, self.null_value[rows]),
                self._header_lists(found, rows, names),
            ],
            schema=SCHEMA,
        )

    def _header_lists(self, found: _Walk, rows: slice, names: pa.StringArray | None) -> pa.ListArray:
        headers = self.headers
        begin, end = np.searchsorted(headers.record, [rows.start, rows.stop])
        if begin == end or names is None:
            return _lists(np.zeros(rows.stop - rows.start + 1, np.int32), _structs(None, None))
        counts = np.bincount(headers.record[begin:end] - rows.start, minlength=rows.stop - rows.start)
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        # Names are of good records only, so those before this run are counted.
        skipped = int(self.good[headers.record[:begin]].sum())
        values = _slices(found.data, headers.bounds[begin:end], 2, headers.is_null[begin:end])
        return _lists(offsets, _structs(names.slice(skipped, int(end - begin)), values))


def _structs(names: pa.Array | None, values: pa.Array | None) -> pa.StructArray:
    names = pa.array([], pa.string()) if names is None else names
    values = pa.array([], pa.binary()) if values is None else values
    return pa.StructArray.from_arrays([names, values], fields=list(HEADER))


def _lists(offsets: npt.NDArray[np.int32], items: pa.StructArray) -> pa.ListArray:
    type_ = SCHEMA.field("headers").type
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers, children=[items])


def _slices(
    data: bytes, bounds: Int64s, column: int, is_null: npt.NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """The bytes between bounds `column` and `column` + 1 of each row.

    All bounds ascend, so the buffer as it is is an array of what lies between them; only what is taken out of
    it is copied.
    """
    between = pa.Array.from_buffers(
        pa.binary(),
        bounds.size - 1,
        [None, pa.py_buffer(np.ascontiguousarray(bounds, np.int32)), pa.py_buffer(data)],
    )
    wanted = np.arange(column, bounds.size, bounds.shape[1])
    return between.take(pa.array(wanted, mask=is_null))


def _parse(found: _Walk) -> _Parsed:
    """Every record's fields at once."""
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
    return _Parsed(
        good=good,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        bounds=np.stack([key_at, key_end, value_at, value_end], axis=1),
        null_key=null_key,
        null_value=null_value,
        headers=headers,
    )


def _rise(offset_delta: Int64s, batch: Int64s) -> npt.NDArray[np.bool_]:
    """Whether offsets rise within their batch."""
    good = offset_delta >= 0
    good[1:] &= (offset_delta[1:] > offset_delta[:-1]) | (batch[1:] != batch[:-1])
    return good


def _parse_headers(
    buf: npt.NDArray[np.uint8], at: Int64s, ends: Int64s, counts: Int64s, good: npt.NDArray[np.bool_]
) -> tuple[_Headers, Int64s, npt.NDArray[np.bool_]]:
    """All first headers, then all second ones, ...; in order at the end."""
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
    # A bad record's bounds need not ascend, and nobody wants them.
    order = order[good[record[order]]]
    return (
        _Headers(
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
    """Begin and end of lengths and their bytes, whether they are null, and whether they are good."""
    sizes, start, good = _varints(buf, at, ends)
    is_null = sizes < 0
    good &= sizes <= ends - start
    stop = np.where(good & ~is_null, start + sizes, start)
    return start, stop, is_null, good


def _varints(
    buf: npt.NDArray[np.uint8], at: Int64s, ends: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Zigzag varints, the positions after them, and whether each is good: whole, and below 2^63."""
    # What is odd already may point anywhere; a good one may run over its record's end, into the padding.
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


def _scalar(batch: RecordBatch, decode: Decode) -> Iterator[pa.RecordBatch]:
    """The batch's records one by one."""
    records = list(decode(batch))
    if not records:
        return
    head = batch.head
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([_wrapped(each) for each in timestamps], pa.int64()),
            pa.array(
                ["LogAppendTime" if head.is_log_append_time else "CreateTime"] * len(records), pa.string()
            ),
            pa.array([head.partition_leader_epoch] * len(records), pa.int32()),
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
    """As the JVM adds base and delta: what passes 64 bits wraps."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
