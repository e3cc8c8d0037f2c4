"""The columns of the pipeline's tables, and their rows for a folded metadata partition as Arrow batches."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.model import RemoteLogSegmentState
from tierctl.read.partitions import ReadablePartition
from tierctl.read.replicas import lineage_from_segments
from tierctl.report.formatters.column_texts import id_text
from tierctl.spark.sources.metadata.rows import EPOCH
from tierctl.spark.sources.metadata.rows import SCHEMA as EVENT_SCHEMA
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import segments_in_lineage
from tierctl.state.live_segments import EpochPairs, LiveSegments
from tierctl.state.segments.columns import FINISHED, KIP405, STATES, TXN_INDEX_EMPTY
from tierctl.state.segments.epoch_index import EpochIndex
from tierctl.state.tier import PartitionState, TierState
from tierctl.verify.events import WasDeleted, check_events, check_partition_delete
from tierctl.verify.findings import Finding
from tierctl.verify.partition import check_partition
from tierctl.verify.segments import DANGLING_AFTER_MS, unfinished_finding
from tierctl.verify.topics import Removals

_S = RemoteLogSegmentState
_STARTED = STATES.index(_S.COPY_SEGMENT_STARTED)
_DELETING = STATES.index(_S.DELETE_SEGMENT_STARTED)
_BY_EPOCH: Final = pa.map_(pa.int32(), pa.int64())

SEGMENTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("broker_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("max_timestamp_ms", pa.int64()),
        ("event_timestamp_ms", pa.int64()),
        ("segment_leader_epochs", pa.list_(pa.field("element", EPOCH))),
        ("segment_size_in_bytes", pa.int32()),
        ("custom_metadata", pa.binary()),
        ("state", pa.string()),
        ("txn_index_empty", pa.bool_()),
        ("metadata_partition", pa.int32()),
    ]
)
"""The table of segments that are not deleted; only events of the KIP's own dialect have `leader_epoch`."""

PARTITIONS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("remote_log_size_bytes", pa.int64()),
        ("remote_log_start_offset", pa.int64()),
        ("highest_offset", pa.int64()),
        ("highest_offset_by_epoch", _BY_EPOCH),
        ("remote_log_size_bytes_by_epoch", _BY_EPOCH),
        ("copy_segment_started", pa.int64()),
        ("copy_segment_finished", pa.int64()),
        ("delete_segment_started", pa.int64()),
        ("dangling_copies", pa.int64()),
        ("stuck_deletes", pa.int64()),
        ("max_timestamp_ms", pa.int64()),
        ("event_timestamp_ms", pa.int64()),
        ("delete_state", pa.string()),
        ("metadata_partition", pa.int32()),
        ("last_event_offset", pa.int64()),
    ]
)
"""The table of user partitions that have any metadata event.

`remote_log_size_bytes` counts segments in COPY_SEGMENT_FINISHED; the sizes by epoch count all segments listed
for the epoch, as KIP-852 does. `remote_log_start_offset` is the lowest readable offset in the current
lineage. `highest_offset` is the highest offset ever copied, in deleted segments as well.
`copy_segment_started` and similar columns count segments by state; `dangling_copies` and `stuck_deletes`
count those unfinished for over a day. `event_timestamp_ms` is the latest of the segments. `last_event_offset`
is the metadata offset of the partition's last event.
"""

