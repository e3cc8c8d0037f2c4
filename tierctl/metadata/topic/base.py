"""The contract of a metadata topic, wherever the topic is; the log of one partition on any file system."""

import os
import re
from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from tierctl.errors import (
    NOT_ALLOWED,
    AuthenticationError,
    CorruptInputError,
    MetadataError,
    NotFoundError,
    SafetyRefusal,
    UsageError,
    disk_message,
    hint_of,
)
from tierctl.files import FileBytes, exists, is_dir, is_file, read_regular
from tierctl.locallog.folders import require_no_swap
from tierctl.model import ClusterIdentity, IndexType, TopicPartition, Uuid
from tierctl.model.checked_values import natural_number
from tierctl.model.local import LARGEST_OFFSET
from tierctl.wire.batches.segment_file import (
    WINDOW_BYTES,
    DamagedRange,
    LogBytes,
    Mark,
    RecordChunk,
    Window,
    chunk_of,
    empty_chunk,
    first_offset_at,
    gap,
    highest_offset_of,
    is_zero_from,
    newer_batch,
    scan_windows,
    skip_to,
    sound_end,
    torn_note,
)
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex, trimmed

METADATA_TOPIC = "__remote_log_metadata"
DEFAULT_METADATA_PARTITIONS = 50


class ReadableTopic(Protocol):
    """The records of a metadata topic, which is all that a fold reads of it."""

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records with offsets in [start_offset, end_offset) as chunks, in order of offsets.

        `RecordChunk.damage` names every range of these offsets that has no readable record.
        """
        ...


class MetadataTopic(ReadableTopic, Protocol):
    """`__remote_log_metadata` as partitions of records; `open_topic` returns one.

    Every method raises MetadataError or AuthenticationError if the cluster or the disk fails, and
    RemoteStorageError if an object store fails.
    """

    @property
    def partition_count(self) -> int:
        """Return the number of metadata partitions; the partitioner depends on it.

        If only some partitions are present, the count is the highest partition number plus 1.
        """
        ...

    @property
    def reads_side_by_side(self) -> bool:
        """Return whether several threads may read different partitions at once."""
        ...

    @property
    def topic_id(self) -> Uuid | None:
        """Return the topic id, None if unknown; a topic that is deleted and created again has another id."""
        ...

    def identity(self) -> ClusterIdentity:
        """Return the ids of the topic and of its cluster, as far as they are known.

        In a folder or a store, the cluster id is that of `meta.properties` beside the partition folders.
        Raises CorruptInputError if that file is damaged.
        """
        ...

    def beginning_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition; above 0, earlier records were deleted."""
        ...

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last record of each partition that is present now."""
        ...

    def offsets_for_time(self, partitions: Collection[int], timestamp_ms: int) -> dict[int, int]:
        """Return, for each partition, an offset before which every record is older than `timestamp_ms`.

        The offset is as high as indexes allow. A partition without a record as recent may be absent.
        """
        ...

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append (partition, value) pairs in order; return their offsets once all records are durable.

        The records are never transactional: brokers' consumers would wait behind the control marker. Without
        records, only replicas that the topic has in other log directories are completed.
        Raises MetadataError also if the topic was opened for reading only.
        """
        ...

    def close(self) -> None:
        """Release files, locks and connections."""
        ...


_RESTORE = "restore the file from a replica: tierctl deletes nothing that depends on this metadata partition"


