"""Write the logs of partitions from the segments of a tier, and put them in a stopped broker's directory.

The engine writes the segments, side by side; the files of the whole log are written here, and so are the
renames by which a broker gets it.

A signed list per partition has the records that the new log has without key, value and headers. It is a file
of JSON lines: the first describes the log, each other one a record. Its signature is in a file with the same
name and the suffix `.sig`. The same log has the same list, so that a second replica, or a second run, changes
nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierctl.apply.log_folder import LogState, NewFolder, PartInput, SegmentPart, disk_error, write_part
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.run import Act, Run
from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import SideEffectResult, WrittenSegment, effect
from tierctl.apply.to_metadata import merge_offsets
from tierctl.errors import RemoteResourceNotFound, TierctlError
from tierctl.files import PLAIN, read_regular, write_durably
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.plan.materialise import AS_TOPIC, AS_TOPIC_ID, SEGMENTS
from tierctl.plan.steps import LOG_DIR, Step
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.indexes import TransactionIndex

if TYPE_CHECKING:
    from tierctl.apply.signing import SigningKey

FORMAT = "tierctl-left-out/1"
_SIGNATURE_SUFFIX = ".sig"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A list whose signature is right.

    `log` is its first line. `segments` has base offset and size of each segment of the log, `keys` the
    SHA-256 of each key that occurred, and `records` counts the records.
    """

    log: Mapping[str, Any]
    segments: tuple[tuple[int, int], ...]
    keys: frozenset[bytes]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The keys whose records are erased (as SHA-256), the folder of the lists, and the signing key."""

    digests: frozenset[bytes]
    lists: Path
    key: SigningKey

    @property
    def keys_sha256(self) -> str:
        """The SHA-256 of all digests in ascending order, in hex: the same for the same keys."""
        return hashlib.sha256(b"".join(sorted(self.digests))).hexdigest()

    def path(self, partition: TopicPartition) -> Path:
        """Return the file of the list of a new log."""
        return self.lists / f"{partition}.jsonl"

    def write(
        self,
        partition: TopicPartition,
        log: Mapping[str, Any],
        segments: Iterable[tuple[int, int]],
        rows: Iterable[Mapping[str, Any]],
    ) -> None:
        """Write the list of a new log and its signature durably; raises OSError."""
        sizes = [{"base_offset": base, "size_bytes": size} for base, size in segments]
        keys = {"keys": len(self.digests), "keys_sha256": self.keys_sha256}
        head = {"format": FORMAT, **log, **keys, "segments": sizes}
        data = b"".join(json.dumps(row).encode() + b"\n" for row in (head, *rows))
        path = self.path(partition)
        PLAIN.make_folder(self.lists)
        for file, content in ((path, data), (_signature_of(path), self.key.sign(data))):
            write_durably(file, [content], mode=0o666)

    def read(self, partition: TopicPartition) -> LeftOut | None:
        """Return the list of a new log for these keys; None if there is none that the key has signed."""
        path = self.path(partition)
        try:
            data, signature = read_regular(path), read_regular(_signature_of(path))
        except FileNotFoundError:
            return None
        if not self.key.has_signed(data, signature):
            return None
        head, *rows = (json.loads(line) for line in data.splitlines())
        if head["format"] != FORMAT or head["keys_sha256"] != self.keys_sha256:
            return None
        return LeftOut(
            log=head,
            segments=tuple((each["base_offset"], each["size_bytes"]) for each in head["segments"]),
            keys=frozenset(bytes.fromhex(row["key_sha256"]) for row in rows),
            records=len(rows),
        )


def _signature_of(path: Path) -> Path:
    return path.with_name(path.name + _SIGNATURE_SUFFIX)


@dataclass(slots=True)
class _NewLog:
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
            error = disk_error(e, Path(self.step.details[LOG_DIR]))
            self.outcome = Outcome(step=self.step, status=Status.FAILED, error=error)

    def begin(self, context: RunContext) -> None:
        """Create the staging folder; raise RemoteResourceNotFound if a segment was deleted."""
        parts = _parts(self.step, context)
        with effect("materialise.staging.create"):
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
        """Write the other files of the log, then the list of emptied records, and make it the partition's."""
        start, end = self.step.start_offset or 0, self._state.next_offset
        bases = [each.base_offset for each in self._written if each.size_bytes]
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
        _commit(self.folder, self.new_partition, start, end)

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
        """Remove the staging folder if it still exists."""
        if self._made is not None:
            shutil.rmtree(self._made.staging, ignore_errors=True)


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
    logs = [_NewLog(step, removal) for step in steps]
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
    work: Sequence[tuple[_NewLog, SegmentPart]], context: RunContext, removal: Removal | None
) -> None:
    """Write parts in waves; skip the parts of a log that has an outcome already."""
    write = partial(write_part, frozenset() if removal is None else removal.digests)
    for wave in context.waves(work):
        begun = [(log, part) for log, part in wave if log.outcome is None]
        inputs = [log.input_of(part) for log, part in begun]
        results = context.engine.map(write, inputs, context.side_effect_context())
        for (log, _), result in zip(begun, results, strict=True):
            if log.outcome is None:
                with log.attempted():
                    log.take(result)


def _commit(made: NewFolder, partition: TopicPartition, start_offset: int, end_offset: int) -> None:
    """Write the checkpoints of the log, then exchange the folders.

    The checkpoints are first: a broker that knew none would take deleted records back, and read the whole log
    again after a crash. Of an empty log they only raise the log start offset.
    """
    with effect("materialise.checkpoints.write"):
        merge_offsets(made.log_dir / LOG_STARTS_FILE, {partition: start_offset})
        merge_offsets(made.log_dir / RECOVERY_POINTS_FILE, {partition: end_offset})
        merge_offsets(made.log_dir / HIGH_WATERMARKS_FILE, {partition: end_offset})
    if made.target.exists():
        with effect("materialise.old_folder.rename"):
            made.set_old_aside()
    with effect("materialise.partition.rename"):
        made.commit()
    with effect("materialise.staging.delete"):
        made.discard()


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
