"""Names of the files in a log directory, and reading them."""

import errno
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierctl.files import open_regular, read_regular
from tierctl.model.ids import TopicPartition, is_legal_topic_name
from tierctl.wire.batches.batch_heads import Buffer

_SEGMENT = re.compile(r"(?P<base>[0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"(?P<offset>[0-9]{20})\.snapshot\Z")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_LISTINGS_MAX = 10
_OFFSET_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of the segment that begins at `base_offset`."""

    directory: Path
    base_offset: int

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with `suffix`, such as `.index`; the file need not exist."""
        return self.directory / f"{self.base_offset:020d}{suffix}"

    @property
    def log(self) -> Path:
        """Path of the file of records."""
        return self.path(".log")


def list_segments(directory: Path) -> list[SegmentFiles]:
    """Return the segments in a partition's folder by base offset; other files are ignored.

    The folder is listed until two listings agree: a listing that is made while a running broker adds two
    segments may have the later one only (readdir). Raises OSError.
    """
    bases: list[int] | None = None
    for _ in range(_LISTINGS_MAX):
        last, bases = bases, sorted(_numbers(directory, _SEGMENT))
        if bases == last:
            return [SegmentFiles(directory, base) for base in bases]
    raise OSError(errno.EBUSY, "segments come and go all the time", str(directory))


def list_producer_snapshots(directory: Path) -> list[int]:
    """Return the offsets of the producer snapshots in a partition's folder, ascending."""
    return sorted(_numbers(directory, _SNAPSHOT))


def _numbers(directory: Path, pattern: re.Pattern[str]) -> Iterator[int]:
    for path in directory.iterdir():
        match = pattern.match(path.name)
        if match and int(match[1]) <= _OFFSET_MAX:
            yield int(match[1])


def parse_partition_folder(name: str) -> TopicPartition | None:
    """Return the partition whose log is in a folder of this name (LocalLog.parseTopicPartitionName).

    None for every other name: folders that are being deleted or moved (`….<id>-delete`, `-stray`, `-future`)
    do not end with a partition number.
    """
    match = _PARTITION.match(name)
    if match is None or not is_legal_topic_name(match["topic"]) or int(match["partition"]) > _PARTITION_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


@contextmanager
def opened(path: Path) -> Iterator[Buffer]:
    """Yield the file's bytes, mapped into memory while the context is open; slices of them are copies."""
    with os.fdopen(open_regular(path), "rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def require_plain_files(folder: Path) -> None:
    """Raise OSError if the folder has a pipe, a device or a broken link: an open pipe waits for a writer."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.is_file() or entry.is_dir()) and os.path.lexists(entry.path):
                raise _not_plain(Path(entry.path))


def _not_plain(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is no plain file", str(path))


def read_if_exists(path: Path) -> bytes | None:
    """Return the file's bytes; None if there is no such file; OSError if it is no plain file."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
