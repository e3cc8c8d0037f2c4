"""Reads the logs in log directories, each with its end: log end offset, last stable offset, timestamps.

Offsets are determined as a broker determines them at start-up (LogManager, LogLoader, UnifiedLog), but no
file is changed.

Index files are read by position: Kafka preallocates those of an active segment with zeros, 10 MiB by default.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Self, TypeVar

from tierctl.errors import CorruptInputError, TierctlError
from tierctl.files import FileBytes, exists, read_regular
from tierctl.locallog.folders import (
    NO_RECOVERY,
    Checkpoints,
    FolderKind,
    LogFiles,
    SegmentFiles,
    distinct_dirs,
    is_file_for_brokers,
    left_out_folders,
    list_log_files,
    opened,
    parse_partition_folder,
    read_checkpoints,
    require_folder,
    unreadable,
    without_duplicates,
)
from tierctl.model import OpenTransaction
from tierctl.model.events import INTERNAL_TOPICS, TopicIdPartition, TopicPartition
from tierctl.model.local import EpochEntry, LocalLog, LocalSegment
from tierctl.model.progress import Reading, unwatched
from tierctl.wire.batches.batch_head import HEAD_SIZE, BatchHead, Buffer
from tierctl.wire.batches.record_batch import ControlType, batch_at, control_record
from tierctl.wire.batches.scan import BadRange, OffsetBounds, ScanItem, TornTail, scan_at, walk
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    ProducerEntry,
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
    read_partition_metadata,
)
from tierctl.wire.files.indexes import AbortedTxn, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset

_POSITION_MAX = (1 << 31) - 1


def _used_entries(file: FileBytes, entry_bytes: int) -> range | None:
    """Return the numbers of an index file's entries without the preallocated ones, which are zeros.

    None if the file does not have whole entries. Only the last entry and those of a binary search are read.
    """

    def is_zero(number: int) -> bool:
        return not any(file.read(number * entry_bytes, entry_bytes))

    entries = range(file.size_bytes // entry_bytes)
    if file.size_bytes % entry_bytes:
        return None
    return entries[: bisect_left(entries, True, key=is_zero)] if entries and is_zero(entries[-1]) else entries


def _indexed_at(segment: SegmentFiles, offset: int) -> OffsetPosition | None:
    """Return the offset index's last entry at or below `offset`; None without one."""
    size = OffsetIndex.ENTRY_BYTES

    def entry(number: int) -> OffsetPosition:
        (only,) = OffsetIndex(segment.base_offset, file.read(number * size, size))
        return only

    try:
        with FileBytes(segment.path(".index")) as file:
            used = _used_entries(file, size) or range(0)
            at = bisect_right(used, (offset, _POSITION_MAX), key=entry)
            return entry(at - 1) if at else None
    except FileNotFoundError:
        return None


def _last_timestamp(segment: SegmentFiles, *, active: bool) -> TimestampOffset | None:
    """Return the last entry of the segment's time index.

    None if there is none, if it is no offset of the segment, or if a segment that is not `active` has
    preallocated entries, because its index was not closed.
    """
    size = TimeIndex.ENTRY_BYTES
    try:
        with FileBytes(segment.path(".timeindex")) as file:
            used = _used_entries(file, size)
            if not used or not (active or len(used) * size == file.size_bytes):
                return None
            last = TimeIndex(segment.base_offset, file.read(used[-1] * size, size)).last
    except FileNotFoundError:
        return None
    return last if last.timestamp_ms >= 0 and last.offset >= segment.base_offset else None


@contextmanager
def items_from(
    segment: SegmentFiles, offset: int, *, check_crc: bool = True
) -> Iterator[tuple[Buffer, Iterator[ScanItem]]]:
    """Yield the segment's bytes and its scan items, from the batch with `offset` or an earlier batch on.

    They begin with the first batch if the offset index is missing or wrong.
    """
    with opened(segment.log) as buf:
        position = 0
        expected: int | None = segment.base_offset
        entry = None if offset <= segment.base_offset else _indexed_at(segment, offset)
        if entry is not None and 0 < entry.position < len(buf):
            item = scan_at(buf, entry.position, OffsetBounds(segment.base_offset))
            if isinstance(item, BatchHead) and item.base_offset <= entry.offset:
                position, expected = entry.position, None
        yield buf, walk(buf, position=position, expected_offset=expected, check_crc=check_crc)


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


