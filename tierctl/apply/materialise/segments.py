"""Write one segment of a local log from the bytes of a remote segment, in this process or on an executor.

Every batch is checked with its CRC and gets leader epoch 0, which the CRC does not cover. The offset index
and the time index are built from the batches; those of the tier are not read. The files are written to a
separate folder, from which the process that writes the log moves them.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tierctl.apply.labels import effect
from tierctl.apply.materialise.log_state import LogState, SegmentChanges
from tierctl.apply.materialise.new_folder import NewFolder
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult
from tierctl.apply.written_segment import WrittenSegment, index_names, log_name
from tierctl.errors import CorruptInputError, SpoolError, TierctlError, TransferStopped
from tierctl.files import PLAIN, FileBytes
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
from tierctl.wire.files.indexes import build_indexes

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
