"""The fold of one chunk: consecutive records of one metadata partition."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from tierctl.errors import CorruptInputError, IllegalEventError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import MetadataEvent, is_valid_partition_transition
from tierctl.state.fold.event_columns import (
    ERROR,
    IGNORED,
    PARTITION_DELETE,
    REFUSED,
    SNAPSHOT,
    UPDATE,
    EventColumns,
    event_columns,
)
from tierctl.state.fold.regular_events import fold_regular
from tierctl.state.segment_cache import check_new_segment, refused_update
from tierctl.state.segment_table import SegmentTable
from tierctl.state.segments.columns import Rows, view
from tierctl.state.tier_state import Anomaly, PartitionState, Quarantined, TierState
from tierctl.wire.arrays import Bools, Int64s

_P = RemotePartitionDeleteState
_TOPICS_KEPT: Final = 1 << 16
"""Number of topics whose ids are encoded as text once, instead of once per user partition."""


def fold(
    table: pa.Table,
    state: TierState,
    *,
    metadata_partition: int,
    metadata_offsets: Sequence[int] | Int64s,
    next_offset: int | None = None,
) -> Rows:
    """Apply records of one metadata partition, in offset order, to `state`.

    Return the row of the first event of each user partition, ascending.

    `table` is the result of `wire.metadata.decode_column`; `metadata_offsets[i]` is the offset of row i.
    Rows with an error, and events that Kafka refuses, go to `state.quarantined`; events that Kafka ignores
    are counted as anomalies; tombstones are skipped. Afterwards, `state.read[metadata_partition]` is the
    offset after the last row, or `next_offset` if that is higher.
    """
    chunk = _Chunk(event_columns(table), np.asarray(metadata_offsets, dtype=np.int64), metadata_partition)
    firsts = chunk.fold(state)
    last = int(chunk.offsets[-1]) + 1 if len(chunk.offsets) else 0
    state.read[metadata_partition] = max(state.read.get(metadata_partition, 0), last, next_offset or 0)
    return firsts


def fold_event(
    event: MetadataEvent, state: TierState, *, metadata_partition: int, metadata_offset: int
) -> None:
    """Apply one event to `state`; raise IllegalEventError if Kafka refuses the event."""
    if not _apply(event, state, metadata_partition, metadata_offset):
        state.note(Anomaly(metadata_partition, metadata_offset, _partition_of(event), event))


def _partition_of(event: MetadataEvent) -> TopicIdPartition:
    """Return the event's user partition; raise IllegalEventError for an entry of a snapshot file."""
    if isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise _snapshot_refusal()
    return event.topic_id_partition


