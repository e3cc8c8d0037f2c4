"""Flat-file caches of every kind as one thing: tierctl's own, the KIP's, and Kafka 3's snapshots."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.metadata.state_dir.cache_file import SUFFIX, partition_of
from tierctl.metadata.state_dir.manifest import MANIFEST, Manifest
from tierctl.model import MetadataEvent, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.events import dialect_of, printed
from tierctl.model.stored import StoredPartitionState, StoredRecord, StoredSegment, StoredValue
from tierctl.wire.files import flatfile
from tierctl.wire.files import remote_log_snapshot as snapshot
from tierctl.wire.metadata import decode

SNAPSHOT_NAME = "remote_log_snapshot"


class Form(StrEnum):
    """What a cache file is."""

    NAMED = "named"
    UNNAMED = "unnamed"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: `position` is the byte of its type, `record` None when `error` says why."""

    position: int
    record: StoredRecord | MetadataEvent | None
    error: CorruptInputError | None

    def fields(self) -> dict[str, Any]:
        """The entry as JSON-ready fields, its type among them."""
        match self.record:
            case None:
                return {"type": None, "error": str(self.error)}
            case StoredValue():
                return _value_fields(self.record)
            case StoredSegment() | StoredPartitionState():
                return _stored_fields(self.record)
        return printed(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFile:
    """A cache as far as it can be read; `torn` says why it ends before the file does.

    `partition` is whose cache it is, as far as names and header tell; `metadata_partition` is None where the
    file doesn't say it. `metadata_topic_offset` is -1 for a snapshot of 0 bytes, which is an empty one.
    """

    path: Path
    form: Form
    topic: str | None
    topic_id: Uuid | None
    partition: int | None
    metadata_partition: int | None
    metadata_topic_offset: int
    entries: tuple[Entry, ...]
    size_bytes: int
    torn: CorruptInputError | None

    @property
    def errors(self) -> Iterator[CorruptInputError]:
        """What is wrong with its bytes."""
        for entry in self.entries:
            if entry.error is not None:
                yield entry.error
        if self.torn is not None:
            yield self.torn

    @property
    def last_offset(self) -> int:
        """The last metadata offset it holds: what its entries say, else its header."""
        offsets = [e.record.metadata_offset for e in self.entries if isinstance(e.record, StoredValue)]
        return max(offsets, default=self.metadata_topic_offset)

    def header(self) -> dict[str, Any]:
        """The header as JSON-ready fields."""
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
    """The caches in a state directory, or in a broker's log directory."""
    return sorted(
        [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/{SNAPSHOT_NAME}"), *folder.glob(SNAPSHOT_NAME)]
    )


def read_cache(path: Path) -> CacheFile:
    """The file at `path`; CorruptInputError when not even its header can be read. Raises OSError."""
    data = path.read_bytes()
    try:
        if path.name == SNAPSHOT_NAME or _is_snapshot(data):
            return _snapshot(path, data)
        return _flat(path, data)
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def _is_snapshot(data: bytes) -> bool:
    """Whether a file of another name can only be a snapshot: it reads as one, and not as a flat file."""
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
        torn=None if found is None else found.torn,
    )


def _owner(path: Path) -> TopicPartition | None:
    topic, dash, number = path.absolute().parent.name.rpartition("-")
    return TopicPartition(topic, int(number)) if dash and topic and number.isdigit() else None


def _value_fields(stored: StoredValue) -> dict[str, Any]:
    where = {"metadata_offset": stored.metadata_offset, "timestamp_ms": stored.timestamp_ms}
    try:
        event = decode(stored.value)
    except CorruptInputError as error:
        return {"type": None, "error": str(error), "value": stored.value.hex()} | where
    return printed(event) | {"dialect": str(dialect_of(event))} | where


def _stored_fields(record: StoredSegment | StoredPartitionState) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in record.__slots__} | {"type": record.type}
    if isinstance(record, StoredSegment):
        fields["segment_leader_epochs"] = [list(pair) for pair in record.segment_leader_epochs]
    return fields


def owner_of(file: CacheFile) -> TopicIdPartition | None:
    """Whose cache it is, when names and header tell all of it."""
    if file.topic is None or file.topic_id is None or file.partition is None:
        return None
    return TopicIdPartition(file.topic_id, file.topic, file.partition)


def manifest_of(folder: Path) -> Manifest:
    """What a state directory vouches for; nothing in another folder. Raises CorruptInputError, OSError."""
    path = folder / MANIFEST
    if not path.is_file():
        return Manifest(topic_id=None, metadata_partitions=0)
    try:
        return Manifest.loads(path.read_bytes())
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def vouched(file: CacheFile) -> CacheFile:
    """A state directory's cache as far as it is vouched for: what a crash left behind that is passed over."""
    entry = manifest_of(file.path.parent).caches.get(file.path.name)
    if entry is None:
        return file
    return replace(file, entries=file.entries[: entry.events], torn=None)
