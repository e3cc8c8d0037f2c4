"""Writes many segments to columns at once."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from tierctl.state.fold.event_columns import EventColumns
from tierctl.state.segments.arrays import Rows, ranges, view
from tierctl.state.segments.columns import (
    DEAD,
    KIP405,
    ODD_EPOCHS,
    POOLED_EPOCHS,
    STATE_MASK,
    TXN_INDEX_EMPTY,
    WIDE,
    SegmentColumns,
)
from tierctl.wire.arrays import Int64s, take_rows

_INT32_MAX = (1 << 31) - 1


def extend(
    columns: SegmentColumns, events: EventColumns, at: Rows, owners: Int64s, live: npt.NDArray[np.bool_]
) -> Rows:
    """Add a row for each segment whose add event is in `at`; return the rows.

    `owners` are the numbers of the segments' user partitions in `columns.names`. The ids must be distinct
    and unknown to `columns`. Rows that are not `live` are dead from the start.
    """
    rows = columns.ids.extend(events.ids[at], live)
    _append(columns.starts, events.starts[at])
    lengths = events.ends[at] - events.starts[at]
    _append(columns.ends, np.minimum(lengths, WIDE))
    for i in np.flatnonzero(lengths >= WIDE).tolist():
        columns.wide_ends[int(rows[i])] = int(events.ends[at[i]])
    _append(columns.max_timestamps, events.max_timestamps[at])
    _append(columns.event_timestamps, events.event_timestamps[at])
    _append(columns.writers, events.writers[at])
    _append(columns.sizes, events.sizes[at])
    _append(columns.owners, owners)
    _append(columns.entered, np.zeros(len(at)))
    flags = (
        np.where(live, 0, DEAD) | events.txn_index_empty[at] * TXN_INDEX_EMPTY | events.kip405[at] * KIP405
    )
    _append_epochs(columns, events, at, flags)
    if columns.customs is not None:
        _append(columns.customs, np.full(len(at), -1))
    set_customs(columns, events, rows, at)
    for i in np.flatnonzero(events.has_tags[at]).tolist():
        event: Any = events.event(int(at[i]))
        columns.tags[int(rows[i])] = (event.unknown_tags, event.nested_tags)
    return rows


def _append(column: "array[Any]", values: npt.NDArray[Any]) -> None:
    column.frombytes(values.astype(column.typecode).tobytes())


def _append_epochs(
    columns: SegmentColumns, events: EventColumns, at: Rows, flags: npt.NDArray[np.int64]
) -> None:
    """Append the leader epochs of events `at`, and `flags` extended by the form of the epochs."""
    first_row = len(columns.flags)
    counts = events.pair_counts[at]
    begins = events.pair_ends[at] - counts
    places = ranges(begins, counts)
    owner = np.repeat(np.arange(len(at)), counts)
    deltas = events.pair_starts[places] - events.starts[at][owner]
    firsts = np.cumsum(counts) - counts
    odd = np.zeros(len(at), dtype=bool)
    odd[owner[np.abs(deltas) > _INT32_MAX]] = True
    odd |= deltas[firsts] != 0
    pooled = (counts > 1) & ~odd
    words, begin = _pool_words(events, places, counts, deltas, pooled)
    own = np.where(pooled, len(columns.pool) + begin, np.where(odd, 0, events.pair_epochs[begins]))
    columns.pool.frombytes(words.astype(np.int32).tobytes())
    _append(columns.epochs, own)
    _append(columns.flags, flags | pooled * POOLED_EPOCHS | odd * ODD_EPOCHS)
    for i in np.flatnonzero(odd).tolist():
        columns.odd_epochs[first_row + i] = events.pairs(int(at[i]))


def _pool_words(
    events: EventColumns, places: Rows, counts: Int64s, deltas: Int64s, pooled: npt.NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """Return the words [count, epoch, (epoch, offset)...] of all pooled rows, and where each row's begin.

    `places` are the indexes of the events' pairs, `counts` the number of pairs per event, `deltas` the pairs'
    offsets relative to the segment's start.
    """
    used = np.where(pooled, counts, 0)
    begin = 2 * (np.cumsum(used) - used)
    inside = np.repeat(pooled, counts)
    epochs, shifts = events.pair_epochs[places[inside]], deltas[inside]
    words = np.stack([epochs, shifts], axis=1)
    heads = begin[pooled] // 2
    words[heads, 1] = words[heads, 0]
    words[heads, 0] = counts[pooled]
    return words.reshape(-1), begin


def set_customs(columns: SegmentColumns, events: EventColumns, rows: Rows, at: Rows) -> None:
    """Set the custom metadata of `rows[i]` to that of event `at[i]`."""
    changed = events.has_custom[at]
    if columns.customs is not None:
        changed = changed | (view(columns.customs)[rows] >= 0)
    if changed.any():
        values = take_rows(events.table.column("custom_metadata"), at[changed])
        columns.set_customs(rows[changed], values.to_pylist())


def write_updates(columns: SegmentColumns, events: EventColumns, rows: Rows, at: Rows) -> None:
    """Update each row in `rows` (no duplicates) to its state after its last event.

    `at[i]` is the index of that event for `rows[i]`.
    """
    view(columns.event_timestamps)[rows] = events.event_timestamps[at]
    view(columns.writers)[rows] = events.writers[at]
    flags = view(columns.flags)
    kept = flags[rows] & ~np.uint8(STATE_MASK | KIP405)
    flags[rows] = kept | events.states[at] | events.kip405[at] * np.uint8(KIP405)
    del flags
    set_customs(columns, events, rows, at)


def kill(columns: SegmentColumns, rows: Rows) -> None:
    """Mark the segments of `rows`, which must be live, as deleted."""
    columns.ids.remove_many(rows)
    view(columns.flags)[rows] |= DEAD
