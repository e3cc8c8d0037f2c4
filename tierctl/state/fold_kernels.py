"""The loops that apply events to the table of segments, as Kafka's RemoteLogMetadataCache does.

Source: org.apache.kafka.server.log.remote.metadata.storage, RemoteLogMetadataCache and
RemoteLogLeaderEpochState.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np

from tierctl.kernel import int64, kernel
from tierctl.model.events import (
    PARTITION_TRANSITIONS,
    SEGMENT_TRANSITIONS,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)
from tierctl.state.table_arrays import (
    BLOB,
    DANGLING,
    DEAD,
    DELETE_FINISHED,
    DELETE_STARTED,
    EPOCHS,
    FINISHED,
    FIRST_TABLE_SIZE,
    FREE,
    HAS_TAGS,
    KIP405,
    LEFT,
    LINKS,
    NAMES,
    NO_OFFSET,
    NO_START,
    NOT_LISTED,
    ODD_EPOCHS,
    PARTITIONS,
    READABLE,
    REPEATED,
    RESHAPED,
    SEGMENTS,
    STARTED,
    TEXT,
    TXN_INDEX_EMPTY,
    WAITING,
    Arrays,
)
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    ADD,
    CUSTOM,
    CUSTOM_LENGTH,
    DIALECT,
    END,
    EPOCH_COUNT,
    EPOCHS_AT,
    EVENT_TIMESTAMP,
    KIND,
    MAX_TIMESTAMP,
    PARTITION,
    PARTITION_DELETE,
    SEGMENT_ID,
    SEGMENT_ID_LOW,
    SIZE,
    START,
    STATE,
    TOPIC,
    TOPIC_ID,
    TOPIC_ID_LOW,
    TOPIC_LENGTH,
    WRITER,
)
from tierctl.wire.metadata.decode import HAS_TAGS as EVENT_HAS_TAGS
from tierctl.wire.metadata.decode import TXN_INDEX_EMPTY as EVENT_TXN_INDEX_EMPTY

# The outcome of an event.
ACCEPTED: Final = 0
IGNORED: Final = 1
"""Kafka ignores the event: the state does not allow it, or it updates an unknown segment."""
REFUSED: Final = 2
"""Kafka throws an exception."""
FOREIGN: Final = 3
"""The event belongs to a user partition whose segments are in another table."""
NO_EVENT: Final = 4


def _table_of(transitions: Mapping[Any, Collection[Any]], states: Iterable[Any]) -> NdArray:
    """Return whether a transition is allowed, by its source, with None at the end, and its target."""
    members = list(states)
    allowed = np.zeros((len(members) + 1, len(members)), np.bool_)
    for source, targets in transitions.items():
        row = len(members) if source is None else members.index(source)
        allowed[row, [members.index(target) for target in targets]] = True
    return allowed


_SEGMENT_ALLOWED: Final = _table_of(SEGMENT_TRANSITIONS, RemoteLogSegmentState)
"""Whether a segment may go from a state (row) to another (column)."""
_PARTITION_ALLOWED: Final = _table_of(PARTITION_TRANSITIONS, RemotePartitionDeleteState)
"""Whether the deletion of a user partition may go from a state (row; the last one is none) to another."""

_MARKED: Final = 0
_PARTITION_GONE: Final = 2
_WORD: Final = 0xFFFFFFFF
_HASH_SHIFT: Final = 20


@kernel
def mixed(high: int, low: int, number: int, seeds: Int64s) -> int:
    """Return a hash of a pair of words and a number below 2^31, which is at least 0."""
    total = (
        (high & _WORD) * int64(seeds[0])
        + (high >> 32 & _WORD) * int64(seeds[1])
        + (low & _WORD) * int64(seeds[2])
        + (low >> 32 & _WORD) * int64(seeds[3])
        + (number & _WORD) * int64(seeds[4])
    )
    return (total ^ total >> 41) >> _HASH_SHIFT


@kernel
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


@kernel
def find_epoch(t: Arrays, owner: int, epoch: int) -> tuple[int, int]:
    """Return the slot of a leader epoch of a user partition, and its row, -1 if no segment named it."""
    mask = len(t.epoch_slots) - 1
    slot = mixed(epoch, 0, owner, t.seeds) & mask
    row = int64(t.epoch_slots[slot])
    while row >= 0 and (t.epochs[row]["epoch"] != epoch or t.epochs[row]["owner"] != owner):
        slot = (slot + 1) & mask
        row = int64(t.epoch_slots[slot])
    return slot, row


@kernel
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


@kernel
def is_name(t: Arrays, number: int, data: NdArray, at: int, length: int) -> bool:
    """Return whether a name in the table is data[at:at + length]."""
    if t.names[number]["length"] != length:
        return False
    place = int64(t.names[number]["at"])
    return bool((t.text[place : place + length] == data[at : at + length]).all())


@kernel
def string_hash(data: NdArray, at: int, length: int) -> int:
    """Return String.hashCode, as an unsigned number, of text in UTF-8: computed over its UTF-16 units."""
    code, i, end = 0, at, at + length
    while i < end:
        byte = int64(data[i])
        extra = 0 if byte < 0xC0 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        point = byte if extra == 0 else byte & 0x3F >> extra
        i += 1
        while extra > 0 and i < end:
            point = point << 6 | int64(data[i]) & 0x3F
            i += 1
            extra -= 1
        if point > 0xFFFF:
            code = (31 * code + 0xD800 + (point - 0x10000 >> 10)) & _WORD
            point = 0xDC00 + (point - 0x10000 & 0x3FF)
        code = (31 * code + point) & _WORD
    return code


@kernel
def name_number(t: Arrays, data: NdArray, at: int, length: int) -> int:
    """Return the number of the name data[at:at + length], which is new if the table does not know it."""
    code = string_hash(data, at, length)
    mask = len(t.name_slots) - 1
    slot = mixed(code, length, 0, t.seeds) & mask
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
    t.text[place : place + length] = data[at : at + length]
    t.name_slots[slot] = row
    t.counts[NAMES] = row + 1
    t.counts[TEXT] = place + length
    return row


@kernel
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
        topic = int64(t.partitions[number]["topic"])
        if not is_name(t, topic, data, at, length):
            topic = name_number(t, data, at, length)
        owners[i], topics[i] = number, topic


@kernel
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
    new["table_size"], new["next"], new["left"] = FIRST_TABLE_SIZE, partition["first_epoch"], 0
    partition["first_epoch"] = row
    partition["latest_epoch"] = max(int64(partition["latest_epoch"]), epoch)
    return row


@kernel
def segment_hash(t: Arrays, row: int) -> int:
    """Return RemoteLogSegmentId.hashCode as an unsigned number."""
    segment = t.segments[row]
    partition = t.partitions[int64(segment["owner"])]
    topic_id = int64(partition["id_high"]) ^ int64(partition["id_low"])
    segment_id = int64(segment["id_high"]) ^ int64(segment["id_low"])
    of_topic_id = (topic_id >> 32 ^ topic_id) & _WORD
    topic_partition = 31 * (31 + int64(partition["partition"])) + int64(
        t.names[int64(segment["topic"])]["hash"]
    )
    of_partition = (31 * (31 + of_topic_id) + topic_partition) & _WORD
    return (31 * (31 + of_partition) + ((segment_id >> 32 ^ segment_id) & _WORD)) & _WORD


@kernel
def spread(code: int) -> int:
    """Return ConcurrentHashMap.spread of an unsigned hash code."""
    return (code ^ code >> 16) & 0x7FFFFFFF


@kernel
def waiting_links(t: Arrays, epoch: int) -> Int64s:
    """Return the links of the waiting segments of a leader epoch, in order of arrival."""
    links = np.empty(int64(t.epochs[epoch]["waiting_count"]), np.int64)
    link = int64(t.epochs[epoch]["first_waiting"])
    for i in range(len(links)):
        links[i] = link
        link = int64(t.links[link]["next"])
    return links


@kernel
def relink(t: Arrays, epoch: int, links: Int64s) -> None:
    """Give the waiting list of a leader epoch the order of `links`."""
    before = -1
    for i in range(len(links)):
        link = int64(links[i])
        t.links[link]["previous"] = before
        if before < 0:
            t.epochs[epoch]["first_waiting"] = link
        else:
            t.links[before]["next"] = link
        before = link
    t.links[before]["next"] = -1
    t.epochs[epoch]["last_waiting"] = before


@kernel
def bin_order(codes: Int64s, size: int) -> Int64s:
    """Return the order in which a ConcurrentHashMap of `size` bins yields its keys.

    `codes` are their unsigned hash codes; keys of one bin keep their order. Bins of eight and more keys,
    which the JVM turns into trees, are treated like other bins.
    """
    bins = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        bins[i] = spread(int64(codes[i])) & (size - 1)
    return np.argsort(bins, kind="mergesort")


@kernel
def split_order(codes: Int64s, size: int) -> Int64s:
    """Return the order of keys after ConcurrentHashMap.transfer doubled its `size` bins.

    Each bin splits in two. The longest run of keys at its end that goes to the same half keeps its order; the
    keys before the run are inserted at the front of their half one by one, and so in reverse order.
    """
    order = bin_order(codes, size)
    result, filled, first = np.empty(len(codes), np.int64), 0, 0
    while first < len(order):
        number, end = spread(int64(codes[order[first]])) & (size - 1), first + 1
        while end < len(order) and spread(int64(codes[order[end]])) & (size - 1) == number:
            end += 1
        of_run, run = spread(int64(codes[order[end - 1]])) & size, end - 1
        while run > first and spread(int64(codes[order[run - 1]])) & size == of_run:
            run -= 1
        for half in (0, size):
            for i in range(run - 1, first - 1, -1):
                if spread(int64(codes[order[i]])) & size == half:
                    result[filled] = order[i]
                    filled += 1
            if of_run == half:
                for i in range(run, end):
                    result[filled] = order[i]
                    filled += 1
        first = end
    return result


@kernel
def hashes_of(t: Arrays, links: Int64s) -> Int64s:
    """Return the hash codes of the ids of the links' segments."""
    codes = np.empty(len(links), np.int64)
    for i in range(len(links)):
        codes[i] = segment_hash(t, int64(t.links[int64(links[i])]["segment"]))
    return codes


