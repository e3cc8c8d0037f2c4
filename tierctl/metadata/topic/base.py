"""The contract of a metadata topic, wherever the topic is; files of its log on any file system."""

import errno
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from tierctl.errors import NOT_ALLOWED, AuthenticationError, MetadataError, NotFoundError, UsageError
from tierctl.files import FileBytes, read_regular
from tierctl.model import ClusterIdentity, TopicPartition, Uuid
from tierctl.wire.batches.segment_file import LogBytes, RecordChunk

METADATA_TOPIC = "__remote_log_metadata"
DEFAULT_METADATA_PARTITIONS = 50


class ReadableTopic(Protocol):
    """The records of a metadata topic, which is all that a fold reads of it."""

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records with offsets in [start_offset, end_offset) as chunks, in order of offsets.

        `RecordChunk.damage` names every range of these offsets that has no readable record.
        """
        ...


class MetadataTopic(ReadableTopic, Protocol):
    """`__remote_log_metadata` as partitions of records; `open_topic` returns one.

    Every method raises MetadataError or AuthenticationError if the cluster or the disk fails, and
    RemoteStorageError if an object store fails.
    """

    @property
    def partition_count(self) -> int:
        """Return the number of metadata partitions; the partitioner depends on it.

        If only some partitions are present, the count is the highest partition number plus 1.
        """
        ...

    @property
    def reads_side_by_side(self) -> bool:
        """Return whether several threads may read different partitions at once."""
        ...

    @property
    def topic_id(self) -> Uuid | None:
        """Return the topic id, None if unknown; a topic that is deleted and created again has another id."""
        ...

    def identity(self) -> ClusterIdentity:
        """Return the ids of the topic and of its cluster, as far as they are known.

        In a folder or a store, the cluster id is that of `meta.properties` beside the partition folders.
        Raises CorruptInputError if that file is damaged.
        """
        ...

    def beginning_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition; above 0, earlier records were deleted."""
        ...

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last record of each partition that is present now."""
        ...

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Return, for each partition, an offset before which every record is older than `timestamp_ms`.

        The offset is as high as indexes allow. A partition without a record as recent may be absent.
        """
        ...

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs in order; return their offsets once all records are durable.

        The records are never transactional: brokers' consumers would wait behind the control marker. Without
        records, only replicas that the topic has in other log directories are completed.
        Raises MetadataError also if the topic was opened for reading only.
        """
        ...

    def close(self) -> None:
        """Release files, locks and connections."""
        ...


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


_HINTS = {
    errno.ENOSPC: "the disk is full: free space, then run again",
    errno.EDQUOT: "the quota is used up: raise it, then run again",
    errno.EIO: "the disk reported an input/output error: check it (dmesg) before running again",
    errno.EROFS: "the folder is mounted read-only",
}


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise MetadataError for an OSError in the body, and AuthenticationError for a missing right.

    The message has `doing`, the hint a remedy.
    """
    try:
        yield
    except OSError as e:
        message = f"{doing}: {e.strerror or e}" + (f" ({e.filename})" if e.filename else "")
        if isinstance(e, PermissionError):
            raise AuthenticationError(message, hint=NOT_ALLOWED) from e
        hint = _HINTS.get(e.errno or 0, "look at the disk, then run again")
        raise MetadataError(message, hint=hint) from e


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    """The consumed partitions (empty: all) and their start: an offset, EARLIEST or LATEST."""

    partitions: Sequence[int] = ()
    start: int | str = LATEST

    @classmethod
    def of(cls, asked: Sequence[int | TopicPartition], *, offset: str | None, from_beginning: bool) -> Self:
        """Return the positions that Kafka's console consumer takes for these flags.

        Raises UsageError for flags that contradict each other, an `offset` that is none, and a partition of
        another topic.
        """
        partitions = [_metadata_number(each) for each in asked]
        if offset is not None and not partitions:
            raise UsageError(
                "--offset needs --partition", hint="name the partition to which the offset belongs"
            )
        if offset is not None and from_beginning:
            raise UsageError("--from-beginning and --offset exclude each other", hint="give one of them")
        if offset is None:
            return cls(partitions=partitions, start=EARLIEST if from_beginning else LATEST)
        return cls(partitions=partitions, start=_parse_start(offset))

    def resolve(self, beginning: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset to consume of each partition; `beginning` and `end` are the topic's.

        An offset outside the log is moved to its nearest end, so that no record is skipped. Raises
        NotFoundError for a partition that the topic does not have.
        """
        for number in self.partitions:
            if number not in end:
                raise NotFoundError(f"{METADATA_TOPIC} has no partition {number}: it has {len(end)}")
        return {n: self._position(beginning[n], end[n]) for n in self.partitions or sorted(end)}

    def _position(self, beginning: int, end: int) -> int:
        if isinstance(self.start, int):
            return min(max(self.start, beginning), end)
        return beginning if self.start == EARLIEST else end


def _metadata_number(partition: int | TopicPartition) -> int:
    if isinstance(partition, int):
        return partition
    if partition.topic != METADATA_TOPIC:
        raise UsageError(
            f"--partition {partition}: --bootstrap-server reads partitions of {METADATA_TOPIC}",
            hint="name the cluster with --metadata kafka://... to select user partitions",
        )
    return partition.partition


def _parse_start(text: str) -> int | str:
    if text.casefold() in {EARLIEST, LATEST}:
        return text.casefold()
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--offset {text!r}", hint="an offset of 0 or more, earliest or latest")
