"""Reads and extends a user partition's flat-file cache, `<topic>-<partition>-<topicId>.rlmcache`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.files import BACKUP_SUFFIX, FileSystem, read_regular, write_durably
from tierctl.metadata.state_dir.manifest import CacheEntry
from tierctl.metadata.user_partitions import user_partitions
from tierctl.model import TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.wire.crc import crc32c
from tierctl.wire.files import flatfile
from tierctl.wire.files.flatfile_values import decode_values
from tierctl.wire.metadata.decode_columns import decode_column

SUFFIX = ".rlmcache"
REWRITE_BYTES_MAX = 1 << 18
"""Smaller caches are written anew, so that their header is current; larger ones are appended to."""

_NAME_BYTES_MAX = 240
_NAME = re.compile(r"(?P<topic>.{1,249})-(?P<partition>\d{1,10})-(?P<id>[A-Za-z0-9_-]{22})\.rlmcache\Z")


def cache_name(partition: TopicIdPartition) -> str | None:
    """Return the file's name; None if the topic's name is illegal or too long for a file name."""
    if not is_legal_topic_name(partition.topic) or partition.partition < 0:
        return None
    name = f"{partition.topic}-{partition.partition}-{partition.topic_id}{SUFFIX}"
    return name if len(name) <= _NAME_BYTES_MAX else None


def partition_of(name: str) -> TopicIdPartition | None:
    """Return the user partition that a file name states, None if it is no name of a cache."""
    match = _NAME.match(name)
    if match is None or not is_legal_topic_name(match["topic"]):
        return None
    return TopicIdPartition(Uuid(match["id"]), match["topic"], int(match["partition"]))


@dataclass(frozen=True, slots=True)
class LoadedCache:
    """The events of a cache that its manifest entry covers, and the position of the next entry."""

    offsets: list[int]
    table: pa.Table
    end: int


def load_cache(path: Path, partition: TopicIdPartition, entry: CacheEntry) -> LoadedCache:
    """Return the events that `entry` of the manifest covers; ignore bytes after them, left by a crash.

    Raises CorruptInputError if events are missing, damaged or of another partition, and OSError.
    """
    data = read_regular(path)
    try:
        header, start = flatfile.read_header(data)
        found = decode_values(data, start, entry.events)
    except CorruptInputError as e:
        raise e.within(str(path)) from None
    crc = crc32c(data[start : found.end])
    if len(found.values) < entry.events:
        raise _wrong(path, f"{entry.events} entries", f"{len(found.values)}")
    if crc != entry.crc:
        raise _wrong(path, f"CRC-32C {entry.crc:#010x}", f"{crc:#010x}")
    if (header.topic, header.topic_id) != (partition.topic, partition.topic_id):
        raise _wrong(path, f"a cache of {partition}", f"one of {header.topic_id}:{header.topic}")
    table = decode_column(pa.array(found.values, pa.binary()))
    _check(path, partition, entry, found.offsets, table)
    return LoadedCache(found.offsets, table, found.end)


def _check(
    path: Path, partition: TopicIdPartition, entry: CacheEntry, offsets: list[int], table: pa.Table
) -> None:
    """Raise CorruptInputError unless all events are of the partition and end at the expected offset."""
    for whose in user_partitions(table):
        if whose.key != partition.key:
            raise _wrong(path, f"events of {partition}", f"events of {whose}")
    if not offsets or offsets[-1] != entry.last_offset:
        raise _wrong(path, f"{entry.events} values up to offset {entry.last_offset}", f"{len(offsets)}")


@dataclass(frozen=True, slots=True)
class Extension:
    """Encoded entries for one user partition; `last_offset` is the metadata offset of the last entry."""

    partition: TopicIdPartition
    entries: bytes
    last_offset: int


def extend_cache(path: Path, end: int, extension: Extension, *, fs: FileSystem) -> int:
    """Write entries at byte `end`, durably once the caller has synced the folder; return the new end.

    With `end` 0 a new file is made, and an existing file is kept as `.bak`. The manifest covers the old
    entries until it is replaced, so a crash before that loses nothing. Raises OSError.
    """
    old, entries, partition = b"", extension.entries, extension.partition
    if end == 0 and path.exists():
        fs.rename(path, path.with_name(path.name + BACKUP_SUFFIX))
    elif end > REWRITE_BYTES_MAX:
        _append(path, end, entries, fs)
        return end + len(entries)
    elif end:
        data = read_regular(path)
        old = data[flatfile.read_header(data)[1] : end]
    header = flatfile.encode_header(
        flatfile.FlatFileHeader(
            topic=partition.topic, topic_id=partition.topic_id, metadata_topic_offset=extension.last_offset
        )
    )
    write_durably(path, [header, old, entries], fs=fs, sync_folder=False)
    return len(header) + len(old) + len(entries)


def _append(path: Path, end: int, entries: bytes, fs: FileSystem) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size > end:
            fs.truncate(fd, end, path)
        os.lseek(fd, end, os.SEEK_SET)
        fs.write(fd, entries, path)
        fs.sync(fd, path)
    finally:
        os.close(fd)


def _wrong(path: Path, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("cache", expected=expected, found=found, source=str(path))