@kernel
def grow(t: Arrays, epoch: int) -> None:
    """Double the bins of a leader epoch's hash set of unreferenced ids."""
    size, links = int64(t.epochs[epoch]["table_size"]), waiting_links(t, epoch)
    relink(t, epoch, links[split_order(hashes_of(t, links), size)])
    t.epochs[epoch]["table_size"] = 2 * size


@kernel
def add_waiting(t: Arrays, epoch: int, link: int) -> None:
    """Append a link, which is in no list, to the waiting list of its leader epoch."""
    known, added = t.epochs[epoch], t.links[link]
    last = int64(known["last_waiting"])
    added["previous"], added["next"], added["status"] = last, -1, WAITING
    if last < 0:
        known["first_waiting"] = link
    else:
        t.links[last]["next"] = link
    known["last_waiting"] = link
    known["waiting_count"] += 1
    while 4 * int64(known["waiting_count"]) >= 3 * int64(known["table_size"]):
        grow(t, epoch)


@kernel
def unlist(t: Arrays, epoch: int, link: int) -> None:
    """Remove a link from the list of its leader epoch in which it is, if any."""
    removed, known = t.links[link], t.epochs[epoch]
    status, before, after = int64(removed["status"]), int64(removed["previous"]), int64(removed["next"])
    if status not in (WAITING, READABLE):
        return
    if before >= 0:
        t.links[before]["next"] = after
    elif status == WAITING:
        known["first_waiting"] = after
    else:
        known["first_readable"] = after
    if after >= 0:
        t.links[after]["previous"] = before
    elif status == WAITING:
        known["last_waiting"] = before
    else:
        known["last_readable"] = before
    if status == WAITING:
        known["waiting_count"] -= 1
    removed["status"], removed["previous"], removed["next"] = NOT_LISTED, -1, -1


