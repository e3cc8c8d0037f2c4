"""Which user partitions a decoded chunk speaks of."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.batches.head_columns import Int64s
from tierctl.wire.metadata.partitioner import metadata_partition

_FEW = 1 << 16


def rows_by_user_partition(table: pa.Table) -> tuple[list[tuple[TopicIdPartition, Int64s]], Int64s]:
    """Each user partition with its rows, ascending, and the rows that speak of none.

    Identity is (topic id, partition); the name is that of the first row.
    """
    ids = _ids(table)
    known, whose, distinct = _distinct(table, ids)
    nobodys = np.flatnonzero(np.asarray(ids.is_null()))
    # Small numbers sort in one pass over them.
    order = np.argsort(whose.astype(np.uint16) if distinct < _FEW else whose, kind="stable")
    bounds = np.cumsum(np.bincount(whose, minlength=distinct))[:-1]
    rows = np.split(known[order], bounds) if distinct else []
    return [(_whose(table, ids, int(mine[0])), mine) for mine in rows], nobodys


def _distinct(table: pa.Table, ids: pa.Array) -> tuple[Int64s, Int64s, int]:
    """Rows that speak of a user partition, its number in order of appearance, and how many there are."""
    known = np.flatnonzero(np.asarray(ids.is_valid()))
    chosen = pa.array(known)
    topics = ids.take(chosen).dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = (topics << 32) + table.column("partition").take(chosen).to_numpy()
    encoded = pa.array(keys).dictionary_encode()
    return known, encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


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
    ids = _ids(table)
    known, whose, distinct = _distinct(table, ids)
    firsts = np.full(distinct, len(known))
    np.minimum.at(firsts, whose, np.arange(len(known)))
    return (_whose(table, ids, int(known[first])) for first in firsts.tolist())


def misplaced(table: pa.Table, partition: int, partition_count: int) -> Iterator[TopicIdPartition]:
    """The user partitions whose events belong in another metadata partition, where brokers look for them.

    That is so once the number of metadata partitions was changed: their order is then not known.
    """
    for whose in user_partitions(table):
        if metadata_partition(whose.topic_id, whose.partition, partition_count) != partition:
            yield whose
