"""`__remote_log_metadata` in a folder, wherever that is: read only, and with whatever partitions it has."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tierctl.errors import MetadataError, NotFoundError
from tierctl.metadata.base import METADATA_TOPIC
from tierctl.metadata.topic.disk_errors import translated
from tierctl.metadata.topic.files import LOCAL, LogFiles
from tierctl.metadata.topic.local_log import log_starts_in, partition_folder, partitions_in, topic_id_in
from tierctl.metadata.topic.partition_log import PartitionLog
from tierctl.model import Uuid
from tierctl.wire.batches.chunks import RecordChunk


class MetadataLogReader:
    """MetadataTopic over a folder, or a copy of one, that need not have every partition and may get more.

    `partition_count` is the highest number and one. Raises NotFoundError when there is no partition,
    CorruptInputError for a checkpoint that can't be read, MetadataError, or what `files` does.
    """

    def __init__(self, folder: Path, files: LogFiles = LOCAL) -> None:
        self._folder = folder
        self._files = files
        self._logs: dict[int, PartitionLog] = {}
        self._look()

    @property
    def partition_count(self) -> int:
        """MetadataTopic.partition_count."""
        return max(self._logs) + 1

    @property
    def topic_id(self) -> Uuid | None:
        """MetadataTopic.topic_id."""
        with translated(f"reading {self._folder}"):
            return topic_id_in(self._folder, self._logs, self._files)

    def beginning_offsets(self) -> dict[int, int]:
        """MetadataTopic.beginning_offsets, of the partitions that `end_offsets` found."""
        with translated(f"reading {self._folder}"):
            return {number: log.beginning_offset() for number, log in self._logs.items()}

    def end_offsets(self) -> dict[int, int]:
        """MetadataTopic.end_offsets, of all partitions that are there now."""
        self._look()
        with translated(f"reading {self._folder}"):
            return {number: log.end_offset() for number, log in self._logs.items()}

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """MetadataTopic.offsets_for_time, by time indexes where there are any."""
        with translated(f"reading {self._folder}"):
            return {number: self._logs[number].offset_for_time(timestamp_ms) for number in partitions}

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """MetadataTopic.read."""
        with translated(f"reading {self._logs[partition].folder}"):
            yield from self._logs[partition].read(start_offset, end_offset)

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """MetadataTopic.append: never."""
        raise MetadataError(f"{self._folder} was opened for reading only, not for {len(records)} records")

    def close(self) -> None:
        """MetadataTopic.close; nothing stays open."""

    def _look(self) -> None:
        """Find the partitions; what is known of those that stay is kept."""
        with translated(f"reading {self._folder}"):
            numbers = partitions_in(self._folder, self._files)
            starts = log_starts_in(self._folder, self._files)
        if not numbers:
            raise NotFoundError(
                f"{self._folder} has no {METADATA_TOPIC}-N", hint="expected what a broker's log directory has"
            )
        known = self._logs
        self._logs = {number: known.get(number) or self._log(number) for number in numbers}
        for number, log in self._logs.items():
            log.log_start_offset = starts.get(number, 0)

    def _log(self, number: int) -> PartitionLog:
        return PartitionLog(partition_folder(self._folder, number), number, files=self._files)