@kernel
def put_readable(t: Arrays, epoch: int, link: int) -> None:
    """Put a link, which is in no list, into the readable list; it replaces one with the same start.

    The search goes from both ends: segments are copied in ascending, sometimes in descending order.
    """
    known, added = t.epochs[epoch], t.links[link]
    start = int64(added["start"])
    before, after = int64(known["last_readable"]), int64(known["first_readable"])
    while before >= 0 and t.links[before]["start"] >= start:
        if after >= 0 and t.links[after]["start"] >= start:
            before = int64(t.links[after]["previous"])
            break
        before, after = int64(t.links[before]["previous"]), int64(t.links[after]["next"])
    after = int64(known["first_readable"]) if before < 0 else int64(t.links[before]["next"])
    if after >= 0 and t.links[after]["start"] == start:
        unlist(t, epoch, after)
        after = int64(known["first_readable"]) if before < 0 else int64(t.links[before]["next"])
    added["previous"], added["next"], added["status"] = before, after, READABLE
    if before < 0:
        known["first_readable"] = link
    else:
        t.links[before]["next"] = link
    if after < 0:
        known["last_readable"] = link
    else:
        t.links[after]["previous"] = link


@kernel
def finish(t: Arrays, epoch: int, link: int, end: int) -> None:
    """Make a segment readable in a leader epoch, which has the offsets up to `end` in it.

    Readable segments that begin at its start or later and do not end higher are superseded: they wait. A
    segment that begins at the same offset while others end higher is in neither list afterwards, as in Kafka.
    """
    known, start = t.epochs[epoch], int64(t.links[link]["start"])
    if int64(known["highest"]) <= end:
        last = int64(known["last_readable"])
        while last >= 0 and t.links[last]["start"] >= start:
            unlist(t, epoch, last)
            add_waiting(t, epoch, last)
            last = int64(known["last_readable"])
    unlist(t, epoch, link)
    put_readable(t, epoch, link)
    if end > int64(known["highest"]):
        known["highest"] = end


