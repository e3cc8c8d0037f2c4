"""Growing columns as Python arrays, and their NumPy views."""

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Row numbers."""

_UINT16_COUNT: Final = 1 << 16


def view(column: "array[Any]") -> npt.NDArray[Any]:
    """Return `column` as a NumPy array that shares its memory.

    An array cannot grow while a view of it exists: drop the view first.
    """
    return np.asarray(column)


def select_rows(column: "array[Any]", rows: Rows) -> "array[Any]":
    """Return a copy of `column` that has only the items at `rows`, in that order."""
    return array(column.typecode, view(column)[rows].tobytes())


def stable_order(numbers: npt.NDArray[Any], count: int) -> Rows:
    """Return the stable order of `numbers`, which are from 0 to `count` - 1.

    NumPy sorts numbers of 16 bits by radix, several times as fast as larger ones.
    """
    narrow = numbers.astype(np.uint16) if count <= _UINT16_COUNT else numbers
    return np.argsort(narrow, kind="stable")


def ranges(starts: Rows, lengths: Rows) -> Rows:
    """Return the numbers start, start + 1, ... of each range, concatenated."""
    total = int(lengths.sum())
    firsts = np.cumsum(lengths) - lengths
    return np.repeat(starts - firsts, lengths) + np.arange(total)