ANOMALIES: Final = pa.schema(
    [
        ("severity", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("message", pa.string()),
        ("hint", pa.string()),
        ("metadata_partition", pa.int32()),
    ]
)
"""The table of findings of `tierctl verify` that need only metadata."""

SCHEMAS: Final = {
    "events": EVENT_SCHEMA,
    "segments": SEGMENTS,
    "partitions": PARTITIONS,
    "anomalies": ANOMALIES,
}
Int64s = npt.NDArray[np.int64]


def _nothing(_error: object) -> None:
    """Report no index problems: the check reads no index."""


class PartitionTables:
    """The rows of one user partition in all tables, as of `now_ms`."""

    def __init__(self, part: PartitionState, now_ms: int) -> None:
        self._part = part
        self._now_ms = now_ms
        self._live = LiveSegments.of(part.cache)
        self._pairs = self._live.epoch_pairs()
        self._in_order = self._live.are_plainly_in_order(self._pairs)

    @property
    def due_ms(self) -> int | None:
        """Return when an unfinished copy or deletion will count as dangling or stuck; None without any."""
        times = self._unfinished_since()
        recent = times[self._now_ms - times <= DANGLING_AFTER_MS]
        return int(recent.min()) + DANGLING_AFTER_MS + 1 if len(recent) else None

    def _unfinished_since(self) -> Int64s:
        times: Int64s = self._live.column("event_timestamps")[self._live.states != FINISHED]
        return times

    def segments(self) -> pa.RecordBatch:
        """Return the rows of SEGMENTS."""
        live, count = self._live, len(self._live)
        flags, writers = live.column("flags"), live.column("writers")
        kip405 = (flags & KIP405) != 0
        names = [str(state) for state in STATES]
        customs = live.customs()
        columns = {
            **self._whose(count),
            "segment_id": id_text(_ids(live)),
            "start_offset": live.column("starts"),
            "end_offset": live.ends,
            "broker_id": pa.array(writers, mask=kip405),
            "leader_epoch": pa.array(writers, mask=~kip405),
            "max_timestamp_ms": live.column("max_timestamps"),
            "event_timestamp_ms": live.column("event_timestamps"),
            "segment_leader_epochs": _lists(self._pairs),
            "segment_size_in_bytes": live.column("sizes"),
            "custom_metadata": pa.nulls(count, pa.binary())
            if customs is None
            else pa.array(customs, pa.binary()),
            "state": pa.array(names).take(pa.array(live.states)),
            "txn_index_empty": (flags & TXN_INDEX_EMPTY) != 0,
        }
        return _batch(columns, SEGMENTS)

    def _whose(self, count: int) -> dict[str, pa.Array]:
        whose = self._part.topic_id_partition
        facts = {
            "topic": pa.scalar(whose.topic, pa.string()),
            "topic_id": pa.scalar(whose.topic_id, pa.string()),
            "partition": pa.scalar(whose.partition, pa.int32()),
            "metadata_partition": pa.scalar(self._part.metadata_partition, pa.int32()),
        }
        return {name: pa.repeat(value, count) for name, value in facts.items()}

    def partition(self) -> dict[str, Any]:
        """Return the row of PARTITIONS."""
        live, part, whose = self._live, self._part, self._part.topic_id_partition
        states, sizes = live.states, live.column("sizes").astype(np.int64)
        counts = np.bincount(states, minlength=len(STATES))
        old = self._now_ms - live.column("event_timestamps") > DANGLING_AFTER_MS
        epochs = sorted(part.cache.parts.epochs.items())
        highest = [(epoch, i.highest_offset) for epoch, i in epochs if i.highest_offset is not None]
        return {
            "topic": whose.topic,
            "topic_id": whose.topic_id,
            "partition": whose.partition,
            "remote_log_size_bytes": int(sizes[states == FINISHED].sum()),
            "remote_log_start_offset": self._log_start(),
            "highest_offset": max((offset for _, offset in highest), default=None),
            "highest_offset_by_epoch": highest,
            "remote_log_size_bytes_by_epoch": [
                (epoch, size) for epoch, size in ((e, _size_of(i, part.cache)) for e, i in epochs) if size
            ],
            "copy_segment_started": int(counts[_STARTED]),
            "copy_segment_finished": int(counts[FINISHED]),
            "delete_segment_started": int(counts[_DELETING]),
            "dangling_copies": int((old & (states == _STARTED)).sum()),
            "stuck_deletes": int((old & (states == _DELETING)).sum()),
            "max_timestamp_ms": _highest(live.column("max_timestamps")[states == FINISHED]),
            "event_timestamp_ms": _highest(live.column("event_timestamps")),
            "delete_state": part.delete_state,
            "metadata_partition": part.metadata_partition,
            "last_event_offset": part.last_event_offset,
        }

    def _log_start(self) -> int | None:
        cache, finished = self._part.cache, self._live.states == FINISHED
        if self._in_order:
            starts = self._live.column("starts")[finished]
            return int(starts.min()) if len(starts) else None
        lineage = lineage_from_segments(cache.list_remote_log_segments())
        first = next(segments_in_lineage(cache, lineage), None)
        return None if first is None else first.from_offset

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of the partition."""
        removals = list(check_partition_delete(self._part))
        yield from removals
        yield from Removals.of(removals).applied(self._segment_findings())

    def _segment_findings(self) -> Iterator[Finding]:
        whose, cache = self._part.topic_id_partition, self._part.cache
        if not self._in_order:
            yield from check_partition(
                ReadablePartition(whose, cache, ()), None, _nothing, now_ms=self._now_ms
            )
            return
        columns, live = self._live.columns, self._live
        unfinished = [columns.metadata(row) for row in live.rows[live.states != FINISHED].tolist()]
        for segment in sorted(unfinished, key=lambda s: (s.start_offset, s.end_offset)):
            yield unfinished_finding(whose, segment, self._now_ms)


class MetadataPartitionTables:
    """The rows of one metadata partition in all tables: those of all user partitions in `state`."""

    def __init__(self, state: TierState, metadata_partition: int, now_ms: int) -> None:
        self._state = state
        self._metadata_partition = metadata_partition
        self._parts = [PartitionTables(part, now_ms) for part in state]

    @property
    def due_ms(self) -> int | None:
        """Return when rows will change without a new event; None for never."""
        return min((due for part in self._parts if (due := part.due_ms) is not None), default=None)

    def segments(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of SEGMENTS."""
        return (part.segments() for part in self._parts)

    def partitions(self) -> pa.RecordBatch:
        """Return a batch of PARTITIONS."""
        return pa.RecordBatch.from_pylist([part.partition() for part in self._parts], schema=PARTITIONS)

    def anomalies(self, was_deleted: WasDeleted) -> pa.RecordBatch:
        """Return a batch of ANOMALIES; `was_deleted` tells whether a segment id was deleted before."""
        found = [*check_events(self._state, was_deleted)]
        for part in self._parts:
            found += part.findings()
        rows = [
            {name: getattr(finding, name) for name in _FINDING}
            | {"hint": finding.hint, "metadata_partition": self._metadata_partition}
            for finding in found
        ]
        return pa.RecordBatch.from_pylist(rows, schema=ANOMALIES)


_FINDING: Final = tuple(name for name in ANOMALIES.names if name not in {"hint", "metadata_partition"})


def _ids(live: LiveSegments) -> pa.Array:
    words = np.ascontiguousarray(live.columns.ids.as_words()[live.rows])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(live), [None, pa.py_buffer(words)])


def _lists(pairs: EpochPairs) -> pa.Array:
    epochs, offsets = pa.array(pairs.epochs.astype(np.int32)), pa.array(pairs.offsets)
    values = pa.StructArray.from_arrays([epochs, offsets], fields=list(EPOCH))
    ends = np.concatenate([[0], np.cumsum(pairs.counts)]).astype(np.int32)
    kind = SEGMENTS.field("segment_leader_epochs").type
    return pa.ListArray.from_arrays(pa.array(ends), values, type=kind)


def _batch(columns: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _size_of(index: EpochIndex, cache: RemoteLogMetadataCache) -> int:
    rows = np.concatenate([index.readable(), np.fromiter(index.unreferenced, dtype=np.int64)])
    return int(np.asarray(cache.parts.columns.sizes)[rows].astype(np.int64).sum()) if len(rows) else 0


def _highest(values: Int64s) -> int | None:
    return int(values.max()) if len(values) else None
