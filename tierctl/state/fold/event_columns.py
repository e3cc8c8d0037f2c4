"""The NumPy columns of a decoded table, on which the fold works, and their rows as the model's events."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    Uuid,
    is_valid_transition,
)
from tierctl.model.events import MetadataEvent
from tierctl.state.segments.columns import STATE_MASK, STATES, Ids, Rows, SegmentColumns, ranges, view
from tierctl.wire.arrays import Bools, Int64s, are_given, array_of, distinct, item_counts, numbers, take_rows
from tierctl.wire.metadata.encode_columns import event_at
from tierctl.wire.metadata.event_table import EVENT_SCHEMA

# Values of `EventColumns.kinds`.
ADD: Final = 0
UPDATE: Final = 1
PARTITION_DELETE: Final = 2
SNAPSHOT: Final = 3
TOMBSTONE: Final = 4
ERROR: Final = 5
_KINDS: Final = {
    RemoteLogSegmentMetadata.type: ADD,
    RemoteLogSegmentMetadataUpdate.type: UPDATE,
    RemotePartitionDeleteMetadata.type: PARTITION_DELETE,
    RemoteLogSegmentMetadataSnapshot.type: SNAPSHOT,
}
_STATES: Final = {state.value: code for code, state in enumerate(STATES)}
NO_STATE: Final = 7
_DELETED: Final = STATES.index(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumns:
    """The events of a table in offset order, one row per event.

    `kinds[i]` determines which columns are valid in row i; a column that the event lacks is 0. Row i has
    `pair_counts[i]` (epoch, start offset) pairs, which end before index `pair_ends[i]` in `pair_epochs` and
    `pair_starts`. `owners` numbers the user partitions, identified by (topic id, partition), and `topics`
    numbers the topic names, both in order of appearance. `writers` is the broker id, or the leader epoch if
    `kip405`.
    """

    table: pa.Table
    kinds: npt.NDArray[np.uint8]
    states: npt.NDArray[np.uint8]
    owners: Int64s
    topics: Int64s
    ids: Ids
    starts: Int64s
    ends: Int64s
    max_timestamps: Int64s
    event_timestamps: Int64s
    writers: npt.NDArray[np.int32]
    kip405: Bools
    sizes: npt.NDArray[np.int32]
    txn_index_empty: Bools
    has_custom: Bools
    has_tags: Bools
    pair_counts: Int64s
    pair_ends: Int64s
    pair_epochs: Int64s
    pair_starts: Int64s

    def __len__(self) -> int:
        return len(self.kinds)

    def pairs(self, row: int) -> tuple[tuple[int, int], ...]:
        """Return the (epoch, start offset) pairs of one row in the order of its event."""
        cut = slice(int(self.pair_ends[row] - self.pair_counts[row]), int(self.pair_ends[row]))
        return tuple(zip(self.pair_epochs[cut].tolist(), self.pair_starts[cut].tolist(), strict=True))

    def custom(self, row: int) -> bytes | None:
        """Return the custom metadata of one row; None for null."""
        value: bytes | None = self.table.column("custom_metadata")[row].as_py()
        return value

    def event(self, row: int) -> MetadataEvent:
        """Return one row, which must contain an event, as the model's event."""
        event = event_at(self.table, row)
        assert event is not None
        return event

    def events(self, rows: Rows) -> Iterator[MetadataEvent]:
        """Yield `rows`, which must hold events, as the model's events; a few microseconds per event."""
        partitions: dict[tuple[int, int], dict[str, Any]] = {}
        names = (
            "kinds",
            "owners",
            "topics",
            "states",
            "event_timestamps",
            "writers",
            "kip405",
            "has_custom",
            "has_tags",
        )
        columns = [getattr(self, name)[rows].tolist() for name in names]
        for row, kind, owner, topic, state, timestamp, writer, kip405, custom, tags in zip(
            rows.tolist(), *columns, strict=True
        ):
            if tags or kind not in {ADD, UPDATE}:
                yield self.event(row)
                continue
            if (owner, topic) not in partitions:
                partition = self.partition(row)
                partitions[owner, topic] = {
                    "topic": partition.topic,
                    "topic_id": partition.topic_id,
                    "partition": partition.partition,
                }
            facts = partitions[owner, topic] | {
                "segment_id": Uuid.from_bytes(self.ids[row].tobytes()),
                "broker_id": None if kip405 else writer,
                "leader_epoch": writer if kip405 else None,
                "event_timestamp_ms": timestamp,
                "custom_metadata": self.custom(row) if custom else None,
                "state": STATES[state],
            }
            yield RemoteLogSegmentMetadataUpdate(**facts) if kind == UPDATE else self._segment(row, facts)

    def first_rows(self) -> Rows:
        """Return the first row of an event of each user partition, by number; -1 if it has none."""
        rows = np.flatnonzero(self.kinds <= PARTITION_DELETE)
        firsts = np.full(int(self.owners.max(initial=-1)) + 1, -1, dtype=np.int64)
        firsts[self.owners[rows][::-1]] = rows[::-1]
        return firsts

    def partition_keys(self, rows: Rows) -> Iterator[tuple[tuple[bytes, int], str]]:
        """Yield the topic id and the number, and the topic, of the user partitions of `rows`."""
        ids = take_rows(_column(self.table, "topic_id").storage, rows).to_pylist()
        partitions = take_rows(_column(self.table, "partition"), rows).to_pylist()
        topics = take_rows(_column(self.table, "topic"), rows).to_pylist()
        return zip(zip(ids, partitions, strict=True), topics, strict=True)

    def partition(self, row: int) -> TopicIdPartition:
        """Return the user partition of one row."""
        topic_id, topic, partition = (
            self.table.column(name)[row].as_py() for name in ("topic_id", "topic", "partition")
        )
        return TopicIdPartition(topic_id, topic, partition)

    def _segment(self, row: int, facts: dict[str, Any]) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            **facts,
            start_offset=int(self.starts[row]),
            end_offset=int(self.ends[row]),
            max_timestamp_ms=int(self.max_timestamps[row]),
            segment_leader_epochs=self.pairs(row),
            segment_size_in_bytes=int(self.sizes[row]),
            txn_index_empty=bool(self.txn_index_empty[row]),
        )