# The state of producers at one offset of a log, which a producer snapshot stores.
#
# Source: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.

_MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})
_SEQUENCE_MAX = (1 << 31) - 1
"""The sequence after the highest one is 0 (DefaultRecordBatch.incrementSequence)."""
_BUCKETS_MIN = 16


@dataclass(slots=True)
class ProducerTable:
    """The state of every producer of a log; producers that expired are not removed: no batch says when."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerEntry]) -> Self:
        """Return the table at the offset of a producer snapshot with these entries."""
        return cls({entry.producer_id: entry for entry in entries})

    def with_transaction(self) -> list[ProducerEntry]:
        """Return the entries of the producers with an open transaction, in the order of its first offset."""
        found = (entry for entry in self.entries.values() if entry.current_txn_first_offset >= 0)
        return sorted(found, key=lambda entry: entry.current_txn_first_offset)

    @property
    def first_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return next((entry.current_txn_first_offset for entry in self.with_transaction()), None)

    def append(self, buf: Buffer, head: BatchHead) -> AbortedTxn | None:
        """Apply the next batch of the log; return the transaction that the batch aborts, None if none.

        `head` is the batch's header in `buf`. CorruptInputError if a control record can't be decoded.
        """
        if head.producer_id < 0:
            return None
        before = self.entries.get(head.producer_id)
        if head.is_control:
            return self._append_marker(buf, head, before)
        first_offset = -1
        if head.is_transactional:
            is_open = before is not None and before.current_txn_first_offset >= 0
            first_offset = before.current_txn_first_offset if before and is_open else head.base_offset
        sequence = head.base_sequence
        self.entries[head.producer_id] = ProducerEntry(
            producer_id=head.producer_id,
            epoch=head.producer_epoch,
            last_sequence=(sequence + head.last_offset_delta) & _SEQUENCE_MAX if sequence >= 0 else -1,
            last_offset=head.last_offset,
            offset_delta=head.last_offset_delta,
            timestamp_ms=head.max_timestamp_ms,
            coordinator_epoch=-1 if before is None else before.coordinator_epoch,
            current_txn_first_offset=first_offset,
        )
        return None

    def _append_marker(self, buf: Buffer, head: BatchHead, before: ProducerEntry | None) -> AbortedTxn | None:
        # Compaction may remove the marker from its batch; an empty batch ends no transaction.
        markers = [control_record(record) for record in batch_at(buf, head).records()]
        if not markers or markers[0].type not in _MARKERS:
            return None
        first = -1 if before is None else before.current_txn_first_offset
        if before is None or before.epoch != head.producer_epoch:
            # A new producer epoch forgets the batches of the old one.
            before = ProducerEntry(head.producer_id, head.producer_epoch, -1, -1, 0, -1, -1, -1)
        self.entries[head.producer_id] = before._replace(
            timestamp_ms=head.max_timestamp_ms,
            coordinator_epoch=markers[0].coordinator_epoch or 0,
            current_txn_first_offset=-1,
        )
        if first < 0 or markers[0].type is ControlType.COMMIT:
            return None
        oldest = self.first_offset
        stable = head.last_offset + 1 if oldest is None else oldest
        return AbortedTxn(head.producer_id, first, head.last_offset, stable)

    def in_file_order(self) -> list[ProducerEntry]:
        """Return the entries in the order of a broker's file: that of java.util.HashMap by producer id."""
        buckets = _BUCKETS_MIN
        while len(self.entries) * 4 > buckets * 3:
            buckets *= 2
        return sorted(self.entries.values(), key=lambda entry: _bucket(entry.producer_id, buckets))


def _bucket(producer_id: int, buckets: int) -> int:
    code = (producer_id ^ producer_id >> 32) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1


# Finds the last stable offset: the first offset of the oldest transaction that is still open.
#
# Source: UnifiedLog.lastStableOffset.


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
            # With log-append time, the base timestamp is still the producer's (DefaultRecord.readFrom).
            since_ms = item.max_timestamp_ms if item.is_log_append_time else item.base_timestamp_ms
            return OpenTransaction(producer_id=item.producer_id, since_ms=since_ms if since_ms >= 0 else None)
    return None


