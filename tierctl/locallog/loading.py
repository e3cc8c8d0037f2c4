"""Reads a broker's log directories: one LocalLog per partition.

Offsets are determined as a broker determines them at start-up (LogManager, LogLoader, UnifiedLog), but no
file is changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, TierctlError
from tierctl.files import read_regular
from tierctl.locallog.folders import (
    FolderKind,
    LogFiles,
    SegmentFiles,
    distinct_dirs,
    is_locked,
    left_out_folders,
    list_log_files,
    parse_partition_folder,
    read_if_exists,
    require_folder,
    without_duplicates,
)
from tierctl.locallog.log_end import largest_timestamp_ms, open_transaction_at, read_log_end
from tierctl.model.events import TopicIdPartition, TopicPartition
from tierctl.model.local import EpochEntry, LocalLog, LocalSegment
from tierctl.model.progress import Reading, unwatched
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)

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
    is_whole: bool
    """Whether no batch can be damaged: the broker was shut down cleanly, or it is running."""

    def recovery_point_of(self, partition: TopicPartition) -> int:
        """Return the offset from which a broker that starts reads the batches of the partition's log."""
        return _OFFSET_MAX if self.is_whole else self.recovery_point.get(partition, 0)


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
        is_whole=(directory / CLEAN_SHUTDOWN).exists() or _is_running(directory),
    )


def _is_running(directory: Path) -> bool:
    with suppress(SafetyRefusal):
        return is_locked(directory)
    return False


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
        segments = list_log_files(log.directory).segments
        opened = open_transaction_at(segments, log.last_stable_offset, log.high_watermark)
        return replace(log, open_transaction=opened)
    return log


def _unreadable(path: Path, error: OSError) -> NotFoundError:
    return NotFoundError(
        f"{error.filename or path} can't be read: {error.strerror}",
        hint="each file of the directory must be readable; run as the broker's user",
    )


def _read_log(partition: TopicPartition, folder: Path, checkpoints: Checkpoints) -> LocalLog:
    files = list_log_files(folder)
    topic_id = _parsed(folder / PARTITION_METADATA_FILE, read_partition_metadata)
    checkpointed_start = checkpoints.log_start.get(partition)
    segments: tuple[SegmentFiles, ...] = files.segments
    epochs = _parsed(folder / LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint) if files.has_epochs else ()
    end_offset = log_start = checkpointed_start or 0
    high_watermark = checkpoints.high_watermark.get(partition, 0)
    stable_offset, newest_ms, damage = end_offset, -1, None
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
    if checkpointed_start is not None and end_offset < checkpointed_start:
        # A broker restarts such a log empty: all of its segments lie below the log start offset.
        segments, end_offset, epochs = (), checkpointed_start, ()
    high_watermark = min(max(high_watermark, log_start), end_offset)
    stable_offset = max(min(stable_offset, high_watermark), log_start)
    return LocalLog(
        topic_id_partition=TopicIdPartition(topic_id, partition.topic, partition.partition),
        directory=folder,
        segments=tuple(_local_segments(segments, files, newest_ms)),
        # Without a record of the log start, only the epochs tell that the log began below its first segment.
        leader_epochs=_cut_epochs(epochs, checkpointed_start or 0, end_offset),
        log_start_offset=log_start,
        high_watermark=high_watermark,
        last_stable_offset=stable_offset,
        log_end_offset=end_offset,
        is_log_start_known=checkpointed_start is not None,
        is_log_start_doubtful=bool(epochs) and epochs[0].start_offset < (checkpointed_start or 0),
        open_transaction=open_transaction_at(segments, stable_offset, high_watermark),
        damaged_end=damage,
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
    segments: Sequence[SegmentFiles], files: LogFiles, newest_ms: int
) -> Iterator[LocalSegment]:
    """Yield the segments of a log; `newest_ms` is the largest timestamp of the last one, -1 without one."""
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
        modified_ms = facts.st_mtime_ns // 1_000_000
        yield LocalSegment(
            base_offset=segment.base_offset,
            next_base_offset=next_base,
            size_bytes=facts.st_size,
            max_timestamp_ms=largest_ms if largest_ms >= 0 else modified_ms,
            modified_ms=modified_ms,
            log=log,
            offset_index=segment.path(".index"),
            time_index=segment.path(".timeindex"),
            transaction_index=segment.path(".txnindex") if has_aborts else None,
            producer_snapshot=segment.directory / f"{next_base:020d}.snapshot" if has_snapshot else None,
        )
