"""The user partitions of the events in a decoded chunk."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tierctl.model import TopicIdPartition
from tierctl.state.fold_kernels import numbered
from tierctl.state.table import SegmentTable
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.decode import DecodedEvents
from tierctl.wire.metadata.partitioner import metadata_partitions_of


@dataclass(frozen=True, slots=True)
class UserPartitionRows:
    """The rows of a decoded chunk, grouped by user partition.

    User partition i has number i in `table`, which has no segments, and the rows `rows[bounds[i]:bounds[i +
    1]]`, ascending. Tombstones and records that cannot be decoded have none.
    """

    table: SegmentTable
    rows: Int64s
    bounds: Int64s

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def user_partition(self, at: int) -> TopicIdPartition:
        """Return user partition `at` with the topic name of its first row."""
        return self.table.topic_id_partition(at)


def rows_by_user_partition(events: DecodedEvents) -> UserPartitionRows:
    """Return the rows of each user partition, which is identified by topic id and number."""
    table = SegmentTable()
    owners, _topics = numbered(table, events)
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(len(table.partitions) + 1))
    return UserPartitionRows(table, order[bounds[0] :], bounds - bounds[0])


def misplaced(
    table: SegmentTable, numbers: Iterable[int] | Int64s, partition: int, partition_count: int
) -> Int64s:
    """Return the user partitions whose events belong in another metadata partition than `partition`.

    `numbers` are those of the user partitions to check in `table`. Brokers do not find these events. They
    exist after the number of metadata partitions was changed; the order of the events in both partitions is
    then unknown.
    """
    chosen = np.asarray(numbers, np.int64)
    rows = table.partitions[chosen]
    ids = np.stack([rows["id_high"], rows["id_low"]], axis=1).astype(">i8").view(np.uint8)
    homes = metadata_partitions_of(ids, rows["partition"].astype(np.int64), partition_count)
    found: Int64s = chosen[homes != partition]
    return found
