"""Reads the batches of a metadata partition as one sequence of bytes, to compare them with another host's.

Replicas have the same batches, but may roll their segments at different offsets.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tierctl.files import FileBytes, read_regular
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.folder import logs_in
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.model import EpochEntry
from tierctl.plan.rebuild.hosts import PartitionBase
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint

_CHUNK_BYTES = 1 << 20


class LogContent:
    """The valid batches of a partition, in the order of offsets, without an unfinished write at the end.

    Raises the damage of a log whose last bytes are neither.
    """

    def __init__(self, log: PartitionLog, held: ExitStack) -> None:
        tail = log.tail()
        if tail.damage is not None:
            raise tail.damage
        self.begin_offset = log.beginning_offset()
        self.end_offset = log.end_offset()
        self.size_bytes = 0
        self._starts: list[int] = []
        self._files: list[FileBytes] = []
        self._folder = log.folder
        for base in log.segments():
            file = held.enter_context(FileBytes(log.path(base)))
            self._starts.append(self.size_bytes)
            self._files.append(file)
            self.size_bytes += tail.position if base == tail.segment_base else file.size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes of one segment from `position` on; fewer than `size_bytes` at the segment's end."""
        at = bisect_right(self._starts, position) - 1
        if at < 0:
            return b""
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.size_bytes
        return self._files[at].read(position - self._starts[at], min(size_bytes, end - position))

    def digest(self, size_bytes: int) -> Any:
        """Return SHA-256 of the first `size_bytes` bytes, as an object that takes more bytes."""
        found, position = hashlib.sha256(), 0
        while position < size_bytes:
            data = self.read(position, min(_CHUNK_BYTES, size_bytes - position))
            if not data:
                break
            found.update(data)
            position += len(data)
        return found

    def base(self) -> PartitionBase:
        """Return what a plan states about the partition as it is now."""
        path = self._folder / LEADER_EPOCHS_FILE
        entries = read_leader_epoch_checkpoint(read_regular(path)) if path.is_file() else ()
        return PartitionBase(
            begin_offset=self.begin_offset,
            end_offset=self.end_offset,
            size_bytes=self.size_bytes,
            sha256=self.digest(self.size_bytes).hexdigest(),
            leader_epochs=entries or (EpochEntry(0, self.end_offset),),
        )


@contextmanager
def opened_contents(folder: Path, count: int) -> Iterator[Mapping[int, LogContent]]:
    """Open the `count` partitions of the topic in `folder` by number; one without a folder is empty."""
    with ExitStack() as held, translated(f"reading {folder}"):
        yield {number: LogContent(log, held) for number, log in logs_in(folder, count).items()}
