"""Numbers segment ids in order of arrival: 16 bytes for each, and 5 to 11 for the slots of a hash table."""

import struct
from collections.abc import Iterable
from typing import Final, Self

import numpy as np

from tierctl.kernel import int64, plain_kernel
from tierctl.model import Uuid
from tierctl.state.table_arrays import Array, mixed, new_seeds
from tierctl.wire.arrays import Int64s

_LEAST: Final = 16
_words_of = struct.Struct(">qq").unpack


@plain_kernel
def find_id(slots: Array, words: Int64s, seeds: Int64s, high: int, low: int) -> tuple[int, int]:
    """Return the slot of an id, and its number, -1 if it is unknown."""
    mask = len(slots) - 1
    slot = mixed(high, low, int64(0), seeds) & mask
    number = int64(slots[slot])
    while number >= 0 and (words[number, 1] != low or words[number, 0] != high):
        slot = (slot + 1) & mask
        number = int64(slots[slot])
    return slot, number


@plain_kernel
def find_ids(slots: Array, words: Int64s, seeds: Int64s, ids: Int64s, numbers: Int64s) -> None:
    """Write the number of each id, -1 if it is unknown."""
    for i in range(len(ids)):
        _slot, numbers[i] = find_id(slots, words, seeds, int64(ids[i, 0]), int64(ids[i, 1]))


@plain_kernel
def add_ids(slots: Array, words: Int64s, count: int, seeds: Int64s, ids: Int64s, numbers: Int64s) -> int:
    """Write the number of each id, new ones from `count` on; return how many ids there are then.

    `words` must have room for all, and at most three quarters of `slots` may be in use afterwards.
    """
    for i in range(len(ids)):
        slot, number = find_id(slots, words, seeds, int64(ids[i, 0]), int64(ids[i, 1]))
        if number < 0:
            number = count
            words[number, 0], words[number, 1] = ids[i, 0], ids[i, 1]
            slots[slot] = number
            count += 1
        numbers[i] = number
    return count


class SegmentIds:
    """Segment ids, each with a number: 0, 1, 2, … in order of arrival. Picklable."""

    __slots__ = ("_count", "_seeds", "_slots", "_words")

    def __init__(self, ids: Int64s | None = None) -> None:
        self._seeds = new_seeds()
        self._slots = np.full(2 * _LEAST, -1, np.int32)
        self._words = np.empty((_LEAST, 2), np.int64)
        self._count = 0
        if ids is not None:
            self.add(ids)

    @classmethod
    def of(cls, ids: Iterable[Uuid]) -> Self:
        """Return these ids."""
        words = np.frombuffer(b"".join(each.bytes for each in ids), ">i8")
        return cls(words.astype(np.int64).reshape(-1, 2))

    def __getstate__(self) -> bytes:
        # The process that reads it makes slots with other seeds.
        return self.words.tobytes()

    def __setstate__(self, words: bytes) -> None:
        self.__init__(np.frombuffer(words, np.int64).reshape(-1, 2))  # type: ignore[misc]

    def __len__(self) -> int:
        return self._count

    @property
    def words(self) -> Int64s:
        """Return the ids by number, each as its two halves."""
        return self._words[: self._count]

    def find(self, segment_id: bytes) -> int:
        """Return the number of an id of 16 bytes; -1 if it is unknown."""
        return int(self.find_many(np.array([_words_of(segment_id)], np.int64))[0])

    def find_many(self, ids: Int64s) -> Int64s:
        """Return the numbers of many ids, an (n, 2) array of their halves; -1 for unknown ones."""
        numbers = np.empty(len(ids), np.int64)
        find_ids(self._slots, self._words, self._seeds, ids, numbers)
        return numbers

    def add(self, ids: Int64s) -> Int64s:
        """Return the numbers of many ids as `find_many` does; unknown ones get the next numbers."""
        needed = self._count + len(ids)
        if needed > len(self._words):
            words = np.empty((max(needed, 3 * self._count // 2), 2), np.int64)
            words[: self._count] = self.words
            slots = np.full(1 << (4 * len(words) // 3).bit_length(), -1, np.int32)
            add_ids(slots, words, 0, self._seeds, self.words, np.empty(self._count, np.int64))
            self._words, self._slots = words, slots
        numbers = np.empty(len(ids), np.int64)
        self._count = add_ids(self._slots, self._words, self._count, self._seeds, ids, numbers)
        return numbers
