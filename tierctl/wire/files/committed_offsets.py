"""The codec of `_rlmm_committed_offsets`, the consumed offset of each metadata partition, in both forms.

KIP-405: a line `<partition> <offset>` for each partition. Kafka 3.1 to 3.7 (CommittedOffsetsFile): a
checkpoint file, which is a line `0` (the version), a line with the number of entries, then the same lines.
The value is the last offset that was consumed, not the next one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """The last consumed offset of each metadata partition, in the order of the file.

    `damage` has the error of each bad line, and of a head that contradicts the lines; their entries, if any,
    are not in `offsets`.
    """

    offsets: Mapping[int, int]
    form: OffsetsForm
    damage: Sequence[CorruptInputError] = ()


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


def read_good_lines(data: bytes) -> CommittedOffsets:
    """Decode the good lines of a file in either form; `damage` has the errors of the others.

    An empty file has no entries, as in Kafka. A checkpoint file must end with a line feed and have the stated
    number of lines, otherwise its last number may be cut. In the KIP's form the last line feed may be
    missing: a cut number is a lower one, and reading again from a lower offset loses nothing. Of two lines
    for one partition the lower offset is kept. Raise UnsupportedFormatError for a version that is not known,
    whose lines may mean something else.
    """
    lines = list(_lines(bytes(data)))
    form, damage = OffsetsForm.KIP, list[CorruptInputError]()
    if _is_checkpoint(lines):
        form, damage = OffsetsForm.CHECKPOINT, list(_wrong_head(lines, len(data)))
        # If a line of the head is missing, an entry is in its place.
        lines = [line for line in lines[:2] if _ENTRY.fullmatch(line.text)] + lines[2:]
    offsets: dict[int, int] = {}
    for line in lines:
        try:
            partition, offset = _entry(line)
        except CorruptInputError as error:
            damage.append(error)
            continue
        if partition in offsets:
            damage.append(line.wrong(f"one entry for partition {partition}"))
        offsets[partition] = min(offset, offsets.get(partition, offset))
    return CommittedOffsets(offsets=offsets, form=form, damage=damage)


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


def _is_checkpoint(lines: list[_Line]) -> bool:
    """Return whether the file has a line of a checkpoint's head, although the first one may be damaged."""
    if not lines or _ENTRY.fullmatch(lines[0].text):
        return False
    return any(_NUMBER.fullmatch(line.text) for line in lines[:2])


def _wrong_head(lines: list[_Line], size: int) -> Iterator[CorruptInputError]:
    """Yield what is wrong with the first two lines of a checkpoint file, and with its end."""
    if not _NUMBER.fullmatch(lines[0].text) or (len(lines) > 1 and _ENTRY.fullmatch(lines[1].text)):
        if lines[0].text != b"%d" % VERSION:
            yield lines[0].wrong("the version")
    elif int(lines[0].text) != VERSION:
        raise UnsupportedFormatError(
            "committed offsets, line 1",
            expected=f"version {VERSION}",
            found=f"version {int(lines[0].text)}",
            at=0,
        )
    if len(lines) < 2:
        yield CorruptInputError(
            "committed offsets, line 2", expected="the number of entries", found="the end", at=size
        )
    elif not _NUMBER.fullmatch(lines[1].text):
        yield lines[1].wrong("the number of entries")
    elif len(lines) - 2 != int(lines[1].text):
        expected = f"{len(lines) - 2} entries, as many as follow"
        yield lines[1].wrong(expected, str(int(lines[1].text)))
    elif not lines[-1].ended:
        yield lines[-1].wrong("a line feed behind the last entry")


def _entry(line: _Line) -> tuple[int, int]:
    """Return the partition and the offset of a line; raise CorruptInputError if it is damaged."""
    match = _ENTRY.fullmatch(line.text)
    if match is None:
        raise line.wrong("<partition> <offset>")
    partition, offset = int(match[1]), int(match[2])
    if partition > _MAX_PARTITION or offset > _MAX_OFFSET:
        raise line.wrong("numbers of 32 and 64 bits")
    return partition, offset
