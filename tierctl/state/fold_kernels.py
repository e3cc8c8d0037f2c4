"""The loops that apply events to the table of segments, as Kafka's RemoteLogMetadataCache does.

Source: org.apache.kafka.server.log.remote.metadata.storage, RemoteLogMetadataCache and
RemoteLogLeaderEpochState. Kafka's set of a leader epoch's unreferenced ids has no order; here they wait in
order of arrival.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np

from tierctl.kernel import int64, kernel, plain_kernel
from tierctl.model.events import (
    PARTITION_TRANSITIONS,
    SEGMENT_TRANSITIONS,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import (
    DANGLING,
    DEAD,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    FREE,
    KIP405,
    LEFT,
    LINKS,
    NO_BROKER,
    NOT_LISTED,
    ODD_EPOCHS,
    READABLE,
    REPEATED,
    RESHAPED,
    SEGMENTS,
    STARTED,
    TXN_INDEX_EMPTY,
    WAITING,
    Arrays,
    epoch_row,
    find_segment,
    number_partitions,
    set_custom,
)
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    ADD,
    DIALECT,
    END,
    EPOCH_COUNT,
    EPOCHS_AT,
    EVENT_TIMESTAMP,
    KIND,
    MAX_TIMESTAMP,
    PARTITION_DELETE,
    SEGMENT_ID,
    SEGMENT_ID_LOW,
    SIZE,
    START,
    STATE,
    WRITER,
    DecodedEvents,
)
from tierctl.wire.metadata.decode import TXN_INDEX_EMPTY as EVENT_TXN_INDEX_EMPTY


@kernel
def ascending(values: Int64s) -> Int64s:
    """Return the order that sorts values; equal ones keep theirs.

    This is the only sort in kernels: compiling one takes seconds.
    """
    return np.argsort(values, kind="mergesort")


@plain_kernel
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


@plain_kernel
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


@plain_kernel
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


@plain_kernel
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


@plain_kernel
def named_links(t: Arrays, row: int, room: int) -> int:
    """Write the links of a segment that count, one per leader epoch, ascending by epoch; return how many.

    They are in t.scratch[room] until the next call with that `room`, 0 or 1.
    """
    first, count = int64(t.segments[row]["links"]), int64(t.segments[row]["link_count"])
    links, used = t.scratch[room], 0
    for link in range(first, first + count):
        if t.links[link]["status"] != REPEATED:
            links[used] = link
            used += 1
    if int64(t.segments[row]["flags"]) & ODD_EPOCHS:
        sort_by_epoch(t, links[:used])
    return used


@kernel
def sort_by_epoch(t: Arrays, links: Int64s) -> None:
    """Sort links by leader epoch."""
    epochs = np.empty(len(links), np.int64)
    for i in range(len(links)):
        epochs[i] = t.links[int64(links[i])]["epoch"]
    links[:] = links[ascending(epochs)]


@plain_kernel
def last_offset(t: Arrays, row: int, links: Int64s, count: int, i: int) -> int:
    """Return the last offset that the i-th of `count` epochs of `named_links` can have in the segment."""
    if i + 1 < count:
        return int64(t.links[int64(links[i + 1])]["start"]) - 1
    return int64(t.segments[row]["end"])


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


@plain_kernel
def has_same_epochs(t: Arrays, row: int, event: Int64s, epochs: Int64s) -> bool:
    """Return whether a segment names the leader epochs of an event, in the same order."""
    count = int64(event[EPOCH_COUNT])
    if t.segments[row]["link_count"] != count:
        return False
    first, at = int64(t.segments[row]["links"]), int64(event[EPOCHS_AT])
    for i in range(count):
        if t.links[first + i]["epoch"] != epochs[at + i, 0]:
            return False
    return True


@plain_kernel
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
        links = t.scratch[1]
        for i in range(count):
            links[i] = first + i
        sort_by_epoch(t, links[:count])
        for i in range(1, count):
            former = t.links[int64(links[i - 1])]
            if former["epoch"] == t.links[int64(links[i])]["epoch"]:
                former["status"] = REPEATED


@plain_kernel
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
    former["previous"], former["next"] = -1, -1


@plain_kernel
def take_stale(t: Arrays, row: int, epoch: int) -> int:
    """Take the link of a former leader epoch out of a segment's chain; return it, -1 without one."""
    before = int64(t.segments[row]["links"])
    link = int64(t.links[before]["stale"])
    while link >= 0:
        if t.links[link]["epoch"] == epoch:
            t.links[before]["stale"] = t.links[link]["stale"]
            t.links[link]["stale"] = -1
            return link
        before, link = link, int64(t.links[link]["stale"])
    return -1


