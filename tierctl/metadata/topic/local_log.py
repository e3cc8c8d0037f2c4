"""`__remote_log_metadata` in a folder: made here, or a stopped broker's own log directory.

file:///dir/__remote_log_metadata-0/00000000000000000000.log
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tierctl.errors import CorruptInputError, MetadataError, NotFoundError
from tierctl.files import PLAIN, FileSystem, broker_kept_out, exclusive
from tierctl.metadata.base import DEFAULT_METADATA_PARTITIONS, METADATA_TOPIC
from tierctl.metadata.topic.creation import PARTITION_METADATA, make_topic
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.files import LOCAL, LogFiles
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.metadata.topic.partition_writer import PartitionWriter
from tierctl.model import Uuid
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.files.checkpoints import read_offset_checkpoint, read_partition_metadata

LOCK = ".tierctl-metadata.lock"
SEGMENT_BYTES_DEFAULT = 1 << 30

_FOLDER = re.compile(re.escape(METADATA_TOPIC) + r"-(0|[1-9]\d{0,8})\Z")
_LOG_STARTS = "log-start-offset-checkpoint"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MetadataLogOnDisk:
    """MetadataTopic over a folder.

    A folder without metadata partitions reads as an empty topic of `partition_count` partitions; opened
    `writable` they are made. The writer is alone: it holds our lock and, where a broker left one, the
    broker's. Raises LockedError, SafetyRefusal (a broker is running there), CorruptInputError (a
    partition's folder is missing: the count decides where events go), MetadataError.
    `on_torn` is told, each time that ends are looked at, of a log that ends in an unfinished write.
    """

    def __init__(
        self,
        folder: Path,
        *,
        writable: bool = False,
        partition_count: int = DEFAULT_METADATA_PARTITIONS,
        segment_bytes: int = SEGMENT_BYTES_DEFAULT,
        clock_ms: Callable[[], int] = _now_ms,
        on_torn: Callable[[str], None] | None = None,
        new_topic_id: Callable[[], Uuid] = lambda: Uuid.from_bytes(os.urandom(16)),
        fs: FileSystem = PLAIN,
    ) -> None:
        self._folder = folder
        self._writable = writable
        self._segment_bytes = segment_bytes
        self._clock_ms = clock_ms
        self._fs = fs
        self._on_torn = on_torn
        self._writers: dict[int, PartitionWriter] = {}
        with ExitStack() as held, translated(f"opening {folder}"):
            if writable:
                fs.make_folder(folder)
                held.enter_context(exclusive(folder, LOCK))
                held.enter_context(broker_kept_out(folder))
                make_topic(folder, partitions_in(folder), partition_count, new_topic_id, fs=fs)
            numbers = _contiguous(folder, partitions_in(folder))
            starts = log_starts_in(folder)
            self._logs = [
                PartitionLog(partition_folder(folder, n), n, log_start_offset=starts.get(n, 0))
                for n in numbers
            ]
            self._held = held.pop_all()
        self._partition_count = len(self._logs) or partition_count

    @property
    def partition_count(self) -> int:
        """MetadataTopic.partition_count."""
        return self._partition_count

    @property
    def exists(self) -> bool:
        """Whether the folder has metadata partitions, or only reads as an empty topic."""
        return bool(self._logs)

    @property
    def topic_id(self) -> Uuid | None:
        """MetadataTopic.topic_id, from `partition.metadata`."""
        return topic_id_in(self._folder, range(len(self._logs)))

    def beginning_offsets(self) -> dict[int, int]:
        """MetadataTopic.beginning_offsets."""
        with translated(f"reading {self._folder}"):
            found = {log.partition: log.beginning_offset() for log in self._logs}
        return found or dict.fromkeys(range(self._partition_count), 0)

    def end_offsets(self) -> dict[int, int]:
        """MetadataTopic.end_offsets; what was scanned before is not scanned again."""
        with translated(f"reading {self._folder}"):
            found = {log.partition: log.end_offset() for log in self._logs}
            self._tell_torn()
        return found or dict.fromkeys(range(self._partition_count), 0)

    def _tell_torn(self) -> None:
        if self._on_torn is None:
            return
        for log in self._logs:
            note = log.torn_note()
            if note is not None:
                self._on_torn(note)

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """MetadataTopic.offsets_for_time, by time indexes where there are any."""
        with translated(f"reading {self._folder}"):
            asked = (log for log in self._logs if log.partition in partitions)
            return {log.partition: log.offset_for_time(timestamp_ms) for log in asked}

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """MetadataTopic.read."""
        if self._logs:
            with translated(f"reading {self._logs[partition].folder}"):
                yield from self._logs[partition].read(start_offset, end_offset)

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """MetadataTopic.append; on failure none of the records counts."""
        if not self._writable:
            raise MetadataError(f"{self._folder} was opened for reading only")
        values: dict[int, list[bytes]] = {}
        for partition, value in records:
            values.setdefault(partition, []).append(value)
        with translated(f"appending to {self._folder}"):
            offsets = self._append(values)
        taken = {partition: iter(found) for partition, found in offsets.items()}
        return [next(taken[partition]) for partition, _ in records]

    def _append(self, values: dict[int, list[bytes]]) -> dict[int, list[int]]:
        timestamp_ms = self._clock_ms()
        offsets: dict[int, list[int]] = {}
        done = False
        try:
            for partition, mine in values.items():
                offsets[partition] = self._writer(partition).append(mine, timestamp_ms)
            for partition in values:
                self._writers[partition].commit()
            done = True
        finally:
            if not done:
                self._take_back(values)
        return offsets

    def _take_back(self, partitions: Iterable[int]) -> None:
        # The next append opens these logs anew and looks at what is really there.
        for writer in [self._writers.pop(partition, None) for partition in partitions]:
            if writer is not None:
                writer.roll_back()
                writer.close()

    def _writer(self, partition: int) -> PartitionWriter:
        if partition not in self._writers:
            self._writers[partition] = PartitionWriter(
                self._logs[partition], segment_bytes=self._segment_bytes, fs=self._fs
            )
        return self._writers[partition]

    def close(self) -> None:
        """MetadataTopic.close."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._held.close()


