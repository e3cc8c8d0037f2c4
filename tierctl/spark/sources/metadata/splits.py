"""Cut the metadata topic into tasks of splits, each split with the predicates and columns of the query."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import ceil

from tierctl.metadata.topic import MetadataSplit, open_topic
from tierctl.metadata.topic.splits import RECORDS_PER_SPLIT
from tierctl.model.location import TopicLocation
from tierctl.spark.sources.metadata.pruning import wanted_offsets, wanted_partitions
from tierctl.spark.sources.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSplit(MetadataSplit):
    """A split, the predicates that its rows must satisfy, and the names of the wanted columns (`()`: all)."""

    predicates: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] = ()


EventTask = tuple[EventSplit, ...]
"""What one task reads: offsets of one metadata partition, or of several that follow each other."""


def event_tasks(
    location: TopicLocation,
    ranges: Mapping[int, tuple[int, int]],
    *,
    records_per_task: int | None = None,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[EventTask]:
    """Return tasks that read the offsets [start, end) of each metadata partition in `ranges`, in order.

    All tasks read equally many offsets, except the last one: at most `records_per_task`, by default
    RECORDS_PER_SPLIT. Each task takes Spark about 0.12 s of processor time, the time of 40,000 records.
    """
    total = sum(end - start for start, end in ranges.values())
    size = ceil(total / max(ceil(total / (records_per_task or RECORDS_PER_SPLIT)), 1))
    return [
        tuple(
            EventSplit(
                location=location,
                metadata_partition=number,
                start_offset=start,
                end_offset=end,
                predicates=predicates,
                columns=columns,
            )
            for number, start, end in task
        )
        for task in _cut(ranges, size)
    ]


def _cut(ranges: Mapping[int, tuple[int, int]], size: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield lists of (metadata partition, start, end), each with `size` offsets, the last one with fewer."""
    task: list[tuple[int, int, int]] = []
    room = size
    for number, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            stop = min(end, at + room)
            task.append((number, at, stop))
            room -= stop - at
            at = stop
            if not room:
                yield task
                task, room = [], size
    if task:
        yield task


def plan_tasks(
    location: TopicLocation,
    *,
    records_per_task: int | None = None,
    predicates: tuple[Predicate, ...] = (),
    columns: tuple[str, ...] = (),
) -> list[EventTask]:
    """Return tasks that read the topic's current records, ordered by metadata partition and offset.

    Ranges in which no record can satisfy `predicates` are left out. Raises as `open_topic`.
    """
    with closing(open_topic(location)) as topic:
        ends = topic.end_offsets()
        begins = topic.beginning_offsets()
        numbers = wanted_partitions(topic, begins, ends, predicates)
        ranges = wanted_offsets(topic, numbers, begins, ends, predicates)
    return event_tasks(
        location, ranges, records_per_task=records_per_task, predicates=predicates, columns=columns
    )
