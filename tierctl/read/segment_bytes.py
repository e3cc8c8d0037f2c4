"""One segment's bytes in ranges, wherever it lies: in the remote tier or in a broker's log directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierctl.errors import NotFoundError
from tierctl.model import IndexType, LocalSegment, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteStorageManager


class SegmentSource(Protocol):
    """What reading needs of a segment.

    `start_offset` is the segment's base offset; no record of it is above `end_offset` (None: not known).
    `size_bytes` is how long the log should be. `name` is for reports.
    """

    @property
    def name(self) -> str:
        """The segment as an operator would look for it."""
        ...

    @property
    def start_offset(self) -> int:
        """Base offset."""
        ...

    @property
    def end_offset(self) -> int | None:
        """Last offset it may hold, inclusive."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length of the log, as its metadata or its file system says."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """`length` bytes from `position` on, fewer only where the log ends.

        Raises RemoteResourceNotFound or NotFoundError when the log is not there.
        """
        ...


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of the remote tier."""

    metadata: RemoteLogSegmentMetadata
    remote: RemoteStorageManager

    @property
    def name(self) -> str:
        """Partition, base offset and id."""
        m = self.metadata
        return f"remote segment {m.segment_id} of {m.topic}-{m.partition} from offset {m.start_offset}"

    @property
    def start_offset(self) -> int:
        """SegmentSource.start_offset."""
        return self.metadata.start_offset

    @property
    def end_offset(self) -> int | None:
        """SegmentSource.end_offset."""
        return self.metadata.end_offset

    @property
    def size_bytes(self) -> int:
        """SegmentSource.size_bytes."""
        return self.metadata.segment_size_in_bytes

    def read(self, position: int, length: int) -> bytes:
        """SegmentSource.read."""
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
        """The path."""
        return str(self.segment.log)

    @property
    def start_offset(self) -> int:
        """SegmentSource.start_offset."""
        return self.segment.base_offset

    @property
    def end_offset(self) -> int | None:
        """SegmentSource.end_offset; None for the active segment."""
        following = self.segment.next_base_offset
        return None if following is None else following - 1

    @property
    def size_bytes(self) -> int:
        """SegmentSource.size_bytes."""
        return self.segment.size_bytes

    def read(self, position: int, length: int) -> bytes:
        """SegmentSource.read."""
        try:
            with self.segment.log.open("rb") as stream:
                stream.seek(position)
                return stream.read(max(length, 0))
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.segment.log} is gone", hint="is a broker running on this folder? read a copy of it"
            ) from None

    def index(self, index_type: IndexType) -> bytes | None:
        """The index beside the log, None when there is none of that type."""
        path = self._index_path(index_type)
        try:
            return None if path is None else path.read_bytes()
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
                return self.segment.log.with_name("leader-epoch-checkpoint")
