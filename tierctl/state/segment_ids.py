"""A set of segment ids that numbers them: 16 bytes for each, and 4 for each slot of a hash table."""

import struct
from array import array
from collections.abc import Callable
from typing import Final, Self

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Row numbers."""

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
