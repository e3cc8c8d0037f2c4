"""Creates the metadata topic's partition folders; an interrupted creation is completed by the next call."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tierctl.errors import LockedError
from tierctl.files import TEMP_SUFFIX, FileSystem, exclusive, read_regular, write_durably
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import LOCK
from tierctl.model import EpochEntry, Uuid
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)

FIRST_SEGMENT = "00000000000000000000.log"


def make_topic(
    folder: Path, found: Sequence[int], count: int, new_topic_id: Callable[[], Uuid], *, fs: FileSystem
) -> None:
    """Create partitions 0 to count - 1 in `folder`, unless it has partition 0 or a broker's partitions.

    `found` are the numbers of the existing partitions. Raises OSError.
    """
    if found and not _is_unfinished(folder, found):
        return
    highest = found[-1] if found else count - 1
    topic_id = _known_id(folder, found) or new_topic_id()
    # Partition 0 is created last: if it exists, all partitions exist.
    for partition in range(highest, -1, -1):
        _make_partition(folder / f"{METADATA_TOPIC}-{partition}", topic_id, fs)


@contextmanager
def removed_if_unused(folder: Path) -> Iterator[None]:
    """Remove a topic that the block made in `folder`, if the block raises before it has written an event.

    The folder is removed, too, if it did not exist. A topic that existed before the block stays.
    """
    is_new = not folder.exists()
    had_topic = folder.is_dir() and bool(partitions_in(folder))
    try:
        yield
    except BaseException:
        if not had_topic and folder.is_dir():
            # The operator needs the error of the block, not that of the removal.
            with suppress(OSError, LockedError):
                _remove_unused(folder, with_folder=is_new)
        raise


def _remove_unused(folder: Path, *, with_folder: bool) -> None:
    with exclusive(folder, LOCK):
        partitions = [folder / f"{METADATA_TOPIC}-{number}" for number in partitions_in(folder)]
        if not all(map(_is_empty, partitions)):
            return
        # Partition 0 is removed first: after a crash the next `make_topic` completes the topic.
        for partition in partitions:
            shutil.rmtree(partition)
        (folder / LOCK).unlink()
    if with_folder:
        folder.rmdir()


def _is_unfinished(folder: Path, found: Sequence[int]) -> bool:
    """Return whether a crash stopped `make_topic`: the lowest partitions are missing and all are empty."""
    is_upper_part = list(found) == list(range(found[0], found[-1] + 1)) and found[0] > 0
    return is_upper_part and all(_is_empty(folder / f"{METADATA_TOPIC}-{n}") for n in found)


def _is_empty(partition: Path) -> bool:
    return all(path.name == FIRST_SEGMENT and not path.stat().st_size for path in partition.glob("*.log"))


def _known_id(folder: Path, found: Sequence[int]) -> Uuid | None:
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
