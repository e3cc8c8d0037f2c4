"""Wrappers of a real store, each of which fails in its own way."""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tierctl.errors import RemoteStorageError, TierctlError
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.storage.base import FolderListing, RemoteObject, RemoteStorageManager


class Wrapper:
    """A store that forwards every call to the store inside."""

    def __init__(self, inner: RemoteStorageManager) -> None:
        self.inner = inner

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        return self.inner.copy_log_segment_data(metadata, data)

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        self.inner.verify_log_segment_data(metadata, data)

    def check_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        self.inner.check_indexes(metadata, indexes)

    def store_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        self.inner.store_indexes(metadata, indexes)

    def renamed(
        self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition
    ) -> RemoteLogSegmentMetadata:
        return self.inner.renamed(metadata, partition)

    def copy_objects(self, metadata: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> None:
        self.inner.copy_objects(metadata, partition)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        return self.inner.fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return self.inner.fetch_index(metadata, index_type)

    @property
    def delete_batch(self) -> int:
        return self.inner.delete_batch

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        return self.inner.delete_log_segments(segments)

    def objects_of_each(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> list[list[RemoteObject] | TierctlError]:
        return self.inner.objects_of_each(segments)

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        return self.inner.objects_of(metadata)

    def name_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        return self.inner.name_of(metadata)

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        return self.inner.list_objects(folder)

    def list_folder(self, folder: str = "") -> FolderListing:
        return self.inner.list_folder(folder)

    def close(self) -> None:
        self.inner.close()


class Failing(Wrapper):
    """Fail the nth call of one operation (0: every call), before or after the operation took effect."""

    def __init__(
        self,
        inner: RemoteStorageManager,
        operation: str,
        nth: int,
        *,
        after: bool = False,
        error: Callable[[str], Exception] = RemoteStorageError,
    ) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        do = getattr(super(), operation)

        def call(*args: Any) -> Any:
            self.calls[operation] += 1
            fails = nth in {0, self.calls[operation]}
            if fails and not after:
                raise error(f"{operation} failed")
            result = do(*args)
            if fails:
                raise error(f"{operation} failed after it was done")
            return result

        setattr(self, operation, call)


class OneSegmentFails(Wrapper):
    """Delete all segments of each call except the nth, for which an error is reported."""

    def __init__(self, inner: RemoteStorageManager, nth: int) -> None:
        super().__init__(inner)
        self._nth = nth

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        rest = [segment for at, segment in enumerate(segments, 1) if at != self._nth]
        errors = iter(self.inner.delete_log_segments(rest))
        failed = RemoteStorageError("InternalError")
        return [failed if at == self._nth else next(errors) for at in range(1, len(segments) + 1)]


class HalfDeleting(Wrapper):
    """Delete only the log of each segment, then raise an error or return without one."""

    def __init__(self, inner: RemoteStorageManager, root: Path, *, silent: bool) -> None:
        super().__init__(inner)
        self._root = root
        self._silent = silent

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        for segment in segments:
            for obj in self.objects_of(segment):
                if obj.key.endswith(".log"):
                    (self._root / obj.key).unlink()
        error = None if self._silent else RemoteStorageError("some objects could not be deleted")
        return [error] * len(segments)


class Custom(Wrapper):
    """Return custom metadata for every segment, and record the arguments of each deletion."""

    def __init__(self, inner: RemoteStorageManager, custom: bytes) -> None:
        super().__init__(inner)
        self._custom = custom
        self.deleted: list[RemoteLogSegmentMetadata] = []

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        super().copy_log_segment_data(metadata, data)
        return self._custom

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        self.deleted += segments
        return super().delete_log_segments(segments)


class Meddling(Wrapper):
    """Call a function of the test before each copy and each delete."""

    def __init__(
        self, inner: RemoteStorageManager, meddle: Callable[[RemoteLogSegmentMetadata], None]
    ) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._meddle(metadata)
        return super().copy_log_segment_data(metadata, data)

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[TierctlError | None]:
        for segment in segments:
            self._meddle(segment)
        return super().delete_log_segments(segments)


class Disk:
    """Observer of a FileSystem that fails the nth call of an operation as a full or broken disk does."""

    def __init__(self, operation: str, nth: int, code: int = errno.ENOSPC) -> None:
        self._operation = operation
        self._nth = nth
        self._code = code
        self.count = 0
        self.failed: Path | None = None

    def __call__(self, operation: str, path: Path) -> None:
        if operation == self._operation:
            self.count += 1
            if self.count == self._nth:
                self.failed = path
                raise OSError(self._code, "injected", str(path))
