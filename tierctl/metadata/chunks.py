"""Records gathered into columns of bounded size."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tierctl.metadata.base import BadRange, MetadataChunk
from tierctl.wire.records import Record

CHUNK_RECORDS = 1 << 16
CHUNK_BYTES = 1 << 25


class ChunkBuilder:
    """Gathers what lies in [next_offset, end_offset) of one metadata partition; the rest is passed over.

    Offsets arrive in rising order. `next_offset` is the offset after everything handed in so far.
    """

    def __init__(self, partition: int, start_offset: int, end_offset: int) -> None:
        self.next_offset = start_offset
        self.end_offset = end_offset
        self._partition = partition
        self._yielded = start_offset
        self._clear()

    def record(self, record: Record) -> None:
        """One record."""
        if self.next_offset <= record.offset < self.end_offset:
            self._offsets.append(record.offset)
            self._timestamps_ms.append(record.timestamp_ms)
            self._values.append(record.value)
            self._bytes += len(record.value or b"")
            self.next_offset = record.offset + 1

    def bad(self, bad: BadRange) -> None:
        """A range without readable records."""
        if bad.next_offset > self.next_offset and bad.offset < self.end_offset:
            self._bad.append(bad)
            self.advance(bad.next_offset)

    def advance(self, offset: int) -> None:
        """Nothing for a reader lies below `offset`."""
        self.next_offset = max(self.next_offset, min(offset, self.end_offset))

    def full(self) -> Iterator[MetadataChunk]:
        """The chunk, once it is large enough."""
        if len(self._values) >= CHUNK_RECORDS or self._bytes >= CHUNK_BYTES:
            yield self._chunk()

    def rest(self) -> Iterator[MetadataChunk]:
        """The last chunk, unless it would say nothing."""
        if self._values or self._bad or self.next_offset > self._yielded:
            yield self._chunk()

    def _chunk(self) -> MetadataChunk:
        chunk = MetadataChunk(
            self._partition,
            np.array(self._offsets, np.int64),
            np.array(self._timestamps_ms, np.int64),
            pa.array(self._values, pa.binary()),
            self.next_offset,
            tuple(self._bad),
        )
        self._yielded = self.next_offset
        self._clear()
        return chunk

    def _clear(self) -> None:
        self._offsets: list[int] = []
        self._timestamps_ms: list[int] = []
        self._values: list[bytes | None] = []
        self._bad: list[BadRange] = []
        self._bytes = 0
