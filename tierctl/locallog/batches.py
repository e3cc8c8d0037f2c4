"""Reads the batches of a partition's segments from an offset on, found through the offset index."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tierctl.errors import CorruptInputError
from tierctl.locallog.files import SegmentFiles, opened, read_if_exists
from tierctl.wire.batches.batch_heads import BadRange, BatchHead, Buffer, ScanItem, TornTail, scan_at, walk
from tierctl.wire.files.indexes import OffsetIndex


@contextmanager
def items_from(
    segment: SegmentFiles, offset: int, *, check_crc: bool = True
) -> Iterator[tuple[Buffer, Iterator[ScanItem]]]:
    """Yield the segment's bytes and its scan items, from the batch with `offset` or an earlier batch on."""
    with opened(segment.log) as buf:
        position = start_position(buf, segment, offset)
        expected = segment.base_offset if position == 0 else None
        yield buf, walk(buf, position=position, expected_offset=expected, check_crc=check_crc)


def start_position(buf: Buffer, segment: SegmentFiles, offset: int) -> int:
    """Return a position at or before the batch with `offset`; 0 if the offset index is missing or wrong."""
    data = read_if_exists(segment.path(".index"))
    if data is None:
        return 0
    try:
        entry = OffsetIndex.decode(data, segment.base_offset).lookup(offset)
    except CorruptInputError:
        return 0
    if not 0 < entry.position < len(buf):
        return 0
    item = scan_at(buf, entry.position, segment.base_offset)
    is_valid = isinstance(item, BatchHead) and item.base_offset <= entry.offset
    return entry.position if is_valid else 0


def items_between(
    segments: Sequence[SegmentFiles], start_offset: int, end_offset: int
) -> Iterator[tuple[Buffer, BatchHead | BadRange]]:
    """Yield every batch with an offset in [start_offset, end_offset), and every damaged range between them.

    Each comes with the bytes of its segment. A torn tail ends its segment: no acknowledged record follows it.
    """
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if segment.base_offset >= end_offset or (following is not None and following <= start_offset):
            continue
        with items_from(segment, start_offset) as (buf, items):
            for item in items:
                if isinstance(item, TornTail):
                    break
                if isinstance(item, BatchHead):
                    if item.base_offset >= end_offset:
                        return
                    if item.next_offset <= start_offset:
                        continue
                yield buf, item
