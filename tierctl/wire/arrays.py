"""Arrow's arrays as NumPy's and back, and the few kernels of Arrow that reading a topic needs.

The methods of Arrow's arrays that call kernels, such as `take`, first import pyarrow.compute, which makes a
function with a signature and a docstring for each of Arrow's 300 kernels: 30 ms of the start of every command
that reads a topic. `pa.array` imports numpy.ma before it takes a NumPy array: 10 ms.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow._compute import call_function

NdArray = npt.NDArray[Any]

Bools = npt.NDArray[np.bool_]

Int64s = npt.NDArray[np.int64]


class _NoPandas:
    """A finder by which an import of pandas fails."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def start_without_pandas() -> None:
    """Hide pandas, whose import takes longer than most runs, from pyarrow, unless it is imported already.

    At its first conversion in each direction pyarrow imports pandas to recognise pandas' objects, and does
    not try again. Such objects exist only once pandas is imported. Conversions to and from pandas still work:
    they import it.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        # The type is given, because pyarrow imports dateutil to infer one.
        pa.array([0], pa.int64()).to_numpy(zero_copy_only=False)
    finally:
        sys.meta_path.remove(_NoPandas)


def take_rows(values: pa.Array | pa.ChunkedArray, rows: Int64s, is_given: Bools | None = None) -> Any:
    """Return the values of `rows`, in their order; null where a row is not given."""
    wanted = array_of(pa.int64(), np.ascontiguousarray(rows, np.int64), is_given)
    return call_function("take", [values, wanted])


def distinct(values: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return the index of each value among the distinct values, -1 for null, and these as they appear."""
    encoded = call_function("dictionary_encode", [values])
    return numbers(encoded.indices, null=-1).astype(np.int64), encoded.dictionary


def array_of(kind: pa.DataType, values: NdArray, is_given: Bools | None = None) -> pa.Array:
    """Return the array of `values`, which are contiguous and have the width of `kind`; some may be null."""
    return pa.Array.from_buffers(kind, len(values), [bitmap(is_given), pa.py_buffer(values)])


def numbers(array: pa.Array, null: int = 0) -> Any:
    """Return the values of an array of signed integers or booleans; nulls become `null`."""
    buffer, end = array.buffers()[1], array.offset + len(array)
    if buffer is None:
        return np.full(len(array), null)
    values = (
        _flags(buffer, end)
        if pa.types.is_boolean(array.type)
        else np.frombuffer(buffer, f"i{array.type.bit_width // 8}", count=end)
    )[array.offset :]
    return np.where(are_given(array), values, values.dtype.type(null)) if array.null_count else values


def are_given(array: pa.Array) -> Bools:
    """Return which values are not null."""
    buffer = array.buffers()[0]
    if not array.null_count or buffer is None:
        return np.full(len(array), fill_value=not array.null_count)
    return _flags(buffer, array.offset + len(array))[array.offset :]


def bitmap(is_given: Bools | None) -> pa.Buffer | None:
    """Return the bitmap of an array's values that are not null; None if all are given."""
    return None if is_given is None or is_given.all() else bits(is_given)


def bits(flags: NdArray) -> pa.Buffer:
    """Return booleans as Arrow holds them: a bit each, the first one lowest."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _flags(buffer: pa.Buffer, count: int) -> Bools:
    packed = np.frombuffer(buffer, np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def copied_slices(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """Return the strings of ByteSlices as an array with a copy of their bytes."""
    bounds = np.stack([starts, starts + np.maximum(lengths, 0)], axis=1, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    between = pa.Array.from_buffers(pa.binary(), max(bounds.size - 1, 0), buffers)
    return take_rows(between, 2 * np.arange(len(starts)), lengths >= 0)


@dataclass(slots=True)
class ByteSlices:
    """Byte strings in one buffer: string i is `data[starts[i]:starts[i] + lengths[i]]`, null for length -1.

    Starts ascend, and the strings do not overlap.
    """

    data: npt.NDArray[np.uint8]
    starts: Int64s
    lengths: Int64s
    _array: pa.BinaryArray | None = None

    @classmethod
    def of(cls, values: pa.BinaryArray | pa.LargeBinaryArray) -> Self:
        """Return the values of an array, whose memory is shared."""
        _, offsets_buffer, data_buffer = values.buffers()
        is_large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
        form = "i8" if is_large else "i4"
        bounds = np.frombuffer(offsets_buffer or bytes(8), form)[
            values.offset : values.offset + len(values) + 1
        ].astype(np.int64)
        data = np.frombuffer(data_buffer or b"", np.uint8)[bounds[0] : bounds[-1]]
        # Kernels are compiled once more for arrays of another kind; most of Arrow's buffers are read-only.
        data.flags.writeable = False
        lengths = np.where(are_given(values), np.diff(bounds), -1)
        return cls(data, bounds[:-1] - bounds[0], lengths, values)

    @property
    def array(self) -> pa.BinaryArray:
        """The strings as an array: that of which they were made, or one with a copy of their bytes."""
        if self._array is None:
            self._array = copied_slices(self.data, self.starts, self.lengths)
            # The buffer, which may be much larger than the strings, is not kept beside their copy.
            copied = self.of(self._array)
            self.data, self.starts = copied.data, copied.starts
        return self._array


def runs(*columns: NdArray) -> Iterator[tuple[int, int]]:
    """Yield where each run of rows with equal values in all columns begins and ends."""
    is_other = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    edges = [0, *(np.flatnonzero(is_other) + 1).tolist(), len(columns[0])]
    yield from (each for each in pairwise(edges) if each[0] < each[1])


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the numbers start, start + 1, ... of each range, concatenated."""
    firsts = np.cumsum(lengths) - lengths
    return np.repeat(starts - firsts, lengths) + np.arange(int(lengths.sum()))
