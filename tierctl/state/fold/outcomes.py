"""Decides, for many events of one metadata partition, which events a cache accepts, ignores, or refuses.

Most segments have the events STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED, in this order and once each:
their events are checked as columns. The events of all other segments are checked one by one against the
transition table.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.model import is_valid_transition
from tierctl.state.fold.event_columns import ADD, EventColumns
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import STATE_MASK, STATES, SegmentColumns
from tierctl.wire.arrays import Bools, Int64s, array_of, distinct

ACCEPTED: Final = 0
IGNORED: Final = 1
REFUSED: Final = 2

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
NO_SEGMENT: Final = 4
"""The state of a segment before its first event; other states are indexes of STATES."""

# _REGULAR[is an add, state before, state of the event]: whether the event is the usual next one.
_REGULAR: Final = np.zeros((2, 5, 8), dtype=bool)
_REGULAR[1, NO_SEGMENT, STARTED] = True
_REGULAR[0, STARTED, [FINISHED, DELETE_STARTED]] = True
_REGULAR[0, FINISHED, DELETE_STARTED] = True
_REGULAR[0, DELETE_STARTED, DELETE_FINISHED] = True

Outcomes = npt.NDArray[np.uint8]
"""ACCEPTED, IGNORED or REFUSED, by event."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The outcomes of events, and the resulting state of each segment.

    By event: `at` is its row in the event columns, `segments` the number of its segment, `before` the
    segment's state before the event, `outcomes` its outcome. By segment, in order of appearance: `owners` is
    the number of its user partition, `rows` its row in the columns (-1 if they do not have the segment, see
    `known`), `first` the index of the add event with its facts, `last_update` the index of its last accepted
    update (-1 for none), `final` its state after all events. `irregular` has the user partitions whose events
    only the fold event by event handles: a segment is added again after its deletion or with other leader
    epochs, or two user partitions use one segment id.
    """

    at: Rows
    segments: Int64s
    before: Int64s
    outcomes: Outcomes
    owners: Int64s
    rows: Rows
    known: Bools
    first: Int64s
    last_update: Int64s
    final: Int64s
    irregular: set[int]


def decide(columns: SegmentColumns, events: EventColumns, at: Rows, owners: Int64s) -> Decisions:
    """Decide the outcomes of events `at`, given the segments in `columns`.

    `owners` are the numbers of the events' user partitions, as in `columns.owners`.
    """
    segments, ids = _number_segments(events, at)
    rows = columns.ids.find_many(ids)
    known = rows >= 0
    segment_owners = np.empty(len(rows), dtype=np.int64)
    segment_owners[segments] = owners
    shared = segment_owners[segments] != owners
    irregular = {*owners[shared].tolist(), *segment_owners[segments[shared]].tolist()}
    known_owners = view(columns.owners)[rows[known]]
    shared = known_owners != segment_owners[known]
    irregular.update(known_owners[shared].tolist(), segment_owners[known][shared].tolist())
    initial = np.full(len(rows), NO_SEGMENT, dtype=np.int64)
    initial[known] = view(columns.flags)[rows[known]] & STATE_MASK
    order = np.argsort(segments, kind="stable")
    ordered = segments[order]
    opens = np.append(True, ordered[1:] != ordered[:-1])
    states = events.states[at].astype(np.int64)
    before = np.empty(len(at), dtype=np.int64)
    before[order] = np.where(opens, initial[ordered], np.roll(states[order], 1))
    is_add = events.kinds[at] == ADD
    is_regular = _REGULAR[is_add.astype(int), before, states] & ~(is_add & _is_impossible(events, at))
    last = np.empty(len(rows), dtype=np.int64)
    last[ordered] = order
    first, last_update = np.full(len(rows), -1), np.full(len(rows), -1)
    first[segments[is_add]] = np.flatnonzero(is_add)
    updates = ~is_add[last]
    last_update[updates] = last[updates]
    outcomes = np.zeros(len(at), np.uint8)
    decisions = Decisions(
        at,
        segments,
        before,
        outcomes,
        segment_owners,
        rows,
        known,
        first,
        last_update,
        states[last],
        irregular,
    )
    is_irregular = np.zeros(len(rows), dtype=bool)
    is_irregular[segments[~is_regular]] = True
    _decide_irregular(events, decisions, is_irregular, initial)
    return decisions


def _number_segments(events: EventColumns, at: Rows) -> tuple[Int64s, npt.NDArray[np.uint64]]:
    """Return the number of each event's segment, in order of appearance, and the segments' ids."""
    ids = np.ascontiguousarray(events.ids[at])
    numbers, found = distinct(array_of(pa.binary(16), ids))
    return numbers, np.frombuffer(found.buffers()[1], dtype=np.uint64).reshape(-1, 2)


def _is_impossible(events: EventColumns, at: Rows) -> Bools:
    """Return which add events RemoteLogSegmentMetadata's constructor refuses."""
    starts, ends = events.starts[at], events.ends[at]
    impossible: Bools = (starts < 0) | (ends < starts) | (events.pair_counts[at] == 0)
    return impossible


def _decide_irregular(
    events: EventColumns, decisions: Decisions, is_irregular: Bools, initial: Int64s
) -> None:
    """Correct `decisions` for the segments in `is_irregular`, event by event.

    `initial` is the state of each segment before the events.
    """
    indexes = np.flatnonzero(is_irregular[decisions.segments])
    impossible = _is_impossible(events, decisions.at[indexes]).tolist()
    now = {segment: int(initial[segment]) for segment in np.flatnonzero(is_irregular).tolist()}
    decisions.first[is_irregular] = -1
    decisions.last_update[is_irregular] = -1
    decisions.final[is_irregular] = initial[is_irregular]
    for i, is_impossible in zip(indexes.tolist(), impossible, strict=True):
        segment, state = int(decisions.segments[i]), int(events.states[decisions.at[i]])
        before = now[segment]
        decisions.before[i] = before
        is_add = bool(events.kinds[decisions.at[i]] == ADD)
        outcome = _outcome(is_add=is_add, is_impossible=is_impossible, before=before, state=state)
        decisions.outcomes[i] = outcome
        if outcome != ACCEPTED:
            continue
        if is_add and not _is_plain_add(events, decisions, segment, i):
            decisions.irregular.add(int(decisions.owners[segment]))
        now[segment] = NO_SEGMENT if state == DELETE_FINISHED else state
        (decisions.first if is_add else decisions.last_update)[segment] = i
        decisions.final[segment] = state


def _is_plain_add(events: EventColumns, decisions: Decisions, segment: int, i: int) -> bool:
    """Return whether accepted add event `i` is the segment's first, or repeats its leader epochs."""
    first = int(decisions.first[segment])
    if first < 0:
        return not decisions.known[segment]
    is_repeated = decisions.before[i] == STARTED
    return bool(is_repeated) and events.pairs(int(decisions.at[first])) == events.pairs(int(decisions.at[i]))


def _outcome(*, is_add: bool, is_impossible: bool, before: int, state: int) -> int:
    """Return the outcome of one event of a segment whose state is `before`."""
    if is_add:
        if is_impossible or state != STARTED:
            return REFUSED
        return ACCEPTED if before in {NO_SEGMENT, STARTED} else IGNORED
    if before == NO_SEGMENT or not is_valid_transition(STATES[before], STATES[state]):
        return IGNORED
    return REFUSED if state == STARTED else ACCEPTED
