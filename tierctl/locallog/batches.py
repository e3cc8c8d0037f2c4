"""Batches of a partition's segments from some offset on, found through the offset index."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tierctl.errors import CorruptInputError
from tierctl.locallog.files import SegmentFiles, opened, read_if_exists
from tierctl.wire.batches.batch_heads import BadRange, BatchHead, Buffer, ScanItem, TornTail, scan_at, walk
from tierctl.wire.files.indexes import OffsetIndex


@contextmanager
def pieces_from(
    segment: SegmentFiles, offset: int, *, check_crc: bool = True
) -> Iterator[tuple[Buffer, Iterator[ScanItem]]]:
    """The segment's bytes, and its pieces from the batch with `offset` on (or an earlier one)."""
    with opened(segment.log) as buf:
        position = start_position(buf, segment, offset)
        expected = segment.base_offset if position == 0 else None
        yield buf, walk(buf, position=position, expected_offset=expected, check_crc=check_crc)


def start_position(buf: Buffer, segment: SegmentFiles, offset: int) -> int:
    """Where to begin to read for `offset`: an offset index that is missing or wrong only costs time."""
    data = read_if_exists(segment.path(".index"))
    if data is None:
        return 0
    try:
        entry = OffsetIndex.decode(data, segment.base_offset).lookup(offset)
    except CorruptInputError:
        return 0
    if not 0 < entry.position < len(buf):
        return 0
    piece = scan_at(buf, entry.position, segment.base_offset)
    sound = isinstance(piece, BatchHead) and piece.base_offset <= entry.offset
    return entry.position if sound else 0


def pieces_between(
    segments: Sequence[SegmentFiles], start_offset: int, end_offset: int
) -> Iterator[tuple[Buffer, BatchHead | BadRange]]:
    """Every batch with an offset in [start_offset, end_offset), and every bad range on the way.

    A torn tail ends its segment; it is followed by nothing that was acknowledged.
    """
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if segment.base_offset >= end_offset or (following is not None and following <= start_offset):
            continue
        with pieces_from(segment, start_offset) as (buf, pieces):
            for piece in pieces:
                if isinstance(piece, TornTail):
                    break
                if isinstance(piece, BatchHead):
                    if piece.base_offset >= end_offset:
                        return
                    if piece.next_offset <= start_offset:
                        continue
                yield buf, piece
