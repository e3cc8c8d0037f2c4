"""`__remote_log_metadata` in a folder: made by tierctl, or a log directory of a stopped broker or its copy.

file:///dir/__remote_log_metadata-0/00000000000000000000.log
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tierctl.errors import CorruptInputError, LockedError, MetadataError, NotFoundError, UsageError
from tierctl.files import FileSystem, exclusive, exists, is_dir, is_file, read_decoded, write_durably
from tierctl.locallog.folders import names_in
from tierctl.metadata.topic.base import LOCAL, METADATA_TOPIC, LogFiles, PartitionLog, Tail, translated
from tierctl.metadata.topic.folder_writer import (
    FIRST_SEGMENT,
    LOCK,
    TopicPlacement,
    known_id,
    make_partitions,
)
from tierctl.model import ClusterIdentity, Uuid
from tierctl.model.checked_values import natural_number
from tierctl.model.selection import counted
from tierctl.wire.batches.segment_file import RecordChunk
from tierctl.wire.files.checkpoints import (
    LOG_STARTS_FILE,
    META_PROPERTIES,
    PARTITION_METADATA_FILE,
    Node,
    read_cluster_id,
    read_node,
    read_offset_checkpoint,
    read_partition_metadata,
)

if TYPE_CHECKING:
    from tierctl.metadata.topic.folder_writer import FolderWriter

_FOLDER = re.compile(re.escape(METADATA_TOPIC) + r"-(0|[1-9][0-9]{0,8})\Z")

T = TypeVar("T")


class FolderTopic:
    """Implement MetadataTopic over the partition folders `__remote_log_metadata-N` in `folder`.

    `files` reads the folder: a folder on disk or in an object store, or a single segment file. If `complete`,
    every partition from 0 to the highest must be present, and later partitions are not noticed; otherwise
    `end_offsets` looks for partitions again. With a `placement`, its partitions are read in their homes, and
    those that are not present are empty.
    A folder without partitions raises NotFoundError, or reads as an empty topic of `empty_count` partitions.
    `on_torn` receives a message from each call of `end_offsets` for each log that ends in an unfinished
    write. Raises CorruptInputError for an unreadable checkpoint, and the errors of `files`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        files: LogFiles = LOCAL,
        complete: bool = False,
        empty_count: int | None = None,
        placement: TopicPlacement | None = None,
        on_torn: Callable[[str], None] | None = None,
        writer: FolderWriter | None = None,
    ) -> None:
        self._folder = folder
        self._files = files
        self._name = files.name_of(folder)
        self._complete = complete
        self._empty_count = empty_count
        self._placement = placement
        self._on_torn = on_torn
        self._writer = writer
        self._logs: dict[int, PartitionLog] = {}
        self._ends: dict[int, int] = {}
        self._find_partitions()
        if writer is not None:
            with translated(f"opening {self._name}"):
                writer.require_behind(self._logs)

    @property
    def partition_count(self) -> int:
        """Implement `MetadataTopic.partition_count`."""
        return max(self._logs) + 1 if self._logs else self._empty_count or 0

    @property
    def reads_side_by_side(self) -> bool:
        """Implement `MetadataTopic.reads_side_by_side`: a store's listing is shared by the partitions."""
        return self._files is LOCAL

    @property
    def topic_id(self) -> Uuid | None:
        """Implement `MetadataTopic.topic_id`: known, or read from the first `partition.metadata`."""
        if self._placement is not None and self._placement.topic_id is not None:
            return self._placement.topic_id
        with translated(f"reading {self._name}"):
            for log in self._logs.values():
                path = log.folder / PARTITION_METADATA_FILE
                topic_id = _decoded(self._files, path, read_partition_metadata)
                if topic_id is not None:
                    return topic_id
        return None

    def identity(self) -> ClusterIdentity:
        """Implement `MetadataTopic.identity`."""
        path = self._folder / META_PROPERTIES
        with translated(f"reading {self._name}"):
            cluster_id = _decoded(self._files, path, read_cluster_id)
        return ClusterIdentity(cluster_id=cluster_id, metadata_topic_id=self.topic_id)

    def beginning_offsets(self) -> dict[int, int]:
        """Implement `MetadataTopic.beginning_offsets`, for the partitions that the last search found."""
        with translated(f"reading {self._name}"):
            found = {number: log.beginning_offset() for number, log in self._logs.items()}
        return found or self._of_empty_topic()

    def end_offsets(self) -> dict[int, int]:
        """Implement `MetadataTopic.end_offsets`; bytes scanned by an earlier call are not scanned again."""
        if not self._complete:
            self._find_partitions()
        with translated(f"reading {self._name}"):
            logs, self._ends = self._logs, {}
            for number, log in logs.items():
                self._ends[number] = log.end_offset()
            self._report_torn()
        return dict(self._ends) or self._of_empty_topic()

    def _of_empty_topic(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partition_count), 0)

    def _report_torn(self) -> None:
        if self._on_torn is None:
            return
        for log in self._logs.values():
            note = log.torn_note()
            if note is not None:
                self._on_torn(note)

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Implement `MetadataTopic.offsets_for_time` with the time indexes that exist."""
        with translated(f"reading {self._name}"):
            logs = (log for number, log in self._logs.items() if number in partitions)
            return {log.partition: log.offset_for_time(timestamp_ms) for log in logs}

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Implement `MetadataTopic.read`."""
        if start_offset >= end_offset:
            return iter(())
        log = self._logs.get(partition) or self._log(partition)
        if end_offset > self._ends.get(partition, -1):
            # `end_offset` was read by another process, and this process may have listed the folder before:
            # list it again, because the newest segments may be missing.
            self._files.refresh(log.folder)
        return log.read(start_offset, end_offset)

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Implement `MetadataTopic.append`; after a failure none of the records is in the log."""
        if self._writer is None:
            raise MetadataError(
                f"{self._name} was opened for reading only, not for {counted(len(records), 'record')}"
            )
        with translated(f"appending to {self._name}"):
            return self._writer.append(self._logs, records)

    def close(self) -> None:
        """Implement `MetadataTopic.close`."""
        if self._writer is not None:
            self._writer.close()
        self._files.close()

    def _find_partitions(self) -> None:
        """Find the partitions, and keep the cached state of logs that still exist."""
        known = self._logs
        with translated(f"reading {self._name}"):
            if self._placement is not None:
                placed = logs_in(self._placement)
                self._logs = {number: known.get(number) or log for number, log in placed.items()}
                starts = {number: log.log_start_offset for number, log in placed.items()}
            else:
                numbers = partitions_in(self._folder, self._files)
                if not numbers and self._empty_count is None:
                    raise _no_topic(self._folder, self._name, self._files)
                starts = _log_starts(self._folder, self._files) if numbers else {}
                if self._complete:
                    _require_all(self._name, numbers)
                self._logs = {number: known.get(number) or self._log(number) for number in numbers}
        for number, log in self._logs.items():
            log.log_start_offset = starts.get(number, 0)

    def _log(self, number: int) -> PartitionLog:
        return PartitionLog(partition_folder(self._folder, number), number, files=self._files)


def partition_folder(folder: Path, partition: int) -> Path:
    """Return the folder of a metadata partition's files."""
    return folder / f"{METADATA_TOPIC}-{partition}"


