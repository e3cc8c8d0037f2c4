"""The user partitions of the events in a decoded chunk."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tierctl.model import TopicIdPartition, Uuid
from tierctl.state.segments.columns import stable_order
from tierctl.wire.arrays import Int64s, are_given, array_of, distinct, take_rows
from tierctl.wire.metadata.partitioner import metadata_partitions_of


@dataclass(frozen=True, slots=True)
class UserPartitionRows:
    """The rows of a decoded chunk, grouped by user partition.

    The rows of user partition i are `rows[bounds[i]:bounds[i + 1]]`, ascending. `without` are the rows
    without a user partition: tombstones and records that cannot be decoded.
    """

    table: pa.Table
    keys: list[tuple[bytes, int]]
    """Topic id and number of each user partition."""
    rows: Int64s
    bounds: Int64s
    without: Int64s

    def user_partition(self, at: int) -> TopicIdPartition:
        """Return user partition `at` with the topic name of its first row."""
        topic_id, number = self.keys[at]
        topic = self.table.column("topic")[int(self.rows[self.bounds[at]])].as_py()
        return TopicIdPartition(Uuid.from_bytes(topic_id), topic, number)


def rows_by_user_partition(table: pa.Table) -> UserPartitionRows:
    """Return the rows of each user partition, which is identified by topic id and number."""
    ids = _ids(table)
    known, indexes, distinct = _distinct(table, ids)
    order = stable_order(indexes, distinct)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(indexes, minlength=distinct))])
    rows = known[order]
    firsts = rows[bounds[:-1]]
    keys = zip(
        take_rows(ids, firsts).to_pylist(),
        take_rows(table.column("partition"), firsts).to_pylist(),
        strict=True,
    )
    without = np.flatnonzero(~are_given(ids))
    return UserPartitionRows(table, list(keys), rows, bounds, without)


def _distinct(table: pa.Table, ids: pa.Array) -> tuple[Int64s, Int64s, int]:
    """Return the rows with a user partition, a partition index for each row, and the partition count.

    The indexes are in order of first appearance.
    """
    known = np.flatnonzero(are_given(ids))
    topics, _ = distinct(take_rows(ids, known))
    keys = (topics << 32) + take_rows(table.column("partition"), known).to_numpy()
    indexes, found = distinct(array_of(pa.int64(), keys))
    return known, indexes, len(found)


def _ids(table: pa.Table) -> pa.Array:
    column = table.column("topic_id")
    return pa.chunked_array(
        [chunk.storage for chunk in column.chunks], column.type.storage_type
    ).combine_chunks()


def _user_partition(table: pa.Table, ids: pa.Array, row: int) -> TopicIdPartition:
    return TopicIdPartition(
        Uuid.from_bytes(ids[row].as_py()),
        table.column("topic")[row].as_py(),
        table.column("partition")[row].as_py(),
    )


def user_partitions(table: pa.Table) -> Iterator[TopicIdPartition]:
    """Yield each user partition once, in order of first appearance."""
    ids = _ids(table)
    return (_user_partition(table, ids, row) for row in first_rows(table).tolist())


def first_rows(table: pa.Table) -> Int64s:
    """Return the first row of each user partition, ascending."""
    known, indexes, distinct = _distinct(table, _ids(table))
    firsts = np.empty(distinct, dtype=np.int64)
    firsts[indexes[::-1]] = known[::-1]
    return firsts


def misplaced(
    table: pa.Table, firsts: Int64s, partition: int, partition_count: int
) -> Iterator[TopicIdPartition]:
    """Yield the user partitions whose events belong in another metadata partition than `partition`.

    `firsts` are the `first_rows` of `table`. Brokers do not find these events. They exist after the number of
    metadata partitions was changed; the order of the events in both partitions is then unknown.
    """
    ids = _ids(table)
    own = take_rows(ids, firsts)
    raw = np.frombuffer(own.buffers()[1], dtype=np.uint8, count=16 * len(own))
    numbers = take_rows(table.column("partition"), firsts).to_numpy().astype(np.int64)
    homes = metadata_partitions_of(raw, numbers, partition_count)
    return (_user_partition(table, ids, row) for row in firsts[homes != partition].tolist())
