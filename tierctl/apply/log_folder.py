"""The folder of a new local log: it is filled beside the logs of a stopped broker, segment by segment.

Until it is renamed, it is in a folder with a name that a broker deletes (LogManager, DeleteDirSuffix): a
broker that starts before that does not load it, and removes it.

One segment is written from the bytes of a remote segment, in this process or on an executor. Every batch is
checked with its CRC and gets leader epoch 0, which the CRC does not cover. The offset index and the time
index are built from the batches; those of the tier are not read. The files are written to a separate folder,
from which the process that writes the log moves them. Segments are written independently of each other: each
returns its changes of transactions, which are applied in the order of the log.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Self

import numpy as np

from tierctl.apply.side_effects import (
    Change,
    SideEffectContext,
    SideEffectResult,
    WrittenSegment,
    effect,
    index_names,
    log_name,
)
from tierctl.errors import CorruptInputError, SpoolError, TierctlError, TransferStopped
from tierctl.files import PLAIN, FileBytes, make_like
from tierctl.locallog.loading import OpenTransactions, entry_of
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.read.tasks import KeyRecord, matching_records
from tierctl.wire.batches.batch_head import (
    LEADER_EPOCH_AT,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHead,
)
from tierctl.wire.batches.batch_heads import HeadColumns, scan_heads
from tierctl.wire.batches.record_batch import (
    RecordBatch,
    batch_at,
    batch_before,
    batch_emptied,
    encode_abort_marker,
)
from tierctl.wire.batches.record_columns import record_columns
from tierctl.wire.batches.segment_file import Window, scan_windows
from tierctl.wire.files.checkpoints import META_PROPERTIES, ProducerEntry
from tierctl.wire.files.indexes import AbortedTxn, build_indexes

_MARK = "tierctl-materialise"
"""File in a staging folder with the name of the folder that is being made."""
_NEW, _OLD = "new", "old"
_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class NewFolder:
    """The folder of partition `name` in a log directory, in the making; `staging` is the folder around it."""

    log_dir: Path
    name: str
    staging: Path
    files: str = _NEW
    """Name, in `staging`, of the folder that new files are written to."""

    @classmethod
    def make(cls, log_dir: Path, name: str) -> Self:
        """Create the folder; remove the folders that killed runs left of the same partition."""
        remove_left(log_dir, name)
        suffix = f".{uuid.uuid4().hex}-delete"
        topic, _, partition = name.rpartition("-")
        # As UnifiedLog.logDirNameWithSuffixCappedLength.
        capped = topic[: _NAME_MAX - len(suffix) - len(partition) - 1]
        made = cls(log_dir, name, log_dir / f"{capped}-{partition}{suffix}")
        made._make(made.staging)
        made._write(made.staging / _MARK, name.encode())
        made._make(made.path)
        return made

    @property
    def path(self) -> Path:
        """The folder of the new files; that of the partition until `commit`."""
        return self.staging / self.files

    @property
    def target(self) -> Path:
        """The path of the partition's folder."""
        return self.log_dir / self.name

    def make_part(self) -> Self:
        """Make a folder for the files of one segment, which no other attempt to write them uses.

        Raise SpoolError if the staging folder is not there, as on an executor with another file system.
        """
        part = replace(self, files=f"part-{uuid.uuid4().hex}")
        if not self.staging.is_dir():
            raise SpoolError(
                f"{self.staging} is not there",
                hint="--engine spark needs log directories on a shared file system, under the same path on "
                "every executor; otherwise leave --engine out and run tierctl on the broker's machine",
            )
        part.path.mkdir()
        return part

    def take(self, part: str, names: Iterable[str], *, keep: bool = True) -> None:
        """Move the files with these names out of the folder `part` of `make_part`, and remove that.

        Unless `keep`, remove the files, too.
        """
        for name in names:
            if keep:
                PLAIN.rename(self.staging / part / name, self.path / name)
            else:
                PLAIN.unlink(self.staging / part / name)
        PLAIN.rmdir(self.staging / part)

    @contextmanager
    def opened(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Yield the function that writes to a new file; the file is durable at the end."""
        path = self.path / name
        fd = PLAIN.create(path)
        try:
            make_like(fd, self._pattern)
            yield lambda data: PLAIN.write(fd, data, path)
            PLAIN.sync(fd, path)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """Write a new file durably."""
        with self.opened(name) as write:
            write(data)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file of the folder."""
        PLAIN.rename(self.path / name, self.path / new_name)

    def sync(self) -> None:
        """Make the names of the files durable."""
        PLAIN.sync_folder(self.path)
        PLAIN.sync_folder(self.staging)

    def set_old_aside(self) -> None:
        """Move the partition's present folder into the staging folder."""
        PLAIN.rename(self.target, self.staging / _OLD)
        PLAIN.sync_folder(self.staging)
        PLAIN.sync_folder(self.log_dir)

    def commit(self) -> None:
        """Rename the folder to the partition's: from now on a broker loads it."""
        PLAIN.rename(self.path, self.target)
        PLAIN.sync_folder(self.log_dir)

    def discard(self) -> None:
        """Remove the staging folder and its content."""
        shutil.rmtree(self.staging)

    @property
    def _pattern(self) -> Path:
        """A file whose owner and mode the new files get: one that the broker can read."""
        return self.log_dir / META_PROPERTIES

    def _make(self, path: Path) -> None:
        PLAIN.make_folder(path)
        if os.geteuid() == 0:
            owner = self.log_dir.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    def _write(self, path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data)
            os.fsync(file.fileno())


def remove_left(log_dir: Path, name: str) -> None:
    """Remove the staging folders that killed runs left of partition `name`."""
    for left in _left(log_dir, name):
        shutil.rmtree(left)


def former_folder(log_dir: Path, name: str) -> Path:
    """Return the folder of partition `name`, also if a run was killed after it had set the folder aside."""
    folder = log_dir / name
    aside = (left / _OLD for left in _left(log_dir, name) if (left / _OLD).is_dir())
    return folder if folder.is_dir() else next(aside, folder)


def _left(log_dir: Path, name: str) -> Iterator[Path]:
    for left in log_dir.glob("*-delete"):
        mark = left / _MARK
        if mark.is_file() and mark.read_text() == name:
            yield left


@dataclass(slots=True)
class LogState:
    """The state of a log up to `next_offset`."""

    next_offset: int
    largest_timestamp_ms: int = NO_TIMESTAMP
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    last_batches: dict[int, BatchHead] = field(default_factory=dict)
    """The last batch with records of each producer that began a transaction."""

    def open_producers(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, as a producer snapshot has them.

        Those without one are left out: their ids are of another cluster, and a new producer with the same id
        would be fenced.
        """
        open_now = sorted(self.transactions.first_offsets.items())
        return [entry_of(self.last_batches[producer_id], first) for producer_id, first in open_now]

    def follow(self, changes: Iterable[Change]) -> list[AbortedTxn]:
        """Apply the changes that the next segment makes; return the transactions that they abort."""
        aborted: list[AbortedTxn] = []
        for head, marker in changes:
            if not head.is_control:
                self.last_batches[head.producer_id] = head
            ended = self.transactions.append(marker, head)
            if ended is not None:
                aborted.append(ended)
        return aborted


@dataclass(slots=True)
class SegmentChanges:
    """Collects the changes that one segment makes to the transactions of its log.

    Of the batches of a transaction only the first and the last matter, and the last only while it is open.
    """

    _changes: list[Change] = field(default_factory=list)
    _last: dict[int, BatchHead] = field(default_factory=dict)

    def append(self, buf: bytes, head: BatchHead) -> None:
        """Add the segment's next transactional batch; `head` is its header in `buf`."""
        moved = head._replace(position=0)
        if head.is_control:
            self._changes.append((moved, buf[head.position : head.end]))
            # Compaction may remove the marker from its batch; an empty batch ends no transaction.
            if head.record_count:
                self._last.pop(head.producer_id, None)
            return
        if head.producer_id not in self._last:
            self._changes.append((moved, b""))
        self._last[head.producer_id] = moved

    def all(self) -> tuple[Change, ...]:
        """Return the changes in the order of the log, and then the last batch of each open transaction."""
        return (*self._changes, *((head, b"") for head in self._last.values()))


_EPOCH_BYTES = np.arange(LEADER_EPOCH_AT, MAGIC_AT)
"""The positions of partitionLeaderEpoch in a batch."""
_CHUNK_BYTES = 1 << 20
_RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """The offsets [from_offset, to_offset] of a remote segment, which are written to one local segment.

    The first part of a log (`is_first`) keeps the whole batch that contains `from_offset`: the log start
    offset hides its first records. The last part (`is_last`) keeps only the first records of the batch that
    contains `to_offset`. A part has no batch if compaction has removed all its records.
    """

    metadata: RemoteLogSegmentMetadata
    from_offset: int
    to_offset: int
    is_first: bool = False
    is_last: bool = False

    @property
    def name(self) -> str:
        """The segment's name in messages."""
        m = self.metadata
        return f"remote segment {m.segment_id} of {m.topic}-{m.partition} from offset {m.start_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInput:
    """A part to write into a folder of `log`.

    `before` is the state of the log before its last part; None for the other parts. It is needed to end the
    transactions that are still open: their own markers are not in the log, and readers would wait for them
    for ever.
    """

    part: SegmentPart
    log: NewFolder
    before: LogState | None = None


def write_part(digests: frozenset[bytes], context: SideEffectContext, work: PartInput) -> SideEffectResult:
    """Fetch the segment of one part, and write the part's files except the transaction index.

    Records whose key has its SHA-256 among `digests` are written without key, value and headers. The result
    has a CorruptInputError if the bytes do not agree with the metadata.
    """
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        folder = work.log.make_part()
        if not _fetch(work.part.metadata, folder.path / _RAW, context):
            return SideEffectResult(begun=True, stopped=True)
        with effect("materialise.segment.write"):
            written = _write(work, folder, digests)
        PLAIN.unlink(folder.path / _RAW)
    except TransferStopped:
        return SideEffectResult(begun=True, stopped=True)
    except TierctlError as e:
        return SideEffectResult(begun=True, error=e)
    except OSError as e:
        return SideEffectResult(begun=True, error=disk_error(e, work.log.log_dir))
    context.advance(work.part.metadata.segment_size_in_bytes)
    return SideEffectResult(begun=True, written=written)


def disk_error(error: OSError, folder: Path) -> SpoolError:
    """Return the error of a log that could not be written into `folder`."""
    return SpoolError(
        f"writing {error.filename or folder}: {error.strerror or error}",
        hint="the partition was not changed: free disk space, then run again",
    )


def _fetch(metadata: RemoteLogSegmentMetadata, path: Path, context: SideEffectContext) -> bool:
    """Write the log of a segment to `path`, at most one byte more than its metadata states.

    Return False if the run was told to stop.
    """
    left = metadata.segment_size_in_bytes + 1
    with context.remote.fetch_log_segment(metadata, 0) as stream, path.open("wb") as file:
        while left and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            if context.stop.asked():
                return False
            file.write(chunk)
            left -= len(chunk)
    return True


def _write(work: PartInput, folder: NewFolder, digests: frozenset[bytes]) -> WrittenSegment:
    part = work.part
    with FileBytes(folder.path / _RAW) as file, folder.opened("segment") as write:
        writer = _Writer(part=part, digests=digests, write=write)
        heads = writer.heads(file, work.before)
        first = list(islice(heads, 1))
        base = min([part.from_offset, *(head.base_offset for head in first)])
        offsets, times = build_indexes(chain(first, heads), base)
    folder.rename("segment", log_name(base))
    for name, data in zip(index_names(base), (offsets.data, times.data), strict=True):
        folder.write(name, data)
    return WrittenSegment(
        folder=folder.files,
        base_offset=base,
        next_offset=writer.next_offset,
        size_bytes=writer.position,
        largest_timestamp_ms=writer.largest_timestamp_ms,
        changes=writer.changes.all(),
        emptied=tuple(writer.emptied),
    )


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes the batches of a part, and yields their heads with the positions in the new file."""

    part: SegmentPart
    digests: frozenset[bytes]
    write: Callable[[bytes], None]
    emptied: list[KeyRecord] = field(default_factory=list)
    changes: SegmentChanges = field(default_factory=SegmentChanges)
    next_offset: int = 0
    largest_timestamp_ms: int = NO_TIMESTAMP
    position: int = 0

    def heads(self, file: FileBytes, before: LogState | None) -> Iterator[BatchHead]:
        """Write the batches of `file`; yield the header of each batch after it is written."""
        metadata, name = self.part.metadata, self.part.name
        if file.size_bytes != metadata.segment_size_in_bytes:
            raise _wrong(name, f"{metadata.segment_size_in_bytes} bytes", f"{file.size_bytes}")
        is_empty = True
        for window in scan_windows(file, 0, metadata.start_offset):
            _require_sound(window, name)
            is_empty &= not len(window.heads)
            if window.next_offset > metadata.end_offset + 1:
                raise _wrong(name, f"a last offset {metadata.end_offset}", str(window.next_offset - 1))
            yield from self._window(window)
        if is_empty:
            raise _wrong(name, f"batches from offset {metadata.start_offset} on", "none")
        self.next_offset = self.part.to_offset + 1
        if before is not None:
            yield from self._abort_open(before)

    def _window(self, window: Window) -> Iterator[BatchHead]:
        heads, part = window.heads, self.part
        if not len(heads):
            return
        first = int(np.searchsorted(heads.next_offsets, part.from_offset, side="right"))
        end = int(np.searchsorted(heads.base_offsets, part.to_offset, side="right"))
        if first >= end:
            return
        base = int(heads.base_offsets[first])
        if base < part.from_offset and not part.is_first:
            raise _wrong(part.name, f"a batch that begins at offset {part.from_offset}", str(base))
        cut = int(heads.next_offsets[end - 1]) > part.to_offset + 1
        if cut and not part.is_last:
            raise _wrong(part.name, f"a batch that ends at offset {part.to_offset}", "one that goes on")
        whole = end - 1 if cut else end
        if first < whole:
            yield from self._without_keys(window.data, heads, first, whole)
        if cut:
            kept = batch_before(window.data, heads.head(end - 1), part.to_offset + 1)
            if kept:
                yield from self._without_keys(kept, scan_heads(kept), 0, 1)

    def _without_keys(self, data: bytes, heads: HeadColumns, first: int, end: int) -> Iterator[BatchHead]:
        """Write the batches in rows [first, end) of `heads`, their records with one of the keys emptied."""
        for row, offsets in self._found(data, heads, first, end).items():
            if first < row:
                yield from self._batches(data, heads, first, row)
            emptied = batch_emptied(data, heads.head(row), offsets)
            yield from self._batches(emptied, scan_heads(emptied), 0, 1)
            first = row + 1
        if first < end:
            yield from self._batches(data, heads, first, end)

    def _found(self, data: bytes, heads: HeadColumns, first: int, end: int) -> dict[int, set[int]]:
        """Return, by row and ascending, the offsets of records with one of the keys."""
        if not self.digests:
            return {}
        batches = (batch_at(data, head) for head in map(heads.head, range(first, end)) if not head.is_control)
        found: dict[int, set[int]] = {}
        base_offsets = heads.base_offsets
        try:
            for columns in record_columns(batches, RecordBatch.records):
                for record in matching_records(columns, self.digests):
                    row = int(np.searchsorted(base_offsets, record.offset, side="right")) - 1
                    found.setdefault(row, set()).add(record.offset)
                    self.emptied.append(record)
        except CorruptInputError as e:
            raise e.within(self.part.name) from None
        return found

    def _batches(self, data: bytes, heads: HeadColumns, first: int, end: int) -> Iterator[BatchHead]:
        """Write the batches in rows [first, end) of `heads`."""
        start = int(heads.positions[first])
        stop = int(heads.positions[end - 1] + heads.sizes_bytes[end - 1])
        changed = np.frombuffer(data, np.uint8, stop - start, start).copy()
        has_epoch = heads.fields["magic"][first:end] >= MAGIC
        changed[(heads.positions[first:end][has_epoch] - start)[:, None] + _EPOCH_BYTES] = 0
        self.write(changed.tobytes())
        transactional = np.flatnonzero(heads.fields["attributes"][first:end] & TRANSACTIONAL) + first
        for head in map(heads.head, transactional.tolist()):
            self.changes.append(data, head)
        shift = self.position - start
        self.position += stop - start
        latest_ms = int(heads.fields["max_timestamp_ms"][first:end].max())
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, latest_ms)
        for head in map(heads.head, range(first, end)):
            yield head._replace(position=head.position + shift)

    def _abort_open(self, before: LogState) -> Iterator[BatchHead]:
        """Append an abort marker for each open transaction, in the order of their first offsets."""
        state = deepcopy(before)
        state.follow(self.changes.all())
        latest_ms = max(before.largest_timestamp_ms, self.largest_timestamp_ms)
        open_now = sorted(state.transactions.first_offsets.items(), key=lambda item: item[1])
        for producer_id, _ in open_now:
            marker = encode_abort_marker(
                self.next_offset,
                latest_ms,
                producer_id=producer_id,
                producer_epoch=state.last_batches[producer_id].producer_epoch,
            )
            yield from self._batches(marker, scan_heads(marker), 0, 1)
            self.next_offset += 1


def _require_sound(window: Window, name: str) -> None:
    """Raise CorruptInputError if a batch of the window is damaged or cut."""
    if window.heads.bad:
        raise window.heads.bad[0].error.within(name, base=window.position)
    torn = window.heads.torn
    if torn is not None:
        raise CorruptInputError(
            name,
            expected="a whole batch",
            found=f"{torn.size_bytes} bytes of one that was cut",
            at=window.position + torn.position,
        )


def _wrong(name: str, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError(
        name,
        expected=expected,
        found=found,
        hint="its objects are damaged: tierctl verify --deep lists the problems",
    )
