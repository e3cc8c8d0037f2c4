"""Events of generated metadata logs as tables of EVENT_SCHEMA, whole columns at a time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA

RECORDS_OF_A_SEGMENT = 1000
SEGMENTS_OF_A_TERM = 40
"""Segments of a user partition in one leader's term; a segment across a change has two epochs."""
CUSTOM_METADATA = bytes(range(24))

_STATES = [str(state) for state in RemoteLogSegmentState]
_TYPES = [RemoteLogSegmentMetadata.type, RemoteLogSegmentMetadataUpdate.type]

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class Owners:
    """The user partitions of one metadata partition, as parallel lists; `segments` is the number of each."""

    topics: list[str] = field(default_factory=list)
    topic_ids: list[bytes] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)

    def add(self, topic: str, topic_id: Uuid, partition: int, segments: int) -> None:
        """Append one user partition."""
        self.topics.append(topic)
        self.topic_ids.append(topic_id.bytes)
        self.partitions.append(partition)
        self.segments.append(segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Consecutive events of one metadata partition, as parallel arrays.

    `owner` is an index into `Owners`, `number` that of the segment in its user partition, `state` that of a
    member of RemoteLogSegmentState; `segment_ids` has 16 columns.
    """

    owner: Int64s
    number: Int64s
    segment_ids: npt.NDArray[np.uint8]
    state: Int64s
    has_custom: npt.NDArray[np.bool_]
    broker: npt.NDArray[np.int32]
    timestamp_ms: Int64s


def event_table(owners: Owners, events: Events) -> pa.Table:
    """Return the events as a table of EVENT_SCHEMA."""
    is_update = events.state > 0
    start = events.number * RECORDS_OF_A_SEGMENT
    owner, rows = events.owner, len(events.owner)
    topic_ids = np.frombuffer(b"".join(owners.topic_ids), np.uint8).reshape(-1, 16)
    # Sizes differ from segment to segment, but are the same in every run.
    size = (1 << 29) - (events.number * 7919 + owner * 104_729) % (1 << 24)
    columns: dict[str, Any] = {
        "topic": pa.array(owners.topics).take(pa.array(owner)),
        "topic_id": _ids(topic_ids[owner]),
        "partition": pa.array(np.array(owners.partitions, np.int32)[owner]),
        "segment_id": _ids(events.segment_ids),
        "start_offset": pa.array(start, mask=is_update),
        "end_offset": pa.array(start + RECORDS_OF_A_SEGMENT - 1, mask=is_update),
        "broker_id": pa.array(events.broker),
        "max_timestamp_ms": pa.array(events.timestamp_ms - 60_000, mask=is_update),
        "event_timestamp_ms": pa.array(events.timestamp_ms),
        "segment_leader_epochs": _epochs(events.number, is_update),
        "segment_size_in_bytes": pa.array(size.astype(np.int32), mask=is_update),
        "custom_metadata": pa.array([CUSTOM_METADATA]).take(
            pa.array(np.zeros(rows, np.int32), mask=~events.has_custom)
        ),
        "txn_index_empty": pa.array(np.ones(rows, bool), mask=is_update),
        "state": pa.DictionaryArray.from_arrays(pa.array(events.state.astype(np.int8)), pa.array(_STATES)),
        "type": pa.DictionaryArray.from_arrays(pa.array(is_update.astype(np.int8)), pa.array(_TYPES)),
    }
    arrays = [columns.get(each.name, pa.nulls(rows, each.type)) for each in EVENT_SCHEMA]
    return pa.table(arrays, schema=EVENT_SCHEMA)


def all_epochs(number: int) -> list[tuple[int, int]]:
    """Return each leader epoch with its first offset, up to the segment of that number."""
    starts = [
        term * SEGMENTS_OF_A_TERM * RECORDS_OF_A_SEGMENT for term in range(number // SEGMENTS_OF_A_TERM + 1)
    ]
    return [(term, start + (RECORDS_OF_A_SEGMENT // 2 if term else 0)) for term, start in enumerate(starts)]


def _ids(raw: npt.NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(raw))
    storage = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(raw), [None, data])
    return pa.ExtensionArray.from_storage(EVENT_SCHEMA.field("topic_id").type, storage)


def _epochs(number: Int64s, is_update: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the leader epochs of new segments: one, or two for the first segment of a leader's term."""
    own = number[~is_update]
    start = own * RECORDS_OF_A_SEGMENT
    term = own // SEGMENTS_OF_A_TERM
    is_two = (own % SEGMENTS_OF_A_TERM == 0) & (term > 0)
    pairs = 1 + is_two.astype(np.int64)
    ends = np.cumsum(pairs)
    epochs = np.empty((int(ends[-1]) if len(ends) else 0, 2), np.int64)
    epochs[ends - 1] = np.stack([term, start + np.where(is_two, RECORDS_OF_A_SEGMENT // 2, 0)], axis=1)
    epochs[ends[is_two] - 2] = np.stack([term[is_two] - 1, start[is_two]], axis=1)
    words = epochs.reshape(-1)
    inner = pa.ListArray.from_arrays(np.arange(0, len(words) + 1, 2, dtype=np.int32), words)
    offsets = np.zeros(len(number) + 1, np.int32)
    offsets[1:][~is_update] = pairs
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum(offsets, dtype=np.int32)), inner, mask=pa.array(is_update)
    )
