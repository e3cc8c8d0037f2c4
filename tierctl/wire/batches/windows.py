"""The batches of one segment file, a window of bytes at a time."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tierctl.wire.batches.head_columns import HeadColumns, scan_heads
from tierctl.wire.batches.heads import HEAD_SIZE

WINDOW_BYTES = 8 << 20

_HOP = struct.Struct(">qi")
_LENGTH_MIN = 49

Mark = tuple[int, int]
"""An offset, and where a batch begins that begins at or below it."""


class LogBytes(Protocol):
    """A file that may grow while it is read; raises what its file system does."""

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """So many bytes from `position` on, fewer at the end of the file only."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of the file from `position` on and what is in them; positions in `heads` are within `data`.

    `expected_offset` is the offset after everything before the window.
    """

    data: bytes
    position: int
    heads: HeadColumns
    expected_offset: int

    @property
    def next_offset(self) -> int:
        """The offset after the window's good batches."""
        return int(self.heads.next_offsets[-1]) if len(self.heads) else self.expected_offset

    @property
    def good_end(self) -> int:
        """Where the last good batch ends in the file; the window's position when it has none."""
        heads = self.heads
        return self.position + (int(heads.positions[-1] + heads.sizes_bytes[-1]) if len(heads) else 0)


def scan_windows(
    file: LogBytes, position: int, expected_offset: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Everything from the batch at `position` to the end of the file, each byte in one window only.

    Memory is bounded by the window, unless a batch or a damaged stretch is larger. Raises what `file` does.
    """
    size = file.size_bytes
    span = window_bytes
    while position < size:
        data = file.read(position, min(span, size - position))
        heads = scan_heads(data, expected_offset=expected_offset)
        settled = len(data)
        if data and position + len(data) < size:
            heads, settled = without_edge(heads, len(data))
            if settled == 0:
                span *= 2
                continue
        window = Window(data, position, heads, expected_offset)
        yield window
        if not data:
            return
        expected_offset = window.next_offset
        position += settled
        span = window_bytes


def torn_note(file: LogBytes, source: str, position: int, size_bytes: int) -> str | None:
    """Return a message about an unfinished write at `position` of the file `source`.

    Return None for zeros that a broker allocated ahead.
    """
    if size_bytes >= HEAD_SIZE and not any(file.read(position, HEAD_SIZE)):
        return None
    return (
        f"{source} ends in {size_bytes} bytes, from byte {position} on, of a batch that was not written to "
        "its end: they are left out, as a broker leaves them out when it starts"
    )


def without_edge(heads: HeadColumns, size: int) -> tuple[HeadColumns, int]:
    """What more bytes can't change: bytes cut or damaged at the edge may be whole in the next window."""
    if heads.torn is not None:
        return replace(heads, torn=None), heads.torn.position
    if heads.bad and heads.bad[-1].end >= size:
        return replace(heads, bad=heads.bad[:-1]), heads.bad[-1].position
    return heads, size


def skip_to(
    file: LogBytes, position: int, offset: int, *, marks: list[Mark] | None = None
) -> tuple[int, int] | None:
    """Position and base offset of the last batch from `position` on that begins at or below `offset`.

    Follows the lengths without looking at what the batches hold; None when the first batch begins above
    `offset`, or when offsets fall on the way, so that the lengths can't be trusted. To `marks` go some of
    the batches on the way.
    """
    size = file.size_bytes
    at, data, base = position, b"", position
    found: tuple[int, int] | None = None
    while at + _HOP.size + _LENGTH_MIN <= size:
        is_read = at + _HOP.size > base + len(data)
        if is_read:
            base, data = at, file.read(at, WINDOW_BYTES)
        batch_offset, length = _HOP.unpack_from(data, at - base)
        if length < _LENGTH_MIN or at + _HOP.size + length > size or batch_offset > offset:
            return found
        if found is not None and batch_offset <= found[1]:
            return None
        if is_read and marks is not None:
            marks.append((batch_offset, at))
        found = (at, batch_offset)
        at += _HOP.size + length
    return found


def is_good_batch(file: LogBytes, position: int) -> bool:
    """Whether a batch with the right CRC begins there."""
    head = file.read(position, _HOP.size)
    if len(head) < _HOP.size:
        return False
    _, length = _HOP.unpack(head)
    if not _LENGTH_MIN <= length <= file.size_bytes - position - _HOP.size:
        return False
    heads = scan_heads(file.read(position, _HOP.size + length))
    return len(heads) == 1 and not heads.bad and heads.torn is None
