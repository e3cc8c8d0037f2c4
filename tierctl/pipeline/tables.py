"""The columns of the pipeline's tables, and their rows for a folded metadata partition as Arrow batches."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tierctl.checks.findings import Finding
from tierctl.checks.metadata import WasDeleted, check_events
from tierctl.checks.segments import DANGLING_AFTER_MS
from tierctl.model import RemoteLogSegmentState
from tierctl.model.choices import COPY_LIMIT_MS
from tierctl.pipeline.partition_groups import (
    EpochFacts,
    PartitionGroup,
    block_of,
    changed_blocks,
    groups_of,
    highest_of,
)
from tierctl.pipeline.warehouse.layout import NO_BLOCK, TableFile
from tierctl.spark.fold_rows import (
    SEGMENTS,
    batch_of_columns,
    named_partitions,
    partition_names,
    segment_columns,
)
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.state.queries import LiveSegments
from tierctl.state.table_arrays import FINISHED, KIP405, STATES, TXN_INDEX_EMPTY
from tierctl.state.tier_state import TierState
from tierctl.wire.arrays import Bools, Int64s

# Decide which files of the `segments` table a commit keeps, and which rows belong to each new file.
#
# The files of a metadata partition have ranges of the segments' max timestamps. Segments that are copied
# later have later timestamps, and retention deletes the oldest, so that new events change few files. A file
# is kept if the number of rows in its range and the sum of their checksums are those of the file.

Uint64s = npt.NDArray[np.uint64]


FILE_ROWS: Final = 1 << 17
"""The number of rows of a new file; a file with twice as many is split."""

CLOSED_ROWS: Final = 1 << 14
"""Rows with later timestamps go to another file once the last file has so many."""

MERGED_FILES: Final = 8
"""This number of consecutive small files become one file."""

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_FACTORS: Final = tuple(
    np.uint64(each)
    for each in (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x27D4EB2F165667C5,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
    )
)


@dataclass(frozen=True, slots=True)
class FileRange:
    """The segments from `first_ms` up to the next range: in `file`, or to be written if that is None."""

    first_ms: int
    rows: int
    checksum: int
    file: TableFile | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The ranges of all files in order, and the number of the range of each segment."""

    ranges: Sequence[FileRange]
    range_of: Int64s

    def kept(self) -> Iterator[TableFile]:
        """Yield the files that are not changed."""
        return (each.file for each in self.ranges if each.file is not None)

    def to_write(self) -> Iterator[tuple[FileRange, Int64s]]:
        """Yield each range that needs a new file, with the indexes of its segments."""
        for number, each in enumerate(self.ranges):
            if each.file is None:
                yield each, np.flatnonzero(self.range_of == number)


def plan_files(times_ms: Int64s, checksums: Uint64s, files: Sequence[TableFile]) -> FilePlan:
    """Return the files for segments with these max timestamps, where `files` are those of the last commit."""
    in_order = sorted(files, key=lambda file: file.first_ms)
    bounds = [file.first_ms for file in in_order] or [_LOWEST]
    if in_order and in_order[-1].rows >= CLOSED_ROWS and (last_ms := _last_ms(in_order[-1])) < _HIGHEST:
        bounds.append(last_ms + 1)
    former: list[TableFile | None] = [*in_order, None][: len(bounds)]
    found = _ranges(times_ms, checksums, bounds)
    ranges = [
        FileRange(each.first_ms, each.rows, each.checksum, file if is_same else None)
        for each, file in zip(found, former, strict=True)
        if each.rows
        for is_same in [file is not None and (file.rows, file.checksum) == (each.rows, each.checksum)]
    ]
    merged = _merged(ranges)
    final = [bound for each in _with_ends(merged) for bound in _split(times_ms, *each)]
    kept = {each.first_ms: each.file for each in merged}
    counted = _ranges(times_ms, checksums, final)
    whole = [FileRange(each.first_ms, each.rows, each.checksum, kept.get(each.first_ms)) for each in counted]
    return FilePlan(whole, _range_of(times_ms, final))


def checksums_of(live: LiveSegments) -> Uint64s:
    """Return a checksum of the facts of each segment that an event can change, and of its id."""
    flags = live.column("flags") & np.uint8(TXN_INDEX_EMPTY | KIP405)
    names = ("id_high", "id_low", "event_timestamp", "writer", "start", "size")
    numbers = [live.column("state"), flags, *(live.column(name) for name in names)]
    mixed = np.zeros(len(live), np.uint64)
    for number, factor in zip(numbers, _FACTORS, strict=True):
        mixed ^= mixed >> np.uint64(29)
        mixed += number.astype(np.int64).view(np.uint64) * factor
    return (mixed ^ (mixed >> np.uint64(32))) * _FACTORS[0]


def _ranges(times_ms: Int64s, checksums: Uint64s, bounds: Sequence[int]) -> list[FileRange]:
    """Return the range that begins at each of the bounds; the first has all earlier times, too."""
    range_of = _range_of(times_ms, bounds)
    counts = np.bincount(range_of, minlength=len(bounds))
    order = np.argsort(range_of, kind="stable")
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(checksums[order])])
    ends = np.cumsum(counts)
    totals = (sums[ends] - sums[ends - counts]).view(np.int64)
    return [FileRange(*each) for each in zip(bounds, counts.tolist(), totals.tolist(), strict=True)]


