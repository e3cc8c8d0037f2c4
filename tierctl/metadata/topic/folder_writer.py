"""The one writer of a metadata topic in a folder: its locks, and appends to several partitions at once."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import SafetyRefusal
from tierctl.files import (
    PLAIN,
    TEMP_SUFFIX,
    FileBytes,
    FileSystem,
    backup_of,
    backups,
    broker_kept_out,
    exclusive,
    exists,
    is_dir,
    is_file,
    open_itself,
    read_decoded,
    read_regular,
    replace_durably,
    write_durably,
)
from tierctl.metadata.topic.base import (
    DEFAULT_METADATA_PARTITIONS,
    METADATA_TOPIC,
    PartitionLog,
    Tail,
    translated,
)
from tierctl.model import EpochEntry, Uuid
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.batches.segment_file import is_zero_from
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)

FIRST_SEGMENT = "00000000000000000000.log"


def make_partitions(folder: Path, numbers: Iterable[int], topic_id: Uuid, *, fs: FileSystem) -> None:
    """Create empty partitions, in the order of their `numbers`. Raises OSError."""
    for partition in numbers:
        _make_partition(folder / f"{METADATA_TOPIC}-{partition}", topic_id, fs)


def known_id(folder: Path, found: Sequence[int]) -> Uuid | None:
    """Return the topic id that one of the partitions `found` states; None if none does.

    Raises OSError, and CorruptInputError for a damaged file.
    """
    folders = (folder / f"{METADATA_TOPIC}-{partition}" for partition in found)
    ids = (read_decoded(each / PARTITION_METADATA_FILE, read_partition_metadata) for each in folders)
    return next((topic_id for topic_id in ids if topic_id is not None), None)


def _make_partition(partition: Path, topic_id: Uuid, fs: FileSystem) -> None:
    """Create a partition as a broker does, without indexes, which a broker creates when it loads the log.

    One that exists gets a missing partition.metadata: a broker takes a log without it for a stray one, and
    begins an empty log.
    """
    if exists(partition):
        path = partition / PARTITION_METADATA_FILE
        if not exists(path):
            write_durably(path, [write_partition_metadata(topic_id)], fs=fs)
        return
    making = partition.with_name(partition.name + TEMP_SUFFIX)
    files = {
        PARTITION_METADATA_FILE: write_partition_metadata(topic_id),
        LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint([EpochEntry(0, 0)]),
        FIRST_SEGMENT: b"",
    }
    try:
        fs.make_folder(making, like=partition.parent)
        for name, data in files.items():
            write_durably(making / name, [data], fs=fs, sync_folder=False)
        fs.sync_folder(making)
        fs.rename(making, partition)
    except BaseException:
        # A broker does not start if a folder in its log directory has a name that ends in .tmp.
        shutil.rmtree(making, ignore_errors=True)
        raise
    fs.sync_folder(partition.parent)


def drop_indexes(log: Path, *, fs: FileSystem) -> None:
    """Remove the indexes of a segment's log file, durably, before the file is changed. Raises OSError.

    The offset index is removed first: a broker rebuilds both if it is missing.
    """
    for suffix in (".index", ".timeindex"):
        stale = log.with_suffix(suffix)
        if exists(stale):
            fs.unlink(stale)
            fs.sync_folder(stale.parent)


class PartitionWriter:
    """Append to a metadata partition as its only writer; the caller holds the folder's lock.

    Opening truncates an unfinished write and keeps its bytes as `<segment>.log.<position>.bak`. Raises
    OSError, and CorruptInputError if damaged bytes are at the end of the log.
    """

    def __init__(self, log: PartitionLog, *, segment_bytes: int, fs: FileSystem) -> None:
        self._log = log
        self._segment_bytes = segment_bytes
        self._fs = fs
        self._epoch = self._latest_epoch()
        tail = self._recovered(log.tail())
        self._next_offset = tail.next_offset
        self._size_bytes = tail.position
        self._path = log.path(tail.segment_base)
        self._fd = _open(self._path)
        self._kept_bytes = self._size_bytes

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> list[int]:
        """Append one record per batch, as brokers do; durable after `commit`, removed by `roll_back`.

        `keep` ends the append: a later `roll_back` leaves its records.
        """
        offsets = list(range(self._next_offset, self._next_offset + len(values)))
        batches = b"".join(
            encode_batch([Record(offset, timestamp_ms, None, value)], partition_leader_epoch=self._epoch)
            for offset, value in zip(offsets, values, strict=True)
        )
        if self._size_bytes and self._size_bytes + len(batches) > self._segment_bytes:
            self._roll()
        drop_indexes(self._path, fs=self._fs)
        os.lseek(self._fd, self._size_bytes, os.SEEK_SET)
        self._fs.write(self._fd, batches, self._path)
        self._size_bytes += len(batches)
        self._next_offset += len(values)
        return offsets

    def commit(self) -> None:
        """Write the appended bytes to the disk; only then the records count."""
        self._fs.sync(self._fd, self._path)

    def keep(self) -> None:
        """Note that all partitions of the append are committed."""
        self._kept_bytes = self._size_bytes

    def roll_back(self) -> None:
        """Try to remove what was appended since `keep`; afterwards the writer may only be closed.

        If this fails, the bytes remain as an unfinished write, or as records although `append` reported a
        failure.
        """
        with suppress(OSError):
            os.ftruncate(self._fd, self._kept_bytes)
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the segment's file."""
        os.close(self._fd)

    def _latest_epoch(self) -> int:
        """Return the partition leader epoch for new batches; start epoch 0 in a log without epochs."""
        path = self._log.folder / LEADER_EPOCHS_FILE
        entries = read_decoded(path, read_leader_epoch_checkpoint)
        if not entries:
            first = EpochEntry(0, self._log.end_offset())
            write_durably(path, [write_leader_epoch_checkpoint([first])], fs=self._fs)
            return 0
        return entries[-1].epoch

    def _recovered(self, tail: Tail) -> Tail:
        if tail.damage is not None:
            tail.damage.hint = "restore this metadata partition from a replica before writing to it"
            raise tail.damage
        if not self._log.segments():
            base = self._log.beginning_offset()
            self._new_segment(base)
            return Tail(base, 0, base)
        if tail.torn_bytes:
            _cut_off(self._log.path(tail.segment_base), tail.position, fs=self._fs)
        return tail

    def _new_segment(self, base: int) -> Path:
        path = self._log.path(base)
        write_durably(path, [], fs=self._fs)
        return path

    def _roll(self) -> None:
        path = self._new_segment(self._next_offset)
        # Opened before the other is closed: if that fails, `roll_back` must not cut a file of another thread,
        # which may have the number of a closed descriptor.
        fd = _open(path)
        os.close(self._fd)
        self._fd, self._path = fd, path
        self._size_bytes = self._kept_bytes = 0


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def _cut_off(path: Path, size_bytes: int, *, fs: FileSystem, keeps: bool = True) -> None:
    """Truncate a segment's log file to `size_bytes`; `keeps` the bytes after it in a `.bak` file like it.

    Raise SafetyRefusal for a link, and OSError.
    """
    if path.stat().st_size <= size_bytes:
        return
    with open_itself(path) as file:
        has_rest = keeps and not is_zero_from(file, size_bytes)
        rest = file.read(size_bytes, file.size_bytes - size_bytes).rstrip(b"\x00") if has_rest else b""
    # A broker that crashed may have indexed the bytes that are truncated here.
    drop_indexes(path, fs=fs)
    if rest:
        names = backups(path.with_name(f"{path.name}.{size_bytes}"))
        kept = next(
            each for each in names if not exists(each, follow_symlinks=False) or _has_bytes(each, rest)
        )
        write_durably(kept, [rest], like=path, fs=fs)
    fd = _open(path)
    try:
        fs.truncate(fd, size_bytes, path)
        fs.sync(fd, path)
    finally:
        os.close(fd)


