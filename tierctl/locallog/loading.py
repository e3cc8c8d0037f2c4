"""Reads a broker's log directories: one LocalLog per partition.

Offsets are determined as a broker determines them at start-up (LogManager, LogLoader, UnifiedLog), but no
file is changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Self, TypeVar

from tierctl.errors import CorruptInputError, NotFoundError, TierctlError
from tierctl.files import read_regular
from tierctl.locallog.folders import (
    FolderKind,
    SegmentFiles,
    distinct_dirs,
    left_out_folders,
    list_producer_snapshots,
    list_segments,
    opened,
    parse_partition_folder,
    read_if_exists,
    require_folder,
    require_plain_files,
    without_duplicates,
)
from tierctl.model import OpenTransaction
from tierctl.model.ids import TopicIdPartition, TopicPartition
from tierctl.model.local import EpochEntry, LocalLog, LocalSegment
from tierctl.model.progress import Reading, unwatched
from tierctl.wire.batches.batch_head import BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.batches.scan import BadRange, ScanItem, TornTail, scan_at, walk
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    ProducerEntry,
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from tierctl.wire.files.indexes import AbortedTxn, OffsetIndex, TimeIndex


@contextmanager
def items_from(
    segment: SegmentFiles, offset: int, *, check_crc: bool = True
) -> Iterator[tuple[Buffer, Iterator[ScanItem]]]:
    """Yield the segment's bytes and its scan items, from the batch with `offset` or an earlier batch on."""
    with opened(segment.log) as buf:
        position = start_position(buf, segment, offset)
        expected = segment.base_offset if position == 0 else None
        yield buf, walk(buf, position=position, expected_offset=expected, check_crc=check_crc)


def start_position(buf: Buffer, segment: SegmentFiles, offset: int) -> int:
    """Return a position at or before the batch with `offset`; 0 if the offset index is missing or wrong."""
    data = read_if_exists(segment.path(".index"))
    if data is None:
        return 0
    try:
        entry = OffsetIndex.decode(data, segment.base_offset).lookup(offset)
    except CorruptInputError:
        return 0
    if not 0 < entry.position < len(buf):
        return 0
    item = scan_at(buf, entry.position, segment.base_offset)
    is_valid = isinstance(item, BatchHead) and item.base_offset <= entry.offset
    return entry.position if is_valid else 0


def items_between(
    segments: Sequence[SegmentFiles], start_offset: int, end_offset: int
) -> Iterator[tuple[Buffer, BatchHead | BadRange]]:
    """Yield every batch with an offset in [start_offset, end_offset), and every damaged range between them.

    Each comes with the bytes of its segment. A torn tail ends its segment: no acknowledged record follows it.
    """
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if segment.base_offset >= end_offset or (following is not None and following <= start_offset):
            continue
        with items_from(segment, start_offset) as (buf, items):
            for item in items:
                if isinstance(item, TornTail):
                    break
                if isinstance(item, BatchHead):
                    if item.base_offset >= end_offset:
                        return
                    if item.next_offset <= start_offset:
                        continue
                yield buf, item


# Finds the last stable offset: the first offset of the oldest transaction that is still open.
#
# Source: ProducerStateManager, ProducerAppendInfo, UnifiedLog.lastStableOffset.

_MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})