class _Chunk:
    """One fold of the events of one metadata partition."""

    def __init__(self, events: EventColumns, offsets: Int64s, metadata_partition: int) -> None:
        self.events = events
        self.offsets = offsets
        self.metadata_partition = metadata_partition
        self.quarantined: list[Quarantined] = []
        self.ignored: list[int] = []

    def fold(self, state: TierState) -> Rows:
        """Fold the events into `state`; return the row of the first event of each user partition."""
        events = self.events
        for row in np.flatnonzero(events.kinds == ERROR).tolist():
            found = events.table.column("error")[row].as_py()
            self._quarantine(row, CorruptInputError("record", expected="a metadata event", found=found))
        for row in np.flatnonzero(events.kinds == SNAPSHOT).tolist():
            self._quarantine(row, _snapshot_refusal())
        table = state.table(self.metadata_partition)
        firsts = events.first_rows()
        numbers = self._numbers(state, table, firsts)
        is_event = events.kinds <= PARTITION_DELETE
        self._note_offsets(table, numbers, is_event)
        regular = self._fold_regular(table, numbers)
        rest = np.flatnonzero(is_event & ~regular)
        self._fold_rows(rest, state)
        for number in _distinct(numbers[rest]):
            if number in table.irregular:
                table.make_regular(number)
        table.forget_caches(_distinct(numbers[regular]))
        # The fold of columns and the fold row by row reported in turn: restore the order of offsets.
        state.quarantined += sorted(self.quarantined, key=lambda q: q.metadata_offset)
        self._note_ignored(state)
        return firsts[firsts >= 0]

    def _numbers(self, state: TierState, table: SegmentTable, firsts: Rows) -> Int64s:
        """Return the number of each event's user partition in `table`; `firsts` are `events.first_rows()`.

        Return -1 for the events of user partitions that are in another metadata partition's table, and for
        rows without an event. User partitions that the events name differently become irregular.
        """
        events = self.events
        used = np.flatnonzero(firsts >= 0)
        numbers = np.full(len(firsts), -1, dtype=np.int64)
        found = []
        for key, topic in events.partition_keys(firsts[used]):
            number = table.numbers.get(key, -1)
            if number < 0:
                partition = TopicIdPartition(_topic_id(key[0]), topic, key[1])
                part = state.add_partition(partition, self.metadata_partition)
                number = part.number if part.table is table else -1
            elif table.columns.names[number].topic != topic:
                table.make_irregular(number)
            found.append(number)
        numbers[used] = found
        renamed = (events.topics != events.topics[firsts[events.owners]]) & (events.kinds <= UPDATE)
        of_rows = np.where(events.kinds <= PARTITION_DELETE, numbers[events.owners], -1)
        for number in _distinct(of_rows[renamed]):
            table.make_irregular(number)
        return of_rows

    def _note_offsets(self, table: SegmentTable, numbers: Int64s, is_event: Bools) -> None:
        known = np.flatnonzero(is_event & (numbers >= 0))
        np.maximum.at(view(table.last_event_offsets), numbers[known], self.offsets[known])

    def _fold_regular(self, table: SegmentTable, numbers: Int64s) -> Bools:
        """Fold the segment events of regular user partitions; return which rows were folded."""
        events = self.events
        is_chosen = (events.kinds <= UPDATE) & (numbers >= 0)
        is_irregular = np.zeros(len(table.counts) + 1, dtype=bool)
        is_irregular[[*table.irregular]] = True
        while True:
            rows = np.flatnonzero(is_chosen & ~is_irregular[numbers])
            outcomes, irregular = fold_regular(table, events, rows, numbers[rows])
            if not irregular:
                break
            for number in irregular:
                table.make_irregular(number)
            is_irregular[[*irregular]] = True
        self.ignored += rows[outcomes == IGNORED].tolist()
        for row in rows[outcomes == REFUSED].tolist():
            self._quarantine(row, _refusal(events.event(row)))
        folded = np.zeros(len(events), dtype=bool)
        folded[rows] = True
        return folded

    def _fold_rows(self, rows: Rows, state: TierState) -> None:
        for row, event in zip(rows.tolist(), self.events.events(rows), strict=True):
            try:
                if not _apply(event, state, self.metadata_partition, int(self.offsets[row])):
                    self.ignored.append(row)
            except CorruptInputError as e:
                self._quarantine(row, e)

    def _note_ignored(self, state: TierState) -> None:
        """Count the ignored events as anomalies; the first are kept."""
        rows = sorted(self.ignored)
        kept = rows[: state.anomaly_room]
        for row in kept:
            event = self.events.event(row)
            offset = int(self.offsets[row])
            state.note(Anomaly(self.metadata_partition, offset, _partition_of(event), event))
        state.anomaly_count += len(rows) - len(kept)

    def _quarantine(self, row: int, error: CorruptInputError) -> None:
        self.quarantined.append(Quarantined(self.metadata_partition, int(self.offsets[row]), error))


def _distinct(numbers: Int64s) -> list[int]:
    """Return the distinct numbers, ascending; -1 is none."""
    found: list[int] = np.flatnonzero(np.bincount(numbers[numbers >= 0])).tolist()
    return found


@lru_cache(maxsize=_TOPICS_KEPT)
def _topic_id(raw: bytes) -> Uuid:
    return Uuid.from_bytes(raw)


def _snapshot_refusal() -> IllegalEventError:
    return IllegalEventError(
        "metadata record", expected="an event of the metadata topic", found="an entry of a snapshot file"
    )


def _refusal(event: MetadataEvent) -> CorruptInputError:
    """Return the error with which any cache refuses an impossible segment or an update to STARTED."""
    if isinstance(event, RemoteLogSegmentMetadata):
        try:
            check_new_segment(event)
        except CorruptInputError as e:
            return e
    assert isinstance(event, RemoteLogSegmentMetadataUpdate)
    return refused_update(event)


def _apply(event: MetadataEvent, state: TierState, metadata_partition: int, metadata_offset: int) -> bool:
    """Apply one event; return False if Kafka ignores it."""
    part = state.add_partition(_partition_of(event), metadata_partition)
    table, number = part.table, part.number
    table.last_event_offsets[number] = max(table.last_event_offsets[number], metadata_offset)
    if isinstance(event, RemotePartitionDeleteMetadata):
        return _advance_deletion(part, event.state, metadata_offset)
    cache = table.make_irregular(number)
    if isinstance(event, RemoteLogSegmentMetadata):
        is_added = cache.add(event)
        if is_added:
            table.lowest_starts[number] = min(table.lowest_starts[number], event.start_offset)
        return is_added
    assert isinstance(event, RemoteLogSegmentMetadataUpdate)
    return cache.update(event)


def _advance_deletion(part: PartitionState, target: RemotePartitionDeleteState, metadata_offset: int) -> bool:
    """Apply a partition's delete event; return False if its state does not allow the transition.

    A repeated DELETE_PARTITION_MARKED does not change `delete_marked_offset`.
    """
    if not is_valid_partition_transition(part.delete_state, target):
        return False
    if target is _P.DELETE_PARTITION_MARKED and part.delete_marked_offset is None:
        part.delete_marked_offset = metadata_offset
    if target is _P.DELETE_PARTITION_FINISHED:
        part.delete_marked_offset = None
    part.delete_state = target
    return True
