"""The source of a copy: finds the segment of a step, and checks that it is still as planned.

There are two kinds of sources: a broker's log directory (`log_source`) and another tier (`tier_source`).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np

from tierctl.apply.side_effects import SideEffectContext
from tierctl.checks.bytes import Problem, check_segment_bytes
from tierctl.errors import RemoteStorageError
from tierctl.files import FileBytes
from tierctl.model import HashedFile, IndexType, LogSegmentData, RemoteLogSegmentMetadata, Uuid
from tierctl.model.engine import Severity
from tierctl.plan.steps import Step
from tierctl.storage.index_cache import SegmentFiles
from tierctl.wire.primitives import crc32c_extend

Fingerprint = tuple[tuple[int, int, int], ...]
"""Size, modification time and inode of each file of a segment."""

Indexes = Mapping[IndexType, bytes | None]
"""The content of each index of a segment; None for an index that does not exist."""


class SourceChanged(Exception):  # noqa: N818
    """The segment of a step is no longer as planned; the text states the difference."""


class Source(Protocol):
    """A complete segment in the state in which its step was checked; small and picklable."""

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
        """The contents; a store refuses bytes of the log that have another checksum."""
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


class HashingFile(FileBytes):
    """A file that is read once from its first byte to its last, and the checksum of the bytes read.

    The bytes that were checked are therefore those that are stored: a store refuses bytes of the file with
    another checksum.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._read_bytes = 0
        self._crc32c = 0

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes as `FileBytes.read` does; `position` is not above the end of the last read."""
        data = super().read(position, size_bytes)
        # The bytes of a batch that the end of a window cuts are read again with the next window.
        new = np.frombuffer(data, np.uint8)[self._read_bytes - position :]
        self._crc32c = crc32c_extend(self._crc32c, new)
        self._read_bytes += len(new)
        return data

    def hashed(self) -> HashedFile:
        """Return the number and the checksum of the bytes that were read."""
        return HashedFile(path=self._path, size_bytes=self._read_bytes, crc32c=self._crc32c)


def check_and_hash(
    metadata: RemoteLogSegmentMetadata, log: Path, indexes: Indexes
) -> tuple[HashedFile, Problem | None]:
    """Check the bytes of a segment and hash its log, in one pass; return the hashed log and the first error.

    Raise OSError if the log cannot be read.
    """
    with HashingFile(log) as file:
        problems = check_segment_bytes(metadata, file, indexes)
        error = next((problem for problem in problems if problem.severity is Severity.ERROR), None)
        return file.hashed(), error


def contents(log: HashedFile, indexes: Indexes) -> LogSegmentData:
    """Return the contents of a segment that has the indexes that every segment has."""
    return LogSegmentData(
        log_segment=log,
        offset_index=indexes[IndexType.OFFSET] or b"",
        time_index=indexes[IndexType.TIMESTAMP] or b"",
        transaction_index=indexes[IndexType.TRANSACTION],
        producer_snapshot_index=indexes[IndexType.PRODUCER_SNAPSHOT] or b"",
        leader_epoch_index=indexes[IndexType.LEADER_EPOCH] or b"",
    )


def fingerprint(files: SegmentFiles) -> Fingerprint:
    """Return size, modification time and inode of every file: a write changes at least one of them.

    Raises SourceChanged if a file is missing.
    """
    try:
        facts = [file.stat() for file in (files.log, *files.indexes.values())]
    except FileNotFoundError as e:
        raise SourceChanged(f"{e.filename} is gone") from None
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)


def source_changed(log: Path) -> RemoteStorageError:
    """Return the error of a segment whose files changed, or were deleted, while it was being copied."""
    return RemoteStorageError(
        f"{log} or one of its indexes changed or was deleted while it was being copied",
        hint="a broker that applies retention or truncates its log does this; run the command again",
    )
