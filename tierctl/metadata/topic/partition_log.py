"""Reads one `__remote_log_metadata-N` folder: segments, offsets, chunks of records."""

import re
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tierctl.errors import CorruptInputError
from tierctl.metadata.topic.base import LOCAL, LogFiles, translated
from tierctl.wire.batches.segment_file import (
    WINDOW_BYTES,
    LogBytes,
    Mark,
    RecordChunk,
    chunk_of,
    empty_chunk,
    first_offset_at,
    gap,
    scan_windows,
    skip_to,
    sound_end,
    torn_note,
)
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex

_SEGMENT = re.compile(r"(\d{20})\.log\Z")
_MARK_BYTES = 1 << 20
_FEW = 16
"""So few records are looked up, perhaps in each partition: little is read around them."""
_WINDOW_OF_FEW_BYTES = 4 << 10
_OFFSET_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the valid batches in the newest segment.

    `torn_bytes` is the size of an unfinished write after them, including zeros that a broker allocated ahead.
    `damage` is the error of other invalid bytes there; a writer must not append after them.
    """

    segment_base: int
    position: int
    next_offset: int
    torn_bytes: int = 0
    damage: CorruptInputError | None = None

    @property
    def end_offset(self) -> int:
        """Return the log end offset; damage at the end counts as one offset, so that readers report it."""
        return self.next_offset + (self.damage is not None)


class PartitionLog:
    """Read one metadata partition; keep positions of batches for the next call.

    `log_start_offset` is the offset in `log-start-offset-checkpoint`, 0 if there is none. If it
    `may_be_missing`, a log without a folder is empty. With a `limit`, the log ends there, whatever bytes and
    segments follow. Reading never changes a file. Raises the errors of `files`.
    """

    def __init__(
        self,
        folder: Path,
        partition: int,
        *,
        log_start_offset: int = 0,
        files: LogFiles = LOCAL,
        may_be_missing: bool = False,
        limit: Tail | None = None,
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.log_start_offset = log_start_offset
        self._files = files
        self.limit = limit
        self._may_be_missing = may_be_missing
        self._marks: dict[int, list[Mark]] = {}
        self._tail: Tail | None = None

    def segments(self) -> list[int]:
        """Return the base offsets of the segments, ascending."""
        if self._may_be_missing and not self.folder.is_dir():
            return []
        matches = map(_SEGMENT.match, self._files.names(self.folder))
        found = sorted(int(match[1]) for match in matches if match)
        return found if self.limit is None else [base for base in found if base <= self.limit.segment_base]

    def path(self, segment_base: int) -> Path:
        """Return the path of a segment's log file."""
        return self.folder / f"{segment_base:020d}.log"

    def _name_of(self, segment_base: int) -> str:
        return self._files.name_of(self.path(segment_base))

    def beginning_offset(self) -> int:
        """Return the first offset that a broker would serve."""
        return max(self.log_start_offset, next(iter(self.segments()), 0))

    def end_offset(self) -> int:
        """Return the offset after the last record; an unfinished write does not count."""
        return max(self.tail().end_offset, self.log_start_offset)

    def tail(self) -> Tail:
        """Return the end of the newest segment; scan only the bytes written since the last call."""
        if self.limit is not None:
            return self.limit
        bases = self.segments()
        if not bases:
            return Tail(0, 0, 0)
        tail, base = self._tail, bases[-1]
        with closing(self._files.open(self.path(base))) as file:
            size = file.size_bytes
            if tail is None or tail.segment_base != base or tail.position > size:
                self._marks.pop(base, None)
                tail = Tail(base, *self._seek(file, base, _OFFSET_END))
            if tail.position < size:
                tail = self._scan_tail(file, tail)
        self._tail = tail
        return tail

    def _scan_tail(self, file: LogBytes, known: Tail) -> Tail:
        tail = Tail(known.segment_base, known.position, known.next_offset)
        for window in scan_windows(file, known.position, known.next_offset):
            torn, bad = window.heads.torn, window.heads.bad
            damage = None
            if bad and bad[-1].next_offset is None:
                damage = bad[-1].error.within(self._name_of(tail.segment_base), base=window.position)
            tail = Tail(
                tail.segment_base,
                window.good_end if len(window.heads) else tail.position,
                window.next_offset,
                torn_bytes=0 if torn is None else torn.size_bytes,
                damage=damage,
            )
        return tail

    def sound_end(self) -> tuple[Tail, bool]:
        """Return the end of what precedes the first damage or missing offset, and whether there is any.

        Every batch is read, and its CRC is checked. An unfinished write at the end of the log is no damage.
        """
        tail = Tail(0, 0, 0)
        for number, base in enumerate(self.segments()):
            if number and tail.next_offset != base:
                return tail, True
            tail = Tail(base, 0, base)
            with closing(self._files.open(self.path(base))) as file:
                for window in scan_windows(file, 0, base):
                    position, next_offset, is_damaged = sound_end(window)
                    tail = Tail(base, position, next_offset, torn_bytes=file.size_bytes - position)
                    if is_damaged:
                        return tail, True
        return tail, False

    def torn_note(self) -> str | None:
        """Return a message about the unfinished write that `tail` found; None for none, or for zeros."""
        tail = self._tail
        if tail is None or not tail.torn_bytes:
            return None
        path = self.path(tail.segment_base)
        with closing(self._files.open(path)) as file:
            return torn_note(file, self._name_of(tail.segment_base), tail.position, tail.torn_bytes)

    def offset_for_time(self, timestamp_ms: int) -> int:
        """Return an offset before which every record is older than `timestamp_ms`.

        The time indexes decide, and in the last relevant segment also the batches after its last index entry.
        A segment without a valid index is not scanned.
        """
        for base in self.segments():
            index = self._time_index(base)
            entry = index.lookup(timestamp_ms - 1)
            if entry.timestamp_ms < 0:
                return base
            if entry != index.last:
                return entry.offset + 1
            found = self._later_batch(base, entry.offset + 1, timestamp_ms)
            if found is not None:
                return found
        return self.end_offset()

    def _later_batch(self, base: int, start_offset: int, timestamp_ms: int) -> int | None:
        """Return the offset, at least `start_offset`, of the first batch as late as `timestamp_ms`."""
        with closing(self._files.open(self.path(base))) as file:
            position, expected = self._seek(file, base, start_offset)
            for window in scan_windows(file, position, expected):
                heads = window.heads
                is_late = heads.fields["max_timestamp_ms"] >= timestamp_ms
                found = heads.base_offsets[is_late & (heads.next_offsets > start_offset)]
                if len(found):
                    return max(int(found[0]), start_offset)
        return None

    def _time_index(self, base: int) -> TimeIndex:
        data = self._files.content(self.path(base).with_suffix(".timeindex"))
        try:
            return TimeIndex.decode(data or b"", base)
        except CorruptInputError:
            return TimeIndex(base)

    def read(self, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records with offsets in [start_offset, end_offset) in chunks of bounded size.

        Raises the errors of `translated`.
        """
        with translated(f"reading {self._files.name_of(self.folder)}"):
            next_offset = max(start_offset, self.beginning_offset())
            bases = self.segments()
            for base, following in zip(bases, [*bases[1:], None], strict=True):
                if base < end_offset and (following is None or following > next_offset):
                    for chunk in self._read_segment(base, following, next_offset, end_offset):
                        next_offset = chunk.next_offset
                        yield chunk

    def _read_segment(
        self, base: int, following: int | None, start_offset: int, end_offset: int
    ) -> Iterator[RecordChunk]:
        source = self._name_of(base)
        reached = base
        with closing(self._files.open(self.path(base))) as file:
            # Starts at the record before `start_offset`, so that a gap between the two records is found.
            position, expected = self._seek(file, base, start_offset - 1)
            span = _WINDOW_OF_FEW_BYTES if end_offset - start_offset <= _FEW else WINDOW_BYTES
            for window in scan_windows(file, position, expected, window_bytes=span):
                chunk = chunk_of(window, self.partition, start_offset, end_offset, source)
                reached = max(window.next_offset, *(bad.next_offset for bad in chunk.damage), reached)
                start_offset = chunk.next_offset
                yield chunk
                if reached >= end_offset:
                    return
        if following is not None and reached < min(following, end_offset):
            yield empty_chunk(self.partition, min(following, end_offset), gap(reached, following, source))

    def _seek(self, file: LogBytes, base: int, offset: int) -> tuple[int, int]:
        """Return position and base offset of a valid batch at or before `offset`, else of the segment."""
        if offset <= base:
            return 0, base
        marks = self._marks_of(base)
        known = bisect_right(marks, offset, key=lambda mark: mark[0])
        start = marks[known - 1][1] if known else 0
        if start and first_offset_at(file, start) is None:
            # The index belongs to another file, or the batch at that position is damaged.
            marks.clear()
            start = 0
        passed: list[Mark] = []
        found = skip_to(file, start, offset, marks=passed)
        first_offset = None if found is None else first_offset_at(file, found[0])
        if found is None or first_offset is None:
            return 0, base
        for mark in passed:
            if mark not in marks:
                insort(marks, mark)
        return found[0], first_offset

    def _marks_of(self, base: int) -> list[Mark]:
        """Return known positions of batches in a segment; at first those in the segment's offset index."""
        if base not in self._marks:
            data = self._files.content(self.path(base).with_suffix(".index"))
            self._marks[base] = list(_marks_in(base, data or b""))
        return self._marks[base]


def _marks_in(base: int, data: bytes) -> Iterator[Mark]:
    """Yield entries of an offset index at least 1 MiB apart, and the last entry; none of a damaged index."""
    try:
        offsets, positions = OffsetIndex.decode(data, base).columns()
    except CorruptInputError:
        return
    at = 0
    while at < len(positions):
        yield int(offsets[at]), int(positions[at])
        is_last = at == len(positions) - 1
        following = int(np.searchsorted(positions, positions[at] + _MARK_BYTES))
        at = len(positions) if is_last else min(following, len(positions) - 1)
