"""The codec of `_rlmm_committed_offsets`, the consumed offset of each metadata partition, in both forms.

KIP-405: a line `<partition> <offset>` for each partition. Kafka 3.1 to 3.7 (CommittedOffsetsFile): a
checkpoint file, which is a line `0` (the version), a line with the number of entries, then the same lines.
The value is the last offset that was consumed, not the next one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tierctl.errors import CorruptInputError, UnsupportedFormatError

VERSION = 0

_MAX_PARTITION = 2**31 - 1
_MAX_OFFSET = 2**63 - 1
_NUMBER = re.compile(rb"[0-9]{1,19}")
_ENTRY = re.compile(rb"([0-9]{1,19})[ \t]+([0-9]{1,19})")


class OffsetsForm(StrEnum):
    """The two forms of the file."""

    KIP = "kip"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsets:
    """The last consumed offset of each metadata partition, in the order of the file."""

    offsets: Mapping[int, int]
    form: OffsetsForm


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at: int
    text: bytes
    ended: bool
    """True if a line feed follows the line."""

    def wrong(self, expected: str, found: str | None = None) -> CorruptInputError:
        """Return the error for this line, with the text of the line."""
        shown = found or (repr(self.text[:40].decode("ascii", "backslashreplace")))
        return CorruptInputError(
            f"committed offsets, line {self.number}", expected=expected, found=shown, at=self.at
        )


def read(data: bytes) -> CommittedOffsets:
    """Decode a file in either form; an empty file has no entries, as in Kafka.

    Raise CorruptInputError with line and byte. A checkpoint file must end with a line feed and have the
    stated number of lines, otherwise its last number may be cut. In the KIP's form the last line feed may be
    missing: a cut number is a lower one, and reading again from a lower offset loses nothing.
    """
    lines = list(_lines(bytes(data)))
    if not lines or b" " in lines[0].text.strip() or b"\t" in lines[0].text.strip():
        return CommittedOffsets(offsets=_entries(lines), form=OffsetsForm.KIP)
    return CommittedOffsets(offsets=_checkpoint(lines, len(data)), form=OffsetsForm.CHECKPOINT)


def write(offsets: Mapping[int, int], form: OffsetsForm = OffsetsForm.CHECKPOINT) -> bytes:
    """Return the bytes of a file with the entries in the given order."""
    head = f"{VERSION}\n{len(offsets)}\n" if form is OffsetsForm.CHECKPOINT else ""
    return (head + "".join(f"{partition} {offset}\n" for partition, offset in offsets.items())).encode()


def _lines(data: bytes) -> Iterator[_Line]:
    at = 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        ended = at + len(raw) < len(data)
        if raw or ended:
            yield _Line(number, at, raw.removesuffix(b"\r"), ended)
        at += len(raw) + 1


def _checkpoint(lines: list[_Line], size: int) -> dict[int, int]:
    version = _number(lines[0], "version")
    if version != VERSION:
        raise UnsupportedFormatError(
            "committed offsets, line 1", expected=f"version {VERSION}", found=f"version {version}", at=0
        )
    if len(lines) < 2:
        raise CorruptInputError(
            "committed offsets, line 2", expected="the number of entries", found="the end", at=size
        )
    count = _number(lines[1], "number of entries")
    if len(lines) - 2 != count:
        raise lines[1].wrong(f"{len(lines) - 2} entries, as many as follow", str(count))
    if not lines[-1].ended:
        raise lines[-1].wrong("a line feed behind the last entry")
    return _entries(lines[2:])


def _number(line: _Line, what: str) -> int:
    if not _NUMBER.fullmatch(line.text):
        raise line.wrong(f"the {what}")
    return int(line.text)


def _entries(lines: list[_Line]) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for line in lines:
        match = _ENTRY.fullmatch(line.text)
        if match is None:
            raise line.wrong("<partition> <offset>")
        partition, offset = int(match[1]), int(match[2])
        if partition > _MAX_PARTITION or offset > _MAX_OFFSET:
            raise line.wrong("numbers of 32 and 64 bits")
        if partition in offsets:
            raise line.wrong(f"one entry for partition {partition}")
        offsets[partition] = offset
    return offsets
