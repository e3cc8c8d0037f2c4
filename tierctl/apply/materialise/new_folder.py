"""A folder that is filled beside the logs of a stopped broker, and then becomes the log of a partition.

Until it is renamed, it is in a folder with a name that a broker deletes (LogManager, DeleteDirSuffix): a
broker that starts before that does not load it, and removes it.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tierctl.errors import SpoolError
from tierctl.files import PLAIN, make_like
from tierctl.wire.files.checkpoints import META_PROPERTIES

_MARK = "tierctl-materialise"
"""File in a staging folder with the name of the folder that is being made."""
_NEW, _OLD = "new", "old"
_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class NewFolder:
    """The folder of partition `name` in a log directory, in the making; `staging` is the folder around it."""

    log_dir: Path
    name: str
    staging: Path
    files: str = _NEW
    """Name, in `staging`, of the folder that new files are written to."""

    @classmethod
    def make(cls, log_dir: Path, name: str) -> Self:
        """Create the folder; remove the folders that killed runs left of the same partition."""
        remove_left(log_dir, name)
        suffix = f".{uuid.uuid4().hex}-delete"
        topic, _, partition = name.rpartition("-")
        # As UnifiedLog.logDirNameWithSuffixCappedLength.
        capped = topic[: _NAME_MAX - len(suffix) - len(partition) - 1]
        made = cls(log_dir, name, log_dir / f"{capped}-{partition}{suffix}")
        made._make(made.staging)
        made._write(made.staging / _MARK, name.encode())
        made._make(made.path)
        return made

    @property
    def path(self) -> Path:
        """The folder of the new files; that of the partition until `commit`."""
        return self.staging / self.files

    @property
    def target(self) -> Path:
        """The path of the partition's folder."""
        return self.log_dir / self.name

    def make_part(self) -> Self:
        """Make a folder for the files of one segment, which no other attempt to write them uses.

        Raise SpoolError if the staging folder is not there, as on an executor with another file system.
        """
        part = replace(self, files=f"part-{uuid.uuid4().hex}")
        if not self.staging.is_dir():
            raise SpoolError(
                f"{self.staging} is not there",
                hint="--engine spark needs log directories on a shared file system, under the same path on "
                "every executor; otherwise leave --engine out and run tierctl on the broker's machine",
            )
        part.path.mkdir()
        return part

    def take(self, part: str, names: Iterable[str], *, keep: bool = True) -> None:
        """Move the files with these names out of the folder `part` of `make_part`, and remove that.

        Unless `keep`, remove the files, too.
        """
        for name in names:
            if keep:
                PLAIN.rename(self.staging / part / name, self.path / name)
            else:
                PLAIN.unlink(self.staging / part / name)
        PLAIN.rmdir(self.staging / part)

    @contextmanager
    def opened(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Yield the function that writes to a new file; the file is durable at the end."""
        path = self.path / name
        fd = PLAIN.create(path)
        try:
            make_like(fd, self._pattern)
            yield lambda data: PLAIN.write(fd, data, path)
            PLAIN.sync(fd, path)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """Write a new file durably."""
        with self.opened(name) as write:
            write(data)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file of the folder."""
        PLAIN.rename(self.path / name, self.path / new_name)

    def sync(self) -> None:
        """Make the names of the files durable."""
        PLAIN.sync_folder(self.path)
        PLAIN.sync_folder(self.staging)

    def set_old_aside(self) -> None:
        """Move the partition's present folder into the staging folder."""
        PLAIN.rename(self.target, self.staging / _OLD)
        PLAIN.sync_folder(self.staging)
        PLAIN.sync_folder(self.log_dir)

    def commit(self) -> None:
        """Rename the folder to the partition's: from now on a broker loads it."""
        PLAIN.rename(self.path, self.target)
        PLAIN.sync_folder(self.log_dir)

    def discard(self) -> None:
        """Remove the staging folder and its content."""
        shutil.rmtree(self.staging)

    @property
    def _pattern(self) -> Path:
        """A file whose owner and mode the new files get: one that the broker can read."""
        return self.log_dir / META_PROPERTIES

    def _make(self, path: Path) -> None:
        PLAIN.make_folder(path)
        if os.geteuid() == 0:
            owner = self.log_dir.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    def _write(self, path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data)
            os.fsync(file.fileno())


def remove_left(log_dir: Path, name: str) -> None:
    """Remove the staging folders that killed runs left of partition `name`."""
    for left in _left(log_dir, name):
        shutil.rmtree(left)


def former_folder(log_dir: Path, name: str) -> Path:
    """Return the folder of partition `name`, also if a run was killed after it had set the folder aside."""
    folder = log_dir / name
    aside = (left / _OLD for left in _left(log_dir, name) if (left / _OLD).is_dir())
    return folder if folder.is_dir() else next(aside, folder)


def _left(log_dir: Path, name: str) -> Iterator[Path]:
    for left in log_dir.glob("*-delete"):
        mark = left / _MARK
        if mark.is_file() and mark.read_text() == name:
            yield left
