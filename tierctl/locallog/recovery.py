"""Recovers a log's end, leader epochs and timestamps from its batches, as a broker does at start-up.

Source: LogLoader.recoverLog, LogSegment.recover, LogSegment.readLargestTimestamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tierctl.errors import CorruptInputError
from tierctl.locallog.batches import items_from
from tierctl.locallog.files import SegmentFiles, read_if_exists
from tierctl.model.local import EpochEntry
from tierctl.wire.batches.batch_heads import BatchHead
from tierctl.wire.files.indexes import TimeIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The segments that a broker would keep, the log end offset, and the epochs of unflushed batches."""

    segments: tuple[SegmentFiles, ...]
    end_offset: int
    epochs: tuple[EpochEntry, ...]


def find_log_end(segments: Sequence[SegmentFiles], *, recovery_point: int) -> LogEnd:
    """Read the batches from `recovery_point` on, up to the first damaged one, which ends the log.

    Segments after a damaged one are left out, since a broker deletes them at start-up. `segments` must not be
    empty.
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
    """Return the next offset after the segment's valid batches, and whether they reach its end."""
    end = segment.base_offset
    with items_from(segment, recovery_point) as (_, items):
        for item in items:
            if not isinstance(item, BatchHead):
                return end, False
            end = item.next_offset
            epoch = item.partition_leader_epoch
            if epoch >= 0 and (not epochs or epoch > epochs[-1].epoch):
                epochs.append(EpochEntry(epoch, item.base_offset))
    return end, True


def largest_timestamp_ms(segment: SegmentFiles, *, active: bool) -> int:
    """Return a segment's largest timestamp, its maxTimestampMs in metadata (LogSegment.largestTimestamp).

    It is the last entry of a rolled segment's time index. For the active segment, or without a complete time
    index, it comes from the batches. Without any timestamp it is the log file's modification time.
    """
    index = _closed_time_index(segment)
    if index is not None and len(index) and not active:
        return index.last.timestamp_ms
    largest = -1 if index is None else index.last.timestamp_ms
    start = segment.base_offset if index is None else index.last.offset
    with items_from(segment, start, check_crc=False) as (_, items):
        for item in items:
            if isinstance(item, BatchHead):
                largest = max(largest, item.max_timestamp_ms)
    return largest if largest >= 0 else segment.log.stat().st_mtime_ns // 1_000_000


def _closed_time_index(segment: SegmentFiles) -> TimeIndex | None:
    """Return the time index; None if it is missing, damaged, or ends with zeros because it was not closed."""
    data = read_if_exists(segment.path(".timeindex"))
    if data is None:
        return None
    try:
        index = TimeIndex.decode(data, segment.base_offset)
    except CorruptInputError:
        return None
    return index if len(index.data) == len(data) else None
