"""Cut the metadata topic into splits, each with the predicates and columns of the query."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from tierctl.metadata.topic import MetadataSplit, cut, open_topic
from tierctl.metadata.topic.splits import RECORDS_PER_SPLIT
from tierctl.model.location import TopicLocation
from tierctl.spark.sources.metadata.pruning import wanted_offsets, wanted_partitions
from tierctl.spark.sources.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSplit(MetadataSplit):
    """A split, the predicates that its rows must satisfy, and the names of the wanted columns (`()`: all)."""

    predicates: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] = ()


def event_splits(
    splits: Iterable[MetadataSplit], predicates: tuple[Predicate, ...], columns: tuple[str, ...]
) -> list[EventSplit]:
    """Return `splits` with the same predicates and columns for each."""
    return [
        EventSplit(
            location=split.location,
            metadata_partition=split.metadata_partition,
            start_offset=split.start_offset,
            end_offset=split.end_offset,
            predicates=predicates,
            columns=columns,
        )
        for split in splits
    ]


def plan_splits(
    location: TopicLocation,
    *,
    records_per_split: int = RECORDS_PER_SPLIT,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[EventSplit]:
    """Return splits of the topic's current records, ordered by metadata partition and offset.

    Ranges in which no record can satisfy `predicates` are left out. Raises as `open_topic`.
    """
    with closing(open_topic(location)) as topic:
        ends = topic.end_offsets()
        begins = topic.beginning_offsets()
        numbers = wanted_partitions(topic, begins, ends, predicates)
        ranges = wanted_offsets(topic, numbers, begins, ends, predicates)
    splits = cut(location, ranges, records_per_split=records_per_split)
    return event_splits(splits, predicates, columns)
