"""What a run leaves in the state directory beside the caches: raised log starts, and a remover's progress."""

from collections.abc import Mapping
from pathlib import Path

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, replace_durably
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.wire.files import committed_offsets
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

LOG_STARTS = "log-start-offset-checkpoint"
"""Kafka's offset checkpoint, with topic ids where a broker writes names: a name may be used again."""

PROCESSED_OFFSETS = "_rprm_committed_offsets"
"""As `_rlmm_committed_offsets`: the last offset of each metadata partition a remover is done with."""

_Key = tuple[Uuid, int]


class Journal:
    """Files in a state directory that somebody else has locked. Raises OSError."""

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def log_starts(self) -> dict[_Key, int]:
        """The log starts raised so far; CorruptInputError when the file is none."""
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
        """Keep each partition's log start, unless a higher one is kept already; durable when it returns."""
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
        """Keep how far a remover has come: `next_offsets` are what it has to look at next."""
        last = {partition: offset - 1 for partition, offset in sorted(next_offsets.items()) if offset > 0}
        data = committed_offsets.write(last)
        replace_durably(self._folder / PROCESSED_OFFSETS, data, backup=True, fs=self._fs)
