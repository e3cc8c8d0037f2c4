"""`delete`: KIP-405's RemotePartitionRemover, which removes deleted topics from the tier."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from tierctl import locallog
from tierctl.apply.run import (
    Acts,
    DeleteSegments,
    Deletion,
    DeletionLabels,
    Run,
    Wave,
    delete_waves,
    outcome_of,
)
from tierctl.apply.run_context import (
    STOPPED,
    Label,
    Outcome,
    RunContext,
    Status,
    Stop,
    effect,
    stop_on_signals,
)
from tierctl.apply.tier_check import require_known_tier, why_not_deletable
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import DECIDE, HOW, TYPED_ONLY, AllLogDirs, IKnowItIsDeleted, MutationRequest
from tierctl.errors import (
    ExitCode,
    NotFoundError,
    PartialFailure,
    RemoteStorageError,
    SafetyRefusal,
    TierctlError,
    UsageError,
)
from tierctl.metadata.parallel_fold import Kept
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import DURATION_FORMS, duration_text, parse_duration_ms
from tierctl.plan.partition_deletes import DeletionEvidence, plan_mark, plan_removal
from tierctl.plan.preconditions import leaked_topic_ids, why_unreadable
from tierctl.plan.steps import Action, Plan, Step
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult
from tierctl.state.tier_state import TierState, sizes_by_group

_S = RemotePartitionDeleteState
_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_TRY_AGAIN = frozenset({ExitCode.RETRYABLE, ExitCode.LOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest(MutationRequest):
    """A request to mark deleted topics, or to delete the objects of those that are marked."""

    find: Annotated[
        bool,
        typer.Option(
            help="List the topic ids that the metadata has and the cluster's controller does not know. With "
            "--mark, mark these topics.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    mark: Annotated[
        bool,
        typer.Option(
            help="Publish DELETE_PARTITION_MARKED for a deleted topic: the one of --topic-id, or of --topic "
            "if only one id has that name. tierctl exits with code 4 without evidence that the topic is "
            "deleted: the cluster does not know its id, or --all-log-dirs.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    all_log_dirs: AllLogDirs = False
    i_know_it_is_deleted: IKnowItIsDeleted = ()
    interval: Annotated[
        int | None,
        typer.Option(
            metavar="[DURATION]",
            parser=parse_duration_ms,
            min=1,
            max=30 * 86_400_000,
            help=f"Repeat the run at this interval after the end of the previous run: {DURATION_FORMS}. "
            "Without a value: 1h, the default of remote.partition.remover.task.interval.ms. It needs "
            "--apply, and is refused with --find and --mark.",
            rich_help_panel=HOW,
        ),
        TYPED_ONLY,
    ] = None

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if self.find:
            if self.interval is not None:
                raise UsageError("--find can't be used with --interval", hint="leave --interval out")
            if not self.has_cluster:
                raise UsageError(
                    "--find needs the cluster's controller",
                    hint="name the cluster with --bootstrap-server, or --metadata kafka://...",
                )
        if self.i_know_it_is_deleted and not self.mark:
            raise UsageError("--i-know-it-is-deleted needs --mark")
        if self.mark and self.interval is not None:
            raise UsageError("--mark can't be used with --interval", hint="leave --interval out")
        if self.interval is not None and not self.apply:
            raise UsageError("--interval needs --apply", hint="add --apply")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakedTopic:
    """A deleted topic of which the tier still has objects."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(0)]
    partitions: Annotated[int, f.PARTITIONS, Shown(2)]
    segments: Annotated[int, f.SEGMENTS, Shown(1)]
    log_bytes: Annotated[int, f.LOG_BYTES, Shown(0)]
    delete_state: Annotated[
        str | None, Field(Kind.WORD, "states of the partitions' deletions, commas between"), Shown(3)
    ]
    """The delete states of its partitions, joined by commas; None if none is marked."""


