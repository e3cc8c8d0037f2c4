"""Folds many events of one user partition at once, with the answers of folding them one by one.

Most segments go through STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED in this order and once: theirs
are checked as columns. The others' events go one by one through the transition table. What was accepted
changes the indexes of leader epochs: an epoch that was copied in order of offsets is changed as columns, in
any other each accepted event is applied on its own, in order.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.model import is_valid_transition
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold.event_columns import ADD, Bools, EventColumns, Int64s
from tierctl.state.fold.segment_writes import EpochRuns, epoch_runs, extend, kill, set_updates
from tierctl.state.segments.arrays import Rows, ranges, view
from tierctl.state.segments.columns import STATE_MASK, STATES, SegmentColumns
from tierctl.state.segments.epoch_index import EpochIndex

TAKEN: Final = 0
DROPPED: Final = 1
REFUSED: Final = 2

_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = range(4)
_NONE: Final = 4
_FEW_EFFECTS: Final = 48

# _REGULAR[is an add, state before, state of the event]: the usual next step of a segment.
_REGULAR: Final = np.zeros((2, 5, 8), dtype=bool)
_REGULAR[1, _NONE, _STARTED] = True
_REGULAR[0, _STARTED, [_FINISHED, _DELETE_STARTED]] = True
_REGULAR[0, _FINISHED, _DELETE_STARTED] = True
_REGULAR[0, _DELETE_STARTED, _DELETE_FINISHED] = True

Outcomes = npt.NDArray[np.uint8]


def apply_events(cache: RemoteLogMetadataCache, events: EventColumns, at: Rows) -> Outcomes | None:
    """Fold events `at`, all of one partition's segments and in order; says what became of each.

    None when the history is one for which only one by one will do; then nothing was changed.
    """
    columns = cache.columns
    if not isinstance(columns, SegmentColumns) or cache.has_reshaped or not _of_one_name(columns, events, at):
        return None
    judged = _judge(columns, events, at)
    if judged is None:
        return None
    rows = _write(columns, events, judged, judged.final != _DELETE_FINISHED)
    accepted = np.flatnonzero(judged.outcomes == TAKEN)
    if len(accepted):
        _apply_effects(cache, _effects(columns, events, judged, rows, accepted))
    gone = judged.final == _DELETE_FINISHED
    kill(columns, rows[gone & judged.known])
    cache.count_dead(int(gone.sum()))
    return judged.outcomes


def _of_one_name(columns: SegmentColumns, events: EventColumns, at: Rows) -> bool:
    """Whether the partition has one name throughout: then no row needs its own."""
    known = columns.partition is None or columns.partition == events.partition(int(at[0]))
    return known and bool((events.topics[at] == events.topics[at[0]]).all())


@dataclass(frozen=True, slots=True)
class _Judged:
    """What becomes of events and segments.

    By event: its place in the table, its segment, the segment's state before it, its outcome. By segment
    (in order of appearance): its row or -1, whether the cache knew it, the add event it has its facts from
    and its last accepted update (indexes of events, -1 for none), and the state it ends in.
    """

    at: Rows
    segments: Int64s
    before: Int64s
    outcomes: Outcomes
    rows: Rows
    known: Bools
    first: Int64s
    last_update: Int64s
    final: Int64s


def _judge(columns: SegmentColumns, events: EventColumns, at: Rows) -> _Judged | None:
    ids = events.ids[at]
    encoded = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(at), [None, pa.py_buffer(np.ascontiguousarray(ids))]
    ).dictionary_encode()
    segments = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = np.frombuffer(encoded.dictionary.buffers()[1], dtype=np.uint64).reshape(-1, 2)
    rows = columns.ids.find_many(distinct)
    known = rows >= 0
    initial = np.full(len(rows), _NONE, dtype=np.int64)
    initial[known] = view(columns.flags)[rows[known]] & STATE_MASK
    order = np.argsort(segments, kind="stable")
    ordered = segments[order]
    opens = np.append(True, ordered[1:] != ordered[:-1])
    states = events.states[at].astype(np.int64)
    before = np.empty(len(at), dtype=np.int64)
    before[order] = np.where(opens, initial[ordered], np.roll(states[order], 1))
    is_add = events.kinds[at] == ADD
    # A segment that comes back after its deletion is a case for the one-by-one fold.
    regular = _REGULAR[is_add.astype(int), before, states] & ~(is_add & _impossible(events, at))
    last = np.empty(len(rows), dtype=np.int64)
    last[ordered] = order
    first, last_update = np.full(len(rows), -1), np.full(len(rows), -1)
    first[segments[is_add]] = np.flatnonzero(is_add)
    updates = ~is_add[last]
    last_update[updates] = last[updates]
    judged = _Judged(
        at, segments, before, np.zeros(len(at), np.uint8), rows, known, first, last_update, states[last]
    )
    odd = np.zeros(len(rows), dtype=bool)
    odd[segments[~regular]] = True
    return judged if _judge_odd(events, judged, odd, initial) else None


def _impossible(events: EventColumns, at: Rows) -> Bools:
    """Adds of what can be no segment (RemoteLogSegmentMetadata's constructor)."""
    starts, ends = events.starts[at], events.ends[at]
    impossible: Bools = (starts < 0) | (ends < starts) | (events.pair_counts[at] == 0)
    return impossible


def _judge_odd(events: EventColumns, judged: _Judged, odd: Bools, initial: Int64s) -> bool:
    """Corrects `judged` for segments with an unusual event; False when one-by-one is needed."""
    places = np.flatnonzero(odd[judged.segments])
    impossible = _impossible(events, judged.at[places]).tolist()
    now: dict[int, int] = {segment: int(initial[segment]) for segment in np.flatnonzero(odd).tolist()}
    judged.first[odd] = -1
    judged.last_update[odd] = -1
    judged.final[odd] = initial[odd]
    for i, cannot_be in zip(places.tolist(), impossible, strict=True):
        segment, state = int(judged.segments[i]), int(events.states[judged.at[i]])
        before = now[segment]
        judged.before[i] = before
        is_add = events.kinds[judged.at[i]] == ADD
        outcome = _outcome(is_add=bool(is_add), cannot_be=cannot_be, before=before, state=state)
        judged.outcomes[i] = outcome
        if outcome != TAKEN:
            continue
        if is_add and not _is_plain_add(events, judged, segment, i):
            return False
        now[segment] = _NONE if state == _DELETE_FINISHED else state
        (judged.first if is_add else judged.last_update)[segment] = i
        judged.final[segment] = state
    return True


def _is_plain_add(events: EventColumns, judged: _Judged, segment: int, i: int) -> bool:
    """Whether an accepted add is a segment's first in all of history, or repeats its epochs."""
    first = int(judged.first[segment])
    if first < 0:
        return not judged.known[segment]
    again = judged.before[i] == _STARTED
    return bool(again) and events.pairs(int(judged.at[first])) == events.pairs(int(judged.at[i]))


def _outcome(*, is_add: bool, cannot_be: bool, before: int, state: int) -> int:
    """What the cache says to one event of a segment whose state is `before`."""
    if is_add:
        if cannot_be or state != _STARTED:
            return REFUSED
        return TAKEN if before in {_NONE, _STARTED} else DROPPED
    if before == _NONE or not is_valid_transition(STATES[before], STATES[state]):
        return DROPPED
    return REFUSED if state == _STARTED else TAKEN


def record_events(columns: SegmentColumns, events: EventColumns, at: Rows) -> bool:
    """Like `apply_events`, for columns without a cache: deleted segments stay, in their last state.

    False when only one by one will do, as for an event of a segment that was deleted before.
    """
    if not _of_one_name(columns, events, at):
        return False
    rows = columns.ids.find_many(events.ids[at])
    if (view(columns.flags)[rows[rows >= 0]] & STATE_MASK == _DELETE_FINISHED).any():
        return False
    judged = _judge(columns, events, at)
    if judged is not None:
        _write(columns, events, judged, np.ones(len(judged.rows), dtype=bool))
    return judged is not None


def _write(columns: SegmentColumns, events: EventColumns, judged: _Judged, live: Bools) -> Rows:
    """The columns as of the last event; returns every segment's row, -1 for none."""
    new = np.flatnonzero(~judged.known & (judged.first >= 0))
    rows = judged.rows.copy()
    rows[new] = extend(columns, events, judged.at[judged.first[new]], live[new])
    updated = np.flatnonzero((judged.last_update >= 0) & live)
    set_updates(columns, events, rows[updated], judged.at[judged.last_update[updated]])
    return rows


@dataclass(frozen=True, slots=True)
class _Effects:
    """What accepted events do to leader epochs, in order within an epoch.

    An effect is an event in one epoch of its segment: the states before and after it and at the end of all,
    the segment's row, where the epoch starts and ends in it. `opening` says that the event is the segment's
    first one here.
    """

    epochs: Int64s
    states: Int64s
    before: Int64s
    rows: Rows
    starts: Int64s
    ends: Int64s
    final: Int64s
    opening: Bools

    def cut(self, where: slice) -> "_Effects":
        return _Effects(
            self.epochs[where],
            self.states[where],
            self.before[where],
            self.rows[where],
            self.starts[where],
            self.ends[where],
            self.final[where],
            self.opening[where],
        )


def _effects(
    columns: SegmentColumns, events: EventColumns, judged: _Judged, rows: Rows, accepted: Rows
) -> _Effects:
    touched = np.flatnonzero(rows >= 0)
    runs = epoch_runs(columns, rows[touched])
    place = np.empty(len(rows), dtype=np.int64)
    place[touched] = np.arange(len(touched))
    segments = judged.segments[accepted]
    opening = np.zeros(len(accepted), dtype=bool)
    opening[np.unique(segments, return_index=True)[1]] = True
    of_run, of_event = _expand(runs, place[segments])
    order = np.argsort(runs.epochs[of_run], kind="stable")
    of_run, of_event = of_run[order], of_event[order]
    segments = segments[of_event]
    return _Effects(
        epochs=runs.epochs[of_run],
        states=events.states[judged.at[accepted]].astype(np.int64)[of_event],
        before=judged.before[accepted][of_event],
        rows=rows[segments],
        starts=runs.starts[of_run],
        ends=runs.ends[of_run],
        final=judged.final[segments],
        opening=opening[of_event],
    )


def _expand(runs: EpochRuns, own: Int64s) -> tuple[Int64s, Int64s]:
    """Each event as often as its segment has epochs: (index of the epoch in `runs`, index of the event)."""
    counts = runs.counts[own]
    firsts = np.cumsum(runs.counts) - runs.counts
    return ranges(firsts[own], counts), np.repeat(np.arange(len(own)), counts)


def _apply_effects(cache: RemoteLogMetadataCache, effects: _Effects) -> None:
    cuts = np.flatnonzero(np.diff(effects.epochs)) + 1
    bounds = [0, *cuts.tolist(), len(effects.epochs)]
    for begin, end in pairwise(bounds):
        index = cache.epoch_index(int(effects.epochs[begin]))
        part = effects.cut(slice(begin, end))
        if end - begin < _FEW_EFFECTS or not _is_in_order(index, part) or not _apply_in_order(index, part):
            _apply_one_by_one(index, part)


def _is_in_order(index: EpochIndex, effects: _Effects) -> bool:
    """Whether every segment was finished above all that were finished before: nothing is superseded."""
    starts = effects.starts[effects.states == _FINISHED]
    above = not len(starts) or not index.rows or index.start_of(index.rows[-1]) < starts[0]
    return above and bool((np.diff(starts) > 0).all())


def _apply_one_by_one(index: EpochIndex, effects: _Effects) -> None:
    for state, row, start, end in zip(
        effects.states.tolist(),
        effects.rows.tolist(),
        effects.starts.tolist(),
        effects.ends.tolist(),
        strict=True,
    ):
        if state == _STARTED:
            index.add_unreferenced(row)
        elif state == _FINISHED:
            index.finished(row, start, end)
        elif state == _DELETE_STARTED:
            index.delete_started(row, start)
        else:
            index.delete_finished(row)


def _apply_in_order(index: EpochIndex, effects: _Effects) -> bool:
    """All effects at once; False, and nothing done, when Kafka's hash set would grow on the way.

    Its growth mixes up the order within bins, by what is in them at that moment.
    """
    there = np.isin(effects.rows, np.fromiter(index.unreferenced, dtype=np.int64))
    enters, leaves = _moves(effects, there)
    sizes = len(index.unreferenced) + np.cumsum(enters.astype(np.int64) - leaves)
    if index.grows_at(int(sizes.max())):
        return False
    for row in effects.rows[leaves & there].tolist():
        index.unreferenced.pop(row, None)
    stays = (effects.final == _STARTED) | (effects.final == _DELETE_STARTED)
    for row in effects.rows[enters & stays].tolist():
        index.unreferenced.pop(row, None)
        index.unreferenced[row] = None
    finishing = effects.states == _FINISHED
    if finishing.any():
        index.raise_highest_offset(int(effects.ends[finishing].max()))
        index.append_many(effects.rows[finishing & (effects.final == _FINISHED)])
    index.take_out(effects.rows[effects.states == _DELETE_STARTED])
    return True


def _moves(effects: _Effects, there: Bools) -> tuple[Bools, Bools]:
    """Which effects put their segment into the set of unreferenced ones, and which take it out."""
    was_in = (effects.before == _STARTED) | (effects.before == _DELETE_STARTED)
    # A segment superseded before is in the set although it is finished; here nothing is superseded.
    was_in |= there & effects.opening & (effects.before == _FINISHED)
    goes_in = (effects.states == _STARTED) | (effects.states == _DELETE_STARTED)
    return goes_in & ~was_in, ~goes_in & was_in