@kernel
def named_links(t: Arrays, row: int) -> Int64s:
    """Return the links of a segment that count, one for each leader epoch, ascending by epoch."""
    first, count = int64(t.segments[row]["links"]), int64(t.segments[row]["link_count"])
    links = np.empty(count, np.int64)
    used = 0
    for link in range(first, first + count):
        if t.links[link]["status"] != REPEATED:
            links[used] = link
            used += 1
    links = links[:used]
    if int64(t.segments[row]["flags"]) & ODD_EPOCHS:
        epochs = np.empty(used, np.int64)
        for i in range(used):
            epochs[i] = t.links[int64(links[i])]["epoch"]
        links = links[np.argsort(epochs, kind="mergesort")]
    return links


@kernel
def last_offset(t: Arrays, row: int, links: Int64s, i: int) -> int:
    """Return the last offset that the i-th leader epoch of `named_links` can have in the segment."""
    if i + 1 < len(links):
        return int64(t.links[int64(links[i + 1])]["start"]) - 1
    return int64(t.segments[row]["end"])


@kernel
def has_same_epochs(t: Arrays, row: int, event: Int64s, epochs: Int64s) -> bool:
    """Return whether a segment names the leader epochs of an event, in the same order."""
    count = int64(event[EPOCH_COUNT])
    if t.segments[row]["link_count"] != count:
        return False
    first, at = int64(t.segments[row]["links"]), int64(event[EPOCHS_AT])
    return bool((t.links[first : first + count]["epoch"] == epochs[at : at + count, 0]).all())


@kernel
def new_links(t: Arrays, row: int, event: Int64s, epochs: Int64s) -> None:
    """Give a segment the links of an event's leader epochs, which are in no list."""
    first, count, at = int64(t.counts[LINKS]), int64(event[EPOCH_COUNT]), int64(event[EPOCHS_AT])
    t.counts[LINKS] = first + count
    is_ascending = True
    for i in range(count):
        link = t.links[first + i]
        link["epoch"], link["start"], link["segment"] = epochs[at + i, 0], epochs[at + i, 1], row
        link["previous"], link["next"], link["stale"], link["status"] = -1, -1, -1, NOT_LISTED
        is_ascending = is_ascending and (i == 0 or epochs[at + i, 0] > epochs[at + i - 1, 0])
    segment = t.segments[row]
    segment["links"], segment["link_count"] = first, count
    segment["flags"] &= ~ODD_EPOCHS & 0xFF
    if not is_ascending:
        segment["flags"] |= ODD_EPOCHS
        own = np.empty(count, np.int64)
        for i in range(count):
            own[i] = epochs[at + i, 0]
        order = np.argsort(own, kind="mergesort")
        for i in range(1, count):
            if own[order[i]] == own[order[i - 1]]:
                t.links[first + int64(order[i - 1])]["status"] = REPEATED