@plain_kernel
def reshape(t: Arrays, row: int, event: Int64s, epochs: Int64s) -> None:
    """Give a segment that waits other leader epochs; its former ones still list it, as in Kafka's cache."""
    segment = t.segments[row]
    owner, old_count = int64(segment["owner"]), named_links(t, row, int64(0))
    first, count = int64(segment["links"]), int64(segment["link_count"])
    stale = int64(t.links[first]["stale"])
    t.links[first]["stale"] = -1
    new_links(t, row, event, epochs)
    head = int64(segment["links"])
    t.links[head]["stale"] = stale
    new_count, old, new, i = named_links(t, row, int64(1)), t.scratch[0], t.scratch[1], 0
    for j in range(new_count):
        link = int64(new[j])
        epoch = int64(t.links[link]["epoch"])
        while i < old_count and t.links[int64(old[i])]["epoch"] < epoch:
            i += 1
        place = -1
        if i < old_count and t.links[int64(old[i])]["epoch"] == epoch:
            place = int64(old[i])
        if place < 0 or t.links[place]["status"] != WAITING:
            place = take_stale(t, row, epoch)
        known = epoch_row(t, owner, epoch)
        if place < 0:
            add_waiting(t, known, link)
        else:
            take_place(t, known, place, link)
    if new_count != old_count:
        segment["flags"] |= RESHAPED
    for link in range(first, first + count):
        former = t.links[link]
        if former["status"] == WAITING:
            former["stale"] = t.links[head]["stale"]
            t.links[head]["stale"] = link
            segment["flags"] |= RESHAPED
        elif former["status"] != FREE:
            former["status"], former["segment"] = FREE, -1


@plain_kernel
def set_event(t: Arrays, row: int, data: NdArray, event: Int64s, offset: int) -> None:
    """Set what every event states of a segment."""
    segment = t.segments[row]
    segment["state"], segment["writer"] = event[STATE], event[WRITER]
    segment["event_timestamp"], segment["offset"] = event[EVENT_TIMESTAMP], offset
    segment["flags"] = segment["flags"] | KIP405 if event[DIALECT] else segment["flags"] & (~KIP405 & 0xFF)
    set_custom(t, row, data, event)


@plain_kernel
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


@plain_kernel
def set_facts(t: Arrays, row: int, event: Int64s, topic: int) -> None:
    """Set what only an event that adds a segment states of it, but for its leader epochs."""
    segment = t.segments[row]
    segment["start"], segment["end"], segment["topic"] = event[START], event[END], topic
    segment["max_timestamp"], segment["size"] = event[MAX_TIMESTAMP], event[SIZE]
    segment["flags"] &= ~TXN_INDEX_EMPTY & 0xFF
    if event[EVENT_TXN_INDEX_EMPTY] > 0:
        segment["flags"] |= TXN_INDEX_EMPTY


@plain_kernel
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
    links = t.scratch[0]
    for i in range(named_links(t, row, int64(0))):
        link = int64(links[i])
        add_waiting(t, epoch_row(t, int64(t.segments[row]["owner"]), int64(t.links[link]["epoch"])), link)


@plain_kernel
def add_segment(
    t: Arrays, event: Int64s, epochs: Int64s, data: NdArray, owner: int, topic: int, offset: int
) -> int:
    """Apply an event that adds a segment (addCopyInProgressSegment); return the outcome."""
    start, end, count = int64(event[START]), int64(event[END]), int64(event[EPOCH_COUNT])
    if start < 0 or end < start or count == 0 or event[STATE] != STARTED:
        return REFUSED
    high, low = int64(event[SEGMENT_ID]), int64(event[SEGMENT_ID_LOW])
    slot, row = find_segment(t, owner, high, low)
    ghost = -1
    if row >= 0 and t.segments[row]["state"] == DELETE_FINISHED:
        ghost, row = row, -1
    if row >= 0 and t.segments[row]["state"] != STARTED:
        return IGNORED
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
    return ACCEPTED