@dataclass(slots=True)
class OpenTransactions:
    """The transactions that are open at one offset: their first offsets by producer id."""

    first_offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> Self:
        """Return the transactions that are open at the offset of a producer snapshot with these entries."""
        first_offsets = {e.producer_id: e.current_txn_first_offset for e in entries}
        return cls({producer: offset for producer, offset in first_offsets.items() if offset >= 0})

    @property
    def first_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return min(self.first_offsets.values(), default=None)

    def append(self, buf: Buffer, head: BatchHead) -> AbortedTxn | None:
        """Apply the next batch of the log; return the transaction that the batch aborts, None if none.

        `head` is the batch's header in `buf`. CorruptInputError if a control record can't be decoded.
        """
        if head.producer_id < 0 or not head.is_transactional:
            return None
        if not head.is_control:
            self.first_offsets.setdefault(head.producer_id, head.base_offset)
            return None
        # Compaction leaves empty marker batches; no record of their transactions is left.
        kinds = [control_record(record).type for record in batch_at(buf, head).records()]
        if not kinds or kinds[0] not in _MARKERS:
            return None
        first = self.first_offsets.pop(head.producer_id, None)
        if first is None or kinds[0] is ControlType.COMMIT:
            return None
        oldest = self.first_offset
        stable = head.last_offset + 1 if oldest is None else oldest
        return AbortedTxn(head.producer_id, first, head.last_offset, stable)


def last_stable_offset(
    directory: Path, segments: Sequence[SegmentFiles], *, log_start_offset: int, high_watermark: int
) -> int:
    """Return the first offset of the oldest transaction that is open at the high watermark.

    Without an open transaction the result is the high watermark. The batches after the newest valid producer
    snapshot are read. A batch that can't be decoded may hold the marker of any transaction, so its offset
    limits the result, too.
    """
    start, transactions = _load(directory, segments, log_start_offset, high_watermark)
    unstable = []
    for buf, item in items_between(segments, start, high_watermark):
        if isinstance(item, BadRange):
            unstable.append(start if item.first_offset is None else item.first_offset)
            continue
        try:
            transactions.append(buf, item)
        except CorruptInputError:
            unstable.append(item.base_offset)
    if transactions.first_offset is not None:
        unstable.append(transactions.first_offset)
    return max(min([*unstable, high_watermark]), log_start_offset)


def open_transaction_at(
    segments: Sequence[SegmentFiles], stable_offset: int, high_watermark: int
) -> OpenTransaction | None:
    """Return the transaction whose first batch begins at `stable_offset`, the last stable offset.

    None if the last stable offset is the high watermark, or if no transactional batch begins there.
    """
    if stable_offset >= high_watermark:
        return None
    for _, item in items_between(segments, stable_offset, stable_offset + 1):
        if isinstance(item, BatchHead) and item.is_transactional and item.base_offset == stable_offset:
            since_ms = item.base_timestamp_ms
            return OpenTransaction(producer_id=item.producer_id, since_ms=since_ms if since_ms >= 0 else None)
    return None


def _load(
    directory: Path, segments: Sequence[SegmentFiles], log_start_offset: int, high_watermark: int
) -> tuple[int, OpenTransactions]:
    """Return the offset from which to read batches, and the transactions that are open there.

    Snapshots at or below the log start are not used: they are out of date.
    """
    first = segments[0].base_offset if segments else log_start_offset
    for offset in reversed(list_producer_snapshots(directory)):
        if not (log_start_offset < offset <= high_watermark and first <= offset):
            continue
        try:
            entries = decode_producer_snapshot(read_regular(directory / f"{offset:020d}.snapshot"))
        except CorruptInputError:
            continue
        return offset, OpenTransactions.from_snapshot(entries)
    return max(first, log_start_offset), OpenTransactions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The segments that a broker would keep, the log end offset, and the epochs of unflushed batches."""

    segments: tuple[SegmentFiles, ...]
    end_offset: int
    epochs: tuple[EpochEntry, ...]


def find_log_end(segments: Sequence[SegmentFiles], *, recovery_point: int) -> LogEnd:
    """Read the batches from `recovery_point` on, up to the first damaged one, which ends the log.

    Segments after a damaged one are left out, since a broker deletes them at start-up. `segments` must not be
    empty.
    """
    epochs: list[EpochEntry] = []
    end = segments[0].base_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if following is not None and following <= recovery_point:
            continue
        end, whole = _read_tail(segment, recovery_point, epochs)
        if not whole:
            return LogEnd(segments=tuple(segments[: index + 1]), end_offset=end, epochs=tuple(epochs))
    return LogEnd(segments=tuple(segments), end_offset=end, epochs=tuple(epochs))


def _read_tail(segment: SegmentFiles, recovery_point: int, epochs: list[EpochEntry]) -> tuple[int, bool]:
    """Return the next offset after the segment's valid batches, and whether they reach its end."""
    end = segment.base_offset
    with items_from(segment, recovery_point) as (_, items):
        for item in items:
            if not isinstance(item, BatchHead):
                return end, False
            end = item.next_offset
            epoch = item.partition_leader_epoch
            if epoch >= 0 and (not epochs or epoch > epochs[-1].epoch):
                epochs.append(EpochEntry(epoch, item.base_offset))
    return end, True


