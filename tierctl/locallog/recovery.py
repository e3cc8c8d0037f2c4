"""Where a log really ends, and what its batches say that its side files don't, as a broker finds out.

Source: LogLoader.recoverLog, LogSegment.recover, LogSegment.readLargestTimestamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tierctl.errors import CorruptInputError
from tierctl.locallog.batches import pieces_from
from tierctl.locallog.files import SegmentFiles, read_if_exists
from tierctl.model.local import EpochEntry
from tierctl.wire.batches.batch_heads import BatchHead
from tierctl.wire.files.indexes import TimeIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The segments a broker would keep, the next offset after them, and epochs seen in unflushed batches."""

    segments: tuple[SegmentFiles, ...]
    end_offset: int
    epochs: tuple[EpochEntry, ...]


def find_log_end(segments: Sequence[SegmentFiles], *, recovery_point: int) -> LogEnd:
    """Reads what was not flushed, from `recovery_point` on, up to the first batch that is not whole.

    Segments after a broken one are what a broker deletes on start-up, so they are left out. `segments` is
    not empty.
    """
    epochs: list[EpochEntry] = []
    end = segments[0].base_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if following is not None and following <= recovery_point:
            continue
        end, whole = _read_tail(segment, recovery_point, epochs)
        if not whole:
            return LogEnd(segments=tuple(segments[: index + 1]), end_offset=end, epochs=tuple(epochs))
    return LogEnd(segments=tuple(segments), end_offset=end, epochs=tuple(epochs))


def _read_tail(segment: SegmentFiles, recovery_point: int, epochs: list[EpochEntry]) -> tuple[int, bool]:
    """The next offset after the segment's good batches, and whether nothing else follows them."""
    end = segment.base_offset
    with pieces_from(segment, recovery_point) as (_, pieces):
        for piece in pieces:
            if not isinstance(piece, BatchHead):
                return end, False
            end = piece.next_offset
            epoch = piece.partition_leader_epoch
            if epoch >= 0 and (not epochs or epoch > epochs[-1].epoch):
                epochs.append(EpochEntry(epoch, piece.base_offset))
    return end, True


def largest_timestamp_ms(segment: SegmentFiles, *, active: bool) -> int:
    """LogSegment.largestTimestamp: what a broker writes as a copied segment's maxTimestampMs.

    A rolled segment's time index ends with it. The active segment's may lag, and an index that is missing,
    cut or never closed says nothing: then the batches do. Without any timestamp it is when the log file
    was last changed.
    """
    index = _closed_time_index(segment)
    if index is not None and len(index) and not active:
        return index.last.timestamp_ms
    largest = -1 if index is None else index.last.timestamp_ms
    start = segment.base_offset if index is None else index.last.offset
    with pieces_from(segment, start, check_crc=False) as (_, pieces):
        for piece in pieces:
            if isinstance(piece, BatchHead):
                largest = max(largest, piece.max_timestamp_ms)
    return largest if largest >= 0 else segment.log.stat().st_mtime_ns // 1_000_000


def _closed_time_index(segment: SegmentFiles) -> TimeIndex | None:
    """The time index if it can be trusted: zeros at its end mean that nobody closed it."""
    data = read_if_exists(segment.path(".timeindex"))
    if data is None:
        return None
    try:
        index = TimeIndex.decode(data, segment.base_offset)
    except CorruptInputError:
        return None
    return index if len(index.data) == len(data) else None
