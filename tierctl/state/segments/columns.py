"""The remote segments of one user partition as columns, one row per segment."""

from array import array
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import NestedTags, UnknownTags
from tierctl.state.segments.arrays import Rows, ranges, select_rows, view
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.segments.java_hash import segment_hash

STATES: Final = tuple(RemoteLogSegmentState)
FINISHED: Final = STATES.index(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)

# Bits of `SegmentColumns.flags`; the two lowest bits are the index of the segment's state in STATES.
# WAS_FINISHED is set only in the columns of a SegmentTable.
STATE_MASK: Final = 3
TXN_INDEX_EMPTY: Final = 4
KIP405: Final = 8
POOLED_EPOCHS: Final = 16
ODD_EPOCHS: Final = 32
DEAD: Final = 64
WAS_FINISHED: Final = 128

WIDE: Final = 0xFFFF_FFFF
_INT32_MAX: Final = (1 << 31) - 1

Epochs = tuple[tuple[int, int], ...]


class SegmentColumns:
    """Store all facts of the segments of one or several user partitions: about 80 bytes per segment.

    Each further leader epoch of a segment takes 8 to 16 bytes. Rows of deleted segments stay, marked DEAD,
    until `keep` renumbers the rows.

    - `starts`: start offset. `ends`: end offset minus start offset, or WIDE if that needs more than 32 bits;
      then `wide_ends` holds the end offset.
    - `epochs`: the leader epoch of a segment that has one epoch. For several epochs, POOLED_EPOCHS is set and
      `epochs` is an index into `pool`, where [count, epoch, (epoch, offset)...] begins; offsets in `pool`
      are relative to the segment's start offset. Epochs that do not fit this form are in `odd_epochs`, and
      ODD_EPOCHS is set.
    - `writers`: the broker id, or the leader epoch if KIP405 is set.
    - `customs`: position of the custom metadata in `blob`, after a length of four bytes; -1 for null. The
      column is None until a segment has custom metadata.
    - `owners`: the index in `names` of the user partition that the segment's event named.
    - `entered`: set only in the columns of a SegmentTable: increases in the order in which segments that are
      not readable became so.
    - `tags`: unknown tagged fields of each row that has them.
    """

    __slots__ = (
        "blob",
        "customs",
        "ends",
        "entered",
        "epochs",
        "event_timestamps",
        "flags",
        "ids",
        "max_timestamps",
        "names",
        "odd_epochs",
        "owners",
        "pool",
        "sizes",
        "starts",
        "tags",
        "wide_ends",
        "writers",
    )

    def __init__(self) -> None:
        self.ids = SegmentIds()
        self.starts = array("q")
        self.ends = array("I")
        self.wide_ends: dict[int, int] = {}
        self.flags = array("B")
        self.epochs = array("i")
        self.pool = array("i")
        self.odd_epochs: dict[int, Epochs] = {}
        self.max_timestamps = array("q")
        self.event_timestamps = array("q")
        self.writers = array("i")
        self.sizes = array("i")
        self.customs: array[int] | None = None
        self.blob = bytearray()
        self.tags: dict[int, tuple[UnknownTags, NestedTags]] = {}
        self.names: list[TopicIdPartition] = []
        self.owners = array("i")
        self.entered = array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def state(self, row: int) -> RemoteLogSegmentState:
        """Return the state of the segment in `row`."""
        return STATES[self.flags[row] & STATE_MASK]

    def end_offset(self, row: int) -> int:
        """Return the segment's last offset (inclusive)."""
        length = self.ends[row]
        return self.wide_ends[row] if length == WIDE else self.starts[row] + length

    def epoch_start(self, row: int, epoch: int) -> int:
        """Return the offset at which `epoch`, one of the segment's leader epochs, starts in the segment."""
        if not self.flags[row] & (POOLED_EPOCHS | ODD_EPOCHS):
            return self.starts[row]
        return _last_start(self.leader_epochs(row), epoch)

    def leader_epochs(self, row: int) -> Epochs:
        """Return the segment's (epoch, start offset) pairs in the order of its event."""
        flags, start = self.flags[row], self.starts[row]
        if flags & ODD_EPOCHS:
            return self.odd_epochs[row]
        if not flags & POOLED_EPOCHS:
            return ((self.epochs[row], start),)
        pool, at = self.pool, self.epochs[row]
        end = at + 2 * pool[at]
        rest = zip(pool[at + 2 : end : 2], pool[at + 3 : end : 2], strict=True)
        return ((pool[at + 1], start), *((epoch, start + delta) for epoch, delta in rest))

    def append(self, metadata: RemoteLogSegmentMetadata) -> int:
        """Add a row for a segment whose id `ids` does not contain; return the row."""
        row = self.ids.append(metadata.segment_id.bytes)
        for name in ROW_COLUMNS:
            getattr(self, name).append(0)
        if self.customs is not None:
            self.customs.append(-1)
        self.replace(row, metadata)
        return row

    def replace(self, row: int, metadata: RemoteLogSegmentMetadata) -> None:
        """Overwrite all facts of the segment in `row` except its id."""
        self.starts[row] = metadata.start_offset
        self.flags[row] = STATES.index(metadata.state) | metadata.txn_index_empty * TXN_INDEX_EMPTY
        self._set_epochs(row, metadata.start_offset, metadata.segment_leader_epochs)
        self.owners[row] = self._number_of(metadata.topic_id_partition)
        length = metadata.end_offset - metadata.start_offset
        self.ends[row] = min(length, WIDE)
        _put(self.wide_ends, row, metadata.end_offset if length >= WIDE else None)
        self.max_timestamps[row] = metadata.max_timestamp_ms
        self.sizes[row] = metadata.segment_size_in_bytes
        tags = (metadata.unknown_tags, metadata.nested_tags)
        _put(self.tags, row, tags if any(tags) else None)
        self._set_event(row, metadata)

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

    def update(self, row: int, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Apply an update event to the segment (RemoteLogSegmentMetadata.createWithUpdates)."""
        self.flags[row] = self.flags[row] & ~STATE_MASK | STATES.index(update.state)
        self._set_event(row, update)

    def _set_event(self, row: int, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> None:
        self.event_timestamps[row] = event.event_timestamp_ms
        kip405 = event.broker_id is None
        self.flags[row] = self.flags[row] & ~KIP405 | kip405 * KIP405
        self.writers[row] = (event.leader_epoch if kip405 else event.broker_id) or 0
        self.set_custom(row, event.custom_metadata)

    def set_custom(self, row: int, custom: bytes | None) -> None:
        """Store the segment's custom metadata; None is null."""
        if custom is not None or self.customs is not None:
            self.set_customs(np.array([row]), [custom])

    def set_customs(self, rows: Rows, customs: Sequence[bytes | None]) -> None:
        """Store `customs[i]` as the custom metadata of the segment in `rows[i]`; `rows` are distinct."""
        if self.customs is None:
            self.customs = array("q", [-1]) * len(self.ends)
        before = view(self.customs)[rows].tolist()
        at: list[int] = []
        parts: list[bytes] = []
        end = len(self.blob)
        for place, custom in zip(before, customs, strict=True):
            if custom is None or (place >= 0 and custom == self._custom_at(place)):
                at.append(-1 if custom is None else place)
                continue
            at.append(end)
            parts += (len(custom).to_bytes(4, "little"), custom)
            end += 4 + len(custom)
        view(self.customs)[rows] = at
        self.blob += b"".join(parts)

    def custom(self, row: int) -> bytes | None:
        """Return the segment's custom metadata; None is null."""
        at = -1 if self.customs is None else self.customs[row]
        return None if at < 0 else self._custom_at(at)

    def _custom_at(self, at: int) -> bytes:
        length = int.from_bytes(self.blob[at : at + 4], "little")
        return bytes(self.blob[at + 4 : at + 4 + length])

    def metadata(self, row: int) -> RemoteLogSegmentMetadata:
        """Return the segment in `row` as the model's object."""
        flags = self.flags[row]
        kip405 = bool(flags & KIP405)
        partition = self.names[self.owners[row]]
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

    def _number_of(self, partition: TopicIdPartition) -> int:
        if partition not in self.names:
            self.names.append(partition)
        return self.names.index(partition)

    def java_hash(self, row: int) -> int:
        """Return RemoteLogSegmentId.hashCode of the segment's id as an unsigned number."""
        return segment_hash(self.names[self.owners[row]], self.ids.id_of(row))

    def kill(self, row: int) -> None:
        """Mark the segment as deleted: `ids` no longer finds it, but its facts stay in the row."""
        self.ids.remove(row)
        self.flags[row] |= DEAD

    def is_dead(self, row: int) -> bool:
        """Return whether the segment in `row` was deleted."""
        return bool(self.flags[row] & DEAD)

    def rows_in(self, state: RemoteLogSegmentState) -> Rows:
        """Return the rows of segments in `state` that are not deleted, in order of arrival."""
        return np.flatnonzero((view(self.flags) & (DEAD | STATE_MASK)) == STATES.index(state))

    def live_rows(self) -> Rows:
        """Return the rows of segments that are not deleted, in order of arrival."""
        return np.flatnonzero((view(self.flags) & DEAD) == 0)

    def dead_rows(self) -> Rows:
        """Return the rows of deleted segments, in order of arrival."""
        return np.flatnonzero(view(self.flags) & DEAD)

    def keep(self, rows: Rows) -> None:
        """Drop all rows except `rows`, and renumber: row `rows[i]` becomes row i."""
        kept = self.taken(rows)
        for name in self.__slots__:
            setattr(self, name, getattr(kept, name))

    def taken(self, rows: Rows) -> Self:
        """Return a copy of `rows` as other columns, in which row i is `rows[i]`."""
        taken = type(self)()
        for name in ROW_COLUMNS:
            setattr(taken, name, select_rows(getattr(self, name), rows))
        taken.names = self.names
        taken.ids = SegmentIds.of(self.ids.as_words()[rows], taken.live_rows())
        taken.pool = self._pool_of(taken)
        if self.customs is not None:
            taken.customs = select_rows(self.customs, rows)
            taken.blob = self._blob_of(taken.customs)
        for name in _SPARSE_COLUMNS:
            sparse = getattr(self, name)
            if sparse:
                numbered = enumerate(rows.tolist())
                setattr(taken, name, {i: sparse[row] for i, row in numbered if row in sparse})
        return taken

    def append_rows(self, other: Self) -> None:
        """Append the rows of `other`, which must be live and whose `owners` must be numbers in `names`."""
        first = len(self)
        self.ids.extend(other.ids.as_words(), np.ones(len(other), dtype=bool))
        pooled = (view(other.flags) & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS
        epochs = view(other.epochs) + np.where(pooled, len(self.pool), 0).astype(np.int32)
        for name in ROW_COLUMNS:
            getattr(self, name).frombytes(
                (epochs if name == "epochs" else view(getattr(other, name))).tobytes()
            )
        self.pool.extend(other.pool)
        self._append_customs(other)
        for name in _SPARSE_COLUMNS:
            getattr(self, name).update({first + row: v for row, v in getattr(other, name).items()})

    def _append_customs(self, other: Self) -> None:
        if self.customs is None and other.customs is None:
            return
        if self.customs is None:
            self.customs = array("q", [-1]) * (len(self) - len(other))
        places = np.full(len(other), -1) if other.customs is None else view(other.customs).copy()
        places[places >= 0] += len(self.blob)
        self.customs.frombytes(places.astype(np.int64).tobytes())
        self.blob += other.blob

    def _pool_of(self, taken: Self) -> "array[int]":
        """Return a pool with the epochs of the rows in `taken`, to which their `epochs` point afterwards."""
        rows = np.flatnonzero((view(taken.flags) & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS)
        if not len(rows):
            return array("i")
        epochs, pool = view(taken.epochs), view(self.pool)
        places = epochs[rows].astype(np.int64)
        lengths = 2 * pool[places].astype(np.int64)
        kept = pool[ranges(places, lengths)]
        epochs[rows] = np.cumsum(lengths) - lengths
        return array("i", kept.tobytes())

    def _blob_of(self, customs: "array[int]") -> bytearray:
        """Return a blob with the custom metadata of `customs`, whose positions are changed to it."""
        blob = bytearray()
        for row, at in enumerate(customs):
            if at >= 0:
                customs[row] = len(blob)
                blob += self.blob[at : at + 4 + int.from_bytes(self.blob[at : at + 4], "little")]
        return blob


ROW_COLUMNS: Final = (
    "starts",
    "ends",
    "flags",
    "epochs",
    "max_timestamps",
    "event_timestamps",
    "writers",
    "sizes",
    "owners",
    "entered",
)
"""The columns of SegmentColumns that always have one item per row."""

_SPARSE_COLUMNS: Final = ("odd_epochs", "wide_ends", "tags")
"""The columns of SegmentColumns that are dictionaries of the rows that have a value."""


def _last_start(epochs: Epochs, epoch: int) -> int:
    return next(start for own, start in reversed(epochs) if own == epoch)


def _put(sparse: dict[int, Any], row: int, value: Any) -> None:
    """Set `sparse[row]`, or remove the entry if `value` is empty."""
    if value:
        sparse[row] = value
    else:
        sparse.pop(row, None)
