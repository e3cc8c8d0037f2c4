"""The remote segments of one user partition as columns, one row per segment."""

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import NestedTags, UnknownTags

Rows = npt.NDArray[np.int64]
"""Row numbers."""

_UINT16_COUNT: Final = 1 << 16


def view(column: "array[Any]") -> npt.NDArray[Any]:
    """Return `column` as a NumPy array that shares its memory.

    An array cannot grow while a view of it exists: drop the view first.
    """
    return np.asarray(column)


def select_rows(column: "array[Any]", rows: Rows) -> "array[Any]":
    """Return a copy of `column` that has only the items at `rows`, in that order."""
    return array(column.typecode, view(column)[rows].tobytes())


def stable_order(numbers: npt.NDArray[Any], count: int) -> Rows:
    """Return the stable order of `numbers`, which are from 0 to `count` - 1.

    NumPy sorts numbers of 16 bits by radix, several times as fast as larger ones.
    """
    narrow = numbers.astype(np.uint16) if count <= _UINT16_COUNT else numbers
    return np.argsort(narrow, kind="stable")


def ranges(starts: Rows, lengths: Rows) -> Rows:
    """Return the numbers start, start + 1, ... of each range, concatenated."""
    total = int(lengths.sum())
    firsts = np.cumsum(lengths) - lengths
    return np.repeat(starts - firsts, lengths) + np.arange(total)


_EMPTY: Final = 0
_REMOVED: Final = -1
_LEAST_SIZE: Final = 16
_WORD: Final = (1 << 64) - 1
_unpack_id: Callable[[bytes], tuple[int, int]] = struct.Struct("=QQ").unpack
_pack_id = struct.Struct("=QQ").pack

# Factors of a multiply-shift hash, random per process like Python's string hashes: ids are untrusted input
# and must not be able to choose their slots. The factors do not affect results.
_FACTORS: Final = (hash(b"high half") & _WORD | 1, hash(b"low half") & _WORD | 1)

Ids = npt.NDArray[np.uint64]


