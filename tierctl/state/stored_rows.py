"""The state of a metadata partition as rows of tables, and the table of segments made from them again.

Rows of segments have everything that the fold needs of a segment, rows of user partitions what it needs
besides. Unknown tagged fields are not stored, and neither are deleted segments that leader epochs of a
repeated COPY_SEGMENT_STARTED still list.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import CorruptInputError
from tierctl.kernel import prepare
from tierctl.model import RemotePartitionDeleteState
from tierctl.state.queries import LiveSegments
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import (
    EPOCH,
    FINISHED,
    KIP405,
    LENGTH_BYTES,
    LINK,
    NAME,
    NO_BROKER,
    NO_OFFSET,
    NO_START,
    NOT_LISTED,
    ODD_EPOCHS,
    PARTITION,
    READABLE,
    REPEATED,
    RESHAPED,
    ROW_TYPES,
    SEGMENT,
    STATES,
    TXN_INDEX_EMPTY,
    WAITING,
    Array,
    name_hash,
)
from tierctl.wire.arrays import Int64s, NdArray, are_given, numbers, ranges

LISTING: Final = pa.struct([("leader_epoch", pa.int32()), ("is_readable", pa.bool_())])
LISTINGS: Final = pa.list_(pa.field("element", LISTING))
"""The leader epochs that list a segment; null for a segment that all of its leader epochs list as usual.

Usually those of a finished segment have it among their readable segments, those of another one among the
unreferenced ones, and no other leader epoch lists it.
"""

_FACTS: Final[Mapping[str, tuple[str, int]]] = {
    "lowest_start_offset": ("lowest_start", NO_START),
    "latest_leader_epoch": ("latest_epoch", -1),
    "delete_marked_offset": ("delete_marked", -1),
    "copied_end_offset": ("copied_end", NO_OFFSET),
    "copied_event_offset": ("copied_offset", NO_OFFSET),
    "failed_copies": ("failed_copies", 0),
    "failed_start_offset": ("failed_start", 0),
    "failed_since_ms": ("failed_since", 0),
    "failed_last_ms": ("failed_last", 0),
    "failed_broker_id": ("failed_by", NO_BROKER),
}
"""The field of PARTITION in each column, and the value that is null there."""

FACTS: Final = pa.schema(
    [
        (name, pa.int32() if PARTITION.fields[field][0].itemsize == 4 else pa.int64())  # type: ignore[index]
        for name, (field, _) in _FACTS.items()
    ]
)
"""The columns of user partitions that only the fold and `failed_copies` use; see PARTITION."""

COUNTS: Final = ("copy_segment_started", "copy_segment_finished", "delete_segment_started")
"""The columns with the number of a user partition's segments in each state in which they are not deleted."""
PARTITION_COLUMNS: Final = (
    *("topic", "topic_id", "partition", "highest_offset_by_epoch"),
    *(*COUNTS, "delete_state", "metadata_partition", "last_event_offset", *_FACTS),
)
"""The columns of user partitions that `table_of_rows` takes."""

_ID_DIGITS: Final = 22
_NOT_OF_URLS: Final = np.frombuffer(b"+/", np.uint8)


def fact_columns(table: SegmentTable, chosen: Int64s) -> dict[str, pa.Array]:
    """Return the columns FACTS of the user partitions with these numbers."""
    rows = table.partitions[chosen]
    columns = {}
    for name, (field, nothing) in _FACTS.items():
        values = np.ascontiguousarray(rows[field])
        columns[name] = pa.array(values, FACTS.field(name).type, mask=values == nothing)
    return columns


def listings_of(live: LiveSegments) -> pa.Array:
    """Return the column LISTINGS of segments."""
    counts = live.column("link_count").astype(np.int64)
    places = ranges(live.column("links").astype(np.int64), counts)
    statuses = live.table.links["status"][places]
    usual = np.where(np.repeat(live.states == FINISHED, counts), READABLE, WAITING)
    is_odd = np.zeros(len(live), bool)
    is_odd[np.repeat(np.arange(len(live)), counts)[(statuses != usual) & (statuses != REPEATED)]] = True
    column: list[Any] = [None] * len(live)
    for at in np.flatnonzero(is_odd | live.flags(RESHAPED)).tolist():
        row = int(live.rows[at])
        listed, named = _listings(live.table, row), dict(live.table.leader_epochs(row))
        # A segment that an event gave other epochs may be listed as if it had had these from the beginning.
        if is_odd[at] or any(epoch not in named for epoch, _ in listed):
            column[at] = listed
    return pa.array(column, LISTINGS)


