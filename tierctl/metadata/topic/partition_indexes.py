"""The offset and time index of a metadata segment to which tierctl appended.

A broker that loads a segment without an `.index` after a clean shutdown rebuilds both indexes, and logs at
ERROR "Could not find offset index file corresponding to log file" (LogLoader.loadSegmentFiles).
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.files import FileSystem, open_regular, read_regular, write_durably
from tierctl.wire.batches.batch_heads import BatchHead, Buffer, scan_at, walk
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, build_indexes

INDEX, TIME_INDEX = ".index", ".timeindex"


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The indexes of the batches up to the last entry of `offsets`."""

    offsets: OffsetIndex
    times: TimeIndex

    @classmethod
    def none(cls, base_offset: int) -> "SegmentIndexes":
        """Return indexes without entries."""
        return cls(OffsetIndex(base_offset), TimeIndex(base_offset))


def read_indexes(log: Path, base_offset: int) -> SegmentIndexes:
    """Return the indexes beside a segment's log file; without entries if one is missing or damaged."""
    try:
        return SegmentIndexes(
            OffsetIndex.decode(read_regular(log.with_suffix(INDEX)), base_offset),
            TimeIndex.decode(read_regular(log.with_suffix(TIME_INDEX)), base_offset),
        )
    except (FileNotFoundError, CorruptInputError):
        return SegmentIndexes.none(base_offset)


def write_indexes(log: Path, known: SegmentIndexes, *, fs: FileSystem) -> None:
    """Write both indexes of a segment's log file: the `known` entries, and those of the batches after them.

    The offset index is written last: a broker rebuilds both indexes if it is missing. Raises OSError.
    """
    made = _extended(log, known)
    for suffix, data in ((TIME_INDEX, made.times.data), (INDEX, made.offsets.data)):
        write_durably(log.with_suffix(suffix), [data], fs=fs, like=log)


def _extended(log: Path, known: SegmentIndexes) -> SegmentIndexes:
    base_offset = known.offsets.base_offset
    with os.fdopen(open_regular(log), "rb") as file:
        if log.stat().st_size == 0:
            return SegmentIndexes.none(base_offset)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buf:
            if not _is_entry_of(known.offsets, buf):
                known = SegmentIndexes.none(base_offset)
            heads = _heads(buf, known.offsets)
            offsets, times = build_indexes(heads, base_offset, after=(known.offsets, known.times))
    return SegmentIndexes(offsets, times)


def _is_entry_of(index: OffsetIndex, buf: Buffer) -> bool:
    """Return whether the last entry of `index`, if there is one, is a batch of the segment."""
    if not len(index):
        return True
    last = index[-1]
    item = scan_at(buf, last.position, None) if last.position < len(buf) else None
    return isinstance(item, BatchHead) and item.base_offset <= last.offset


def _heads(buf: Buffer, index: OffsetIndex) -> Iterator[BatchHead]:
    position = index[-1].position if len(index) else 0
    return (item for item in walk(buf, position=position) if isinstance(item, BatchHead))
