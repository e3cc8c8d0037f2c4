"""Carry out a plan in waves. A step that fails is reported in its outcome, not raised."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from tierctl.apply import materialise
from tierctl.apply.copy.log_source import LogSources
from tierctl.apply.copy.segments import CLEANUP_LABELS, Copier
from tierctl.apply.copy.source import Sources
from tierctl.apply.defaults import CUSTOM_METADATA_MAX_BYTES
from tierctl.apply.delete.segments import SWEEP_LABELS, Deletion, DeletionLabels, find_segment, outcome_of
from tierctl.apply.delete.waves import Wave, delete_waves
from tierctl.apply.labels import Label, effect
from tierctl.apply.materialise.left_out import Removal
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.rebuild.checkpoints import write_checkpoints
from tierctl.apply.rebuild.host_records import HostRecords
from tierctl.apply.rebuild.segments import publish_segments
from tierctl.apply.repair.indexes import store_indexes
from tierctl.apply.restore.node import NewLogs, NewNode
from tierctl.apply.restore.objects import ObjectCopies
from tierctl.apply.run_context import RunContext
from tierctl.apply.tier_check import claim_tier, require_known_tier, why_not_deletable
from tierctl.errors import (
    CorruptInputError,
    LockedError,
    MetadataError,
    PartialFailure,
    SafetyRefusal,
    TierctlError,
)
from tierctl.metadata.offset_repair import read_committed, write_committed
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.materialise import MATERIALISE
from tierctl.plan.preconditions import why_unreadable
from tierctl.plan.recheck import Dropped, recheck
from tierctl.plan.repair import FILE, FROM_OFFSET, TO_OFFSET
from tierctl.plan.restore import NEW_IDS, RESTORE
from tierctl.plan.steps import LINEAGE_EPOCH, REBUILD, Action, Plan, Step
from tierctl.state.tier import TierState

_P = RemotePartitionDeleteState

ROUNDS_MAX = 10
"""The number of times that new segments may appear during a partition delete before the run gives up."""

_LABELS = DeletionLabels(
    started="delete.segment_started.publish",
    delete="delete.segment.delete",
    finished="delete.segment_finished.publish",
)


def mark_partition(step: Step, context: RunContext) -> Outcome:
    """Publish DELETE_PARTITION_MARKED, unless the partition is marked already."""
    known = context.metadata.refresh().partition(step.topic_id_partition)
    if known is not None and known.delete_state is not None:
        return Outcome(step=step, status=Status.DONE, reason=f"already {known.delete_state}")
    if context.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    _publish(step.topic_id_partition, _P.DELETE_PARTITION_MARKED, context, "delete.marked.publish")
    return Outcome(step=step, status=Status.DONE)


def remove_partition(step: Step, segments: Sequence[Step], context: RunContext) -> list[Outcome]:
    """Delete every segment of a marked partition; return the outcome of `step`, then those of `segments`.

    `segments` are the plan's steps for the segments known when it was made; later ones are deleted too. The
    outcome is DONE only if no segment is left and DELETE_PARTITION_FINISHED is published. The process may be
    killed at any point: the next call resumes from the metadata.
    """
    partition = step.topic_id_partition
    settled = _settled(step, context)
    if settled is not None:
        return [settled, *(replace(settled, step=segment) for segment in segments)]
    known = context.metadata.state.partition(partition)
    if known is not None and known.delete_state is _P.DELETE_PARTITION_MARKED:
        require_known_tier({partition}, context)
        _publish(partition, _P.DELETE_PARTITION_STARTED, context, "delete.partition_started.publish")
    drained = _drain(partition, context)
    outcome = _partition_outcome(step, drained, context)
    if outcome.status is Status.DONE:
        # FINISHED is published last: after it, no run looks for the partition's segments again.
        _publish(partition, _P.DELETE_PARTITION_FINISHED, context, "delete.partition_finished.publish")
    return [outcome, *(_segment_outcome(segment, drained, outcome) for segment in segments)]


def _settled(step: Step, context: RunContext) -> Outcome | None:
    """Return the outcome of a partition that is unknown, not marked or finished, or of a stopped run."""
    state = context.metadata.refresh()
    known = state.partition(step.topic_id_partition)
    if known is None or known.delete_state is None:
        reason = "the partition is not marked for deletion"
        return Outcome(step=step, status=Status.DROPPED, reason=reason)
    if not known.is_to_remove:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    unreadable = why_unreadable(state, known)
    if unreadable is not None:
        return Outcome(step=step, status=Status.DROPPED, reason=unreadable)
    return Outcome(step=step, status=Status.PENDING, reason=STOPPED) if context.stop.asked() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drained:
    """Deletions by segment id; `error` states why segments that appeared later were not deleted."""

    deletions: Mapping[Uuid, Deletion]
    error: TierctlError | None = None

    @property
    def first_error(self) -> TierctlError | None:
        return self.error or next((d.error for d in self.deletions.values() if d.error), None)


def _drain(partition: TopicIdPartition, context: RunContext) -> _Drained:
    """Delete segments until the metadata list none; a segment that fails does not hold up the others."""
    deletions: dict[Uuid, Deletion] = {}
    for _ in range(ROUNDS_MAX):
        segments = _listed(partition, context)
        if not segments:
            return _Drained(deletions=deletions)
        waves = (
            Wave(segments=each, refused=why_not_deletable(each, context))
            for each in context.delete_waves(segments)
        )
        for found in delete_waves(waves, context, _LABELS):
            deletions |= {deletion.segment.segment_id: deletion for deletion in found}
        if not all(deletion.done for deletion in deletions.values()):
            return _Drained(deletions=deletions)
    error = PartialFailure(
        f"segments of {partition} kept appearing while it was being deleted ({ROUNDS_MAX} rounds)",
        hint="something still copies this partition; stop it and run delete again",
    )
    return _Drained(deletions=deletions, error=error)


def _partition_outcome(step: Step, drained: _Drained, context: RunContext) -> Outcome:
    if drained.first_error is not None:
        return Outcome(step=step, status=Status.FAILED, error=drained.first_error)
    if context.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    return Outcome(step=step, status=Status.DONE)


def _segment_outcome(step: Step, drained: _Drained, partition: Outcome) -> Outcome:
    deletion = None if step.segment_id is None else drained.deletions.get(step.segment_id)
    if deletion is not None:
        return outcome_of(step, deletion)
    if partition.status is Status.DONE:
        return Outcome(step=step, status=Status.DONE, reason="already deleted")
    return Outcome(step=step, status=Status.PENDING, reason=partition.reason or "not reached")


def _listed(partition: TopicIdPartition, context: RunContext) -> list[RemoteLogSegmentMetadata]:
    context.metadata.refresh()
    return sorted(
        context.metadata.list_remote_log_segments(partition), key=lambda s: (s.start_offset, s.segment_id)
    )


def _publish(
    partition: TopicIdPartition, state: RemotePartitionDeleteState, context: RunContext, label: Label
) -> None:
    event = RemotePartitionDeleteMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        broker_id=context.broker_id,
        event_timestamp_ms=context.clock_ms(),
        state=state,
    )
    with effect(label):
        context.publish([event])


def lower_offsets(steps: Sequence[Step]) -> list[Outcome]:
    """Write each file that the steps name once; a step whose committed offset has changed is dropped."""
    outcomes: list[Outcome] = []
    for file, group in groupby(steps, key=lambda step: str(step.details[FILE])):
        outcomes += _lower_in(Path(file), list(group))
    return outcomes


def _lower_in(path: Path, steps: Sequence[Step]) -> list[Outcome]:
    try:
        offsets = dict(read_committed(path).offsets)
        outcomes = []
        for step in steps:
            found, wanted = offsets.get(step.partition), step.details[TO_OFFSET]
            if found != step.details[FROM_OFFSET]:
                reason = f"the committed offset is {found} now, it was {step.details[FROM_OFFSET]}"
                outcomes.append(Outcome(step=step, status=Status.DROPPED, reason=reason))
                continue
            del offsets[step.partition]
            if wanted is not None:
                offsets[step.partition] = wanted
            outcomes.append(Outcome(step=step, status=Status.DONE))
        if any(outcome.status is Status.DONE for outcome in outcomes):
            with effect("repair.offsets.write"):
                write_committed(path, dict(sorted(offsets.items())))
    except (CorruptInputError, LockedError, SafetyRefusal) as e:
        return [Outcome(step=step, status=Status.FAILED, error=e) for step in steps]
    return outcomes


RaiseLogStarts = Callable[[Mapping[TopicIdPartition, int]], None]
"""Stores each log start offset that is above the stored one; durable on return."""


def new_log_starts(steps: Sequence[Step]) -> dict[TopicIdPartition, int]:
    """Return the log start offset of each partition after `steps`; steps that do not move it are left out."""
    starts: dict[TopicIdPartition, int] = {}
    for step in steps:
        offset = step.details.get("new_log_start_offset")
        if isinstance(offset, int):
            partition = step.topic_id_partition
            starts[partition] = max(offset, starts.get(partition, 0))
    return starts


def raise_log_starts(starts: Mapping[TopicIdPartition, int], write: RaiseLogStarts | None) -> None:
    """Raise log start offsets through `write`, if there is one.

    Call this before anything is deleted: a log start above an existing segment only wastes space until the
    segment is deleted, but a log start below a deleted segment sends readers to missing objects.
    """
    if write is not None and starts:
        with effect("sweep.log_start.write"):
            write(starts)


_Key = tuple[Uuid, int]

Fence = Callable[[Collection[TopicIdPartition]], None]
"""Raises SafetyRefusal if a broker or another program may be changing one of these partitions."""


def _no_fence(partitions: Collection[TopicIdPartition]) -> None:
    """Accept `partitions`: used when no other program can change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Optional inputs and callbacks of a run.

    `sources` finds the segments to copy. `log_starts` are raised in addition to those in the plan's steps.
    `raise_log_starts` stores offsets durably. `fence` is called before each wave, because brokers may start
    while the plan is carried out. `new_node` is the content that a restore writes; `object_copies` copies the
    objects of a segment under new ids. `removal` states which records a materialisation erases.
    `host_records` are those that a rebuild writes on each of several hosts.
    """

    sources: Sources = field(default_factory=LogSources)
    custom_metadata_max_bytes: int = CUSTOM_METADATA_MAX_BYTES
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    raise_log_starts: RaiseLogStarts | None = None
    fence: Fence = _no_fence
    new_node: NewLogs | None = None
    object_copies: ObjectCopies | None = None
    removal: Removal | None = None
    host_records: HostRecords | None = None


def run(plan: Plan, context: RunContext, options: RunOptions | None = None) -> list[Outcome]:
    """Carry out `plan` and return one outcome per step, in the plan's order.

    Before each wave the run reads the metadata to their end and drops the steps whose segment or partition
    changed. If publishing fails, the content of the metadata log is unknown, so the run begins nothing more.
    """
    return _Run(plan, context, options or RunOptions()).outcomes()


class _Run:
    def __init__(self, plan: Plan, context: RunContext, options: RunOptions) -> None:
        self._plan = plan
        self._context = context
        self._options = options
        self._copier = Copier(
            context=context,
            sources=options.sources,
            custom_metadata_max_bytes=options.custom_metadata_max_bytes,
        )
        # The key is `id(step)`, because two steps of a plan may be equal.
        self._outcomes: dict[int, Outcome] = {}
        self._broken: set[_Key] = set()
        self._halted: TierctlError | None = None
        self._is_known_tier = False

    def outcomes(self) -> list[Outcome]:
        """Carry out all steps and return their outcomes in the plan's order.

        Raise SafetyRefusal before the first step if the tier belongs to another metadata topic.
        """
        if self._plan.command == REBUILD:
            self._rebuild()
            return [self._outcomes[id(step)] for step in self._plan.steps]
        if self._plan.command == MATERIALISE:
            for group in materialise.groups(self._plan.steps, self._context.wave_size):
                self._attempt(group, self._materialise)
            return [self._outcomes[id(step)] for step in self._plan.steps]
        if self._plan.command in {RESTORE, NEW_IDS} and self._options.new_node is not None:
            self._restore(self._options.new_node)
            return [self._outcomes[id(step)] for step in self._plan.steps]
        removals = self._steps(Action.DELETE_PARTITION)
        deletes = self._steps(Action.DELETE_SEGMENT)
        deleted = {Uuid.parse(step.segment_id) for step in deletes if step.segment_id is not None}
        claim_tier(self._context, copies=bool(self._steps(Action.COPY_SEGMENT)), deleted=deleted)
        removed: dict[_Key, list[Step]] = {step.topic_id_partition.key: [] for step in removals}
        for step in deletes:
            removed.get(step.topic_id_partition.key, []).append(step)
        for step in self._steps(Action.MARK_PARTITION):
            self._attempt([step], self._mark)
        for step in removals:
            self._attempt([step, *removed[step.topic_id_partition.key]], self._remove)
        self._copy(self._steps(Action.COPY_SEGMENT))
        for wave in self._context.delete_waves(self._steps(Action.PUBLISH_SEGMENT)):
            self._attempt(wave, self._publish)
        for step in self._steps(Action.STORE_INDEXES):
            self._attempt([step], self._store_indexes)
        self._attempt(self._steps(Action.LOWER_OFFSET), lower_offsets)
        self._raise_requested_log_starts()
        self._delete([step for step in deletes if step.topic_id_partition.key not in removed])
        return [self._outcomes[id(step)] for step in self._plan.steps]

    def _rebuild(self) -> None:
        """Write checkpoint files, then publish segments; a partition without its files gets no events."""
        self._attempt(self._steps(Action.WRITE_CHECKPOINTS), write_checkpoints)
        self._broken |= {
            outcome.step.topic_id_partition.key
            for outcome in self._outcomes.values()
            if outcome.status is not Status.DONE
        }
        publish: Callable[[Sequence[Step]], Iterable[Outcome]] = self._publish
        if self._options.host_records is not None:
            # A host without the events of one partition would not have the bytes of the others.
            self._require_all_done()
            publish = partial(self._options.host_records.publish, self._context)
        for action in (Action.PUBLISH_SEGMENT, Action.DISCARD_SEGMENT):
            for wave in self._context.delete_waves(self._steps(action)):
                self._attempt(wave, publish)
        if not self._outcomes and self._may_begin():
            # An empty append completes the replicas that an interrupted run did not write to their ends.
            self._context.metadata.publish(())

    def _restore(self, node: NewLogs) -> None:
        """Copy objects, write logs, then events, then the topics, unless one of the others failed."""
        if not self._plan.steps:
            return
        if self._options.object_copies is not None:
            claim_tier(self._context, copies=True)
            copy = partial(self._options.object_copies.copy, self._context)
            for wave in self._context.waves(self._steps(Action.COPY_OBJECTS)):
                self._attempt(wave, copy)
            self._require_all_done()
        self._attempt(self._steps(Action.RESTORE_PARTITION), node.write_logs)
        publish = partial(self._publish, label="restore.segments.publish")
        for action in (Action.PUBLISH_SEGMENT, Action.DISCARD_SEGMENT):
            for wave in self._context.delete_waves(self._steps(action)):
                self._require_all_done()
                self._attempt(wave, publish)
        self._require_all_done()
        if not isinstance(node, NewNode):
            return
        if node.has_metadata_topic and self._may_begin():
            # An empty append creates the node's metadata topic, which must exist even without segments.
            self._context.metadata.publish(())
        self._attempt(self._steps(Action.CREATE_TOPIC), node.write_bootstrap)

    def _require_all_done(self) -> None:
        """End the run if a step was not done."""
        undone = next((each for each in self._outcomes.values() if each.status is not Status.DONE), None)
        if undone is not None and self._halted is None:
            self._halted = undone.error or MetadataError(undone.reason or "an earlier step was not done")

    def _materialise(self, steps: Sequence[Step]) -> list[Outcome]:
        dropped, kept = self._recheck(steps)
        if not kept:
            return dropped
        return [*dropped, *materialise.materialise_partitions(kept, self._context, self._options.removal)]

    def _publish(self, steps: Sequence[Step], label: Label = "rebuild.segments.publish") -> list[Outcome]:
        dropped, kept = self._recheck(steps)
        return [*dropped, *(publish_segments(kept, self._context, label) if kept else ())]

    def _store_indexes(self, steps: Sequence[Step]) -> list[Outcome]:
        dropped, kept = self._recheck(steps)
        return [*dropped, *store_indexes(kept, self._context)]

    def _steps(self, action: Action) -> list[Step]:
        return [step for step in self._plan.steps if step.action is action]

    def _attempt(self, steps: Sequence[Step], do: Callable[[Sequence[Step]], Iterable[Outcome]]) -> None:
        """Call `do` with the steps of one wave; an error that `do` raises was met while publishing."""
        if self._may_begin():
            with self._halting(steps):
                self._options.fence({step.topic_id_partition for step in steps})
                self._record(do(steps))
        self._record(self._not_begun(steps))

    def _may_begin(self) -> bool:
        return self._halted is None and not self._context.stop.asked()

    def _not_begun(self, steps: Sequence[Step]) -> Iterator[Outcome]:
        """Yield an outcome for each of `steps` that has none, because the run ended before it."""
        for step in steps:
            if id(step) in self._outcomes:
                continue
            if self._halted is None:
                yield Outcome(step=step, status=Status.PENDING, reason=STOPPED)
            else:
                reason = f"not begun, since the run could not go on: {self._halted.message}"
                yield Outcome(step=step, status=Status.DROPPED, reason=reason)

    @contextmanager
    def _halting(self, begun: Sequence[Step]) -> Iterator[None]:
        """End the run after an error in the block; steps in `begun` without an outcome have then failed."""
        try:
            yield
        except TierctlError as e:
            self._halted = e
        except OSError as e:
            self._halted = MetadataError(str(e))
        if self._halted is not None:
            error = self._halted
            self._record(Outcome(step=step, status=Status.FAILED, error=error) for step in begun)

    def _record(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._outcomes.setdefault(id(outcome.step), outcome)

    def _mark(self, steps: Sequence[Step]) -> list[Outcome]:
        return [mark_partition(step, self._context) for step in steps]

    def _remove(self, steps: Sequence[Step]) -> list[Outcome]:
        return remove_partition(steps[0], steps[1:], self._context)

    def _copy(self, steps: Sequence[Step]) -> None:
        """Copy the segments of `steps` in waves; record one outcome for each."""
        begun: list[Step] = []
        with self._halting(begun):
            for outcomes in self._copier.copy_waves(self._copy_waves(steps, begun)):
                self._record(outcomes)
        self._record(self._not_begun(steps))

    def _copy_waves(self, steps: Sequence[Step], begun: list[Step]) -> Iterator[Sequence[Step]]:
        """Yield the steps of each wave that are still valid, checked when they are asked for.

        Add the steps of each wave to `begun`. A wave that fails a check ends the run, but not the wave before
        it, whose segments are being stored.
        """
        for wave in self._context.waves(steps):
            if not self._may_begin():
                return
            kept: Sequence[Step] = ()
            with self._halting(wave):
                kept = self._checked_copies(wave)
            if self._halted is not None:
                return
            begun += wave
            yield kept

    def _checked_copies(self, wave: Sequence[Step]) -> list[Step]:
        """Return the steps of a wave that are still valid; raise TierctlError if it must not begin."""
        self._options.fence({step.topic_id_partition for step in wave})
        dropped, kept = self._recheck(wave)
        self._record(dropped)
        for outcome in dropped:
            if outcome.status is Status.DROPPED:
                self._copier.stop_partition(outcome.step)
        if kept and not self._is_known_tier:
            require_known_tier({step.topic_id_partition for step in kept}, self._context)
            self._is_known_tier = True
        self._options.sources.refresh(kept)
        return kept

    def _delete(self, steps: Sequence[Step]) -> None:
        """Delete the segments of `steps` in waves; record one outcome for each."""
        labels = CLEANUP_LABELS if self._plan.command == "copy" else SWEEP_LABELS
        begun: list[Step] = []
        with self._halting(begun):
            waiting = deque[Sequence[Step]]()
            for deletions in delete_waves(self._delete_waves(steps, begun, waiting), self._context, labels):
                kept = zip(waiting.popleft(), deletions, strict=True)
                self._record(outcome_of(step, deletion) for step, deletion in kept)
        self._record(self._not_begun(steps))

    def _delete_waves(
        self, steps: Sequence[Step], begun: list[Step], waiting: deque[Sequence[Step]]
    ) -> Iterator[Wave]:
        """Yield the waves that delete the segments of `steps`; each wave is checked when it is requested.

        Add the steps of each wave to `begun`, and those that are still valid, as one item, to `waiting`.
        """
        for wave in self._context.delete_waves(steps):
            if not self._may_begin():
                return
            begun += wave
            self._options.fence({step.topic_id_partition for step in wave})
            dropped, kept = self._recheck(wave)
            self._record(dropped)
            state = self._introduced(kept)
            segments = [segment for step in kept if (segment := find_segment(step, state)) is not None]
            refused = why_not_deletable(segments, self._context)
            starts = new_log_starts([step for step in kept if step.segment_id not in refused])
            raise_log_starts(starts, self._options.raise_log_starts)
            waiting.append(kept)
            yield Wave(segments=segments, refused=refused)

    def _introduced(self, steps: Sequence[Step]) -> TierState:
        """Return the state after the metadata has every segment of `steps`, including those of orphans.

        Orphans are published as being deleted: a crash leaves deletions that every run resumes.
        """
        metadata = self._context.metadata
        orphans = [step for step in steps if find_segment(step, metadata.state) is None]
        if not orphans:
            return metadata.state
        publish_segments(orphans, self._context, "repair.orphans.publish")
        return metadata.refresh()

    def _recheck(self, steps: Sequence[Step]) -> tuple[list[Outcome], list[Step]]:
        """Read the metadata to their end; return the outcomes of dropped steps, and the remaining steps."""
        checked = recheck(replace(self._plan, steps=tuple(steps)), self._context.metadata.refresh())
        dropped = [_dropped(d) for d in checked.dropped]
        kept = []
        for step in checked.plan.steps:
            if step.topic_id_partition.key in self._broken and _depends_on_earlier(step):
                reason = "an earlier step of the partition no longer holds"
                dropped.append(Outcome(step=step, status=Status.DROPPED, reason=reason))
            else:
                kept.append(step)
        self._broken |= {
            outcome.step.topic_id_partition.key
            for outcome in dropped
            if outcome.status is Status.DROPPED and _depends_on_earlier(outcome.step)
        }
        return dropped, kept

    def _raise_requested_log_starts(self) -> None:
        if self._halted is None and not self._context.stop.asked():
            raise_log_starts(self._options.log_starts, self._options.raise_log_starts)


def _depends_on_earlier(step: Step) -> bool:
    return LINEAGE_EPOCH in step.details


def _dropped(dropped: Dropped) -> Outcome:
    status = Status.DONE if dropped.is_done else Status.DROPPED
    return Outcome(step=dropped.step, status=status, reason=dropped.reason)