@kernel
def take_place(t: Arrays, epoch: int, old: int, link: int) -> None:
    """Put a link at the place of another one of its segment in the waiting list of their leader epoch."""
    known, former, added = t.epochs[epoch], t.links[old], t.links[link]
    before, after = int64(former["previous"]), int64(former["next"])
    added["previous"], added["next"], added["status"] = before, after, WAITING
    if before < 0:
        known["first_waiting"] = link
    else:
        t.links[before]["next"] = link
    if after < 0:
        known["last_waiting"] = link
    else:
        t.links[after]["previous"] = link
    former["status"], former["segment"] = FREE, -1


@kernel
def take_stale(t: Arrays, row: int, epoch: int) -> int:
    """Take the link of a former leader epoch out of a segment's chain; return it, -1 without one."""
    before = int64(t.segments[row]["links"])
    link = int64(t.links[before]["stale"])
    while link >= 0:
        if t.links[link]["epoch"] == epoch:
            t.links[before]["stale"] = t.links[link]["stale"]
            return link
        before, link = link, int64(t.links[link]["stale"])
    return -1


@kernel
def reshape(t: Arrays, row: int, event: Int64s, epochs: Int64s) -> None:
    """Give a segment that waits other leader epochs; its former ones still list it, as in Kafka's cache."""
    segment = t.segments[row]
    owner, old = int64(segment["owner"]), named_links(t, row)
    first, count = int64(segment["links"]), int64(segment["link_count"])
    stale = int64(t.links[first]["stale"])
    new_links(t, row, event, epochs)
    head = int64(segment["links"])
    t.links[head]["stale"] = stale
    new, i = named_links(t, row), 0
    for j in range(len(new)):
        link = int64(new[j])
        epoch = int64(t.links[link]["epoch"])
        while i < len(old) and t.links[int64(old[i])]["epoch"] < epoch:
            i += 1
        place = -1
        if i < len(old) and t.links[int64(old[i])]["epoch"] == epoch:
            place = int64(old[i])
        if place < 0 or t.links[place]["status"] != WAITING:
            place = take_stale(t, row, epoch)
        known = epoch_row(t, owner, epoch)
        if place < 0:
            add_waiting(t, known, link)
        else:
            take_place(t, known, place, link)
    if len(new) != len(old):
        segment["flags"] |= RESHAPED
    for link in range(first, first + count):
        former = t.links[link]
        if former["status"] == WAITING:
            former["stale"] = t.links[head]["stale"]
            t.links[head]["stale"] = link
            segment["flags"] |= RESHAPED
        elif former["status"] != FREE:
            former["status"], former["segment"] = FREE, -1


@kernel
def set_custom(t: Arrays, row: int, data: NdArray, event: Int64s) -> None:
    """Set the custom metadata of a segment to those of an event."""
    at, length, known = int64(event[CUSTOM]), int64(event[CUSTOM_LENGTH]), int64(t.segments[row]["custom"])
    if length < 0:
        t.segments[row]["custom"] = -1
        return
    if known >= 0 and custom_length(t.blob, known) == length:
        is_same = True
        for i in range(length):
            if t.blob[known + 4 + i] != data[at + i]:
                is_same = False
                break
        if is_same:
            return
    place = int64(t.counts[BLOB])
    for i in range(4):
        t.blob[place + i] = length >> 8 * i & 0xFF
    t.blob[place + 4 : place + 4 + length] = data[at : at + length]
    t.counts[BLOB] = place + 4 + length
    t.segments[row]["custom"] = place


@kernel
def custom_length(blob: NdArray, at: int) -> int:
    """Return the length of the custom metadata at a position of the blob."""
    return int64(blob[at]) | int64(blob[at + 1]) << 8 | int64(blob[at + 2]) << 16 | int64(blob[at + 3]) << 24


@kernel
def set_event(t: Arrays, row: int, data: NdArray, event: Int64s, offset: int) -> None:
    """Set what every event states of a segment."""
    segment = t.segments[row]
    segment["state"], segment["writer"] = event[STATE], event[WRITER]
    segment["event_timestamp"], segment["offset"] = event[EVENT_TIMESTAMP], offset
    segment["flags"] = segment["flags"] | KIP405 if event[DIALECT] else segment["flags"] & (~KIP405 & 0xFF)
    set_custom(t, row, data, event)


