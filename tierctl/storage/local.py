"""A remote tier in a folder, as LocalTieredStorage writes and reads it."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tierctl.errors import (
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    StoreWriteFailed,
    StoreWriteUnknown,
)
from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, write_durably
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage import layout
from tierctl.storage.base import RemoteObject

CHUNK_BYTES = 1 << 20

_HINTS = {
    errno.ENOSPC: "the tier's disk is full: free space there, then run again",
    errno.EDQUOT: "the tier's quota is used up: raise it, then run again",
    errno.EIO: "the disk reported an input/output error: check it (dmesg) before running again",
    errno.EACCES: "this user may not do that: check owner and mode of the folder",
    errno.EPERM: "this user may not do that: check owner and mode of the folder",
    errno.EROFS: "the tier is mounted read-only",
    errno.ELOOP: "a symbolic link stands where an object should be; links in a tier are not followed",
    errno.EISDIR: "a folder stands where an object should be",
}

Source = Path | bytes


@contextmanager
def _translated(
    doing: str, error: type[RemoteStorageError] = RemoteStorageError, hint: str | None = None
) -> Iterator[None]:
    """OSErrors as `error` (a missing object as RemoteResourceNotFound), saying what was being done."""
    try:
        yield
    except OSError as e:
        missing = isinstance(e, FileNotFoundError) and error is RemoteStorageError
        kind = RemoteResourceNotFound if missing else error
        where = f" ({e.filename})" if e.filename else ""
        raise kind(f"{doing}: {e.strerror or e}{where}", hint=hint or _HINTS.get(e.errno or 0)) from e


class LocalTieredStorage:
    """RemoteStorageManager over a folder; `kafka-tiered-storage/` lies in it, or is it.

    Objects get their names only when they are whole and on the disk. Links below the folder are never
    followed, and a deletion touches nothing but the exact names of the segment's objects.
    """

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        inner = folder / layout.ROOT_FOLDER
        is_inner = folder.name == layout.ROOT_FOLDER and not inner.is_dir()
        self._root = folder.parent if is_inner else folder
        self._base = self._root / layout.ROOT_FOLDER
        self._fs = fs

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """RemoteStorageManager.copy_log_segment_data; there is no custom metadata."""
        stem = layout.key_stem(metadata)
        folder = self._make_partition_folder(metadata)
        for suffix, source in _sources(data).items():
            path = self._root / f"{stem}{suffix}"
            with _translated(f"writing {path}", StoreWriteFailed):
                if source is None:
                    self._remove(path)
                else:
                    self._write(path, source)
        self._sync_names(folder)
        return None

    def verify_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """RemoteStorageManager.verify_log_segment_data; compares byte by byte."""
        stem = layout.key_stem(metadata)
        for suffix, source in _sources(data).items():
            self._verify(metadata, f"{stem}{suffix}", source)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BinaryIO:
        """RemoteStorageManager.fetch_log_segment; memory is bounded whatever the range.

        ValueError for a negative or reversed range.
        """
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise ValueError(f"not a range of positions: {start_position} to {end_position}")
        path = self._root / f"{layout.key_stem(metadata)}{layout.LOG_SUFFIX}"
        return self._open(metadata, path, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """RemoteStorageManager.fetch_index."""
        path = self._root / f"{layout.key_stem(metadata)}{layout.INDEX_SUFFIXES[index_type]}"
        return self._open(metadata, path, 0, None)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """RemoteStorageManager.delete_log_segment_data.

        The partition's folder goes with its last object; LocalTieredStorage leaves it.
        """
        paths = [self._root / key for key in layout.keys_of(metadata)]
        self._require_base()
        folder = self._partition_folder(metadata)
        if folder is None:
            return
        with _translated(f"deleting segment {metadata.segment_id}"):
            for path in paths:
                self._remove(path)
                self._remove(path.with_name(path.name + TEMP_SUFFIX))
        self._sync_names(folder)
        left = self.objects_of(metadata)
        if left:
            raise RemoteStorageError(
                f"segment {metadata.segment_id} was deleted, yet {left[0].key} is there",
                hint="somebody else writes to this tier; find out who before running again",
            )
        self._remove_if_empty(folder)

    def objects_of(self, metadata: RemoteLogSegmentMetadata) -> list[RemoteObject]:
        """RemoteStorageManager.objects_of."""
        keys = layout.keys_of(metadata)
        self._require_base()
        if self._partition_folder(metadata) is None:
            return []
        with _translated(f"looking for segment {metadata.segment_id}"):
            sizes = {key: self._size_bytes(self._root / key) for key in sorted(keys)}
        return [RemoteObject(key, size) for key, size in sizes.items() if size is not None]

    def list_objects(self) -> Iterator[RemoteObject]:
        """RemoteStorageManager.list_objects; temporary files that a crash left are among them."""
        self._require_base()
        with _translated(f"listing {self._base}"):
            for path in _files_below(self._base):
                with suppress(FileNotFoundError):
                    facts = path.stat(follow_symlinks=False)
                    key = path.relative_to(self._root).as_posix()
                    yield RemoteObject(key, facts.st_size, facts.st_mtime_ns // 1_000_000)

    def close(self) -> None:
        """RemoteStorageManager.close; nothing stays open."""

    def _require_base(self) -> None:
        # A tier that isn't mounted looks like one whose objects are all gone: never delete on that.
        if not self._base.is_dir():
            raise RemoteStorageError(
                f"there is no tier at {self._base}", hint="is it mounted, and is --remote the right folder?"
            )

    def _partition_folder(self, metadata: RemoteLogSegmentMetadata) -> Path | None:
        """The partition's folder, None when there is none; SafetyRefusal when it is a link."""
        folder = self._base / layout.partition_folder(metadata.topic_id_partition)
        with _translated(f"looking into {folder}"):
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise SafetyRefusal(
                    f"{folder} is not a plain folder",
                    hint="links in a tier are not followed: look where it leads",
                )
            return folder if folder.exists() else None

    def _make_partition_folder(self, metadata: RemoteLogSegmentMetadata) -> Path:
        folder = self._base / layout.partition_folder(metadata.topic_id_partition)
        if self._partition_folder(metadata) is None:
            with _translated(f"making {folder}", StoreWriteFailed):
                self._fs.make_folder(folder)
        return folder

    def _write(self, path: Path, source: Source) -> None:
        try:
            write_durably(path, _chunks(source), fs=self._fs, sync_folder=False)
        except FileNotFoundError:
            # A deletion of the partition's last segment took the empty folder in between.
            self._fs.make_folder(path.parent)
            write_durably(path, _chunks(source), fs=self._fs, sync_folder=False)

    def _sync_names(self, folder: Path) -> None:
        with _translated(f"putting the names in {folder} on the disk", StoreWriteUnknown):
            self._fs.sync_folder(folder)

    def _remove(self, path: Path) -> None:
        if path.is_symlink() or path.exists():
            self._fs.unlink(path)

    def _remove_if_empty(self, folder: Path) -> None:
        # An empty folder costs nothing: failing to remove it must not make a done deletion fail.
        with suppress(OSError):
            if not any(folder.iterdir()):
                self._fs.rmdir(folder)
                self._fs.sync_folder(self._base)

    def _size_bytes(self, path: Path) -> int | None:
        try:
            return path.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def _open(
        self, metadata: RemoteLogSegmentMetadata, path: Path, start_position: int, end_position: int | None
    ) -> BinaryIO:
        self._require_base()
        with _translated(f"reading {path}"):
            if self._partition_folder(metadata) is None:
                raise FileNotFoundError(errno.ENOENT, "no such partition in the tier", str(path.parent))
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            size_bytes = os.fstat(fd).st_size
        end = size_bytes if end_position is None else min(end_position + 1, size_bytes)
        return io.BufferedReader(_Range(fd, path, min(start_position, end), end))

    def _verify(self, metadata: RemoteLogSegmentMetadata, key: str, source: Source | None) -> None:
        path = self._root / key
        if source is None:
            if self._size_bytes(path) is not None:
                raise RemoteObjectDiffers(f"{key} is in the tier, but the segment has no such file")
            return
        position = 0
        with self._open(metadata, path, 0, None) as stored:
            for chunk in _chunks(source):
                if stored.read(len(chunk)) != chunk:
                    raise RemoteObjectDiffers(
                        f"{key} differs from its source at or after byte {position}",
                        hint="the copy is not finished: run again, a new attempt copies it anew",
                    )
                position += len(chunk)
            if stored.read(1):
                raise RemoteObjectDiffers(f"{key} is longer than its source, which has {position} bytes")


