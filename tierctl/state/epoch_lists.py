"""The loops over the two lists of segments that each leader epoch has.

Source: org.apache.kafka.server.log.remote.metadata.storage, RemoteLogLeaderEpochState. Its set of
unreferenced ids has no order; here they wait in order of arrival.
"""

import numpy as np

from tierctl.kernel import int64, kernel, plain_kernel
from tierctl.state.table_arrays import NOT_LISTED, ODD_EPOCHS, READABLE, REPEATED, WAITING, Arrays
from tierctl.wire.arrays import Int64s


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
