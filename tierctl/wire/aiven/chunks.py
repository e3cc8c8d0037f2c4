"""Chunk indexes of Aiven's manifests: the position of each chunk of a log in its object.

Source: io.aiven.kafka.tieredstorage.manifest.index (its TransformedChunksSerializer's binary form included).
"""

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from tierctl.errors import CorruptInputError, LimitExceeded, UnsupportedFormatError
from tierctl.wire.batches.batch_heads import CompressionType
from tierctl.wire.batches.compression import decompress
from tierctl.wire.limits import at_most, limits

SIZE_MAX = (1 << 31) - 1
"""Sizes and positions are Java ints."""

_WHAT = "transformed chunk sizes"
_ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of a log; `original_*` are bytes of the broker's log, `stored_*` bytes of the object."""

    original_position: int
    original_size: int
    stored_position: int
    stored_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndex:
    """The chunks of one log, in order; each but the last has `original_chunk_size` bytes of the log.

    `fixed` says that all chunks but the last have the same stored size, which a manifest writes once.
    """

    original_chunk_size: int
    original_file_size: int
    stored_sizes: Sequence[int]
    fixed: bool
    _ends: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expected = -(-self.original_file_size // self.original_chunk_size)
        # The plugin writes one chunk of 0 bytes for an empty file.
        if len(self.stored_sizes) != expected and not (expected == 0 and not any(self.stored_sizes)):
            raise CorruptInputError(
                "chunk index", expected=f"{expected} chunks", found=str(len(self.stored_sizes))
            )
        object.__setattr__(self, "_ends", list(accumulate(self.stored_sizes)))

    @property
    def stored_size(self) -> int:
        """Size of the object in bytes."""
        return self._ends[-1] if self._ends else 0

    def chunks(self, start: int, end: int) -> Iterator[Chunk]:
        """Yield the chunks that contain the bytes of the log from `start` to `end` (exclusive)."""
        end = min(end, self.original_file_size)
        if start < end:
            size = self.original_chunk_size
            for at in range(start // size, -(-end // size)):
                yield Chunk(
                    original_position=at * size,
                    original_size=min(size, self.original_file_size - at * size),
                    stored_position=self._ends[at] - self.stored_sizes[at],
                    stored_size=self.stored_sizes[at],
                )


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Encode sizes: their count, the least size, each difference to it in few bytes, the last size."""
    if not sizes:
        return struct.pack(">i", 0)
    *but_last, last = sizes
    if not but_last:
        return struct.pack(">ii", 1, last)
    least = min(but_last)
    width = max(1, -(-(max(but_last) - least).bit_length() // 8))
    deltas = b"".join((size - least).to_bytes(width, "big") for size in but_last)
    return struct.pack(">iib", len(sizes), least, width) + deltas + struct.pack(">i", last)


def decode_sizes(raw: bytes) -> list[int]:
    """Decode the result of `encode_sizes`; raise CorruptInputError for other bytes."""
    count = _int(raw, 0)
    if count == 0:
        return _whole(raw, 4, [])
    if count == 1:
        return _whole(raw, 8, [_int(raw, 4)])
    least = _int(raw, 4)
    width = raw[8] if len(raw) > 8 else 0
    if not 1 <= width <= 4:
        raise CorruptInputError(_WHAT, expected="1 to 4 bytes a value", found=str(width), at=8)
    end = 9 + (count - 1) * width
    if end + 4 != len(raw):
        raise CorruptInputError(_WHAT, expected=f"{end + 4} bytes", found=f"{len(raw)}", at=9)
    sizes = [least + int.from_bytes(raw[at : at + width], "big") for at in range(9, end, width)]
    return [*sizes, _int(raw, end)]


def _int(raw: bytes, at: int) -> int:
    value = int.from_bytes(raw[at : at + 4], "big", signed=True)
    if at + 4 > len(raw) or value < 0:
        found = "a negative one" if at + 4 <= len(raw) else "the end"
        raise CorruptInputError(_WHAT, expected="a number", found=found, at=at)
    return value


def _whole(raw: bytes, end: int, sizes: list[int]) -> list[int]:
    if len(raw) != end:
        raise CorruptInputError(_WHAT, expected=f"{end} bytes", found=str(len(raw)), at=end)
    return sizes


def sizes_to_text(sizes: Sequence[int]) -> str:
    """Encode sizes as a manifest contains them: base64 of one zstd frame."""
    return base64.b64encode(compress_chunk(encode_sizes(sizes))).decode("ascii")


def sizes_from_text(text: str) -> list[int]:
    """Decode the result of `sizes_to_text`; raise CorruptInputError for other text."""
    try:
        packed = base64.b64decode(text, validate=True)
        return decode_sizes(decompress(CompressionType.ZSTD, packed, max_bytes=13 + 4 * limits().chunks))
    except ValueError as e:
        raise CorruptInputError(_WHAT, expected="base64", found=str(e)) from None
    except LimitExceeded:
        raise too_many_chunks("more") from None


def too_many_chunks(found: str) -> UnsupportedFormatError:
    """Return the error for a log with more chunks than are read."""
    return UnsupportedFormatError(
        "chunks of a log in Aiven's manifest",
        expected=at_most(limits().chunks, "chunks"),
        found=found,
        hint="the manifest is damaged or malicious, or chunk.size is far too low for this topic",
    )


def compress_chunk(data: bytes) -> bytes:
    """Compress a chunk to one zstd frame that contains the original size, which the plugin requires."""
    return bytes(pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(data, asbytes=True))


def decompress_chunk(data: bytes, original_size: int) -> bytes:
    """Return the `original_size` bytes of a chunk; raise CorruptInputError if `data` are damaged."""
    try:
        out = decompress(CompressionType.ZSTD, data, max_bytes=original_size)
    except LimitExceeded:
        out = None
    if out is None or len(out) != original_size:
        found = "more" if out is None else f"{len(out)}"
        raise CorruptInputError("compressed chunk", expected=f"{original_size} bytes", found=found)
    return out
