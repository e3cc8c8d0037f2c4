"""The records of many batches as columns, with the results of `RecordBatch.records`.

Batches whose records are all good are decoded together. Each other batch, and each of an older format, is
decoded alone by `RecordBatch.records`, which words the errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.kernel import int64, plain_kernel, prepare
from tierctl.wire.arrays import ByteSlices, array_of, copied_slices
from tierctl.wire.batches.batch_head import HEAD_SIZE, LOG_APPEND_TIME, MAGIC, BatchHead, Buffer, Record
from tierctl.wire.batches.record_batch import (
    HEADER_COUNT,
    KEY,
    KIND,
    OFFSET,
    PROBLEM_WIDTH,
    RECORD_BYTES_MIN,
    TIMESTAMP,
    VALUE,
    WIDTH,
    RecordBatch,
    batch_at,
    decode_batch,
    header_places,
)
from tierctl.wire.batches.scan import (
    BadRange,
    Bytes,
    HeadColumns,
    Int64s,
    bytes_of,
    fields_of,
)
from tierctl.wire.primitives import METADATA_RECORD_BYTES, at_most, limits

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


@plain_kernel
def _decode_batches(  # noqa: PLR0917
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    fields: npt.NDArray[np.void],
    record_headers_max: int,
    batch_headers_max: int,
    rows: Int64s,
    counts: Int64s,
    problem: Int64s,
) -> None:
    """Write a row for each record; `counts[i]` becomes the records of batch i, -1 if it has a problem.

    `rows` must have one row more than there are records.
    """
    first = 0
    for i in range(len(starts)):
        at, end, records = int64(starts[i]), int64(ends[i]), int64(fields[i]["record_count"])
        counts[i] = -1
        if not 0 <= records <= (end - at) // RECORD_BYTES_MIN:
            continue
        decode_batch(data, at, end, fields, i, record_headers_max, batch_headers_max, rows, first, problem)
        if int64(problem[KIND]) == 0:
            counts[i] = records
            first += records


def _binary(data: Bytes, places: Int64s, column: int) -> pa.BinaryArray:
    """Return the bytes whose positions and lengths are in `column` and the next one; null for length -1."""
    return copied_slices(data, places[:, column], places[:, column + 1])


def _slices(data: Bytes, places: Int64s, column: int) -> ByteSlices:
    starts, lengths = (np.ascontiguousarray(places[:, each]) for each in (column, column + 1))
    return ByteSlices(data, starts, lengths)


class _Run(NamedTuple):
    """Consecutive batches, a row for each of their records, and the number of records of each batch.

    `rows` and `headers` are None for batches that are to be decoded alone.
    """

    batches: range
    counts: Int64s
    rows: Int64s | None = None
    headers: pa.ListArray | None = None


@dataclass(frozen=True, slots=True)
class _Payloads:
    """The uncompressed records of batches: batch i has the head `fields[i]` and `data[starts[i]:ends[i]]`.

    A batch with records but without bytes is to be decoded alone.
    """

    data: Bytes
    starts: Int64s
    ends: Int64s
    fields: npt.NDArray[np.void]

    def decoded(self) -> Iterator[_Run]:
        """Yield all batches in runs, at least one run."""
        count = len(self.starts)
        counts = np.full(count, -1, np.int64)
        if not count:
            yield _Run(range(0), counts)
            return
        sizes = np.minimum((self.ends - self.starts) // RECORD_BYTES_MIN, self.fields["record_count"])
        rows = np.empty((int(np.maximum(sizes, 0).sum()) + 1, WIDTH), np.int64)
        problem = np.zeros(PROBLEM_WIDTH, np.int64)
        headers_max = limits().record_headers, limits().batch_headers
        _decode_batches(self.data, self.starts, self.ends, self.fields, *headers_max, rows, counts, problem)
        is_odd = counts < 0
        row_ends = np.cumsum(np.where(is_odd, 0, counts))
        edges = np.flatnonzero(is_odd[1:] != is_odd[:-1]) + 1
        at = 0
        for first, end in pairwise([0, *edges.tolist(), count]):
            run = _Run(range(first, end), counts[first:end])
            of_run, at = rows[at : row_ends[end - 1]], int(row_ends[end - 1])
            headers = None if is_odd[first] else self._headers(of_run)
            yield run if headers is None else run._replace(rows=of_run, headers=headers)

    def _headers(self, rows: Int64s) -> pa.ListArray | None:
        """Return the headers of records; None if a name is not UTF-8."""
        kind, offsets = SCHEMA.field("headers").type, np.zeros(len(rows) + 1, np.int32)
        if not rows[:, HEADER_COUNT].any():
            return pa.Array.from_buffers(
                kind, len(rows), [None, pa.py_buffer(offsets)], children=[pa.nulls(0, HEADER)]
            )
        np.cumsum(rows[:, HEADER_COUNT], out=offsets[1:])
        places = header_places(self.data, rows)
        names = pa.Array.from_buffers(pa.string(), len(places), _binary(self.data, places, 0).buffers())
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            return None
        items = pa.StructArray.from_arrays([names, _binary(self.data, places, 2)], fields=list(HEADER))
        return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(offsets)], children=[items])


# The values of the metadata topic.

_COLUMN_MAX_BYTES = (1 << 31) - 1


class ValueColumns(NamedTuple):
    """Offsets, timestamps and values of records; `damaged` are batches that could not be decoded."""

    offsets: Int64s
    timestamps_ms: Int64s
    values: ByteSlices
    damaged: tuple[BadRange, ...]


def read_values(buf: Buffer, heads: HeadColumns, start_offset: int, end_offset: int) -> ValueColumns:
    """Return the records with offsets in [start_offset, end_offset), without control records.

    `heads` is the result of a scan of `buf`. A batch that decompresses to more than
    `Limits.metadata_batch_bytes`, or with those before it to more than `Limits.metadata_window_bytes`, is
    damaged. Raise LimitExceeded if the values may exceed 2 GiB.
    """
    wanted = (heads.next_offsets > start_offset) & (heads.base_offsets < end_offset) & ~heads.is_control
    batches = _WindowBatches(buf, heads.chosen(wanted))
    payloads = batches.payloads()
    runs = list(payloads.decoded())
    columns = [batches.columns(payloads, run, start_offset, end_offset) for run in runs]
    offsets, timestamps, values = zip(*columns, strict=True)
    joined = ByteSlices.of(pa.concat_arrays([each.array for each in values])) if values[1:] else values[0]
    return ValueColumns(np.concatenate(offsets), np.concatenate(timestamps), joined, tuple(batches.damaged))


class _WindowBatches:
    """The batches with `heads` in `buf`; `damaged` are those that could not be decompressed or decoded."""

    def __init__(self, buf: Buffer, heads: HeadColumns) -> None:
        self._buf = buf
        self._heads = heads
        self._is_compressed = heads.is_compressed
        self._opened: dict[int, RecordBatch | Sequence[Record]] = {}
        self.damaged: list[BadRange] = []
        self._open()

    def _open(self) -> None:
        """Decompress the compressed batches, and decode compressed messages."""
        left = limits().metadata_window_bytes
        for row in np.flatnonzero(self._is_compressed).tolist():
            batch = batch_at(self._buf, self._heads.head(row))
            cost = METADATA_RECORD_BYTES * batch.head.record_count
            allowed = max(min(limits().metadata_batch_bytes, left - cost), 0)
            self._opened[row] = ()
            try:
                if batch.head.magic < MAGIC:
                    messages = self._opened[row] = list(batch.records(max_bytes=allowed))
                    left -= cost + sum(len(message.value or b"") for message in messages)
                else:
                    opened = self._opened[row] = batch.opened(max_bytes=allowed)
                    left -= cost + len(opened.uncompressed())
            except CorruptInputError as error:
                self._report(batch.head, error)
            except LimitExceeded as error:
                expected = at_most(allowed, "bytes of records")
                wrong = CorruptInputError("record batch", expected=expected, found=error.message)
                self._report(batch.head, wrong)

    def _report(self, head: BatchHead, error: CorruptInputError) -> None:
        self.damaged.append(
            BadRange(
                position=head.position,
                end=head.end,
                first_offset=head.base_offset,
                next_offset=head.next_offset,
                error=error,
            )
        )

    def columns(
        self, payloads: _Payloads, run: _Run, start_offset: int, end_offset: int
    ) -> tuple[Int64s, Int64s, ByteSlices]:
        """Return offsets, timestamps and values of a run's records within [start_offset, end_offset)."""
        if run.rows is None:
            records = (each for row in run.batches for each in self._records(row))
            inside = [each for each in records if start_offset <= each.offset < end_offset]
            return (
                np.array([each.offset for each in inside], np.int64),
                np.array([each.timestamp_ms for each in inside], np.int64),
                ByteSlices.of(pa.array([each.value for each in inside], pa.binary())),
            )
        is_inside = (run.rows[:, OFFSET] >= start_offset) & (run.rows[:, OFFSET] < end_offset)
        found = run.rows if is_inside.all() else run.rows[is_inside]
        return found[:, OFFSET], found[:, TIMESTAMP], _slices(payloads.data, found, VALUE)

    def payloads(self) -> _Payloads:
        """Return the records of the batches: in a copy of the window if some were decompressed.

        There, decompressed records stand before their batch.
        """
        heads, is_inline = self._heads, ~self._is_compressed & (self._heads.fields["magic"] >= MAGIC)
        inserted = np.zeros(len(heads), np.int64)
        parts, cut = [], 0
        for row, opened in self._opened.items():
            data = opened.uncompressed() if isinstance(opened, RecordBatch) else b""
            position = int(heads.positions[row])
            parts += [self._buf[cut:position], data]
            inserted[row], cut = len(data), position
        whole = b"".join([*parts, self._buf[cut:]]) if parts else self._buf
        if len(whole) > _COLUMN_MAX_BYTES:
            raise LimitExceeded(
                "the values of one log segment pass 2 GiB", hint="read fewer offsets at a time"
            )
        starts = heads.positions + np.cumsum(inserted) + np.where(is_inline, HEAD_SIZE, -inserted)
        sizes = np.where(is_inline, heads.sizes_bytes - HEAD_SIZE, inserted)
        return _Payloads(bytes_of(whole), starts, starts + sizes, heads.fields)

    def _records(self, row: int) -> Sequence[Record]:
        """Return the records of a batch that is decoded alone; none of a damaged batch."""
        batch = self._opened.pop(row, None)
        if batch is None:
            batch = batch_at(self._buf, self._heads.head(row))
        if not isinstance(batch, RecordBatch):
            return batch
        try:
            return list(batch.records())
        except CorruptInputError as error:
            self._report(batch.head, error)
            return ()