LEAKED_TOPICS = Columns(
    LeakedTopic,
    name="leaked-topics",
    title="Topics that the cluster does not have any more",
    commands="delete --find",
    noun="leaked topic",
    size="log_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakedTopics(TableResult):
    """The topic ids in the metadata that the cluster's controller does not know."""

    table = LEAKED_TOPICS, "topics"

    topics: Sequence[LeakedTopic]
    exit_code: ExitCode
    are_marked: bool
    """Whether `delete` without options deletes all of them: each of their partitions is marked."""


def delete(
    request: DeleteRequest, progress: Progress | None = None, *, stop: Stop | None = None
) -> MutationResult:
    """Plan the deletes of one run, and with `apply` carry them out.

    With `mark` the plan marks topics; otherwise it deletes the objects of the partitions that are marked,
    segment by segment. A topic created again under the same name is not touched. With `stop` the caller
    already listens to signals. Source: KIP-405, RemotePartitionRemover.
    """
    with Delete.opened(request, progress) as change:
        return change.finish(change.decided(), stop=stop)


class Delete(Change[DeleteRequest]):
    """One run of `delete`."""

    command = "delete"
    request_type = DeleteRequest
    saved = ("find", "mark")
    kept = Kept.FACTS

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        run, request = self.run, self.request
        if not request.mark:
            # To mark, the evidence that topics are deleted states which directory can't be used, and why.
            locallog.require_log_dirs(request.log_dir)
        state = run.metadata.refresh()
        run.resolve_selection(part.topic_id_partition for part in state)
        run.inspect_tier()
        run.histories.examine(state, lambda: run.logs)
        return run.narrowed(_plan_mark(run, request, state) if request.mark else plan_removal(state))

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: the cluster and the log directories must not have the topics."""
        self.fence({step.topic_id_partition for step in plan.steps})

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: objects of a deleted topic may be deleted beside running brokers."""
        if not self.request.mark:
            self.run.check_deleted(partitions)
        elif self.run.cluster is not None:
            # What a log directory shows of a topic to mark is part of the evidence, which can be overridden.
            self.run.cluster.check_deleted(partitions)

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        return {
            Action.MARK_PARTITION: mark_partitions,
            Action.DELETE_PARTITION: remove_partitions,
            Action.DELETE_SEGMENT: DeleteSegments(),
        }


def find_leaked_topics(request: DeleteRequest, progress: Progress | None = None) -> LeakedTopics:
    """Return the topic ids that the cluster does not know, with the tier's contents of each."""
    if request.apply:
        raise UsageError(
            "--find without --mark can't be used with --apply", hint="add --mark, or leave --apply out"
        )
    with Delete.opened(request, progress) as change:
        run = change.run
        state = run.metadata.refresh()
        run.resolve_selection(part.topic_id_partition for part in state)
        run.inspect_tier()
        ids = _leaked_ids(run, request, state)
        leaked = [_leaked_topic(state, topic_id) for topic_id in ids]
        states = [part.delete_state for part in state if part.topic_id_partition.topic_id in set(ids)]
        run.histories.examine(state, lambda: run.logs)
        damaged = run.histories.report(state)
        code = ExitCode.CORRUPT if damaged else ExitCode.OK
        return LeakedTopics(topics=leaked, exit_code=code, are_marked=None not in states)


REMOVER_INTERVAL_MS = 3_600_000
"""Default of remote.partition.remover.task.interval.ms (KIP-405)."""


@dataclass(slots=True)
class RepeatedDeletes:
    """Runs of `delete`, one after the other until a signal arrives; iterate to get their results."""

    request: DeleteRequest
    progress: Progress
    exit_code: int = ExitCode.OK
    """After the last run: the signal's exit code, or that of the last run."""

    def __iter__(self) -> Iterator[MutationResult]:
        """Yield the result of each run, and wait for the interval after it.

        A run that fails for a passing reason is reported, and the next run tries again.
        """
        interval_ms = REMOVER_INTERVAL_MS if self.request.interval is None else self.request.interval
        with stop_on_signals(Stop()) as stop:
            while not stop.asked():
                # The lease of a run guards its own stop only: it ends with the run.
                own = Stop(stop)
                self.request.throttle.stop_when(own.asked)
                try:
                    result = delete(self.request, self.progress, stop=own)
                    self.exit_code = result.exit_code
                    yield result
                except TierctlError as e:
                    if e.exit_code not in _TRY_AGAIN:
                        raise
                    self.progress.warn(f"{e.message}; the next run is in {duration_text(interval_ms)}")
                stop.wait(interval_ms / 1000)
        self.exit_code = stop.exit_code or self.exit_code


def delete_repeatedly(request: DeleteRequest, progress: Progress | None = None) -> RepeatedDeletes:
    """Return the runs of `delete`, each beginning `interval` milliseconds after the end of the one before."""
    request.validate()
    return RepeatedDeletes(request, progress or SilentProgress())


def _leaked_ids(run: Mutation, request: DeleteRequest, state: TierState) -> list[Uuid]:
    """Return the selected topic ids, ordered by name, that the controller does not know.

    Topics whose deletion is finished are left out.
    """
    assert run.cluster is not None  # `validate` requires one.
    parts = [p for p in state if p.delete_state is not _FINISHED and (p.segment_count or p.delete_state)]
    illegal = {
        p.topic_id_partition.topic for p in parts if not is_legal_topic_name(p.topic_id_partition.topic)
    }
    for name in sorted(illegal):
        run.progress.say(f"{name!r} is not a valid topic name, so it is not searched for")
    partitions = [p.topic_id_partition for p in parts if p.topic_id_partition.topic not in illegal]
    # The cluster is asked after the metadata were read, so that a topic created meanwhile does not count as
    # deleted.
    found = leaked_topic_ids(run.cluster.topics(p.topic for p in partitions), partitions)
    knows_none = bool(partitions) and len(found) == len({p.topic_id for p in partitions})
    if knows_none and not request.mark and not run.cluster.answer_about(found, state).is_own:
        run.progress.say(
            "the cluster knows none of the topics in the metadata: check that "
            "--bootstrap-server names the cluster of this tier"
        )
    selected = {p.topic_id for p in partitions if p in run.resources.selection}
    return sorted(selected & found.keys(), key=lambda topic_id: (found[topic_id], topic_id))


def _leaked_topic(state: TierState, topic_id: Uuid) -> LeakedTopic:
    parts = [part for part in state if part.topic_id_partition.topic_id == topic_id]
    sizes = sizes_by_group(state, [(0, part) for part in parts], 1)
    states = sorted({str(part.delete_state) for part in parts if part.delete_state is not None})
    return LeakedTopic(
        topic=parts[0].topic_id_partition.topic,
        topic_id=topic_id,
        partitions=len(parts),
        segments=sum(part.segment_count for part in parts),
        log_bytes=int(sizes.sizes_bytes.sum()),
        delete_state=",".join(states) or None,
    )


def _plan_mark(run: Mutation, request: DeleteRequest, state: TierState) -> Plan:
    wanted = _leaked_ids(run, request, state) if request.find else [_topic_id(run, state)]
    evidence = deletion_evidence(
        run,
        wanted,
        all_log_dirs=request.all_log_dirs,
        i_know_it_is_deleted=request.i_know_it_is_deleted,
    )
    return plan_mark(state, wanted, evidence)


def _topic_id(run: Mutation, state: TierState) -> Uuid:
    """Return the one topic id that is selected; SafetyRefusal if several topics had the selected name."""
    selection = run.resources.selection
    if selection.topic_ids:
        if len(selection.topic_ids) > 1:
            raise UsageError("--mark needs exactly one --topic-id")
        return next(iter(selection.topic_ids))
    if len(selection.topics) != 1:
        raise UsageError("--mark needs --topic-id, or exactly one --topic")
    name = next(iter(selection.topics))
    ids = _undeleted_ids(state, name)
    if not ids:
        raise NotFoundError(f"the metadata has no topic {name!r} that is not yet deleted")
    if len(ids) > 1:
        raise SafetyRefusal(
            f"topic {name!r} is the name of {len(ids)} topics: {', '.join(sorted(ids))}",
            hint="select one with --topic-id",
        )
    return next(iter(ids))


def _undeleted_ids(state: TierState, name: str) -> set[Uuid]:
    """Return the topic ids under `name` that have a partition whose deletion is not finished."""
    return {
        part.topic_id_partition.topic_id
        for part in state
        if part.topic_id_partition.topic == name and part.delete_state is not _FINISHED
    }


def deletion_evidence(
    run: Mutation, topic_ids: Collection[Uuid], *, all_log_dirs: bool, i_know_it_is_deleted: Sequence[str]
) -> DeletionEvidence:
    """Return what the cluster and the log directories of `run` show of these topics.

    `all_log_dirs` and `i_know_it_is_deleted` are the options of these names. UsageError if there are no log
    directories, or for a text that is no topic id.
    """
    if all_log_dirs and not run.request.log_dir:
        raise UsageError(
            "--all-log-dirs: no --log-dir is given", hint="name each log directory of each broker"
        )
    cluster, identity = run.cluster, run.metadata.identity()
    known = {part.topic_id_partition.topic_id for part in run.metadata.state}.difference(topic_ids)
    if known and identity.metadata_topic_id is not None:
        known.add(identity.metadata_topic_id)
    return DeletionEvidence(
        cluster=None if cluster is None else cluster.answer_about(topic_ids, run.metadata.state),
        log_dirs=run.log_dirs,
        all_log_dirs=all_log_dirs,
        cluster_id=identity.cluster_id,
        known_topic_ids=frozenset(known),
        overridden=frozenset(map(Uuid.parse, i_know_it_is_deleted)),
    )


ROUNDS_MAX = 10
"""The number of times that new segments may appear during a partition delete before the run gives up."""

_LABELS = DeletionLabels(
    started="delete.segment_started.publish",
    delete="delete.segment.delete",
    finished="delete.segment_finished.publish",
)


def mark_partitions(run: Run, steps: Sequence[Step]) -> None:
    """Publish DELETE_PARTITION_MARKED; the act of MARK_PARTITION."""
    for step in steps:
        run.attempt([step], lambda wave: [_mark(wave[0], run.context)])


def remove_partitions(run: Run, steps: Sequence[Step]) -> None:
    """Delete marked partitions with all their segments; the act of DELETE_PARTITION.

    It also carries out the plan's steps about segments of these partitions.
    """
    segments: dict[tuple[Uuid, int], list[Step]] = defaultdict(list)
    for step in run.plan.steps:
        if step.action is Action.DELETE_SEGMENT:
            segments[step.topic_id_partition.key].append(step)
    for step in steps:
        run.attempt(
            [step, *segments.get(step.topic_id_partition.key, ())],
            lambda wave: _remove(wave[0], wave[1:], run),
        )


def _mark(step: Step, context: RunContext) -> Outcome:
    """Publish DELETE_PARTITION_MARKED, unless the partition is marked already."""
    known = context.metadata.refresh().partition(step.topic_id_partition)
    if known is not None and known.delete_state is not None:
        return Outcome(step=step, status=Status.DONE, reason=f"already {known.delete_state}")
    if context.stop.asked():
        return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
    _publish(step.topic_id_partition, _S.DELETE_PARTITION_MARKED, context, "delete.marked.publish")
    return Outcome(step=step, status=Status.DONE)


def _remove(step: Step, segments: Sequence[Step], run: Run) -> list[Outcome]:
    """Delete every segment of a marked partition; return the outcome of `step`, then those of `segments`.

    `segments` are the plan's steps for the segments known when it was made; later ones are deleted too. The
    outcome is DONE only if no segment is left and DELETE_PARTITION_FINISHED is published. Segments that were
    deleted before a publication failed are recorded as DONE. The process may be killed at any point: the next
    call resumes from the metadata.
    """
    partition, context = step.topic_id_partition, run.context
    settled = _settled(step, context)
    if settled is not None:
        return [settled, *(replace(settled, step=segment) for segment in segments)]
    known = context.metadata.state.partition(partition)
    if known is not None and known.delete_state is _S.DELETE_PARTITION_MARKED:
        require_known_tier({partition}, context)
        _publish(partition, _S.DELETE_PARTITION_STARTED, context, "delete.partition_started.publish")
    planned = {segment.segment_id: segment for segment in segments}

    def record(deletions: Sequence[Deletion]) -> None:
        done = [each for each in deletions if each.done and each.segment.segment_id in planned]
        run.record(outcome_of(planned[each.segment.segment_id], each) for each in done)

    drained = _drain(partition, context, record)
    outcome = _partition_outcome(step, drained, context)
    if outcome.status is Status.DONE:
        # FINISHED is published last: after it, no run looks for the partition's segments again.
        _publish(partition, _S.DELETE_PARTITION_FINISHED, context, "delete.partition_finished.publish")
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
    """Deletions by segment id; `error` states why other segments were not deleted."""

    deletions: Mapping[Uuid, Deletion]
    error: TierctlError | None = None

    @property
    def first_error(self) -> TierctlError | None:
        return self.error or next((d.error for d in self.deletions.values() if d.error), None)


def _drain(
    partition: TopicIdPartition, context: RunContext, record: Callable[[Sequence[Deletion]], None]
) -> _Drained:
    """Delete segments until the metadata list none; a segment that fails does not hold up the others.

    `record` gets the deletions of each wave once it is finished.
    """
    deletions: dict[Uuid, Deletion] = {}
    for _ in range(ROUNDS_MAX):
        segments = _listed(partition, context)
        if not segments:
            return _Drained(deletions=deletions)
        waves = (
            Wave(segments=each, refused=why_not_deletable(each, context))
            for each in context.delete_waves(segments)
        )
        try:
            for found in delete_waves(waves, context, _LABELS):
                record(found)
                deletions |= {deletion.segment.segment_id: deletion for deletion in found}
        except RemoteStorageError as e:
            return _Drained(deletions=deletions, error=e)
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
    return sorted(context.metadata.state.segments_of(partition), key=lambda s: (s.start_offset, s.segment_id))


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
