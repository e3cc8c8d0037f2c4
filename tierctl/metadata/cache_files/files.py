"""Read a cache file of any form: tierctl's own, KIP-405's flat file, Kafka 3's snapshot, `.remoteindex`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.files import read_regular
from tierctl.metadata.state_dir.cache_file import SUFFIX, partition_of
from tierctl.metadata.state_dir.manifest import MANIFEST, Manifest
from tierctl.model import MetadataEvent, TopicPartition, Uuid
from tierctl.model.events import dialect_of
from tierctl.model.stored import StoredRecord, StoredValue
from tierctl.wire.crc import crc32c
from tierctl.wire.files import flatfile, remoteindex
from tierctl.wire.files import remote_log_snapshot as snapshot
from tierctl.wire.files.remoteindex import RemoteIndexFile
from tierctl.wire.metadata import decode
from tierctl.wire.metadata.json_fields import json_fields

SNAPSHOT_NAME = "remote_log_snapshot"


class Form(StrEnum):
    """The format of a cache file."""

    NAMED = "named"
    """A flat file whose header has the topic's name."""
    UNNAMED = "unnamed"
    """A flat file of early revisions of KIP-405, whose header has only the topic id."""
    SNAPSHOT = "snapshot"
    """Kafka 3's `remote_log_snapshot`."""
    REMOTE_INDEX = "remoteindex"
    """`.remoteindex` of KIP-405's early design: the start offsets of a partition's remote segments."""