def _has_bytes(path: Path, data: bytes) -> bool:
    """Return whether a file has these bytes, as one that a killed run made."""
    return is_file(path) and read_regular(path) == data


def _set_aside(log: PartitionLog, *, fs: FileSystem) -> None:
    """End the log at its limit; keep what follows in `.bak` files, which brokers ignore. Raises OSError.

    What precedes the damage stays as it is, so that a run after a crash finds the same end.
    """
    limit, log.limit = log.limit, None
    if limit is None:
        return
    # The newest first: what is left is damaged until all of it is set aside.
    for base in reversed(log.segments()):
        path = log.path(base)
        if base > limit.segment_base:
            drop_indexes(path, fs=fs)
            fs.rename(path, backup_of(path))
            fs.sync_folder(path.parent)
        elif base == limit.segment_base:
            _cut_off(path, limit.position, fs=fs)


CHECKPOINTS = (LOG_STARTS_FILE, RECOVERY_POINTS_FILE, HIGH_WATERMARKS_FILE)


def drop_stale_entries(folder: Path, end_offsets: Mapping[int, int], *, fs: FileSystem) -> None:
    """Remove the entries of metadata partitions that are above `end_offsets`; keep the old file as `.bak`.

    Raises OSError, and CorruptInputError for a damaged checkpoint.
    """
    for name in CHECKPOINTS:
        path = folder / name
        offsets = read_decoded(path, read_offset_checkpoint) or {}
        kept = {
            key: offset
            for key, offset in offsets.items()
            if key.topic != METADATA_TOPIC or offset <= end_offsets.get(key.partition, offset)
        }
        if len(kept) < len(offsets):
            replace_durably(path, write_offset_checkpoint(kept), backup=True, fs=fs)


