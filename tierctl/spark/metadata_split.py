"""`__remote_log_metadata` cut into tasks: what a task has to know, and how it reads its records."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tierctl.metadata.base import MetadataChunk, MetadataTopic
from tierctl.metadata.disk_errors import translated
from tierctl.metadata.log_on_disk import partition_folder
from tierctl.metadata.log_reader import MetadataLogReader
from tierctl.metadata.open import local_folder, open_metadata_topic
from tierctl.metadata.partition_log import PartitionLog
from tierctl.spark.metadata_predicates import Predicate
from tierctl.spark.metadata_pruning import wanted_offsets, wanted_partitions
from tierctl.spark.metadata_stores import StoredFiles
from tierctl.storage.objects import ObjectStore
from tierctl.storage.open import open_store

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
    """The records of one metadata partition with offsets in [start_offset, end_offset): a task's work.

    Of these, rows are made of those that all `predicates` are true of, with these `columns`; () is all.
    """

    location: TopicLocation
    metadata_partition: int
    start_offset: int
    end_offset: int
    predicates: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] = ()


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


def plan_splits(
    location: TopicLocation,
    *,
    records_per_split: int = RECORDS_PER_SPLIT,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[MetadataSplit]:
    """What the topic has now, partition by partition in order of offsets; raises as open_topic.

    Left out is what can hold nothing that the predicates are true of.
    """
    with closing(open_topic(location)) as topic:
        ends = topic.end_offsets()
        begins = topic.beginning_offsets()
        numbers = wanted_partitions(topic, begins, ends, predicates)
        ranges = wanted_offsets(topic, numbers, begins, ends, predicates)
    return cut(location, ranges, records_per_split=records_per_split, predicates=predicates, columns=columns)


def cut(
    location: TopicLocation,
    ranges: Mapping[int, tuple[int, int]],
    *,
    records_per_split: int,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[MetadataSplit]:
    """Splits of at most so many offsets that cover exactly [start, end) of each partition."""
    return [
        MetadataSplit(
            location=location,
            metadata_partition=number,
            start_offset=at,
            end_offset=min(at + records_per_split, end),
            predicates=predicates,
            columns=columns,
        )
        for number, (start, end) in sorted(ranges.items())
        for at in range(start, end, records_per_split)
    ]


def read_chunks(split: MetadataSplit) -> Iterator[MetadataChunk]:
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
