"""Write the logs of partitions from the segments of a tier, and put them in a stopped broker's directory.

The engine writes the segments, side by side; the files of the whole log are written here, and so are the
renames by which a broker gets it.

One segment is written from the bytes of a remote segment, in this process or on an executor. Every batch is
checked with its CRC and gets leader epoch 0, which the CRC does not cover. The offset index and the time
index are built from the batches; those of the tier are not read. The files are written to a separate folder,
from which the process that writes the log moves them. Segments are written independently of each other: each
returns its changes of transactions, which are applied in the order of the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tierctl.apply.run import Act, Run
from tierctl.apply.run_context import (
    STOPPED,
    Change,
    Outcome,
    RunContext,
    SideEffectContext,
    SideEffectResult,
    Status,
    WrittenSegment,
    effect,
    index_names,
    log_name,
)
from tierctl.commands.restore.erasure import Removal
from tierctl.commands.restore.new_logs import (
    UNCHANGED,
    NewFolder,
    back_up_checkpoints,
    disk_error,
    merge_checkpoints,
)
from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    TierctlError,
    TransferStopped,
    UsageError,
)
from tierctl.files import PLAIN, FileBytes
from tierctl.locallog.log_end import ProducerTable
from tierctl.model import EpochEntry, RemoteLogSegmentMetadata, TopicPartition, Uuid
from tierctl.plan.steps import AS_TOPIC, AS_TOPIC_ID, LOG_DIR, SEGMENTS, Step
from tierctl.read.tasks import KeyRecord, matching_records
from tierctl.wire.batches.batch_head import (
    LEADER_EPOCH_AT,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHead,
)
from tierctl.wire.batches.record_batch import (
    RecordBatch,
    batch_at,
    batch_before,
    batch_emptied,
    encode_abort_marker,
)
from tierctl.wire.batches.records import record_columns
from tierctl.wire.batches.scan import HeadColumns, scan_heads
from tierctl.wire.batches.segment_file import Window, highest_offset_of, scan_windows
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    ProducerEntry,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex, build_indexes


@dataclass(slots=True)
class LogState:
    """The state of a log up to `next_offset`."""

    next_offset: int
    largest_timestamp_ms: int = NO_TIMESTAMP
    producers: ProducerTable = field(default_factory=ProducerTable)
    """The producers that began a transaction."""

    def open_producers(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, as a producer snapshot has them.

        Those without one are left out: their ids are of another cluster, and a new producer with the same id
        would be fenced.
        """
        found = (entry._replace(coordinator_epoch=-1) for entry in self.producers.with_transaction())
        return sorted(found, key=lambda entry: entry.producer_id)

    def follow(self, changes: Iterable[Change]) -> list[AbortedTxn]:
        """Apply the changes that the next segment makes; return the transactions that they abort."""
        ended = (self.producers.append(marker, head) for head, marker in changes)
        return [each for each in ended if each is not None]


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
        return SideEffectResult(begun=True, error=disk_error(e, work.log.log_dir, UNCHANGED))
    context.advance(work.part.metadata.segment_size_in_bytes)
    return SideEffectResult(begun=True, written=written)


def _fetch(metadata: RemoteLogSegmentMetadata, path: Path, context: SideEffectContext) -> bool:
    """Write the log of a segment to `path`, at most one byte more than its metadata states.

    Return False if the run was told to stop.
    """
    left = metadata.segment_size_in_bytes + 1
    with (
        context.remote.fetch_log_segment(metadata, 0) as stream,
        os.fdopen(PLAIN.create(path), "wb") as file,
    ):
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
        start, highest = metadata.start_offset, highest_offset_of(metadata.start_offset)
        for window in scan_windows(file, 0, start, highest_offset=highest):
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
        for entry in state.producers.with_transaction():
            marker = encode_abort_marker(
                self.next_offset, latest_ms, producer_id=entry.producer_id, producer_epoch=entry.epoch
            )
            yield from self._batches(marker, scan_heads(marker), 0, 1)
            self.next_offset += 1


def abort_markers_bytes(log: Path, first: int, end: int) -> int | None:
    """Return the bytes of the abort markers at offsets [first, end), with which the file of a segment ends.

    Return None if anything else is at these offsets. Raise OSError if the file can't be read.
    """
    offset, size_bytes, base = first, 0, int(log.stem)
    with FileBytes(log) as file:
        for window in scan_windows(file, 0, base, highest_offset=highest_offset_of(base)):
            heads = window.heads
            if heads.bad or heads.torn is not None:
                return None
            for head in map(heads.head, np.flatnonzero(heads.next_offsets > first).tolist()):
                found = window.data[head.position : head.end]
                marker = encode_abort_marker(
                    offset,
                    head.max_timestamp_ms,
                    producer_id=head.producer_id,
                    producer_epoch=head.producer_epoch,
                )
                if found != marker:
                    return None
                offset += 1
                size_bytes += len(marker)
    return size_bytes if offset == end else None


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


