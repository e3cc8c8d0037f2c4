"""The loops that find rows of the table of segments by their keys, and add rows for new keys."""

import random
from typing import Any, Final

import numpy as np

from tierctl.kernel import int64, plain_kernel
from tierctl.state.table_arrays import (
    BLOB,
    EPOCHS,
    NAMES,
    NO_OFFSET,
    NO_START,
    PARTITIONS,
    TEXT,
    Arrays,
)
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    ADD,
    CUSTOM,
    CUSTOM_LENGTH,
    EPOCH_COUNT,
    KIND,
    PARTITION,
    PARTITION_DELETE,
    TOPIC,
    TOPIC_ID,
    TOPIC_ID_LOW,
    TOPIC_LENGTH,
)
from tierctl.wire.primitives import copy_items

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
        high, low, partition = int64(event[TOPIC_ID]), int64(event[TOPIC_ID_LOW]), int64(event[PARTITION])
        at, length = int64(event[TOPIC]), int64(event[TOPIC_LENGTH])
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
