"""Files of a metadata log, on this machine's disks or in another file system."""

import os
from pathlib import Path
from typing import Protocol

from tierctl.files import FileBytes, read_regular
from tierctl.wire.batches.segment_file import LogBytes


class LogFiles(Protocol):
    """Read folders and files by path. Every method raises OSError or a TierctlError."""

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`; an empty list if `folder` does not exist."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Return the names of the files in `folder`."""
        ...

    def open(self, path: Path) -> LogBytes:
        """Open a file for reading."""
        ...

    def content(self, path: Path) -> bytes | None:
        """Return the whole content of a small file, None if the file does not exist."""
        ...

    def name_of(self, path: Path) -> str:
        """Return the name of a file or folder for messages: a path or a URI."""
        ...

    def refresh(self, folder: Path) -> None:
        """Forget the listing of `folder`, so that the next call lists the folder again."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class LocalFiles:
    """Implement LogFiles over this machine's disks; every method raises OSError.

    Files are read, not mapped into memory, because a writer may truncate them.
    """

    def folders(self, folder: Path) -> list[str]:
        """Implement `LogFiles.folders`."""
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()] if folder.is_dir() else []

    def names(self, folder: Path) -> list[str]:
        """Implement `LogFiles.names`."""
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: Path) -> LogBytes:
        """Implement `LogFiles.open`."""
        return FileBytes(path)

    def content(self, path: Path) -> bytes | None:
        """Implement `LogFiles.content`."""
        return read_regular(path) if path.is_file() else None

    def name_of(self, path: Path) -> str:
        """Implement `LogFiles.name_of`."""
        return str(path)

    def refresh(self, folder: Path) -> None:
        """Implement `LogFiles.refresh`; no file is cached."""

    def close(self) -> None:
        """Implement `LogFiles.close`; no file is open."""


LOCAL = LocalFiles()