def _listings(table: SegmentTable, row: int) -> list[tuple[int, bool]]:
    """Return the leader epochs that list a segment, in their order: that of links tells how it was folded."""
    first, count = (int(table.segments[name][row]) for name in ("links", "link_count"))
    links, stale = list(range(first, first + count)), int(table.links["stale"][first])
    while stale >= 0:
        links.append(stale)
        stale = int(table.links["stale"][stale])
    listed = [link for link in map(table.links.__getitem__, links) if link["status"] in (READABLE, WAITING)]
    return sorted((int(link["epoch"]), bool(link["status"] == READABLE)) for link in listed)


def table_of_rows(segments: pa.Table, partitions: pa.Table) -> SegmentTable:
    """Return the table of segments with these rows, all of one metadata partition.

    They have the columns of the tables of a warehouse: all of `segments`, and PARTITION_COLUMNS. Raise
    CorruptInputError if a segment names a user partition without a row, or an id is none.
    """
    prepare(len(segments))
    segments = segments.take(pc.sort_indices(segments, sort_keys=[("metadata_offset", "ascending")]))
    rows, parts = _one_batch(segments), _one_batch(partitions)
    names, text = _names(pa.chunked_array([rows.column("topic"), parts.column("topic")]))
    topics = pa.array([name.decode() for name in text], pa.string())
    known, made = _partitions(parts, topics), _segments(rows, topics)
    made["owner"] = _owners(rows, parts)
    blob = _set_customs(made, rows.column("custom_metadata"))
    links, epochs = _links(made, rows, known, parts.column("highest_offset_by_epoch"))
    contents = (made, links, epochs, known, names, np.frombuffer(b"".join(text), np.uint8), blob)
    table = SegmentTable()
    table.load({name: rows.tobytes() for name, rows in zip(ROW_TYPES, contents, strict=True)})
    return table


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


_SEGMENT_FIELDS: Final = {
    "start_offset": "start",
    "end_offset": "end",
    "max_timestamp_ms": "max_timestamp",
    "event_timestamp_ms": "event_timestamp",
    "metadata_offset": "offset",
    "segment_size_in_bytes": "size",
}


def _names(column: pa.ChunkedArray) -> tuple[Array, list[bytes]]:
    """Return the rows NAME of the different topic names, and these as bytes."""
    text = [name.encode() for name in pc.unique(column).to_pylist()]
    names = np.zeros(len(text), NAME)
    names["length"] = [len(name) for name in text]
    names["at"] = np.cumsum(names["length"]) - names["length"]
    names["hash"] = [name_hash(np.frombuffer(name, np.uint8), 0, len(name)) for name in text]
    return names, text


def _partitions(rows: pa.RecordBatch, topics: pa.Array) -> Array:
    """Return the rows PARTITION, which have no leader epochs yet."""
    made = np.zeros(rows.num_rows, PARTITION)
    made["id_high"], made["id_low"] = words_of_ids(rows.column("topic_id"))
    made["partition"] = numbers(rows.column("partition"))
    made["topic"] = numbers(pc.index_in(rows.column("topic"), topics))
    made["last_offset"] = numbers(rows.column("last_event_offset"))
    for name, (field, nothing) in _FACTS.items():
        made[field] = numbers(rows.column(name), null=nothing)
    started, finished, deleting = (numbers(rows.column(name)) for name in COUNTS)
    made["finished"], made["live"], made["first_epoch"] = finished, started + finished + deleting, -1
    states = pa.array(map(str, RemotePartitionDeleteState))
    made["delete_state"] = numbers(pc.index_in(rows.column("delete_state"), states), null=-1)
    return made


def _segments(rows: pa.RecordBatch, topics: pa.Array) -> Array:
    """Return the rows SEGMENT, which have no user partitions, leader epochs and custom metadata yet."""
    made = np.zeros(rows.num_rows, SEGMENT)
    made["topic"] = numbers(pc.index_in(rows.column("topic"), topics))
    made["id_high"], made["id_low"] = words_of_ids(rows.column("segment_id"))
    for name, field in _SEGMENT_FIELDS.items():
        made[field] = numbers(rows.column(name))
    states = pc.index_in(rows.column("state"), pa.array(map(str, STATES)))
    if states.null_count:
        raise _corrupt("states of segments", "others")
    made["state"] = numbers(states)
    brokers, epochs = (rows.column(name) for name in ("broker_id", "leader_epoch"))
    made["writer"] = numbers(pc.coalesce(brokers, epochs))
    is_empty = numbers(rows.column("txn_index_empty"))
    made["flags"] = ~are_given(brokers) * KIP405 | is_empty * TXN_INDEX_EMPTY
    return made