def largest_timestamp_ms(segment: SegmentFiles, *, active: bool) -> int:
    """Return a segment's largest timestamp, its maxTimestampMs in metadata (LogSegment.largestTimestamp).

    It is the last entry of a rolled segment's time index. For the active segment, or without a complete time
    index, it comes from the batches. Without any timestamp it is the log file's modification time.
    """
    index = _closed_time_index(segment)
    if index is not None and len(index) and not active:
        return index.last.timestamp_ms
    largest = -1 if index is None else index.last.timestamp_ms
    start = segment.base_offset if index is None else index.last.offset
    with items_from(segment, start, check_crc=False) as (_, items):
        for item in items:
            if isinstance(item, BatchHead):
                largest = max(largest, item.max_timestamp_ms)
    return largest if largest >= 0 else segment.log.stat().st_mtime_ns // 1_000_000


def _closed_time_index(segment: SegmentFiles) -> TimeIndex | None:
    """Return the time index; None if it is missing, damaged, or ends with zeros because it was not closed."""
    data = read_if_exists(segment.path(".timeindex"))
    if data is None:
        return None
    try:
        index = TimeIndex.decode(data, segment.base_offset)
    except CorruptInputError:
        return None
    return index if len(index.data) == len(data) else None


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_OFFSET_MAX = (1 << 63) - 1
_READS_AGAIN_MAX = 4
"""How often a log is read again because a running broker deleted one of its files."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The offset checkpoints of a log directory; a missing file counts as an empty one, as for a broker."""

    log_start: Mapping[TopicPartition, int]
    high_watermark: Mapping[TopicPartition, int]
    recovery_point: Mapping[TopicPartition, int]
    clean_shutdown: bool


OnError = Callable[[Path, TierctlError], None]


def read_log_dirs(
    dirs: Sequence[Path],
    *,
    include_internal: bool = False,
    select: Callable[[TopicPartition], bool] | None = None,
    on_error: OnError | None = None,
    reading: Reading = unwatched,
) -> list[LocalLog]:
    """Return the log of every partition in these directories, by partition, then by directory as given.

    A partition in the directories of two brokers has two logs; two folders of one broker are an error, as for
    the broker. Internal topics (`__…`) are left out without `include_internal`; folders that a broker is
    deleting or moving are always left out (`left_out_folders`). Only partitions for which `select` returns
    True are read.

    The error of an unreadable log is raised; with `on_error` it is reported with the log's folder, and the
    other logs are read. The error of a checkpoint concerns all logs of its directory. `reading` shows the
    number of logs that are read. Raises as `require_folder` for one of `dirs`.
    """
    logs: list[LocalLog] = []
    folders_of = {each: _partition_folders(each, include_internal, select) for each in distinct_dirs(dirs)}
    with reading(sum(map(len, folders_of.values()))) as advance:
        for directory, folders in folders_of.items():
            checkpoints = _checkpoints_or_report(directory, on_error) if folders else None
            for partition, folder in folders:
                if checkpoints is not None:
                    logs += _read_or_report(partition, folder, checkpoints, on_error)
                advance(1)

    def report(folder: Path, error: TierctlError) -> None:
        if on_error is None:
            raise error
        on_error(folder, error)

    return sorted(without_duplicates(logs, report), key=lambda log: log.topic_partition)


