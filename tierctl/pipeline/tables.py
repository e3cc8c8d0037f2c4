"""The columns of the pipeline's tables, and their rows for a table of segments as Arrow batches."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tierctl.checks.findings import Finding
from tierctl.checks.segments import DANGLING_AFTER_MS
from tierctl.model import RemoteLogSegmentState
from tierctl.model.choices import COPY_LIMIT_MS
from tierctl.pipeline.partition_groups import EpochFacts, PartitionGroup, highest_of
from tierctl.pipeline.warehouse import ANOMALIES, BUCKET, EVENTS, PARTITIONS, SEGMENTS
from tierctl.spark.fold_rows import SEGMENTS as SEGMENT_SCHEMA
from tierctl.spark.fold_rows import partition_names
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.state.queries import LiveSegments
from tierctl.state.stored_rows import FACTS, fact_columns
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import FINISHED, STATES
from tierctl.wire.arrays import Bools

_S = RemoteLogSegmentState
_STARTED = STATES.index(_S.COPY_SEGMENT_STARTED)
_DELETING = STATES.index(_S.DELETE_SEGMENT_STARTED)
_BY_EPOCH: Final = pa.map_(pa.int32(), pa.int64())

PARTITION_SCHEMA: Final = pa.schema(
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
        *FACTS,
    ]
)
"""The table of user partitions that have any metadata event.

`remote_log_size_bytes` counts segments in COPY_SEGMENT_FINISHED; the sizes by epoch count all segments listed
for the epoch, as KIP-852 does. `remote_log_start_offset` is the lowest readable offset in the current
lineage. `highest_offset` is the highest offset ever copied, in deleted segments as well.
`copy_segment_started` and similar columns count segments by state; `dangling_copies` and `stuck_deletes`
count those unfinished for over a day. `event_timestamp_ms` is the latest of the segments. `last_event_offset`
is the metadata offset of the partition's last event. The columns of FACTS are those from which the fold
continues: `lowest_start_offset` that any event named, `latest_leader_epoch` that any segment named,
`delete_marked_offset`, the end and the metadata offset of the last copy that finished, and the copies that
failed since then.
"""

ANOMALY_SCHEMA: Final = pa.schema(
    [
        ("severity", pa.string()),
        ("check", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("found", pa.string()),
        ("fix", pa.string()),
        ("metadata_partition", pa.int32()),
        ("metadata_offset", pa.int64()),
        ("record", pa.binary()),
        ("was_deleted", pa.bool_()),
    ]
)
"""The table of findings of `tierctl verify` that need only metadata.

Those about an event have its `metadata_offset`. An event that brokers drop has the bytes of its `record`, and
`was_deleted` if its segment has a DELETE_SEGMENT_FINISHED event.
"""

BATCH: Final = pa.field("batch", pa.int64())
"""The column of `events` with the number of the commit that read the event."""

STORED: Final = {
    EVENTS: EVENT_SCHEMA.append(BATCH),
    SEGMENTS: SEGMENT_SCHEMA,
    PARTITIONS: PARTITION_SCHEMA,
    ANOMALIES: ANOMALY_SCHEMA,
}
"""The columns of the files of each table."""

SCHEMAS: Final = {name: schema.append(BUCKET) for name, schema in STORED.items()}
"""The columns of each table."""


def due_time(table: SegmentTable, now_ms: int) -> int | None:
    """Return when rows of a table's user partitions will change without a new event; None for never.

    It is when the first unfinished copy will be a problem, or the first unfinished copy or deletion will
    count as dangling or stuck.
    """
    live = LiveSegments(table, table.live_rows())
    begun_ms = live.column("event_timestamp")[live.states != FINISHED]
    due_ms = np.concatenate([begun_ms + COPY_LIMIT_MS, begun_ms + DANGLING_AFTER_MS]) + 1
    due_ms = due_ms[due_ms > now_ms]
    return int(due_ms.min()) if len(due_ms) else None


def partition_batch(
    group: PartitionGroup, in_order: Bools, metadata_partition: int, now_ms: int
) -> pa.RecordBatch:
    """Return the rows of the table `partitions` of a group."""
    live, parts = group.live, group.parts
    states, times_ms = live.states, live.column("event_timestamp")
    is_old, is_finished = now_ms - times_ms > DANGLING_AFTER_MS, states == FINISHED
    sizes, highest = live.column("size").astype(np.int64), group.highest_by_epoch()
    columns = {
        **partition_names([part.topic_id_partition for part in parts], metadata_partition),
        **fact_columns(live.table, np.array([part.number for part in parts], np.int64)),
        "remote_log_size_bytes": group.sums(np.where(is_finished, sizes, 0)),
        "remote_log_start_offset": group.log_starts(in_order),
        "highest_offset": highest_of(highest, len(parts)),
        "highest_offset_by_epoch": _map(highest, len(parts)),
        "remote_log_size_bytes_by_epoch": _map(group.sizes_by_epoch(), len(parts)),
        "copy_segment_started": group.counts(states == _STARTED),
        "copy_segment_finished": group.counts(is_finished),
        "delete_segment_started": group.counts(states == _DELETING),
        "dangling_copies": group.counts(is_old & (states == _STARTED)),
        "stuck_deletes": group.counts(is_old & (states == _DELETING)),
        "max_timestamp_ms": group.highest(live.column("max_timestamp"), is_finished),
        "event_timestamp_ms": group.highest(times_ms, np.ones(len(live), bool)),
        "delete_state": [part.delete_state for part in parts],
        "last_event_offset": [part.last_event_offset for part in parts],
    }
    return _batch(columns, PARTITION_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRow:
    """A row of the table `anomalies`: a finding, and what is known of the event that it is about."""

    finding: Finding
    metadata_partition: int | None = None
    metadata_offset: int | None = None
    record: bytes | None = None
    was_deleted: bool | None = None


def anomaly_table(anomalies: Iterable[AnomalyRow]) -> pa.Table:
    """Return rows of the table `anomalies`."""
    rows = [
        {name: getattr(each.finding, name) for name in _FINDING}
        | {name: getattr(each, name) for name in _OF_EVENT}
        for each in anomalies
    ]
    return pa.Table.from_pylist(rows, schema=ANOMALY_SCHEMA)


_OF_EVENT: Final = ("metadata_partition", "metadata_offset", "record", "was_deleted")
_FINDING: Final = tuple(name for name in ANOMALY_SCHEMA.names if name not in _OF_EVENT)


def _batch(columns: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _map(facts: EpochFacts, partitions: int) -> pa.Array:
    """Return a map from leader epoch to value for each user partition of a group."""
    bounds = np.searchsorted(facts.owners, np.arange(partitions + 1)).astype(np.int32)
    epochs = pa.array(facts.epochs.astype(np.int32))
    return pa.MapArray.from_arrays(pa.array(bounds), epochs, pa.array(facts.values))
