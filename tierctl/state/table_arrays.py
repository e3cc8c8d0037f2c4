"""The arrays of the table of segments: what the fold's kernels change, and the fields of their rows."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentState

STATES: Final = tuple(RemoteLogSegmentState)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
"""The states of a segment: indexes of STATES. A segment in state DELETE_FINISHED is deleted."""

# Bits of a segment's `flags`.
TXN_INDEX_EMPTY: Final = 1
KIP405: Final = 2
"""`writer` is a leader epoch, not a broker id."""
HAS_TAGS: Final = 4
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