def _owners(segments: pa.RecordBatch, partitions: pa.RecordBatch) -> Int64s:
    """Return the number of the user partition of each segment."""
    ids = pc.unique(partitions.column("topic_id"))

    def keys(rows: pa.RecordBatch) -> Int64s:
        codes = numbers(pc.index_in(rows.column("topic_id"), ids), null=-1).astype(np.int64)
        found: Int64s = codes << 32 | numbers(rows.column("partition"))
        return found

    known, wanted = keys(partitions), keys(segments)
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, wanted, sorter=order)
    owners: Int64s = order[np.minimum(places, max(len(order) - 1, 0))] if len(order) else places
    if len(wanted) and not (len(order) and (known[owners] == wanted).all()):
        raise _corrupt("a row of `partitions` for the user partition of each segment", "none for some")
    return owners


def words_of_ids(texts: pa.Array) -> tuple[Int64s, Int64s]:
    """Return the first and the last eight bytes of ids that are written as base64url."""
    count = len(texts)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    if texts.null_count or set(lengths.values()) != {_ID_DIGITS}:
        raise _corrupt(f"ids of {_ID_DIGITS} characters", "other ids")
    # Spark also sends strings with offsets of eight bytes.
    texts = texts.cast(pa.string())
    first = np.frombuffer(texts.buffers()[1], np.int32, 1, 4 * texts.offset)[0]
    raw = np.frombuffer(texts.buffers()[2], np.uint8, count * _ID_DIGITS, int(first))
    # 24 characters are 18 bytes, of which the last two are left out.
    padded = np.full((count, 24), ord("A"), np.uint8)
    padded[:, :_ID_DIGITS] = raw.reshape(count, _ID_DIGITS)
    others = _corrupt("ids in base64url", "other characters")
    # With `altchars`, the characters that these replace would be taken, too.
    if np.isin(raw, _NOT_OF_URLS).any():
        raise others
    try:
        decoded = base64.b64decode(padded.data, altchars=b"-_", validate=True)
    except binascii.Error:
        raise others from None
    ids = np.frombuffer(decoded, np.uint8).reshape(count, 18)[:, :16]
    high, low = np.ascontiguousarray(ids).view(">i8").T.astype(np.int64, order="C")
    return high, low


def _set_customs(made: Array, customs: pa.Array) -> Array:
    """Set the places of the segments' custom metadata; return the blob with these."""
    chosen, values = np.flatnonzero(are_given(customs)), customs.drop_null()
    made["custom"] = -1
    lengths = numbers(pc.binary_length(values)).astype(np.int64)
    places = np.cumsum(lengths + LENGTH_BYTES) - lengths - LENGTH_BYTES
    made["custom"][chosen] = places
    blob = np.zeros(int((lengths + LENGTH_BYTES).sum()), np.uint8)
    for i in range(LENGTH_BYTES):
        blob[places + i] = lengths >> 8 * i & 0xFF
    blob[ranges(places + LENGTH_BYTES, lengths)] = np.frombuffer(b"".join(values.to_pylist()), np.uint8)
    return blob


def _links(made: Array, segments: pa.RecordBatch, known: Array, highest: pa.MapArray) -> tuple[Array, Array]:
    """Return the links of segments and the leader epochs of user partitions, in their lists."""
    named = segments.column("segment_leader_epochs")
    counts = numbers(pc.list_value_length(named)).astype(np.int64)
    if (counts < 1).any():
        raise _corrupt("leader epochs of each segment", "none")
    made["link_count"], made["links"] = counts, np.cumsum(counts) - counts
    pairs = named.flatten()
    links = np.zeros(len(pairs), LINK)
    links["epoch"], links["start"] = (numbers(pairs.field(i)) for i in range(2))
    links["segment"] = np.repeat(np.arange(len(made)), counts)
    links["status"] = np.repeat(np.where(made["state"] == FINISHED, READABLE, WAITING), counts)
    for name in ("previous", "next", "stale"):
        links[name] = -1
    _mark_repeated(made, links)
    links = _with_listings(made, links, segments.column("listings"))
    epochs, of_links = _epochs(made, links, known, highest)
    for status, kind, order in ((READABLE, "readable", "start"), (WAITING, "waiting", "segment")):
        rows = np.flatnonzero(links["status"] == status)
        _list(links, epochs, of_links, rows[np.lexsort((links[order][rows], of_links[rows]))], kind)
    epochs["waiting_count"] = np.bincount(of_links[links["status"] == WAITING], minlength=len(epochs))
    return links, epochs


