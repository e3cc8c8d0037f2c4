"""Segment files of the metadata topic in a store of objects, as the metadata room reads files."""

from pathlib import Path

from tierctl.errors import RemoteResourceNotFound
from tierctl.metadata.base import METADATA_TOPIC
from tierctl.storage.stores import ObjectStore
from tierctl.wire.batches.windows import LogBytes


class StoredFiles:
    """LogFiles over what lies below a store's root, of one metadata partition or all; paths are relative.

    What was listed is believed until `folders` is asked. Raises RemoteStorageError.
    """

    def __init__(self, store: ObjectStore, metadata_partition: int | None = None) -> None:
        self._store = store
        self._prefix = (
            f"{METADATA_TOPIC}-" if metadata_partition is None else f"{METADATA_TOPIC}-{metadata_partition}/"
        )
        self._sizes_bytes: dict[Path, int] | None = None

    def folders(self, folder: Path) -> list[str]:
        """LogFiles.folders."""
        self._sizes_bytes = None
        return list({path.parent.name for path in self._listed() if path.parent.parent == folder})

    def names(self, folder: Path) -> list[str]:
        """LogFiles.names."""
        return [path.name for path in self._listed() if path.parent == folder]

    def open(self, path: Path) -> LogBytes:
        """LogFiles.open."""
        if path not in self._listed():
            raise RemoteResourceNotFound(f"{self._store.name_of(path.as_posix())} is not there")
        return _StoredBytes(self._store, path.as_posix(), self._listed()[path])

    def content(self, path: Path) -> bytes | None:
        """LogFiles.content."""
        key = path.as_posix()
        is_there = path in self._listed() if key.startswith(self._prefix) else self._store.sizes_bytes([key])
        if not is_there:
            return None
        with self._store.open(key) as stream:
            return stream.read()

    def _listed(self) -> dict[Path, int]:
        if self._sizes_bytes is None:
            found = self._store.list_objects(self._prefix)
            self._sizes_bytes = {Path(each.key): each.size_bytes for each in found}
        return self._sizes_bytes


class _StoredBytes:
    """An object, which is as long as it was when it was listed."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self._size_bytes)
        if position >= end:
            return b""
        with self._store.open(self._key, position, end) as stream:
            return stream.read()

    def close(self) -> None:
        """Nothing stays open."""
