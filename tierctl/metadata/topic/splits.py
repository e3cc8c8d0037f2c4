"""`__remote_log_metadata` cut into tasks: what a task has to know, and how it reads its records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tierctl.metadata.base import MetadataTopic
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.local_log import partition_folder
from tierctl.metadata.topic.open import local_folder, open_metadata_topic
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.metadata.topic.store_files import StoredFiles
from tierctl.metadata.topic.stored_log import MetadataLogReader
from tierctl.storage.stores import ObjectStore, open_store
from tierctl.wire.batches.chunks import RecordChunk

RECORDS_PER_SPLIT = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """Where a metadata topic is, for whoever has the same files and rights; it carries no credentials.

    `uri` is what --metadata takes, or a folder in a store, as s3://bucket/folder; `command_config` and
    `config` are paths of Kafka's properties files.
    """

    uri: str
    command_config: str | None = None
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSplit:
    """The records of one metadata partition with offsets in [start_offset, end_offset): a task's work."""

    location: TopicLocation
    metadata_partition: int
    start_offset: int
    end_offset: int


def open_topic(location: TopicLocation) -> MetadataTopic:
    """The topic for reading, as it is now; whoever opens it closes it.

    Raises UsageError, CorruptInputError, NotFoundError, AuthenticationError, MetadataError, and
    RemoteStorageError where it lies in a store.
    """
    match _scheme(location):
        case "kafka":
            command, config = location.command_config, location.config
            return open_metadata_topic(
                location.uri,
                command_config=None if command is None else Path(command),
                server_config=None if config is None else Path(config),
            )
        case "file":
            return MetadataLogReader(local_folder(location.uri))
        case _:
            return MetadataLogReader(Path(), StoredFiles(_store(location.uri)))


def _scheme(location: TopicLocation) -> str:
    return location.uri.partition(":")[0]


# What a process keeps for its next task: connecting takes longer than many a read, and finding an offset in
# a log without indexes gets faster with what was read before.


@lru_cache(maxsize=4)
def _cluster(location: TopicLocation) -> MetadataTopic:
    return open_topic(location)


@lru_cache(maxsize=4)
def _store(uri: str) -> ObjectStore:
    return open_store(uri)


@lru_cache(maxsize=64)
def _local_log(uri: str, metadata_partition: int) -> PartitionLog:
    return PartitionLog(partition_folder(local_folder(uri), metadata_partition), metadata_partition)


def cut(
    location: TopicLocation,
    ranges: Mapping[int, tuple[int, int]],
    *,
    records_per_split: int,
) -> list[MetadataSplit]:
    """Splits of at most so many offsets that cover exactly [start, end) of each partition."""
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


def read_chunks(split: MetadataSplit) -> Iterator[RecordChunk]:
    """The split's records as they are in the log, predicates not applied, with every gap and damage.

    Raises MetadataError, AuthenticationError, RemoteStorageError.
    """
    location, number = split.location, split.metadata_partition
    match _scheme(location):
        case "kafka":
            yield from _cluster(location).read(number, split.start_offset, split.end_offset)
            return
        case "file":
            log = _local_log(location.uri, number)
        case _:
            files = StoredFiles(_store(location.uri), number)
            log = PartitionLog(partition_folder(Path(), number), number, files=files)
    with translated(f"reading {log.folder}"):
        yield from log.read(split.start_offset, split.end_offset)
