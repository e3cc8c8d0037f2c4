"""A warehouse in a folder.

The folder of a table is exchanged for another in one step, so that readers see one commit. Changed files have
new names: a reader that listed the old names may find them missing, but never reads other bytes.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, exclusive, write_durably
from tierctl.metadata.topic.disk_errors import translated
from tierctl.pipeline.warehouse.base import EVENTS, Files
from tierctl.storage.base import plain_objects
from tierctl.storage.stores.base import Source, chunks, delete_all, hashed_file
from tierctl.storage.stores.registry import open_store

LOCK: Final = ".tierctl-pipeline.lock"
_NEW: Final = "_new"
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class FolderWarehouse:
    """Tables in a folder, which executors must reach under the same path."""

    def __init__(self, root: Path, *, fs: FileSystem = PLAIN) -> None:
        self._root = root
        self._fs = fs
        self._store = open_store(root.absolute().as_uri(), files=fs)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Implement `Warehouse.held` by flock."""
        with translated(f"opening {self._root}"):
            self._fs.make_folder(self._root)
        with exclusive(self._root, LOCK):
            yield

    def put(self, key: str, source: Source) -> None:
        """Implement `Warehouse.put`."""
        self._store.put_all({key: source})

    def open(self, key: str) -> BinaryIO:
        """Implement `Warehouse.open`."""
        return self._store.open(key)

    def create(self, key: str, body: bytes) -> bool:
        """Implement `Warehouse.create` by a link, so that the file never exists in part."""
        path = self._root / key
        temp = self._root / f".commit{TEMP_SUFFIX}"
        with translated(f"writing {path}"):
            self._fs.make_folder(path.parent)
            write_durably(temp, [body], fs=self._fs)
            try:
                self._fs.link(temp, path)
            except FileExistsError:
                return False
            self._fs.sync_folder(path.parent)
            self._fs.unlink(temp)
        return True

    def keys(self, prefix: str) -> Iterator[str]:
        """Implement `Warehouse.keys`, without hidden files."""
        if (self._root / prefix).is_dir():
            for found in plain_objects(self._store.list_objects(prefix)):
                if not found.key.rpartition("/")[2].startswith("."):
                    yield found.key

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `Warehouse.sizes_bytes`."""
        return self._store.sizes_bytes(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Implement `Warehouse.delete`."""
        delete_all(self._store, keys)

    def show_batch(self, batch: int, files: Files) -> None:
        """Implement `Warehouse.show_batch`: the folder appears with all its files."""
        target = self._root / EVENTS / f"batch={batch}"
        with translated(f"writing {target}"):
            if not target.exists():
                new = self._filled(EVENTS, files)
                self._fs.make_folder(target.parent)
                self._fs.rename(new, target)
                self._fs.sync_folder(target.parent)

    def show_table(self, table: str, files: Files, shown: Files) -> None:
        """Implement `Warehouse.show_table`: the folder is exchanged for another with the files.

        The previous folder is deleted at the next exchange, because readers may have just opened it.
        """
        del shown
        target = self._root / table
        with translated(f"writing {target}"):
            new = self._filled(table, files)
            if target.exists():
                self._fs.exchange(new, target)
            else:
                self._fs.rename(new, target)
            self._fs.sync_folder(self._root)

    def _filled(self, table: str, files: Files) -> Path:
        """Return a new folder with links to the files, under their own names."""
        new = self._root / _NEW / table
        for leftover in (new, new.with_name(f"{new.name}{TEMP_SUFFIX}")):
            self._remove(leftover)
        self._fs.make_folder(new)
        for key in files.values():
            source = self._root / key
            target = new / source.name
            try:
                self._fs.link(source, target)
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
                write_durably(target, chunks(hashed_file(source)), fs=self._fs, sync_folder=False)
        self._fs.sync_folder(new)
        return new

    def _remove(self, folder: Path) -> None:
        """Delete the folder and its files, if it exists."""
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                self._fs.unlink(path)
            self._fs.rmdir(folder)
