"""Folds many events of one user partition at once; the result is that of folding them one by one."""

import numpy as np

from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold.epoch_effects import apply_epoch_effects
from tierctl.state.fold.event_columns import Bools, EventColumns
from tierctl.state.fold.outcomes import ACCEPTED, DELETE_FINISHED, Decisions, Outcomes, decide
from tierctl.state.fold.segment_writes import extend, kill, write_updates
from tierctl.state.segments.arrays import Rows
from tierctl.state.segments.columns import SegmentColumns


def apply_events(cache: RemoteLogMetadataCache, events: EventColumns, at: Rows) -> Outcomes | None:
    """Apply events `at`, all of one partition's segments and in offset order; return their outcomes.

    Return None, with the cache unchanged, for a history that only the fold event by event handles.
    """
    columns = cache.columns
    if cache.has_reshaped or not _has_one_name(columns, events, at):
        return None
    decisions = decide(columns, events, at)
    if decisions is None:
        return None
    is_deleted = decisions.final == DELETE_FINISHED
    written = np.ones_like(is_deleted) if cache.keep_deleted else ~is_deleted
    rows = _write(columns, events, decisions, written)
    accepted = np.flatnonzero(decisions.outcomes == ACCEPTED)
    if len(accepted):
        apply_epoch_effects(cache, events, decisions, rows, accepted)
    # New segments that were not written are dead already.
    kill(columns, rows[is_deleted & (rows >= 0) & (decisions.known | written)])
    cache.count_dead(int(is_deleted.sum()))
    return decisions.outcomes


def _has_one_name(columns: SegmentColumns, events: EventColumns, at: Rows) -> bool:
    """Return whether all events name the partition as `columns` does, so that no row needs its own name."""
    is_known_name = columns.partition is None or columns.partition == events.partition(int(at[0]))
    return is_known_name and bool((events.topics[at] == events.topics[at[0]]).all())


def _write(columns: SegmentColumns, events: EventColumns, decisions: Decisions, written: Bools) -> Rows:
    """Write the segments' final states to `columns`; return the row of each segment, -1 for none.

    New segments that are not in `written` get a row that is dead from the start; known segments that are
    not in `written` keep their former state.
    """
    new = np.flatnonzero(~decisions.known & (decisions.first >= 0))
    rows = decisions.rows.copy()
    rows[new] = extend(columns, events, decisions.at[decisions.first[new]], written[new])
    updated = np.flatnonzero((decisions.last_update >= 0) & written)
    write_updates(columns, events, rows[updated], decisions.at[decisions.last_update[updated]])
    return rows
