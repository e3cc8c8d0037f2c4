"""Keeps the replicas of a metadata log in other log directories equal to the log that is written.

Stopped brokers have replicas of the same partitions. A follower copies missing records from its leader, but
any of the brokers may become the leader at the next start: all of them need the same bytes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from tierctl.errors import SafetyRefusal
from tierctl.files import FileBytes, FileSystem, read_regular, write_durably
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.metadata.topic.partition_writer import drop_indexes
from tierctl.metadata.topic.stale_checkpoints import drop_stale_entries
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE

_CHUNK_BYTES = 1 << 20


class Replicas:
    """The replicas of the topic in `folder` that are in the log directories `others`.

    The caller keeps brokers and other writers away from all of them. Unfinished writes at the ends of logs
    (`PartitionLog.tail`) are neither compared nor copied.
    """

    def __init__(self, folder: Path, others: Sequence[Path], *, fs: FileSystem) -> None:
        self._fs = fs
        resolved = dict.fromkeys(other.resolve() for other in others)
        self.folders = [other for other in resolved if other != folder.resolve() and other.is_dir()]

    def require_behind(self, logs: Iterable[PartitionLog]) -> None:
        """Raise SafetyRefusal if a replica has bytes that the log in the topic's own folder lacks."""
        for log, replica in self._found(logs):
            for base in replica.segments():
                own, other = log.path(base), replica.path(base)
                size_bytes = _valid_bytes(replica, base)
                if size_bytes and not _begins_with(own, other, size_bytes):
                    raise SafetyRefusal(
                        f"{other} is not a prefix of {own}: the replicas of a metadata partition differ",
                        hint="name the log directory with the longest logs as --metadata; a replica that "
                        "differs must be emptied, so that its broker copies it from the leader",
                    )

    def begin(self, logs: Sequence[PartitionLog]) -> None:
        """Cut unfinished writes off every replica, and give it what an interrupted run did not.

        Raises OSError.
        """
        for log, replica in self._found(logs):
            for base in replica.segments():
                self._cut(replica.path(base), min(_valid_bytes(replica, base), _valid_bytes(log, base)))
        self.bring_up(logs)
        ends = {log.partition: log.end_offset() for log in logs}
        for other in self.folders:
            drop_stale_entries(other, ends, fs=self._fs)

    def bring_up(self, logs: Iterable[PartitionLog]) -> None:
        """Give every replica the bytes that it lacks, durably; raise OSError.

        Its indexes are removed, since a broker builds them from the log.
        """
        for log, replica in self._found(logs):
            for base in log.segments():
                self._complete(log.path(base), replica.path(base), _valid_bytes(log, base))
            epochs = log.folder / LEADER_EPOCHS_FILE
            if epochs.is_file():
                write_durably(replica.folder / LEADER_EPOCHS_FILE, [read_regular(epochs)], fs=self._fs)

    def _found(self, logs: Iterable[PartitionLog]) -> Iterator[tuple[PartitionLog, PartitionLog]]:
        """Yield each of `logs` with each of its replicas."""
        for log in logs:
            for other in self.folders:
                folder = other / f"{METADATA_TOPIC}-{log.partition}"
                if folder.is_dir():
                    yield log, PartitionLog(folder, log.partition)

    def _cut(self, path: Path, size_bytes: int) -> None:
        if path.stat().st_size <= size_bytes:
            return
        drop_indexes(path, fs=self._fs)
        fd = _open(path)
        try:
            self._fs.truncate(fd, size_bytes, path)
            self._fs.sync(fd, path)
        finally:
            os.close(fd)

    def _complete(self, source: Path, target: Path, end_bytes: int) -> None:
        """Append the bytes of `source` up to `end_bytes` that `target`, a prefix of them, lacks."""
        size_bytes = target.stat().st_size if target.exists() else 0
        if target.exists() and size_bytes >= end_bytes:
            return
        drop_indexes(target, fs=self._fs)
        if not target.exists():
            write_durably(target, [], fs=self._fs)
        fd = _open(target)
        try:
            with closing(FileBytes(source)) as file:
                os.lseek(fd, size_bytes, os.SEEK_SET)
                for at in range(size_bytes, end_bytes, _CHUNK_BYTES):
                    self._fs.write(fd, file.read(at, min(_CHUNK_BYTES, end_bytes - at)), target)
            self._fs.sync(fd, target)
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def _valid_bytes(log: PartitionLog, segment_base: int) -> int:
    """Return the size of a segment without an unfinished write at its end; 0 for a missing segment.

    Damaged bytes at the end of the log count: an append after them is refused.
    """
    tail = log.tail()
    if segment_base == tail.segment_base and tail.torn_bytes and tail.damage is None:
        return tail.position
    path = log.path(segment_base)
    return path.stat().st_size if path.exists() else 0


def _begins_with(whole: Path, part: Path, size_bytes: int) -> bool:
    """Return whether the files `whole` and `part` have the same first `size_bytes` bytes."""
    if not whole.is_file() or whole.stat().st_size < size_bytes:
        return False
    with closing(FileBytes(whole)) as own, closing(FileBytes(part)) as other:
        spans = [(at, min(_CHUNK_BYTES, size_bytes - at)) for at in range(0, size_bytes, _CHUNK_BYTES)]
        return all(own.read(*span) == other.read(*span) for span in spans)