def _load(
    segments: Sequence[SegmentFiles], snapshots: Collection[int], log_start_offset: int, high_watermark: int
) -> tuple[int, ProducerTable]:
    """Return the offset from which to read batches, and the producers there.

    Snapshots at or below the log start are not used: they are out of date.
    """
    first = segments[0].base_offset
    for offset in sorted(snapshots, reverse=True):
        if not (log_start_offset < offset <= high_watermark and first <= offset):
            continue
        try:
            entries = decode_producer_snapshot(
                read_regular(segments[0].directory / f"{offset:020d}.snapshot")
            )
        except CorruptInputError:
            continue
        return offset, ProducerTable.from_snapshot(entries)
    return max(first, log_start_offset), ProducerTable()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The segments that a broker would keep, and the facts of the batches at the end of the log.

    `epochs` are those of the batches that were read. `stable_offset` is the first offset of the oldest
    transaction that is open at the high watermark; the high watermark if none is. `max_timestamp_ms` is the
    largest timestamp of the last segment, -1 without one. `damage` is that of the bytes before which the log
    ends, None for an unfinished write. The last segment has bytes from `unused_from` on that a broker does
    not count; None without. It cuts them off when it starts after a crash, or allocated them (`preallocate`).
    """

    segments: tuple[SegmentFiles, ...]
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    stable_offset: int
    max_timestamp_ms: int
    damage: CorruptInputError | None = None
    unused_from: int | None = None


def read_log_end(
    segments: Sequence[SegmentFiles],
    snapshots: Collection[int],
    *,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
) -> LogEnd:
    """Read the batches from `recovery_point` on, up to the first damaged one, which ends the log.

    Of the segment with the recovery point, all batches are read, as by a broker (LogSegments.values); none is
    if that is NO_RECOVERY. Segments after a damaged one are left out, since a broker deletes them at
    start-up. Open transactions are determined from the newest valid one of the producer `snapshots` (their
    offsets) at or below `high_watermark`, and from the batches after it. A batch that can't be decoded may
    hold the marker of any transaction, so its offset limits the stable offset, too. Batches are read once.
    `segments` must not be empty.
    """
    if recovery_point < NO_RECOVERY:
        begun = [segment.base_offset for segment in segments if segment.base_offset <= recovery_point]
        recovery_point = max(begun, default=recovery_point)
    start, producers = _load(segments, snapshots, log_start_offset, high_watermark)
    newest = _last_timestamp(segments[-1], active=True) or TimestampOffset(-1, segments[-1].base_offset)
    tail = _Tail(recovery_point, start, high_watermark, producers)
    kept = len(segments)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if following is not None and following <= min(recovery_point, start):
            continue
        read_from = min(recovery_point, start, *([newest.offset] if following is None else ()))
        tail.begin(segment, is_flushed=following is not None and following <= recovery_point)
        with items_from(segment, read_from) as (buf, items):
            if not all(tail.add(buf, item) for item in items):
                kept = index + 1
                break
    if tail.end_offset < min(start, high_watermark):
        # The snapshot is of a longer log, whose end was lost.
        return read_log_end(
            segments,
            snapshots,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=tail.end_offset,
        )
    # A segment that is recovered is read as a whole, and its time index may have entries of lost batches.
    indexed_ms = -1 if tail.is_recovered else newest.timestamp_ms
    return LogEnd(
        segments=tuple(segments[:kept]),
        end_offset=tail.end_offset,
        epochs=tuple(tail.epochs),
        stable_offset=tail.stable_offset,
        damage=tail.damage and tail.damage.within(str(segments[kept - 1].log)),
        unused_from=tail.unused_from,
        max_timestamp_ms=max(indexed_ms, tail.max_timestamp_ms),
    )


@dataclass(slots=True)
class _Tail:
    """The facts of the batches at the end of a log, which are added in their order.

    `producers` are those at `stable_from`.
    """

    recovery_point: int
    stable_from: int
    high_watermark: int
    producers: ProducerTable
    end_offset: int = 0
    epochs: list[EpochEntry] = field(default_factory=list)
    max_timestamp_ms: int = -1
    damage: CorruptInputError | None = None
    """Why the log ends, if it does not end with its bytes."""
    unused_from: int | None = None
    _is_flushed: bool = False
    _unstable: list[int] = field(default_factory=list)

    def begin(self, segment: SegmentFiles, *, is_flushed: bool) -> None:
        """Begin a segment; damage in one that `is_flushed` does not end the log."""
        self.end_offset, self.max_timestamp_ms, self._is_flushed = segment.base_offset, -1, is_flushed

    def add(self, buf: Buffer, item: ScanItem) -> bool:
        """Add the next item of the segment whose bytes are `buf`; return False if the log ends before it."""
        if isinstance(item, TornTail):
            is_allocated = not any(buf[item.position : item.position + HEAD_SIZE])
            is_unused = is_allocated or self.is_recovered
            self.unused_from = item.position if is_unused and not self._is_flushed else None
            return self._is_flushed
        if isinstance(item, BadRange):
            return self._add_damage(item)
        self.end_offset = item.next_offset
        self.max_timestamp_ms = max(self.max_timestamp_ms, item.max_timestamp_ms)
        epoch = item.partition_leader_epoch
        if epoch >= 0 and (not self.epochs or epoch > self.epochs[-1].epoch):
            self.epochs.append(EpochEntry(epoch, item.base_offset))
        is_undecided = item.next_offset > self.stable_from and item.base_offset < self.high_watermark
        if item.is_transactional and is_undecided:
            try:
                self.producers.append(buf, item)
            except CorruptInputError:
                self._unstable.append(item.base_offset)
        return True

    def _add_damage(self, item: BadRange) -> bool:
        if item.next_offset is None or item.next_offset > self.stable_from:
            self._unstable.append(max(item.first_offset or 0, self.stable_from))
        is_before = item.next_offset is not None and item.next_offset <= self.recovery_point
        if self._is_flushed or is_before:
            return True
        self.damage = item.error
        self.unused_from = item.position if self.is_recovered else None
        return False

    @property
    def is_recovered(self) -> bool:
        """Whether a broker that starts reads the last segments, and cuts off what is not whole."""
        return self.recovery_point < NO_RECOVERY

    @property
    def stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or of damage; at most the high watermark."""
        first = self.producers.first_offset
        return min([*self._unstable, self.high_watermark, *([] if first is None else [first])])


