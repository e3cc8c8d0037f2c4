"""Checks of a whole segment's bytes against its metadata: batches, offsets, leader epochs, indexes.

Used by `verify --deep`, and before a segment is copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.checks.findings import FindingKind, kind_of
from tierctl.errors import CorruptInputError
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.model.choices import Severity
from tierctl.state.lineage import Lineage, OtherEpoch, lineage_of_segment
from tierctl.wire.batches.scan import BadRange
from tierctl.wire.batches.segment_file import LogBytes, Window, highest_offset_of, scan_windows
from tierctl.wire.files.checkpoints import decode_producer_snapshot, read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, SegmentWriters, TimeIndex, TransactionIndex

Int64s = npt.NDArray[np.int64]

_K = FindingKind
_INDEX_PROBLEMS_MAX = 3
_COMPACTED_OR_LOST = "the topic was compacted once, or a part of its log was lost"


class Problem(NamedTuple):
    """A finding about a segment's bytes; the caller knows the segment."""

    kind: FindingKind
    severity: Severity
    message: str


def _no_rows() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class _Batches:
    """Positions and offsets of the valid batches, as columns: a segment may have millions."""

    positions: Int64s = field(default_factory=_no_rows)
    bases: Int64s = field(default_factory=_no_rows)
    lasts: Int64s = field(default_factory=_no_rows)
    max_timestamps: Int64s = field(default_factory=_no_rows)
    writers: SegmentWriters = field(default_factory=SegmentWriters)
    is_damaged: bool = False

    def set_columns(self, windows: Sequence[tuple[Int64s, Int64s, Int64s, Int64s]]) -> None:
        """Set positions, first offsets, last offsets and largest timestamps from those of each window."""
        if windows:
            columns = (np.concatenate(parts) for parts in zip(*windows, strict=True))
            self.positions, self.bases, self.lasts, self.max_timestamps = columns

    def containing(self, offsets: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return for each offset the row of a batch, and whether that batch covers the offset."""
        rows = np.searchsorted(self.bases, offsets, "right") - 1
        return rows, (rows >= 0) & (offsets <= self.lasts[rows])

    def starting_at(self, positions: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return for each position the row of a batch, and whether that batch begins at the position."""
        rows = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        return rows, self.positions[rows] == positions


def check_segment_bytes(
    metadata: RemoteLogSegmentMetadata, log: LogBytes, indexes: Mapping[IndexType, bytes | None]
) -> Iterator[Problem]:
    """Yield every problem of a segment whose log and indexes are given; a missing index is None.

    The log is read once, from its first byte to its last, if all problems are taken. A missing transaction
    index is a problem only if a transaction was aborted. If the log is damaged, the indexes are decoded but
    not compared with it.
    """
    batches = _Batches()
    yield from _check_log(metadata, log, batches)
    found, said = log.size_bytes, metadata.segment_size_in_bytes
    if found != said:
        message = f"the log has {found} bytes in the store, {said} in the metadata"
        yield Problem(_K.SIZE_DIFFERS, Severity.ERROR, message)
        batches.is_damaged = True
    if not batches.is_damaged:
        yield from _check_range(metadata, batches)
    for index_type, data in indexes.items():
        if data is not None:
            yield from _check_index(metadata, index_type, data, batches)
        elif index_type is not IndexType.TRANSACTION:
            yield Problem(_K.MISSING_OBJECT, Severity.ERROR, f"there is no {index_type.value} index")
        elif (why := batches.writers.why_index_is_missing()) is not None:
            yield Problem(_K.MISSING_OBJECT, Severity.ERROR, why)


def _check_log(metadata: RemoteLogSegmentMetadata, log: LogBytes, batches: _Batches) -> Iterator[Problem]:
    lineage = lineage_of_segment(metadata)
    columns: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
    other: OtherEpoch | None = None
    for window in scan_windows(log, 0, 0, highest_offset=highest_offset_of(metadata.start_offset)):
        heads = window.heads
        batches.is_damaged |= bool(heads.bad) or heads.torn is not None
        # If the log object is too short, its wrong size is reported, and not also the batch that is cut off.
        yield from _damages(window, with_torn=log.size_bytes == metadata.segment_size_in_bytes)
        if not len(heads):
            continue
        bases = heads.base_offsets
        timestamps = heads.fields["max_timestamp_ms"].astype(np.int64)
        columns.append((heads.positions + window.position, bases, heads.next_offsets - 1, timestamps))
        if other is None and (other := lineage.other_epoch(heads)) is not None:
            yield _wrong_epoch(other)
        batches.writers.follow(window)
    batches.set_columns(columns)


def _damages(window: Window, *, with_torn: bool) -> Iterator[Problem]:
    for bad in window.heads.bad:
        kind = kind_of(bad.error, _K.CORRUPT_LOG)
        yield Problem(kind, Severity.ERROR, _damage(bad, window.position))
    torn = window.heads.torn
    if torn is not None and with_torn:
        at = window.position + torn.position
        message = f"the log ends with {torn.size_bytes} bytes of an unfinished batch, at byte {at}"
        yield Problem(_K.CORRUPT_LOG, Severity.ERROR, message)


def _damage(bad: BadRange, position: int) -> str:
    """Return the message for damage in a window that begins at `position`."""
    error = bad.error.within("the log", base=position)
    first, last = position + bad.position, position + bad.end - 1
    return f"bytes {first} to {last} of the log are no valid batch: {error.message}"


def _wrong_epoch(other: OtherEpoch) -> Problem:
    return Problem(
        _K.EPOCHS_DIFFER,
        Severity.ERROR,
        f"the batch at offset {other.offset} was written in leader epoch {other.epoch}, "
        f"the metadata say {other.expected}",
    )


def _check_range(metadata: RemoteLogSegmentMetadata, batches: _Batches) -> Iterator[Problem]:
    if not len(batches.bases):
        yield Problem(_K.SEGMENT_OFFSETS, Severity.ERROR, "the log has no record batch")
        return
    first, last = int(batches.bases[0]), int(batches.lasts[-1])
    said = f"the metadata say {metadata.start_offset} to {metadata.end_offset}"
    if first != metadata.start_offset or last != metadata.end_offset:
        outside = first < metadata.start_offset or last > metadata.end_offset
        other = first > metadata.end_offset
        # Compaction also removes records at the head and at the end. A log that was cut has another size, or
        # an index of what was cut off; but a segment that was lost after this one leaves no trace.
        severity = Severity.ERROR if outside or other else Severity.INFO
        why = "" if outside or other else f"; the other offsets have no record: {_COMPACTED_OR_LOST}"
        yield Problem(_K.SEGMENT_OFFSETS, severity, f"the log holds offsets {first} to {last}, {said}{why}")
    holes = np.flatnonzero(batches.bases[1:] != batches.lasts[:-1] + 1) + 1
    if len(holes):
        at = holes[0]
        message = (
            f"{len(holes)} holes between batches, the first from {batches.lasts[at - 1] + 1} to "
            f"{batches.bases[at] - 1}: {_COMPACTED_OR_LOST}"
        )
        yield Problem(_K.SEGMENT_OFFSETS, Severity.INFO, message)
    latest = int(batches.max_timestamps.max())
    if latest >= 0 and latest != metadata.max_timestamp_ms:
        message = f"the log's largest timestamp is {latest}, the metadata say {metadata.max_timestamp_ms}"
        yield Problem(_K.METADATA_DIFFERS, Severity.WARNING, message)


def _check_index(
    metadata: RemoteLogSegmentMetadata, index_type: IndexType, data: bytes, batches: _Batches
) -> Iterator[Problem]:
    try:
        match index_type:
            case IndexType.OFFSET:
                found = _check_offset_index(OffsetIndex.decode(data, metadata.start_offset), batches)
            case IndexType.TIMESTAMP:
                found = _check_time_index(TimeIndex.decode(data, metadata.start_offset), batches)
            case IndexType.TRANSACTION:
                index = TransactionIndex.decode(data, metadata.start_offset)
                found = _check_transactions(metadata, index, batches)
            case IndexType.PRODUCER_SNAPSHOT:
                found = _check_producers(metadata, data, batches)
            case IndexType.LEADER_EPOCH:
                yield from _check_epochs(metadata, data)
                return
        wrong, kind = list(found), _K.CORRUPT_INDEX
    except CorruptInputError as e:
        wrong, kind = [e.message], kind_of(e, _K.CORRUPT_INDEX)
    for message in wrong[:_INDEX_PROBLEMS_MAX]:
        yield Problem(kind, Severity.ERROR, f"{index_type.value} index: {message}")


def _check_offset_index(index: OffsetIndex, batches: _Batches) -> Iterator[str]:
    if batches.is_damaged or not len(batches.bases):
        return
    offsets, positions = index.columns()
    rows, found = batches.starting_at(positions)
    good = found & (batches.bases[rows] <= offsets) & (offsets <= batches.lasts[-1])
    for at in np.flatnonzero(~good):
        yield f"no batch with offset {offsets[at]} begins at byte {positions[at]}"


def _check_time_index(index: TimeIndex, batches: _Batches) -> Iterator[str]:
    if batches.is_damaged or not len(batches.bases):
        return
    timestamps, offsets = index.columns()
    rows, found = batches.containing(offsets)
    good = found & (batches.max_timestamps[rows] == timestamps)
    for at in np.flatnonzero(~good):
        yield f"the batch at offset {offsets[at]} does not have the timestamp {timestamps[at]}"
    latest = int(batches.max_timestamps.max())
    if not len(index) and latest > 0:
        # A broker appends the largest timestamp when it rolls a segment (LogSegment.onBecomeInactiveSegment).
        # The entry of timestamp 0 at the first offset is all zeros, as if it was allocated only.
        yield f"it has no entry, the log's largest timestamp is {latest}"
    if len(index) and index.last.timestamp_ms != latest:
        yield f"the last timestamp is {index.last.timestamp_ms}, the log's largest timestamp is {latest}"


def _check_transactions(
    metadata: RemoteLogSegmentMetadata, index: TransactionIndex, batches: _Batches
) -> Iterator[str]:
    if index.entries and metadata.txn_index_empty:
        yield f"there are {len(index.entries)} entries, but the metadata say that the index is empty"
    if not batches.is_damaged:
        yield from batches.writers.differences(index)


def _check_producers(metadata: RemoteLogSegmentMetadata, data: bytes, batches: _Batches) -> Iterator[str]:
    producers = decode_producer_snapshot(data)
    if not batches.is_damaged:
        yield from batches.writers.older_entries(producers)
    for producer in producers:
        if producer.last_offset > metadata.end_offset:
            yield (
                f"producer {producer.producer_id} wrote last at {producer.last_offset}, "
                f"after the segment's end at {metadata.end_offset}"
            )


def _check_epochs(metadata: RemoteLogSegmentMetadata, data: bytes) -> Iterator[Problem]:
    try:
        lineage = Lineage(read_leader_epoch_checkpoint(data))
    except CorruptInputError as e:
        yield Problem(kind_of(e, _K.CORRUPT_INDEX), Severity.ERROR, f"leader-epoch index: {e.message}")
        return
    own = lineage.entries_in_range(metadata.start_offset, metadata.end_offset + 1)
    said = tuple(sorted(dict(metadata.segment_leader_epochs).items()))
    if tuple(own) != said or len(lineage.truncate_from_end(metadata.end_offset + 1).entries) != len(
        lineage.entries
    ):
        message = f"the leader-epoch index says {_shown(lineage.entries)}, the metadata say {_shown(said)}"
        yield Problem(_K.EPOCHS_DIFFER, Severity.ERROR, message)


def _shown(epochs: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "nothing"
