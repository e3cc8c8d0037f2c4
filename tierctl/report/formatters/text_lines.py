"""Lines of text in one buffer, so that a million lines are written without a Python object for each."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa


class TextLines:
    """Lines of text; iterating yields each line without its newline.

    `text` is the UTF-8 of the lines, each with a newline after it. `offsets` holds, as 32-bit numbers, the
    position of each line in `text`, and the position after the last line.
    """

    __slots__ = ("_offsets", "_text")

    def __init__(self, text: bytes | memoryview, offsets: bytes | memoryview) -> None:
        self._text = memoryview(text)
        self._offsets = np.frombuffer(offsets, np.int32)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Self:
        """Return `lines`, which have no newline at their ends."""
        if isinstance(lines, cls):
            return lines
        # UTF-8 can't encode a surrogate, so it is written as a backslash escape.
        encoded = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines)
        return cls.of_array(pa.array(encoded, pa.binary()))

    @classmethod
    def of_array(cls, lines: pa.StringArray | pa.BinaryArray) -> Self:
        """Return the lines of an Arrow array without nulls; each ends with a newline."""
        _, offsets, text = lines.buffers()
        own = memoryview(offsets or bytes(4))[4 * lines.offset :][: 4 * (len(lines) + 1)]
        return cls(memoryview(text or b""), own)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        for start, end in pairwise(self._offsets.tolist()):
            yield str(self._text[start : end - 1], "utf-8")

    def __reduce__(self) -> tuple[type["TextLines"], tuple[bytes, bytes]]:
        return TextLines, (bytes(self.text), (self._offsets - self._offsets[0]).tobytes())

    @property
    def text(self) -> memoryview:
        """Return the UTF-8 of all lines, each with its newline."""
        return self._text[self._offsets[0] : self._offsets[-1]]

    def first(self, count: int) -> Self:
        """Return the first `count` lines."""
        return type(self)(self._text, self._offsets[: count + 1].data.cast("B"))
