"""`__remote_log_metadata` cut into tasks: what a task has to know, and how it reads its records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.metadata.base import MetadataChunk, MetadataTopic
from tierctl.metadata.open import open_metadata_topic

if TYPE_CHECKING:
    from tierctl.spark.metadata_predicates import Predicate

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

    Of these `predicates` leave out what is not wanted.
    """

    location: TopicLocation
    metadata_partition: int
    start_offset: int
    end_offset: int
    predicates: "tuple[Predicate, ...]" = ()


def open_topic(location: TopicLocation) -> MetadataTopic:
    """The topic for reading; a cluster's is opened once a process, and never closed."""
    return _on_cluster(location) if location.uri.startswith("kafka:") else _open(location)


@lru_cache(maxsize=4)
def _on_cluster(location: TopicLocation) -> MetadataTopic:
    return _open(location)


def _open(location: TopicLocation) -> MetadataTopic:
    command, config = location.command_config, location.config
    return open_metadata_topic(
        location.uri,
        command_config=None if command is None else Path(command),
        server_config=None if config is None else Path(config),
    )


def plan_splits(
    location: TopicLocation, *, records_per_split: int = RECORDS_PER_SPLIT
) -> list[MetadataSplit]:
    """Everything the topic has now, partition by partition in order of offsets."""
    topic = open_topic(location)
    return cut(location, topic.beginning_offsets(), topic.end_offsets(), records_per_split=records_per_split)


def cut(
    location: TopicLocation,
    start_offsets: Mapping[int, int],
    end_offsets: Mapping[int, int],
    *,
    records_per_split: int,
) -> list[MetadataSplit]:
    """Splits of at most so many offsets that cover exactly [start, end) of each partition with an end."""
    return [
        MetadataSplit(
            location=location,
            metadata_partition=number,
            start_offset=start,
            end_offset=min(start + records_per_split, end),
        )
        for number, end in sorted(end_offsets.items())
        for start in range(start_offsets.get(number, 0), end, records_per_split)
    ]


def read_chunks(split: MetadataSplit) -> Iterator[MetadataChunk]:
    """The split's records as they are in the log, predicates not applied, with every gap and damage.

    Raises MetadataError, AuthenticationError, CorruptInputError.
    """
    topic = open_topic(split.location)
    yield from topic.read(split.metadata_partition, split.start_offset, split.end_offset)