class LogFiles:
    """Read folders and files by path, on this machine's disks; subclasses read them elsewhere.

    Every method raises OSError, of a subclass perhaps a TierctlError. A CorruptInputError of `open` says that
    there is no file at the path, but a folder, a pipe or a device. Files are read, not mapped into memory,
    because a writer may truncate them.
    """

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`; an empty list if `folder` does not exist."""
        # An entry that is no folder, as a link to a disk that is not mounted, must not be missing here.
        return os.listdir(folder) if is_dir(folder) else []  # noqa: PTH208 - names are wanted, not paths

    def names(self, folder: Path) -> list[str]:
        """Return the names of the files in `folder`."""
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: Path) -> LogBytes:
        """Open a file for reading."""
        try:
            return FileBytes(path)
        except OSError as e:
            if is_file(path) or not exists(path):
                raise
            raise CorruptInputError(
                "metadata log",
                expected=f"the file {path.name}",
                found="a folder" if is_dir(path) else "a pipe, a socket or a device",
                source=str(path),
                hint=_RESTORE,
            ) from e

    def content(self, path: Path) -> bytes | None:
        """Return the whole content of a small file, None if the file does not exist."""
        return read_regular(path) if is_file(path) else None

    def name_of(self, path: Path) -> str:
        """Return the name of a file or folder for messages: a path or a URI."""
        return str(path)

    def refresh(self, folder: Path) -> None:
        """Forget the listing of `folder`, so that the next call lists the folder again; disks keep none."""

    def close(self) -> None:
        """Release connections; disks have none."""


LOCAL = LogFiles()


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise MetadataError for an OSError in the body, and AuthenticationError for a missing right.

    The message has `doing`, the hint a remedy.
    """
    try:
        yield
    except OSError as e:
        message = disk_message(doing, e)
        if isinstance(e, PermissionError):
            raise AuthenticationError(message, hint=NOT_ALLOWED) from e
        raise MetadataError(message, hint=hint_of(e) or "look at the disk, then run again") from e


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    """The consumed partitions (empty: all) and their start: an offset, EARLIEST or LATEST."""

    partitions: Sequence[int] = ()
    start: int | str = LATEST

    @classmethod
    def of(cls, asked: Sequence[int | TopicPartition], *, offset: str | None, from_beginning: bool) -> Self:
        """Return the positions that Kafka's console consumer takes for these flags.

        Raises UsageError for flags that contradict each other, an `offset` that is none, and a partition of
        another topic.
        """
        partitions = [_metadata_number(each) for each in asked]
        if offset is not None and not partitions:
            raise UsageError(
                "--offset needs --partition", hint="name the partition to which the offset belongs"
            )
        if offset is not None and from_beginning:
            raise UsageError("--from-beginning and --offset exclude each other", hint="give one of them")
        if offset is None:
            return cls(partitions=partitions, start=EARLIEST if from_beginning else LATEST)
        return cls(partitions=partitions, start=_parse_start(offset))

    def resolve(self, beginning: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset to consume of each partition; `beginning` and `end` are the topic's.

        An offset outside the log is moved to its nearest end, so that no record is skipped. Raises
        NotFoundError for a partition that the topic does not have.
        """
        for number in self.partitions:
            if number not in end:
                raise NotFoundError(f"{METADATA_TOPIC} has no partition {number}: it has {len(end)}")
        return {n: self._position(beginning[n], end[n]) for n in self.partitions or sorted(end)}

    def _position(self, beginning: int, end: int) -> int:
        if isinstance(self.start, int):
            return min(max(self.start, beginning), end)
        return beginning if self.start == EARLIEST else end


def _metadata_number(partition: int | TopicPartition) -> int:
    if isinstance(partition, int):
        return partition
    if partition.topic != METADATA_TOPIC:
        raise UsageError(
            f"--partition {partition}: --bootstrap-server reads partitions of {METADATA_TOPIC}",
            hint="name the cluster with --metadata kafka://... to select user partitions",
        )
    return partition.partition


def _parse_start(text: str) -> int | str:
    if text.casefold() in {EARLIEST, LATEST}:
        return text.casefold()
    offset = natural_number(text)
    if offset is None:
        raise UsageError(f"--offset {text!r}", hint="an offset from 0 to 2^63-1, earliest or latest")
    return offset


_SEGMENT = re.compile(r"([0-9]{20})\.log\Z")
_MARK_BYTES = 1 << 20
_FEW = 16
"""So few records are looked up, perhaps in each partition: little is read around them."""
_WINDOW_OF_FEW_BYTES = 4 << 10


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the valid batches in the newest segment.

    `torn_bytes` is the size of an unfinished write after them, including zeros that a broker allocated ahead.
    `damage` is the error of other invalid bytes there; a writer must not append after them.
    """

    segment_base: int
    position: int
    next_offset: int
    torn_bytes: int = 0
    damage: CorruptInputError | None = None

    @property
    def end_offset(self) -> int:
        """Return the log end offset; damage at the end counts as one offset, so that readers report it."""
        return self.next_offset + (self.damage is not None)


def _windows(
    file: LogBytes, base: int, position: int, expected: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Yield the windows of the segment with base offset `base`, as `scan_windows`."""
    highest = highest_offset_of(base)
    return scan_windows(file, position, expected, highest_offset=highest, window_bytes=window_bytes)


def _error_at_end(file: LogBytes, last: Window, source: str) -> CorruptInputError | None:
    """Return the error of what follows the last good batch of a segment; None for nothing, or for zeros.

    `last` is the segment's last window. The log must go on after it, so that no broker is writing there.
    """
    torn, bad = last.heads.torn, last.heads.bad
    if bad and bad[-1].next_offset is None:
        return bad[-1].error.within(source, base=last.position)
    if torn is None or is_zero_from(file, at := last.position + torn.position):
        return None
    found = "one that the end of the file cuts"
    return CorruptInputError(
        "record batch", expected="a whole batch", found=found, at=at, source=source, hint=_RESTORE
    )


class PartitionLog:
    """Read one metadata partition; keep positions of batches for the next call.

    `log_start_offset` is the offset in `log-start-offset-checkpoint`, 0 if there is none. If it
    `may_be_missing`, a log without a folder is empty. With a `limit`, the log ends there, whatever bytes and
    segments follow. Reading never changes a file. Raises the errors of `files`.
    """

    def __init__(
        self,
        folder: Path,
        partition: int,
        *,
        log_start_offset: int = 0,
        files: LogFiles = LOCAL,
        may_be_missing: bool = False,
        limit: Tail | None = None,
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.log_start_offset = log_start_offset
        self._files = files
        self.limit = limit
        self._may_be_missing = may_be_missing
        self._marks: dict[int, list[Mark]] = {}
        self._tail: Tail | None = None
        self._told_beginning: int | None = None

    def segments(self) -> list[int]:
        """Return the base offsets of the segments, ascending; a file above LARGEST_OFFSET is none.

        Raises as `require_no_swap`.
        """
        if self._may_be_missing and not is_dir(self.folder):
            return []
        names = self._files.names(self.folder)
        require_no_swap(names, self._files.name_of(self.folder))
        matches = map(_SEGMENT.match, names)
        numbers = (int(match[1]) for match in matches if match)
        found = sorted(base for base in numbers if base <= LARGEST_OFFSET)
        return found if self.limit is None else [base for base in found if base <= self.limit.segment_base]

    def path(self, segment_base: int) -> Path:
        """Return the path of a segment's log file."""
        return self.folder / f"{segment_base:020d}.log"

    def _name_of(self, segment_base: int) -> str:
        return self._files.name_of(self.path(segment_base))

    def beginning_offset(self) -> int:
        """Return the first offset that a broker would serve; `read` then misses what is deleted since."""
        self._told_beginning = self._first_offset()
        return self._told_beginning

    def _first_offset(self) -> int:
        return max(self.log_start_offset, next(iter(self.segments()), 0))

    def end_offset(self) -> int:
        """Return the offset after the last record; an unfinished write does not count.

        If the newest segment has no file, it counts as one offset, so that readers report it.
        """
        try:
            end = self.tail().end_offset
        except CorruptInputError:
            self._tail, end = None, self.segments()[-1] + 1
        return max(end, self.log_start_offset)

    def tail(self) -> Tail:
        """Return the end of the newest segment; scan only the bytes written since the last call.

        Raise CorruptInputError if it has no file: a writer must not go on from another one.
        """
        if self.limit is not None:
            return self.limit
        bases = self.segments()
        if not bases:
            return Tail(0, 0, 0)
        tail, base = self._tail, bases[-1]
        with closing(self._files.open(self.path(base))) as file:
            size = file.size_bytes
            if tail is None or tail.segment_base != base or tail.position > size:
                self._marks.pop(base, None)
                tail = Tail(base, *self._seek(file, base, highest_offset_of(base)))
            if tail.position < size:
                tail = self._scan_tail(file, tail)
        self._tail = tail
        return tail

    def _scan_tail(self, file: LogBytes, known: Tail) -> Tail:
        tail = Tail(known.segment_base, known.position, known.next_offset)
        base = known.segment_base
        for window in _windows(file, base, known.position, known.next_offset):
            torn, bad = window.heads.torn, window.heads.bad
            damage = None
            if bad and bad[-1].next_offset is None:
                damage = bad[-1].error.within(self._name_of(tail.segment_base), base=window.position)
            tail = Tail(
                tail.segment_base,
                window.good_end if len(window.heads) else tail.position,
                window.next_offset,
                torn_bytes=0 if torn is None else torn.size_bytes,
                damage=damage,
            )
        return tail

    def sound_end(self) -> tuple[Tail, bool]:
        """Return the end of what precedes the first damage or missing offset, and whether there is any.

        Every batch is read, and its CRC is checked. An unfinished write at the end of the log is no damage.
        Raise SafetyRefusal if a damaged log has a batch of a newer Kafka, which must not be taken for damage.
        """
        tail, is_damaged = self._sound_end()
        if is_damaged:
            self._require_known_formats()
        return tail, is_damaged

    def _sound_end(self) -> tuple[Tail, bool]:
        tail = Tail(0, 0, 0)
        for number, base in enumerate(self.segments()):
            if number and tail.next_offset != base:
                return tail, True
            tail = Tail(base, 0, base)
            with closing(self._files.open(self.path(base))) as file:
                for window in _windows(file, base, 0, base):
                    position, next_offset, is_damaged = sound_end(window)
                    tail = Tail(base, position, next_offset, torn_bytes=file.size_bytes - position)
                    if is_damaged:
                        return tail, True
        return tail, False

    def _require_known_formats(self) -> None:
        for base in self.segments():
            with closing(self._files.open(self.path(base))) as file:
                for window in _windows(file, base, 0, base):
                    newer = newer_batch(window)
                    if newer is not None:
                        raise SafetyRefusal(
                            newer.within(self._name_of(base), base=window.position).message,
                            hint="a newer Kafka wrote this batch: use a release of tierctl that reads its "
                            "format, or start the brokers with copying disabled, and use --metadata "
                            "kafka://host:port",
                        )

    def torn_note(self) -> str | None:
        """Return a message about the unfinished write that `tail` found; None for none, or for zeros."""
        tail = self._tail
        if tail is None or not tail.torn_bytes:
            return None
        path = self.path(tail.segment_base)
        with closing(self._files.open(path)) as file:
            return torn_note(file, self._name_of(tail.segment_base), tail.position, tail.torn_bytes)

    def offset_for_time(self, timestamp_ms: int) -> int:
        """Return an offset before which every record is older than `timestamp_ms`.

        The time indexes decide, and in the last relevant segment also the batches after its last index entry.
        A segment without a valid index is not scanned.
        """
        for base in self.segments():
            index = self._time_index(base)
            entry = index.lookup(timestamp_ms - 1)
            if entry.timestamp_ms < 0:
                return base
            if entry != index.last:
                return entry.offset + 1
            found = self._later_batch(base, entry.offset + 1, timestamp_ms)
            if found is not None:
                return found
        return self.end_offset()

    def _later_batch(self, base: int, start_offset: int, timestamp_ms: int) -> int | None:
        """Return the offset, at least `start_offset`, of the first batch as late as `timestamp_ms`."""
        try:
            opened = self._files.open(self.path(base))
        except CorruptInputError:
            return start_offset
        with closing(opened) as file:
            position, expected = self._seek(file, base, start_offset)
            for window in _windows(file, base, position, expected):
                heads = window.heads
                is_late = heads.fields["max_timestamp_ms"] >= timestamp_ms
                found = heads.base_offsets[is_late & (heads.next_offsets > start_offset)]
                if len(found):
                    return max(int(found[0]), start_offset)
        return None

    def _time_index(self, base: int) -> TimeIndex:
        data = self._files.content(self.path(base).with_suffix(".timeindex"))
        try:
            return TimeIndex.decode(trimmed(data or b"", IndexType.TIMESTAMP), base)
        except CorruptInputError:
            return TimeIndex(base)

    def read(self, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records with offsets in [start_offset, end_offset) in chunks of bounded size.

        Raises the errors of `translated`, and MetadataError if records from `start_offset` on were deleted
        since `beginning_offset` was called.
        """
        doing = f"reading {self._files.name_of(self.folder)}"
        with translated(doing):
            first, told = self._first_offset(), self._told_beginning
            if told is not None and told <= start_offset < min(first, end_offset):
                # Without an error, they would be missing in a history that counts as complete.
                raise MetadataError(
                    f"{doing}: offset {start_offset} no longer exists, the log begins at {first}",
                    hint="records were deleted or lost while they were read: run again",
                )
            next_offset = max(start_offset, first)
            bases = self.segments()
            for base, following in zip(bases, [*bases[1:], None], strict=True):
                if base < end_offset and (following is None or following > next_offset):
                    for chunk in self._read_segment(base, following, next_offset, end_offset):
                        next_offset = chunk.next_offset
                        yield chunk

    def _read_segment(
        self, base: int, following: int | None, start_offset: int, end_offset: int
    ) -> Iterator[RecordChunk]:
        source = self._name_of(base)
        reached, last = base, None
        try:
            opened = self._files.open(self.path(base))
        except CorruptInputError as e:
            end = end_offset if following is None else min(following, end_offset)
            yield empty_chunk(self.partition, end, DamagedRange(max(base, start_offset), end, e))
            return
        with closing(opened) as file:
            # Starts at the record before `start_offset`, so that a gap between the two records is found.
            position, expected = self._seek(file, base, start_offset - 1)
            span = _WINDOW_OF_FEW_BYTES if end_offset - start_offset <= _FEW else WINDOW_BYTES
            for window in _windows(file, base, position, expected, span):
                chunk = chunk_of(window, self.partition, start_offset, end_offset, source)
                reached = max(window.next_offset, *(bad.next_offset for bad in chunk.damage), reached)
                last = window
                start_offset = chunk.next_offset
                yield chunk
                if reached >= end_offset:
                    return
            if following is not None and reached < min(following, end_offset):
                error = None if last is None else _error_at_end(file, last, source)
                lost = gap(reached, following, source)
                if error is not None:
                    lost = DamagedRange(reached, following, error)
                yield empty_chunk(self.partition, min(following, end_offset), lost)

    def _seek(self, file: LogBytes, base: int, offset: int) -> tuple[int, int]:
        """Return position and base offset of a valid batch at or before `offset`, else of the segment."""
        if offset <= base:
            return 0, base
        marks = self._marks_of(base)
        known = bisect_right(marks, offset, key=lambda mark: mark[0])
        start = marks[known - 1][1] if known else 0
        if start and first_offset_at(file, start) is None:
            # The index belongs to another file, or the batch at that position is damaged.
            marks.clear()
            start = 0
        passed: list[Mark] = []
        found = skip_to(file, start, offset, marks=passed)
        first_offset = None if found is None else first_offset_at(file, found[0])
        if found is None or first_offset is None:
            return 0, base
        for mark in passed:
            if mark not in marks:
                insort(marks, mark)
        return found[0], first_offset

    def _marks_of(self, base: int) -> list[Mark]:
        """Return known positions of batches in a segment; at first those in the segment's offset index."""
        if base not in self._marks:
            data = self._files.content(self.path(base).with_suffix(".index"))
            self._marks[base] = list(_marks_in(base, data or b""))
        return self._marks[base]


def _marks_in(base: int, data: bytes) -> Iterator[Mark]:
    """Yield entries of an offset index at least 1 MiB apart, and the last entry; none of a damaged index."""
    try:
        offsets, positions = OffsetIndex.decode(trimmed(data, IndexType.OFFSET), base).columns()
    except CorruptInputError:
        return
    at = 0
    while at < len(positions):
        yield int(offsets[at]), int(positions[at])
        is_last = at == len(positions) - 1
        following = int(np.searchsorted(positions, positions[at] + _MARK_BYTES))
        at = len(positions) if is_last else min(following, len(positions) - 1)
