"""Find the metadata partitions and offsets that can contain events for which predicates are true."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa

from tierctl.errors import UsageError
from tierctl.metadata.topic import MetadataTopic
from tierctl.metadata.user_partitions import first_rows, misplaced
from tierctl.model import Uuid
from tierctl.spark.sources.predicates import Predicate, mask_of
from tierctl.spark.sources.pushed_window import Window
from tierctl.wire.metadata.decode_columns import decode_column
from tierctl.wire.metadata.partitioner import metadata_partition

_TRIED_PARTITIONS = 8
_TRIED_RECORDS = 100


def wanted_partitions(
    topic: MetadataTopic,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    predicates: Collection[Predicate],
) -> list[int]:
    """Return the metadata partitions that can contain events for which `predicates` are true."""
    numbers = _by_number(predicates, sorted(ends))
    by_id = _by_id(predicates, topic.partition_count)
    if by_id is None or not _are_in_place(topic, begins, ends):
        return numbers
    return [number for number in numbers if number in by_id]


def _are_in_place(topic: MetadataTopic, begins: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Return True if events are in the metadata partition that the partition count assigns.

    Only the first events of some partitions are checked. Events are elsewhere if the partition count was
    changed, or if a folder contains only some of the partitions.
    """
    filled = [number for number in sorted(ends) if begins[number] < ends[number]]
    for number in filled[:: len(filled) // _TRIED_PARTITIONS + 1]:
        begin = begins[number]
        for chunk in topic.read(number, begin, min(begin + _TRIED_RECORDS, ends[number])):
            table = decode_column(chunk.values, columns=("topic", "topic_id", "partition"))
            if any(misplaced(table, first_rows(table), number, topic.partition_count)):
                return False
    return True


def _by_number(predicates: Iterable[Predicate], numbers: Sequence[int]) -> list[int]:
    """Return the metadata partitions that satisfy the conditions on `metadata_partition`."""
    conditions = [p for p in predicates if p.column == "metadata_partition"]
    column = pa.array(numbers, pa.int32())
    mask = mask_of(conditions, lambda _: column)
    return list(numbers) if mask is None else column.filter(mask).to_pylist()


def _by_id(predicates: Collection[Predicate], partition_count: int) -> set[int] | None:
    """Return the metadata partitions of the selected user partitions.

    None unless the conditions name both topic ids and partitions.
    """
    ids, partitions = _values(predicates, "topic_id"), _values(predicates, "partition")
    if ids is None or partitions is None:
        return None
    known = [each for each in map(_uuid, ids) if each is not None]
    return {metadata_partition(each, number, partition_count) for each, number in product(known, partitions)}


def wanted_offsets(
    topic: MetadataTopic,
    numbers: Collection[int],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    predicates: Sequence[Predicate],
) -> dict[int, tuple[int, int]]:
    """Return, for each of `numbers`, the metadata offsets [start, end) that can satisfy `predicates`."""
    window = Window.of(predicates, "metadata_offset")
    low, high = window.offsets
    starts: Mapping[int, int] = begins
    if window.first_ms is not None:
        # A condition on time gives only a lower bound of offsets, because timestamps need not increase.
        starts = topic.offsets_for_time(numbers, window.first_ms)
    return {n: (max(low, begins[n], starts[n]), min(high + 1, ends[n])) for n in numbers if n in starts}


def _values(predicates: Iterable[Predicate], column: str) -> set[Any] | None:
    """Return the values that the conditions allow for `column`, or None if they allow any."""
    conditions = [p for p in predicates if p.column == column and not p.is_negated]
    sets = [{p.value} if p.operator == "=" else set(p.value) for p in conditions if p.operator in {"=", "in"}]
    return reduce(set.intersection, sets) if sets else None


def _uuid(text: str) -> Uuid | None:
    try:
        return Uuid.parse(text)
    except UsageError:
        return None
