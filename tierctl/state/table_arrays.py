"""The arrays of the table of segments, and the loops that find rows by their keys and add new ones."""

import random
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tierctl.kernel import int64, plain_kernel
from tierctl.model import RemoteLogSegmentState, Uuid
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    ADD,
    CUSTOM,
    CUSTOM_LENGTH,
    EPOCH_COUNT,
    KIND,
    PARTITION_DELETE,
    TOPIC,
    TOPIC_ID,
    TOPIC_ID_LOW,
    TOPIC_LENGTH,
)
from tierctl.wire.metadata.decode import (
    PARTITION as EVENT_PARTITION,
)
from tierctl.wire.primitives import copy_items

STATES: Final = tuple(RemoteLogSegmentState)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
"""The states of a segment: indexes of STATES. A segment in state DELETE_FINISHED is deleted."""

# Bits of a segment's `flags`.
TXN_INDEX_EMPTY: Final = 1
KIP405: Final = 2
"""`writer` is a leader epoch, not a broker id."""
ODD_EPOCHS: Final = 8
"""The leader epochs of the event do not ascend strictly."""
RESHAPED: Final = 16
"""The segment was added again with other leader epochs; its former epochs still list it."""
DANGLING: Final = 32
"""A deleted segment that former leader epochs still list."""