_CHUNK_BYTES = 1 << 20


class Replicas:
    """The replicas of a topic in the log directories `folder` and `others`.

    The caller keeps brokers and other writers away from all of them. Unfinished writes at the ends of logs
    (`PartitionLog.tail`) are neither compared nor copied.
    """

    def __init__(
        self, folder: Path, others: Sequence[Path], damaged: Mapping[Path, Tail], *, fs: FileSystem
    ) -> None:
        self._fs = fs
        self._damaged = damaged
        resolved = dict.fromkeys(other.resolve() for other in others)
        self.others = [other for other in resolved if other != folder.resolve() and is_dir(other)]
        self._folders = [folder, *self.others]

    def require_behind(self, logs: Iterable[PartitionLog]) -> None:
        """Raise SafetyRefusal if a replica has bytes that its log among `logs` lacks."""
        for log, replica in self._found(logs):
            for base in replica.segments():
                own, other = log.path(base), replica.path(base)
                size_bytes = _valid_bytes(replica, base)
                if size_bytes and not _begins_with(own, other, size_bytes):
                    raise SafetyRefusal(
                        f"{other} is not a prefix of {own}: the replicas of a metadata partition differ",
                        hint="find out which is right, from the logs of its brokers; a replica that differs "
                        "must be emptied (its folder keeps partition.metadata), so that it is copied",
                    )

    def begin(self, logs: Sequence[PartitionLog]) -> None:
        """Cut unfinished writes and damage off every replica, and give it what an interrupted run did not.

        Raises OSError.
        """
        for log, replica in self._found(logs):
            _set_aside(replica, fs=self._fs)
            for base in replica.segments():
                size_bytes = min(_valid_bytes(replica, base), _valid_bytes(log, base))
                _cut_off(replica.path(base), size_bytes, fs=self._fs, keeps=False)
        self._damaged = {}
        self.bring_up(logs)
        ends = {log.partition: log.end_offset() for log in logs}
        for folder in self._folders:
            drop_stale_entries(folder, ends, fs=self._fs)

    def bring_up(self, logs: Iterable[PartitionLog]) -> None:
        """Give every replica the bytes that it lacks, durably; raise OSError.

        Its indexes are removed, since a broker builds them from the log.
        """
        for log, replica in self._found(logs):
            for base in log.segments():
                self._complete(log.path(base), replica.path(base), _valid_bytes(log, base))
            epochs = log.folder / LEADER_EPOCHS_FILE
            if is_file(epochs):
                with open_itself(epochs) as file:
                    write_durably(replica.folder / LEADER_EPOCHS_FILE, file.chunks(), fs=self._fs)

    def _found(self, logs: Iterable[PartitionLog]) -> Iterator[tuple[PartitionLog, PartitionLog]]:
        """Yield each of `logs` with each of its replicas."""
        for log in logs:
            own = log.folder.resolve()
            for other in self._folders:
                folder = other / f"{METADATA_TOPIC}-{log.partition}"
                if is_dir(folder) and folder.resolve() != own:
                    limit = self._damaged.get(folder.resolve())
                    yield log, PartitionLog(folder, log.partition, limit=limit)

    def _complete(self, source: Path, target: Path, end_bytes: int) -> None:
        """Append the bytes of `source` up to `end_bytes` that `target`, a prefix of them, lacks."""
        size_bytes = target.stat().st_size if exists(target) else 0
        if exists(target) and size_bytes >= end_bytes:
            return
        with open_itself(source) as file:
            drop_indexes(target, fs=self._fs)
            if not exists(target):
                write_durably(target, [], fs=self._fs)
            fd = _open(target)
            try:
                os.lseek(fd, size_bytes, os.SEEK_SET)
                for at in range(size_bytes, end_bytes, _CHUNK_BYTES):
                    self._fs.write(fd, file.read(at, min(_CHUNK_BYTES, end_bytes - at)), target)
                self._fs.sync(fd, target)
            finally:
                os.close(fd)


