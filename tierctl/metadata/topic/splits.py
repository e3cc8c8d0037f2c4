"""The records of the metadata topic cut into tasks for executors, and how a task reads its records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.topic.open import open_topic
from tierctl.model.location import TopicLocation
from tierctl.wire.batches.chunks import RecordChunk

RECORDS_PER_SPLIT = 500_000


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
    """Return splits of at most `records_per_split` offsets that cover [start, end) of each partition."""
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
    """Yield the records of `split` with every gap and damaged range; raise as `open_topic` and `read` do."""
    topic = kept_topic(split.location)
    yield from topic.read(split.metadata_partition, split.start_offset, split.end_offset)