class SegmentIds:
    """The 16-byte ids of rows 0, 1, 2, ..., and the row of each live id.

    A row takes 16 bytes, and 4 bytes for each slot of a table that is at most three quarters full.
    """

    __slots__ = ("_built", "_filled", "_unbuilt", "words")

    def __init__(self) -> None:
        self.words = array("Q")
        self._built = array("i", bytes(4 * _LEAST_SIZE))
        self._filled = 0
        self._unbuilt: Rows | None = None

    @classmethod
    def of(cls, ids: Ids, live: Rows) -> Self:
        """Return ids of which the rows `live`, ascending, are found; the hash table is built when needed."""
        made = cls()
        made.words = array("Q", np.ascontiguousarray(ids, dtype=np.uint64).tobytes())
        made._unbuilt = live
        return made

    @classmethod
    def of_bytes(cls, data: memoryview) -> Self:
        """Return ids that are all found; `data` is copied once, and has 16 bytes for each id."""
        made = cls()
        made.words.frombytes(data)
        made._unbuilt = np.arange(len(made))
        return made

    @property
    def _table(self) -> "array[int]":
        """The hash table; an entry is a row plus 1, _EMPTY or _REMOVED."""
        if self._unbuilt is not None:
            rows, self._unbuilt = self._unbuilt, None
            self._rebuild(rows)
        return self._built

    def __getstate__(self) -> tuple["array[int]", "array[int]"]:
        return self.words, array("i", self.live_rows().astype(np.int32).tobytes())

    def __setstate__(self, state: tuple["array[int]", "array[int]"]) -> None:
        # The process that pickled the table had other hash factors, so the slots are computed again.
        self.words, live = state
        self._built, self._filled = array("i", bytes(4 * _LEAST_SIZE)), 0
        self._unbuilt = np.asarray(live).astype(np.int64)

    def __len__(self) -> int:
        return len(self.words) // 2

    def id_of(self, row: int) -> bytes:
        """Return the id in `row`."""
        return _pack_id(self.words[2 * row], self.words[2 * row + 1])

    def find(self, segment_id: bytes) -> int:
        """Return the row of a live id; -1 if the id is unknown."""
        slot = self._slot_of(segment_id)
        return -1 if slot < 0 else self._table[slot] - 1

    def append(self, segment_id: bytes) -> int:
        """Add a row for an id that `find` does not find; return the row."""
        size = len(self._table)
        if 4 * (self._filled + 1) > 3 * size:
            self._rebuild(self.live_rows())
        row = len(self)
        self.words.frombytes(segment_id)
        self._link(segment_id, row)
        return row

    def remove(self, row: int) -> None:
        """Make `find` no longer find the id in `row`; the row keeps its number."""
        self._table[self._slot_of(self.id_of(row))] = _REMOVED

    def find_many(self, ids: Ids) -> Rows:
        """Return the rows of many ids as `find` does; `ids` is an (n, 2) array of native words."""
        table, own = np.asarray(self._table), self.as_words()
        found = np.full(len(ids), -1, dtype=np.int64)
        pending = np.arange(len(ids))
        slots = self._slots(ids)
        while len(pending):
            entries = table[slots].astype(np.int64)
            going = entries != _EMPTY
            pending, slots, entries = pending[going], slots[going], entries[going]
            rows = np.maximum(entries - 1, 0)
            hit = (entries > 0) & (own[rows] == ids[pending]).all(axis=1)
            found[pending[hit]] = rows[hit]
            pending, slots = pending[~hit], (slots[~hit] + 1) & (len(table) - 1)
        return found

    def extend(self, ids: Ids, live: npt.NDArray[np.bool_]) -> Rows:
        """Add rows for distinct ids that `find` does not find; return the rows.

        `find` will find only the ids that are `live`.
        """
        first = len(self)
        self.words.frombytes(np.ascontiguousarray(ids, dtype=np.uint64).tobytes())
        rows = np.arange(first, first + len(ids))
        linked = rows[live]
        if self._unbuilt is not None:
            self._unbuilt = np.concatenate([self._unbuilt, linked])
            return rows
        size = len(self._table)
        if 4 * (self._filled + len(linked)) > 3 * size:
            self._rebuild(np.concatenate([self.live_rows(), linked]))
        else:
            self._link_many(linked)
        return rows

    def remove_many(self, rows: Rows) -> None:
        """Remove the ids in many rows, which must be live, as `remove` does."""
        ids = self.as_words()[rows]
        table = np.asarray(self._table)
        slots, pending = self._slots(ids), np.arange(len(rows))
        while len(pending):
            hit = table[slots] == rows[pending] + 1
            table[slots[hit]] = _REMOVED
            pending, slots = pending[~hit], (slots[~hit] + 1) & (len(table) - 1)

    def live_rows(self) -> Rows:
        """Return the rows whose ids `find` finds, ascending."""
        if self._unbuilt is not None:
            return self._unbuilt
        entries = np.asarray(self._built)
        rows: Rows = np.sort(entries[entries > 0].astype(np.int64) - 1)
        return rows

    def as_words(self) -> Ids:
        """Return the ids as an (n, 2) view; drop the view before the next `append`."""
        return np.asarray(self.words).reshape(-1, 2)

    def _shift(self) -> int:
        return 65 - len(self._table).bit_length()

    def _first_slot(self, high: int, low: int) -> int:
        return ((high * _FACTORS[0] + low * _FACTORS[1]) & _WORD) >> self._shift()

    def _slots(self, ids: Ids) -> Rows:
        mixed = ids[:, 0] * np.uint64(_FACTORS[0]) + ids[:, 1] * np.uint64(_FACTORS[1])
        return (mixed >> np.uint64(self._shift())).astype(np.int64)

    def _slot_of(self, segment_id: bytes) -> int:
        high, low = _unpack_id(segment_id)
        table, words, mask = self._table, self.words, len(self._table) - 1
        slot = self._first_slot(high, low)
        while (entry := table[slot]) != _EMPTY:
            if entry > 0 and words[2 * entry - 2] == high and words[2 * entry - 1] == low:
                return slot
            slot = (slot + 1) & mask
        return -1

    def _link(self, segment_id: bytes, row: int) -> None:
        slot, mask = self._first_slot(*_unpack_id(segment_id)), len(self._table) - 1
        while self._table[slot] > 0:
            slot = (slot + 1) & mask
        self._filled += self._table[slot] == _EMPTY
        self._table[slot] = row + 1

    def _link_many(self, rows: Rows) -> None:
        table = np.asarray(self._table)
        slots = self._slots(self.as_words()[rows])
        self._filled += len(rows)
        while len(rows):
            free = table[slots] == _EMPTY
            table[slots[free]] = rows[free] + 1
            # If several rows wrote to one slot, the last one has it; the others try the next slot.
            lost = table[slots] != rows + 1
            rows, slots = rows[lost], (slots[lost] + 1) & (len(table) - 1)

    def _rebuild(self, rows: Rows) -> None:
        size = _LEAST_SIZE
        # One eighth more than needed: a table that was rebuilt to drop removed slots must not be full at
        # once.
        while 3 * size < 4 * (len(rows) + len(rows) // 8 + 1):
            size *= 2
        self._built = array("i", bytes(4 * size))
        self._filled = 0
        self._unbuilt = None
        self._link_many(rows)


_INT: Final = 0xFFFF_FFFF


def segment_hash(partition: TopicIdPartition, segment_id: bytes) -> int:
    """Return RemoteLogSegmentId.hashCode as an unsigned 32-bit number."""
    return (31 * (31 + _partition_hash(partition)) + _uuid_hash(segment_id)) & _INT


@lru_cache(maxsize=1024)
def _partition_hash(partition: TopicIdPartition) -> int:
    """Return TopicIdPartition.hashCode."""
    topic_partition = 31 * (31 + partition.partition) + _string_hash(partition.topic)
    return (31 * (31 + _uuid_hash(partition.topic_id.bytes)) + topic_partition) & _INT


def _uuid_hash(raw: bytes) -> int:
    """Return Uuid.hashCode."""
    mixed = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
    return (mixed >> 32 ^ mixed) & _INT


def _string_hash(text: str) -> int:
    """Return String.hashCode, computed over UTF-16 units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _INT
    return code


def in_bins(codes: Mapping[int, int], table_size: int) -> list[int]:
    """Return the keys of `codes` in the order in which a ConcurrentHashMap yields them.

    `codes` maps keys to hash codes, `table_size` is the number of bins; keys of one bin keep their order in
    `codes`. Bins of eight and more keys, which the JVM turns into trees, are treated like other bins.
    """
    return sorted(codes, key=lambda key: _spread(codes[key]) & (table_size - 1))


def split_bins(codes: Mapping[int, int], table_size: int) -> list[int]:
    """Return the keys in their order after ConcurrentHashMap.transfer doubles the table.

    Each bin splits in two. The longest run of keys at its end that goes to the same half keeps its order; the
    keys before the run are inserted at the front of their half one by one, and so in reverse order.
    """
    bins: dict[int, list[int]] = {}
    for key in codes:
        bins.setdefault(_spread(codes[key]) & (table_size - 1), []).append(key)
    order: list[int] = []
    for keys in bins.values():
        high = [bool(_spread(codes[key]) & table_size) for key in keys]
        run = len(keys) - 1
        while run > 0 and high[run - 1] == high[-1]:
            run -= 1
        halves: dict[bool, list[int]] = {False: [], True: []}
        halves[high[-1]] = keys[run:]
        for key, goes_high in zip(keys[:run], high, strict=False):
            halves[goes_high].insert(0, key)
        order += halves[False] + halves[True]
    return order


def _spread(code: int) -> int:
    """Return ConcurrentHashMap.spread of an unsigned 32-bit hash code."""
    return (code ^ (code >> 16)) & 0x7FFF_FFFF


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
