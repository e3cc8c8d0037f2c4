"""The codec of `.remoteindex` files."""

import re
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from tierctl.errors import CorruptInputError
from tierctl.files import FileBytes

# `.remoteindex` files of KIP-405's early design: the start offsets of a partition's remote segments.
#
# A file is named after the start offset of its first segment. It holds, per segment, the start offset
# relative to that of the first as 4 bytes, big-endian, as in an offset index. A new file begins when the
# file is full or old, or when an offset does not fit.
#
# Source: KIP-405's first revision, "RemoteLogSegmentIndex".

SUFFIX = ".remoteindex"

_NAME = re.compile(r"(?P<base>[0-9]{1,20})\.remoteindex\Z")
_ENTRY = struct.Struct(">i")
ENTRY_SIZE = _ENTRY.size
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIndexFile:
    """One file: its base offset, and the segments' start offsets (the first is the base)."""

    base_offset: int
    start_offsets: tuple[int, ...]

    @classmethod
    def decode(cls, name: str, data: bytes) -> Self:
        """Decode a file from its name and bytes; preallocated zeros at the end are not entries.

        Raise CorruptInputError for another name, a cut entry, or offsets that do not ascend.
        """
        base = base_offset_of(name)
        if len(data) % _ENTRY.size:
            whole = len(data) - len(data) % _ENTRY.size
            raise CorruptInputError(
                "remote index",
                expected=f"a multiple of {_ENTRY.size} bytes",
                found=f"{len(data)} bytes",
                at=whole,
                source=name,
            )
        return cls(base_offset=base, start_offsets=_starts(base, data, name))


def parse_name(name: str) -> int | None:
    """Return the base offset in a file's name; None if it is not the name of a remote index."""
    match = _NAME.match(name)
    return int(match["base"]) if match and int(match["base"]) <= _OFFSET_MAX else None


def base_offset_of(name: str) -> int:
    """Return the base offset in a file's name; raise CorruptInputError if there is none."""
    base = parse_name(name)
    if base is None:
        raise CorruptInputError("remote index", expected=f"a name OFFSET{SUFFIX}", found=repr(name[:200]))
    return base


def _starts(base: int, data: bytes, name: str) -> tuple[int, ...]:
    """Return the start offsets up to the preallocated zeros; the first entry is always 0."""
    used = max(-(-len(data.rstrip(b"\x00")) // _ENTRY.size), 1 if data else 0)
    relative = [value for (value,) in _ENTRY.iter_unpack(data[: used * _ENTRY.size])]
    for number, (before, after) in enumerate(pairwise([-1, *relative])):
        if after <= before or (number == 0 and after != 0) or after > _OFFSET_MAX - base:
            raise CorruptInputError(
                "remote index",
                expected="0" if number == 0 else f"an offset above {before}",
                found=str(after),
                at=number * _ENTRY.size,
                source=name,
            )
    return tuple(base + value for value in relative)


def find_entry(file: FileBytes, base_offset: int, offset: int) -> tuple[int, int] | None:
    """Return the position and the start offset of the last segment that begins at or before `offset`.

    Return None if all segments begin later. It is a binary search, as in Kafka's OffsetIndex: only the
    entries that it compares are read. Raise OSError.
    """
    first, end = 0, file.size_bytes // ENTRY_SIZE
    found: tuple[int, int] | None = None
    while first < end:
        number = (first + end) // 2
        entry = entry_at(file, base_offset, number * ENTRY_SIZE)
        if entry is None or entry[1] > offset:
            end = number
        else:
            first, found = number + 1, entry
    return found


def entry_at(file: FileBytes, base_offset: int, position: int) -> tuple[int, int] | None:
    """Return `position` and the start offset of the entry there; None if none begins there. Raise OSError."""
    data = file.read(position, ENTRY_SIZE)
    if position % ENTRY_SIZE or len(data) < ENTRY_SIZE:
        return None
    (relative,) = _ENTRY.unpack(data)
    # Zeros after the first entry were allocated ahead.
    return (position, base_offset + relative) if relative or position == 0 else None
