"""The logs that partitions get in log directories of stopped brokers.

Until a new folder is renamed, it is in a folder with a name that a broker deletes (LogManager,
DeleteDirSuffix): a broker that starts before that does not load it, and removes it.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Self, TypeVar

from tierctl.apply.run import Run
from tierctl.apply.run_context import STOPPED, Outcome, Status, Stop, effect
from tierctl.commands.mutation import Mutation
from tierctl.commands.restore.inventory import TierSets, inputs_of
from tierctl.errors import CorruptInputError, FileNotAllowed, SafetyRefusal, SpoolError, TierctlError, hint_of
from tierctl.files import (
    PLAIN,
    backup_of,
    backups,
    exclusive,
    exclusive_replacement,
    exists,
    is_dir,
    is_file,
    make_like,
    open_itself,
    read_decoded,
    read_regular,
    replace_durably,
    write_durably,
)
from tierctl.locallog import ensure_stopped
from tierctl.locallog.folders import distinct_dirs, list_log_files, unknown_in_empty_log
from tierctl.model import (
    EpochEntry,
    ListedSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.plan.partition_choice import PartitionDecision, PartitionInputs, decide_partition
from tierctl.plan.steps import LOG_DIR, Action, Plan, Step
from tierctl.storage.object_sets import by_partition
from tierctl.wire.batches.record_batch import encode_abort_marker
from tierctl.wire.files.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    META_PROPERTIES,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    ProducerEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)

T = TypeVar("T")
_SHOWN_MAX = 5


def refusal_of(reasons: Iterable[tuple[TopicIdPartition, str]], hint: str) -> SafetyRefusal:
    """Return a SafetyRefusal that names the first partitions with their reasons, and counts the others."""
    shown = [f"{partition.topic_partition}: {reason}" for partition, reason in reasons]
    more = len(shown) - _SHOWN_MAX
    text = "; ".join(shown[:_SHOWN_MAX])
    return SafetyRefusal(f"{text}{f'; and {more} more partitions' if more > 0 else ''}", hint=hint)


def require_writable(refused: Mapping[TopicIdPartition, str], log_dirs: Iterable[Path]) -> None:
    """Raise SafetyRefusal if a partition forbids the plan, or a broker runs on a log directory."""
    if refused:
        hint = "leave these partitions out with --topic and --partition, or do what the reason says"
        raise refusal_of(sorted(refused.items()), hint)
    for log_dir in log_dirs:
        ensure_stopped(log_dir)


def written_dirs(run: Mutation) -> list[Path]:
    """Return the log directories of `run`, without repeated ones; with `apply`, lock them until it ends.

    Where no broker has run, no lock of a broker keeps other runs out. Raise LockedError, and OSError.
    """
    log_dirs = distinct_dirs(run.request.log_dir)
    for log_dir in log_dirs if run.request.apply else ():
        run.resources.enter(exclusive(log_dir))
    return log_dirs


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFolder:
    """The folder of partition `name` in a log directory of a stopped broker, before a log is written.

    `found` is the folder, None without one: a killed run may have set it aside. `topic_id` is None without a
    file that states it. `segments` has the base offset and the size in bytes of each local segment. `unknown`
    is the name of an entry that is no file of an empty log; None without one.
    """

    log_dir: Path
    name: TopicPartition
    found: Path | None = None
    topic_id: Uuid | None = None
    segments: Sequence[tuple[int, int]] = ()
    unknown: str | None = None

    @property
    def path(self) -> Path:
        """Return the path that the folder has for a broker."""
        return self.log_dir / str(self.name)

    @property
    def partition(self) -> TopicIdPartition | None:
        """Return the partition; None without a topic id."""
        if self.topic_id is None:
            return None
        return TopicIdPartition(self.topic_id, self.name.topic, self.name.partition)

    def has_files(self, files: Mapping[str, bytes]) -> bool:
        """Return whether the folder has exactly these files with this content."""
        return self.found is not None and _has_files(self.found, files)

    def why_kept(self) -> str | None:
        """Return why the folder must not be replaced, which deletes it; None if it has an empty log only."""
        if self.unknown is None:
            return None
        return (
            f"{(self.found or self.path) / self.unknown} would be deleted with the folder, of which only the "
            "files of an empty log are expected: find out what it is, and move it out of the folder"
        )

    @property
    def latest_epoch(self) -> int | None:
        """Return the last leader epoch of the folder; None if its files state none."""
        path = (self.found or self.path) / LEADER_EPOCHS_FILE
        entries = read_decoded(path, read_leader_epoch_checkpoint)
        return entries[-1].epoch if entries else None


def target_folders(log_dirs: Iterable[Path], name: TopicPartition) -> list[TargetFolder]:
    """Return the folders of partition `name`; raise CorruptInputError, with the path, for a damaged file.

    Raise SafetyRefusal if one of `log_dirs` has something else of this name, which may be a log.
    """
    log_dirs = list(log_dirs)
    for path in (log_dir / str(name) for log_dir in log_dirs):
        if exists(path, follow_symlinks=False) and not is_dir(path):
            raise SafetyRefusal(
                f"{path} is no folder: expected the log of {name}, or nothing",
                hint="if it is a link, mount the disk that it leads to; move anything else away",
            )
    folders = ((each, former_folder(each, str(name))) for each in log_dirs)
    return [_target_folder(log_dir, name, folder) for log_dir, folder in folders if is_dir(folder)]


def _target_folder(log_dir: Path, name: TopicPartition, folder: Path) -> TargetFolder:
    return TargetFolder(
        log_dir=log_dir,
        name=name,
        found=folder,
        topic_id=read_decoded(folder / PARTITION_METADATA_FILE, read_partition_metadata),
        segments=[(each.base_offset, each.log.stat().st_size) for each in list_log_files(folder).segments],
        unknown=unknown_in_empty_log(folder),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """A partition with objects in the tier, and its folders in the log directories that are restored into.

    `decision` states which of its segments are restored. `snapshot` is the producer snapshot of the last one.
    """

    inputs: PartitionInputs
    decision: PartitionDecision
    snapshot: bytes | None = None
    targets: Sequence[TargetFolder] = ()

    def new_log(self, partition: TopicIdPartition, log_dir: Path, *, has_producers: bool) -> "NewLog | None":
        """Return the log that continues the chain of segments as `partition`; None without a segment."""
        chain, lineage = self.decision.choice.chain, self.decision.lineage
        if not chain:
            return None
        start, tier_end = max(self.decision.start_offset, chain[0].start_offset), chain[-1].end_offset + 1
        return NewLog(
            partition=partition,
            log_dir=log_dir,
            start_offset=start,
            tier_end=tier_end,
            leader_epochs=lineage.truncate_from_start(start).truncate_from_end(tier_end).entries,
            latest_epoch=lineage.entries[-1].epoch,
            snapshot=self.snapshot,
            timestamp_ms=max(segment.max_timestamp_ms for segment in chain),
            has_producers=has_producers,
        )


def partition_sources(
    tier: TierSets,
    listed: Sequence[ListedSet],
    log_dirs: Sequence[Path],
    known: Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]] = lambda _: (),
) -> list[PartitionSource]:
    """Return the partitions of the sets `listed`; no log judges them.

    `known` returns the segments of a partition that are in the metadata.
    """
    all_inputs = [
        inputs_of(partition, own, known(partition))
        for partition, own in by_partition(tier.derived(listed)).items()
    ]
    decided = [(inputs, decide_partition(inputs)) for inputs in all_inputs]
    last = [decision.choice.chain[-1] for _, decision in decided if decision.choice.chain]
    snapshots = tier.producer_snapshots(last)
    return [
        PartitionSource(
            inputs=inputs,
            decision=decision,
            snapshot=snapshots.get(inputs.partition),
            targets=target_folders(log_dirs, inputs.partition.topic_partition),
        )
        for inputs, decision in decided
    ]


@dataclass(frozen=True, kw_only=True)
class NewLog:
    """A partition's log in `log_dir` from `start_offset` on; the tier has the offsets below `tier_end`.

    `leader_epochs` are the epochs from `start_offset` on; `latest_epoch` is the highest epoch of any leader
    of the partition. `snapshot` is the producer snapshot at `tier_end`; None if the tier has no readable one.
    It is written as it is only if `has_producers` is set: an existing cluster may have assigned the producer
    ids in it to other producers. Otherwise only open transactions are written, of producers that fence
    nobody. `timestamp_ms` is the timestamp of the newest record.
    """

    partition: TopicIdPartition
    log_dir: Path
    start_offset: int
    tier_end: int
    leader_epochs: Sequence[EpochEntry]
    latest_epoch: int
    snapshot: bytes | None
    timestamp_ms: int
    has_producers: bool = True

    @cached_property
    def producers(self) -> Sequence[ProducerEntry]:
        """Return the producers in the snapshot; raise CorruptInputError if the snapshot is damaged."""
        return () if self.snapshot is None else decode_producer_snapshot(self.snapshot)

    @property
    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction at the tier's end, sorted by its first offset."""
        found = [each for each in self.producers if each.current_txn_first_offset >= 0]
        if not self.has_producers:
            found = [_without_batches(each) for each in found]
        return sorted(found, key=lambda each: each.current_txn_first_offset)

    @property
    def written_snapshot(self) -> bytes | None:
        """Return the producer snapshot to write; None for none.

        Without the beginning of a transaction, a broker that loads its marker records no abort
        (ProducerAppendInfo.appendEndTxnMarker), and serves its records as committed.
        """
        if self.has_producers:
            return self.snapshot
        opened = self.open_transactions
        return encode_producer_snapshot(opened) if opened else None

    def why_damaged(self) -> str | None:
        """Return why the log can't be made from the tier's objects; None if it can."""
        try:
            _ = self.producers
        except CorruptInputError as e:
            return f"the producer snapshot of its last segment is damaged: {e.message}"
        return None

    @property
    def files(self) -> Mapping[str, bytes]:
        """Return the content of each file in the partition's folder, by file name.

        The log file is named by the end of the tier. It has an abort marker for each open transaction:
        without a marker, read_committed consumers would wait forever, since no transaction coordinator knows
        the transaction.
        """
        found = {
            f"{self.tier_end:020d}.log": b"".join(self._markers()),
            LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint(self.leader_epochs),
            PARTITION_METADATA_FILE: write_partition_metadata(self.partition.topic_id),
        }
        snapshot = self.written_snapshot
        if snapshot is not None:
            found[f"{self.tier_end:020d}.snapshot"] = snapshot
        return found

    def _markers(self) -> list[bytes]:
        return [
            encode_abort_marker(
                self.tier_end + number,
                self.timestamp_ms,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                coordinator_epoch=max(each.coordinator_epoch, 0),
                partition_leader_epoch=self.leader_epochs[-1].epoch,
            )
            for number, each in enumerate(self.open_transactions)
        ]