def partitions_in(folder: Path, files: LogFiles = LOCAL) -> list[int]:
    """Return the numbers of the metadata partitions in `folder`, ascending; raise OSError."""
    matches = map(_FOLDER.match, files.folders(folder))
    return sorted(int(match[1]) for match in matches if match)


def on_several_disks(folder: Path, others: Iterable[Path]) -> TopicPlacement | None:
    """Return where a broker has its partitions if `folder` lacks some that are in its directories `others`.

    Return None if `folder` is no broker's, or if partitions lack in all of them. Raises OSError.
    """
    own = _node_of(folder)
    if own is None:
        return None
    homes = dict.fromkeys(partitions_in(folder), folder)
    found = len(homes)
    for other in others:
        if _node_of(other) == own:
            for number in partitions_in(other):
                homes.setdefault(number, other)
    is_whole = sorted(homes) == list(range(len(homes)))
    return TopicPlacement(homes=homes) if is_whole and len(homes) > found else None


def _node_of(log_dir: Path) -> Node | None:
    return read_decoded(log_dir / META_PROPERTIES, read_node)


def logs_in(placement: TopicPlacement) -> dict[int, PartitionLog]:
    """Return the log of each partition in its home; one without a folder is empty."""
    starts = {home: _log_starts(home, LOCAL) for home in set(placement.homes.values())}
    return {
        number: _placed_log(placement, number, starts[home].get(number, 0))
        for number, home in sorted(placement.homes.items())
    }


def _placed_log(placement: TopicPlacement, number: int, log_start_offset: int) -> PartitionLog:
    folder = partition_folder(placement.homes[number], number)
    if not exists(folder, follow_symlinks=False):
        # The recorded log start of a lost log is that of records which are gone.
        return PartitionLog(folder, number, may_be_missing=True)
    limit = placement.damaged.get(folder.resolve())
    start = log_start_offset if limit is None else min(log_start_offset, limit.next_offset)
    return PartitionLog(folder, number, log_start_offset=start, limit=limit)