def partition_folder(folder: Path, partition: int) -> Path:
    """Where a metadata partition's files are."""
    return folder / f"{METADATA_TOPIC}-{partition}"


def partitions_in(folder: Path, files: LogFiles = LOCAL) -> list[int]:
    """Numbers of the metadata partitions in a folder, ascending; empty when there is no such folder."""
    matches = map(_FOLDER.match, files.folders(folder))
    return sorted(int(match[1]) for match in matches if match)


def require_topic(folder: Path) -> None:
    """NotFoundError when the folder has no metadata topic.

    One that is mistyped or not mounted must not pass for a tier of which nothing is known.
    """
    if not partitions_in(folder):
        raise NotFoundError(
            f"{folder} has no metadata topic",
            hint="expected a folder with __remote_log_metadata-N folders in it; copy makes a new one",
        )


def _contiguous(folder: Path, numbers: list[int]) -> list[int]:
    missing = sorted(set(range(len(numbers))) - set(numbers))
    if missing:
        raise CorruptInputError(
            f"metadata topic in {folder}",
            expected=f"{METADATA_TOPIC}-0 to -{numbers[-1]}",
            found=f"none numbered {missing[0]}",
            hint="their number decides where events are: bring all partitions together in one folder",
        )
    return numbers


def log_starts_in(folder: Path, files: LogFiles = LOCAL) -> dict[int, int]:
    """What `log-start-offset-checkpoint` says; CorruptInputError when it can't be read."""
    path = folder / _LOG_STARTS
    data = files.content(path)
    if data is None:
        return {}
    try:
        offsets = read_offset_checkpoint(data)
    except CorruptInputError as e:
        raise e.within(str(path)) from None
    return {key.partition: offset for key, offset in offsets.items() if key.topic == METADATA_TOPIC}


def topic_id_in(folder: Path, numbers: Iterable[int], files: LogFiles = LOCAL) -> Uuid | None:
    """The topic's id as the first of its partitions that has one says; CorruptInputError."""
    for number in numbers:
        data = files.content(partition_folder(folder, number) / PARTITION_METADATA)
        if data is not None:
            return read_partition_metadata(data)
    return None
