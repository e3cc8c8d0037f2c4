"""Opens the metadata topic at any location, and cuts it into tasks for executors; no other module may open
one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path

from tierctl.errors import EngineError, RemoteResourceNotFound, UsageError
from tierctl.files import is_file
from tierctl.metadata.topic.base import (
    DEFAULT_METADATA_PARTITIONS,
    METADATA_TOPIC,
    LogFiles,
    MetadataTopic,
    translated,
)
from tierctl.metadata.topic.folder import FolderTopic, make_topic, on_several_disks, partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings, FolderWriter
from tierctl.model.checked_values import natural_number
from tierctl.model.events import PARTITION_MAX
from tierctl.model.location import TopicLocation, is_uri, require_no_credentials, split_uri
from tierctl.storage import stores
from tierctl.storage.layouts.kafka import StoredLog
from tierctl.storage.stores import ObjectStore
from tierctl.storage.stores.base import SCHEMES, plain_objects, store_uri
from tierctl.wire.batches.batch_head import HEAD_SIZE
from tierctl.wire.batches.segment_file import LogBytes, RecordChunk


class StoreFiles(LogFiles):
    """Implement LogFiles over the objects of `store`; paths are relative to the store's root.

    The listing of a folder is kept until `refresh` or `folders`. Every method raises RemoteStorageError.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._listed: dict[Path, dict[str, int]] = {}

    def folders(self, folder: Path) -> list[str]:
        """Implement `LogFiles.folders` for partition folders; list every partition with one request."""
        self._listed = {}
        self._list((folder / f"{METADATA_TOPIC}-").as_posix())
        return [found.name for found in self._listed if found.parent == folder]

    def names(self, folder: Path) -> list[str]:
        """Implement `LogFiles.names`; a folder that does not exist has no names."""
        return list(self._sizes_bytes(folder))

    def open(self, path: Path) -> LogBytes:
        """Implement `LogFiles.open`; raise RemoteResourceNotFound if the object does not exist."""
        size_bytes = self._sizes_bytes(path.parent).get(path.name)
        if size_bytes is None:
            raise RemoteResourceNotFound(f"{self.name_of(path)} does not exist")
        return StoredLog(partial(self._store.open, path.as_posix()), self.name_of(path), size_bytes)

    def content(self, path: Path) -> bytes | None:
        """Implement `LogFiles.content`."""
        key = path.as_posix()
        is_of_partition = path.parent.name.startswith(f"{METADATA_TOPIC}-")
        exists = (
            path.name in self._sizes_bytes(path.parent) if is_of_partition else self._store.sizes_bytes([key])
        )
        if not exists:
            return None
        with self._store.open(key) as stream:
            return stream.read()

    def name_of(self, path: Path) -> str:
        """Implement `LogFiles.name_of`."""
        return self._store.name_of("" if path == Path() else path.as_posix())

    def refresh(self, folder: Path) -> None:
        """Implement `LogFiles.refresh`."""
        self._listed.pop(folder, None)

    def close(self) -> None:
        """Implement `LogFiles.close`."""
        self._store.close()

    def _sizes_bytes(self, folder: Path) -> dict[str, int]:
        if folder not in self._listed:
            self._listed[folder] = {}
            self._list(f"{folder.as_posix()}/")
        return self._listed[folder]

    def _list(self, prefix: str) -> None:
        for found in plain_objects(self._store.list_objects(prefix)):
            path = Path(found.key)
            self._listed.setdefault(path.parent, {})[path.name] = found.size_bytes


_BASE_OFFSET = struct.Struct(">q")


