"""Files of a metadata log in an object store."""

from pathlib import Path

from tierctl.errors import RemoteResourceNotFound
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.storage.base import plain_objects
from tierctl.storage.stores import ObjectStore
from tierctl.wire.batches.segment_file import LogBytes


class StoreFiles:
    """Implement LogFiles over the objects of `store`; paths are relative to the store's root.

    The listing of a folder is kept until `refresh` or `folders`. Every method raises RemoteStorageError.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._listed: dict[Path, dict[str, int]] = {}

    def folders(self, folder: Path) -> list[str]:
        """Implement `LogFiles.folders` for partition folders; list every partition with one request."""
        self._listed = {}
        self._list((folder / f"{METADATA_TOPIC}-").as_posix())
        return [found.name for found in self._listed if found.parent == folder]

    def names(self, folder: Path) -> list[str]:
        """Implement `LogFiles.names`; a folder that does not exist has no names."""
        return list(self._sizes_bytes(folder))

    def open(self, path: Path) -> LogBytes:
        """Implement `LogFiles.open`; raise RemoteResourceNotFound if the object does not exist."""
        size_bytes = self._sizes_bytes(path.parent).get(path.name)
        if size_bytes is None:
            raise RemoteResourceNotFound(f"{self.name_of(path)} does not exist")
        return _StoredBytes(self._store, path.as_posix(), size_bytes)

    def content(self, path: Path) -> bytes | None:
        """Implement `LogFiles.content`."""
        key = path.as_posix()
        is_of_partition = path.parent.name.startswith(f"{METADATA_TOPIC}-")
        exists = (
            path.name in self._sizes_bytes(path.parent) if is_of_partition else self._store.sizes_bytes([key])
        )
        if not exists:
            return None
        with self._store.open(key) as stream:
            return stream.read()

    def name_of(self, path: Path) -> str:
        """Implement `LogFiles.name_of`."""
        return self._store.name_of("" if path == Path() else path.as_posix())

    def refresh(self, folder: Path) -> None:
        """Implement `LogFiles.refresh`."""
        self._listed.pop(folder, None)

    def close(self) -> None:
        """Implement `LogFiles.close`."""
        self._store.close()

    def _sizes_bytes(self, folder: Path) -> dict[str, int]:
        if folder not in self._listed:
            self._listed[folder] = {}
            self._list(f"{folder.as_posix()}/")
        return self._listed[folder]

    def _list(self, prefix: str) -> None:
        for found in plain_objects(self._store.list_objects(prefix)):
            path = Path(found.key)
            self._listed.setdefault(path.parent, {})[path.name] = found.size_bytes


class _StoredBytes:
    """Read an object; its size is the one that was listed."""

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
        """Do nothing: each read opens its own stream."""
