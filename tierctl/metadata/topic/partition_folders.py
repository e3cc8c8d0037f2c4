"""Makes the folders of empty metadata partitions, as a broker does."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tierctl.files import TEMP_SUFFIX, FileSystem, read_regular, write_durably
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.model import EpochEntry, Uuid
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)

FIRST_SEGMENT = "00000000000000000000.log"


def make_partitions(folder: Path, numbers: Iterable[int], topic_id: Uuid, *, fs: FileSystem) -> None:
    """Create empty partitions, in the order of their `numbers`. Raises OSError."""
    for partition in numbers:
        _make_partition(folder / f"{METADATA_TOPIC}-{partition}", topic_id, fs)


def known_id(folder: Path, found: Sequence[int]) -> Uuid | None:
    """Return the topic id that one of the partitions `found` states; None if none does. Raises OSError."""
    for partition in found:
        path = folder / f"{METADATA_TOPIC}-{partition}" / PARTITION_METADATA_FILE
        if path.is_file():
            return read_partition_metadata(read_regular(path))
    return None


def _make_partition(partition: Path, topic_id: Uuid, fs: FileSystem) -> None:
    """Create a partition as a broker does, without indexes, which a broker creates when it loads the log."""
    if partition.exists():
        return
    making = partition.with_name(partition.name + TEMP_SUFFIX)
    fs.make_folder(making)
    files = {
        PARTITION_METADATA_FILE: write_partition_metadata(topic_id),
        LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint([EpochEntry(0, 0)]),
        FIRST_SEGMENT: b"",
    }
    for name, data in files.items():
        write_durably(making / name, [data], fs=fs, sync_folder=False)
    fs.sync_folder(making)
    fs.rename(making, partition)
    fs.sync_folder(partition.parent)
