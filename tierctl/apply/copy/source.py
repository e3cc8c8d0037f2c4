"""The source of a copy: finds the segment of a step, and checks that it is still as planned.

There are two kinds of sources: a broker's log directory (`log_source`) and another tier (`tier_source`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tierctl.apply.side_effects import SideEffectContext
from tierctl.errors import RemoteStorageError
from tierctl.model import LogSegmentData, RemoteLogSegmentMetadata, Uuid
from tierctl.plan.steps import Step
from tierctl.storage.stores.base import crc32c

Fingerprint = tuple[tuple[int, int, int], ...]
"""Size, modification time and inode of each file of a segment."""

Checksums = tuple[int, ...]
"""CRC-32C of each file of a segment."""


class SourceChanged(Exception):  # noqa: N818
    """The segment of a step is no longer as planned; the text states the difference."""


class Source(Protocol):
    """One whole segment, as it was when its step was checked; small and picklable."""

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Return the COPY_SEGMENT_STARTED event of a copy of this segment."""
        ...

    def opened(self, context: SideEffectContext) -> AbstractContextManager["OpenedSource"]:
        """Provide the segment's files during the block.

        Raises TierctlError if the files cannot be read or are damaged.
        """
        ...


class OpenedSource(Protocol):
    """The files of a segment, which were sound when they were opened."""

    @property
    def data(self) -> LogSegmentData:
        """The files."""
        ...

    def is_unchanged(self) -> bool:
        """Return whether the files still have the bytes that were found sound."""
        ...


class Sources(Protocol):
    """Finds the sources of a wave's steps."""

    def refresh(self, steps: Sequence[Step]) -> None:
        """Read the current segments of the partitions of `steps`."""
        ...

    def find(self, step: Step) -> Source:
        """Return the source of one of the steps; raise SourceChanged if the segment is not as planned."""
        ...

    def with_options(self, context: SideEffectContext) -> SideEffectContext:
        """Return `context` with the stores that opening these sources needs."""
        ...


def fingerprint(data: LogSegmentData) -> Fingerprint:
    """Return size, modification time and inode of every file: a write changes at least one of them.

    Raises SourceChanged if a file is missing.
    """
    try:
        facts = [file.stat() for file in _files(data)]
    except FileNotFoundError as e:
        raise SourceChanged(f"{e.filename} is gone") from None
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)


def checksums(data: LogSegmentData) -> Checksums:
    """Return the checksum of every file as it is read now; raise StoreWriteFailed if one can't be read."""
    return tuple(crc32c(file) for file in _files(data))


def source_changed(data: LogSegmentData) -> RemoteStorageError:
    """Return the error of a segment whose files changed, or were deleted, while it was being copied."""
    return RemoteStorageError(
        f"{data.log_segment} or one of its indexes changed or was deleted while it was being copied",
        hint="a broker that applies retention or truncates its log does this; run the command again",
    )


def _files(data: LogSegmentData) -> tuple[Path, ...]:
    return (
        data.log_segment,
        data.offset_index,
        data.time_index,
        data.producer_snapshot_index,
        *(() if data.transaction_index is None else (data.transaction_index,)),
    )