def list_partitions(dirs: Iterable[Path]) -> list[TopicIdPartition]:
    """Return every user partition that has a folder in these directories, read from partition.metadata only.

    A folder that a broker moves the partition to (`-future`) counts, one that it will delete does not.
    Folders without a readable partition.metadata are left out. Raises as `require_folder`.
    """
    dirs = list(dirs)
    folders = [each for path in dirs for each in _partition_folders(Path(path), include_internal=False)]
    folders += [(f.partition, f.path) for f in left_out_folders(dirs) if f.kind is FolderKind.FUTURE]
    found = set()
    for partition, folder in folders:
        with suppress(OSError, CorruptInputError):
            topic_id = read_partition_metadata(read_if_exists(folder / PARTITION_METADATA_FILE) or b"")
            found.add(TopicIdPartition(topic_id, partition.topic, partition.partition))
    return sorted(found)


def _partition_folders(
    directory: Path, include_internal: bool, select: Callable[[TopicPartition], bool] | None = None
) -> list[tuple[TopicPartition, Path]]:
    require_folder(directory)
    found = []
    for folder in directory.iterdir():
        partition = parse_partition_folder(folder.name)
        if partition is None or not folder.is_dir():
            continue
        if partition.topic.startswith("__") and not include_internal:
            continue
        if select is None or select(partition):
            found.append((partition, folder))
    return sorted(found)


def read_checkpoints(directory: Path) -> Checkpoints:
    """Return the checkpoints of a log directory.

    Raise CorruptInputError, naming the file, for a damaged one, and NotFoundError for an unreadable one.
    """
    return Checkpoints(
        log_start=_offsets(directory / LOG_STARTS_FILE),
        high_watermark=_offsets(directory / HIGH_WATERMARKS_FILE),
        recovery_point=_offsets(directory / RECOVERY_POINTS_FILE),
        clean_shutdown=(directory / CLEAN_SHUTDOWN).exists(),
    )


def _offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(read_if_exists(path) or b"")
    except CorruptInputError as error:
        raise error.within(str(path)) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _checkpoints_or_report(directory: Path, on_error: OnError | None) -> Checkpoints | None:
    try:
        return read_checkpoints(directory)
    except TierctlError as error:
        if on_error is None:
            raise
        on_error(directory, error)
        return None


def _read_or_report(
    partition: TopicPartition, folder: Path, checkpoints: Checkpoints, on_error: OnError | None
) -> list[LocalLog]:
    try:
        return [read_log(partition, folder, checkpoints)]
    except TierctlError as error:
        if not folder.is_dir():
            # The topic was deleted while it was read: a running broker has renamed its folder.
            return []
        if on_error is None:
            raise
        on_error(folder, error)
        return []


def read_log(partition: TopicPartition, folder: Path, checkpoints: Checkpoints) -> LocalLog:
    """Return one partition's log; CorruptInputError or NotFoundError if a necessary file can't be read.

    A running broker deletes segments while the log is read; it is then read again.
    """
    try:
        for _ in range(_READS_AGAIN_MAX):
            with suppress(FileNotFoundError):
                return _read_log(partition, folder, checkpoints)
        return _read_log(partition, folder, checkpoints)
    except OSError as error:
        raise _unreadable(folder, error) from error


def with_open_transaction(log: LocalLog) -> LocalLog:
    """Return `log` with the transaction that is open at its last stable offset, as stated by its leader.

    The log is returned unchanged if the transaction is known, or if a running broker deletes the files.
    """
    if log.open_transaction is not None or log.last_stable_offset >= log.high_watermark:
        return log
    with suppress(FileNotFoundError):
        segments = list_segments(log.directory)
        opened = open_transaction_at(segments, log.last_stable_offset, log.high_watermark)
        return replace(log, open_transaction=opened)
    return log