def event_columns(table: pa.Table) -> EventColumns:
    """Return the columns of a table that `wire.metadata.decode_column` returned."""
    table = table.select(EVENT_SCHEMA.names).unify_dictionaries().combine_chunks()
    writers, leader_epochs = _column(table, "broker_id"), _column(table, "leader_epoch")
    kip405 = ~are_given(writers)
    pair_counts, pair_epochs, pair_starts = _pairs(_column(table, "segment_leader_epochs"))
    return EventColumns(
        table=table,
        kinds=_kinds(table),
        states=_codes(_column(table, "state"), _STATES, NO_STATE),
        owners=_owners(table),
        topics=distinct(_column(table, "topic"))[0],
        ids=_words(_column(table, "segment_id")),
        starts=numbers(_column(table, "start_offset")),
        ends=numbers(_column(table, "end_offset")),
        max_timestamps=numbers(_column(table, "max_timestamp_ms")),
        event_timestamps=numbers(_column(table, "event_timestamp_ms")),
        writers=np.where(kip405, numbers(leader_epochs), numbers(writers)).astype(np.int32),
        kip405=kip405,
        sizes=numbers(_column(table, "segment_size_in_bytes")),
        txn_index_empty=numbers(_column(table, "txn_index_empty")).astype(bool),
        has_custom=are_given(_column(table, "custom_metadata")),
        has_tags=item_counts(_column(table, "unknown_tags")) > 0,
        pair_counts=pair_counts,
        pair_ends=np.cumsum(pair_counts),
        pair_epochs=pair_epochs,
        pair_starts=pair_starts,
    )


def finished_deletions(table: pa.Table) -> Ids:
    """Return the distinct ids of all segments that have a DELETE_SEGMENT_FINISHED event in `table`."""
    events = event_columns(table)
    rows = np.flatnonzero((events.kinds == UPDATE) & (events.states == _DELETED))
    ids: Ids = np.unique(events.ids[rows], axis=0)
    return ids


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _words(array: pa.Array) -> Ids:
    """Return 16-byte ids as pairs of native 64-bit words; a null has undefined words."""
    storage = array.storage
    buffer = storage.buffers()[1]
    raw = np.frombuffer(buffer, dtype=np.uint8) if buffer else np.zeros(0, dtype=np.uint8)
    cut = raw[16 * storage.offset : 16 * (storage.offset + len(storage))]
    return np.frombuffer(cut.tobytes(), dtype=np.uint64).reshape(-1, 2)


def _codes(array: pa.DictionaryArray, codes: dict[str, int], other: int) -> npt.NDArray[np.uint8]:
    by_index = np.array([codes.get(name, other) for name in array.dictionary.to_pylist()] + [other], np.uint8)
    codes_of_rows: npt.NDArray[np.uint8] = by_index[numbers(array.indices, null=len(by_index) - 1)]
    return codes_of_rows


def _kinds(table: pa.Table) -> npt.NDArray[np.uint8]:
    kinds = _codes(_column(table, "type"), _KINDS, TOMBSTONE)
    kinds[are_given(_column(table, "error"))] = ERROR
    return kinds


def _owners(table: pa.Table) -> Int64s:
    topics, _ = distinct(_column(table, "topic_id").storage)
    keys = (topics << 32) + numbers(_column(table, "partition"))
    return distinct(array_of(pa.int64(), keys))[0]


def _pairs(lists: pa.ListArray) -> tuple[Int64s, Int64s, Int64s]:
    inner = lists.values
    ends, lengths = numbers(lists.offsets)[1:].astype(np.int64), item_counts(lists)
    firsts = ranges(ends - lengths, lengths)
    at = numbers(inner.offsets)[firsts] if len(firsts) else firsts
    values = numbers(inner.values)
    return lengths, values[at], values[at + 1]


# Decides, for many events of one metadata partition, which events a cache accepts, ignores, or refuses.
#
# Most segments have the events STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED, in this order and once
# each: their events are checked as columns. The events of all other segments are checked one by one against
# the transition table.

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
