"""Which user partitions a decoded chunk speaks of."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.batch_columns import Int64s
from tierctl.wire.partitioner import metadata_partition

_KEY = np.dtype([("high", "<i8"), ("low", "<i8"), ("partition", "<i8")])


def rows_by_user_partition(table: pa.Table) -> tuple[list[tuple[TopicIdPartition, Int64s]], Int64s]:
    """Each user partition with its rows, ascending, and the rows that speak of none.

    Identity is (topic id, partition); the name is that of the first row.
    """
    ids = _ids(table)
    known = np.flatnonzero(np.asarray(ids.is_valid()))
    nobodys = np.flatnonzero(np.asarray(ids.is_null()))
    keys = np.empty(len(known), _KEY)
    chosen = pa.array(known)
    halves = np.frombuffer(b"".join(ids.take(chosen).to_pylist()), "<i8").reshape(-1, 2)
    keys["high"], keys["low"] = halves[:, 0], halves[:, 1]
    keys["partition"] = table.column("partition").take(chosen).to_numpy()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.cumsum(np.bincount(inverse, minlength=len(first)))[:-1]
    rows = np.split(known[order], bounds) if len(first) else []
    groups = [(_whose(table, ids, int(mine[0])), mine) for mine in rows]
    return groups, nobodys


def _ids(table: pa.Table) -> pa.Array:
    column = table.column("topic_id")
    return pa.chunked_array(
        [chunk.storage for chunk in column.chunks], column.type.storage_type
    ).combine_chunks()


def _whose(table: pa.Table, ids: pa.Array, row: int) -> TopicIdPartition:
    return TopicIdPartition(
        Uuid.from_bytes(ids[row].as_py()),
        table.column("topic")[row].as_py(),
        table.column("partition")[row].as_py(),
    )


def user_partitions(table: pa.Table) -> Iterator[TopicIdPartition]:
    """The user partitions, each once."""
    groups, _ = rows_by_user_partition(table)
    return (whose for whose, _ in groups)


def strays(table: pa.Table, partition: int, partition_count: int) -> Iterator[TopicIdPartition]:
    """The user partitions whose events belong in another metadata partition, where brokers look for them.

    That is so once the number of metadata partitions was changed: their order is then not known.
    """
    for whose in user_partitions(table):
        if metadata_partition(whose.topic_id, whose.partition, partition_count) != partition:
            yield whose
