"""Folds the events of many user partitions with a regular history at once, as columns.

A history is regular if the rows of its segments determine the state of a broker's cache, see
`state.rebuilt_cache`: each segment is finished above all that were finished before, and so few are unfinished
at a time that Kafka's hash sets do not grow.
"""

from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierctl.state.fold.event_columns import (
    ACCEPTED,
    ADD,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    Decisions,
    EventColumns,
    Outcomes,
    decide,
)
from tierctl.state.segment_table import NO_OFFSET, SegmentTable
from tierctl.state.segments.columns import (
    DEAD,
    KIP405,
    ODD_EPOCHS,
    POOLED_EPOCHS,
    STATE_MASK,
    TXN_INDEX_EMPTY,
    WAS_FINISHED,
    WIDE,
    Rows,
    SegmentColumns,
    ranges,
    stable_order,
    view,
)
from tierctl.state.segments.epochs import FIRST_TABLE_SIZE, epoch_runs
from tierctl.wire.arrays import Bools, Int64s, take_rows

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


_WAITING_MAX: Final = 3 * FIRST_TABLE_SIZE // 4
"""Kafka's hash set of unreferenced segments grows when it has this many."""


def fold_regular(
    table: SegmentTable, events: EventColumns, at: Rows, owners: Int64s
) -> tuple[Outcomes, set[int]]:
    """Apply events `at` to `table`; return their outcomes and the irregular user partitions.

    `owners` are the numbers of the events' user partitions in `table`. If one of these is irregular, the
    table is left as it is, and the outcomes are invalid.
    """
    decisions = decide(table.columns, events, at, owners)
    _find_odd_epochs(events, decisions)
    moves = _moves(table.columns, events, decisions)
    _find_out_of_order(table, decisions, moves)
    _find_many_waiting(table, decisions, moves)
    if not decisions.irregular:
        _write(table, events, decisions, moves)
    return decisions.outcomes, decisions.irregular


@dataclass(frozen=True, slots=True)
class _Moves:
    """Changes of segments' states.

    By event: `enters` and `leaves` tell whether the segment becomes one of those that are not readable, or
    is no longer one of them; `finishes` whether it becomes readable. By segment: `starts` is its start
    offset, `tops` the offset at which its last leader epoch starts.
    """

    enters: Bools
    leaves: Bools
    finishes: Bools
    starts: Int64s
    tops: Int64s


def _moves(columns: SegmentColumns, events: EventColumns, decisions: Decisions) -> _Moves:
    accepted = decisions.outcomes == ACCEPTED
    states, before = events.states[decisions.at], decisions.before
    was_waiting = (before == STARTED) | (before == DELETE_STARTED)
    is_waiting = (states == STARTED) | (states == DELETE_STARTED)
    starts, tops = np.zeros(len(decisions.rows), np.int64), np.zeros(len(decisions.rows), np.int64)
    new = np.flatnonzero(decisions.first >= 0)
    at = decisions.at[decisions.first[new]]
    starts[new], tops[new] = events.starts[at], events.pair_starts[events.pair_ends[at] - 1]
    known = np.flatnonzero(decisions.known)
    starts[known] = tops[known] = view(columns.starts)[decisions.rows[known]]
    pooled = known[view(columns.flags)[decisions.rows[known]] & POOLED_EPOCHS != 0]
    if len(pooled):
        runs = epoch_runs(columns, decisions.rows[pooled])
        tops[pooled] = runs.starts[np.cumsum(runs.counts) - 1]
    return _Moves(
        enters=accepted & is_waiting & ~was_waiting,
        leaves=accepted & was_waiting & ~is_waiting,
        finishes=accepted & (states == FINISHED),
        starts=starts,
        tops=tops,
    )


def _find_odd_epochs(events: EventColumns, decisions: Decisions) -> None:
    """Add user partitions to `irregular` that add a segment whose leader epochs are not in its offsets."""
    new = np.flatnonzero(decisions.first >= 0)
    at = decisions.at[decisions.first[new]]
    counts = events.pair_counts[at]
    begins = events.pair_ends[at] - counts
    odd = events.pair_starts[begins] != events.starts[at]
    many = np.flatnonzero(counts > 1)
    if len(many):
        odd[many] |= events.pair_starts[events.pair_ends[at[many]] - 1] > events.ends[at[many]]
        later = ranges(begins[many] + 1, counts[many] - 1)
        is_ascending = (events.pair_epochs[later] > events.pair_epochs[later - 1]) & (
            events.pair_starts[later] > events.pair_starts[later - 1]
        )
        odd[np.repeat(many, counts[many] - 1)[~is_ascending]] = True
    decisions.irregular.update(decisions.owners[new[odd]].tolist())


