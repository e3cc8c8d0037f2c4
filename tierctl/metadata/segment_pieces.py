"""The batches of one segment file, a window of bytes at a time.

The file is read, not mapped: a writer that truncates a torn tail would take mapped pages away.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tierctl.wire.records import BadRange, BatchHead, Piece, TornTail, walk

WINDOW_BYTES = 8 << 20

_HOP = struct.Struct(">qi")
_HEAD_BYTES_MIN = 49


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece of the segment and the window it lies in; the piece's positions are within the window."""

    piece: Piece
    window: bytes
    window_position: int

    @property
    def position(self) -> int:
        """Where the piece begins in the file."""
        return self.window_position + self.piece.position

    @property
    def end(self) -> int:
        """Where the piece ends in the file."""
        piece = self.piece
        size = piece.size_bytes if isinstance(piece, TornTail) else piece.end - piece.position
        return self.position + size


def place_pieces(
    fd: int, position: int, expected_offset: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Placed]:
    """Every batch from `position` to the end of the file, and the bytes that are none.

    Memory is bounded by the window, unless a batch or a damaged stretch is larger. Raises OSError.
    """
    size = os.fstat(fd).st_size
    span = window_bytes
    while position < size:
        window = _read(fd, position, min(span, size - position))
        is_last = position + len(window) >= size
        held_back: Piece | None = None
        following = 0
        for piece in walk(window, expected_offset=expected_offset):
            # What looks cut or damaged at the window's edge may be whole in a larger one.
            if not is_last and not isinstance(piece, BatchHead) and _reaches(piece, len(window)):
                held_back = piece
                break
            yield Placed(piece, window, position)
            expected_offset = _next_offset(piece, expected_offset)
            following = len(window) if isinstance(piece, TornTail) else piece.end
        if held_back is not None and held_back.position == 0:
            span *= 2
            continue
        span = window_bytes
        position += held_back.position if held_back is not None else following or len(window)


def skip_to(fd: int, position: int, offset: int) -> tuple[int, int] | None:
    """Position and base offset of the last batch from `position` on that begins at or below `offset`.

    Follows the lengths without looking at what the batches hold; None when the first batch begins above
    `offset`, or when offsets fall on the way, so that the lengths can't be trusted.
    """
    size = os.fstat(fd).st_size
    at, window, base = position, b"", position
    found: tuple[int, int] | None = None
    while at + _HEAD_BYTES_MIN <= size:
        if at + _HOP.size > base + len(window):
            base, window = at, _read(fd, at, WINDOW_BYTES)
        batch_offset, length = _HOP.unpack_from(window, at - base)
        if length < _HEAD_BYTES_MIN or at + _HOP.size + length > size or batch_offset > offset:
            return found
        if found is not None and batch_offset <= found[1]:
            return None
        found = (at, batch_offset)
        at += _HOP.size + length
    return found


def _read(fd: int, position: int, size_bytes: int) -> bytes:
    parts = []
    while size_bytes and (part := os.pread(fd, size_bytes, position)):
        parts.append(part)
        position += len(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _reaches(piece: TornTail | BadRange, window_end: int) -> bool:
    return isinstance(piece, TornTail) or piece.end >= window_end


def _next_offset(piece: Piece, expected_offset: int) -> int:
    return expected_offset if piece.next_offset is None else piece.next_offset