class SegmentFile(LogFiles):
    """Present `path` as the only segment of the only partition of a topic, without indexes and checkpoints.

    The partition number is that of the file's folder `__remote_log_metadata-N`, 0 in any other folder. The
    segment's base offset is the offset of the file's first batch.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        name, _, number = path.absolute().parent.name.rpartition("-")
        self.partition = (natural_number(number, PARTITION_MAX) or 0) if name == METADATA_TOPIC else 0

    def folders(self, _folder: Path) -> list[str]:
        """Implement `LogFiles.folders`."""
        return [f"{METADATA_TOPIC}-{self.partition}"]

    def names(self, _folder: Path) -> list[str]:
        """Implement `LogFiles.names`."""
        with closing(super().open(self._path)) as file:
            head = file.read(0, HEAD_SIZE)
        # The first bytes of a damaged file may be no offset, and too few for a head are no batch.
        base_offset = max(0, _BASE_OFFSET.unpack_from(head)[0]) if len(head) == HEAD_SIZE else 0
        return [f"{base_offset:020d}.log"]

    def open(self, _path: Path) -> LogBytes:
        """Implement `LogFiles.open`."""
        return super().open(self._path)

    def content(self, _path: Path) -> bytes | None:
        """Implement `LogFiles.content`."""
        return None

    def name_of(self, _path: Path) -> str:
        """Implement `LogFiles.name_of`."""
        return str(self._path)


class IfMissing(StrEnum):
    """The action of `open_topic` if there is no metadata topic.

    FAIL raises NotFoundError. EMPTY reads a folder without partitions as an empty topic. CREATE, for writing,
    creates the topic.
    """

    FAIL = "fail"
    EMPTY = "empty"
    CREATE = "create"


def topic_location(
    option: str,
    given: str,
    *,
    command_config: Path | None = None,
    broker_config: Path | None = None,
    log_dirs: Sequence[Path] = (),
) -> TopicLocation:
    """Return the location that an operator gave as the value of `option`: a URI or a plain path.

    Raises UsageError for an unknown scheme.
    """
    require_no_credentials(option, given)
    scheme = split_uri(option, given).scheme if is_uri(given) else "file"
    if scheme not in {"kafka", *SCHEMES}:
        raise UsageError(
            f"{option} {given}: unknown scheme {scheme!r}",
            hint=f"use kafka://host:port, file:///dir, or a store: {', '.join(SCHEMES)}",
        )
    return TopicLocation(
        uri=given if scheme == "kafka" else store_uri(option, given),
        command_config=None if command_config is None else str(command_config.absolute()),
        broker_config=None if broker_config is None else str(broker_config.absolute()),
        log_dirs=tuple(str(each.absolute()) for each in log_dirs),
        option=option,
    )


def open_topic(
    location: TopicLocation,
    *,
    writable: bool = False,
    complete: bool = False,
    if_missing: IfMissing = IfMissing.FAIL,
    on_torn: Callable[[str], None] | None = None,
    folder: FolderSettings | None = None,
) -> MetadataTopic:
    """Open the metadata topic at `location`; the caller closes it.

    Reading accepts a folder with only some of the partitions unless `complete`: a state may be folded only
    from a complete topic, because the number of partitions decides which events each has. Writing needs a
    folder or a cluster and a complete topic; in a folder it takes the writer's lock. `on_torn` receives a
    message for each log in a folder that ends in an unfinished write. `folder` has settings for writing in a
    folder; a topic that is made on a cluster has the settings of `location.broker_config`.

    Raises UsageError (also for writing to a location that can only be read), NotFoundError,
    CorruptInputError, LockedError, SafetyRefusal, AuthenticationError, MetadataError, and
    RemoteStorageError for an object store.
    """
    if location.is_on_cluster:
        return _on_cluster(location, writable=writable, create=if_missing is IfMissing.CREATE)
    path = None if location.is_in_store else location.path
    if path is not None and not is_file(path):
        if writable:
            return _writable_folder(path, folder, if_missing, on_torn)
        count = DEFAULT_METADATA_PARTITIONS if folder is None else folder.partition_count
        empty_count = None if if_missing is IfMissing.FAIL else count
        placement = None if folder is None else folder.placement
        with translated(f"opening {path}"):
            placement = placement or on_several_disks(path, map(Path, location.log_dirs))
        return FolderTopic(
            path, complete=complete, empty_count=empty_count, placement=placement, on_torn=on_torn
        )
    if writable:
        raise UsageError(
            f"the metadata topic at {location.uri} can only be read",
            hint="a topic in a folder (file:///dir) or on a cluster (kafka://host:port) can be written",
        )
    if path is None:
        return _in_store(location, complete=complete, on_torn=on_torn)
    if complete:
        raise UsageError(
            f"{path} is one segment file: this command needs all partitions of the metadata topic",
            hint="name the folder that contains the __remote_log_metadata-N folders",
        )
    return FolderTopic(path.parent, files=SegmentFile(path), on_torn=on_torn)


def _writable_folder(
    folder: Path, given: FolderSettings | None, if_missing: IfMissing, on_torn: Callable[[str], None] | None
) -> FolderTopic:
    settings = FolderSettings() if given is None else given
    placement = settings.placement
    if if_missing is not IfMissing.CREATE and placement is None:
        # Raises NotFoundError before the writer makes a folder for its lock.
        FolderTopic(folder).close()
    with ExitStack() as opened:
        writer = FolderWriter(folder, settings)
        opened.callback(writer.close)
        with translated(f"opening {folder}"):
            if placement is None:
                # Otherwise the first append makes the partitions that are missing, after every check.
                numbers = partitions_in(folder)
                make_topic(folder, numbers, settings.partition_count, settings.new_topic_id, fs=settings.fs)
        topic = FolderTopic(folder, complete=True, placement=placement, on_torn=on_torn, writer=writer)
        opened.pop_all()
    return topic


def _in_store(
    location: TopicLocation, *, complete: bool, on_torn: Callable[[str], None] | None
) -> FolderTopic:
    with ExitStack() as opened:
        files = StoreFiles(stores.open_store(location.uri, named_by=location.option))
        opened.callback(files.close)
        topic = FolderTopic(Path(), files=files, complete=complete, on_torn=on_torn)
        opened.pop_all()
    return topic


def _on_cluster(location: TopicLocation, *, writable: bool, create: bool) -> MetadataTopic:
    from tierctl.metadata.topic.cluster_topic import open_on_cluster

    return open_on_cluster(location, writable=writable, create=create)


RECORDS_PER_SPLIT = 500_000
TASKS_MAX = 100_000
"""More tasks would only pass over offsets without records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSplit:
    """The records of one metadata partition with offsets in [start_offset, end_offset): a task's input."""

    location: TopicLocation
    metadata_partition: int
    start_offset: int
    end_offset: int