def _without_batches(producer: ProducerEntry) -> ProducerEntry:
    """Return the producer with its open transaction only: another one may have its id by now.

    No epoch is below 0, and without a last batch every sequence that begins with 0 follows.
    """
    return producer._replace(epoch=0, last_sequence=-1, last_offset=-1, offset_delta=0, coordinator_epoch=-1)


def restore_step(log: NewLog, segments: int) -> Step:
    """Return the step that writes the log; `segments` is the number of its segments in the tier."""
    return Step(
        action=Action.RESTORE_PARTITION,
        reason=f"an empty log at offset {log.tier_end}, behind {segments} segments in the tier",
        topic=log.partition.topic,
        topic_id=log.partition.topic_id,
        partition=log.partition.partition,
        start_offset=log.start_offset,
        end_offset=log.tier_end - 1,
        details={
            LOG_DIR: str(log.log_dir),
            "leader_epoch_checkpoint": [list(entry) for entry in log.leader_epochs],
            "leader_epoch": epoch_after(log),
            "producers": len(log.producers),
            "aborted_transactions": len(log.open_transactions),
            "has_producer_snapshot": log.written_snapshot is not None,
        },
    )


def epoch_after(log: NewLog | None) -> int:
    """Return a leader epoch above those of the log's records."""
    return 0 if log is None else log.latest_epoch + 1


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
        try:
            with effect("restore.staging.create"):
                PLAIN.make_folder(made.staging, like=log_dir)
                # Not below the name of the new files: in the staging folder itself.
                replace(made, files=".").write(_MARK, name.encode())
                PLAIN.make_folder(made.path, like=log_dir)
        except BaseException:
            # Without the mark, no later run would find it.
            made.discard()
            raise
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
        if not is_dir(self.staging):
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
            # The broker must be able to read the file.
            make_like(fd, self.log_dir / META_PROPERTIES)
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

    def exchange(self) -> None:
        """Put the folder in the place of the partition's: from the rename on, a broker loads it.

        Raise the error of `disk_error`, whose hint says which of the two folders is the partition's.
        """
        is_in_place = False
        try:
            if exists(self.target):
                with effect("restore.old_folder.rename"):
                    PLAIN.rename(self.target, self.staging / _OLD)
                    PLAIN.sync_folder(self.staging)
                    PLAIN.sync_folder(self.log_dir)
            with effect("restore.partition.rename"):
                PLAIN.rename(self.path, self.target)
                is_in_place = True
                PLAIN.sync_folder(self.log_dir)
            with effect("restore.staging.delete"):
                shutil.rmtree(self.staging)
        except OSError as e:
            aside = f"its former folder is {self.staging / _OLD}, which a broker that starts would delete"
            state = UNCHANGED if self.discard() else aside
            if is_in_place:
                state = "the new log is in its place, but a power cut may undo that"
            raise disk_error(e, self.log_dir, state) from None

    def discard(self) -> bool:
        """Remove the staging folder; first put the partition's folder back, if it was set aside.

        An old folder does not replace a new one, which has files. Return False if it can't be put back: then
        the staging folder stays, the next run finds the old one by `former_folder`, and a broker deletes it
        when it starts, as all that can't be removed.
        """
        old = self.staging / _OLD
        try:
            if is_dir(old) and not exists(self.target, follow_symlinks=False):
                PLAIN.rename(old, self.target)
        except OSError:
            return False
        shutil.rmtree(self.staging, ignore_errors=True)
        return True


