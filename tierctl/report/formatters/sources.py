"""The records that `format` prints: of the metadata topic, of files, and of stdin."""

import math
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tierctl.errors import NotFoundError, UsageError
from tierctl.files import is_dir, open_regular
from tierctl.kernel import expect
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.model.selection import ranges_text
from tierctl.report.formatters.records import Records
from tierctl.state.tier_state import MissingEvents
from tierctl.wire.batches.segment_file import RecordChunk


def from_chunk(chunk: RecordChunk, start_offset: int, *, first_offset: int = 0) -> Records:
    """Return the records of a chunk, with one row per unreadable range of bytes; gaps have no row.

    `start_offset` is the first offset that is wanted: a range that begins before it, and ends after it, has
    its row there. Rows before `first_offset` are left out: the reader of the preceding records has them.
    """
    found = ((max(bad.offset, start_offset), bad) for bad in chunk.damage if bad.reaches(start_offset))
    damaged = [(at, str(bad)) for at, bad in found if not bad.is_gap and at >= first_offset]
    if damaged:
        return _with_damage(chunk, damaged)
    return Records(
        metadata_partition=chunk.partition,
        offsets=pa.array(chunk.offsets),
        timestamps_ms=pa.array(chunk.timestamps_ms),
        values=chunk.values,
    )


def _with_damage(chunk: RecordChunk, damaged: Sequence[tuple[int, str]]) -> Records:
    count = len(damaged)
    offsets = np.concatenate([np.array([at for at, _ in damaged], np.int64), chunk.offsets])
    # Damage stands before the record at its offset: it is in the bytes before it.
    order = np.argsort(offsets, kind="stable")
    rows, nothing = pa.array(order), [None] * count
    timestamps_ms = pa.concat_arrays([pa.array(nothing, pa.int64()), pa.array(chunk.timestamps_ms)])
    values = pa.concat_arrays([pa.array(nothing, chunk.values.type), chunk.values])
    errors = {int(row): damaged[order[row]][1] for row in np.flatnonzero(order < count)}
    return Records(
        metadata_partition=chunk.partition,
        offsets=pa.array(offsets[order]),
        timestamps_ms=timestamps_ms.take(rows),
        values=values.take(rows),
        errors=errors,
    )


RecordRound = Sequence[Iterator[Records]]
"""One stream of the records available now for each partition, file or pipe."""

_OFFSET_END = (1 << 63) - 1


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
        return self.streams(self.spans(positions), positions)

    def streams(
        self, spans: Mapping[int, tuple[int, int]], positions: dict[int, int]
    ) -> list[Iterator[Records]]:
        """Return the streams of `round` over the ranges `spans`."""
        return [self._stream(n, *span, positions) for n, span in spans.items()]

    def spans(self, positions: Collection[int] = ()) -> dict[int, tuple[int, int]]:
        """Return the range [start, end) of offsets of each partition.

        The first offsets of the topic are not looked up if `positions` has all partitions. Raise
        NotFoundError for a partition that the topic does not have.
        """
        ends = self.topic.end_offsets()
        if unknown := sorted(set(self.partitions) - ends.keys()):
            raise NotFoundError(
                f"the metadata topic has no partition {unknown[0]}",
                hint=f"known partitions: {ranges_text(sorted(ends))}",
            )
        begins = {} if ends.keys() <= set(positions) else self.topic.beginning_offsets()
        return {
            n: (
                max(self.start_offset, begins.get(n, 0)),
                ends[n] if self.end_offset is None else min(ends[n], self.end_offset),
            )
            for n in sorted(ends)
            if not self.partitions or n in self.partitions
        }

    def missing(self) -> list[MissingEvents]:
        """Return the events from `start_offset` on that the topic's retention has deleted."""
        return [
            MissingEvents(number, 0, begin)
            for number, begin in sorted(self.topic.beginning_offsets().items())
            if begin > self.start_offset and (not self.partitions or number in self.partitions)
        ]

    def _stream(self, number: int, start: int, end: int, positions: dict[int, int]) -> Iterator[Records]:
        start = positions.get(number, start)
        for chunk in self.topic.read(number, start, end):
            positions[number] = chunk.next_offset
            yield from_chunk(chunk, start)


_INDEXES = {".index", ".timeindex", ".txnindex", ".snapshot"}


def from_segment(path: Path, on_torn: Callable[[str], None], start_offset: int = 0) -> Iterator[Records]:
    """Return the records of one segment file; `on_torn` receives a message if its last write is unfinished.

    Bytes that can't be read have a row as in `from_chunk`; records before `start_offset` are not left out.

    The name of the file's folder shows the metadata partition; it is 0 in any other folder. Raise UsageError
    for a folder and for an index, whose bytes look like an unfinished write, and OSError for a file that
    can't be opened, before the first record is read.
    """
    if is_dir(path):
        raise UsageError(f"{path} is a folder", hint="a folder is read with --metadata")
    if path.suffix in _INDEXES:
        raise UsageError(f"{path} is no segment", hint="name the files that end in .log")
    os.close(open_regular(path))
    return _segment_records(TopicLocation(uri=path.absolute().as_uri()), on_torn, start_offset)


