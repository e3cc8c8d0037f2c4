"""Reads the batches of one segment file, one window of bytes at a time."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tierctl.wire.batches.batch_heads import HEAD_SIZE
from tierctl.wire.batches.head_columns import HeadColumns, scan_heads

# The columns of a window take several times its bytes.
WINDOW_BYTES = 2 << 20

_HOP = struct.Struct(">qi")
_LENGTH_MIN = 49

Mark = tuple[int, int]
"""The base offset of a batch and its position in the file."""


class LogBytes(Protocol):
    """A file that may grow while it is read; methods raise the errors of the file system."""

    @property
    def size_bytes(self) -> int:
        """Return the current size of the file."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes from `position` on; fewer only at the end of the file."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes of a file from `position` on, and their batches; positions in `heads` are relative to `data`.

    `expected_offset` is the offset after the last batch before the window.
    """

    data: bytes
    position: int
    heads: HeadColumns
    expected_offset: int

    @property
    def next_offset(self) -> int:
        """Return the offset after the window's last good batch."""
        return int(self.heads.next_offsets[-1]) if len(self.heads) else self.expected_offset

    @property
    def good_end(self) -> int:
        """Return the position in the file after the last good batch, or the window's position without one."""
        heads = self.heads
        return self.position + (int(heads.positions[-1] + heads.sizes_bytes[-1]) if len(heads) else 0)


def scan_windows(
    file: LogBytes, position: int, expected_offset: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Yield the file from the batch at `position` to the end, each byte in exactly one window.

    A window has `window_bytes`, or more if a batch or a damaged range is larger. Raises the errors of `file`.
    """
    size = file.size_bytes
    span = window_bytes
    while position < size:
        data = file.read(position, min(span, size - position))
        is_window = position + len(data) < size
        heads = scan_heads(data, expected_offset=expected_offset, is_window=is_window)
        settled = len(data)
        if data and is_window:
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
    """Return `heads` without an incomplete item at the end of the window, and the position after the rest.

    A batch that the window's end cuts is complete in the next window.
    """
    if heads.torn is not None:
        return replace(heads, torn=None), heads.torn.position
    if heads.bad and heads.bad[-1].end >= size:
        return replace(heads, bad=heads.bad[:-1]), heads.bad[-1].position
    return heads, size


def skip_to(
    file: LogBytes, position: int, offset: int, *, marks: list[Mark] | None = None
) -> tuple[int, int] | None:
    """Return position and offset of the last batch from `position` on whose head has `offset` or a lower one.

    Follows the length fields without checking the batches. Return None if the first batch begins above
    `offset`, or if offsets descend, which shows that a length field is wrong. Append some of the visited
    batches to `marks`.
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


def first_offset_at(file: LogBytes, position: int) -> int | None:
    """Return the base offset of the batch with a correct CRC at `position`; None if there is none.

    In its head, a compressed message of format 0 or 1 has the offset of its last message.
    """
    head = file.read(position, _HOP.size)
    if len(head) < _HOP.size:
        return None
    _, length = _HOP.unpack(head)
    if not _LENGTH_MIN <= length <= file.size_bytes - position - _HOP.size:
        return None
    heads = scan_heads(file.read(position, _HOP.size + length))
    is_good = len(heads) == 1 and not heads.bad and heads.torn is None
    return int(heads.base_offsets[0]) if is_good else None
