"""Events in a metadata partition where no broker would look for them."""

from collections.abc import Iterator

import pyarrow as pa

from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.partitioner import metadata_partition


def strays(table: pa.Table, partition: int, partition_count: int) -> Iterator[TopicIdPartition]:
    """The user partitions of a decoded chunk whose events belong in another metadata partition.

    That is so once the number of metadata partitions was changed: their order is then not known.
    """
    for whose in user_partitions(table):
        if metadata_partition(whose.topic_id, whose.partition, partition_count) != partition:
            yield whose


def user_partitions(table: pa.Table) -> Iterator[TopicIdPartition]:
    """The user partitions that a decoded chunk speaks of, each once for each name."""
    column = table.column("topic_id")
    ids = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    plain = pa.table({"id": ids, "topic": table.column("topic"), "partition": table.column("partition")})
    unique = plain.group_by(["id", "topic", "partition"]).aggregate([])
    for row in unique.to_pylist():
        if row["id"] is not None:
            yield TopicIdPartition(Uuid.from_bytes(row["id"]), row["topic"], row["partition"])