def _range_of(times_ms: Int64s, bounds: Sequence[int]) -> npt.NDArray[np.int64]:
    found: Int64s = np.searchsorted(np.array(bounds[1:], np.int64), times_ms, side="right")
    # A stable sort of small integers takes a tenth of the time.
    return found.astype(np.uint16 if len(bounds) < 1 << 16 else np.int64)


def _merged(ranges: Sequence[FileRange]) -> list[FileRange]:
    """Combine MERGED_FILES small ranges that follow each other; the last range still grows."""
    merged: list[FileRange] = []
    small: list[FileRange] = []
    for at, each in enumerate(ranges):
        is_small = each.rows < FILE_ROWS // 2 and at < len(ranges) - 1
        small = [*small, each] if is_small else []
        merged.append(each)
        if len(small) == MERGED_FILES:
            merged[-MERGED_FILES:] = [FileRange(small[0].first_ms, sum(s.rows for s in small), 0)]
            small = []
    return merged


def _with_ends(ranges: Sequence[FileRange]) -> Iterator[tuple[FileRange, int, int]]:
    """Yield each range with the lowest and the highest time that belong to it."""
    for at, each in enumerate(ranges):
        low = each.first_ms if at else _LOWEST
        high = ranges[at + 1].first_ms - 1 if at + 1 < len(ranges) else _HIGHEST
        yield each, low, high


def _split(times_ms: Int64s, each: FileRange, low: int, high: int) -> list[int]:
    """Return where files begin in a range: several if it is to be written and has too many rows."""
    if each.file is not None or each.rows <= 2 * FILE_ROWS:
        return [each.first_ms]
    own = np.sort(times_ms[(times_ms >= low) & (times_ms <= high)])
    starts = own[np.arange(FILE_ROWS, len(own) - FILE_ROWS // 2, FILE_ROWS)]
    return sorted({each.first_ms, *starts[starts > own[0]].tolist()})


def _last_ms(file: TableFile) -> int:
    """Return the latest time in a file; _HIGHEST if its statistics do not have it."""
    return int(json.loads(file.stats)["maxValues"].get("max_timestamp_ms", _HIGHEST))


_S = RemoteLogSegmentState
_STARTED = STATES.index(_S.COPY_SEGMENT_STARTED)
_DELETING = STATES.index(_S.DELETE_SEGMENT_STARTED)
_BY_EPOCH: Final = pa.map_(pa.int32(), pa.int64())

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
        self._live = LiveSegments(self._table, self._table.live_rows())

    @property
    def due_ms(self) -> int | None:
        """Return when rows will change without a new event; None for never.

        It is when the first unfinished copy will be a problem, or the first unfinished copy or deletion will
        count as dangling or stuck.
        """
        live = self._live
        begun_ms = live.column("event_timestamp")[live.states != FINISHED]
        due_ms = np.concatenate([begun_ms + COPY_LIMIT_MS, begun_ms + DANGLING_AFTER_MS]) + 1
        due_ms = due_ms[due_ms > self._now_ms]
        return int(due_ms.min()) if len(due_ms) else None

    def segment_files(self) -> FilePlan:
        """Return the files of `segments` that are kept, and those to be written."""
        return plan_files(
            self._live.column("max_timestamp"),
            checksums_of(self._live),
            [file for file in self._files if file.table == "segments"],
        )

    def segments(self, chosen: Int64s) -> Iterator[pa.RecordBatch]:
        """Yield a batch of SEGMENTS with the segments of these indexes in the plan of `segment_files`."""
        rows = self._live.rows[chosen]
        order = np.argsort(self._table.segments["owner"][rows], kind="stable")
        columns = segment_columns(self._table, rows[order], self._names, SEGMENTS.names)
        yield batch_of_columns(columns, SEGMENTS)

    @cached_property
    def _names(self) -> dict[str, pa.Array]:
        """The columns that name the user partitions, by their number in the table."""
        return partition_names(named_partitions(self._table), self._metadata_partition)

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
        states, times_ms = live.states, live.column("event_timestamp")
        is_old, is_finished = self._now_ms - times_ms > DANGLING_AFTER_MS, states == FINISHED
        sizes, highest = live.column("size").astype(np.int64), group.highest_by_epoch()
        columns = {
            **partition_names([part.topic_id_partition for part in parts], self._metadata_partition),
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
        return _batch(columns, PARTITIONS)

    def _anomalies(self, findings: Iterable[Finding]) -> pa.Table:
        rows = [
            {name: getattr(finding, name) for name in _FINDING}
            | {"metadata_partition": self._metadata_partition}
            for finding in findings
        ]
        return pa.Table.from_pylist(rows, schema=ANOMALIES)


_FINDING: Final = tuple(name for name in ANOMALIES.names if name != "metadata_partition")


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
