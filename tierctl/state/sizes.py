"""Counts and sizes of the segments of user partitions, summed up from the table of segments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tierctl.model import RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition, Uuid
from tierctl.model.events import RemotePartitionDeleteMetadata
from tierctl.state.fold_kernels import numbered
from tierctl.state.queries import SegmentGroups
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import DELETE_FINISHED, FINISHED, STATES
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.decode import rows_of


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """How many segments are in each state, and their `segment_size_in_bytes` in total.

    Both have one row per group of segments and one column per state, in the order of STATES.
    """

    counts: Int64s
    sizes_bytes: Int64s

    @classmethod
    def empty(cls, groups: int) -> Self:
        """Return the sizes of groups without segments."""
        shape = (groups, len(STATES))
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))

    def add(self, groups: Int64s, other: Self, rows: Int64s) -> None:
        """Add row `rows[i]` of `other` to row `groups[i]`."""
        np.add.at(self.counts, groups, other.counts[rows])
        np.add.at(self.sizes_bytes, groups, other.sizes_bytes[rows])

    def of(self, group: int, state: RemoteLogSegmentState) -> tuple[int, int]:
        """Return the number of segments of one group that are in `state`, and their size in bytes."""
        at = group, STATES.index(state)
        return int(self.counts[at]), int(self.sizes_bytes[at])


def keep_sizes(state: TierState) -> None:
    """Replace the segments of `state` by the sizes of their user partitions: about 150 bytes for each.

    A process that folds for another one returns them where no segment is read.
    """
    for table in state.tables.values():
        table.drop_segments(_stacked(_sums(table)))


def keep_facts(state: TierState) -> None:
    """Replace the segments of `state` by facts about those of each user partition: about 250 bytes for each.

    `TierState.map_parts` answers questions about single segments.
    """
    for part in state.partitions.values():
        part.keep_failed_copies()
    for table in state.tables.values():
        table.drop_segments(_stacked(_sums(table)), SegmentGroups.by_owner(table).facts)


def _stacked(sizes: SegmentSizes) -> Int64s:
    return np.stack([sizes.counts, sizes.sizes_bytes], axis=1)


def add_sizes(state: TierState, metadata_partition: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add user partitions of a metadata partition with the sums of their segments.

    A row has `topic`, `topic_id`, `partition`, `delete_state` or None, and for each state of a segment, in
    lower case, the number of segments, and their bytes under the name with `_bytes`.
    """
    by_partition = {TopicIdPartition(Uuid.parse(r["topic_id"]), r["topic"], r["partition"]): r for r in rows}
    table, marks = state.table(metadata_partition), [str(each) for each in RemotePartitionDeleteState]
    numbered(table, rows_of([_named(each) for each in by_partition]))
    partitions = table.partitions
    sums = np.zeros((len(partitions), 2, len(STATES)), np.int64)
    for number, row in enumerate(by_partition.values()):
        sums[number] = [[row.get(f"{each.lower()}{of}", 0) for each in STATES] for of in ("", "_bytes")]
        found = row["delete_state"]
        partitions[number]["delete_state"] = -1 if found is None else marks.index(found)
        partitions[number]["last_offset"] = row["last_event_offset"]
    partitions["live"] = sums[:, 0].sum(axis=1)
    partitions["finished"] = sums[:, 0, FINISHED]
    state.take_partitions(table, 0, metadata_partition)
    table.drop_segments(sums)


def _named(partition: TopicIdPartition) -> RemotePartitionDeleteMetadata:
    """Return an event that names a user partition, and is not applied."""
    return RemotePartitionDeleteMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        broker_id=0,
        event_timestamp_ms=0,
        state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
    )


def sizes_by_group(
    state: TierState, members: Iterable[tuple[int, PartitionState]], groups: int
) -> SegmentSizes:
    """Return the sizes of `groups` groups of user partitions; `members` has each with its group."""
    chosen: dict[int, list[tuple[int, int]]] = {number: [] for number in state.tables}
    for group, part in members:
        chosen[part.metadata_partition].append((group, part.number))
    sizes = SegmentSizes.empty(groups)
    for number, pairs in chosen.items():
        own, rows = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        sizes.add(own, _sizes_by_partition(state.tables[number]), rows)
    return sizes


def _sizes_by_partition(table: SegmentTable) -> SegmentSizes:
    """Return the sizes of each user partition of `table`; the number of the user partition is the row."""
    if table.sums is None:
        return _sums(table)
    counts, sizes_bytes = table.sums.swapaxes(0, 1)
    return SegmentSizes(counts, sizes_bytes)


def _sums(table: SegmentTable) -> SegmentSizes:
    segments, partitions = table.segments, len(table.partitions)
    live = np.flatnonzero(segments["state"] != DELETE_FINISHED)
    keys = segments["owner"][live].astype(np.int64) * len(STATES) + segments["state"][live]
    sizes = segments["size"][live]
    count = partitions * len(STATES)
    # `bincount` adds floats, which are exact for the halves of sizes.
    low, high = (np.bincount(keys, half, count).astype(np.int64) for half in (sizes & 0xFFFF, sizes >> 16))
    totals = low + (high << 16)
    shape = (partitions, len(STATES))
    return SegmentSizes(np.bincount(keys, minlength=count).reshape(shape), totals.reshape(shape))
