"""The columns of the pipeline's tables, and their rows for a table of segments as Arrow batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from tierctl.checks.findings import Finding
from tierctl.checks.metadata import Removals, check_partition_delete
from tierctl.checks.segments import (
    DANGLING_AFTER_MS,
    check_failed_copies,
    check_partition,
    unfinished_finding,
)
from tierctl.model import RemoteLogSegmentState
from tierctl.model.choices import COPY_LIMIT_MS
from tierctl.pipeline.warehouse import ANOMALIES, BUCKET, EVENTS, PARTITIONS, SEGMENTS
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.readable_log import lineage_from_segments
from tierctl.spark.fold_rows import SEGMENTS as SEGMENT_SCHEMA
from tierctl.spark.fold_rows import batch_of_columns, partition_names
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.state.lineage import segments_in_lineage
from tierctl.state.queries import LiveSegments
from tierctl.state.stored_rows import FACTS, fact_columns
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import FINISHED, NO_OFFSET, READABLE, STATES, WAITING
from tierctl.state.tier_state import PartitionState
from tierctl.wire.arrays import Bools, Int64s

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
`was_deleted` if its segment has a DELETE_SEGMENT_FINISHED event; null if rows of `events` were deleted that
would tell.
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


# Facts of user partitions in columns, all user partitions of a table of segments at a time.


class EpochFacts(NamedTuple):
    """A number of each leader epoch of each user partition, ordered by user partition and epoch."""

    owners: Int64s
    epochs: Int64s
    values: Int64s


def _nothing(_error: object) -> None:
    """Report no index problems: the check reads no index."""


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """User partitions of one table, and their segments that are not deleted.

    `owners[i]` is the index in `parts` of the user partition of segment i, ascending.
    """

    parts: Sequence[PartitionState]
    live: LiveSegments
    owners: Int64s

    @classmethod
    def of(cls, table: SegmentTable, parts: Sequence[PartitionState]) -> Self:
        """Return user partitions of a table, in their order."""
        # A stable sort of small integers takes a tenth of the time.
        kind = np.uint16 if len(parts) < 1 << 16 else np.int32
        ranks = np.full(len(table.partitions), len(parts), kind)
        ranks[[part.number for part in parts]] = np.arange(len(parts))
        rows = table.live_rows()
        own = ranks[table.segments["owner"][rows]]
        rows, own = rows[own < len(parts)], own[own < len(parts)]
        order = np.argsort(own, kind="stable")
        return cls(parts, LiveSegments(table, rows[order]), own[order].astype(np.int64))

    def counts(self, chosen: Bools) -> Int64s:
        """Return the number of chosen segments of each user partition."""
        return np.bincount(self.owners[chosen], minlength=len(self.parts))

    def sums(self, values: Int64s) -> Int64s:
        """Return the sum of the segments' values by user partition."""
        bounds = np.searchsorted(self.owners, np.arange(len(self.parts) + 1))
        totals: Int64s = np.diff(np.concatenate([[0], np.cumsum(values)])[bounds])
        return totals

    def highest(self, values: Int64s, chosen: Bools) -> list[int | None]:
        """Return the highest value of the chosen segments of each user partition; None without any."""
        return _highest(self.owners[chosen], values[chosen], len(self.parts))

    def in_order(self) -> Bools:
        """Return of each user partition whether comparing its segments with each other finds no problem."""
        return self.live.plainly_in_order(self.live.epoch_pairs(), self.owners, len(self.parts))

    def log_starts(self, in_order: Bools) -> list[int | None]:
        """Return the lowest readable offset of each user partition in its current lineage; None without."""
        negated = self.highest(-self.live.column("start"), self.live.states == FINISHED)
        lowest = [None if each is None else -each for each in negated]
        for at in np.flatnonzero(~in_order).tolist():
            lowest[at] = _log_start(self.parts[at])
        return lowest

    def highest_by_epoch(self) -> EpochFacts:
        """Return the highest offset that was ever copied, in deleted segments as well."""
        epochs = self.live.table.epochs
        owners = self._places[epochs["owner"]]
        rows = np.flatnonzero((owners >= 0) & (epochs["highest"] != NO_OFFSET))
        rows = rows[np.lexsort((epochs["epoch"][rows], owners[rows]))]
        numbers, values = (epochs[name][rows].astype(np.int64) for name in ("epoch", "highest"))
        return EpochFacts(owners[rows], numbers, values)

    def sizes_by_epoch(self) -> EpochFacts:
        """Return the bytes of all segments that are listed for the epoch, which are more than 0."""
        segments, links = self.live.table.segments, self.live.table.links
        links = links[(links["status"] == READABLE) | (links["status"] == WAITING)]
        owners = self._places[segments["owner"][links["segment"]]]
        links, owners = links[owners >= 0], owners[owners >= 0]
        named, sizes = links["epoch"], segments["size"][links["segment"]].astype(np.int64)
        order = np.lexsort((named, owners))
        owners, named, sizes = owners[order], named[order].astype(np.int64), sizes[order]
        first = np.flatnonzero(np.append(True, (np.diff(owners) != 0) | (np.diff(named) != 0)))
        first = first[: len(owners)]
        totals = np.add.reduceat(sizes, first) if len(first) else sizes
        chosen = first[totals != 0]
        return EpochFacts(owners[chosen], named[chosen], totals[totals != 0])

    @property
    def _places(self) -> Int64s:
        """The index in `parts` of each user partition of the table, -1 of others."""
        places = np.full(len(self.live.table.partitions), -1, np.int64)
        places[[part.number for part in self.parts]] = np.arange(len(self.parts))
        return places

    def findings(self, in_order: Bools, now_ms: int) -> Iterator[Finding]:
        """Yield the findings of each user partition that need only metadata."""
        unfinished = np.flatnonzero(self.live.states != FINISHED)
        bounds = np.searchsorted(self.owners[unfinished], np.arange(len(self.parts) + 1)).tolist()
        rows = self.live.rows[unfinished].tolist()
        for at, (part, (first, end)) in enumerate(zip(self.parts, pairwise(bounds), strict=True)):
            removals = list(check_partition_delete(part))
            yield from removals
            found = self._segment_findings(part, rows[first:end], bool(in_order[at]), now_ms)
            yield from Removals.of(removals).applied(found)

    def _segment_findings(
        self, part: PartitionState, unfinished: Sequence[int], in_order: bool, now_ms: int
    ) -> Iterator[Finding]:
        whose = part.topic_id_partition
        if not in_order:
            readable = ReadablePartition(whose, part.cache, (), part.failed_copies)
            yield from check_partition(readable, None, _nothing, now_ms=now_ms)
            return
        segments = map(self.live.table.metadata, unfinished)
        for segment in sorted(segments, key=lambda s: (s.start_offset, s.end_offset)):
            yield unfinished_finding(whose, part.cache, segment, now_ms)
        yield from check_failed_copies(whose, part.failed_copies, None)


