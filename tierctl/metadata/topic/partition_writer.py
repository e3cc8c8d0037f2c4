"""Appends to one `__remote_log_metadata-N` folder so that a broker can load it afterwards.

A segment loses its `.index` and `.timeindex` before the first append. A broker that loads the segment
rebuilds both from the log, and logs at ERROR "Could not find offset index file corresponding to log file"
(LogLoader.loadSegmentFiles, LogSegment.recover).
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.files import FileSystem, read_regular, replace_durably, write_durably
from tierctl.metadata.topic.partition_log import PartitionLog, Tail
from tierctl.model import EpochEntry
from tierctl.wire.batches.record_batch import Record, encode_batch
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)


def drop_indexes(log: Path, *, fs: FileSystem) -> None:
    """Remove the indexes of a segment's log file, durably, before the file is changed. Raises OSError.

    The offset index is removed first: a broker rebuilds both if it is missing.
    """
    for suffix in (".index", ".timeindex"):
        stale = log.with_suffix(suffix)
        if stale.exists():
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
        self._fd = self._open(self._path)
        self._durable_bytes = self._size_bytes

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> list[int]:
        """Append one record per batch, as brokers do; durable after `commit`, removed by `roll_back`."""
        offsets = list(range(self._next_offset, self._next_offset + len(values)))
        batches = b"".join(
            encode_batch([Record(offset, timestamp_ms, None, value)], partition_leader_epoch=self._epoch)
            for offset, value in zip(offsets, values, strict=True)
        )
        if self._size_bytes and self._size_bytes + len(batches) > self._segment_bytes:
            self._roll()
        drop_indexes(self._path, fs=self._fs)
        self._durable_bytes = self._size_bytes
        os.lseek(self._fd, self._size_bytes, os.SEEK_SET)
        self._fs.write(self._fd, batches, self._path)
        self._size_bytes += len(batches)
        self._next_offset += len(values)
        return offsets

    def commit(self) -> None:
        """Write the appended bytes to the disk; only then the records count."""
        self._fs.sync(self._fd, self._path)

    def roll_back(self) -> None:
        """Try to remove the bytes of the last append; afterwards the writer may only be closed.

        If this fails, the bytes remain as an unfinished write, or as records although `append` reported a
        failure.
        """
        with suppress(OSError):
            os.ftruncate(self._fd, self._durable_bytes)
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the segment's file."""
        os.close(self._fd)

    def _latest_epoch(self) -> int:
        """Return the partition leader epoch for new batches; start epoch 0 in a log without epochs."""
        path = self._log.folder / LEADER_EPOCHS_FILE
        try:
            entries = read_leader_epoch_checkpoint(read_regular(path))
        except FileNotFoundError:
            entries = ()
        except CorruptInputError as e:
            raise e.within(str(path)) from None
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
            self._cut(tail)
        return tail

    def _cut(self, tail: Tail) -> None:
        path = self._log.path(tail.segment_base)
        fd = self._open(path)
        try:
            # A broker that crashed may have indexed the bytes that are truncated here.
            drop_indexes(path, fs=self._fs)
            torn = os.pread(fd, tail.torn_bytes, tail.position).rstrip(b"\x00")
            if torn:
                replace_durably(path.with_name(f"{path.name}.{tail.position}.bak"), torn, fs=self._fs)
            self._fs.truncate(fd, tail.position, path)
            self._fs.sync(fd, path)
        finally:
            os.close(fd)

    def _open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _new_segment(self, base: int) -> Path:
        path = self._log.path(base)
        write_durably(path, [], fs=self._fs)
        return path

    def _roll(self) -> None:
        path = self._new_segment(self._next_offset)
        os.close(self._fd)
        self._fd, self._path = self._open(path), path
        self._size_bytes = self._durable_bytes = 0