@kernel
def restore_left(t: Arrays, ghost: int, row: int) -> int:
    """Let former leader epochs that list a deleted segment list it as `row`; return the first link."""
    first = int64(t.links[int64(t.segments[ghost]["links"])]["stale"])
    t.links[int64(t.segments[ghost]["links"])]["stale"] = -1
    t.segments[ghost]["flags"] &= ~DANGLING & 0xFF
    link = first
    while link >= 0:
        known = epoch_row(t, int64(t.segments[row]["owner"]), int64(t.links[link]["epoch"]))
        t.links[link]["segment"] = row
        t.epochs[known]["left"] -= 1
        add_waiting(t, known, link)
        link = int64(t.links[link]["stale"])
    return first


@kernel
def set_facts(t: Arrays, row: int, event: Int64s, topic: int) -> None:
    """Set what only an event that adds a segment states of it, but for its leader epochs."""
    segment = t.segments[row]
    segment["start"], segment["end"], segment["topic"] = event[START], event[END], topic
    segment["max_timestamp"], segment["size"] = event[MAX_TIMESTAMP], event[SIZE]
    segment["flags"] &= ~(TXN_INDEX_EMPTY | HAS_TAGS) & 0xFF
    if event[EVENT_TXN_INDEX_EMPTY] > 0:
        segment["flags"] |= TXN_INDEX_EMPTY
    if event[EVENT_HAS_TAGS]:
        segment["flags"] |= HAS_TAGS


@kernel
def list_new(t: Arrays, row: int, event: Int64s, epochs: Int64s, ghost: int) -> None:
    """Let the leader epochs of a new segment list it; `ghost` is a deleted one of its id."""
    stale = -1
    if ghost >= 0 and int64(t.segments[ghost]["flags"]) & DANGLING:
        stale = restore_left(t, ghost, row)
        t.segments[row]["flags"] |= RESHAPED
    new_links(t, row, event, epochs)
    if stale >= 0:
        # As if the former epochs were those of the segment: `reshape` finds them behind its first link.
        t.links[int64(t.segments[row]["links"])]["stale"] = stale
        reshape(t, row, event, epochs)
        return
    for link in named_links(t, row):
        add_waiting(t, epoch_row(t, int64(t.segments[row]["owner"]), int64(t.links[link]["epoch"])), link)


@kernel
def add_segment(
    t: Arrays, event: Int64s, epochs: Int64s, data: NdArray, owner: int, topic: int, offset: int
) -> tuple[int, int]:
    """Apply an event that adds a segment; return the outcome and the segment's row.

    This is addCopyInProgressSegment.
    """
    start, end, count = int64(event[START]), int64(event[END]), int64(event[EPOCH_COUNT])
    if start < 0 or end < start or count == 0 or event[STATE] != STARTED:
        return REFUSED, -1
    high, low = int64(event[SEGMENT_ID]), int64(event[SEGMENT_ID_LOW])
    slot, row = find_segment(t, owner, high, low)
    ghost = -1
    if row >= 0 and t.segments[row]["state"] == DELETE_FINISHED:
        ghost, row = row, -1
    if row >= 0 and t.segments[row]["state"] != STARTED:
        return IGNORED, row
    partition = t.partitions[owner]
    is_new = row < 0
    if is_new:
        row = int64(t.counts[SEGMENTS])
        t.counts[SEGMENTS] = row + 1
        t.segment_slots[slot] = row
        segment = t.segments[row]
        segment["id_high"], segment["id_low"], segment["owner"] = high, low, owner
        segment["custom"], segment["flags"] = -1, 0
        partition["live"] += 1
    set_facts(t, row, event, topic)
    if is_new:
        list_new(t, row, event, epochs, ghost)
    elif has_same_epochs(t, row, event, epochs):
        first, at = int64(t.segments[row]["links"]), int64(event[EPOCHS_AT])
        for i in range(count):
            t.links[first + i]["start"] = epochs[at + i, 1]
    else:
        reshape(t, row, event, epochs)
    set_event(t, row, data, event, offset)
    partition["lowest_start"] = min(int64(partition["lowest_start"]), start)
    return ACCEPTED, row