def largest_timestamp_ms(segment: SegmentFiles) -> int:
    """Return a rolled segment's maxTimestampMs of metadata (LogSegment.largestTimestamp).

    It is the last entry of the time index; without a complete time index it comes from the batches. -1 if
    there is none.
    """
    last = _last_timestamp(segment, active=False)
    return _largest_timestamp(segment) if last is None else last.timestamp_ms


def _largest_timestamp(segment: SegmentFiles) -> int:
    last = _last_timestamp(segment, active=True) or TimestampOffset(-1, segment.base_offset)
    with items_from(segment, last.offset, check_crc=False) as (_, items):
        found = (item.max_timestamp_ms for item in items if isinstance(item, BatchHead))
        return max([last.timestamp_ms, *found])


_READS_AGAIN_MAX = 4
"""How often a log is read again because a running broker deleted one of its files."""

T = TypeVar("T")


OnError = Callable[[Path, TierctlError], None]


def read_log_dirs(
    dirs: Sequence[Path],
    *,
    select: Callable[[TopicPartition], bool] | None = None,
    on_error: OnError | None = None,
    reading: Reading = unwatched,
) -> list[LocalLog]:
    """Return the log of every partition in these directories, by partition, then by directory as given.

    A partition in the directories of two brokers has two logs; two folders of one broker are an error, as for
    the broker. INTERNAL_TOPICS are left out, and folders that a broker is deleting or moving
    (`left_out_folders`). Only partitions for which `select` returns True are read.

    The error of an unreadable log is raised; with `on_error` it is reported with the log's folder, and the
    other logs are read. The error of a checkpoint concerns all logs of its directory. `reading` shows the
    number of logs that are read. Raises as `require_folder` for one of `dirs`.
    """

    def report(folder: Path, error: TierctlError) -> None:
        if on_error is None:
            raise error
        on_error(folder, error)

    logs: list[LocalLog] = []
    folders_of = {each: _partition_folders(each, select) for each in distinct_dirs(dirs)}
    with reading(sum(map(len, folders_of.values()))) as advance:
        for directory, folders in folders_of.items():
            checkpoints = _checkpoints_or_report(directory, on_error) if folders else None
            for partition, folder in folders:
                try:
                    if checkpoints is None:
                        # The error of the checkpoint names no topic of a folder without a readable topic id.
                        require_topic_id(folder)
                    else:
                        logs.append(read_log(partition, folder, checkpoints))
                except TierctlError as error:
                    # A topic may be deleted while it is read: a running broker has then renamed its folder.
                    if _may_exist(folder):
                        report(folder, error)
                advance(1)
    return sorted(without_duplicates(logs, report), key=lambda log: log.topic_partition)


