"""`.remoteindex` files of KIP-405's early design: the start offsets of a partition's remote segments.

A file is named after the start offset of its first segment. It holds, per segment, the start offset relative
to that of the first as 4 bytes, big-endian, as in an offset index. A new file begins when the file is full or
old, or when an offset does not fit. All files can be rebuilt from a listing of the remote segments.

Source: KIP-405's first revision, "RemoteLogSegmentIndex".
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from tierctl.errors import CorruptInputError

SUFFIX = ".remoteindex"

_NAME = re.compile(r"(?P<base>[0-9]{1,20})\.remoteindex\Z")
_NAME_DIGITS = 14
_ENTRY = struct.Struct(">i")
ENTRY_SIZE = _ENTRY.size
_RELATIVE_MAX = (1 << 31) - 1
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RollPolicy:
    """When a new file begins: after so many entries, or so long after the file was created (None: never)."""

    max_entries: int = 1 << 16
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIndexFile:
    """One file: its base offset, the segments' start offsets (the first is the base), and its creation time.

    The file does not contain the time; the caller supplies it (None if unknown: the file is never too old).
    """

    base_offset: int
    start_offsets: tuple[int, ...]
    created_ms: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the file, with the number of digits in the KIP's example."""
        return f"{self.base_offset:0{_NAME_DIGITS}d}{SUFFIX}"

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return b"".join(_ENTRY.pack(start - self.base_offset) for start in self.start_offsets)

    @classmethod
    def decode(cls, name: str, data: bytes, *, created_ms: int | None = None) -> Self:
        """Decode a file from its name and bytes; preallocated zeros at the end are not entries.

        Raise CorruptInputError for another name, a cut entry, or offsets that do not ascend.
        """
        base = parse_name(name)
        if base is None:
            raise CorruptInputError("remote index", expected=f"a name OFFSET{SUFFIX}", found=repr(name[:200]))
        if len(data) % _ENTRY.size:
            whole = len(data) - len(data) % _ENTRY.size
            raise CorruptInputError(
                "remote index",
                expected=f"a multiple of {_ENTRY.size} bytes",
                found=f"{len(data)} bytes",
                at=whole,
                source=name,
            )
        return cls(base_offset=base, start_offsets=_starts(base, data, name), created_ms=created_ms)

    def takes(self, start_offset: int, *, policy: RollPolicy, now_ms: int | None) -> bool:
        """Return whether the entry of the next segment belongs to this file."""
        age_ms = 0 if now_ms is None or self.created_ms is None else now_ms - self.created_ms
        if policy.max_age_ms is not None and age_ms >= policy.max_age_ms:
            return False
        return _fits(self.base_offset, len(self.start_offsets), start_offset, policy)


def _fits(base_offset: int, entries: int, start_offset: int, policy: RollPolicy) -> bool:
    return entries < policy.max_entries and start_offset - base_offset <= _RELATIVE_MAX


def parse_name(name: str) -> int | None:
    """Return the base offset in a file's name; None if it is not the name of a remote index."""
    match = _NAME.match(name)
    return int(match["base"]) if match and int(match["base"]) <= _OFFSET_MAX else None


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


@dataclass(frozen=True, slots=True)
class RemoteIndex:
    """A partition's remote index: its files by base offset."""

    files: tuple[RemoteIndexFile, ...] = ()

    @classmethod
    def of(cls, files: Iterable[RemoteIndexFile]) -> Self:
        """Return the index of `files`, without empty ones; raise CorruptInputError if they overlap."""
        ordered = sorted((f for f in files if f.start_offsets), key=lambda f: f.base_offset)
        for before, after in pairwise(ordered):
            if before.start_offsets[-1] >= after.base_offset:
                raise CorruptInputError(
                    "remote index",
                    expected=f"offsets below {after.base_offset}",
                    found=str(before.start_offsets[-1]),
                    source=before.name,
                )
        return cls(tuple(ordered))

    @classmethod
    def build(cls, start_offsets: Iterable[int], *, policy: RollPolicy | None = None) -> Self:
        """Build the index from the start offsets of all remote segments, in any order, repeats allowed."""
        policy = policy or RollPolicy()
        runs: list[list[int]] = []
        for start in sorted(set(start_offsets)):
            if not runs or not _fits(runs[-1][0], len(runs[-1]), start, policy):
                runs.append([])
            runs[-1].append(start)
        return cls(tuple(RemoteIndexFile(base_offset=run[0], start_offsets=tuple(run)) for run in runs))

    def append(self, start_offset: int, *, policy: RollPolicy, now_ms: int | None) -> Self:
        """Return the index with one more segment: the last file grows, or a new file begins.

        Raise ValueError if the segment does not begin after all others.
        """
        last = self.files[-1] if self.files else None
        if last is not None and start_offset <= last.start_offsets[-1]:
            raise ValueError(f"{start_offset} is not after {last.start_offsets[-1]}")
        if last is not None and last.takes(start_offset, policy=policy, now_ms=now_ms):
            grown = RemoteIndexFile(
                base_offset=last.base_offset,
                start_offsets=(*last.start_offsets, start_offset),
                created_ms=last.created_ms,
            )
            return type(self)((*self.files[:-1], grown))
        fresh = RemoteIndexFile(base_offset=start_offset, start_offsets=(start_offset,), created_ms=now_ms)
        return type(self)((*self.files, fresh))

    def lookup(self, offset: int) -> int | None:
        """Return the start offset of the last segment that begins at or before `offset`.

        Return None if all segments begin later. Two binary searches, over the files and within one file.
        """
        file = _floor(self.files, offset)
        if file is None:
            return None
        return file.start_offsets[bisect_right(file.start_offsets, offset) - 1]


def _floor(files: Sequence[RemoteIndexFile], offset: int) -> RemoteIndexFile | None:
    slot = bisect_right(files, offset, key=lambda file: file.base_offset) - 1
    return None if slot < 0 else files[slot]
