"""The one writer of a metadata topic in a folder: its locks, and appends to several partitions at once."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.files import PLAIN, FileSystem, broker_kept_out, exclusive, read_regular, write_durably
from tierctl.metadata.topic.base import DEFAULT_METADATA_PARTITIONS
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.partition_folders import make_partitions
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.metadata.topic.partition_writer import PartitionWriter
from tierctl.metadata.topic.replicas import Replicas
from tierctl.metadata.topic.stale_checkpoints import drop_stale_entries
from tierctl.model import EpochEntry, Uuid
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE, write_leader_epoch_checkpoint

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
class FolderSettings:
    """Settings for writing a topic in a folder.

    A missing topic gets `partition_count` partitions and the id that `new_topic_id` returns. Records get the
    time of `clock_ms`.
    """

    partition_count: int = DEFAULT_METADATA_PARTITIONS
    known_count: int | None = None
    """The number of partitions that an existing topic has; None: as many as there are folders."""
    remakes_lost: bool = False
    """Whether the command publishes lost events again, so that it may make a lost partition."""
    lost: Mapping[Path, Collection[int]] = field(default_factory=dict)
    """The partitions without a folder, by log directory; the first append makes them."""
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
        self._replicas = Replicas(folder, settings.replicas, fs=settings.fs)
        self._writers: dict[int, PartitionWriter] = {}
        with ExitStack() as held, translated(f"opening {folder}"):
            settings.fs.make_folder(folder)
            held.enter_context(exclusive(folder, LOCK))
            held.enter_context(broker_kept_out(folder, hint=_BROKER_HINT))
            for other in self._replicas.folders:
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
            self._make_lost()
            self._write_epochs(logs)
            ends = {partition: log.end_offset() for partition, log in logs.items()}
            drop_stale_entries(self._folder, ends, fs=self._settings.fs)
            self._replicas.begin(list(logs.values()))
            self._has_begun = True
        values: dict[int, list[bytes]] = {}
        for partition, value in records:
            values.setdefault(partition, []).append(value)
        offsets = self._append(logs, values)
        next_of = {partition: iter(found) for partition, found in offsets.items()}
        return [next(next_of[partition]) for partition, _ in records]

    def _make_lost(self) -> None:
        for folder, numbers in self._settings.lost.items():
            make_partitions(folder, numbers, self._settings.new_topic_id(), fs=self._settings.fs)

    def _write_epochs(self, logs: Mapping[int, PartitionLog]) -> None:
        """Write the stated leader-epoch checkpoints that differ, and the first segment of an empty log."""
        fs = self._settings.fs
        for number, entries in self._settings.leader_epochs.items():
            log, data = logs[number], write_leader_epoch_checkpoint(entries)
            path = log.folder / LEADER_EPOCHS_FILE
            if not path.is_file() or read_regular(path) != data:
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
            for partition in values:
                self._writers[partition].commit()
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