def _mark_repeated(made: Array, links: Array) -> None:
    """Mark the links of segments whose leader epochs do not ascend; of equal ones the last one counts."""
    is_same = links["segment"][1:] == links["segment"][:-1]
    odd = np.unique(links["segment"][1:][is_same & (links["epoch"][1:] <= links["epoch"][:-1])])
    made["flags"][odd] |= ODD_EPOCHS
    for row in odd.tolist():
        first, count = int(made["links"][row]), int(made["link_count"][row])
        last = {int(links["epoch"][link]): link for link in range(first, first + count)}
        for link in range(first, first + count):
            if last[int(links["epoch"][link])] != link:
                links["status"][link] = REPEATED


def _with_listings(made: Array, links: Array, listings: pa.Array) -> Array:
    """Set the status of the links of segments with LISTINGS; return all links, those of other epochs last."""
    others: list[tuple[int, int]] = []
    for row in np.flatnonzero(are_given(listings)).tolist():
        listed = {each["leader_epoch"]: each["is_readable"] for each in listings[row].as_py()}
        first, count = int(made["links"][row]), int(made["link_count"][row])
        for link in range(first, first + count):
            if links["status"][link] == REPEATED:
                continue
            is_readable = listed.pop(int(links["epoch"][link]), None)
            links["status"][link] = _STATUS[is_readable]
        others += [(row, epoch) for epoch in listed]
    more = np.zeros(len(others), LINK)
    before: dict[int, int] = {}
    for at, (row, epoch) in enumerate(others):
        link = more[at]
        link["epoch"], link["segment"], link["status"] = epoch, row, WAITING
        link["previous"], link["next"], link["stale"] = -1, -1, before.get(row, -1)
        before[row] = len(links) + at
    made["flags"][list(before)] |= RESHAPED
    links["stale"][made["links"][list(before)]] = list(before.values())
    return np.concatenate([links, more])


_STATUS: Final = {None: NOT_LISTED, True: READABLE, False: WAITING}


def _epochs(made: Array, links: Array, known: Array, highest: pa.MapArray) -> tuple[Array, Int64s]:
    """Return the rows EPOCH, chained by user partition in `known`, and the one of each link."""

    def keys(owners: NdArray, epochs: NdArray) -> Int64s:
        found: Int64s = owners.astype(np.int64) << 32 | epochs.astype(np.int64) + (1 << 31)
        return found

    pairs = highest.cast(_PAIRS)
    counts, values = numbers(pc.list_value_length(pairs)).astype(np.int64), pairs.flatten()
    of_highest = keys(np.repeat(np.arange(len(known)), counts), numbers(values.field(0)))
    of_links = keys(made["owner"][links["segment"]], links["epoch"])
    unique = np.unique(np.concatenate([of_highest, of_links]))
    made_epochs = np.zeros(len(unique), EPOCH)
    owners = unique >> 32
    made_epochs["owner"], made_epochs["epoch"] = owners, (unique & 0xFFFFFFFF) - (1 << 31)
    made_epochs["highest"] = NO_OFFSET
    made_epochs["highest"][np.searchsorted(unique, of_highest)] = numbers(values.field(1))
    for end in ("first_readable", "last_readable", "first_waiting", "last_waiting"):
        made_epochs[end] = -1
    made_epochs["next"] = np.where(np.append(-1, owners[:-1]) == owners, np.arange(-1, len(unique) - 1), -1)
    known["first_epoch"][owners] = np.arange(len(unique))
    return made_epochs, np.searchsorted(unique, of_links)


_PAIRS: Final = pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())]))


def _list(links: Array, epochs: Array, of_links: Int64s, rows: Int64s, kind: str) -> None:
    """Chain links, which are in the order of their leader epochs and of the lists of these."""
    whose = of_links[rows]
    is_first = np.append(True, whose[1:] != whose[:-1])[: len(rows)]
    is_last = np.append(whose[1:] != whose[:-1], True)[: len(rows)]
    links["previous"][rows[1:]] = np.where(is_first[1:], -1, rows[:-1])
    links["next"][rows[:-1]] = np.where(is_last[:-1], -1, rows[1:])
    epochs[f"first_{kind}"][whose[is_first]] = rows[is_first]
    epochs[f"last_{kind}"][whose[is_last]] = rows[is_last]


def _corrupt(expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("rows of a table of segments", expected=expected, found=found)