@plain_kernel
def note_copy(t: Arrays, row: int, event: Int64s, offset: int) -> None:
    """Note in the user partition that a copy finished, or failed, by the event that ends it.

    A copy failed if the broker that made it withdraws it before a copy that reaches its start offset has
    finished. So a dangling copy that is deleted after a later attempt succeeded did not fail. What tierctl
    withdraws is a clean-up: its runs report failures of its own copies.
    """
    segment, state = t.segments[row], int64(event[STATE])
    partition = t.partitions[int64(segment["owner"])]
    start, begun_ms = int64(segment["start"]), int64(segment["event_timestamp"])
    if state == FINISHED:
        partition["copied_end"], partition["copied_offset"] = segment["end"], offset
        if segment["end"] >= partition["failed_start"]:
            partition["failed_copies"] = 0
        return
    is_obsolete = partition["copied_offset"] > segment["offset"] and partition["copied_end"] >= start
    is_cleaned_up = not event[DIALECT] and (event[WRITER] < 0 or event[WRITER] != segment["writer"])
    if segment["state"] != STARTED or state != DELETE_STARTED or is_obsolete or is_cleaned_up:
        return
    if partition["failed_copies"] == 0:
        partition["failed_since"], partition["failed_last"] = begun_ms, begun_ms
    partition["failed_copies"] += 1
    partition["failed_since"] = min(int64(partition["failed_since"]), begun_ms)
    partition["failed_last"] = max(int64(partition["failed_last"]), begun_ms)
    partition["failed_start"] = start
    partition["failed_by"] = NO_BROKER if int64(segment["flags"]) & KIP405 else segment["writer"]


@plain_kernel
def update_segment(
    t: Arrays, event: Int64s, data: NdArray, owner: int, offset: int, keep_deleted: bool
) -> int:
    """Apply an event that updates a segment (updateRemoteLogSegmentMetadata); return the outcome."""
    _slot, row = find_segment(t, owner, int64(event[SEGMENT_ID]), int64(event[SEGMENT_ID_LOW]))
    if row < 0 or t.segments[row]["state"] == DELETE_FINISHED:
        return IGNORED
    before, state = int64(t.segments[row]["state"]), int64(event[STATE])
    if not _SEGMENT_ALLOWED[before, state]:
        return IGNORED
    if state == STARTED:
        return REFUSED
    note_copy(t, row, event, offset)
    if state != DELETE_FINISHED or keep_deleted:
        set_event(t, row, data, event, offset)
    t.segments[row]["state"], t.segments[row]["offset"] = state, offset
    count, links = named_links(t, row, int64(0)), t.scratch[0]
    for i in range(count):
        link = int64(links[i])
        epoch = epoch_row(t, owner, int64(t.links[link]["epoch"]))
        if state == FINISHED:
            finish(t, epoch, link, last_offset(t, row, links, count, i))
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
    return ACCEPTED


@plain_kernel
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


@plain_kernel
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


@plain_kernel
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
) -> None:
    """Apply events in order; write the outcome of each.

    The arrays of the table must have room for all of them.
    """
    for i in range(len(rows)):
        event, owner, offset = rows[i], int64(owners[i]), int64(offsets[i])
        if owner < 0:
            outcomes[i] = NO_EVENT
            continue
        if t.partitions[owner]["is_foreign"]:
            outcomes[i] = FOREIGN
            continue
        t.partitions[owner]["last_offset"] = max(int64(t.partitions[owner]["last_offset"]), offset)
        if event[KIND] == ADD:
            outcomes[i] = add_segment(t, event, epochs, data, owner, int64(topics[i]), offset)
        elif event[KIND] == PARTITION_DELETE:
            outcomes[i] = delete_partition(t, int64(event[STATE]), owner, offset)
        else:
            outcomes[i] = update_segment(t, event, data, owner, offset, keep_deleted)


def numbered(table: SegmentTable, events: DecodedEvents) -> tuple[Int64s, Int64s]:
    """Return the numbers of each event's user partition and topic name, which `table` has afterwards.

    The table has room for all of the events then.
    """
    table.reserve_for(events.rows)
    owners, topics = np.empty(len(events.rows), np.int64), np.empty(len(events.rows), np.int64)
    number_partitions(table.arrays, events.data, events.rows, owners, topics)
    return owners, topics


def apply_numbered(
    table: SegmentTable, events: DecodedEvents, offsets: Int64s, owners: Int64s, topics: Int64s
) -> NdArray:
    """Apply events that are `numbered` to `table`; return the outcome of each."""
    rows = events.rows
    outcomes, keep_deleted = np.empty(len(rows), np.uint8), table.keep_deleted
    fold_rows(table.arrays, events.data, rows, events.epochs, offsets, owners, topics, keep_deleted, outcomes)
    table.changed()
    return outcomes