def _segment_records(
    location: TopicLocation, on_torn: Callable[[str], None], start_offset: int
) -> Iterator[Records]:
    with closing(open_topic(location, on_torn=on_torn)) as topic:
        begins, ends = topic.beginning_offsets(), topic.end_offsets()
        expect(sum(ends.values()) - sum(begins.values()))
        for number in ends:
            # All records of a damaged file are printed, whatever offsets they have.
            for chunk in topic.read(number, 0, _OFFSET_END):
                yield from_chunk(chunk, start_offset)


def follow_rounds(
    topic: TopicRecords, positions: dict[int, int], *, poll_interval_s: float, timeout_s: float | None
) -> Iterator[RecordRound]:
    """Yield the records available now from `positions` on, then round by round those appended later.

    It ends after `timeout_s` without a new record; None waits without end.
    """
    yield topic.round(positions)
    read, advanced_at_s = dict(positions), time.monotonic()
    while True:
        now_s = time.monotonic()
        if read != positions:
            read, advanced_at_s = dict(positions), now_s
        left_s = math.inf if timeout_s is None else advanced_at_s + timeout_s - now_s
        if left_s <= 0:
            return
        time.sleep(min(poll_interval_s, left_s))
        yield topic.round(positions)


_READ_BYTES_MAX = 1 << 18


def arriving_bytes(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the bytes of `stream` as soon as they arrive: values of a pipe are printed at once."""
    while data := stream.read1(_READ_BYTES_MAX):
        yield data


_LENGTH = struct.Struct(">i")
_NULL = -1
# Kafka's message.max.bytes is 1 MiB by default; a greater length than this is damage.
_VALUE_BYTES_MAX = 64 << 20
_HEX_LINE_BYTES_MAX = 2 * _VALUE_BYTES_MAX


class _Value(NamedTuple):
    value: bytes | None
    error: str | None = None


def from_hex(stream: BufferedIOBase) -> Iterator[Records]:
    """Yield the records of a stream with one value in hex per line; offsets count the non-empty lines."""
    return _numbered(_hex_pages(stream))


def _hex_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = bytearray()
    for data in arriving_bytes(stream):
        first, *others = data.split(b"\n")
        # One byte more than the bound shows that a line is too long; what follows in it is not kept.
        rest += first[: max(_HEX_LINE_BYTES_MAX + 1 - len(rest), 0)]
        if others:
            lines = [bytes(rest), *others[:-1]]
            rest = bytearray(others[-1])
            yield [_from_hex_line(line) for line in lines if line.strip()]
    yield [_from_hex_line(bytes(rest))] if rest.strip() else []


def _from_hex_line(line: bytes) -> _Value:
    if len(line) > _HEX_LINE_BYTES_MAX:
        return _Value(None, f"a line too long: expected at most {_HEX_LINE_BYTES_MAX} bytes")
    try:
        return _Value(bytes.fromhex(line.decode("ascii").strip()))
    except ValueError:
        return _Value(None, f"not a line of hex: {line[:80].strip()!r}")


def from_framed(stream: BufferedIOBase) -> Iterator[Records]:
    """Yield the records of a stream of values, each after its 4-byte big-endian length; -1 is a tombstone.

    `kcat -f '%R%s'` writes this format.
    """
    return _numbered(_frame_pages(stream))


def _frame_pages(stream: BufferedIOBase) -> Iterator[list[_Value]]:
    rest = bytearray()
    for data in arriving_bytes(stream):
        rest += data
        page: list[_Value] = []
        at = 0
        while (found := _frame(rest, at)) is not None:
            value, at = found
            page.append(value)
            if value.error is not None:
                # A wrong length hides where the next frame begins, so this is the last line.
                yield page
                return
        del rest[:at]
        yield page
    if rest:
        yield [_torn_frame(bytes(rest))]


def _frame(buf: bytearray, at: int) -> tuple[_Value, int] | None:
    """Return the frame at position `at` and the position of the next; None if `buf` ends within the frame."""
    start = at + _LENGTH.size
    if len(buf) < start:
        return None
    (length,) = _LENGTH.unpack_from(buf, at)
    if length == _NULL:
        return _Value(None), start
    if not 0 <= length <= _VALUE_BYTES_MAX:
        return _Value(None, f"a frame of {length} bytes: expected 0 to {_VALUE_BYTES_MAX}, or -1"), start
    end = start + length
    return (_Value(bytes(buf[start:end])), end) if end <= len(buf) else None


def _torn_frame(rest: bytes) -> _Value:
    if len(rest) < _LENGTH.size:
        return _Value(None, f"torn frame: expected {_LENGTH.size} bytes of length, found {len(rest)}")
    (length,), value = _LENGTH.unpack_from(rest), rest[_LENGTH.size :]
    return _Value(None, f"torn frame: expected {length} bytes, found {len(value)}: {value[:80].hex()}")


def _numbered(pages: Iterable[list[_Value]]) -> Iterator[Records]:
    """Yield the values as records of partition 0 with offsets from 0 and no timestamp."""
    start = 0
    for page in pages:
        yield Records(
            metadata_partition=0,
            offsets=pa.array(range(start, start + len(page)), pa.int64()),
            timestamps_ms=pa.nulls(len(page), pa.int64()),
            values=pa.array([each.value for each in page], pa.binary()),
            errors={row: each.error for row, each in enumerate(page) if each.error is not None},
        )
        start += len(page)
