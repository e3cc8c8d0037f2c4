"""The stream of one index of a remote segment, of bounded length: readers have a whole index in memory."""

import io
from typing import BinaryIO

from tierctl.errors import CorruptInputError
from tierctl.model import IndexType

INDEX_BYTES_MAX = 1 << 28
"""Limit of one index: Kafka's segment.index.bytes is 10 MiB by default."""


class IndexStream(io.RawIOBase):
    """The bytes of `stream`; a read after INDEX_BYTES_MAX bytes that finds more raises CorruptInputError.

    The error names the index by `index_type` and `source`.
    """

    def __init__(self, stream: BinaryIO, index_type: IndexType, source: str) -> None:
        self._stream = stream
        self._index_type = index_type
        self._source = source
        self._left_bytes = INDEX_BYTES_MAX

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Implement `io.RawIOBase.readinto`."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._stream.read(min(len(view), self._left_bytes + 1))
        if len(data) > self._left_bytes:
            raise CorruptInputError(
                f"{self._index_type.value} index",
                expected=f"at most {INDEX_BYTES_MAX} bytes",
                found="more",
                source=self._source,
            )
        view[: len(data)] = data
        self._left_bytes -= len(data)
        return len(data)

    def close(self) -> None:
        """Close the stream, too."""
        self._stream.close()
        super().close()
