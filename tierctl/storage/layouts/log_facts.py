"""Derive a segment's metadata from its log and its leader-epoch index, where no manifest has them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from tierctl.errors import CorruptInputError, TruncatedInputError
from tierctl.wire.batches.head_columns import HeadColumns
from tierctl.wire.batches.segment_file import scan_windows

_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The last offset (inclusive) and largest timestamp of a complete log; -1 without a timestamp.

    `last_base_offset` and `last_producer_id` are those of the last batch. `has_gaps` states that offsets
    between the segment's start and the last one have no record.
    """

    end_offset: int
    last_base_offset: int
    last_producer_id: int
    max_timestamp_ms: int
    has_gaps: bool


OpenRange = Callable[[int, int], BinaryIO]
"""Opens the bytes of a log from a position to another one, exclusive."""


class _StoredLog:
    """A log in a tier as LogBytes: one request for each range."""

    def __init__(self, open_range: OpenRange, size_bytes: int) -> None:
        self._open_range = open_range
        self.size_bytes = size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        with self._open_range(position, end) as stream:
            return stream.read(end - position)

    def close(self) -> None:
        """Implement `LogBytes.close`; no file or stream is open between reads."""


def read_log_facts(open_range: OpenRange, key: str, size_bytes: int, start_offset: int) -> LogFacts:
    """Read a whole log, the object `key`, and check every batch with its CRC.

    The last offset is the last batch's, control batches included; the largest timestamp is that of all
    batches. The first batch may begin above `start_offset`: compaction removes records, also at the head of a
    segment. Raise TruncatedInputError if the log is empty or ends within a batch, and CorruptInputError if it
    begins below `start_offset`, or has bytes that are no good batch.
    """
    end_offset, last_base, producer_id, latest_ms, has_gaps = -1, -1, -1, -1, False
    for heads in _heads(open_range, key, size_bytes, start_offset):
        bases, following = heads.base_offsets, heads.next_offsets
        if end_offset < 0 and bases[0] < start_offset:
            raise CorruptInputError(
                "log",
                expected=f"a first batch at offset {start_offset} or above",
                found=f"{bases[0]}",
                source=key,
            )
        previous = np.concatenate([[start_offset if end_offset < 0 else end_offset + 1], following[:-1]])
        has_gaps |= bool((bases != previous).any()) or _lacks_records(heads)
        end_offset, last_base = int(following[-1]) - 1, int(bases[-1])
        producer_id = int(heads.fields["producer_id"][-1])
        latest_ms = max(latest_ms, int(heads.fields["max_timestamp_ms"].max()))
    if end_offset < 0:
        raise TruncatedInputError("log", expected="at least one batch", found="none", source=key)
    return LogFacts(end_offset, last_base, producer_id, latest_ms, has_gaps)


def _heads(open_range: OpenRange, key: str, size_bytes: int, start_offset: int) -> Iterator[HeadColumns]:
    log = _StoredLog(open_range, size_bytes)
    for window in scan_windows(log, 0, start_offset, window_bytes=_WINDOW_BYTES):
        heads = window.heads
        if heads.bad:
            raise heads.bad[0].error.within(key, base=window.position)
        if heads.torn is not None:
            raise TruncatedInputError(
                "log",
                expected="a whole batch",
                found=f"{heads.torn.size_bytes} bytes of one that was cut",
                at=window.position + heads.torn.position,
                source=key,
            )
        if len(heads):
            yield heads


def _lacks_records(heads: HeadColumns) -> bool:
    """Return whether a batch has fewer records than offsets: compaction keeps a batch's offsets."""
    return bool((heads.fields["record_count"] != heads.fields["last_offset_delta"] + 1).any())