def _highest(owners: Int64s, values: Int64s, partitions: int) -> list[int | None]:
    """Return the highest value of each of the user partitions, None without any; `owners` are ascending."""
    first = np.flatnonzero(np.append(True, np.diff(owners) != 0))[: len(owners)]
    found: list[Any] = [None] * partitions
    highest = np.maximum.reduceat(values, first) if len(first) else values
    for owner, value in zip(owners[first].tolist(), highest.tolist(), strict=True):
        found[owner] = value
    return found


def _log_start(part: PartitionState) -> int | None:
    first = next(segments_in_lineage(part.cache, lineage_from_segments(part.segments)), None)
    return None if first is None else first.from_offset


def partition_batch(
    group: PartitionGroup, in_order: Bools, metadata_partition: int, now_ms: int
) -> pa.RecordBatch:
    """Return the rows of the table `partitions` of a group."""
    live, parts = group.live, group.parts
    states, times_ms = live.states, live.column("event_timestamp")
    # Not `now_ms - times_ms`: an event may state any time, and the difference would overflow.
    is_old, is_finished = times_ms < now_ms - DANGLING_AFTER_MS, states == FINISHED
    sizes, highest = live.column("size").astype(np.int64), group.highest_by_epoch()
    columns = {
        **partition_names([part.topic_id_partition for part in parts], metadata_partition),
        **fact_columns(live.table, np.array([part.number for part in parts], np.int64)),
        "remote_log_size_bytes": group.sums(np.where(is_finished, sizes, 0)),
        "remote_log_start_offset": group.log_starts(in_order),
        "highest_offset": _highest(highest.owners, highest.values, len(parts)),
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
    return batch_of_columns(columns, PARTITION_SCHEMA)


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


def _map(facts: EpochFacts, partitions: int) -> pa.Array:
    """Return a map from leader epoch to value for each user partition of a group."""
    bounds = np.searchsorted(facts.owners, np.arange(partitions + 1)).astype(np.int32)
    epochs = pa.array(facts.epochs.astype(np.int32))
    return pa.MapArray.from_arrays(pa.array(bounds), epochs, pa.array(facts.values))
