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
)
from tierctl.model.events import MetadataEvent
from tierctl.state.segments.arrays import Rows, ranges
from tierctl.state.segments.columns import STATES
from tierctl.state.segments.ids import Ids
from tierctl.wire.arrays import Bools, Int64s, are_given, array_of, distinct, item_counts, numbers, take_rows
from tierctl.wire.metadata.arrow_types import EVENT_SCHEMA
from tierctl.wire.metadata.encode_columns import event_at

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
