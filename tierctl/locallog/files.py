"""Names of a log directory's files, and their bytes."""

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierctl.model.ids import TopicPartition, is_legal_topic_name
from tierctl.wire.batches.batch_heads import Buffer

_SEGMENT = re.compile(r"(?P<base>[0-9]{20})\.log\Z")
_SNAPSHOT = re.compile(r"(?P<offset>[0-9]{20})\.snapshot\Z")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_OFFSET_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of the segment that begins at `base_offset`."""

    directory: Path
    base_offset: int

    def path(self, suffix: str) -> Path:
        """The segment's file of that kind, as `.index`; it need not exist."""
        return self.directory / f"{self.base_offset:020d}{suffix}"

    @property
    def log(self) -> Path:
        """The records."""
        return self.path(".log")


def list_segments(directory: Path) -> list[SegmentFiles]:
    """The segments by base offset; files of other names are somebody else's."""
    bases = sorted(_numbers(directory, _SEGMENT))
    return [SegmentFiles(directory, base) for base in bases]


def list_producer_snapshots(directory: Path) -> list[int]:
    """Offsets of the producer snapshots, ascending."""
    return sorted(_numbers(directory, _SNAPSHOT))


def _numbers(directory: Path, pattern: re.Pattern[str]) -> Iterator[int]:
    for path in directory.iterdir():
        match = pattern.match(path.name)
        if match and int(match[1]) <= _OFFSET_MAX:
            yield int(match[1])


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose log a folder of this name holds.

    None for anything else: folders on their way out or in (`….<id>-delete`, `-stray`, `-future`) have no
    number at the end (LocalLog.parseTopicPartitionName).
    """
    match = _PARTITION.match(name)
    if match is None or not is_legal_topic_name(match["topic"]) or int(match["partition"]) > _PARTITION_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


@contextmanager
def opened(path: Path) -> Iterator[Buffer]:
    """The file's bytes, mapped while in use; slices of it are copies."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def read_if_exists(path: Path) -> bytes | None:
    """The file's bytes; None when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
