"""Where `tierctl format` gets records from: the metadata topic, segment files, hex or framed values."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tierctl.errors import NotFoundError, UsageError
from tierctl.metadata.base import METADATA_TOPIC, BadRange, MetadataChunk, MetadataTopic
from tierctl.metadata.log_on_disk import partitions_in
from tierctl.metadata.partition_log import PartitionLog
from tierctl.metadata.segment_file import read_segment_file
from tierctl.report.formatters.base import Records

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
        if not self.folder.is_dir():
            raise NotFoundError(
                f"{self.folder}: no such folder", hint="--metadata names a broker's log directory"
            )
        return [
            self._stream(n, positions)
            for n in partitions_in(self.folder)
            if not self.partitions or n in self.partitions
        ]

    def _stream(self, number: int, positions: dict[int, int]) -> Iterator[Records]:
        log = PartitionLog(self.folder / f"{METADATA_TOPIC}-{number}", number)
        start = positions.get(number, self.start_offset)
        end = log.end_offset() if self.end_offset is None else min(log.end_offset(), self.end_offset)
        note = log.torn_note()
        if note is not None:
            self.on_torn(note)
        for chunk in log.read(start, end):
            positions[number] = chunk.next_offset
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
        ends = self.topic.end_offsets()
        beginning = {} if ends.keys() <= positions.keys() else self.topic.beginning_offsets()
        return [
            self._stream(n, max(self.start_offset, beginning.get(n, 0)), ends[n], positions)
            for n in sorted(ends)
            if not self.partitions or n in self.partitions
        ]

    def _stream(self, number: int, start: int, end: int, positions: dict[int, int]) -> Iterator[Records]:
        start = positions.get(number, start)
        end = end if self.end_offset is None else min(end, self.end_offset)
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


def from_chunk(chunk: MetadataChunk) -> Records:
    """The records of a chunk, with a row for each stretch of bytes that can't be read; gaps have none."""
    damaged = [bad for bad in chunk.bad if not bad.is_gap]
    if not damaged:
        offsets, timestamps_ms = pa.array(chunk.offsets), pa.array(chunk.timestamps_ms)
        return Records.of(chunk.metadata_partition, offsets, timestamps_ms, chunk.values)
    return _with_damage(chunk, damaged)


def _with_damage(chunk: MetadataChunk, damaged: Sequence[BadRange]) -> Records:
    count = len(chunk.offsets)
    offsets = np.concatenate([chunk.offsets, np.array([bad.offset for bad in damaged], np.int64)])
    order = np.argsort(offsets, kind="stable")
    rows, nothing = pa.array(order), [None] * len(damaged)
    timestamps_ms = pa.concat_arrays([pa.array(chunk.timestamps_ms), pa.array(nothing, pa.int64())])
    values = pa.concat_arrays([chunk.values, pa.array(nothing, chunk.values.type)])
    errors = {int(row): _what_is_lost(damaged[order[row] - count]) for row in np.flatnonzero(order >= count)}
    return Records.of(
        chunk.metadata_partition,
        pa.array(offsets[order]),
        timestamps_ms.take(rows),
        values.take(rows),
        errors,
    )


def _what_is_lost(bad: BadRange) -> str:
    return f"offsets {bad.offset} to {bad.next_offset - 1}: {bad.error}"


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
