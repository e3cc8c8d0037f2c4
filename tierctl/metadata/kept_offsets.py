"""What else a state directory keeps: the remover's processed offsets, and raised log starts.

Both are replaced whole and only ever move forward, so a crash loses at most the last step, which is done
again. The caller holds the state directory's lock.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, replace_durably
from tierctl.metadata.disk_errors import translated
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.wire.checkpoints import (
    read_checkpoint_pairs,
    read_offset_checkpoint,
    write_checkpoint_pairs,
    write_offset_checkpoint,
)

K = TypeVar("K")
V = TypeVar("V")

REMOVER_OFFSETS = "_remote_partition_remover_offsets"
LOG_STARTS = "log-start-offset-checkpoint"
LOG_START_IDS = "_log_start_topic_ids"


class KeptOffsets:
    """The files of one state directory.

    Raises CorruptInputError for a damaged file, MetadataError when the disk fails.
    """

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def remover_offsets(self) -> dict[int, int]:
        """Next metadata offset the RemotePartitionRemover has to look at, by metadata partition."""
        return self._read(REMOVER_OFFSETS, lambda data: dict(read_checkpoint_pairs(data, REMOVER_OFFSETS)))

    def commit_remover_offsets(self, offsets: Mapping[int, int]) -> None:
        """Raise the processed offsets to `offsets`; durable when it returns."""
        kept = self.remover_offsets()
        merged = {p: max(offset, kept.get(p, 0)) for p, offset in sorted({**kept, **offsets}.items())}
        if merged != kept:
            self._write(REMOVER_OFFSETS, write_checkpoint_pairs(merged.items()))

    def log_start_offsets(self) -> dict[TopicIdPartition, int]:
        """Log start offsets that sweeps raised; of topics that were deleted and made anew, none."""
        offsets = self._read(LOG_STARTS, read_offset_checkpoint)
        ids = self._read(LOG_START_IDS, _read_ids)
        return {
            TopicIdPartition(ids[key], key.topic, key.partition): offset
            for key, offset in offsets.items()
            if key in ids
        }

    def raise_log_start_offsets(self, starts: Mapping[TopicIdPartition, int]) -> None:
        """Record raised log starts, never lower one; durable when it returns.

        The checkpoint knows names only, so the ids lie beside it: what a deleted topic had must not delete
        segments of one that has its name. The offsets are written first: should a crash keep the ids from
        following, a start is forgotten, not given to the wrong topic.
        """
        kept = self.log_start_offsets()
        merged = dict(kept)
        for partition, offset in starts.items():
            merged = {p: o for p, o in merged.items() if p.topic_partition != partition.topic_partition}
            merged[partition] = max(offset, kept.get(partition, 0))
        if merged == kept:
            return
        ordered = sorted(merged.items(), key=lambda item: item[0].topic_partition)
        self._write(LOG_STARTS, write_offset_checkpoint({p.topic_partition: o for p, o in ordered}))
        self._write(
            LOG_START_IDS, "".join(f"{p.topic_partition} {p.topic_id}\n" for p, _ in ordered).encode()
        )

    def _read(self, name: str, parse: Callable[[bytes], dict[K, V]]) -> dict[K, V]:
        path = self._folder / name
        try:
            with translated(f"reading {path}"):
                return parse(path.read_bytes()) if path.exists() else {}
        except CorruptInputError as e:
            raise e.within(str(path)) from None

    def _write(self, name: str, data: bytes) -> None:
        with translated(f"writing {self._folder / name}"):
            self._fs.make_folder(self._folder)
            replace_durably(self._folder / name, data, backup=True, fs=self._fs)


def _read_ids(data: bytes) -> dict[TopicPartition, Uuid]:
    """Lines `<topic>-<partition> <topic id>`."""
    ids: dict[TopicPartition, Uuid] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        name, _, topic_id = line.partition(" ")
        try:
            ids[TopicPartition.parse(name)] = Uuid.parse(topic_id)
        except UsageError as e:
            raise CorruptInputError(
                f"{LOG_START_IDS}, line {number}", expected="TOPIC-PARTITION TOPIC_ID", found=repr(line[:80])
            ) from e
    return ids
