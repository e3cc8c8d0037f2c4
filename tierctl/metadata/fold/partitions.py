"""Folds metadata partitions one after the other into a state."""

from typing import Protocol

import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.user_partitions import misplaced
from tierctl.state.fold import fold
from tierctl.state.tier import Quarantined, TierState
from tierctl.wire.batches.chunks import RecordChunk, joined
from tierctl.wire.metadata import decode_column
from tierctl.wire.metadata.partitioner import metadata_partition


class EventSink(Protocol):
    """Keep the events that are folded: a state directory, its ledger, or a table of the pipeline."""

    @property
    def began_at(self) -> dict[int, int]:
        """Return the first offset read, by metadata partition, where the records before it were lost."""
        ...

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Keep the events of `chunk`; return the chunk and the decoded `table` without events kept before."""
        ...


class PartitionFold:
    """Fold the records of a topic with `partition_count` partitions into `state`.

    A metadata partition goes to `state.quarantined` if a part of its history is missing or unreadable. Folded
    events also go to `sink`.
    """

    def __init__(self, state: TierState, partition_count: int, sink: EventSink | None = None) -> None:
        self._state = state
        self._partition_count = partition_count
        self._sink = sink

    def quarantine_beginnings(self) -> None:
        """Quarantine the partitions whose first records were already lost in an earlier run."""
        began_at = {} if self._sink is None else self._sink.began_at
        for partition, begin in began_at.items():
            self._quarantine(partition, 0, "records from offset 0 on", f"records from offset {begin} on")

    def catch_up(self, topic: MetadataTopic, partition: int, begin: int, end: int) -> None:
        """Fold one metadata partition, which has the offsets [begin, end), from `state.read` to its end."""
        start = self._start(partition, begin, end)
        self._state.read[partition] = start
        for chunk in joined(topic.read(partition, start, end)):
            self.fold(chunk)

    def _start(self, partition: int, begin: int, end: int) -> int:
        """Return the offset to read from; quarantine a partition with lost records or a truncated log."""
        position = self._state.read.get(partition, 0)
        if position < begin:
            if self._sink is not None:
                self._sink.began_at[partition] = begin
            self._quarantine(
                partition, position, f"records from offset {position} on", f"records from offset {begin} on"
            )
        if position > end:
            self._quarantine(partition, end, f"an end at or after {position}", f"an end at {end}")
        return max(position, begin)

    def _quarantine(self, partition: int, offset: int, expected: str, found: str) -> None:
        error = CorruptInputError(
            f"metadata partition {partition}",
            expected=expected,
            found=found,
            hint="its history is not complete, so nothing in it may be deleted",
        )
        known = {(q.metadata_partition, q.metadata_offset, q.error.message) for q in self._state.quarantined}
        if (partition, offset, error.message) not in known:
            self._state.quarantined.append(Quarantined(partition, offset, error))

    def fold(self, chunk: RecordChunk) -> None:
        """Fold the next chunk of a partition; quarantine its damaged ranges and misplaced events."""
        partition = chunk.partition
        table = decode_column(chunk.values)
        if self._sink is not None:
            chunk, table = self._sink.take(chunk, table)
        fold(
            table,
            self._state,
            metadata_partition=partition,
            metadata_offsets=chunk.offsets,
            next_offset=chunk.next_offset,
        )
        for damage in chunk.damage:
            self._state.quarantined.append(Quarantined(partition, damage.offset, damage.error))
        for user_partition in misplaced(table, partition, self._partition_count):
            home = metadata_partition(
                user_partition.topic_id, user_partition.partition, self._partition_count
            )
            self._quarantine(
                partition,
                int(chunk.offsets[0]),
                f"events of {user_partition} in metadata partition {home}",
                f"some from offset {chunk.offsets[0]} on",
            )