UNCHANGED = "the partition's folder was not changed"


def disk_error(error: OSError, folder: Path | str, *state: str) -> TierctlError:
    """Return the error of files that could not be written into `folder`; `state` says what is there now.

    FileNotAllowed for a missing right, else SpoolError.
    """
    message = f"writing {error.filename or folder}: {error.strerror or error}"
    hint = "; ".join([*state, hint_of(error) or "look at the disk, then run again"])
    kind = FileNotAllowed if isinstance(error, PermissionError) else SpoolError
    return kind(message, hint=hint)


def remove_left(log_dir: Path, name: str) -> None:
    """Discard the staging folders that killed runs left of partition `name`."""
    for left in _left(log_dir, name):
        NewFolder(log_dir, name, left).discard()


def former_folder(log_dir: Path, name: str) -> Path:
    """Return the folder of partition `name`, also if a run was killed after it had set the folder aside."""
    folder = log_dir / name
    aside = (left / _OLD for left in _left(log_dir, name) if is_dir(left / _OLD))
    return folder if is_dir(folder) else next(aside, folder)


def _left(log_dir: Path, name: str) -> Iterator[Path]:
    for left in log_dir.glob("*-delete"):
        mark = left / _MARK
        # Another program may have written it: whatever is in it, it is no name.
        if is_file(mark) and read_regular(mark) == name.encode():
            yield left


