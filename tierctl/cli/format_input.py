"""Where `tierctl format` gets records from: the metadata topic, segment files, hex or framed values."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tierctl.errors import NotFoundError, UsageError
from tierctl.metadata.base import METADATA_TOPIC, MetadataTopic
from tierctl.metadata.topic.local_log import partitions_in
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.metadata.topic.segment_file import read_segment_file
from tierctl.report.formatters.base import Records
from tierctl.report.formatters.chunks import from_chunk

RecordRound = Sequence[Iterator[Records]]
"""What there is to read now: a stream of records for each partition, file or pipe."""

_BYTES_A_TIME = 1 << 18
_LENGTH = struct.Struct(">i")
_NULL = -1
# Kafka's message.max.bytes is 1 MiB by default; a length beyond this is not one.
_VALUE_BYTES_MAX = 64 << 20


class _Value(NamedTuple):
    value: bytes | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFolder:
    """The partitions of the metadata topic that a folder has; a broker need not have all of them.

    `start_offset` and `end_offset` (None: no bound) are metadata offsets, the end exclusive. `on_torn` is
    told of a log that ends in an unfinished write.
    """

    folder: Path
    partitions: Collection[int] = ()
    start_offset: int = 0
    end_offset: int | None = None
    on_torn: Callable[[str], None]

    def round(self, positions: dict[int, int]) -> list[Iterator[Records]]:
        """One stream for each partition, from `positions` on, which move along as records are read."""
        return [self._stream(log, positions) for log in self._logs()]

    def spans(self) -> dict[int, tuple[int, int]]:
        """The offsets, from one up to another that is not included, of each partition."""
        return {
            log.partition: (max(self.start_offset, log.beginning_offset()), self._end(log))
            for log in self._logs()
        }

    def _logs(self) -> list[PartitionLog]:
        if not self.folder.is_dir():
            raise NotFoundError(
                f"{self.folder}: no such folder", hint="--metadata names a broker's log directory"
            )
        numbers = [n for n in partitions_in(self.folder) if not self.partitions or n in self.partitions]
        return [PartitionLog(self.folder / f"{METADATA_TOPIC}-{n}", n) for n in numbers]

    def _end(self, log: PartitionLog) -> int:
        end = log.end_offset() if self.end_offset is None else min(log.end_offset(), self.end_offset)
        note = log.torn_note()
        if note is not None:
            self.on_torn(note)
        return end

    def _stream(self, log: PartitionLog, positions: dict[int, int]) -> Iterator[Records]:
        for chunk in log.read(positions.get(log.partition, self.start_offset), self._end(log)):
            positions[log.partition] = chunk.next_offset
            yield from_chunk(chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOnCluster:
    """The partitions of the metadata topic behind a transport; offsets as in `TopicFolder`."""

    topic: MetadataTopic
    partitions: Collection[int] = ()
    start_offset: int = 0
    end_offset: int | None = None

    def bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset and the one after the last, of each partition."""
        return self.topic.beginning_offsets(), self.topic.end_offsets()

    def round(self, positions: dict[int, int]) -> list[Iterator[Records]]:
        """As `TopicFolder.round`."""
        return [self._stream(n, *span, positions) for n, span in self.spans(positions).items()]

    def spans(self, positions: Collection[int] = ()) -> dict[int, tuple[int, int]]:
        """As `TopicFolder.spans`; the beginnings are asked for unless all partitions have `positions`."""
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
        start = positions.get(number, start)
        if start >= end:
            return
        for chunk in self.topic.read(number, start, end):
            positions[number] = chunk.next_offset
            yield from_chunk(chunk)


def from_segment(path: Path, on_torn: Callable[[str], None]) -> Iterator[Records]:
    """The records of one segment file; its folder's name says which metadata partition it is of, else 0.

    `on_torn` is told when it ends in an unfinished write.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="a folder is read with --metadata")
    name, _, number = path.absolute().parent.name.rpartition("-")
    partition = int(number) if name == METADATA_TOPIC and number.isdigit() else 0
    return map(from_chunk, read_segment_file(path, partition, on_torn))


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
