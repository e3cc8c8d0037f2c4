"""Applies accepted events of one user partition to the indexes of its leader epochs.

If the segments of an epoch were copied in offset order, the epoch's index changes by whole columns;
otherwise each event is applied on its own, in order.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np

from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold.event_columns import Bools, EventColumns, Int64s
from tierctl.state.fold.outcomes import DELETE_STARTED, FINISHED, STARTED, Decisions
from tierctl.state.fold.segment_writes import EpochRuns, epoch_runs
from tierctl.state.segments.arrays import Rows, ranges
from tierctl.state.segments.columns import SegmentColumns
from tierctl.state.segments.epoch_index import EpochIndex

# For fewer effects on an epoch, NumPy's overhead is greater than the gain.
_FEW_EFFECTS: Final = 48


@dataclass(frozen=True, slots=True)
class _Effects:
    """The effects of accepted events on leader epochs, in event order within each epoch.

    An effect is one event in one leader epoch of its segment: the segment's states after (`states`) and
    before the event and after all events (`final`), its row, and the offsets at which the epoch starts and
    ends in it. `opening` marks the segment's first event.
    """

    epochs: Int64s
    states: Int64s
    before: Int64s
    rows: Rows
    starts: Int64s
    ends: Int64s
    final: Int64s
    opening: Bools

    def cut(self, where: slice) -> Self:
        return type(self)(
            self.epochs[where],
            self.states[where],
            self.before[where],
            self.rows[where],
            self.starts[where],
            self.ends[where],
            self.final[where],
            self.opening[where],
        )


def apply_epoch_effects(
    cache: RemoteLogMetadataCache, events: EventColumns, decisions: Decisions, rows: Rows, accepted: Rows
) -> None:
    """Apply the `accepted` events to the cache's epoch indexes; `rows` are the segments' rows."""
    effects = _effects(cache.columns, events, decisions, rows, accepted)
    cuts = np.flatnonzero(np.diff(effects.epochs)) + 1
    bounds = [0, *cuts.tolist(), len(effects.epochs)]
    for begin, end in pairwise(bounds):
        index = cache.epoch_index(int(effects.epochs[begin]))
        part = effects.cut(slice(begin, end))
        if end - begin < _FEW_EFFECTS or not _is_in_order(index, part) or not _apply_in_order(index, part):
            _apply_one_by_one(index, part)


def _effects(
    columns: SegmentColumns, events: EventColumns, decisions: Decisions, rows: Rows, accepted: Rows
) -> _Effects:
    touched = np.flatnonzero(rows >= 0)
    runs = epoch_runs(columns, rows[touched])
    run_of_segment = np.empty(len(rows), dtype=np.int64)
    run_of_segment[touched] = np.arange(len(touched))
    segments = decisions.segments[accepted]
    opening = np.zeros(len(accepted), dtype=bool)
    opening[np.unique(segments, return_index=True)[1]] = True
    of_epoch, of_event = _expand(runs, run_of_segment[segments])
    order = np.argsort(runs.epochs[of_epoch], kind="stable")
    of_epoch, of_event = of_epoch[order], of_event[order]
    segments = segments[of_event]
    return _Effects(
        epochs=runs.epochs[of_epoch],
        states=events.states[decisions.at[accepted]].astype(np.int64)[of_event],
        before=decisions.before[accepted][of_event],
        rows=rows[segments],
        starts=runs.starts[of_epoch],
        ends=runs.ends[of_epoch],
        final=decisions.final[segments],
        opening=opening[of_event],
    )


def _expand(runs: EpochRuns, run_of_event: Int64s) -> tuple[Int64s, Int64s]:
    """Pair each event with each leader epoch of its segment.

    Return the indexes of the epochs in `runs` and the indexes of the events, pair by pair.
    """
    counts = runs.counts[run_of_event]
    firsts = np.cumsum(runs.counts) - runs.counts
    return ranges(firsts[run_of_event], counts), np.repeat(np.arange(len(run_of_event)), counts)


def _is_in_order(index: EpochIndex, effects: _Effects) -> bool:
    """Return whether each segment was finished above all finished before, so that none is superseded."""
    starts = effects.starts[effects.states == FINISHED]
    is_above = not len(starts) or not index.rows or index.start_of(index.rows[-1]) < starts[0]
    return is_above and bool((np.diff(starts) > 0).all())


def _apply_one_by_one(index: EpochIndex, effects: _Effects) -> None:
    for state, row, start, end in zip(
        effects.states.tolist(),
        effects.rows.tolist(),
        effects.starts.tolist(),
        effects.ends.tolist(),
        strict=True,
    ):
        if state == STARTED:
            index.add_unreferenced(row)
        elif state == FINISHED:
            index.finished(row, start, end)
        elif state == DELETE_STARTED:
            index.delete_started(row, start)
        else:
            index.delete_finished(row)


def _apply_in_order(index: EpochIndex, effects: _Effects) -> bool:
    """Apply all effects at once; return False, unchanged, if Kafka's hash set would grow meanwhile.

    Growth reorders the set's bins depending on their contents at that moment.
    """
    is_member = np.isin(effects.rows, np.fromiter(index.unreferenced, dtype=np.int64))
    enters, leaves = _set_changes(effects, is_member)
    sizes = len(index.unreferenced) + np.cumsum(enters.astype(np.int64) - leaves)
    if index.grows_at(int(sizes.max())):
        return False
    for row in effects.rows[leaves & is_member].tolist():
        index.unreferenced.pop(row, None)
    stays = (effects.final == STARTED) | (effects.final == DELETE_STARTED)
    for row in effects.rows[enters & stays].tolist():
        index.unreferenced.pop(row, None)
        index.unreferenced[row] = None
    is_finishing = effects.states == FINISHED
    if is_finishing.any():
        index.raise_highest_offset(int(effects.ends[is_finishing].max()))
        index.append_many(effects.rows[is_finishing & (effects.final == FINISHED)])
    index.take_out(effects.rows[effects.states == DELETE_STARTED])
    return True


def _set_changes(effects: _Effects, is_member: Bools) -> tuple[Bools, Bools]:
    """Return which effects add their segment to the set of unreferenced ones, and which remove it."""
    was_in = (effects.before == STARTED) | (effects.before == DELETE_STARTED)
    # A segment that was superseded in an earlier chunk is finished and yet in the set.
    was_in |= is_member & effects.opening & (effects.before == FINISHED)
    goes_in = (effects.states == STARTED) | (effects.states == DELETE_STARTED)
    return goes_in & ~was_in, ~goes_in & was_in
