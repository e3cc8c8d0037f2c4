"""The columns of the pipeline's tables, and their rows for a folded metadata partition as Arrow batches."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tierctl.model import RemoteLogSegmentState, TopicIdPartition
from tierctl.pipeline.partition_groups import (
    Bools,
    EpochFacts,
    Int64s,
    PartitionGroup,
    block_of,
    changed_blocks,
    groups_of,
    highest_of,
)
from tierctl.pipeline.segment_files import FilePlan, checksums_of, plan_files
from tierctl.pipeline.warehouse.layout import NO_BLOCK, TableFile
from tierctl.report.formatters.column_texts import id_text
from tierctl.spark.sources.metadata import EPOCH
from tierctl.spark.sources.metadata import SCHEMA as EVENT_SCHEMA
from tierctl.state.live_segments import EpochPairs, LiveSegments
from tierctl.state.segments.arrays import view
from tierctl.state.segments.columns import FINISHED, KIP405, STATES, TXN_INDEX_EMPTY
from tierctl.state.segments.epoch_runs import epoch_runs
from tierctl.state.tier import TierState
from tierctl.verify.events import WasDeleted, check_events
from tierctl.verify.findings import Finding
from tierctl.verify.segments import DANGLING_AFTER_MS

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

BATCH: Final = pa.field("batch", pa.int64())
"""The column of `events` with the number of the commit that read the event."""

SCHEMAS: Final = {
    "events": EVENT_SCHEMA.append(BATCH),
    "segments": SEGMENTS,
    "partitions": PARTITIONS,
    "anomalies": ANOMALIES,
}


class MetadataPartitionTables:
    """The rows of one metadata partition in all tables, as of `now_ms`, as far as they have changed.

    `files` are those of the last commit, which ended at `since_offset`.
    """

    def __init__(
        self,
        state: TierState,
        metadata_partition: int,
        now_ms: int,
        *,
        since_offset: int = 0,
        files: Sequence[TableFile] = (),
    ) -> None:
        self._state = state
        self._metadata_partition = metadata_partition
        self._now_ms = now_ms
        self._since_offset = since_offset
        self._files = files
        self._table = state.table(metadata_partition)
        caches = self._table.irregular.items()
        regular = LiveSegments(self._table.columns, self._table.columns.live_rows())
        self._sources = [(None, regular), *((number, LiveSegments.of(cache)) for number, cache in caches)]

    @property
    def due_ms(self) -> int | None:
        """Return when rows will change without a new event; None for never.

        It is when the first unfinished copy or deletion will count as dangling or stuck.
        """
        times = [
            int(recent.min()) + DANGLING_AFTER_MS + 1
            for _, live in self._sources
            if len(recent := self._recent(live.column("event_timestamps")[live.states != FINISHED]))
        ]
        return min(times, default=None)

    def _recent(self, times_ms: Int64s) -> Int64s:
        return times_ms[self._now_ms - times_ms <= DANGLING_AFTER_MS]

    def segment_files(self) -> FilePlan:
        """Return the files of `segments` that are kept, and those to be written."""
        own = [live for _, live in self._sources]
        last_offsets = view(self._table.last_event_offsets)
        is_changed = [
            np.full(len(live), number is not None and last_offsets[number] >= self._since_offset)
            for number, live in self._sources
        ]
        return plan_files(
            np.concatenate([live.column("max_timestamps") for live in own]),
            np.concatenate([checksums_of(live) for live in own]),
            np.concatenate(is_changed),
            [file for file in self._files if file.table == "segments"],
        )

    def segments(self, chosen: Int64s) -> Iterator[pa.RecordBatch]:
        """Yield batches of SEGMENTS with the segments of these indexes in the plan of `segment_files`."""
        ends = np.cumsum([len(live) for _, live in self._sources])
        bounds = np.searchsorted(chosen, ends)
        first = 0
        for (number, live), begin, end in zip(
            self._sources, [0, *ends.tolist()], bounds.tolist(), strict=False
        ):
            if first < end:
                rows = live.rows[chosen[first:end] - begin]
                yield self._segments(LiveSegments(live.columns, rows), number)
            first = end

    def _segments(self, live: LiveSegments, number: int | None) -> pa.RecordBatch:
        """Return the rows of segments of user partition `number`, or of many by their column `owners`."""
        numbers = live.column("owners").astype(np.int64) if number is None else np.full(len(live), number)
        order = np.argsort(numbers, kind="stable")
        live, owners = LiveSegments(live.columns, live.rows[order]), pa.array(numbers[order])
        flags, writers = live.column("flags"), live.column("writers")
        kip405 = (flags & KIP405) != 0
        customs = live.customs()
        columns = {
            **{name: column.take(owners) for name, column in self._names.items()},
            "segment_id": id_text(_ids(live)),
            "start_offset": live.column("starts"),
            "end_offset": live.ends,
            "broker_id": pa.array(writers, mask=kip405),
            "leader_epoch": pa.array(writers, mask=~kip405),
            "max_timestamp_ms": live.column("max_timestamps"),
            "event_timestamp_ms": live.column("event_timestamps"),
            "segment_leader_epochs": _lists(live.epoch_pairs()),
            "segment_size_in_bytes": live.column("sizes"),
            "custom_metadata": pa.nulls(len(live), pa.binary())
            if customs is None
            else pa.array(customs, pa.binary()),
            "state": pa.array([str(state) for state in STATES]).take(pa.array(live.states)),
            "txn_index_empty": (flags & TXN_INDEX_EMPTY) != 0,
        }
        return _batch(columns, SEGMENTS)

    @cached_property
    def _names(self) -> dict[str, pa.Array]:
        """Return the columns that name the user partitions, by their number in the table."""
        return self._whose(self._table.columns.names)

    def _whose(self, names: Sequence[TopicIdPartition]) -> dict[str, pa.Array]:
        """Return the columns that name user partitions."""
        return {
            "topic": pa.array([name.topic for name in names], pa.string()),
            "topic_id": pa.array([str(name.topic_id) for name in names], pa.string()),
            "partition": pa.array([name.partition for name in names], pa.int32()),
            "metadata_partition": pa.repeat(pa.scalar(self._metadata_partition, pa.int32()), len(names)),
        }

    def blocks(self, was_deleted: WasDeleted) -> Iterator[tuple[int, pa.Table, pa.Table]]:
        """Yield the rows of PARTITIONS and of ANOMALIES of each block of user partitions that has changed.

        `was_deleted` tells whether a segment id was deleted before. The last block, NO_BLOCK, has the
        anomalies of events.
        """
        known = {file.block for file in self._files if file.table == "partitions"}
        numbers = {block_of(part) for part in self._state if part.table is self._table}
        changed = changed_blocks(self._state, self._metadata_partition, self._since_offset) & numbers
        groups = groups_of(self._state, self._metadata_partition, changed | (numbers - known))
        for block, own in groupby(groups, key=itemgetter(0)):
            rows: list[pa.RecordBatch] = []
            findings: list[Finding] = []
            for _, group in own:
                in_order = group.in_order()
                rows.append(self._partitions(group, in_order))
                findings += group.findings(in_order, self._now_ms)
            yield block, pa.Table.from_batches(rows), self._anomalies(findings)
        yield NO_BLOCK, PARTITIONS.empty_table(), self._anomalies(check_events(self._state, was_deleted))

    def _partitions(self, group: PartitionGroup, in_order: Bools) -> pa.RecordBatch:
        live, parts = group.live, group.parts
        states, times_ms = live.states, live.column("event_timestamps")
        is_old, is_finished = self._now_ms - times_ms > DANGLING_AFTER_MS, states == FINISHED
        sizes, runs = live.column("sizes").astype(np.int64), epoch_runs(live.columns, live.rows)
        highest = group.highest_by_epoch(runs)
        columns = {
            **self._whose([part.topic_id_partition for part in parts]),
            "remote_log_size_bytes": group.sums(np.where(is_finished, sizes, 0)),
            "remote_log_start_offset": group.log_starts(in_order),
            "highest_offset": highest_of(highest, len(parts)),
            "highest_offset_by_epoch": _map(highest, len(parts)),
            "remote_log_size_bytes_by_epoch": _map(group.sizes_by_epoch(runs), len(parts)),
            "copy_segment_started": group.counts(states == _STARTED),
            "copy_segment_finished": group.counts(is_finished),
            "delete_segment_started": group.counts(states == _DELETING),
            "dangling_copies": group.counts(is_old & (states == _STARTED)),
            "stuck_deletes": group.counts(is_old & (states == _DELETING)),
            "max_timestamp_ms": group.highest(live.column("max_timestamps"), is_finished),
            "event_timestamp_ms": group.highest(times_ms, np.ones(len(live), bool)),
            "delete_state": [part.delete_state for part in parts],
            "last_event_offset": [part.last_event_offset for part in parts],
        }
        return _batch(columns, PARTITIONS)

    def _anomalies(self, findings: Iterable[Finding]) -> pa.Table:
        rows = [
            {name: getattr(finding, name) for name in _FINDING}
            | {"hint": finding.hint, "metadata_partition": self._metadata_partition}
            for finding in findings
        ]
        return pa.Table.from_pylist(rows, schema=ANOMALIES)


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


def _map(facts: EpochFacts, partitions: int) -> pa.Array:
    """Return a map from leader epoch to value for each user partition of a group."""
    bounds = np.searchsorted(facts.owners, np.arange(partitions + 1)).astype(np.int32)
    epochs = pa.array(facts.epochs.astype(np.int32))
    return pa.MapArray.from_arrays(pa.array(bounds), epochs, pa.array(facts.values))
