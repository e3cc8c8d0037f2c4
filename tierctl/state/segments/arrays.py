"""Columns that grow as Python arrays, seen as NumPy arrays."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def view(column: "array[Any]") -> npt.NDArray[Any]:
    """The column as NumPy sees it, sharing its memory; drop it before the column grows."""
    return np.asarray(column)


def taken(column: "array[Any]", rows: Rows) -> "array[Any]":
    """A column of these rows only."""
    return array(column.typecode, view(column)[rows].tobytes())


def ranges(starts: Rows, lengths: Rows) -> Rows:
    """start, start + 1, … of each range, one after the other."""
    total = int(lengths.sum())
    firsts = np.cumsum(lengths) - lengths
    return np.repeat(starts - firsts, lengths) + np.arange(total)
