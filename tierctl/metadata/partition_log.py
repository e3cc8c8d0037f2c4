"""One `__remote_log_metadata-N` folder as a reader sees it: segments, offsets, chunks of records."""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.metadata.base import BadRange, MetadataChunk
from tierctl.metadata.chunks import ChunkBuilder
from tierctl.metadata.segment_pieces import Placed, place_pieces, skip_to
from tierctl.wire.records import BadRange as BadBytes
from tierctl.wire.records import BatchHead, Record, TornTail, batch_at

_SEGMENT = re.compile(r"(\d{20})\.log\Z")
_MARK_BYTES = 1 << 20
_OFFSET_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the newest segment's good batches end.

    `torn_bytes` follow from an unfinished write; `damage` is what else follows, which no writer may bury.
    """

    segment_base: int
    position: int
    next_offset: int
    torn_bytes: int = 0
    damage: CorruptInputError | None = None

    @property
    def end_offset(self) -> int:
        """The log end offset; damage at the end takes at least one offset, so that readers meet it."""
        return self.next_offset + (self.damage is not None)


@dataclass(slots=True)
class _Marks:
    """Places in one segment where a batch is known to begin: (base offset, position), rising."""

    places: list[tuple[int, int]] = field(default_factory=list)

    def note(self, offset: int, position: int) -> None:
        if not self.places or position >= self.places[-1][1] + _MARK_BYTES:
            self.places.append((offset, position))

    def before(self, offset: int) -> tuple[int, int] | None:
        found = bisect_right(self.places, offset, key=lambda place: place[0])
        return self.places[found - 1] if found else None


class PartitionLog:
    """Reads one metadata partition; what it learned of the files is kept for the next call.

    `log_start_offset` is that of `log-start-offset-checkpoint`, 0 when it says nothing.
    Reading never changes a file. Raises OSError.
    """

    def __init__(self, folder: Path, partition: int, *, log_start_offset: int = 0) -> None:
        self.folder = folder
        self.partition = partition
        self._log_start_offset = log_start_offset
        self._marks: dict[int, _Marks] = {}
        self._tail: Tail | None = None

    def segments(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        matches = (_SEGMENT.match(entry.name) for entry in os.scandir(self.folder))
        return sorted(int(match[1]) for match in matches if match)

    def path(self, segment_base: int) -> Path:
        """A segment's log file."""
        return self.folder / f"{segment_base:020d}.log"

    def beginning_offset(self) -> int:
        """The first offset a broker would serve."""
        return max(self._log_start_offset, next(iter(self.segments()), 0))

    def end_offset(self) -> int:
        """The next offset to be written; what a stopped writer left unfinished is not counted."""
        return max(self.tail().end_offset, self._log_start_offset)

    def tail(self) -> Tail:
        """The end of the newest segment; scans only what was written since the last call."""
        bases = self.segments()
        if not bases:
            return Tail(0, 0, 0)
        tail = self._tail
        fd = os.open(self.path(bases[-1]), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if tail is None or tail.segment_base != bases[-1] or tail.position > size:
                self._marks.pop(bases[-1], None)
                tail = Tail(bases[-1], 0, bases[-1])
            if tail.position < size:
                tail = self._scan_tail(fd, tail)
        finally:
            os.close(fd)
        self._tail = tail
        return tail

    def _scan_tail(self, fd: int, known: Tail) -> Tail:
        marks = self._marks.setdefault(known.segment_base, _Marks())
        tail = Tail(known.segment_base, known.position, known.next_offset)
        for placed in place_pieces(fd, known.position, known.next_offset):
            piece = placed.piece
            if isinstance(piece, BatchHead):
                marks.note(piece.base_offset, placed.position)
                tail = Tail(known.segment_base, placed.end, piece.next_offset)
            elif isinstance(piece, TornTail):
                tail = Tail(tail.segment_base, tail.position, tail.next_offset, torn_bytes=piece.size_bytes)
            elif piece.next_offset is None:
                error = piece.error.within(str(self.path(known.segment_base)), base=placed.window_position)
                tail = Tail(tail.segment_base, tail.position, tail.next_offset, damage=error)
        return tail

    def read(self, start_offset: int, end_offset: int) -> Iterator[MetadataChunk]:
        """Records from `start_offset` up to, not including, `end_offset`, in chunks of bounded size."""
        start = max(start_offset, self.beginning_offset())
        bases = self.segments()
        builder = ChunkBuilder(self.partition, start, end_offset)
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            if base >= end_offset or (following is not None and following <= start):
                continue
            yield from self._read_segment(base, following, builder)
        yield from builder.rest()

    def _read_segment(
        self, base: int, following: int | None, builder: ChunkBuilder
    ) -> Iterator[MetadataChunk]:
        source = str(self.path(base))
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position, expected = self._seek(fd, base, builder.next_offset)
            for placed in place_pieces(fd, position, expected):
                if expected >= builder.end_offset:
                    break
                expected = _take(placed, expected, builder, source)
                yield from builder.full()
        finally:
            os.close(fd)
        if following is not None and expected < min(following, builder.end_offset):
            builder.bad(_gap(expected, following, source))

    def _seek(self, fd: int, base: int, offset: int) -> tuple[int, int]:
        """Position and base offset of a batch at or before `offset`."""
        if offset <= base:
            return 0, base
        marks = self._marks.get(base)
        mark = marks.before(offset) if marks else None
        found = skip_to(fd, mark[1] if mark else 0, offset)
        return found if found is not None else (0, base)


def read_segment_file(path: Path, partition: int) -> Iterator[MetadataChunk]:
    """Every record of one segment file, whatever its name; from the first batch's offset on.

    Raises OSError.
    """
    builder = ChunkBuilder(partition, 0, _OFFSET_END)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        expected: int | None = None
        for placed in place_pieces(fd, 0, 0):
            if expected is None:
                expected = placed.piece.base_offset if isinstance(placed.piece, BatchHead) else 0
                builder.advance(expected)
            expected = _take(placed, expected, builder, str(path))
            yield from builder.full()
    finally:
        os.close(fd)
    yield from builder.rest()


def _take(placed: Placed, expected: int, builder: ChunkBuilder, source: str) -> int:
    """Hand one piece to the builder; returns the offset expected next."""
    piece = placed.piece
    if isinstance(piece, TornTail):
        return expected
    if isinstance(piece, BadBytes):
        after = expected + 1 if piece.next_offset is None else piece.next_offset
        builder.bad(BadRange(expected, after, piece.error.within(source, base=placed.window_position)))
        return after
    if piece.base_offset > expected:
        builder.bad(_gap(expected, piece.base_offset, source))
    if piece.next_offset > builder.next_offset:
        _take_records(piece, placed, builder, source)
    return piece.next_offset


def _take_records(head: BatchHead, placed: Placed, builder: ChunkBuilder, source: str) -> None:
    if head.is_control:
        builder.advance(head.next_offset)
        return
    records: list[Record] = []
    try:
        records.extend(batch_at(placed.window, head).records())
    except CorruptInputError as e:
        bad = BadRange(head.base_offset, head.next_offset, e.within(f"{source}, {placed.position}"))
        builder.bad(bad)
        return
    except LimitExceeded as e:
        bad = BadRange(head.base_offset, head.next_offset, _too_large(e, placed, source))
        builder.bad(bad)
        return
    for record in records:
        if record.offset > builder.next_offset:
            builder.bad(_gap(builder.next_offset, record.offset, source))
        builder.record(record)
    if builder.next_offset < head.next_offset:
        builder.bad(_gap(builder.next_offset, head.next_offset, source))


def _gap(offset: int, next_offset: int, source: str) -> BadRange:
    return BadRange(
        offset,
        next_offset,
        CorruptInputError(
            "metadata log",
            expected=f"offset {offset}",
            found=f"offset {next_offset}",
            source=source,
            hint="records were compacted away or lost: nothing in this metadata partition may be deleted",
        ),
        is_gap=True,
    )


def _too_large(error: LimitExceeded, placed: Placed, source: str) -> CorruptInputError:
    return CorruptInputError(
        "record batch",
        expected="records within the limit",
        found=error.message,
        at=placed.position,
        source=source,
    )