def cut(
    location: TopicLocation,
    ranges: Mapping[int, tuple[int, int]],
    *,
    records_per_split: int,
) -> list[MetadataSplit]:
    """Return splits of at most `records_per_split` offsets that cover [start, end) of each partition.

    They have more offsets where a partition would have over TASKS_MAX splits.
    """
    widest = max((end - start for start, end in ranges.values()), default=0)
    records_per_split = max(records_per_split, widest // TASKS_MAX)
    return [
        MetadataSplit(
            location=location,
            metadata_partition=number,
            start_offset=at,
            end_offset=min(at + records_per_split, end),
        )
        for number, (start, end) in sorted(ranges.items())
        for at in range(start, end, records_per_split)
    ]


@lru_cache(maxsize=4)
def kept_topic(location: TopicLocation) -> MetadataTopic:
    """Return the topic at `location`, opened once for all tasks of this process and never closed.

    Connecting takes longer than many reads, and the positions of offsets in a log without indexes are kept.
    Only `read` may be called, because the topic may have changed since it was opened.
    """
    return open_topic(location)


def read_chunks(split: MetadataSplit) -> Iterator[RecordChunk]:
    """Yield the records of `split` with every gap and damaged range.

    Raise as `open_topic` and `read` do, and EngineError if this process does not see the whole split.
    """
    topic, reached = kept_topic(split.location), split.start_offset
    for chunk in topic.read(split.metadata_partition, split.start_offset, split.end_offset):
        reached = chunk.next_offset
        yield chunk
    require_read(split.metadata_partition, reached, split.end_offset)


def require_read(metadata_partition: int, reached: int, end_offset: int) -> None:
    """Raise EngineError if a metadata partition that the driver saw up to `end_offset` ends before."""
    if reached < end_offset:
        raise EngineError(
            f"an executor found metadata partition {metadata_partition} only up to offset {reached}, "
            f"but it ends at {end_offset}",
            hint="executors must see the same files as this machine: use a shared file system",
        )
