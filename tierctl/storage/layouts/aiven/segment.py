"""Segments of Aiven's plugin as the broker had them: only the chunks that a range needs are fetched."""

import io
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tierctl.errors import CorruptInputError, RemoteResourceNotFound
from tierctl.model import IndexType
from tierctl.storage.stores.base import ObjectStore, WholeRange
from tierctl.wire.aiven.chunks import SIZE_MAX, Chunk, decompress_chunk
from tierctl.wire.aiven.manifest import Manifest

INDEX_MAX_BYTES = 1 << 28
"""No index is larger; Kafka's own are 10 MiB by default."""


KEPT_MAX_BYTES = 32 << 20


class KeptChunks:
    """Chunks read last: who reads records asks for a chunk's bytes in several ranges. Safe with threads."""

    def __init__(self, max_bytes: int = KEPT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._chunks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, place: tuple[str, int]) -> bytes | None:
        """A chunk by object and position, None when it isn't kept."""
        with self._lock:
            if place in self._chunks:
                self._chunks.move_to_end(place)
            return self._chunks.get(place)

    def put(self, place: tuple[str, int], data: bytes) -> None:
        """Keep a chunk, and let go those that were not asked for longest."""
        with self._lock:
            self._bytes += len(data) - len(self._chunks.pop(place, b""))
            self._chunks[place] = data
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._chunks.popitem(last=False)[1])

    def forget(self, stem: str) -> None:
        """Let go what is kept of a segment whose objects are about to change."""
        with self._lock:
            for place in [place for place in self._chunks if place[0] == stem]:
                self._bytes -= len(self._chunks.pop(place))


class Cipher(Protocol):
    """Decrypts stored chunks and indexes of one segment."""

    def decrypt(self, stored: bytes) -> bytes:
        """Return the plain bytes; raise CorruptInputError if `stored` is damaged."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenSegment:
    """One segment's objects: `stem` is their key without suffix."""

    store: ObjectStore
    stem: str
    manifest: Manifest
    cipher: Cipher | None
    kept: "KeptChunks"

    def log(self, start: int, end: int | None) -> io.BufferedReader:
        """The log's bytes from `start` up to, not including, `end`; one chunk is in memory at a time."""
        size = self.manifest.chunk_index.original_file_size
        last = size if end is None else min(end, size)
        return io.BufferedReader(_Chunked(self, min(start, last), last))

    def index(self, index_type: IndexType) -> bytes:
        """One index, whole; RemoteResourceNotFound when the segment has none of that type."""
        found = self.manifest.indexes[index_type]
        if found is None:
            raise RemoteResourceNotFound(f"{self.stem}.indexes has no {index_type.value} index")
        if found.size > INDEX_MAX_BYTES:
            raise CorruptInputError(
                "index in Aiven's manifest",
                expected=f"at most {INDEX_MAX_BYTES} bytes",
                found=str(found.size),
            )
        if not found.size:
            return b""
        stored = self._stored(".indexes", found.position, found.size)
        return stored if self.cipher is None else self.cipher.decrypt(stored)

    def pieces(self, start: int, end: int) -> Iterator[tuple[Chunk, bytes]]:
        """The chunks of a range as they were in the log; what is not kept comes from one ranged read."""
        chunks = list(self.manifest.chunk_index.chunks(start, end))
        stream: BinaryIO | None = None
        with ExitStack() as opened:
            for chunk in chunks:
                data = self.kept.get((self.stem, chunk.original_position))
                if data is not None:
                    opened.close()
                    stream = None
                else:
                    if stream is None:
                        last = chunks[-1].stored_position + chunks[-1].stored_size
                        stream = self.store.open(f"{self.stem}.log", chunk.stored_position, last)
                        opened.enter_context(stream)
                    stored = self._whole(".log", stream.read(chunk.stored_size), chunk.stored_size)
                    data = self.original(chunk, stored)
                    self.kept.put((self.stem, chunk.original_position), data)
                yield chunk, data

    def original(self, chunk: Chunk, stored: bytes) -> bytes:
        """A chunk as it was in the log; CorruptInputError."""
        try:
            data = stored if self.cipher is None else self.cipher.decrypt(stored)
            if self.manifest.compression:
                return decompress_chunk(data, chunk.original_size)
        except CorruptInputError as e:
            raise e.within(f"{self.stem}.log", base=chunk.stored_position) from None
        if len(data) != chunk.original_size:
            raise CorruptInputError(
                "chunk",
                expected=f"{chunk.original_size} bytes",
                found=str(len(data)),
                at=chunk.stored_position,
                source=f"{self.stem}.log",
            )
        return data

    def _stored(self, suffix: str, position: int, size: int) -> bytes:
        with self.store.open(self.stem + suffix, position, position + size) as stream:
            return self._whole(suffix, stream.read(size), size)

    def _whole(self, suffix: str, found: bytes, size: int) -> bytes:
        if len(found) != size:
            raise CorruptInputError(
                "object", expected=f"{size} more bytes", found=str(len(found)), source=self.stem + suffix
            )
        return found


class _Chunked(WholeRange):
    def __init__(self, segment: AivenSegment, start: int, end: int) -> None:
        super().__init__(f"{segment.stem}.log", end - start)
        self._segment = segment
        self._start = start
        self._end = min(end, SIZE_MAX)
        self._pieces = segment.pieces(start, end)
        self._rest = memoryview(b"")

    def take(self, size_bytes: int) -> bytes:
        if not self._rest:
            chunk, data = next(self._pieces)
            begin = max(self._start - chunk.original_position, 0)
            self._rest = memoryview(data)[begin : self._end - chunk.original_position]
        taken, self._rest = bytes(self._rest[:size_bytes]), self._rest[size_bytes:]
        return taken

    def close(self) -> None:
        # Ends the read of the object that the pieces come from.
        self._pieces = iter(())
        super().close()