# The records of user topics.

Decode = Callable[[RecordBatch], Iterable[Record]]
"""Decodes a batch alone; it reports or raises errors itself."""

_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
ROWS_MAX = 16384
BYTES_MAX = 8 << 20
_ALONE_BYTES = 1 << 20
_RECORDS_OF_AN_ITEM = 5
"""The records that interpreted loops decode in the time of an item that is announced to `prepare`."""


def record_columns(
    batches: Iterable[RecordBatch], decode: Decode, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `batches` in order, as columns of SCHEMA with at most `rows_max` rows.

    `decode` decodes the batches that are decoded alone. Memory holds at most `bytes_max`
    of decompressed records plus one batch.
    """
    for group in _groups(batches, rows_max, bytes_max):
        for columns in _decoded(group, decode):
            for at in range(0, columns.num_rows, rows_max):
                yield columns.slice(at, rows_max)


def _groups(batches: Iterable[RecordBatch], rows_max: int, bytes_max: int) -> Iterator[list[RecordBatch]]:
    """Yield the batches, decompressed where they can be."""
    group: list[RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(_opened(batch))
        rows += batch.head.record_count
        size += len(group[-1].plain or batch.payload)
        if rows >= rows_max or size >= bytes_max:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _opened(batch: RecordBatch) -> RecordBatch:
    if batch.head.magic < MAGIC:
        return batch
    try:
        return batch.opened()
    except (CorruptInputError, LimitExceeded):
        return batch


def _decoded(group: Sequence[RecordBatch], decode: Decode) -> Iterator[pa.RecordBatch]:
    parts = [batch.plain or b"" for batch in group]
    sizes = np.array([len(part) for part in parts], np.int64)
    ends = np.cumsum(sizes)
    fields = fields_of([batch.head for batch in group])
    payloads = _Payloads(bytes_of(b"".join(parts)), ends - sizes, ends, fields)
    for run in payloads.decoded():
        if run.rows is None:
            yield from _alone((group[number] for number in run.batches), decode)
        elif len(run.rows):
            yield _columns(payloads, run, run.rows)
    prepare(sum(batch.head.record_count for batch in group) // _RECORDS_OF_AN_ITEM)


def _columns(payloads: _Payloads, run: _Run, rows: Int64s) -> pa.RecordBatch:
    """Return the records of a run as columns."""
    fields = payloads.fields[run.batches.start : run.batches.stop]
    is_appended = (fields["attributes"] & LOG_APPEND_TIME) != 0
    # Not when the module is imported: the first conversion imports pandas (`start_without_pandas`).
    names_of_types = pa.array(_TIMESTAMP_TYPES, pa.string())
    types = pa.DictionaryArray.from_arrays(np.repeat(is_appended.astype(np.int8), run.counts), names_of_types)
    return pa.RecordBatch.from_arrays(
        [
            array_of(pa.int64(), np.ascontiguousarray(rows[:, OFFSET])),
            array_of(pa.int64(), np.ascontiguousarray(rows[:, TIMESTAMP])),
            types.cast(pa.string()),
            array_of(pa.int32(), np.repeat(fields["partition_leader_epoch"], run.counts)),
            _binary(payloads.data, rows, KEY),
            _binary(payloads.data, rows, VALUE),
            run.headers,
        ],
        schema=SCHEMA,
    )


def _alone(batches: Iterable[RecordBatch], decode: Decode) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches that are decoded alone, about _ALONE_BYTES at once."""
    records: list[Record] = []
    heads: list[BatchHead] = []
    size = 0
    for batch in batches:
        found = list(decode(batch))
        records += found
        heads += [batch.head] * len(found)
        size += sum(len(record.key or b"") + len(record.value or b"") for record in found)
        if size >= _ALONE_BYTES:
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
            pa.array(timestamps, pa.int64()),
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
