"""Windows have the same content as NumPy's, and writes change the array."""

import numpy as np
import pytest
from tierctl.wire.arrays import windows


@pytest.mark.parametrize("kind", ["u1", "i8", "V16"])
@pytest.mark.parametrize("width", [1, 3, 7])
def test_windows_are_those_of_numpy(kind: str, width: int) -> None:
    items = np.arange(7 * np.dtype(kind).itemsize, dtype="u1").view(kind)
    expected = np.lib.stride_tricks.sliding_window_view(items, width)
    assert windows(items, width).tolist() == expected.tolist()


def test_windows_write_through() -> None:
    items = np.zeros(5, "u1")
    windows(items, 2)[[0, 3]] = [[1, 2], [3, 4]]
    assert items.tolist() == [1, 2, 0, 3, 4]


def test_windows_of_bytes_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        windows(np.frombuffer(b"abc", "u1"), 2)[0] = 0
