"""Read byte ranges of one segment, in the remote tier or in a broker's log directory."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierctl.errors import NotFoundError
from tierctl.files import open_regular, read_regular
from tierctl.model import IndexType, LocalSegment, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteStorageManager
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE


class SegmentSource(Protocol):
    """The properties and bytes of a segment that its readers use."""

    @property
    def name(self) -> str:
        """The segment in messages to operators: its path, or its partition, offset and id."""
        ...

    @property
    def start_offset(self) -> int:
        """The segment's base offset."""
        ...

    @property
    def end_offset(self) -> int | None:
        """The last offset that the segment may contain, inclusive; None if it is not known."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of the log by its metadata or its file system; the actual log may be shorter."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position` on, fewer only if the log ends before.

        Raise RemoteResourceNotFound or NotFoundError if the log does not exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of the remote tier."""

    metadata: RemoteLogSegmentMetadata
    remote: RemoteStorageManager

    @property
    def name(self) -> str:
        """Implement `SegmentSource.name` by partition, base offset and id."""
        m = self.metadata
        return f"remote segment {m.segment_id} of {m.topic}-{m.partition} from offset {m.start_offset}"

    @property
    def start_offset(self) -> int:
        """Implement `SegmentSource.start_offset`."""
        return self.metadata.start_offset

    @property
    def end_offset(self) -> int | None:
        """Implement `SegmentSource.end_offset`."""
        return self.metadata.end_offset

    @property
    def size_bytes(self) -> int:
        """Implement `SegmentSource.size_bytes`."""
        return self.metadata.segment_size_in_bytes

    def read(self, position: int, length: int) -> bytes:
        """Implement `SegmentSource.read`."""
        if length <= 0:
            return b""
        with self.remote.fetch_log_segment(self.metadata, position, position + length - 1) as stream:
            return stream.read(length)


@dataclass(frozen=True, slots=True)
class LocalSegmentFile:
    """A segment of a broker's log directory."""

    segment: LocalSegment

    @property
    def name(self) -> str:
        """Implement `SegmentSource.name` by the path."""
        return str(self.segment.log)

    @property
    def start_offset(self) -> int:
        """Implement `SegmentSource.start_offset`."""
        return self.segment.base_offset

    @property
    def end_offset(self) -> int | None:
        """Implement `SegmentSource.end_offset`; None for the active segment."""
        following = self.segment.next_base_offset
        return None if following is None else following - 1

    @property
    def size_bytes(self) -> int:
        """Implement `SegmentSource.size_bytes`."""
        return self.segment.size_bytes

    def read(self, position: int, length: int) -> bytes:
        """Implement `SegmentSource.read`."""
        try:
            with os.fdopen(open_regular(self.segment.log), "rb") as stream:
                stream.seek(position)
                return stream.read(max(length, 0))
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.segment.log} does not exist any more",
                hint="if a broker runs on this folder, read a copy of it",
            ) from None

    def index(self, index_type: IndexType) -> bytes | None:
        """Return the index file beside the log; None if there is none of that type."""
        path = self._index_path(index_type)
        try:
            return None if path is None else read_regular(path)
        except FileNotFoundError:
            return None

    def _index_path(self, index_type: IndexType) -> Path | None:
        match index_type:
            case IndexType.OFFSET:
                return self.segment.offset_index
            case IndexType.TIMESTAMP:
                return self.segment.time_index
            case IndexType.TRANSACTION:
                return self.segment.transaction_index
            case IndexType.PRODUCER_SNAPSHOT:
                return self.segment.producer_snapshot
            case IndexType.LEADER_EPOCH:
                return self.segment.log.with_name(LEADER_EPOCHS_FILE)