def _files_below(base: Path) -> Iterator[Path]:
    """Plain files below `base`, links not followed; OSError when a folder can't be listed."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(base, onerror=fail):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if not path.is_symlink():
                yield path


class _Range(io.RawIOBase):
    """Bytes from `position` up to, not including, `end` of a file; closes `fd`."""

    def __init__(self, fd: int, path: Path, position: int, end: int) -> None:
        self._fd = fd
        self._path = path
        self._position = position
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        wanted = min(len(view), self._end - self._position)
        with _translated(f"reading {self._path}"):
            found = os.preadv(self._fd, [view[:wanted]], self._position) if wanted else 0
        if wanted and not found:
            raise RemoteStorageError(f"{self._path} ended at {self._position}, expected {self._end} bytes")
        self._position += found
        return found

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def _sources(data: LogSegmentData) -> dict[str, Source | None]:
    """What each object is made from, by suffix; None for one that must not be there."""
    indexes: dict[IndexType, Source | None] = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.TRANSACTION: data.transaction_index,
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
    }
    return {layout.LOG_SUFFIX: data.log_segment} | {
        layout.INDEX_SUFFIXES[index_type]: source for index_type, source in indexes.items()
    }


def _chunks(source: Source) -> Iterator[bytes]:
    """The source's bytes in pieces; StoreWriteFailed when it can't be read."""
    if isinstance(source, bytes):
        yield source
        return
    with (
        _translated(
            f"reading {source}, which was to be copied",
            StoreWriteFailed,
            "has the broker rolled or deleted it? plan again",
        ),
        source.open("rb") as stream,
    ):
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
