"""The result of writing one segment of a log, as an executor returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierctl.wire.batches.batch_head import BatchHead

if TYPE_CHECKING:
    from tierctl.read.tasks import KeyRecord

Change = tuple[BatchHead, bytes]
"""A transactional batch: its head, at position 0, and for a marker the bytes of the batch, else none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """Name the files of one segment in `folder`, which is below the staging folder.

    `next_offset` is the offset after the last batch. `changes` are those of the log's transactions. `emptied`
    are the records that were written without key, value and headers.
    """

    folder: str
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    changes: tuple[Change, ...]
    emptied: tuple[KeyRecord, ...] = ()

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of the files."""
        return (log_name(self.base_offset), *index_names(self.base_offset))


def log_name(base_offset: int) -> str:
    """Return the name of the segment's log."""
    return f"{base_offset:020d}.log"


def index_names(base_offset: int) -> tuple[str, str]:
    """Return the names of the offset index and the time index."""
    return f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"