SEGMENT: Final = np.dtype(
    [
        ("id_high", "<i8"),
        ("id_low", "<i8"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("max_timestamp", "<i8"),
        ("event_timestamp", "<i8"),
        ("offset", "<i8"),
        ("custom", "<i8"),
        ("size", "<i4"),
        ("owner", "<i4"),
        ("writer", "<i4"),
        ("topic", "<i4"),
        ("links", "<i4"),
        ("link_count", "<i4"),
        ("state", "u1"),
        ("flags", "u1"),
    ],
    align=True,
)
"""A segment. `end` is inclusive, `offset` the metadata offset of its last change.

`custom` is the position of the custom metadata in the blob, after a length of four bytes; -1 is null. `owner`
is the number of its user partition, `topic` that of the name in its event, and its leader epochs are
`link_count` links from `links` on, in the order of its event.
"""

# The values of a link's `status`.
NOT_LISTED: Final = 0
READABLE: Final = 1
WAITING: Final = 2
REPEATED: Final = 3
"""A later link of the segment has the same leader epoch."""
LEFT: Final = 4
"""The link of a deleted segment that its leader epoch still lists."""
FREE: Final = 5

LINK: Final = np.dtype(
    [
        ("start", "<i8"),
        ("epoch", "<i4"),
        ("segment", "<i4"),
        ("previous", "<i4"),
        ("next", "<i4"),
        ("stale", "<i4"),
        ("status", "u1"),
    ],
    align=True,
)
"""A leader epoch of a segment: the offset at which it starts there, and its place in the lists of the epoch.

`stale` leads from a segment's first link to the links of former leader epochs that still list the segment.
"""

EPOCH: Final = np.dtype(
    [
        ("highest", "<i8"),
        ("owner", "<i4"),
        ("epoch", "<i4"),
        ("first_readable", "<i4"),
        ("last_readable", "<i4"),
        ("first_waiting", "<i4"),
        ("last_waiting", "<i4"),
        ("waiting_count", "<i4"),
        ("next", "<i4"),
        ("left", "<i4"),
    ],
    align=True,
)
"""A leader epoch of a user partition (RemoteLogLeaderEpochState).

Its readable segments are a list by the offset at which the epoch starts in each, the others that Kafka's
class calls unreferenced are a list in order of arrival. `highest` is the highest offset that was ever copied,
NO_OFFSET for none. `next` is the next leader epoch of the user partition. `left` counts deleted segments that
it still lists.
"""

PARTITION: Final = np.dtype(
    [
        ("id_high", "<i8"),
        ("id_low", "<i8"),
        ("last_offset", "<i8"),
        ("lowest_start", "<i8"),
        ("delete_marked", "<i8"),
        ("copied_end", "<i8"),
        ("copied_offset", "<i8"),
        ("failed_start", "<i8"),
        ("failed_since", "<i8"),
        ("failed_last", "<i8"),
        ("failed_copies", "<i4"),
        ("failed_by", "<i4"),
        ("partition", "<i4"),
        ("topic", "<i4"),
        ("live", "<i4"),
        ("finished", "<i4"),
        ("first_epoch", "<i4"),
        ("latest_epoch", "<i4"),
        ("delete_state", "i1"),
        ("is_foreign", "u1"),
    ],
    align=True,
)
"""A user partition.

`last_offset` is the metadata offset of its last event (NO_OFFSET without any), `lowest_start` the lowest
start offset that an event added (NO_START without any), `live` and `finished` count segments that are not
deleted. `latest_epoch` is the highest leader epoch that a segment ever named, -1 without any. `delete_state`
is an index of RemotePartitionDeleteState, -1 for none; `delete_marked` the metadata offset of the first
DELETE_PARTITION_MARKED of a deletion that is not finished, -1 without one. `copied_end` is the end offset of
the last copy that finished, and `copied_offset` the metadata offset of its event (NO_OFFSET without any).
`failed_copies` counts the copies that failed since a copy last reached the offset where they begin, 0 for
none; `failed_since` and `failed_last` are the times when the first and the last of them were begun, and the
last one began at offset `failed_start` and was made by broker `failed_by` (NO_BROKER if unknown). A foreign
user partition has its segments in the table of another metadata partition.
"""

NAME: Final = np.dtype([("at", "<i8"), ("length", "<i4"), ("hash", "<i8")], align=True)
"""The name of a topic: its place in `text`, and a hash of it."""

NO_OFFSET: Final = -(1 << 63)
NO_BROKER: Final = -(1 << 31)
NO_START: Final = (1 << 63) - 1

# Indexes of `Arrays.counts`.
SEGMENTS, LINKS, EPOCHS, PARTITIONS, NAMES, TEXT, BLOB, DEAD, COUNTS = range(9)

Array = npt.NDArray[Any]


class Arrays(NamedTuple):
    """The arrays of a table, of which `counts` says how many items are in use.

    The `…_slots` are hash tables with open addressing: a power of two of slots, at most half of them in use,
    with the number of a row or -1. `seeds` are the factors of the hash function: ids and names are chosen by
    others, who must not be able to choose their slots. `scratch` has two rows of room for the links of any
    segment, for the fold alone: several threads may ask a table at once.
    """

    segments: Array
    links: Array
    epochs: Array
    partitions: Array
    names: Array
    text: Array
    blob: Array
    segment_slots: Array
    epoch_slots: Array
    partition_slots: Array
    name_slots: Array
    seeds: Array
    scratch: Array
    counts: Array


ROW_TYPES: Final = {
    "segments": SEGMENT,
    "links": LINK,
    "epochs": EPOCH,
    "partitions": PARTITION,
    "names": NAME,
    "text": np.dtype("u1"),
    "blob": np.dtype("u1"),
}
"""The arrays with the content of a table, in the order of `Arrays` and of the indexes of `Arrays.counts`."""


def copied(rows: Array, chosen: Any = slice(None)) -> Array:
    """Return a copy of contiguous rows, or of the chosen ones, with the bytes between their fields.

    NumPy would copy field by field, which takes ten times as long and leaves those bytes undefined.
    """
    return np.array(rows.view(f"V{rows.dtype.itemsize}")[chosen]).view(rows.dtype)


_WORD: Final = 0xFFFFFFFF
LENGTH_BYTES: Final = 4
"""The bytes before custom metadata in the blob: their length."""

_HASH_SHIFT: Final = 20
_SEED_BITS: Final = 27


def new_seeds() -> Int64s:
    """Return the factors of the hash function of a table: odd numbers of 28 bits."""
    source = random.SystemRandom()
    return np.array([source.getrandbits(_SEED_BITS) | 1 << _SEED_BITS | 1 for _ in range(5)], np.int64)


def hashes(high: Any, low: Any, number: Any, seeds: Int64s) -> Any:
    """Return a hash, at least 0, of a pair of words and a number below 2^31, or those of arrays of them."""
    total = (
        (high & _WORD) * int64(seeds[0])
        + (high >> 32 & _WORD) * int64(seeds[1])
        + (low & _WORD) * int64(seeds[2])
        + (low >> 32 & _WORD) * int64(seeds[3])
        + (number & _WORD) * int64(seeds[4])
    )
    return (total ^ total >> 41) >> _HASH_SHIFT


mixed: Final = plain_kernel(hashes)
"""The kernel of `hashes`."""


@plain_kernel
def find_segment(t: Arrays, owner: int, high: int, low: int) -> tuple[int, int]:
    """Return the slot of a segment's id in a user partition, and its row, -1 if no event named it.

    The row may be that of a deleted segment.
    """
    mask = len(t.segment_slots) - 1
    slot = mixed(high, low, owner, t.seeds) & mask
    row = int64(t.segment_slots[slot])
    while row >= 0:
        segment = t.segments[row]
        if segment["id_low"] == low and segment["id_high"] == high and segment["owner"] == owner:
            break
        slot = (slot + 1) & mask
        row = int64(t.segment_slots[slot])
    return slot, row


@plain_kernel
def find_epoch(t: Arrays, owner: int, epoch: int) -> tuple[int, int]:
    """Return the slot of a leader epoch of a user partition, and its row, -1 if no segment named it."""
    mask = len(t.epoch_slots) - 1
    slot = mixed(epoch, int64(0), owner, t.seeds) & mask
    row = int64(t.epoch_slots[slot])
    while row >= 0 and (t.epochs[row]["epoch"] != epoch or t.epochs[row]["owner"] != owner):
        slot = (slot + 1) & mask
        row = int64(t.epoch_slots[slot])
    return slot, row


@plain_kernel
def find_partition(t: Arrays, high: int, low: int, partition: int) -> tuple[int, int]:
    """Return the slot of a user partition, and its number, -1 if no event named it."""
    mask = len(t.partition_slots) - 1
    slot = mixed(high, low, partition, t.seeds) & mask
    row = int64(t.partition_slots[slot])
    while row >= 0:
        known = t.partitions[row]
        if known["id_low"] == low and known["id_high"] == high and known["partition"] == partition:
            break
        slot = (slot + 1) & mask
        row = int64(t.partition_slots[slot])
    return slot, row


@plain_kernel
def is_name(t: Arrays, number: int, data: NdArray, at: int, length: int) -> bool:
    """Return whether a name in the table is data[at:at + length]."""
    if t.names[number]["length"] != length:
        return False
    place = int64(t.names[number]["at"])
    for i in range(length):
        if t.text[place + i] != data[at + i]:
            return False
    return True


@plain_kernel
def name_hash(data: NdArray, at: int, length: int) -> int:
    """Return a hash of data[at:at + length] with 32 bits."""
    code = int64(0)
    for i in range(at, at + length):
        code = (31 * code + int64(data[i])) & _WORD
    return code


@plain_kernel
def name_number(t: Arrays, data: NdArray, at: int, length: int) -> int:
    """Return the number of the name data[at:at + length], which is new if the table does not know it."""
    code = name_hash(data, at, length)
    mask = len(t.name_slots) - 1
    slot = mixed(code, length, int64(0), t.seeds) & mask
    row = int64(t.name_slots[slot])
    while row >= 0:
        if t.names[row]["hash"] == code and is_name(t, row, data, at, length):
            return row
        slot = (slot + 1) & mask
        row = int64(t.name_slots[slot])
    row = int64(t.counts[NAMES])
    place = int64(t.counts[TEXT])
    name = t.names[row]
    name["at"], name["length"], name["hash"] = place, length, code
    copy_items(t.text, place, data, at, length)
    t.name_slots[slot] = row
    t.counts[NAMES] = row + 1
    t.counts[TEXT] = place + length
    return row


@plain_kernel
def room_for(events: Int64s) -> tuple[int, int, int, int, int, int]:
    """Return what events, rows of `wire.metadata.decode`, can add to a table.

    That is the number of segments, of names of user partitions, and of leader epochs, in total and of one
    segment, and the bytes of topic names and of custom metadata.
    """
    adds = named = epochs = longest = text = blob = 0
    for i in range(len(events)):
        event = events[i]
        if event[KIND] > PARTITION_DELETE:
            continue
        named += 1
        text += int64(event[TOPIC_LENGTH])
        blob += max(int64(event[CUSTOM_LENGTH]), 0) + LENGTH_BYTES
        if event[KIND] == ADD:
            count = int64(event[EPOCH_COUNT])
            adds += 1
            epochs += count
            longest = max(longest, count)
    return adds, named, epochs, longest, text, blob


@plain_kernel
def number_partitions(t: Arrays, data: NdArray, rows: Int64s, owners: Int64s, topics: Int64s) -> None:
    """Write the numbers of each event's user partition and topic name, -1 without an event.

    User partitions and names that are new are added to the table.
    """
    for i in range(len(rows)):
        event = rows[i]
        owners[i] = topics[i] = -1
        if event[KIND] > PARTITION_DELETE:
            continue
        high, low, at = int64(event[TOPIC_ID]), int64(event[TOPIC_ID_LOW]), int64(event[TOPIC])
        partition, length = int64(event[EVENT_PARTITION]), int64(event[TOPIC_LENGTH])
        slot, number = find_partition(t, high, low, partition)
        if number < 0:
            number = int64(t.counts[PARTITIONS])
            t.counts[PARTITIONS] = number + 1
            t.partition_slots[slot] = number
            new = t.partitions[number]
            new["id_high"], new["id_low"], new["partition"] = high, low, partition
            new["topic"] = name_number(t, data, at, length)
            new["last_offset"], new["lowest_start"] = NO_OFFSET, NO_START
            new["live"], new["finished"], new["first_epoch"], new["latest_epoch"] = 0, 0, -1, -1
            new["delete_state"], new["delete_marked"], new["is_foreign"] = -1, -1, 0
            new["copied_end"], new["copied_offset"], new["failed_copies"] = NO_OFFSET, NO_OFFSET, 0
            new["failed_start"], new["failed_since"], new["failed_last"], new["failed_by"] = 0, 0, 0, 0
        topic = int64(t.partitions[number]["topic"])
        if not is_name(t, topic, data, at, length):
            topic = name_number(t, data, at, length)
        owners[i], topics[i] = number, topic


@plain_kernel
def epoch_row(t: Arrays, owner: int, epoch: int) -> int:
    """Return the row of a leader epoch of a user partition, which is new if no segment named it before."""
    slot, row = find_epoch(t, owner, epoch)
    if row >= 0:
        return row
    row = int64(t.counts[EPOCHS])
    t.counts[EPOCHS] = row + 1
    t.epoch_slots[slot] = row
    new, partition = t.epochs[row], t.partitions[owner]
    new["highest"], new["owner"], new["epoch"] = NO_OFFSET, owner, epoch
    new["first_readable"], new["last_readable"] = -1, -1
    new["first_waiting"], new["last_waiting"], new["waiting_count"] = -1, -1, 0
    new["next"], new["left"] = partition["first_epoch"], 0
    partition["first_epoch"] = row
    partition["latest_epoch"] = max(int64(partition["latest_epoch"]), epoch)
    return row


@plain_kernel
def set_custom(t: Arrays, row: int, data: NdArray, event: Int64s) -> None:
    """Set the custom metadata of a segment to those of an event."""
    at, length, known = int64(event[CUSTOM]), int64(event[CUSTOM_LENGTH]), int64(t.segments[row]["custom"])
    if length < 0:
        t.segments[row]["custom"] = -1
        return
    if known >= 0 and custom_length(t.blob, known) == length:
        is_same = True
        for i in range(length):
            if t.blob[known + LENGTH_BYTES + i] != data[at + i]:
                is_same = False
                break
        if is_same:
            return
    place = int64(t.counts[BLOB])
    for i in range(LENGTH_BYTES):
        t.blob[place + i] = length >> 8 * i & 0xFF
    copy_items(t.blob, place + LENGTH_BYTES, data, at, length)
    t.counts[BLOB] = place + LENGTH_BYTES + length
    t.segments[row]["custom"] = place


@plain_kernel
def custom_length(blob: NdArray, at: int) -> int:
    """Return the length of the custom metadata at a position of the blob."""
    return int64(blob[at]) | int64(blob[at + 1]) << 8 | int64(blob[at + 2]) << 16 | int64(blob[at + 3]) << 24


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