@kernel
def update_segment(
    t: Arrays, event: Int64s, data: NdArray, owner: int, offset: int, keep_deleted: bool
) -> tuple[int, int]:
    """Apply an event that updates a segment; return the outcome and the segment's row.

    This is updateRemoteLogSegmentMetadata.
    """
    _slot, row = find_segment(t, owner, int64(event[SEGMENT_ID]), int64(event[SEGMENT_ID_LOW]))
    if row < 0 or t.segments[row]["state"] == DELETE_FINISHED:
        return IGNORED, -1
    before, state = int64(t.segments[row]["state"]), int64(event[STATE])
    if not _SEGMENT_ALLOWED[before, state]:
        return IGNORED, row
    if state == STARTED:
        return REFUSED, row
    if state != DELETE_FINISHED or keep_deleted:
        set_event(t, row, data, event, offset)
    t.segments[row]["state"], t.segments[row]["offset"] = state, offset
    links = named_links(t, row)
    for i in range(len(links)):
        link = int64(links[i])
        epoch = epoch_row(t, owner, int64(t.links[link]["epoch"]))
        if state == FINISHED:
            finish(t, epoch, link, last_offset(t, row, links, i))
        elif state == DELETE_STARTED:
            if t.links[link]["status"] != WAITING:
                unlist(t, epoch, link)
                add_waiting(t, epoch, link)
        else:
            unlist(t, epoch, link)
    partition = t.partitions[owner]
    if before == FINISHED and state != FINISHED:
        partition["finished"] -= 1
    elif before != FINISHED and state == FINISHED:
        partition["finished"] += 1
    if state == DELETE_FINISHED:
        partition["live"] -= 1
        t.counts[DEAD] += 1
        leave(t, row)
    return ACCEPTED, row


@kernel
def leave(t: Arrays, row: int) -> None:
    """Remove a deleted segment from the waiting lists of its former leader epochs, which still list it."""
    segment = t.segments[row]
    if not int64(segment["flags"]) & RESHAPED:
        return
    segment["flags"] &= ~RESHAPED & 0xFF
    link = int64(t.links[int64(segment["links"])]["stale"])
    while link >= 0:
        epoch = epoch_row(t, int64(segment["owner"]), int64(t.links[link]["epoch"]))
        unlist(t, epoch, link)
        t.links[link]["status"] = LEFT
        t.epochs[epoch]["left"] += 1
        segment["flags"] |= DANGLING
        link = int64(t.links[link]["stale"])


@kernel
def delete_partition(t: Arrays, state: int, owner: int, offset: int) -> int:
    """Apply an event of a user partition's deletion; return the outcome.

    A repeated DELETE_PARTITION_MARKED does not change the offset of the first.
    """
    partition = t.partitions[owner]
    if not _PARTITION_ALLOWED[int64(partition["delete_state"]), state]:
        return IGNORED
    if state == _MARKED and partition["delete_marked"] < 0:
        partition["delete_marked"] = offset
    if state == _PARTITION_GONE:
        partition["delete_marked"] = -1
    partition["delete_state"] = state
    return ACCEPTED


@kernel
def fold_rows(
    t: Arrays,
    data: NdArray,
    rows: Int64s,
    epochs: Int64s,
    offsets: Int64s,
    owners: Int64s,
    topics: Int64s,
    keep_deleted: bool,
    outcomes: NdArray,
    segments: Int64s,
) -> None:
    """Apply events in order; write the outcome of each, and the row of its segment, -1 for none.

    The arrays of the table must have room for all of them.
    """
    for i in range(len(rows)):
        event, owner, offset = rows[i], int64(owners[i]), int64(offsets[i])
        segments[i] = -1
        if owner < 0:
            outcomes[i] = NO_EVENT
            continue
        if t.partitions[owner]["is_foreign"]:
            outcomes[i] = FOREIGN
            continue
        t.partitions[owner]["last_offset"] = max(int64(t.partitions[owner]["last_offset"]), offset)
        if event[KIND] == ADD:
            outcome, row = add_segment(t, event, epochs, data, owner, int64(topics[i]), offset)
        elif event[KIND] == PARTITION_DELETE:
            outcome, row = delete_partition(t, int64(event[STATE]), owner, offset), -1
        else:
            outcome, row = update_segment(t, event, data, owner, offset, keep_deleted)
        outcomes[i], segments[i] = outcome, row
