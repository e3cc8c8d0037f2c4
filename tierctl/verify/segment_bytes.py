"""Checks of a whole segment's bytes against its metadata: batches, offsets, leader epochs, indexes.

Used by `verify --deep`, and before a segment is copied.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tierctl.errors import CorruptInputError
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.model.severity import Severity
from tierctl.state.lineage import Lineage
from tierctl.verify.findings import FindingKind
from tierctl.wire.batches.batch_heads import BadRange, BatchHead, Buffer, TornTail, walk
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot

_K = FindingKind
_INDEX_PROBLEMS_MAX = 3


class Problem(NamedTuple):
    """A finding about a segment's bytes; the caller knows the segment."""

    kind: FindingKind
    severity: Severity
    message: str


@dataclass(slots=True)
class _Batches:
    """Positions and offsets of the valid batches, as columns: a segment may have millions."""

    positions: "array[int]" = field(default_factory=lambda: array("q"))
    bases: "array[int]" = field(default_factory=lambda: array("q"))
    lasts: "array[int]" = field(default_factory=lambda: array("q"))
    max_timestamps: "array[int]" = field(default_factory=lambda: array("q"))
    aborts: dict[int, int] = field(default_factory=dict)
    """Producer id of each abort marker, by the marker's offset."""
    undone: dict[int, int] = field(default_factory=dict)
    """First offset in this segment of each aborted transaction, by the offset of its abort marker."""
    is_damaged: bool = False

    def add(self, head: BatchHead) -> None:
        self.positions.append(head.position)
        self.bases.append(head.base_offset)
        self.lasts.append(head.last_offset)
        self.max_timestamps.append(head.max_timestamp_ms)

    def containing(self, offset: int) -> int | None:
        """Return the number of the batch that covers `offset`, None if there is none."""
        at = bisect_right(self.bases, offset) - 1
        return at if at >= 0 and offset <= self.lasts[at] else None

    def starting_at(self, position: int) -> int | None:
        """Return the number of the batch that begins at byte `position`, None if there is none."""
        at = bisect_left(self.positions, position)
        return at if at < len(self.positions) and self.positions[at] == position else None


def check_segment_bytes(
    metadata: RemoteLogSegmentMetadata, log: Buffer, indexes: Mapping[IndexType, bytes | None]
) -> Iterator[Problem]:
    """Yield every problem of a segment whose log and indexes are given; a missing index is None.

    A missing transaction index is a problem only if a transaction was aborted. If the log is damaged, the
    indexes are decoded but not compared with it.
    """
    batches = _Batches()
    yield from _check_log(metadata, log, batches)
    if len(log) != metadata.segment_size_in_bytes:
        yield Problem(
            _K.SIZE_DIFFERS,
            Severity.ERROR,
            f"the log has {len(log)} bytes in the store, {metadata.segment_size_in_bytes} in the metadata",
        )
        batches.is_damaged = True
    if not batches.is_damaged:
        yield from _check_range(metadata, batches)
    for index_type, data in indexes.items():
        if data is not None:
            yield from _check_index(metadata, index_type, data, batches)
        elif index_type is not IndexType.TRANSACTION:
            yield Problem(_K.MISSING_OBJECT, Severity.ERROR, f"there is no {index_type.value} index")
        elif batches.undone:
            message = f"there is no transaction index, though {len(batches.undone)} transactions were aborted"
            yield Problem(_K.MISSING_OBJECT, Severity.ERROR, message)


def _check_log(metadata: RemoteLogSegmentMetadata, log: Buffer, batches: _Batches) -> Iterator[Problem]:
    lineage = Lineage(sorted(dict(metadata.segment_leader_epochs).items()))
    open_transactions: dict[int, int] = {}
    wrong_epochs = 0
    for item in walk(log):
        if isinstance(item, BadRange | TornTail):
            batches.is_damaged = True
            # A log that only ends too early is reported by its size.
            if isinstance(item, BadRange) or len(log) == metadata.segment_size_in_bytes:
                yield Problem(_K.CORRUPT_LOG, Severity.ERROR, _damage(item))
            continue
        batches.add(item)
        expected = lineage.epoch_for_offset(item.base_offset)
        wrong_epochs += expected is not None and expected != item.partition_leader_epoch
        if wrong_epochs == 1 and expected != item.partition_leader_epoch:
            yield Problem(
                _K.EPOCHS_DIFFER,
                Severity.ERROR,
                f"the batch at offset {item.base_offset} was written in leader epoch "
                f"{item.partition_leader_epoch}, the metadata say {expected}",
            )
        if item.is_transactional:
            _follow_transaction(log, item, open_transactions, batches)


def _damage(damage: BadRange | TornTail) -> str:
    if isinstance(damage, TornTail):
        return (
            f"the log ends with {damage.size_bytes} bytes of an unfinished batch, at byte {damage.position}"
        )
    return (
        f"bytes {damage.position} to {damage.end - 1} of the log are no valid batch: {damage.error.message}"
    )


