"""Write one segment of a local log from the bytes of a remote segment: the log and its three indexes.

Every batch is checked with its CRC and gets leader epoch 0, which the CRC does not cover. The indexes are
built from the batches, so those in the tier are not read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from tierctl.apply.materialise.new_folder import NewFolder
from tierctl.errors import CorruptInputError
from tierctl.files import FileBytes
from tierctl.locallog.producer_state import OpenTransactions
from tierctl.locallog.producers import entry_of
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.wire.batches.batch_heads import (
    LEADER_EPOCH_AT,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHead,
    scan,
)
from tierctl.wire.batches.head_columns import HeadColumns
from tierctl.wire.batches.record_batch import encode_abort_marker
from tierctl.wire.batches.segment_file import Window, scan_windows
from tierctl.wire.batches.truncation import batch_before
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex, build_indexes
from tierctl.wire.files.producer_snapshot import ProducerEntry

_EPOCH_BYTES = np.arange(LEADER_EPOCH_AT, MAGIC_AT)
"""The positions of partitionLeaderEpoch in a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """The offsets [from_offset, to_offset] of a remote segment, which are written to one local segment.

    `is_first` and `is_last` say that a batch with other offsets, too, may be there: the first part of a log
    keeps it whole, because the log start offset hides its first records; the last part keeps its first
    records only.
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


@dataclass(slots=True)
class LogState:
    """What a log is known to hold up to the last batch written."""

    next_offset: int
    largest_timestamp_ms: int = NO_TIMESTAMP
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    last_batches: dict[int, BatchHead] = field(default_factory=dict)
    """The last batch of records of each producer that began a transaction."""

    def open_producers(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, as a producer snapshot has them.

        Those without one are left out: their ids are of another cluster, and a new producer with the same id
        would be fenced.
        """
        open_now = sorted(self.transactions.first_offsets.items())
        return [entry_of(self.last_batches[producer_id], first) for producer_id, first in open_now]

    def follow(self, buf: bytes, heads: HeadColumns, first: int, end: int) -> Iterator[AbortedTxn]:
        """Apply the batches in rows [first, end) of `heads`; yield the transactions that they abort."""
        rows = np.flatnonzero(heads.fields["attributes"][first:end] & TRANSACTIONAL) + first
        for head in map(heads.head, rows.tolist()):
            yield from self.follow_batch(buf, head)

    def follow_batch(self, buf: bytes, head: BatchHead) -> Iterator[AbortedTxn]:
        """Apply one batch; yield the transaction that it aborts, if it does."""
        if not head.is_control:
            self.last_batches[head.producer_id] = head
        aborted = self.transactions.append(buf, head)
        if aborted is not None:
            yield aborted


def write_segment(part: SegmentPart, raw: Path, folder: NewFolder, state: LogState, *, ends_log: bool) -> int:
    """Write the files of `part` into `folder`, from the whole remote segment in the file `raw`.

    Update `state`. With `ends_log`, transactions that are still open are ended by abort markers after the
    last batch: their own markers are not in the log, and readers would wait for them for ever. Return the
    base offset of the segment. Raise CorruptInputError if the bytes are not what the metadata say.
    """
    with FileBytes(raw) as file, folder.opened("segment") as write:
        writer = _Writer(part=part, state=state, write=write)
        heads = writer.heads(file, ends_log=ends_log)
        first = next(heads)
        base = min(part.from_offset, first.base_offset)
        offsets, times = build_indexes(chain([first], heads), base)
    folder.rename("segment", f"{base:020d}.log")
    folder.write(f"{base:020d}.index", offsets.data)
    folder.write(f"{base:020d}.timeindex", times.data)
    if writer.aborted:
        folder.write(f"{base:020d}.txnindex", TransactionIndex(tuple(writer.aborted)).encode())
    return base


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes the batches of a part, and yields their heads with the positions in the new file."""

    part: SegmentPart
    state: LogState
    write: Callable[[bytes], None]
    aborted: list[AbortedTxn] = field(default_factory=list)
    position: int = 0

    def heads(self, file: FileBytes, *, ends_log: bool) -> Iterator[BatchHead]:
        """Write the batches of `file`; yield the head of each after it is written."""
        metadata, name = self.part.metadata, self.part.name
        if file.size_bytes != metadata.segment_size_in_bytes:
            raise _wrong(name, f"{metadata.segment_size_in_bytes} bytes", f"{file.size_bytes}")
        for window in scan_windows(file, 0, metadata.start_offset):
            _require_sound(window, name)
            if window.next_offset > metadata.end_offset + 1:
                raise _wrong(name, f"a last offset {metadata.end_offset}", str(window.next_offset - 1))
            yield from self._window(window)
        if not self.position:
            raise _wrong(name, f"batches from offset {self.part.from_offset} on", "none")
        self.state.next_offset = self.part.to_offset + 1
        if ends_log:
            yield from self._abort_open()

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
            yield from self._whole(window.data, heads, first, whole)
        if cut:
            yield from self._cut(window.data, heads.head(end - 1))

    def _whole(self, data: bytes, heads: HeadColumns, first: int, end: int) -> Iterator[BatchHead]:
        start = int(heads.positions[first])
        stop = int(heads.positions[end - 1] + heads.sizes_bytes[end - 1])
        changed = np.frombuffer(data, np.uint8, stop - start, start).copy()
        changed[(heads.positions[first:end] - start)[:, None] + _EPOCH_BYTES] = 0
        self.write(changed.tobytes())
        self.aborted += self.state.follow(data, heads, first, end)
        shift = self.position - start
        self.position += stop - start
        latest_ms = int(heads.fields["max_timestamp_ms"][first:end].max())
        self.state.largest_timestamp_ms = max(self.state.largest_timestamp_ms, latest_ms)
        for head in map(heads.head, range(first, end)):
            yield head._replace(position=head.position + shift)

    def _cut(self, data: bytes, head: BatchHead) -> Iterator[BatchHead]:
        kept = batch_before(data, head._replace(partition_leader_epoch=0), self.part.to_offset + 1)
        if kept:
            yield from self._batch(kept)

    def _batch(self, batch: bytes) -> Iterator[BatchHead]:
        """Write one batch that was made here."""
        (head,) = scan(batch)
        self.write(batch)
        self.aborted += self.state.follow_batch(batch, head) if head.is_transactional else ()
        self.state.largest_timestamp_ms = max(self.state.largest_timestamp_ms, head.max_timestamp_ms)
        yield head._replace(position=self.position)
        self.position += len(batch)

    def _abort_open(self) -> Iterator[BatchHead]:
        """Append an abort marker for each open transaction, in the order of their first offsets."""
        open_now = sorted(self.state.transactions.first_offsets.items(), key=lambda item: item[1])
        for producer_id, _ in open_now:
            marker = encode_abort_marker(
                self.state.next_offset,
                self.state.largest_timestamp_ms,
                producer_id=producer_id,
                producer_epoch=self.state.last_batches[producer_id].producer_epoch,
            )
            yield from self._batch(marker)
            self.state.next_offset += 1


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
        hint="its objects are damaged: tierctl verify --deep says what is wrong",
    )