def sound_end(folder: Path, partition: int) -> tuple[Tail, bool]:
    """Return the result of `PartitionLog.sound_end` for a metadata partition in `folder`."""
    return PartitionLog(partition_folder(folder, partition), partition).sound_end()


def has_topic_id(folder: Path, partition: int) -> bool:
    """Return whether the folder of a metadata partition states the topic's id."""
    return exists(partition_folder(folder, partition) / PARTITION_METADATA_FILE)


_REBUILD = "tierctl rebuild makes them again from the objects of the tier"


def _no_topic(folder: Path, name: str, files: LogFiles) -> NotFoundError | UsageError:
    # A mistyped or unmounted folder must not look like a tier without segments.
    hint = "name a broker's log directory, or another folder with __remote_log_metadata-N folders"
    if files is LOCAL and not exists(folder):
        return NotFoundError(f"{name} has no metadata topic: there is no such folder", hint=hint)
    if files is LOCAL and not is_dir(folder):
        return UsageError(f"{name} has no metadata topic: it is no folder", hint=hint)
    return NotFoundError(f"{name} has no metadata topic", hint=_hint_of_no_topic(folder, files))


def _hint_of_no_topic(folder: Path, files: LogFiles) -> str:
    """Return what to do about a folder without metadata partitions; they are made only in a local one."""
    expected = "expected a folder that contains __remote_log_metadata-N folders"
    if files is not LOCAL:
        return expected
    if is_file(folder / META_PROPERTIES):
        return (
            f"this is a broker's log directory. If its __remote_log_metadata-N folders are lost, {_REBUILD}; "
            "copy creates new ones only for a new tier"
        )
    return f"{expected}. If they are lost, {_REBUILD}; copy creates new ones for a new tier"


def _require_all(name: str, numbers: Sequence[int]) -> None:
    """Raise CorruptInputError unless `numbers` are all numbers from 0 to the highest."""
    missing = sorted(set(range(len(numbers))) - set(numbers))
    if missing:
        raise CorruptInputError(
            f"metadata topic in {name}",
            expected=f"{METADATA_TOPIC}-0 to -{numbers[-1]}",
            found=f"none numbered {missing[0]}",
            hint="the number of partitions decides which events each has: put all partitions in one folder; "
            f"if some are lost, {_REBUILD}",
        )


def _decoded(files: LogFiles, path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return what `read_decoded` returns, of a file among `files`."""
    data = files.content(path)
    try:
        return None if data is None else decode(data)
    except CorruptInputError as e:
        raise e.within(files.name_of(path)) from None


def _log_starts(folder: Path, files: LogFiles) -> dict[int, int]:
    """Return the log start offsets in `log-start-offset-checkpoint` by metadata partition."""
    offsets = _decoded(files, folder / LOG_STARTS_FILE, read_offset_checkpoint) or {}
    return {key.partition: offset for key, offset in offsets.items() if key.topic == METADATA_TOPIC}


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
    if not exists(folder / META_PROPERTIES):
        # A folder that is lost later would change the number, and with it the partition of every topic's
        # events: the folders themselves are no record of it. A broker has one in its cluster's metadata. With
        # a record, folders that are missing are lost; without one, they were not made yet.
        write_durably(folder / COUNT_FILE, [f"{highest + 1}\n".encode()], fs=fs)


def recorded_count(folder: Path) -> int | None:
    """Return the number of partitions with which tierctl made the topic; None if it states none.

    Raises CorruptInputError, and OSError.
    """
    return read_decoded(folder / COUNT_FILE, _count_of)


def _count_of(data: bytes) -> int:
    text = data.decode("ascii", "replace").strip()
    count = natural_number(text, _COUNT_MAX)
    if not count:
        raise CorruptInputError(COUNT_FILE, expected="the number of metadata partitions", found=text[:20])
    return count


@contextmanager
def removed_if_unused(folder: Path) -> Iterator[None]:
    """Remove a topic that the block made in `folder`, if the block raises before it has written an event.

    The folder is removed, too, if it did not exist. A topic that existed before the block stays.
    """
    is_new = not exists(folder)
    had_topic = is_dir(folder) and bool(partitions_in(folder))
    try:
        yield
    except BaseException:
        if not had_topic and is_dir(folder):
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
    logs = (partition / name for name in names_in(partition) if ".log" in name)
    return all(path.name == FIRST_SEGMENT and not path.stat().st_size for path in logs)
