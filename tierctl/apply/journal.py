"""The files of a run in the state directory: raised log start offsets, and offsets processed by `delete`."""

from collections.abc import Mapping
from pathlib import Path

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, replace_durably
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.wire.files import committed_offsets
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

LOG_STARTS = "log-start-offset-checkpoint"
"""Kafka's offset checkpoint format, but with topic ids as names: a topic's name may be used again."""

PROCESSED_OFFSETS = "_rprm_committed_offsets"
"""The last offset of each metadata partition that `delete` processed; format as `_rlmm_committed_offsets`."""

_Key = tuple[Uuid, int]


class Journal:
    """Reads and writes these files; the caller holds the lock of the state directory. Raises OSError."""

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def log_starts(self) -> dict[_Key, int]:
        """Return the log start offsets raised so far; raise CorruptInputError if the file does not parse."""
        path = self._folder / LOG_STARTS
        try:
            found = read_offset_checkpoint(path.read_bytes())
        except FileNotFoundError:
            return {}
        except CorruptInputError as e:
            raise e.within(str(path)) from None
        try:
            return {(Uuid.parse(key.topic), key.partition): offset for key, offset in found.items()}
        except UsageError as e:
            raise CorruptInputError(
                "log start offsets", expected="topic ids", found=e.message, source=str(path)
            ) from None

    def raise_log_starts(self, starts: Mapping[TopicIdPartition, int]) -> None:
        """Store each log start offset in `starts` that is above the stored one; durable on return."""
        kept = self.log_starts()
        raised = {
            partition.key: offset
            for partition, offset in starts.items()
            if offset > kept.get(partition.key, -1)
        }
        if raised:
            merged = sorted((kept | raised).items())
            by_id = {TopicPartition(topic_id, partition): offset for (topic_id, partition), offset in merged}
            data = write_offset_checkpoint(by_id)
            replace_durably(self._folder / LOG_STARTS, data, backup=True, fs=self._fs)

    def commit_processed(self, next_offsets: Mapping[int, int]) -> None:
        """Store how far `delete` has processed each metadata partition.

        `next_offsets` maps a metadata partition to the first offset that is not yet processed.
        """
        last = {partition: offset - 1 for partition, offset in sorted(next_offsets.items()) if offset > 0}
        data = committed_offsets.write(last)
        replace_durably(self._folder / PROCESSED_OFFSETS, data, backup=True, fs=self._fs)
