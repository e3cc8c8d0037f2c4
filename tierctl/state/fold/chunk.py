"""The fold of one chunk: consecutive records of one metadata partition."""

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
from tierctl.state.fold.event_columns import (
    ADD,
    ERROR,
    TOMBSTONE,
    UPDATE,
    EventColumns,
    Int64s,
    event_columns,
)
from tierctl.state.fold.outcomes import ACCEPTED, IGNORED
from tierctl.state.fold.partition_events import apply_events
from tierctl.state.segments.arrays import Rows
from tierctl.state.tier import Anomaly, PartitionState, Quarantined, TierState

_P = RemotePartitionDeleteState
# For fewer events, NumPy's overhead is greater than the gain.
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
    """Apply records of one metadata partition, in offset order, to `state`.

    `table` is the result of `wire.metadata.decode_column`; `metadata_offsets[i]` is the offset of row i.
    Rows with an error, and events that Kafka refuses, go to `state.quarantined`; events that Kafka ignores
    are counted as anomalies; tombstones are skipped. Afterwards, `state.read[metadata_partition]` is the
    offset after the last row, or `next_offset` if that is higher. User partitions with fewer than
    `least_bulk_events` events in the table are folded event by event; the result is the same.
    """
    chunk = _Chunk(event_columns(table), np.asarray(metadata_offsets, dtype=np.int64), metadata_partition)
    chunk.fold(state, least_bulk_events)
    last = int(chunk.offsets[-1]) + 1 if len(chunk.offsets) else 0
    state.read[metadata_partition] = max(state.read.get(metadata_partition, 0), last, next_offset or 0)


def fold_event(
    event: MetadataEvent, state: TierState, *, metadata_partition: int, metadata_offset: int
) -> None:
    """Apply one event to `state`; raise IllegalEventError if Kafka refuses the event."""
    if not _apply(event, state, metadata_partition, metadata_offset):
        state.note(Anomaly(metadata_partition, metadata_offset, _partition_of(event), event))


def _partition_of(event: MetadataEvent) -> TopicIdPartition:
    """Return the event's user partition; raise IllegalEventError for an entry of a snapshot file."""
    if isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise IllegalEventError(
            "metadata record", expected="an event of the metadata topic", found="an entry of a snapshot file"
        )
    return event.topic_id_partition


class _Chunk:
    """One fold of the events of one metadata partition."""

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
        for rows in self._segment_events_by_partition():
            if len(rows) >= least_bulk_events and self._fold_partition(rows, state):
                one_by_one[rows] = False
        self._fold_rows(np.flatnonzero(one_by_one), state)
        # The bulk fold and the fold row by row reported in turn: restore the order of offsets.
        state.quarantined += sorted(self.quarantined, key=lambda q: q.metadata_offset)
        for anomaly in sorted(self.anomalies, key=lambda a: a.metadata_offset):
            state.note(anomaly)

    def _segment_events_by_partition(self) -> list[Rows]:
        """Return the rows of segment events, one array per user partition, each in offset order."""
        rows = np.flatnonzero(self.events.kinds <= UPDATE)
        rows = rows[np.argsort(self.events.owners[rows], kind="stable")]
        return np.split(rows, np.flatnonzero(np.diff(self.events.owners[rows])) + 1)

    def _fold_rows(self, rows: Rows, state: TierState) -> None:
        for row, event in zip(rows.tolist(), self.events.events(rows), strict=True):
            try:
                if not _apply(event, state, self.metadata_partition, int(self.offsets[row])):
                    self._note(row, event)
            except CorruptInputError as e:
                self._quarantine(row, e)

    def _fold_partition(self, rows: Rows, state: TierState) -> bool:
        """Fold all `rows` of one user partition at once; return False, unchanged, if that is not possible."""
        part = _partition_state(self.events.partition(int(rows[0])), state, self.metadata_partition)
        outcomes = apply_events(part.cache, self.events, rows)
        if outcomes is None:
            return False
        part.last_event_offset = max(part.last_event_offset, int(self.offsets[rows[-1]]))
        added = rows[(outcomes == ACCEPTED) & (self.events.kinds[rows] == ADD)]
        if len(added):
            part.note_start(int(self.events.starts[added].min()))
        is_rejected = outcomes != ACCEPTED
        for row, outcome in zip(rows[is_rejected].tolist(), outcomes[is_rejected], strict=True):
            event = self.events.event(row)
            if outcome == IGNORED:
                self._note(row, event)
            else:
                self._quarantine(row, _refusal(event))
        return True

    def _note(self, row: int, event: MetadataEvent) -> None:
        self.anomalies.append(
            Anomaly(self.metadata_partition, int(self.offsets[row]), _partition_of(event), event)
        )

    def _quarantine(self, row: int, error: CorruptInputError) -> None:
        self.quarantined.append(Quarantined(self.metadata_partition, int(self.offsets[row]), error))


def _refusal(event: MetadataEvent) -> CorruptInputError:
    """Return the error with which any cache refuses an impossible segment or an update to STARTED."""
    cache = RemoteLogMetadataCache()
    if isinstance(event, RemoteLogSegmentMetadata):
        try:
            cache.add(event)
        except CorruptInputError as e:
            return e
    found = getattr(event, "state", type(event).__name__)
    return IllegalEventError("update of a segment", expected="a later state", found=str(found))


def _apply(event: MetadataEvent, state: TierState, metadata_partition: int, metadata_offset: int) -> bool:
    """Apply one event; return False if Kafka ignores it."""
    part = _partition_state(_partition_of(event), state, metadata_partition)
    part.last_event_offset = max(part.last_event_offset, metadata_offset)
    if isinstance(event, RemotePartitionDeleteMetadata):
        return _advance_deletion(part, event.state, metadata_offset)
    if isinstance(event, RemoteLogSegmentMetadata):
        is_added = part.cache.add(event)
        if is_added:
            part.note_start(event.start_offset)
        return is_added
    assert isinstance(event, RemoteLogSegmentMetadataUpdate)
    return part.cache.update(event)


def _partition_state(
    partition: TopicIdPartition, state: TierState, metadata_partition: int
) -> PartitionState:
    part = state.partitions.get(partition.key)
    if part is None:
        cache = RemoteLogMetadataCache(initialized=False, keep_deleted=state.keep_deleted)
        part = PartitionState(partition, metadata_partition, cache)
        state.partitions[partition.key] = part
    return part


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
