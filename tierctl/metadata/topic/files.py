"""Where the files of a metadata log lie: on this machine's disks, or wherever else somebody can open them."""

import os
from pathlib import Path
from typing import Protocol

from tierctl.wire.batches.windows import LogBytes


class LogFiles(Protocol):
    """Folders of files, by paths that mean something to it alone.

    Raises OSError, or errors of ours.
    """

    def folders(self, folder: Path) -> list[str]:
        """Names of the folders in a folder; none when it is not there."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Names of what is in a folder; an error when it is not there."""
        ...

    def open(self, path: Path) -> LogBytes:
        """A file for reading."""
        ...

    def content(self, path: Path) -> bytes | None:
        """All of a small file, None when it is not there."""
        ...


class _LocalBytes:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size_bytes: int) -> bytes:
        parts = []
        while size_bytes and (part := os.pread(self._fd, size_bytes, position)):
            parts.append(part)
            position += len(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        os.close(self._fd)


class LocalFiles:
    """LogFiles by paths of this machine; files are read, not mapped, as a writer may cut them. OSError."""

    def folders(self, folder: Path) -> list[str]:
        """LogFiles.folders."""
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()] if folder.is_dir() else []

    def names(self, folder: Path) -> list[str]:
        """LogFiles.names."""
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: Path) -> LogBytes:
        """LogFiles.open."""
        return _LocalBytes(path)

    def content(self, path: Path) -> bytes | None:
        """LogFiles.content."""
        return path.read_bytes() if path.is_file() else None


LOCAL = LocalFiles()
