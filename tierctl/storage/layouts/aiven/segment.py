"""Decode segments of Aiven's plugin; only the chunks that contain the requested range are fetched."""

import io
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    SafetyRefusal,
    UnsupportedFormatError,
)
from tierctl.model import IndexType
from tierctl.storage.stores.base import CompleteRange, ObjectStore
from tierctl.wire.aiven import SIZE_MAX, Chunk, IndexRange, Manifest, decompress_chunk
from tierctl.wire.files.indexes import INDEX_BYTES_MAX
from tierctl.wire.primitives import at_most, limits

if TYPE_CHECKING:
    from tierctl.storage.layouts.aiven.crypto import SegmentCipher


CHUNK_CACHE_BYTES = 32 << 20
ENCRYPTION_BYTES = 28
"""An encrypted chunk or index has an initialization vector of 12 bytes and a tag of 16 bytes."""
_FRAME_BYTES = 1 << 16


class ChunkCache:
    """Caches the decoded chunks read last, as a reader of records reads a chunk in several ranges.

    A chunk's key is its segment's stem and its position in the log. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._chunks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> bytes | None:
        """Return a cached chunk; None if it is not cached."""
        with self._lock:
            if key in self._chunks:
                self._chunks.move_to_end(key)
            return self._chunks.get(key)

    def put(self, key: tuple[str, int], data: bytes) -> None:
        """Cache a chunk, and evict the least recently used chunks."""
        with self._lock:
            self._bytes += len(data) - len(self._chunks.pop(key, b""))
            self._chunks[key] = data
            while self._bytes > CHUNK_CACHE_BYTES:
                self._bytes -= len(self._chunks.popitem(last=False)[1])

    def drop(self, stem: str) -> None:
        """Evict the chunks of a segment before its objects are changed."""
        with self._lock:
            for key in [key for key in self._chunks if key[0] == stem]:
                self._bytes -= len(self._chunks.pop(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenSegment:
    """The objects of one segment; `stem` is their key without suffix."""

    store: ObjectStore
    stem: str
    manifest: Manifest
    cipher: "SegmentCipher | None"
    chunk_cache: ChunkCache

    def require_at_most(self, known_bytes: int) -> None:
        """Raise CorruptInputError if the manifest states more bytes than the segment's metadata."""
        stated = self.manifest.chunk_index.original_file_size
        if stated > known_bytes:
            raise CorruptInputError(
                "originalFileSize in Aiven's manifest",
                expected=f"{known_bytes}, as the segment's metadata say",
                found=str(stated),
                source=f"{self.stem}.rsm-manifest",
                hint="the manifest is damaged, or belongs to another segment: compare it with another copy",
            )

    def log(self, start: int, end: int | None) -> io.BufferedReader:
        """Return the log's bytes from `start` to `end` (exclusive), with one chunk in memory at a time.

        Raise UnsupportedFormatError if a chunk is too large for that.
        """
        size = self.manifest.chunk_index.original_file_size
        largest = min(self.manifest.chunk_index.original_chunk_size, size)
        if largest > limits().chunk_bytes:
            raise UnsupportedFormatError(
                "chunks of a log in Aiven's manifest",
                expected=at_most(limits().chunk_bytes, "bytes"),
                found=str(largest),
                source=f"{self.stem}.rsm-manifest",
                hint="the manifest is damaged or malicious, or chunk.size is far too high for this topic",
            )
        last = size if end is None else min(end, size)
        return io.BufferedReader(_LogStream(self, min(start, last), last))

    def index(self, index_type: IndexType) -> bytes:
        """Return one complete index; raise RemoteResourceNotFound if the segment has none of that type."""
        return self.indexes(index_type)[0]

    def indexes(self, *index_types: IndexType) -> list[bytes]:
        """Return complete indexes, read with the bytes between them by one request; raise as `index` does."""
        found: list[IndexRange] = []
        for index_type in index_types:
            each = self.manifest.indexes[index_type]
            if each is None:
                raise RemoteResourceNotFound(f"{self.stem}.indexes has no {index_type.value} index")
            found.append(each)
        start, end = min(each.position for each in found), max(each.position + each.size for each in found)
        _require_few_bytes(end - start)
        stored = self._stored(".indexes", start, end - start) if end > start else b""
        return [self._plain(stored[each.position - start :][: each.size]) for each in found]

    def _plain(self, index: bytes) -> bytes:
        return index if self.cipher is None or not index else self.cipher.decrypt(index)

    def with_indexes(self, indexes: Mapping[IndexType, bytes]) -> bytes:
        """Return the object of all indexes with `indexes` in their ranges, and its own bytes in the others.

        Raise SafetyRefusal for an index of another size than the manifest states, or an encrypted segment,
        and CorruptInputError if the object lacks bytes of the others.
        """
        key = f"{self.stem}.indexes"
        ranges = {kind: span for kind, span in self.manifest.indexes.items() if span is not None}
        for kind, data in indexes.items():
            self._require_size(key, kind, ranges[kind].size if kind in ranges else 0, len(data))
        size_bytes = max(span.position + span.size for span in ranges.values())
        _require_few_bytes(size_bytes)
        try:
            with self.store.open(key) as stream:
                stored = stream.read(size_bytes)
        except RemoteResourceNotFound:
            stored = b""
        joined = bytearray(stored.ljust(size_bytes, b"\x00"))
        for kind, span in ranges.items():
            end = span.position + span.size
            if kind in indexes:
                joined[span.position : end] = indexes[kind]
            elif span.size and end > len(stored):
                raise CorruptInputError(key, expected=f"{end} bytes", found=f"{len(stored)} bytes")
        return bytes(joined)

    def _require_size(self, key: str, kind: IndexType, said: int, found: int) -> None:
        if self.cipher is not None:
            raise SafetyRefusal(
                f"{key} is encrypted: tierctl reads encrypted segments, but writes none",
                hint="restore the object from another copy",
            )
        if said != found:
            raise SafetyRefusal(
                f"{key}: the {kind.value} index that the log gives has {found} bytes, the manifest says "
                f"{said}: the manifest would have to change, too",
                hint="restore the object from another copy; a broker that restarted while it wrote the "
                "segment left another index than its log gives",
            )

    def chunks(self, start: int, end: int) -> Iterator[tuple[Chunk, bytes]]:
        """Yield the decoded chunks of a range; adjacent chunks that are not cached come from one request."""
        chunks = list(self.manifest.chunk_index.chunks(start, end))
        stream: BinaryIO | None = None
        with ExitStack() as opened:
            for chunk in chunks:
                data = self.chunk_cache.get((self.stem, chunk.original_position))
                if data is not None:
                    opened.close()
                    stream = None
                else:
                    self._require_stored_size(chunk)
                    if stream is None:
                        last = chunks[-1].stored_position + chunks[-1].stored_size
                        stream = self.store.open(f"{self.stem}.log", chunk.stored_position, last)
                        opened.enter_context(stream)
                    stored = self._whole(".log", stream.read(chunk.stored_size), chunk.stored_size)
                    data = self.decoded(chunk, stored)
                    self.chunk_cache.put((self.stem, chunk.original_position), data)
                yield chunk, data

    def _require_stored_size(self, chunk: Chunk) -> None:
        """Raise CorruptInputError if the chunk has more stored bytes than its bytes of the log can become.

        zstd makes bytes longer by a 256th and a few bytes at most (ZSTD_COMPRESSBOUND).
        """
        size = chunk.original_size
        most = size + size // 256 + _FRAME_BYTES if self.manifest.compression else size
        most += ENCRYPTION_BYTES if self.cipher is not None else 0
        if chunk.stored_size > most:
            raise CorruptInputError(
                "stored size of a chunk in Aiven's manifest",
                expected=f"at most {most} bytes for {size} bytes of the log",
                found=str(chunk.stored_size),
                source=f"{self.stem}.rsm-manifest",
                hint="the manifest is damaged or malicious: compare it with another copy",
            )

    def decoded(self, chunk: Chunk, stored: bytes) -> bytes:
        """Return the bytes of a chunk as in the log; raise CorruptInputError if they are damaged."""
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


def _require_few_bytes(size: int) -> None:
    """Raise CorruptInputError if indexes are too large to be read at once."""
    if size > INDEX_BYTES_MAX:
        raise CorruptInputError(
            "index in Aiven's manifest", expected=f"at most {INDEX_BYTES_MAX} bytes", found=str(size)
        )


class _LogStream(CompleteRange):
    def __init__(self, segment: AivenSegment, start: int, end: int) -> None:
        super().__init__(f"{segment.stem}.log", end - start)
        self._segment = segment
        self._start = start
        self._end = min(end, SIZE_MAX)
        self._chunks = segment.chunks(start, end)
        self._chunk = memoryview(b"")

    def take(self, size_bytes: int) -> bytes:
        if not self._chunk:
            chunk, data = next(self._chunks)
            begin = max(self._start - chunk.original_position, 0)
            self._chunk = memoryview(data)[begin : self._end - chunk.original_position]
        taken, self._chunk = bytes(self._chunk[:size_bytes]), self._chunk[size_bytes:]
        return taken

    def close(self) -> None:
        # Deleting the generator closes the stream from which it reads.
        self._chunks = iter(())
        super().close()