def _may_exist(folder: Path) -> bool:
    try:
        return exists(folder, follow_symlinks=False)
    except OSError:
        return True


def list_partitions(dirs: Iterable[Path]) -> list[TopicIdPartition]:
    """Return every user partition that has a folder in these directories, read from partition.metadata only.

    A folder that a broker moves the partition to (`-future`) counts, one that it will delete does not.
    Folders without a readable partition.metadata are left out. Raises as `require_folder`.
    """
    dirs = list(dirs)
    folders = [each for path in dirs for each in _partition_folders(Path(path))]
    folders += [(f.partition, f.path) for f in left_out_folders(dirs) if f.kind is FolderKind.FUTURE]
    found = set()
    for partition, folder in folders:
        with suppress(OSError, CorruptInputError):
            topic_id = read_partition_metadata(read_regular(folder / PARTITION_METADATA_FILE))
            found.add(TopicIdPartition(topic_id, partition.topic, partition.partition))
    return sorted(found)


def _partition_folders(
    directory: Path, select: Callable[[TopicPartition], bool] | None = None
) -> list[tuple[TopicPartition, Path]]:
    require_folder(directory)
    found = []
    for folder in directory.iterdir():
        partition = parse_partition_folder(folder.name)
        if partition is None or partition.topic in INTERNAL_TOPICS:
            continue
        if (select is None or select(partition)) and not is_file_for_brokers(folder):
            found.append((partition, folder))
    return sorted(found)


def _checkpoints_or_report(directory: Path, on_error: OnError | None) -> Checkpoints | None:
    try:
        return read_checkpoints(directory)
    except TierctlError as error:
        if on_error is None:
            raise
        on_error(directory, error)
        return None


def read_log(partition: TopicPartition, folder: Path, checkpoints: Checkpoints) -> LocalLog:
    """Return one partition's log; raise CorruptInputError or the errors of `unreadable` for a file of it.

    A running broker deletes segments while the log is read; it is then read again.
    """
    try:
        for _ in range(_READS_AGAIN_MAX):
            with suppress(FileNotFoundError):
                return _read_log(partition, folder, checkpoints)
        return _read_log(partition, folder, checkpoints)
    except OSError as error:
        raise unreadable(folder, error) from error