_CHECKPOINTS = (LOG_STARTS_FILE, RECOVERY_POINTS_FILE, HIGH_WATERMARKS_FILE)


def merge_checkpoints(log_dir: Path, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Write the start and the end of each log into the checkpoints of a log directory by `merge_offsets`.

    The caller has called `back_up_checkpoints`.
    """
    starts = {name: start for name, (start, _) in logs.items()}
    ends = {name: end for name, (_, end) in logs.items()}
    with effect("restore.checkpoints.write"):
        for file, offsets in zip(_CHECKPOINTS, (starts, ends, ends), strict=True):
            merge_offsets(log_dir / file, offsets, backup=False)


def back_up_checkpoints(log_dir: Path) -> None:
    """Keep the checkpoints of a log directory as `.bak`, before a run puts logs there.

    A backup is never replaced: a run that goes on after a killed one makes `.2.bak`, unless one has the
    content. Raise SafetyRefusal for a checkpoint that is a link, CorruptInputError for a damaged one, which
    would stop the run when the logs are in place, and OSError.
    """
    for path in (log_dir / file for file in _CHECKPOINTS):
        with exclusive_replacement(path):
            if not exists(path):
                continue
            with open_itself(path) as old:
                data = b"".join(old.chunks())
            read_decoded(path, read_offset_checkpoint)
            if all(read_regular(each) != data for each in takewhile(exists, backups(path))):
                with effect("restore.checkpoints.write"):
                    write_durably(backup_of(path), [data], like=path)


def merge_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, backup: bool = True) -> None:
    """Write `offsets` into an offset checkpoint durably, and keep its other entries.

    With `backup` keep the old file as `.bak`, if it changes. Other runs wait: where no broker has run, no
    lock of a broker keeps them out of the log directory.
    """
    with exclusive_replacement(path):
        present = read_decoded(path, read_offset_checkpoint) or {}
        replace_changed(path, write_offset_checkpoint({**present, **offsets}), backup=backup)


def replace_changed(path: Path, data: bytes, *, backup: bool = True) -> None:
    """Replace a file durably, and back up the old one, unless it has this content."""
    # A run that continues an interrupted one must not overwrite the backup that the first one made.
    if not exists(path) or read_regular(path) != data:
        replace_durably(path, data, backup=backup)


def require_same_steps(plan: Plan, decided: Plan, what: str) -> None:
    """Raise SafetyRefusal if `plan`, which may be a saved one, lacks steps of the plan that was `decided`."""
    if len(plan.steps) != len(decided.steps):
        raise SafetyRefusal(
            f"the saved plan differs from a new one, and {what} must be restored as a whole",
            hint="make the plan again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogs:
    """The logs to write, by partition; each replaces the folder of an empty log, if there is one."""

    logs: Mapping[TopicIdPartition, NewLog]

    def are_restored(self, outcomes: Sequence[Outcome]) -> bool:
        """Return whether a run did all of its steps, and had one; remove the folders of killed runs."""
        for log in self.logs.values():
            remove_left(log.log_dir, str(log.partition.topic_partition))
        return bool(outcomes) and all(outcome.status is Status.DONE for outcome in outcomes)

    def write_all(self, run: Run, steps: Sequence[Step]) -> None:
        """Write the folder of each step's partition, then the checkpoints; the act of RESTORE_PARTITION.

        The log directories follow each other. A folder that has exactly the files of the log was written by a
        killed run, and is kept. Any other existing folder has an empty log, and is replaced: the planner
        refuses partitions whose folder has records, or other files.
        """
        run.attempt(steps, partial(attempted_by_dir, do=partial(self._write_dir, run.context.stop)))

    def _write_dir(self, stop: Stop, log_dir: Path, steps: Sequence[Step]) -> None:
        logs = [self.logs[step.topic_id_partition] for step in steps]
        back_up_checkpoints(log_dir)
        for log in until_stopped(logs, stop):
            _write_folder(log_dir, log)
        merge_checkpoints(
            log_dir, {log.partition.topic_partition: (log.start_offset, log.tier_end) for log in logs}
        )


def _write_folder(log_dir: Path, log: NewLog) -> None:
    """Write the folder under a temporary name and rename it; do nothing if it has these files already."""
    name = str(log.partition.topic_partition)
    if _has_files(log_dir / name, log.files):
        remove_left(log_dir, name)
        return
    made = NewFolder.make(log_dir, name)
    for file, data in log.files.items():
        made.write(file, data)
    made.sync()
    made.exchange()


def _has_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether the folder exists and has exactly these files with this content."""
    if not is_dir(folder) or {path.name for path in folder.iterdir()} != files.keys():
        return False
    return all(read_regular(folder / name) == data for name, data in files.items())


def attempted_by_dir(steps: Sequence[Step], do: Callable[[Path, Sequence[Step]], None]) -> list[Outcome]:
    """Call `do` once for each log directory, with its steps; return one outcome per step."""
    outcomes: list[Outcome] = []
    for log_dir, group in groupby(sorted(steps, key=_log_dir), key=_log_dir):
        own = list(group)
        outcomes += attempted(own, partial(do, Path(log_dir), own))
    return outcomes


def _log_dir(step: Step) -> str:
    return str(step.details[LOG_DIR])


class _Stopped(Exception):  # noqa: N818
    """The run was told to stop; never raised out of `attempted`."""


def until_stopped(items: Iterable[T], stop: Stop) -> Iterator[T]:
    """Yield each item; if the run is told to stop, end the call of `attempted` before the next one."""
    for each in items:
        if stop.asked():
            raise _Stopped
        yield each


def attempted(steps: Sequence[Step], do: Callable[[], None]) -> list[Outcome]:
    """Call `do` once for all of `steps`; return one outcome per step, all with the same status."""
    error: TierctlError | None = None
    try:
        do()
    except _Stopped:
        return [Outcome(step=step, status=Status.PENDING, reason=STOPPED) for step in steps]
    except TierctlError as e:
        error = e
    except OSError as e:
        error = disk_error(e, "a log directory")
    status = Status.DONE if error is None else Status.FAILED
    return [Outcome(step=step, status=status, error=error) for step in steps]
