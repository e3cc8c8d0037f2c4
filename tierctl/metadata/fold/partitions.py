"""Folds metadata partitions one after the other into a state."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from tierctl.errors import CorruptInputError
from tierctl.metadata.topic.base import ReadableTopic
from tierctl.metadata.user_partitions import misplaced
from tierctl.model.progress import Advance, no_op
from tierctl.state.fold import fold
from tierctl.state.tier import MissingEvents, Quarantined, TierState
from tierctl.wire.batches.chunks import RecordChunk, joined
from tierctl.wire.metadata.decode_columns import KnownLayouts, decode_column
from tierctl.wire.metadata.partitioner import metadata_partition


class EventSink(Protocol):
    """Keep the events that are folded: a state directory, its ledger, or a table of the pipeline."""

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Keep the events of `chunk`; return the chunk and the decoded `table` without events kept before."""
        ...


def _counted(chunks: Iterable[RecordChunk], start: int, advance: Advance) -> Iterator[RecordChunk]:
    """Yield the chunks of a partition from offset `start` on, and give the length of each to `advance`."""
    position = start
    for chunk in chunks:
        yield chunk
        advance(chunk.next_offset - position)
        position = chunk.next_offset


class PartitionFold:
    """Fold the records of a topic with `partition_count` partitions into `state`.

    Events that the metadata topic's retention deleted before they were read go to `state.missing`; unreadable
    records go to `state.quarantined`. Folded events also go to `sink`. `known_layouts` are the byte layouts
    of events that other folds learned; it receives those that this fold learns.
    """

    def __init__(
        self,
        state: TierState,
        partition_count: int,
        sink: EventSink | None = None,
        known_layouts: KnownLayouts | None = None,
    ) -> None:
        self._state = state
        self._partition_count = partition_count
        self._sink = sink
        self._known_layouts = KnownLayouts() if known_layouts is None else known_layouts

    def catch_up(
        self,
        topic: ReadableTopic,
        partition: int,
        begin: int,
        end: int,
        advance: Advance = no_op,
    ) -> None:
        """Fold one metadata partition, which has the offsets [begin, end), from `state.read` to its end.

        `advance` receives the number of offsets of each chunk that is read.
        """
        start = self._start(partition, begin, end)
        self._state.read[partition] = start
        for chunk in joined(_counted(topic.read(partition, start, end), start, advance)):
            self.fold(chunk)

    def _start(self, partition: int, begin: int, end: int) -> int:
        """Return the offset to read from; note missing events, and quarantine a log that was cut."""
        position = self._state.read.get(partition, 0)
        if position > end:
            self._quarantine(partition, end, f"an end at or after {position}", f"an end at {end}")
        elif position < begin and not self._has_noted(partition, begin):
            known_end = self._known_end(partition)
            first = position or (known_end if known_end < begin else 0)
            self._state.add_missing(MissingEvents(partition, first, begin))
        return max(position, begin)

    def _has_noted(self, partition: int, begin: int) -> bool:
        """Return whether events up to `begin` are known to be missing, and are to be read once more."""
        return any(missing.end_offset >= begin for missing in self._state.missing_of(partition))

    def _known_end(self, partition: int) -> int:
        """Return the offset after the last known event of a metadata partition, 0 for none.

        Where a cache of the state directory is damaged, `state.read` is 0 although other caches have events.
        """
        parts = self._state.partitions.values()
        return max((p.last_event_offset + 1 for p in parts if p.metadata_partition == partition), default=0)

    def _quarantine(
        self, partition: int, offset: int, expected: str, found: str, *, is_misplaced: bool = False
    ) -> None:
        error = CorruptInputError(
            f"metadata partition {partition}",
            expected=expected,
            found=found,
            hint="its history is not complete, so nothing in it may be deleted",
        )
        known = {(q.metadata_partition, q.metadata_offset, q.error.message) for q in self._state.quarantined}
        if (partition, offset, error.message) not in known:
            self._state.quarantined.append(Quarantined(partition, offset, error, is_misplaced=is_misplaced))

    def fold(self, chunk: RecordChunk) -> None:
        """Fold the next chunk of a partition; quarantine its damaged ranges and misplaced events."""
        partition = chunk.partition
        table = decode_column(chunk.values, self._known_layouts)
        if self._sink is not None:
            chunk, table = self._sink.take(chunk, table)
        firsts = fold(
            table,
            self._state,
            metadata_partition=partition,
            metadata_offsets=chunk.offsets,
            next_offset=chunk.next_offset,
        )
        for damage in chunk.damage:
            self._state.quarantined.append(Quarantined(partition, damage.offset, damage.error))
        for user_partition in misplaced(table, firsts, partition, self._partition_count):
            home = metadata_partition(
                user_partition.topic_id, user_partition.partition, self._partition_count
            )
            self._quarantine(
                partition,
                int(chunk.offsets[0]),
                f"events of {user_partition} in metadata partition {home}",
                f"some from offset {chunk.offsets[0]} on",
                is_misplaced=True,
            )