@dataclass(slots=True)
class _WrittenLog:
    """The log of one step while it is written; it has an `outcome` once that is not DONE."""

    step: Step
    removal: Removal | None
    outcome: Outcome | None = None
    parts: Sequence[SegmentPart] = ()
    _made: NewFolder | None = None
    _written: list[WrittenSegment] = field(default_factory=list)
    _snapshots: list[bytes] = field(default_factory=list)
    _state: LogState = field(default_factory=lambda: LogState(0))

    @property
    def folder(self) -> NewFolder:
        """The staging folder of the log; available after `begin`."""
        if self._made is None:
            raise RuntimeError("the log was not begun")
        return self._made

    @property
    def new_partition(self) -> TopicPartition:
        """The new partition."""
        return TopicPartition(self.step.details[AS_TOPIC], self.step.partition)

    @contextmanager
    def attempted(self) -> Iterator[None]:
        """Let an error in the block be the outcome."""
        try:
            yield
        except TierctlError as e:
            self.outcome = Outcome(step=self.step, status=Status.FAILED, error=e)
        except OSError as e:
            error = disk_error(e, Path(self.step.details[LOG_DIR]), UNCHANGED)
            self.outcome = Outcome(step=self.step, status=Status.FAILED, error=error)

    def begin(self, context: RunContext) -> None:
        """Create the staging folder; raise RemoteResourceNotFound if a segment was deleted."""
        parts = _parts(self.step, context)
        self._made = NewFolder.make(Path(self.step.details[LOG_DIR]), str(self.new_partition))
        self._state = LogState(next_offset=parts[0].from_offset)
        self.parts = parts

    def input_of(self, part: SegmentPart) -> PartInput:
        """Return the input of `write_part`; that of the last part needs the results of all others."""
        return PartInput(part=part, log=self.folder, before=self._state if part is self.parts[-1] else None)

    def take(self, result: SideEffectResult) -> None:
        """Add the files of the next part to the log, and its transaction index; raise its error."""
        if result.stopped:
            self.outcome = Outcome(step=self.step, status=Status.PENDING, reason=STOPPED)
            return
        written = result.written
        if result.error is not None:
            raise result.error
        if written is None:
            raise RuntimeError("a part was neither written nor failed")
        self.folder.take(written.folder, written.file_names, keep=written.size_bytes > 0)
        state = self._state
        aborted = state.follow(written.changes)
        if aborted:
            index = TransactionIndex(tuple(aborted)).encode()
            self.folder.write(f"{written.base_offset:020d}.txnindex", index)
        state.next_offset = written.next_offset
        state.largest_timestamp_ms = max(state.largest_timestamp_ms, written.largest_timestamp_ms)
        self._written.append(replace(written, changes=()))
        if written.size_bytes:
            self._snapshots.append(encode_producer_snapshot(state.open_producers()))

    def finish(self, context: RunContext) -> None:
        """Write the other files of the log, then the list of emptied records, and make it the partition's.

        Raise UsageError if compaction has removed every record of the log.
        """
        start, end = self.step.start_offset or 0, self._state.next_offset
        bases = [each.base_offset for each in self._written if each.size_bytes]
        if not bases:
            raise UsageError(
                f"{self.step.topic}-{self.step.partition}: the tier has no record from offset {start} to "
                f"{self.step.end_offset}, because compaction removed them: there is no log to write",
                hint="name a higher offset or time with --until, or leave the partition out",
            )
        # A broker copies a segment to a tier only if there is a snapshot at the next one.
        for offset, snapshot in zip((*bases[1:], end), self._snapshots, strict=True):
            self.folder.write(f"{offset:020d}.snapshot", snapshot)
        self.folder.write(f"{end:020d}.log", b"")
        self.folder.write(LEADER_EPOCHS_FILE, write_leader_epoch_checkpoint([EpochEntry(0, start)]))
        topic_id = Uuid.parse(self.step.details[AS_TOPIC_ID])
        self.folder.write(PARTITION_METADATA_FILE, write_partition_metadata(topic_id))
        self.folder.sync()
        if self.removal is not None:
            # The list is written before the log is moved into place, so that no log without these records
            # exists without its list.
            with effect("materialise.left_out.write"):
                self._write_list(self.removal, context)
        # The checkpoints are first: a broker that knew none would take deleted records back, and read the
        # whole log again after a crash. Of an empty log they only raise the log start offset.
        merge_checkpoints(self.folder.log_dir, {self.new_partition: (start, end)})
        self.folder.exchange()

    def _write_list(self, removal: Removal, context: RunContext) -> None:
        step = self.step
        log = {
            "topic": step.topic,
            "topic_id": str(step.topic_id),
            "partition": step.partition,
            AS_TOPIC: step.details[AS_TOPIC],
            AS_TOPIC_ID: step.details[AS_TOPIC_ID],
            "start_offset": step.start_offset,
            "end_offset": step.end_offset,
        }
        rows = [
            {
                "topic": step.topic,
                "partition": step.partition,
                **record._asdict(),
                "segment_id": str(part.metadata.segment_id),
                "object": context.remote.name_of(part.metadata),
            }
            for part, written in zip(self.parts, self._written, strict=True)
            for record in written.emptied
        ]
        sizes = [(each.base_offset, each.size_bytes) for each in self._written if each.size_bytes]
        removal.write(self.new_partition, log, sizes, rows)

    def discard(self) -> None:
        """Discard the staging folder if it still exists."""
        if self._made is not None:
            self._made.discard()


