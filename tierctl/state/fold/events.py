"""Folds decoded metadata events into the state of the tier."""

from collections.abc import Sequence
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
)
from tierctl.model.events import MetadataEvent
from tierctl.model.states import is_valid_partition_transition
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.fold.columns import DROPPED, TAKEN, apply_events
from tierctl.state.fold.event_columns import (
    ERROR,
    TOMBSTONE,
    UPDATE,
    EventColumns,
    Int64s,
    event_columns,
    events_of,
)
from tierctl.state.segments.arrays import Rows
from tierctl.state.tier import Anomaly, PartitionState, Quarantined, TierState

__all__ = ["events_of", "fold", "fold_event"]

_P = RemotePartitionDeleteState
# Below this, columns cost more than they save.
_LEAST_BULK_EVENTS: Final = 64


def fold(
    table: pa.Table,
    state: TierState,
    *,
    metadata_partition: int,
    metadata_offsets: Sequence[int] | Int64s,
    next_offset: int | None = None,
    least_bulk_events: int = _LEAST_BULK_EVENTS,
) -> None:
    """Fold records of one metadata partition, in offset order, into `state`.

    `table` is what wire.metadata.decode_column made of them; `metadata_offsets` are theirs, row by row.
    A row with an error goes to `state.quarantined`, as does one that Kafka would refuse; a tombstone is
    passed over; an event that Kafka drops in silence is an anomaly. `next_offset` (default: after the last
    row) is where reading goes on. User partitions with fewer than `least_bulk_events` go one by one.
    """
    chunk = _Chunk(event_columns(table), np.asarray(metadata_offsets, dtype=np.int64), metadata_partition)
    chunk.fold(state, least_bulk_events)
    last = int(chunk.offsets[-1]) + 1 if len(chunk.offsets) else 0
    state.read[metadata_partition] = max(state.read.get(metadata_partition, 0), last, next_offset or 0)


def fold_event(
    event: MetadataEvent, state: TierState, *, metadata_partition: int, metadata_offset: int
) -> None:
    """Fold one event; raises IllegalEventError for what Kafka refuses."""
    if not _fold_event(event, state, metadata_partition, metadata_offset):
        partition = partition_of(event)
        state.note(Anomaly(metadata_partition, metadata_offset, partition, event))


def partition_of(event: MetadataEvent) -> TopicIdPartition:
    """The user partition of an event; IllegalEventError for one that the metadata topic can't have."""
    if isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise IllegalEventError(
            "metadata record", expected="an event of the metadata topic", found="an entry of a snapshot file"
        )
    return event.topic_id_partition


class _Chunk:
    """Consecutive records of one metadata partition on their way into the state."""

    def __init__(self, events: EventColumns, offsets: Int64s, metadata_partition: int) -> None:
        self.events = events
        self.offsets = offsets
        self.metadata_partition = metadata_partition
        self.quarantined: list[Quarantined] = []
        self.anomalies: list[Anomaly] = []

    def fold(self, state: TierState, least_bulk_events: int) -> None:
        for row in np.flatnonzero(self.events.kinds == ERROR).tolist():
            found = self.events.table.column("error")[row].as_py()
            self._quarantine(row, CorruptInputError("record", expected="a metadata event", found=found))
        one_by_one = self.events.kinds < TOMBSTONE
        for rows in self._by_owner():
            if len(rows) >= least_bulk_events and self._fold_partition(rows, state):
                one_by_one[rows] = False
        self._fold_rows(np.flatnonzero(one_by_one), state)
        state.quarantined += sorted(self.quarantined, key=lambda q: q.metadata_offset)
        for anomaly in sorted(self.anomalies, key=lambda a: a.metadata_offset):
            state.note(anomaly)

    def _by_owner(self) -> list[Rows]:
        """Events of segments by user partition, in order of events."""
        rows = np.flatnonzero(self.events.kinds <= UPDATE)
        rows = rows[np.argsort(self.events.owners[rows], kind="stable")]
        return np.split(rows, np.flatnonzero(np.diff(self.events.owners[rows])) + 1)

    def _fold_rows(self, rows: Rows, state: TierState) -> None:
        for row, event in zip(rows.tolist(), self.events.events(rows), strict=True):
            try:
                if not _fold_event(event, state, self.metadata_partition, int(self.offsets[row])):
                    self._note(row, event)
            except CorruptInputError as e:
                self._quarantine(row, e)

    def _fold_partition(self, rows: Rows, state: TierState) -> bool:
        """Folds one user partition's events at once; False when they have to go one by one."""
        part = _partition(self.events.partition(int(rows[0])), state, self.metadata_partition)
        outcomes = apply_events(part.cache, self.events, rows)
        if outcomes is None:
            return False
        part.last_event_offset = max(part.last_event_offset, int(self.offsets[rows[-1]]))
        for row, outcome in zip(rows[outcomes != TAKEN].tolist(), outcomes[outcomes != TAKEN], strict=True):
            event = self.events.event(row)
            if outcome == DROPPED:
                self._note(row, event)
            else:
                self._quarantine(row, _refusal(event))
        return True

    def _note(self, row: int, event: MetadataEvent) -> None:
        self.anomalies.append(
            Anomaly(self.metadata_partition, int(self.offsets[row]), partition_of(event), event)
        )

    def _quarantine(self, row: int, error: CorruptInputError) -> None:
        self.quarantined.append(Quarantined(self.metadata_partition, int(self.offsets[row]), error))


def _refusal(event: MetadataEvent) -> CorruptInputError:
    """The error with which a cache refuses the event whatever it holds, or where it updates to STARTED."""
    cache = RemoteLogMetadataCache()
    if isinstance(event, RemoteLogSegmentMetadata):
        try:
            cache.add(event)
        except CorruptInputError as e:
            return e
    found = getattr(event, "state", type(event).__name__)
    return IllegalEventError("update of a segment", expected="a later state", found=str(found))


def _fold_event(
    event: MetadataEvent, state: TierState, metadata_partition: int, metadata_offset: int
) -> bool:
    """Whether the event was taken."""
    part = _partition(partition_of(event), state, metadata_partition)
    part.last_event_offset = max(part.last_event_offset, metadata_offset)
    if isinstance(event, RemotePartitionDeleteMetadata):
        return _advance(part, event.state, metadata_offset)
    if isinstance(event, RemoteLogSegmentMetadata):
        return part.cache.add(event)
    assert isinstance(event, RemoteLogSegmentMetadataUpdate)
    return part.cache.update(event)


def _partition(tip: TopicIdPartition, state: TierState, metadata_partition: int) -> PartitionState:
    part = state.partitions.get(tip.key)
    if part is None:
        part = PartitionState(tip, metadata_partition, RemoteLogMetadataCache(initialized=False))
        state.partitions[tip.key] = part
    return part


def _advance(part: PartitionState, target: RemotePartitionDeleteState, metadata_offset: int) -> bool:
    """RemotePartitionDeleteState's transitions; a repeated MARKED keeps the first one's offset."""
    if not is_valid_partition_transition(part.delete_state, target):
        return False
    if target is _P.DELETE_PARTITION_MARKED and part.delete_marked_offset is None:
        part.delete_marked_offset = metadata_offset
    if target is _P.DELETE_PARTITION_FINISHED:
        part.delete_marked_offset = None
    part.delete_state = target
    return True