def _follow_transaction(log: Buffer, head: BatchHead, begun: dict[int, int], batches: _Batches) -> None:
    if not head.is_control:
        begun.setdefault(head.producer_id, head.base_offset)
        return
    first = begun.pop(head.producer_id, None)
    try:
        kinds = [control_record(record).type for record in batch_at(log, head).records()]
    except CorruptInputError:
        return
    if ControlType.ABORT in kinds:
        batches.aborts[head.base_offset] = head.producer_id
        if first is not None:
            batches.undone[head.base_offset] = first


def _check_range(metadata: RemoteLogSegmentMetadata, batches: _Batches) -> Iterator[Problem]:
    if not batches.bases:
        yield Problem(_K.SEGMENT_OFFSETS, Severity.ERROR, "the log has no record batch")
        return
    first, last = batches.bases[0], batches.lasts[-1]
    said = f"the metadata say {metadata.start_offset} to {metadata.end_offset}"
    if first != metadata.start_offset or last != metadata.end_offset:
        outside = first < metadata.start_offset or last > metadata.end_offset
        other = first > metadata.end_offset
        severity = Severity.ERROR if outside or other else Severity.WARNING
        yield Problem(_K.SEGMENT_OFFSETS, severity, f"the log holds offsets {first} to {last}, {said}")
    holes = [at for at in range(1, len(batches.bases)) if batches.bases[at] != batches.lasts[at - 1] + 1]
    if holes:
        at = holes[0]
        message = (
            f"{len(holes)} holes between batches, the first from {batches.lasts[at - 1] + 1} to "
            f"{batches.bases[at] - 1}: the topic was compacted once, or records are lost"
        )
        yield Problem(_K.SEGMENT_OFFSETS, Severity.WARNING, message)
    latest = max(batches.max_timestamps)
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
                found = _check_transactions(metadata, TransactionIndex.decode(data), batches)
            case IndexType.PRODUCER_SNAPSHOT:
                found = _check_producers(metadata, data)
            case IndexType.LEADER_EPOCH:
                yield from _check_epochs(metadata, data)
                return
        wrong = list(found)
    except CorruptInputError as e:
        wrong = [e.message]
    for message in wrong[:_INDEX_PROBLEMS_MAX]:
        yield Problem(_K.CORRUPT_INDEX, Severity.ERROR, f"{index_type.value} index: {message}")


def _check_offset_index(index: OffsetIndex, batches: _Batches) -> Iterator[str]:
    for entry in () if batches.is_damaged else index:
        at = batches.starting_at(entry.position)
        if at is None or not batches.bases[at] <= entry.offset <= batches.lasts[-1]:
            yield f"no batch with offset {entry.offset} begins at byte {entry.position}"


def _check_time_index(index: TimeIndex, batches: _Batches) -> Iterator[str]:
    if batches.is_damaged:
        return
    for entry in index:
        at = batches.containing(entry.offset)
        if at is None or batches.max_timestamps[at] != entry.timestamp_ms:
            yield f"the batch at offset {entry.offset} does not have the timestamp {entry.timestamp_ms}"
    latest = max(batches.max_timestamps, default=-1)
    if len(index) and index.last.timestamp_ms != latest:
        yield f"the last timestamp is {index.last.timestamp_ms}, the log's largest timestamp is {latest}"


def _check_transactions(
    metadata: RemoteLogSegmentMetadata, index: TransactionIndex, batches: _Batches
) -> Iterator[str]:
    if index.entries and metadata.txn_index_empty:
        yield f"there are {len(index.entries)} entries, but the metadata say that the index is empty"
    if batches.is_damaged:
        return
    known = {entry.last_offset: entry for entry in index.entries}
    for entry in index.entries:
        # Older transactions may still have been open, so it can be anything below.
        stable = 0 <= entry.last_stable_offset <= entry.last_offset + 1
        if batches.aborts.get(entry.last_offset) != entry.producer_id or not stable:
            yield f"the log has no aborted transaction for the entry {tuple(entry)}"
    for marker, first in batches.undone.items():
        if marker not in known:
            yield f"the transaction from {first} that was aborted at {marker} is missing"
        elif known[marker].first_offset > first:
            yield f"the entry of the transaction aborted at {marker} begins after {first}"


def _check_producers(metadata: RemoteLogSegmentMetadata, data: bytes) -> Iterator[str]:
    for producer in decode_producer_snapshot(data):
        if producer.last_offset > metadata.end_offset:
            yield (
                f"producer {producer.producer_id} wrote last at {producer.last_offset}, "
                f"after the segment's end at {metadata.end_offset}"
            )


def _check_epochs(metadata: RemoteLogSegmentMetadata, data: bytes) -> Iterator[Problem]:
    try:
        lineage = Lineage(read_leader_epoch_checkpoint(data))
    except CorruptInputError as e:
        yield Problem(_K.CORRUPT_INDEX, Severity.ERROR, f"leader-epoch index: {e.message}")
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