def _valid_bytes(log: PartitionLog, segment_base: int) -> int:
    """Return the size of a segment without an unfinished write at its end; 0 for a missing segment.

    Damaged bytes at the end of the log count: an append after them is refused.
    """
    tail = log.tail()
    if segment_base == tail.segment_base and tail.torn_bytes and tail.damage is None:
        return tail.position
    path = log.path(segment_base)
    return path.stat().st_size if exists(path) else 0


def _begins_with(whole: Path, part: Path, size_bytes: int) -> bool:
    """Return whether the files `whole` and `part` have the same first `size_bytes` bytes."""
    if not is_file(whole) or whole.stat().st_size < size_bytes:
        return False
    with closing(FileBytes(whole)) as own, closing(FileBytes(part)) as other:
        spans = [(at, min(_CHUNK_BYTES, size_bytes - at)) for at in range(0, size_bytes, _CHUNK_BYTES)]
        return all(own.read(*span) == other.read(*span) for span in spans)


LOCK = ".tierctl-metadata.lock"
_BROKER_HINT = (
    "write a running broker's metadata topic through the broker (--metadata kafka://host:port), or stop the "
    "broker; no option overrides this check"
)
_REPLICA_HINT = (
    "replicas of the metadata topic in this directory are written: stop the broker, or leave the directory "
    "out; no option overrides this check"
)
SEGMENT_BYTES_DEFAULT = 1 << 30


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _random_id() -> Uuid:
    return Uuid.from_bytes(os.urandom(16))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlacement:
    """The log directories of a topic that exists: `homes` has one for each partition, from 0 on.

    A partition's log is read and written in its home, and copied from there to its other replicas. The first
    append makes the partitions `missing`, which have no folder or no topic id in it, by log directory; they
    get the id `topic_id`.
    """

    homes: Mapping[int, Path]
    topic_id: Uuid | None = None
    missing: Mapping[Path, Sequence[int]] = field(default_factory=dict)
    damaged: Mapping[Path, Tail] = field(default_factory=dict)
    """The ends of logs before damage or missing offsets, by the folder's resolved path.

    The first append sets aside what follows these ends.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSettings:
    """Settings for writing a topic in a folder.

    A missing topic gets `partition_count` partitions and the id that `new_topic_id` returns. Records get the
    time of `clock_ms`.
    """

    partition_count: int = DEFAULT_METADATA_PARTITIONS
    placement: TopicPlacement | None = None
    """Where the partitions of an existing topic are; None: as many in the folder as there are there."""
    remakes_lost: bool = False
    """Whether the command publishes lost events again, so that it may make a lost partition."""
    has_other_hosts: bool = False
    """Whether a saved plan gives the same bytes to replicas on other hosts."""
    leader_epochs: Mapping[int, Sequence[EpochEntry]] = field(default_factory=dict)
    """The leader-epoch checkpoints that partitions get before the first append, as on other hosts."""
    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    clock_ms: Callable[[], int] = _now_ms
    new_topic_id: Callable[[], Uuid] = _random_id
    replicas: Sequence[Path] = ()
    """Log directories whose replicas of the topic get the same bytes; no other process may write to them."""
    fs: FileSystem = PLAIN


class FolderWriter:
    """Append to the partitions of a topic in `folder`; hold the folder's locks until `close`.

    The locks are tierctl's own and, if a broker left one, the broker's; the log directories of replicas are
    locked likewise. Raises LockedError if another tierctl writes there, SafetyRefusal if a broker runs there,
    MetadataError if the disk fails.
    """

    def __init__(self, folder: Path, settings: FolderSettings) -> None:
        self._settings = settings
        self._folder = folder
        self._has_begun = False
        damaged = {} if settings.placement is None else settings.placement.damaged
        self._replicas = Replicas(folder, settings.replicas, damaged, fs=settings.fs)
        self._writers: dict[int, PartitionWriter] = {}
        with ExitStack() as held, translated(f"opening {folder}"):
            settings.fs.make_folder(folder)
            held.enter_context(exclusive(folder, LOCK))
            held.enter_context(broker_kept_out(folder, hint=_BROKER_HINT))
            for other in self._replicas.others:
                held.enter_context(broker_kept_out(other, hint=_REPLICA_HINT))
                held.enter_context(exclusive(other, LOCK))
            self._held = held.pop_all()

    def require_behind(self, logs: Mapping[int, PartitionLog]) -> None:
        """Raise SafetyRefusal if a replica has records that `logs` do not have; change nothing."""
        self._replicas.require_behind(logs.values())

    def append(self, logs: Mapping[int, PartitionLog], records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs to `logs`, durably; return their offsets. Raises OSError.

        The first call, even without records, also gives the replicas what an interrupted run did not. After a
        failure none of the records is in a log, unless only a replica could not be written.
        """
        if not self._has_begun:
            self._make_missing()
            for log in logs.values():
                _set_aside(log, fs=self._settings.fs)
            self._write_epochs(logs)
            self._replicas.begin(list(logs.values()))
            self._has_begun = True
        values: dict[int, list[bytes]] = {}
        for partition, value in records:
            values.setdefault(partition, []).append(value)
        offsets = self._append(logs, values)
        next_of = {partition: iter(found) for partition, found in offsets.items()}
        return [next(next_of[partition]) for partition, _ in records]

    def _make_missing(self) -> None:
        settings, placement = self._settings, self._settings.placement
        if placement is None:
            return
        topic_id = placement.topic_id or settings.new_topic_id()
        for folder, numbers in placement.missing.items():
            make_partitions(folder, numbers, topic_id, fs=settings.fs)

    def _write_epochs(self, logs: Mapping[int, PartitionLog]) -> None:
        """Write the stated leader-epoch checkpoints that differ, and the first segment of an empty log."""
        fs = self._settings.fs
        for number, entries in self._settings.leader_epochs.items():
            log, data = logs[number], write_leader_epoch_checkpoint(entries)
            path = log.folder / LEADER_EPOCHS_FILE
            if not is_file(path) or read_regular(path) != data:
                write_durably(path, [data], fs=fs)
            if not log.segments():
                write_durably(log.path(log.beginning_offset()), [], fs=fs)

    def _append(
        self, logs: Mapping[int, PartitionLog], values: Mapping[int, Sequence[bytes]]
    ) -> dict[int, list[int]]:
        timestamp_ms = self._settings.clock_ms()
        offsets: dict[int, list[int]] = {}
        done = False
        try:
            for partition, own_values in values.items():
                offsets[partition] = self._writer(logs[partition]).append(own_values, timestamp_ms)
            writers = [self._writers[partition] for partition in values]
            for writer in writers:
                writer.commit()
            for writer in writers:
                writer.keep()
            done = True
            # While the flag is False, the next append first brings all replicas to the same end: needed if
            # `bring_up` fails.
            self._has_begun = False
            self._replicas.bring_up(logs[partition] for partition in values)
            self._has_begun = True
        finally:
            if not done:
                self._roll_back(values)
        return offsets

    def _roll_back(self, partitions: Iterable[int]) -> None:
        # The next append opens these logs again and reads their real ends.
        for writer in [self._writers.pop(partition, None) for partition in partitions]:
            if writer is not None:
                writer.roll_back()
                writer.close()

    def _writer(self, log: PartitionLog) -> PartitionWriter:
        if log.partition not in self._writers:
            settings = self._settings
            self._writers[log.partition] = PartitionWriter(
                log, segment_bytes=settings.segment_bytes, fs=settings.fs
            )
        return self._writers[log.partition]

    def close(self) -> None:
        """Close the segments and release the locks."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._held.close()
