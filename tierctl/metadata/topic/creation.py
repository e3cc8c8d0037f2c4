"""Creates the metadata topic's partition folders; an interrupted creation is completed by the next call."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tierctl.errors import CorruptInputError, LockedError
from tierctl.files import FileSystem, exclusive, read_regular, write_durably
from tierctl.metadata.topic.base import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import LOCK
from tierctl.metadata.topic.partition_folders import FIRST_SEGMENT, known_id, make_partitions
from tierctl.model import Uuid
from tierctl.wire.files.meta_properties import META_PROPERTIES

COUNT_FILE = ".tierctl-metadata-partitions"
_COUNT_MAX = 10**9


def make_topic(
    folder: Path, found: Sequence[int], count: int, new_topic_id: Callable[[], Uuid], *, fs: FileSystem
) -> None:
    """Create partitions 0 to count - 1 in `folder`, unless it has partition 0 or a broker's partitions.

    `found` are the numbers of the existing partitions. Raises OSError.
    """
    if found and not is_unfinished(folder, found):
        return
    highest = found[-1] if found else count - 1
    # Partition 0 is created last: if it exists, all partitions exist.
    topic_id = known_id(folder, found) or new_topic_id()
    make_partitions(folder, range(highest, -1, -1), topic_id, fs=fs)
    if not (folder / META_PROPERTIES).exists():
        # A folder that is lost later would change the number, and with it the partition of every topic's
        # events: the folders themselves are no record of it. A broker has one in its cluster's metadata. With
        # a record, folders that are missing are lost; without one, they were not made yet.
        write_durably(folder / COUNT_FILE, [f"{highest + 1}\n".encode()], fs=fs)


def recorded_count(folder: Path) -> int | None:
    """Return the number of partitions with which tierctl made the topic; None if it states none.

    Raises CorruptInputError, and OSError.
    """
    path = folder / COUNT_FILE
    if not path.is_file():
        return None
    text = read_regular(path).decode("ascii", "replace").strip()
    if not (text.isdecimal() and 0 < int(text) <= _COUNT_MAX):
        raise CorruptInputError(str(path), expected="the number of metadata partitions", found=text[:20])
    return int(text)


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
        # The record and partition 0 go first: after a crash the next `make_topic` completes the topic.
        (folder / COUNT_FILE).unlink(missing_ok=True)
        for partition in partitions:
            shutil.rmtree(partition)
        (folder / LOCK).unlink()
    if with_folder:
        folder.rmdir()


def is_unfinished(folder: Path, found: Sequence[int]) -> bool:
    """Return whether a crash may have stopped `make_topic`, which had made the partitions `found`.

    Then the lowest partitions are missing, and all others are empty. If their number is recorded, too, the
    missing ones were made before, and are lost.
    """
    is_upper_part = list(found) == list(range(found[0], found[-1] + 1)) and found[0] > 0
    return is_upper_part and all(_is_empty(folder / f"{METADATA_TOPIC}-{n}") for n in found)


def _is_empty(partition: Path) -> bool:
    return all(path.name == FIRST_SEGMENT and not path.stat().st_size for path in partition.glob("*.log"))
