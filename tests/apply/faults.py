"""Wrappers of a real store, each of which fails in its own way."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tierctl.errors import RemoteStorageError, TierctlError
from tierctl.model import LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage.remote_storage_manager import RemoteStorageManager


class Wrapper(RemoteStorageManager):
    """The tier `inner` once more, some of whose calls a subclass changes; `inner` may be changed already."""

    def __init__(self, inner: RemoteStorageManager) -> None:
        super().__init__(inner.store, inner.layout)
        vars(self).update(vars(inner))
        self.inner = inner


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
