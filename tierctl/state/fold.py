"""The fold: it applies metadata events, in offset order, to the state of the tier (`TierState`).

A snapshot is the state of one metadata partition as bytes, from which the fold continues: an Arrow stream of
named byte strings, the arrays of the table of segments. Its size grows with the segments that are not
deleted, not with the events.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.errors import CorruptInputError, IllegalEventError, UnsupportedFormatError
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierctl.model.checked_values import require_no_newer
from tierctl.model.events import Dialect, dialect_of
from tierctl.state.fold_kernels import FOREIGN, IGNORED, REFUSED, apply_numbered, numbered
from tierctl.state.table import SegmentTable
from tierctl.state.tier_state import Anomaly, LastRecord, MissingEvents, Quarantined, TierState
from tierctl.wire.arrays import Int64s, NdArray
from tierctl.wire.metadata.decode import (
    KIND,
    ODD,
    SNAPSHOT,
    TOMBSTONE,
    DecodedEvents,
    rows_of,
)
from tierctl.wire.metadata.values import decode, encode


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
    `state.quarantined`; events that Kafka ignores are counted as anomalies; tombstones are counted.
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
    if len(state.tables) > 1:
        # A user partition that another table has is told apart from one that these events are the first of.
        state.list_partitions()
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
    """Quarantine the events that cannot be used, and note those that a broker ignores, and tombstones."""
    kinds = events.rows[:, KIND]
    tombstones = np.flatnonzero(kinds == TOMBSTONE)
    if len(tombstones):
        first, count = state.tombstones.get(metadata_partition, (int(offsets[tombstones[0]]), 0))
        state.tombstones[metadata_partition] = first, count + len(tombstones)
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


Blobs = Mapping[str, npt.NDArray[np.uint8]]
"""Byte strings by name; an array shares the memory of the table."""


SNAPSHOT_VERSION: Final = 7
_ERRORS: Final = {
    kind.__name__: kind for kind in (CorruptInputError, UnsupportedFormatError, IllegalEventError)
}
_SCHEMA: Final = pa.schema([("name", pa.string()), ("data", pa.large_binary())])
_META: Final = b"tierctl"
_LARGE_BYTES: Final = 1 << 16


def write_snapshot(state: TierState, metadata_partition: int) -> bytes:
    """Return a snapshot of the part of `state` that comes from one metadata partition; compact its table."""
    facts = {
        "version": SNAPSHOT_VERSION,
        "metadata_partition": metadata_partition,
        "read": state.read.get(metadata_partition, 0),
        "last_record": state.last_records.get(metadata_partition),
        "quarantined": [
            _quarantined(q) for q in state.quarantined if q.metadata_partition == metadata_partition
        ],
        "missing": [[m.first_offset, m.end_offset] for m in state.missing_of(metadata_partition)],
        "anomalies": [_anomaly(a) for a in state.anomalies if a.metadata_partition == metadata_partition],
        "anomaly_count": state.anomaly_counts.get(metadata_partition, 0),
        "tombstones": state.tombstones.get(metadata_partition),
    }
    schema = _SCHEMA.with_metadata({_META: json.dumps(facts).encode()})
    contents = state.table(metadata_partition).contents()
    blobs = {name: array.view(np.uint8) for name, array in contents.items()}
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in _batches(blobs):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batches(blobs: Blobs) -> Iterator[pa.RecordBatch]:
    """Yield batches of _SCHEMA: each large byte string is alone in one that shares its memory."""
    small: dict[str, bytes] = {}
    for name, blob in blobs.items():
        if len(blob) < _LARGE_BYTES:
            small[name] = bytes(blob)
        else:
            yield _batch([name], [len(blob)], blob)
    yield _batch([*small], [*map(len, small.values())], b"".join(small.values()))


def _batch(names: list[str], lengths: list[int], data: bytes | npt.NDArray[np.uint8]) -> pa.RecordBatch:
    ends = np.cumsum([0, *lengths], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string()), column], schema=_SCHEMA)


def read_snapshot(data: bytes | pa.Buffer, source: str = "folded state") -> TierState:
    """Return the state in a snapshot; raise CorruptInputError.

    Raise UnsupportedFormatError for an older version, and SafetyRefusal, with `source`, for a newer one.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            facts = json.loads((reader.schema.metadata or {})[_META])
            require_no_newer(source, facts["version"], SNAPSHOT_VERSION)
            if facts["version"] != SNAPSHOT_VERSION:
                raise UnsupportedFormatError(
                    "folded state",
                    expected=f"version {SNAPSHOT_VERSION}",
                    found=f"version {facts['version']}",
                )
            state = _state_of(facts)
            blobs = {
                name.as_py(): memoryview(data.as_buffer())
                for batch in reader
                for name, data in zip(*batch.columns, strict=True)
            }
            table = SegmentTable()
            table.load(blobs)
            state.put_table(facts["metadata_partition"], table)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as e:
        raise CorruptInputError(
            "folded state", expected=f"version {SNAPSHOT_VERSION} as Arrow", found=f"{type(e).__name__}: {e}"
        ) from e
    return state


def _state_of(facts: dict[str, Any]) -> TierState:
    partition, last = facts["metadata_partition"], facts["last_record"]
    return TierState(
        read={partition: facts["read"]},
        last_records={partition: LastRecord(*map(int, last))} if last else {},
        quarantined=[_quarantined_of(partition, raw) for raw in facts["quarantined"]],
        missing=[MissingEvents(partition, *offsets) for offsets in facts["missing"]],
        anomalies=[_anomaly_of(partition, raw) for raw in facts["anomalies"]],
        anomaly_counts={partition: facts["anomaly_count"]} if facts["anomaly_count"] else {},
        tombstones={partition: tuple(facts["tombstones"])} if facts["tombstones"] else {},
    )


def _quarantined(bad: Quarantined) -> list[Any]:
    e = bad.error
    facts = [bad.metadata_offset, type(e).__name__, e.what, e.expected, e.found, e.at, e.source, e.hint]
    return [*facts, True] if bad.is_misplaced else facts


def _quarantined_of(partition: int, raw: list[Any]) -> Quarantined:
    offset, kind, what, expected, found, at, source, hint, *more = raw
    error = _ERRORS[kind](what, expected=expected, found=found, at=at, source=source, hint=hint)
    return Quarantined(partition, offset, error, is_misplaced=bool(more))


def _anomaly(anomaly: Anomaly) -> list[Any]:
    dialect = dialect_of(anomaly.event)
    return [anomaly.metadata_offset, str(dialect), encode(anomaly.event, dialect).hex()]


def _anomaly_of(partition: int, raw: list[Any]) -> Anomaly:
    offset, dialect, value = raw
    event: Any = decode(bytes.fromhex(value), Dialect(dialect))
    whose: TopicIdPartition = event.topic_id_partition
    known: MetadataEvent = event
    return Anomaly(partition, offset, whose, known)