def _find_out_of_order(table: SegmentTable, decisions: Decisions, moves: _Moves) -> None:
    """Add user partitions to `irregular` in which a segment is not finished above all finished before."""
    segments = decisions.segments[moves.finishes]
    owners = decisions.owners[segments]
    order = _by_owner(owners)
    owners, starts, tops = owners[order], moves.starts[segments[order]], moves.tops[segments[order]]
    before = view(table.top_starts)[owners]
    is_same = owners[1:] == owners[:-1]
    before[1:][is_same] = tops[:-1][is_same]
    decisions.irregular.update(owners[starts <= before].tolist())


def _find_many_waiting(table: SegmentTable, decisions: Decisions, moves: _Moves) -> None:
    """Add user partitions to `irregular` in which so many segments are unfinished that hash sets may grow."""
    changes = moves.enters.astype(np.int64) - moves.leaves
    owners = decisions.owners[decisions.segments]
    waiting = view(table.waiting)
    possible = waiting + np.bincount(owners[moves.enters], minlength=len(waiting)) >= _WAITING_MAX
    chosen = np.flatnonzero(possible[owners])
    if not len(chosen):
        return
    chosen = chosen[_by_owner(owners[chosen])]
    owners, sums = owners[chosen], np.cumsum(changes[chosen])
    firsts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    highest = np.maximum.reduceat(sums, firsts)
    at_first = waiting[owners[firsts]] - (sums[firsts] - changes[chosen[firsts]])
    decisions.irregular.update(owners[firsts[highest + at_first >= _WAITING_MAX]].tolist())


def _by_owner(owners: Int64s) -> Rows:
    """Return the order of `owners`, ascending and stable."""
    return stable_order(owners, int(owners.max(initial=-1)) + 1)


def _write(table: SegmentTable, events: EventColumns, decisions: Decisions, moves: _Moves) -> None:
    columns = table.columns
    is_deleted = decisions.final == DELETE_FINISHED
    written = np.ones_like(is_deleted) if table.keep_deleted else ~is_deleted
    new = np.flatnonzero(decisions.first >= 0)
    rows = decisions.rows.copy()
    # The row of a segment that was added and deleted in the same chunk is written as a dead row.
    at = decisions.at[decisions.first[new]]
    rows[new] = extend(columns, events, at, decisions.owners[new], written[new])
    updated = np.flatnonzero((decisions.last_update >= 0) & written)
    write_updates(columns, events, rows[updated], decisions.at[decisions.last_update[updated]])
    view(columns.flags)[rows[decisions.segments[moves.finishes]]] |= np.uint8(WAS_FINISHED)
    _write_order(table, decisions, moves, rows)
    _write_partitions(table, decisions, moves, is_deleted)
    # A segment may be added several times, at different offsets: each one counts.
    adds = np.flatnonzero((decisions.outcomes == ACCEPTED) & (events.kinds[decisions.at] == ADD))
    owners = decisions.owners[decisions.segments[adds]]
    np.minimum.at(view(table.lowest_starts), owners, events.starts[decisions.at[adds]])
    gone = np.flatnonzero(is_deleted & (rows >= 0))
    if len(gone):
        _note_former(table, rows[gone], decisions.owners[gone])
        kill(columns, rows[gone[(decisions.known | written)[gone]]])
        table.count_dead(len(gone))


def _write_order(table: SegmentTable, decisions: Decisions, moves: _Moves, rows: Rows) -> None:
    """Write for each segment that became unreadable when it did."""
    events = np.flatnonzero(moves.enters)
    view(table.columns.entered)[rows[decisions.segments[events]]] = table.clock + events
    table.clock += len(decisions.at)


def _write_partitions(table: SegmentTable, decisions: Decisions, moves: _Moves, is_deleted: Bools) -> None:
    """Update the facts about user partitions."""
    size = len(table.counts)
    is_new = decisions.first >= 0
    counts, waiting = view(table.counts), view(table.waiting)
    counts += np.bincount(decisions.owners[is_new & ~is_deleted], minlength=size)
    counts -= np.bincount(decisions.owners[decisions.known & is_deleted], minlength=size)
    owners = decisions.owners[decisions.segments]
    waiting += np.bincount(owners[moves.enters], minlength=size)
    waiting -= np.bincount(owners[moves.leaves], minlength=size)
    finished = decisions.segments[moves.finishes]
    np.maximum.at(view(table.top_starts), decisions.owners[finished], moves.tops[finished])


def _note_former(table: SegmentTable, rows: Rows, owners: Int64s) -> None:
    """Record the leader epochs of segments that are about to be removed."""
    runs = epoch_runs(table.columns, rows)
    was_finished = view(table.columns.flags)[rows] & WAS_FINISHED != 0
    highest = np.where(np.repeat(was_finished, runs.counts), runs.ends, NO_OFFSET)
    table.note_former(np.repeat(owners, runs.counts), runs.epochs, highest)
