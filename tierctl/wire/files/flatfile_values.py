"""A fast codec of many flat-file entries of type 100, for caches with millions of entries.

`flatfile` reads and writes the same entries one by one; tests compare the two. An entry is uvarint length,
byte 100, byte 0, int64 metadata offset, int64 timestamp in ms, int32 length, value.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import CorruptInputError
from tierctl.model.stored import StoredValue
from tierctl.wire.files import flatfile
from tierctl.wire.primitives import write_uvarint

_TYPE = 100
_FIXED = struct.Struct(">BBqqi")
# The bytes before a value; `high` is there only if the length needs two bytes.
_HEAD = np.dtype(
    [
        ("low", "u1"),
        ("high", "u1"),
        ("type", "u1"),
        ("version", "u1"),
        ("offset", ">i8"),
        ("timestamp", ">i8"),
        ("size", ">i4"),
    ]
)

Int64s = npt.NDArray[np.int64]


class ValueRun(NamedTuple):
    """Consecutive entries in file order; `end` is the byte after the last."""

    offsets: list[int]
    timestamps_ms: list[int]
    values: list[bytes]
    end: int


def encode_values(offsets: Iterable[int], timestamps_ms: Iterable[int], values: Iterable[bytes]) -> bytes:
    """Return the bytes of the entries, to be appended to a file."""
    pack = _FIXED.pack
    lengths: dict[int, bytes] = {}
    parts: list[bytes] = []
    for offset, timestamp_ms, value in zip(offsets, timestamps_ms, values, strict=True):
        size = len(value)
        if size not in lengths:
            lengths[size] = write_uvarint(_FIXED.size + size)
        parts += (lengths[size], pack(_TYPE, flatfile.ENTRY_VERSION, offset, timestamp_ms, size), value)
    return b"".join(parts)


def encode_column(offsets: Int64s, timestamps_ms: Int64s, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the entry of each value, none of which is null, as `encode_values` encodes it."""
    sizes = pc.binary_length(values).to_numpy().astype(np.int64) + _FIXED.size
    if len(sizes) and int(sizes.max()) >> 14:
        rows = zip(offsets.tolist(), timestamps_ms.tolist(), values.to_pylist(), strict=True)
        return pa.array([encode_values([o], [t], [v]) for o, t, v in rows], pa.binary())
    heads = np.zeros(len(sizes), dtype=_HEAD)
    is_long = sizes >> 7 != 0
    heads["low"] = sizes & 0x7F | is_long * 0x80
    heads["high"] = sizes >> 7
    heads["type"], heads["version"] = _TYPE, flatfile.ENTRY_VERSION
    heads["offset"], heads["timestamp"], heads["size"] = offsets, timestamps_ms, sizes - _FIXED.size
    used = np.ones((len(sizes), _HEAD.itemsize), dtype=bool)
    used[:, 1] = is_long
    ends = np.concatenate([[0], np.cumsum(_HEAD.itemsize - 1 + is_long)]).astype(np.int32)
    data = heads.view(np.uint8).reshape(-1, _HEAD.itemsize)[used]
    encoded = pa.BinaryArray.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    return pc.binary_join_element_wise(encoded, values, pa.scalar(b"", pa.binary()))


def decode_values(data: bytes, start: int, count: int) -> ValueRun:
    """Return up to `count` entries from byte `start`; fewer if the file ends.

    Raise CorruptInputError at the first entry that is damaged, cut, or of another type.
    """
    offsets: list[int] = []
    timestamps_ms: list[int] = []
    values: list[bytes] = []
    unpack = _FIXED.unpack_from
    at, size = start, len(data)
    while len(values) < count and at < size:
        length = data[at]
        body = at + 1
        shift = 7
        while length >> shift and body < size and shift < 28:
            length = length & ((1 << shift) - 1) | data[body] << shift
            body += 1
            shift += 7
        end = body + length
        if length < _FIXED.size or end > size:
            raise _wrong(data, at)
        kind, version, offset, timestamp_ms, value_size = unpack(data, body)
        if kind != _TYPE or version or value_size != length - _FIXED.size:
            raise _wrong(data, at)
        offsets.append(offset)
        timestamps_ms.append(timestamp_ms)
        values.append(data[body + _FIXED.size : end])
        at = end
    return ValueRun(offsets, timestamps_ms, values, at)


def _wrong(data: bytes, at: int) -> CorruptInputError:
    """Return the error that `flatfile` finds in the entry at `at`."""
    entry = flatfile.read_entry(data, at)
    if entry.error is not None:
        return entry.error
    found = "none" if entry.record is None else entry.record.type
    return CorruptInputError("entry", expected=StoredValue.type, found=found, at=at)
