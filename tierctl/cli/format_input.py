"""Where `tierctl format` gets records from: the metadata topic, segment files, hex or framed values."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.report.formatters.base import Records
from tierctl.report.formatters.chunks import from_chunk

RecordRound = Sequence[Iterator[Records]]
"""What there is to read now: a stream of records for each partition, file or pipe."""

_BYTES_A_TIME = 1 << 18
_LENGTH = struct.Struct(">i")
_NULL = -1
_OFFSET_END = (1 << 63) - 1
# Kafka's message.max.bytes is 1 MiB by default; a length beyond this is not one.
_VALUE_BYTES_MAX = 64 << 20


class _Value(NamedTuple):
    value: bytes | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecords:
    """The records of some partitions of the metadata topic (`partitions` empty: of all).

    `start_offset` and `end_offset` (exclusive, None: no bound) bound the metadata offsets.
    """

    topic: MetadataTopic
    partitions: Collection[int] = ()
    start_offset: int = 0
    end_offset: int | None = None

    def bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first offset, and the offset after the last, of each partition of the topic."""
        return self.topic.beginning_offsets(), self.topic.end_offsets()

    def round(self, positions: dict[int, int]) -> list[Iterator[Records]]:
        """Return a stream for each partition; it starts at `positions` and advances them as it is read."""
        return [self._stream(n, *span, positions) for n, span in self.spans(positions).items()]

    def spans(self, positions: Collection[int] = ()) -> dict[int, tuple[int, int]]:
        """Return the range [start, end) of offsets of each partition.

        The first offsets of the topic are not looked up if `positions` has all partitions.
        """
        ends = self.topic.end_offsets()
        begins = {} if ends.keys() <= set(positions) else self.topic.beginning_offsets()
        return {
            n: (
                max(self.start_offset, begins.get(n, 0)),
                ends[n] if self.end_offset is None else min(ends[n], self.end_offset),
            )
            for n in sorted(ends)
            if not self.partitions or n in self.partitions
        }

    def _stream(self, number: int, start: int, end: int, positions: dict[int, int]) -> Iterator[Records]:
        for chunk in self.topic.read(number, positions.get(number, start), end):
            positions[number] = chunk.next_offset
            yield from_chunk(chunk)


def from_segment(path: Path, on_torn: Callable[[str], None]) -> Iterator[Records]:
    """Yield the records of one segment file; `on_torn` receives a message if it ends in an unfinished write.

    The name of the file's folder tells the metadata partition; it is 0 in any other folder.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="a folder is read with --metadata")
    with path.open("rb"):
        # A file that cannot be opened raises OSError, as the files of --input do.
        location = TopicLocation(uri=path.absolute().as_uri())
    with closing(open_topic(location, on_torn=on_torn)) as topic:
        for number in topic.end_offsets():
            # Whatever offsets a damaged file has, all its records are printed.
            for chunk in topic.read(number, 0, _OFFSET_END):
                yield from_chunk(chunk)


def from_hex(stream: BufferedIOBase) -> Iterator[Records]:
    """One value a line, as hex; offsets count the lines that are not empty."""
    return _numbered(_hex_pages(stream))


def _hex_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = b""
    for data in _arriving(stream):
        *lines, rest = (rest + data).split(b"\n")
        yield [_from_hex_line(line) for line in lines if line.strip()]
    yield [_from_hex_line(rest)] if rest.strip() else []


def _from_hex_line(line: bytes) -> _Value:
    try:
        return _Value(bytes.fromhex(line.decode("ascii").strip()))
    except ValueError:
        return _Value(None, f"not a line of hex: {line[:80].strip()!r}")


def from_framed(stream: BufferedIOBase) -> Iterator[Records]:
    """Values behind a 4-byte big-endian length, as `kcat -f '%R%s'` writes them; -1 is a tombstone."""
    return _numbered(_frame_pages(stream))


def _frame_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = bytearray()
    for data in _arriving(stream):
        rest += data
        page: list[_Value] = []
        at = 0
        while (found := _frame(rest, at)) is not None:
            value, at = found
            page.append(value)
            if value.error is not None:
                # Where the next frame begins can't be known, so this is the last line.
                yield page
                return
        del rest[:at]
        yield page
    if rest:
        yield [_torn_frame(bytes(rest))]


def _frame(buf: bytearray, at: int) -> tuple[_Value, int] | None:
    """The frame at `at` and where the next begins; None when not all of it is there."""
    start = at + _LENGTH.size
    if len(buf) < start:
        return None
    (length,) = _LENGTH.unpack_from(buf, at)
    if length == _NULL:
        return _Value(None), start
    if not 0 <= length <= _VALUE_BYTES_MAX:
        return _Value(None, f"a frame of {length} bytes: expected at most {_VALUE_BYTES_MAX}"), start
    end = start + length
    return (_Value(bytes(buf[start:end])), end) if end <= len(buf) else None


def _torn_frame(rest: bytes) -> _Value:
    if len(rest) < _LENGTH.size:
        return _Value(None, f"torn frame: expected {_LENGTH.size} bytes of length, found {len(rest)}")
    (length,), value = _LENGTH.unpack_from(rest), rest[_LENGTH.size :]
    return _Value(None, f"torn frame: expected {length} bytes, found {len(value)}: {value[:80].hex()}")


def _arriving(stream: BufferedIOBase) -> Iterator[bytes]:
    """What is there, as it comes: a pipe that stays open is printed before it ends."""
    while data := stream.read1(_BYTES_A_TIME):
        yield data


def _numbered(pages: Iterable[list[_Value]]) -> Iterator[Records]:
    """Records of partition 0 with offsets from 0 and no time."""
    start = 0
    for page in pages:
        yield Records.of(
            0,
            pa.array(range(start, start + len(page)), pa.int64()),
            pa.nulls(len(page), pa.int64()),
            pa.array([each.value for each in page], pa.binary()),
            {row: each.error for row, each in enumerate(page) if each.error is not None},
        )
        start += len(page)
