"""The range of offsets of one partition that a fetch reads, from offsets, offset names and times."""

from dataclasses import dataclass

from tierctl.errors import UsageError
from tierctl.read.partition_reader import PartitionReader
from tierctl.read.readable_log import ReadableLog

EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """The offsets [start_offset, until_offset) of one partition; `until_offset` is None for its end."""

    log: ReadableLog
    reader: PartitionReader
    start_offset: int
    until_offset: int | None

    @property
    def end_offset(self) -> int:
        """The offset before which reading ends."""
        return self.log.end_offset if self.until_offset is None else self.until_offset

    @property
    def note(self) -> str | None:
        """Why reading ends before `until_offset`; None if it does not."""
        undecided = self.reader.undecided_offset
        if undecided is None or (self.until_offset is not None and self.until_offset <= undecided):
            return None
        return (
            f"{self.log.topic_id_partition.topic_partition} ends at offset {undecided} for "
            "read_committed: the tier does not have the end of the transaction that begins there; "
            "--log-dir may have it"
        )


def find_range(
    log: ReadableLog,
    reader: PartitionReader,
    *,
    offset: str = EARLIEST,
    until_offset: int | None = None,
    from_time_ms: int | None = None,
    to_time_ms: int | None = None,
) -> RecordRange | None:
    """Return the range from `offset`, or from the first record of `from_time_ms` or later.

    It ends before `until_offset` and before the first record later than `to_time_ms`. Return None if no
    record is as late as `from_time_ms`; raise UsageError if `offset` is neither a number nor a name.
    """
    if from_time_ms is None:
        start = resolve_offset(offset, log)
    else:
        found = reader.offset_for_time(from_time_ms)
        if found is None:
            return None
        start = found.offset
    if to_time_ms is not None:
        later = reader.offset_for_time(to_time_ms + 1, start)
        if later is not None:
            until_offset = later.offset if until_offset is None else min(until_offset, later.offset)
    return RecordRange(log=log, reader=reader, start_offset=start, until_offset=until_offset)


def resolve_offset(text: str, log: ReadableLog) -> int:
    """Return the offset of a number or of one of ListOffsets' names; UsageError for any other text."""
    local_start = log.local_start_offset
    named = {
        EARLIEST: log.log_start_offset,
        "earliest-local": log.end_offset if local_start is None else local_start,
        "latest-tiered": log.latest_tiered_offset,
        "latest": log.end_offset,
    }
    if text in named:
        return max(named[text], log.log_start_offset)
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--offset {text}: not an offset", hint=f"expected a number or {', '.join(named)}")