def _unreadable(path: Path, error: OSError) -> NotFoundError:
    return NotFoundError(
        f"{error.filename or path} can't be read: {error.strerror}",
        hint="each file of the directory must be readable; run as the broker's user",
    )


def _read_log(partition: TopicPartition, folder: Path, checkpoints: Checkpoints) -> LocalLog:
    require_plain_files(folder)
    topic_id = _parsed(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    checkpointed_start = checkpoints.log_start.get(partition)
    segments: tuple[SegmentFiles, ...] = tuple(list_segments(folder))
    epochs = _leader_epochs(folder)
    end_offset = checkpointed_start or 0
    if segments:
        recovery_point = (
            _OFFSET_MAX if checkpoints.clean_shutdown else checkpoints.recovery_point.get(partition, 0)
        )
        end = find_log_end(segments, recovery_point=recovery_point)
        segments, end_offset = end.segments, end.end_offset
        epochs = _with_recovered(epochs, end.epochs)
    if checkpointed_start is not None and end_offset < checkpointed_start:
        # A broker restarts such a log empty: all of its segments lie below the log start offset.
        segments, end_offset, epochs = (), checkpointed_start, ()
    first = segments[0].base_offset if segments else end_offset
    log_start = first if checkpointed_start is None else checkpointed_start
    high_watermark = min(max(checkpoints.high_watermark.get(partition, 0), log_start), end_offset)
    stable_offset = last_stable_offset(
        folder, segments, log_start_offset=log_start, high_watermark=high_watermark
    )
    return LocalLog(
        topic_id_partition=TopicIdPartition(topic_id, partition.topic, partition.partition),
        directory=folder,
        segments=_local_segments(segments, set(list_producer_snapshots(folder))),
        # Without a record of the log start, only the epochs tell that the log began below its first segment.
        leader_epochs=_cut_epochs(epochs, checkpointed_start or 0, end_offset),
        log_start_offset=log_start,
        high_watermark=high_watermark,
        last_stable_offset=stable_offset,
        log_end_offset=end_offset,
        is_log_start_known=checkpointed_start is not None,
        open_transaction=open_transaction_at(segments, stable_offset, high_watermark),
    )


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(read_regular(path))
    except CorruptInputError as error:
        raise error.within(str(path)) from None


def _leader_epochs(folder: Path) -> tuple[EpochEntry, ...]:
    path = folder / LEADER_EPOCHS_FILE
    return _parsed(path, read_leader_epoch_checkpoint) if path.exists() else ()


def _with_recovered(
    epochs: tuple[EpochEntry, ...], recovered: Iterable[EpochEntry]
) -> tuple[EpochEntry, ...]:
    """Return the checkpoint's epochs with the later ones of the batches.

    A broker writes an epoch to the checkpoint after its first batch, so a crash may lose the entry.
    """
    latest = epochs[-1].epoch if epochs else -1
    return (*epochs, *(entry for entry in recovered if entry.epoch > latest))


def _cut_epochs(
    epochs: tuple[EpochEntry, ...], log_start_offset: int, log_end_offset: int
) -> tuple[EpochEntry, ...]:
    """Return the epochs of [log start, log end], the first one raised to the log start.

    An epoch that begins at the log end is kept, other than by a starting broker, since it shows which replica
    was the leader last.
    """
    kept = [entry for entry in epochs if entry.start_offset <= log_end_offset]
    before = [entry for entry in kept if entry.start_offset <= log_start_offset]
    first = [EpochEntry(before[-1].epoch, log_start_offset)] if before else []
    return (*first, *(entry for entry in kept if entry.start_offset > log_start_offset))


def _local_segments(segments: Sequence[SegmentFiles], snapshots: set[int]) -> tuple[LocalSegment, ...]:
    following: list[int | None] = [segment.base_offset for segment in segments[1:]]
    return tuple(
        _local_segment(segment, next_base, snapshots)
        for segment, next_base in zip_longest(segments, following)
    )


def _local_segment(segment: SegmentFiles, next_base: int | None, snapshots: set[int]) -> LocalSegment:
    transaction_index = segment.path(".txnindex")
    # An empty transaction index, which truncation of a log may leave, means the same as no index.
    has_aborts = transaction_index.exists() and transaction_index.stat().st_size > 0
    has_snapshot = next_base is not None and next_base in snapshots
    return LocalSegment(
        base_offset=segment.base_offset,
        next_base_offset=next_base,
        size_bytes=segment.log.stat().st_size,
        max_timestamp_ms=largest_timestamp_ms(segment, active=next_base is None),
        log=segment.log,
        offset_index=segment.path(".index"),
        time_index=segment.path(".timeindex"),
        transaction_index=transaction_index if has_aborts else None,
        producer_snapshot=segment.directory / f"{next_base:020d}.snapshot" if has_snapshot else None,
    )


# The state of producers at one offset of a log, which a producer snapshot stores.
#
# Source: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.

_SEQUENCE_MAX = (1 << 31) - 1
"""The sequence after the highest one is 0 (DefaultRecordBatch.incrementSequence)."""
_BUCKETS_MIN = 16


def entry_of(head: BatchHead, first_offset: int, coordinator_epoch: int = -1) -> ProducerEntry:
    """Return the state of a producer whose last batch of records has this head.

    `first_offset` is that of its open transaction, -1 without one.
    """
    sequence = (
        (head.base_sequence + head.last_offset_delta) & _SEQUENCE_MAX if head.base_sequence >= 0 else -1
    )
    return ProducerEntry(
        producer_id=head.producer_id,
        epoch=head.producer_epoch,
        last_sequence=sequence,
        last_offset=head.last_offset,
        offset_delta=head.last_offset_delta,
        timestamp_ms=head.max_timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        current_txn_first_offset=first_offset,
    )


@dataclass(slots=True)
class ProducerTable:
    """The state of every producer of a log; producers that expired are not removed: no batch says when."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> Self:
        """Return the table at the offset of a producer snapshot with these entries."""
        return cls({entry.producer_id: entry for entry in entries})

    def append(self, buf: Buffer, head: BatchHead) -> None:
        """Apply the next batch; `head` is its header in `buf`.

        CorruptInputError if a control record can't be decoded.
        """
        if head.producer_id < 0:
            return
        before = self.entries.get(head.producer_id)
        if head.is_control:
            self._append_marker(buf, head, before)
            return
        first_offset = -1
        if head.is_transactional:
            is_open = before is not None and before.current_txn_first_offset >= 0
            first_offset = before.current_txn_first_offset if before and is_open else head.base_offset
        epoch = -1 if before is None else before.coordinator_epoch
        self.entries[head.producer_id] = entry_of(head, first_offset, epoch)

    def _append_marker(self, buf: Buffer, head: BatchHead, before: ProducerEntry | None) -> None:
        # Compaction may remove the marker from its batch; an empty batch ends no transaction.
        markers = [control_record(record) for record in batch_at(buf, head).records()]
        if not markers or markers[0].type not in _MARKERS:
            return
        if before is None or before.epoch != head.producer_epoch:
            # A new producer epoch forgets the batches of the old one.
            before = ProducerEntry(head.producer_id, head.producer_epoch, -1, -1, 0, -1, -1, -1)
        self.entries[head.producer_id] = before._replace(
            timestamp_ms=head.max_timestamp_ms,
            coordinator_epoch=markers[0].coordinator_epoch or 0,
            current_txn_first_offset=-1,
        )

    def in_file_order(self) -> list[ProducerEntry]:
        """Return the entries in the order of a broker's file: that of java.util.HashMap by producer id."""
        buckets = _BUCKETS_MIN
        while len(self.entries) * 4 > buckets * 3:
            buckets *= 2
        return sorted(self.entries.values(), key=lambda entry: _bucket(entry.producer_id, buckets))


def _bucket(producer_id: int, buckets: int) -> int:
    code = (producer_id ^ producer_id >> 32) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1