@dataclass(frozen=True, slots=True)
class RemoteIndexEntry:
    """One entry of a `.remoteindex` file: the start offset of a remote segment."""

    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a cache file, or the reason why it can't be decoded."""

    position: int
    """The position in the file of the byte that states the entry's type, or of its first byte."""
    record: StoredRecord | MetadataEvent | RemoteIndexEntry | None
    """None if `error` is set."""
    error: CorruptInputError | None

    def fields(self) -> dict[str, Any]:
        """Return the entry as JSON-ready fields; `type` is one of them."""
        match self.record:
            case None:
                return {"type": None, "error": str(self.error)}
            case StoredValue():
                return _value_fields(self.record)
            case RemoteIndexEntry(start_offset):
                return {"type": "RemoteIndexEntry", "start_offset": start_offset}
        return json_fields(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFile:
    """The readable part of a cache file."""

    path: Path
    form: Form
    topic: str | None
    """Topic, id and partition are None where neither the header nor the file's path states them."""
    topic_id: Uuid | None
    partition: int | None
    metadata_partition: int | None
    metadata_topic_offset: int
    """The last metadata offset that the header states; -1 if it states none."""
    entries: tuple[Entry, ...]
    size_bytes: int
    crc: int
    """CRC-32C of the whole file."""
    torn: CorruptInputError | None
    """Why the bytes after the last entry can't be read; None if the file was read to its end."""

    @property
    def errors(self) -> Iterator[CorruptInputError]:
        """Yield the error of each entry that can't be decoded, and `torn`."""
        for entry in self.entries:
            if entry.error is not None:
                yield entry.error
        if self.torn is not None:
            yield self.torn

    @property
    def last_offset(self) -> int:
        """The last metadata offset that the file covers: of its entries, else of its header."""
        offsets = [e.record.metadata_offset for e in self.entries if isinstance(e.record, StoredValue)]
        return max(offsets, default=self.metadata_topic_offset)

    def header(self) -> dict[str, Any]:
        """Return the facts that apply to the whole file as JSON-ready fields."""
        return {
            "position": 0,
            "type": "Header",
            "form": str(self.form),
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "metadata_partition": self.metadata_partition,
            "metadata_topic_offset": self.metadata_topic_offset,
        }


def cache_files(folder: Path) -> list[Path]:
    """Return the flat files and snapshots in a state directory, or in a broker's log directory."""
    return sorted(
        [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/{SNAPSHOT_NAME}"), *folder.glob(SNAPSHOT_NAME)]
    )


def remote_index_files(folder: Path) -> list[Path]:
    """Return the `.remoteindex` files in a broker's log directory, or in a partition's folder."""
    pattern = f"*{remoteindex.SUFFIX}"
    return sorted([*folder.glob(f"*/{pattern}"), *folder.glob(pattern)])


def read_cache(path: Path) -> CacheFile:
    """Read the file at `path`. Raise CorruptInputError if its header can't be read, or OSError."""
    data = read_regular(path)
    try:
        if path.suffix == remoteindex.SUFFIX:
            return _remote_index(path, data)
        if path.name == SNAPSHOT_NAME or _is_snapshot(data):
            return _snapshot(path, data)
        return _flat(path, data)
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def _is_snapshot(data: bytes) -> bool:
    """Return whether a file of any name decodes as a snapshot and does not decode as a flat file."""
    if not data.startswith(b"\0\0\0"):
        return False
    try:
        found = snapshot.read(data)
        return found is not None and not found.damaged and bool(flatfile.read(data).damaged)
    except CorruptInputError:
        return True


def _flat(path: Path, data: bytes) -> CacheFile:
    found = flatfile.read(data)
    header, named = found.header, partition_of(path.name)
    return CacheFile(
        path=path,
        form=Form.UNNAMED if header.topic is None else Form.NAMED,
        topic=header.topic,
        topic_id=header.topic_id,
        partition=None if named is None else named.partition,
        metadata_partition=None,
        metadata_topic_offset=header.metadata_topic_offset,
        entries=tuple(Entry(position=e.position, record=e.record, error=e.error) for e in found.entries),
        size_bytes=len(data),
        crc=crc32c(data),
        torn=found.torn,
    )


def _snapshot(path: Path, data: bytes) -> CacheFile:
    found = snapshot.read(data)
    owner = _owner(path)
    return CacheFile(
        path=path,
        form=Form.SNAPSHOT,
        topic=None if owner is None else owner.topic,
        topic_id=None,
        partition=None if owner is None else owner.partition,
        metadata_partition=None if found is None else found.metadata_partition,
        metadata_topic_offset=-1 if found is None else found.metadata_offset,
        entries=tuple(
            Entry(position=e.position, record=e.segment, error=e.error)
            for e in (() if found is None else found.entries)
        ),
        size_bytes=len(data),
        crc=crc32c(data),
        torn=None if found is None else found.torn,
    )


def _remote_index(path: Path, data: bytes) -> CacheFile:
    """Decode a `.remoteindex` file up to its first damaged entry, which becomes `torn`."""
    owner = _owner(path)
    index, torn = _readable_remote_index(path.name, data)
    return CacheFile(
        path=path,
        form=Form.REMOTE_INDEX,
        topic=None if owner is None else owner.topic,
        topic_id=None,
        partition=None if owner is None else owner.partition,
        metadata_partition=None,
        metadata_topic_offset=-1,
        entries=tuple(
            Entry(position=number * remoteindex.ENTRY_SIZE, record=RemoteIndexEntry(start), error=None)
            for number, start in enumerate(index.start_offsets)
        ),
        size_bytes=len(data),
        crc=crc32c(data),
        torn=torn,
    )


def _readable_remote_index(name: str, data: bytes) -> tuple[RemoteIndexFile, CorruptInputError | None]:
    """Return the entries before the first damage, and that damage.

    Raise CorruptInputError if the name or the first entry is wrong.
    """
    damage = None
    while True:
        try:
            return RemoteIndexFile.decode(name, data), damage
        except CorruptInputError as error:
            if not error.at:
                raise
            damage, data = error, data[: error.at]


def _owner(path: Path) -> TopicPartition | None:
    """Return the partition whose folder the file is in; None if the folder has no partition's name."""
    topic, dash, number = path.absolute().parent.name.rpartition("-")
    return TopicPartition(topic, int(number)) if dash and topic and number.isdigit() else None


def _value_fields(stored: StoredValue) -> dict[str, Any]:
    where = {"metadata_offset": stored.metadata_offset, "timestamp_ms": stored.timestamp_ms}
    try:
        event = decode(stored.value)
    except CorruptInputError as error:
        return {"type": None, "error": str(error), "value": stored.value.hex()} | where
    return json_fields(event) | {"dialect": str(dialect_of(event))} | where


def manifest_of(folder: Path) -> Manifest:
    """Read the manifest of a state directory, which must not be changed; it is empty for any other folder.

    Raise CorruptInputError if it is damaged, or OSError.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return Manifest(topic_id=None, metadata_partitions=0)
    status = path.stat()
    return _manifest_at(path, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=4)
def _manifest_at(path: Path, _version: tuple[int, int, int]) -> Manifest:
    # The manifest lists thousands of caches and is asked once for each of them, so the parsed form is cached.
    try:
        return Manifest.loads(read_regular(path))
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def listed_in_manifest(file: CacheFile) -> CacheFile:
    """Return the file with only the entries that the manifest of its state directory lists.

    A crash may leave entries after them, which tierctl ignores. A file that no manifest lists is returned
    unchanged.
    """
    entry = manifest_of(file.path.parent).caches.get(file.path.name)
    if entry is None:
        return file
    return replace(file, entries=file.entries[: entry.events], torn=None)
