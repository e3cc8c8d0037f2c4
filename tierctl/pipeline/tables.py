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
from tierctl.pipeline.warehouse.layout import NO_BLOCK, TableFile
from tierctl.report.formatters.templates import id_text
from tierctl.spark.sources.metadata_splits import EPOCH
from tierctl.spark.sources.metadata_splits import SCHEMA as EVENT_SCHEMA
from tierctl.state.partition_segments import EpochPairs, LiveSegments
from tierctl.state.segments.columns import FINISHED, KIP405, STATE_MASK, STATES, TXN_INDEX_EMPTY, view
from tierctl.state.segments.epochs import epoch_runs
from tierctl.state.tier_state import TierState

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


def plan_files(
    times_ms: Int64s, checksums: Uint64s, is_changed: Bools, files: Sequence[TableFile]
) -> FilePlan:
    """Return the files for segments with these max timestamps, where `files` are those of the last commit.

    `is_changed` tells of each segment whether it must be written although its checksum is the same.
    """
    in_order = sorted(files, key=lambda file: file.first_ms)
    bounds = [file.first_ms for file in in_order] or [_LOWEST]
    if in_order and in_order[-1].rows >= CLOSED_ROWS and (last_ms := _last_ms(in_order[-1])) < _HIGHEST:
        bounds.append(last_ms + 1)
    former: list[TableFile | None] = [*in_order, None][: len(bounds)]
    found = _ranges(times_ms, checksums, bounds)
    changed = np.bincount(_range_of(times_ms[is_changed], bounds), minlength=len(bounds)) > 0
    ranges = [
        FileRange(each.first_ms, each.rows, each.checksum, file if is_same else None)
        for each, file, is_new in zip(found, former, changed.tolist(), strict=True)
        if each.rows
        for is_same in [
            not is_new and file is not None and (file.rows, file.checksum) == (each.rows, each.checksum)
        ]
    ]
    merged = _merged(ranges)
    final = [bound for each in _with_ends(merged) for bound in _split(times_ms, *each)]
    kept = {each.first_ms: each.file for each in merged}
    counted = _ranges(times_ms, checksums, final)
    whole = [FileRange(each.first_ms, each.rows, each.checksum, kept.get(each.first_ms)) for each in counted]
    return FilePlan(whole, _range_of(times_ms, final))


def checksums_of(live: LiveSegments) -> Uint64s:
    """Return a checksum of the facts of each segment that an event can change, and of its id."""
    flags = live.column("flags") & np.uint8(STATE_MASK | TXN_INDEX_EMPTY | KIP405)
    words = np.ascontiguousarray(live.columns.ids.as_words()[live.rows])
    numbers = [words[:, 0], words[:, 1], flags]
    numbers += [live.column(name) for name in ("event_timestamps", "writers", "starts", "sizes")]
    mixed = np.zeros(len(live), np.uint64)
    for number, factor in zip(numbers, _FACTORS, strict=True):
        mixed ^= mixed >> np.uint64(29)
        mixed += (
            number.astype(np.int64).view(np.uint64) * factor if number.dtype != np.uint64 else number * factor
        )
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
            | {"metadata_partition": self._metadata_partition}
            for finding in findings
        ]
        return pa.Table.from_pylist(rows, schema=ANOMALIES)


_FINDING: Final = tuple(name for name in ANOMALIES.names if name != "metadata_partition")


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