def require_topic_id(folder: Path) -> None:
    """Raise as `read_log` if the topic id of a partition's folder can't be read."""
    try:
        _parsed(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    except OSError as error:
        raise unreadable(folder, error) from error


def with_open_transaction(log: LocalLog) -> LocalLog:
    """Return `log` with the transaction that is open at its last stable offset, as stated by its leader.

    The log is returned unchanged if the transaction is known, or if a running broker deletes the files.
    """
    if log.open_transaction is not None or log.last_stable_offset >= log.high_watermark:
        return log
    with suppress(FileNotFoundError):
        segments = list_log_files(log.directory).segments
        opened = open_transaction_at(segments, log.last_stable_offset, log.high_watermark)
        return replace(log, open_transaction=opened)
    return log


def _read_log(partition: TopicPartition, folder: Path, checkpoints: Checkpoints) -> LocalLog:
    files = list_log_files(folder)
    topic_id = _parsed(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    checkpointed_start = checkpoints.log_start.get(partition)
    segments: tuple[SegmentFiles, ...] = files.segments
    epochs = _parsed(folder / LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint) if files.has_epochs else ()
    end_offset = log_start = checkpointed_start or 0
    high_watermark = checkpointed_end = checkpoints.high_watermark.get(partition, 0)
    stable_offset, newest_ms, damage, unused_from = end_offset, -1, None, None
    if segments:
        log_start = segments[0].base_offset if checkpointed_start is None else checkpointed_start
        end = read_log_end(
            segments,
            files.snapshots,
            recovery_point=checkpoints.recovery_point_of(partition),
            log_start_offset=log_start,
            high_watermark=max(high_watermark, log_start),
        )
        segments, end_offset = end.segments, end.end_offset
        epochs = _with_recovered(epochs, end.epochs)
        stable_offset, newest_ms, damage = end.stable_offset, end.max_timestamp_ms, end.damage
        unused_from = end.unused_from
    if checkpointed_start is not None and end_offset < checkpointed_start:
        # A broker restarts such a log empty: all of its segments lie below the log start offset.
        damage = _above_end(checkpointed_start, end_offset, folder)
        segments, end_offset, epochs = (), checkpointed_start, ()
    high_watermark = min(max(high_watermark, log_start), end_offset)
    stable_offset = max(min(stable_offset, high_watermark), log_start)
    return LocalLog(
        topic_id_partition=TopicIdPartition(topic_id, partition.topic, partition.partition),
        directory=folder,
        segments=tuple(_local_segments(segments, files, newest_ms, unused_from)),
        # Without a record of the log start, only the epochs tell that the log began below its first segment.
        leader_epochs=_cut_epochs(epochs, checkpointed_start or 0, end_offset),
        log_start_offset=log_start,
        high_watermark=high_watermark,
        last_stable_offset=stable_offset,
        log_end_offset=end_offset,
        is_log_start_known=checkpointed_start is not None,
        is_high_watermark_known=partition in checkpoints.high_watermark,
        checkpointed_high_watermark=checkpointed_end,
        is_log_start_doubtful=bool(epochs) and epochs[0].start_offset < (checkpointed_start or 0),
        open_transaction=open_transaction_at(segments, stable_offset, high_watermark),
        damaged_end=damage,
    )


def _above_end(log_start: int, end_offset: int, folder: Path) -> CorruptInputError:
    return CorruptInputError(
        f"log start offset in {LOG_STARTS_FILE}",
        expected=f"at most {end_offset}, where the batches end",
        found=str(log_start),
        source=str(folder),
        hint="a broker that starts deletes all segments and leader epochs of such a log: put the log or the "
        "checkpoint back, or compare them with the other replicas, before it does",
    )


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(read_regular(path))
    except CorruptInputError as error:
        raise error.within(str(path)) from None


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


def _local_segments(
    segments: Sequence[SegmentFiles], files: LogFiles, newest_ms: int, unused_from: int | None
) -> Iterator[LocalSegment]:
    """Yield the segments of a log; `newest_ms` is the largest timestamp of the last one, -1 without one.

    The last one counts without the bytes from `unused_from` on, as in LogSegment.size.
    """
    bases: list[int | None] = [segment.base_offset for segment in segments[1:]]
    for segment, next_base in zip_longest(segments, bases):
        largest_ms = newest_ms if next_base is None else largest_timestamp_ms(segment)
        has_snapshot = next_base is not None and next_base in files.snapshots
        # An empty transaction index, which truncation of a log may leave, means the same as no index.
        has_aborts = segment.base_offset in files.transaction_indexes and (
            segment.path(".txnindex").stat().st_size > 0
        )
        log = segment.log
        facts = log.stat()
        written = unused_from if next_base is None else None
        modified_ms = facts.st_mtime_ns // 1_000_000
        yield LocalSegment(
            base_offset=segment.base_offset,
            next_base_offset=next_base,
            size_bytes=facts.st_size if written is None else min(facts.st_size, written),
            max_timestamp_ms=largest_ms if largest_ms >= 0 else modified_ms,
            modified_ms=modified_ms,
            log=log,
            offset_index=segment.path(".index"),
            time_index=segment.path(".timeindex"),
            transaction_index=segment.path(".txnindex") if has_aborts else None,
            producer_snapshot=segment.directory / f"{next_base:020d}.snapshot" if has_snapshot else None,
        )