def groups(steps: Sequence[Step], segments_min: int) -> Iterator[list[Step]]:
    """Yield consecutive slices of `steps` that have `segments_min` segments or more, the last one fewer."""
    group: list[Step] = []
    for step in steps:
        group.append(step)
        if sum(len(each.details[SEGMENTS]) for each in group) >= segments_min:
            yield group
            group = []
    if group:
        yield group


def materialise_act(removal: Removal | None) -> Act:
    """Return the act of MATERIALISE_PARTITION; with `removal`, the records of its keys are emptied."""

    def materialise(run: Run, steps: Sequence[Step]) -> None:
        for log_dir in sorted({Path(step.details[LOG_DIR]) for step in steps}):
            try:
                back_up_checkpoints(log_dir)
            except OSError as e:
                raise disk_error(e, log_dir, UNCHANGED) from None
        for group in groups(steps, run.context.wave_size):
            run.attempt(
                group, lambda kept: materialise_partitions(kept, run.context, removal), rechecked=True
            )

    return materialise


def materialise_partitions(
    steps: Sequence[Step], context: RunContext, removal: Removal | None
) -> list[Outcome]:
    """Write the log of each of `steps`, and make it the partition's log; the caller holds the brokers' locks.

    With `removal`, the records of its keys are emptied, and a signed list names them. Until the last rename a
    partition's folder is unchanged. After an error or a request to stop, no part of the new log is left.
    Raise TierctlError if the engine can't accept work.
    """
    context.engine.ready()
    logs = [_WrittenLog(step, removal) for step in steps]
    try:
        for log in logs:
            with log.attempted():
                log.begin(context)
        _write_parts([(log, part) for log in logs for part in log.parts[:-1]], context, removal)
        # The last part of each log is written after all others, because it ends the transactions that they
        # left open.
        _write_parts([(log, part) for log in logs for part in log.parts[-1:]], context, removal)
        for log in logs:
            if log.outcome is None:
                with log.attempted():
                    log.finish(context)
    finally:
        for log in logs:
            log.discard()
    return [log.outcome or Outcome(step=log.step, status=Status.DONE) for log in logs]


def _write_parts(
    work: Sequence[tuple[_WrittenLog, SegmentPart]], context: RunContext, removal: Removal | None
) -> None:
    """Write parts in waves; skip the parts of a log that has an outcome already."""
    write = partial(write_part, frozenset() if removal is None else removal.digests)
    for wave in context.waves(work):
        begun = [(log, part) for log, part in wave if log.outcome is None]
        inputs = [log.input_of(part) for log, part in begun]
        results = context.engine.begin(write, inputs, context.side_effect_context())()
        for (log, _), result in zip(begun, results, strict=True):
            if log.outcome is None:
                with log.attempted():
                    log.take(result)


def _parts(step: Step, context: RunContext) -> list[SegmentPart]:
    """Return the parts of segments that the step names; raise RemoteResourceNotFound if one was deleted."""
    named = step.details[SEGMENTS]
    parts = []
    for number, each in enumerate(named):
        segment_id = each["segment_id"]
        metadata = context.metadata.state.segment(step.topic_id_partition, Uuid.parse(segment_id))
        if metadata is None:
            raise RemoteResourceNotFound(
                f"segment {segment_id} was deleted in the meantime", hint="plan again"
            )
        parts.append(
            SegmentPart(
                metadata=metadata,
                from_offset=each["start_offset"],
                to_offset=each["end_offset"],
                is_first=number == 0,
                is_last=number == len(named) - 1,
            )
        )
    return parts
