"""The acts of a restore: copies of objects, folders, checkpoints, metadata events, and at last the topics.

Each begins only if all before it were done. If a run is killed before the bootstrap file is written, the
formatted node starts without any restored topic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from tierctl.apply.log_folder import NewFolder, remove_left
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.publication import publish_segments
from tierctl.apply.run import Acts, Run
from tierctl.apply.run_context import RunContext
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult, effect
from tierctl.apply.to_metadata import merge_offsets
from tierctl.errors import SafetyRefusal, SpoolError, TierctlError
from tierctl.files import read_regular, replace_durably
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, Uuid
from tierctl.plan.restore import NewLog
from tierctl.plan.steps import LOG_DIR, Action, Step
from tierctl.wire.files.checkpoints import HIGH_WATERMARKS_FILE, LOG_STARTS_FILE, RECOVERY_POINTS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogs:
    """The logs to write, by partition; each replaces the folder of an empty log, if there is one."""

    logs: Mapping[TopicIdPartition, NewLog]

    def write_logs(self, steps: Sequence[Step]) -> list[Outcome]:
        """Write the folder of each step's partition, then the checkpoints of each log directory.

        A folder that has exactly the files of the log was written by a killed run, and is kept. Any other
        existing folder has an empty log, and is replaced: the planner refuses partitions whose folder has
        records.
        """
        outcomes: list[Outcome] = []
        for log_dir, group in groupby(sorted(steps, key=_log_dir), key=_log_dir):
            own = list(group)
            outcomes += _attempted(own, partial(self._write_dir, Path(log_dir), own))
        return outcomes

    def _write_dir(self, log_dir: Path, steps: Sequence[Step]) -> None:
        logs = [self.logs[step.topic_id_partition] for step in steps]
        for log in logs:
            _write_folder(log_dir, log)
        starts = {_name(log): log.start_offset for log in logs}
        ends = {_name(log): log.tier_end for log in logs}
        with effect("restore.checkpoints.write"):
            merge_offsets(log_dir / LOG_STARTS_FILE, starts)
            merge_offsets(log_dir / RECOVERY_POINTS_FILE, ends)
            merge_offsets(log_dir / HIGH_WATERMARKS_FILE, ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode(NewLogs):
    """The logs of a formatted node, and the new bootstrap file: `content` replaces `former` (the old bytes).

    With `has_metadata_topic` the metadata topic is created even if it gets no event.
    """

    bootstrap_path: Path
    former: bytes
    content: bytes
    has_metadata_topic: bool = True

    def write_bootstrap(self, steps: Sequence[Step]) -> list[Outcome]:
        """Write the topics into the bootstrap file in one write; `steps` are all topic steps of the plan."""
        return _attempted(steps, self._write_bootstrap)

    def _write_bootstrap(self) -> None:
        if read_regular(self.bootstrap_path) != self.former:
            raise SafetyRefusal(f"{self.bootstrap_path} was changed by another program", hint="plan again")
        with effect("restore.bootstrap.write"):
            replace_durably(self.bootstrap_path, self.content, backup=True)


def _log_dir(step: Step) -> str:
    return str(step.details[LOG_DIR])


def _name(log: NewLog) -> TopicPartition:
    return log.partition.topic_partition


def _write_folder(log_dir: Path, log: NewLog) -> None:
    """Write the folder under a temporary name and rename it; do nothing if it has these files already."""
    name = str(_name(log))
    if _has_files(log_dir / name, log.files):
        remove_left(log_dir, name)
        return
    with effect("restore.staging.create"):
        made = NewFolder.make(log_dir, name)
    for file, data in log.files.items():
        made.write(file, data)
    made.sync()
    if made.target.exists():
        with effect("restore.old_folder.rename"):
            made.set_old_aside()
    with effect("restore.partition.rename"):
        made.commit()
    with effect("restore.staging.delete"):
        made.discard()


def _has_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether the folder exists and has exactly these files with this content."""
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != files.keys():
        return False
    return all(read_regular(folder / name) == data for name, data in files.items())


def _attempted(steps: Sequence[Step], do: Callable[[], None]) -> list[Outcome]:
    """Call `do` once for all of `steps`; return one outcome per step, all with the same status."""
    error: TierctlError | None = None
    try:
        do()
    except TierctlError as e:
        error = e
    except OSError as e:
        error = SpoolError(f"writing {e.filename or 'the node'}: {e.strerror or e}", hint="run again")
    status = Status.DONE if error is None else Status.FAILED
    return [Outcome(step=step, status=status, error=error) for step in steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCopies:
    """The segments to copy, by new partition and segment id; a copy keeps the segment id."""

    segments: Mapping[tuple[TopicIdPartition, Uuid], RemoteLogSegmentMetadata]

    def copy(self, context: RunContext, steps: Sequence[Step]) -> list[Outcome]:
        """Copy the objects of each step's segment, several segments at a time; return an outcome per step."""
        context.engine.ready()
        inputs = [_CopyInput(self._segment(step), step.topic_id_partition) for step in steps]
        results = context.engine.map(_copy, inputs, context.side_effect_context())
        return [_outcome(step, result) for step, result in zip(steps, results, strict=True)]

    def _segment(self, step: Step) -> RemoteLogSegmentMetadata:
        if step.segment_id is None:
            raise ValueError(f"a step to copy objects names no segment: {step}")
        return self.segments[step.topic_id_partition, step.segment_id]


@dataclass(frozen=True, slots=True)
class _CopyInput:
    segment: RemoteLogSegmentMetadata
    partition: TopicIdPartition


def _copy(context: SideEffectContext, each: _CopyInput) -> SideEffectResult:
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    try:
        with effect("restore.objects.copy"):
            context.remote.copy_objects(each.segment, each.partition)
    except TierctlError as e:
        return SideEffectResult(begun=True, error=e)
    context.advance(each.segment.segment_size_in_bytes)
    return SideEffectResult(begun=True)


def _outcome(step: Step, result: SideEffectResult) -> Outcome:
    if result.stopped:
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(
        step=step, status=Status.DONE if result.error is None else Status.FAILED, error=result.error
    )


def restore_acts(new: NewLogs, copies: ObjectCopies | None = None) -> Acts:
    """Return the acts that copy objects, write the logs of `new`, and its topics if it is a node."""

    def copy_objects(run: Run, steps: Sequence[Step]) -> None:
        if copies is not None:
            for wave in run.context.waves(steps):
                run.attempt(wave, lambda each: copies.copy(run.context, each))
        run.require_all_done()

    def publish(run: Run, steps: Sequence[Step]) -> None:
        for wave in run.context.delete_waves(steps):
            run.require_all_done()
            run.attempt(
                wave,
                lambda kept: publish_segments(kept, run.context, "restore.segments.publish"),
                rechecked=True,
            )

    def create_topics(run: Run, steps: Sequence[Step]) -> None:
        run.require_all_done()
        if not run.plan.steps or not isinstance(new, NewNode):
            return
        if new.has_metadata_topic and run.may_begin():
            # An empty append creates the node's metadata topic, which must exist even without segments.
            run.context.metadata.publish(())
        run.attempt(steps, new.write_bootstrap)

    return {
        Action.COPY_OBJECTS: copy_objects,
        Action.RESTORE_PARTITION: lambda run, steps: run.attempt(steps, new.write_logs),
        Action.PUBLISH_SEGMENT: publish,
        Action.DISCARD_SEGMENT: publish,
        Action.CREATE_TOPIC: create_topics,
    }
