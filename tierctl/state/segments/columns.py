"""Remote segments as columns: a row each, no objects.

`SegmentKeys` is what finding a segment needs: id, start offset, leader epochs, state. `SegmentColumns` adds
everything else an event says; `LazySegmentColumns` adds a file position instead, and a loader.
"""

from array import array
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tierctl.errors import UsageError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import NestedTags, UnknownTags
from tierctl.state.segments.arrays import Rows, ranges, taken, view
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.segments.java_hash import segment_hash

STATES: Final = tuple(RemoteLogSegmentState)
STATE_MASK: Final = 3
TXN_INDEX_EMPTY: Final = 4
KIP405: Final = 8
POOLED_EPOCHS: Final = 16
ODD_EPOCHS: Final = 32
DEAD: Final = 64
WIDE: Final = 0xFFFF_FFFF
_INT32_MAX: Final = (1 << 31) - 1

Epochs = tuple[tuple[int, int], ...]
Loader = Callable[[int], RemoteLogSegmentMetadata]


class SegmentKeys:
    """Ids, start offsets, leader epochs and states of segments, by row.

    A segment of one epoch keeps it in `epochs`; of several, as [count, epoch, (epoch, offset)…] in `pool`,
    offsets counted from the segment's start; what does not fit there is in `odd_epochs` as it came.
    Rows of deleted segments stay until `keep` renumbers.
    """

    __slots__ = ("epochs", "flags", "ids", "odd_epochs", "partition", "partitions", "pool", "starts")

    def __init__(self) -> None:
        self.ids = SegmentIds()
        self.starts = array("q")
        self.flags = array("B")
        self.epochs = array("i")
        self.pool = array("i")
        self.odd_epochs: dict[int, Epochs] = {}
        self.partition: TopicIdPartition | None = None
        self.partitions: dict[int, TopicIdPartition] = {}

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns hold, room to grow not counted."""
        return self.ids.nbytes + sum(len(column) * column.itemsize for column in self._columns())

    def _columns(self) -> list["array[Any]"]:
        return [self.starts, self.flags, self.epochs, self.pool]

    def state(self, row: int) -> RemoteLogSegmentState:
        """The state of a live segment."""
        return STATES[self.flags[row] & STATE_MASK]

    def epoch_start(self, row: int, epoch: int) -> int:
        """Where that epoch, which must be one of its epochs, starts in the segment of that row."""
        if not self.flags[row] & (POOLED_EPOCHS | ODD_EPOCHS):
            return self.starts[row]
        return _last_start(self.leader_epochs(row), epoch)

    def leader_epochs(self, row: int) -> Epochs:
        """The segment's (epoch, start offset) pairs as its event had them."""
        flags, start = self.flags[row], self.starts[row]
        if flags & ODD_EPOCHS:
            return self.odd_epochs[row]
        if not flags & POOLED_EPOCHS:
            return ((self.epochs[row], start),)
        pool, at = self.pool, self.epochs[row]
        end = at + 2 * pool[at]
        rest = zip(pool[at + 2 : end : 2], pool[at + 3 : end : 2], strict=True)
        return ((pool[at + 1], start), *((epoch, start + delta) for epoch, delta in rest))

    def append(self, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> int:
        """A new row for a segment that `ids` does not know."""
        row = self.ids.append(metadata.segment_id.bytes)
        self.starts.append(0)
        self.flags.append(0)
        self.epochs.append(0)
        self.replace(row, metadata, position)
        return row

    def replace(self, row: int, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> None:
        """Write all of a segment's facts but its id."""
        del position
        self.starts[row] = metadata.start_offset
        self.flags[row] = STATES.index(metadata.state) | metadata.txn_index_empty * TXN_INDEX_EMPTY
        self._set_epochs(row, metadata.start_offset, metadata.segment_leader_epochs)
        partition = metadata.topic_id_partition
        self.partition = self.partition or partition
        _put(self.partitions, row, None if partition == self.partition else partition)

    def _set_epochs(self, row: int, start: int, epochs: Epochs) -> None:
        deltas = [offset - start for _, offset in epochs]
        if deltas[0] != 0 or not all(-_INT32_MAX <= delta <= _INT32_MAX for delta in deltas):
            self.odd_epochs[row] = epochs
            self.flags[row] |= ODD_EPOCHS
            return
        self.odd_epochs.pop(row, None)
        if len(epochs) == 1:
            self.epochs[row] = epochs[0][0]
            return
        self.epochs[row] = len(self.pool)
        self.flags[row] |= POOLED_EPOCHS
        self.pool.append(len(epochs))
        self.pool.append(epochs[0][0])
        for (epoch, _), delta in zip(epochs[1:], deltas[1:], strict=True):
            self.pool.append(epoch)
            self.pool.append(delta)

    def java_hash(self, row: int) -> int:
        """RemoteLogSegmentId.hashCode of the row's segment, unsigned."""
        partition = self.partitions.get(row, self.partition)
        assert partition is not None
        return segment_hash(partition, self.ids.id_of(row))

    def set_state(self, row: int, state: RemoteLogSegmentState) -> None:
        """The segment's state alone."""
        self.flags[row] = self.flags[row] & ~STATE_MASK | STATES.index(state)

    def kill(self, row: int) -> None:
        """The segment is deleted: its id is no longer found, its epochs still are."""
        self.ids.remove(row)
        self.flags[row] |= DEAD
        self.partitions.pop(row, None)

    def is_dead(self, row: int) -> bool:
        """Whether the segment of that row was deleted."""
        return bool(self.flags[row] & DEAD)

    def rows_in(self, state: RemoteLogSegmentState) -> Rows:
        """Rows of segments in that state, in order of arrival."""
        return np.flatnonzero((view(self.flags) & (DEAD | STATE_MASK)) == STATES.index(state))

    def live_rows(self) -> Rows:
        """Rows of segments not deleted, in order of arrival."""
        return np.flatnonzero((view(self.flags) & DEAD) == 0)

    def keep(self, rows: Rows) -> None:
        """Renumber: row `rows[i]` becomes row i, all others go."""
        self.ids.keep(rows)
        self.starts = taken(self.starts, rows)
        self.flags = taken(self.flags, rows)
        self.epochs = taken(self.epochs, rows)
        self._repack_pool()
        numbers = {int(row): i for i, row in enumerate(rows)} if self._sparse() else {}
        for sparse in self._sparse():
            kept = {numbers[row]: value for row, value in sparse.items() if row in numbers}
            sparse.clear()
            sparse.update(kept)

    def _sparse(self) -> list[dict[int, Any]]:
        return [column for column in (self.odd_epochs, self.partitions) if column]

    def _repack_pool(self) -> None:
        """Leave out the pool's epochs of rows that went."""
        rows = np.flatnonzero((view(self.flags) & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS)
        epochs, pool = view(self.epochs), view(self.pool)
        places = epochs[rows].astype(np.int64)
        lengths = 2 * pool[places].astype(np.int64)
        kept = pool[ranges(places, lengths)]
        epochs[rows] = np.cumsum(lengths) - lengths
        del epochs, pool
        self.pool = array("i", kept.tobytes())


class SegmentColumns(SegmentKeys):
    """Everything a segment's events say: about 65 bytes, 8 to 16 more for each further epoch."""

    __slots__ = (
        "blob",
        "customs",
        "ends",
        "event_timestamps",
        "max_timestamps",
        "sizes",
        "tags",
        "wide_ends",
        "writers",
    )

    def __init__(self) -> None:
        super().__init__()
        self.ends = array("I")
        self.wide_ends: dict[int, int] = {}
        self.tags: dict[int, tuple[UnknownTags, NestedTags]] = {}
        self.max_timestamps = array("q")
        self.event_timestamps = array("q")
        self.writers = array("i")
        self.sizes = array("i")
        # Where custom metadata begins in `blob`, behind its length; -1 for none. Made when first used.
        self.customs: array[int] | None = None
        self.blob = bytearray()

    @property
    def nbytes(self) -> int:
        return super().nbytes + len(self.blob)

    def _columns(self) -> list["array[Any]"]:
        own = [self.ends, self.max_timestamps, self.event_timestamps, self.writers, self.sizes]
        return super()._columns() + own + ([] if self.customs is None else [self.customs])

    def end_offset(self, row: int) -> int:
        """The segment's last offset, inclusive."""
        length = self.ends[row]
        return self.wide_ends[row] if length == WIDE else self.starts[row] + length

    def append(self, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> int:
        for column in (self.ends, self.max_timestamps, self.event_timestamps, self.writers, self.sizes):
            column.append(0)
        if self.customs is not None:
            self.customs.append(-1)
        return super().append(metadata, position)

    def replace(self, row: int, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> None:
        super().replace(row, metadata, position)
        length = metadata.end_offset - metadata.start_offset
        self.ends[row] = min(length, WIDE)
        _put(self.wide_ends, row, metadata.end_offset if length >= WIDE else None)
        self.max_timestamps[row] = metadata.max_timestamp_ms
        self.sizes[row] = metadata.segment_size_in_bytes
        tags = (metadata.unknown_tags, metadata.nested_tags)
        _put(self.tags, row, tags if any(tags) else None)
        self._set_event(row, metadata)

    def update(self, row: int, update: RemoteLogSegmentMetadataUpdate, position: int | None = None) -> None:
        """RemoteLogSegmentMetadata.createWithUpdates."""
        del position
        self.set_state(row, update.state)
        self._set_event(row, update)

    def _set_event(self, row: int, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> None:
        self.event_timestamps[row] = event.event_timestamp_ms
        kip405 = event.broker_id is None
        self.flags[row] = self.flags[row] & ~KIP405 | kip405 * KIP405
        self.writers[row] = (event.leader_epoch if kip405 else event.broker_id) or 0
        self.set_custom(row, event.custom_metadata)

    def set_custom(self, row: int, custom: bytes | None) -> None:
        """Custom metadata of the segment, None for none."""
        if custom == self.custom(row):
            return
        if self.customs is None:
            self.customs = array("q", [-1]) * len(self.ends)
        self.customs[row] = -1 if custom is None else len(self.blob)
        if custom is not None:
            self.blob += len(custom).to_bytes(4, "little") + custom

    def custom(self, row: int) -> bytes | None:
        """Custom metadata of the segment."""
        at = -1 if self.customs is None else self.customs[row]
        if at < 0:
            return None
        length = int.from_bytes(self.blob[at : at + 4], "little")
        return bytes(self.blob[at + 4 : at + 4 + length])

    def metadata(self, row: int) -> RemoteLogSegmentMetadata:
        """The segment as its events made it."""
        flags = self.flags[row]
        kip405 = bool(flags & KIP405)
        partition = self.partitions.get(row, self.partition)
        assert partition is not None
        unknown_tags, nested_tags = self.tags.get(row, ((), ()))
        return RemoteLogSegmentMetadata(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=Uuid.from_bytes(self.ids.id_of(row)),
            start_offset=self.starts[row],
            end_offset=self.end_offset(row),
            broker_id=None if kip405 else self.writers[row],
            leader_epoch=self.writers[row] if kip405 else None,
            max_timestamp_ms=self.max_timestamps[row],
            event_timestamp_ms=self.event_timestamps[row],
            segment_leader_epochs=self.leader_epochs(row),
            segment_size_in_bytes=self.sizes[row],
            custom_metadata=self.custom(row),
            state=STATES[flags & STATE_MASK],
            txn_index_empty=bool(flags & TXN_INDEX_EMPTY),
            unknown_tags=unknown_tags,
            nested_tags=nested_tags,
        )

    def kill(self, row: int) -> None:
        super().kill(row)
        self.wide_ends.pop(row, None)
        self.tags.pop(row, None)

    def keep(self, rows: Rows) -> None:
        super().keep(rows)
        self.ends = taken(self.ends, rows)
        self.max_timestamps = taken(self.max_timestamps, rows)
        self.event_timestamps = taken(self.event_timestamps, rows)
        self.writers = taken(self.writers, rows)
        self.sizes = taken(self.sizes, rows)
        if self.customs is not None:
            self.customs = taken(self.customs, rows)
            self._repack_blob()

    def _repack_blob(self) -> None:
        assert self.customs is not None
        blob = bytearray()
        for row, at in enumerate(self.customs):
            if at >= 0:
                self.customs[row] = len(blob)
                blob += self.blob[at : at + 4 + int.from_bytes(self.blob[at : at + 4], "little")]
        self.blob = blob

    def _sparse(self) -> list[dict[int, Any]]:
        return super()._sparse() + [column for column in (self.wide_ends, self.tags) if column]


class LazySegmentColumns(SegmentKeys):
    """Keys of segments, and where in a file the rest of each is (KIP-405's lazy load).

    `load` gives the segment whose entry is at a file position, in the state it has now: each event comes
    with the position of the entry that has it.
    """

    __slots__ = ("load", "positions")

    def __init__(self, load: Loader) -> None:
        super().__init__()
        self.load = load
        self.positions = array("q")

    def _columns(self) -> list["array[Any]"]:
        return [*super()._columns(), self.positions]

    def end_offset(self, row: int) -> int:
        """The segment's last offset, inclusive; read from the file."""
        return self.metadata(row).end_offset

    def append(self, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> int:
        self.positions.append(0)
        return super().append(metadata, position)

    def replace(self, row: int, metadata: RemoteLogSegmentMetadata, position: int | None = None) -> None:
        super().replace(row, metadata, position)
        self.positions[row] = _needed(position)

    def update(self, row: int, update: RemoteLogSegmentMetadataUpdate, position: int | None = None) -> None:
        """The entry at `position` is the segment's from now on."""
        self.positions[row] = _needed(position)
        self.set_state(row, update.state)

    def metadata(self, row: int) -> RemoteLogSegmentMetadata:
        """The segment, read from the file."""
        return self.load(self.positions[row])

    def keep(self, rows: Rows) -> None:
        super().keep(rows)
        self.positions = taken(self.positions, rows)


def _last_start(epochs: Epochs, epoch: int) -> int:
    return next(start for own, start in reversed(epochs) if own == epoch)


def _needed(position: int | None) -> int:
    if position is None:
        raise UsageError("a lazy cache needs the file position of every event's entry")
    return position


def _put(sparse: dict[int, Any], row: int, value: Any) -> None:
    if value:
        sparse[row] = value
    else:
        sparse.pop(row, None)
