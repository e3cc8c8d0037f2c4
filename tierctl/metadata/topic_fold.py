"""Reads metadata partitions into a state: what a manager does for all of them, wherever it is done."""

from typing import Protocol

import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.metadata.topic.base import MetadataTopic
from tierctl.metadata.user_partitions import strays
from tierctl.state.fold import fold
from tierctl.state.tier import Quarantined, TierState
from tierctl.wire.batches.chunks import RecordChunk, joined
from tierctl.wire.metadata import decode_column
from tierctl.wire.metadata.partitioner import metadata_partition


class Keeper(Protocol):
    """Keeps what is read for the next run: a state directory, or the ledger of one."""

    @property
    def began_at(self) -> dict[int, int]:
        """Where reading a metadata partition began, when the topic had lost what came before."""
        ...

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Keep a chunk's events; returns those that were not kept before."""
        ...


class TopicFold:
    """Folds records of a topic of `partition_count` partitions into `state`, as of which it knows no other.

    A metadata partition whose history isn't complete, or isn't understood, is in `state.quarantined`.
    """

    def __init__(self, state: TierState, partition_count: int, keeper: Keeper | None = None) -> None:
        self._state = state
        self._partition_count = partition_count
        self._keeper = keeper

    def quarantine_beginnings(self) -> None:
        """What earlier runs found missing is still missing."""
        began_at = {} if self._keeper is None else self._keeper.began_at
        for partition, begin in began_at.items():
            self._quarantine(partition, 0, "records from offset 0 on", f"records from offset {begin} on")

    def catch_up(self, topic: MetadataTopic, partition: int, begin: int, end: int) -> None:
        """Read one metadata partition, which has the offsets [begin, end), from where the state is on."""
        start = self._start(partition, begin, end)
        self._state.read[partition] = start
        for chunk in joined(topic.read(partition, start, end)):
            self.fold(chunk)

    def _start(self, partition: int, begin: int, end: int) -> int:
        """Where to read on; that records before it are lost, or that the log was cut, is quarantined."""
        position = self._state.read.get(partition, 0)
        if position < begin:
            if self._keeper is not None:
                self._keeper.began_at[partition] = begin
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
        """The next chunk of a partition."""
        partition = chunk.partition
        table = decode_column(chunk.values)
        if self._keeper is not None:
            chunk, table = self._keeper.take(chunk, table)
        fold(
            table,
            self._state,
            metadata_partition=partition,
            metadata_offsets=chunk.offsets.tolist(),
            next_offset=chunk.next_offset,
        )
        for bad in chunk.damage:
            self._state.quarantined.append(Quarantined(partition, bad.offset, bad.error))
        for stray in strays(table, partition, self._partition_count):
            home = metadata_partition(stray.topic_id, stray.partition, self._partition_count)
            self._quarantine(
                partition,
                int(chunk.offsets[0]),
                f"events of {stray} in metadata partition {home}",
                f"some from offset {chunk.offsets[0]} on",
            )
