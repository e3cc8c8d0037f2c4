"""The fold: it applies metadata events, in offset order, to the state of the tier (`TierState`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tierctl.errors import CorruptInputError, IllegalEventError
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierctl.model.events import MetadataEvent
from tierctl.state.fold_kernels import FOREIGN, IGNORED, REFUSED, apply_numbered, numbered
from tierctl.state.table import SegmentTable
from tierctl.state.tier_state import Anomaly, Quarantined, TierState
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    KIND,
    ODD,
    SNAPSHOT,
    DecodedEvents,
    rows_of,
)


class Folded(NamedTuple):
    """The result of a fold, by event: its outcome, and the number of its user partition, -1 for none."""

    outcomes: NdArray
    owners: Int64s


def fold(
    events: DecodedEvents,
    state: TierState,
    *,
    metadata_partition: int,
    metadata_offsets: Sequence[int] | Int64s,
    next_offset: int | None = None,
) -> Folded:
    """Apply records of one metadata partition, in offset order, to `state`.

    `metadata_offsets[i]` is the offset of event i. Rows with an error, and events that Kafka refuses, go to
    `state.quarantined`; events that Kafka ignores are counted as anomalies; tombstones are skipped.
    Afterwards, `state.read[metadata_partition]` is the offset after the last row, or `next_offset` if that is
    higher.
    """
    offsets = np.asarray(metadata_offsets, dtype=np.int64)
    folded = fold_into(state.table(metadata_partition), events, offsets, state, metadata_partition)
    _report(events, offsets, folded.outcomes, state, metadata_partition)
    last = int(offsets[-1]) + 1 if len(offsets) else 0
    state.read[metadata_partition] = max(state.read.get(metadata_partition, 0), last, next_offset or 0)
    return folded


def fold_event(
    event: MetadataEvent, state: TierState, *, metadata_partition: int, metadata_offset: int
) -> None:
    """Apply one event to `state`; raise IllegalEventError if Kafka refuses the event."""
    whose, events, offsets = _partition_of(event), rows_of([event]), np.array([metadata_offset], np.int64)
    folded = fold_into(state.table(metadata_partition), events, offsets, state, metadata_partition)
    if folded.outcomes[0] == REFUSED:
        raise _refusal(event)
    if folded.outcomes[0] == IGNORED:
        state.note(Anomaly(metadata_partition, metadata_offset, whose, event))


def fold_into(
    table: SegmentTable, events: DecodedEvents, offsets: Int64s, state: TierState, metadata_partition: int
) -> Folded:
    """Apply events to a table, and those of foreign user partitions to the tables that have these."""
    known = len(table.partitions)
    owners, topics = numbered(table, events)
    state.note_partitions(metadata_partition, known)
    outcomes = apply_numbered(table, events, offsets, owners, topics)
    foreign = np.flatnonzero(outcomes == FOREIGN)
    for number in np.unique(owners[foreign]).tolist():
        part = state.partitions[table.topic_id_partition(number).key]
        own = foreign[owners[foreign] == number]
        there = fold_into(part.table, events.take(own), offsets[own], state, part.metadata_partition)
        outcomes[own] = there.outcomes
    table.compact_when_due()
    return Folded(outcomes, owners)


def _report(
    events: DecodedEvents, offsets: Int64s, outcomes: NdArray, state: TierState, metadata_partition: int
) -> None:
    """Quarantine the events that cannot be used, and note those that a broker ignores."""
    kinds = events.rows[:, KIND]
    bad = (kinds == ODD) | (kinds == SNAPSHOT) | (outcomes == REFUSED)
    for row in np.flatnonzero(bad).tolist():
        error: CorruptInputError
        if kinds[row] == ODD:
            found = str(events.errors[row])
            error = CorruptInputError("record", expected="a metadata event", found=found)
        else:
            error = _snapshot_refusal() if kinds[row] == SNAPSHOT else _refusal(events.event(row))
        state.quarantined.append(Quarantined(metadata_partition, int(offsets[row]), error))
    ignored = np.flatnonzero(outcomes == IGNORED).tolist()
    kept = ignored[: state.anomaly_room]
    for row in kept:
        event = events.event(row)
        state.note(Anomaly(metadata_partition, int(offsets[row]), _partition_of(event), event))
    state.count_anomalies(metadata_partition, len(ignored) - len(kept))


def _partition_of(event: MetadataEvent) -> TopicIdPartition:
    """Return the event's user partition; raise IllegalEventError for an entry of a snapshot file."""
    if isinstance(event, RemoteLogSegmentMetadataSnapshot):
        raise _snapshot_refusal()
    return event.topic_id_partition


def _refusal(event: MetadataEvent) -> IllegalEventError:
    """Return the error of an event for which Kafka throws an exception.

    A segment that Kafka's constructor or addCopyInProgressSegment refuses, or an update to
    COPY_SEGMENT_STARTED.
    """
    if isinstance(event, RemoteLogSegmentMetadataUpdate):
        what = f"update of segment {event.segment_id}"
        return IllegalEventError(what, expected="a later state", found=event.state)
    assert isinstance(event, RemoteLogSegmentMetadata)
    what, start, end = f"segment {event.segment_id}", event.start_offset, event.end_offset
    if start < 0:
        return IllegalEventError(what, expected="a start offset of at least 0", found=str(start))
    if end < start:
        return IllegalEventError(what, expected=f"an end offset of at least {start}", found=str(end))
    if not event.segment_leader_epochs:
        return IllegalEventError(what, expected="at least one leader epoch", found="none")
    first = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return IllegalEventError(what, expected=f"{first} first", found=event.state)


def _snapshot_refusal() -> IllegalEventError:
    return IllegalEventError(
        "metadata record", expected="an event of the metadata topic", found="an entry of a snapshot file"
    )
