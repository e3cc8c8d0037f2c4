"""A warehouse in a folder.

A table's folder is exchanged for another in one step, so a table is seen as one commit has it; files that
changed have new names: who listed the old ones may miss them, and never reads another's bytes.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tierctl.files import PLAIN, TEMP_SUFFIX, FileSystem, exclusive, write_durably
from tierctl.metadata.topic.disk_errors import translated
from tierctl.pipeline.warehouse.base import EVENTS, Files
from tierctl.storage.stores.base import Source, chunks
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
        """Warehouse.held, by flock."""
        with translated(f"opening {self._root}"):
            self._fs.make_folder(self._root)
        with exclusive(self._root, LOCK):
            yield

    def put(self, key: str, source: Source) -> None:
        """Warehouse.put."""
        self._store.put_all({key: source})

    def open(self, key: str) -> BinaryIO:
        """Warehouse.open."""
        return self._store.open(key)

    def create(self, key: str, body: bytes) -> bool:
        """Warehouse.create, by a link: it is there whole or not at all."""
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
        """Warehouse.keys, without hidden files."""
        if (self._root / prefix).is_dir():
            for found in self._store.list_objects(prefix):
                if not found.key.rpartition("/")[2].startswith("."):
                    yield found.key

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Warehouse.sizes_bytes."""
        return self._store.sizes_bytes(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Warehouse.delete."""
        self._store.delete(keys)

    def show_batch(self, batch: int, files: Files) -> None:
        """Warehouse.show_batch: the folder appears with all its files."""
        target = self._root / EVENTS / f"batch={batch}"
        with translated(f"writing {target}"):
            if not target.exists():
                new = self._filled(EVENTS, files)
                self._fs.make_folder(target.parent)
                self._fs.rename(new, target)
                self._fs.sync_folder(target.parent)

    def show_table(self, table: str, files: Files, shown: Files) -> None:
        """Warehouse.show_table: the folder is exchanged for one that has the files.

        The one that was shown goes with the next exchange: who has just opened it would find it empty.
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
        """A new folder that has the files under their own names."""
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
                write_durably(target, chunks(source), fs=self._fs, sync_folder=False)
        self._fs.sync_folder(new)
        return new

    def _remove(self, folder: Path) -> None:
        """The folder and the files in it, if it is there."""
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                self._fs.unlink(path)
            self._fs.rmdir(folder)
