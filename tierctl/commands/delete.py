"""`delete`: KIP-405's RemotePartitionRemover, which removes deleted topics from the tier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from tierctl import locallog
from tierctl.apply.defaults import REMOVER_INTERVAL_MS
from tierctl.apply.stop import Stop, stop_on_signals
from tierctl.commands.deletion_evidence import deletion_evidence
from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.request import MutationRequest
from tierctl.commands.shared_options import AllLogDirs, Find, IKnowItIsDeleted, Interval, Mark
from tierctl.errors import ExitCode, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.model import RemotePartitionDeleteState, Uuid, is_legal_topic_name
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import duration_text
from tierctl.plan.partition_deletes import plan_mark, plan_removal
from tierctl.plan.safety import leaked_topic_ids
from tierctl.plan.steps import Plan
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult, TableRows
from tierctl.state.tier import TierState

_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_TRY_AGAIN = frozenset({ExitCode.RETRYABLE, ExitCode.LOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest(MutationRequest):
    """A request to mark deleted topics, or to delete the objects of those that are marked."""

    find: Find = False
    mark: Mark = False
    all_log_dirs: AllLogDirs = False
    i_know_it_is_deleted: IKnowItIsDeleted = ()
    interval: Interval = None

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if self.find:
            if self.interval is not None:
                raise UsageError("--find can't be used with --interval", hint="leave --interval out")
            if not self.has_cluster:
                raise _no_controller()
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

    topics: Sequence[LeakedTopic]
    exit_code: ExitCode

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return LEAKED_TOPICS, self.topics


def delete(
    request: DeleteRequest, progress: Progress | None = None, *, stop: Stop | None = None
) -> MutationResult:
    """Plan the deletes of one run, and with `apply` carry them out.

    With `mark` the plan marks topics; otherwise it deletes the objects of the partitions that are marked,
    segment by segment. A topic created again under the same name is not touched. With `stop` the caller
    already listens to signals. Source: KIP-405, RemotePartitionRemover.
    """
    return PLANNER.run(request, progress, stop=stop)


def _decide(run: Mutation, request: DeleteRequest) -> Decision:
    if not request.mark:
        # To mark, the evidence that topics are deleted states which directory can't be used, and why.
        locallog.require_log_dirs(request.log_dir)
    state = run.metadata.refresh()
    run.resolve_selection(part.topic_id_partition for part in state)
    run.inspect_tier()
    run.histories.examine(state, run.read_logs)

    def check(plan: Plan) -> None:
        run.check_deleted({step.topic_id_partition for step in plan.steps})

    plan = _plan_mark(run, request, state) if request.mark else plan_removal(state)
    return Decision(plan=run.narrowed(plan), options=run.removal_options, check=check)


PLANNER = Planner(command="delete", request=DeleteRequest, decide=_decide, options=("find", "mark"))


def find_leaked_topics(request: DeleteRequest, progress: Progress | None = None) -> LeakedTopics:
    """Return the topic ids that the cluster does not know, with the tier's contents of each."""
    if request.apply:
        raise UsageError(
            "--find without --mark can't be used with --apply", hint="add --mark, or leave --apply out"
        )
    with PLANNER.opened(request, progress) as run:
        state = run.metadata.refresh()
        run.resolve_selection(part.topic_id_partition for part in state)
        run.inspect_tier()
        leaked = [_leaked_topic(state, topic_id) for topic_id in _leaked_ids(run, request, state)]
        run.histories.examine(state, run.read_logs)
        damaged = run.histories.report(state)
        return LeakedTopics(topics=leaked, exit_code=ExitCode.CORRUPT if damaged else ExitCode.OK)


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
        interval_ms = self.request.interval or REMOVER_INTERVAL_MS
        with stop_on_signals(Stop()) as stop:
            while not stop.asked():
                try:
                    result = delete(self.request, self.progress, stop=stop)
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


def _no_controller() -> UsageError:
    return UsageError(
        "--find needs the cluster's controller",
        hint="name the cluster with --bootstrap-server, or --metadata kafka://...",
    )


def _leaked_ids(run: Mutation, request: DeleteRequest, state: TierState) -> list[Uuid]:
    """Return the selected topic ids, ordered by name, that the controller does not know.

    Topics whose deletion is finished are left out.
    """
    if run.cluster is None:
        raise _no_controller()
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
            f"the cluster knows none of the {len(found)} topics in the metadata: check that "
            "--bootstrap-server names the cluster of this tier"
        )
    selected = {p.topic_id for p in partitions if p in run.resources.selection}
    return sorted(selected & found.keys(), key=lambda topic_id: (found[topic_id], topic_id))


def _leaked_topic(state: TierState, topic_id: Uuid) -> LeakedTopic:
    parts = [part for part in state if part.topic_id_partition.topic_id == topic_id]
    segments = [s for part in parts for s in part.cache.list_remote_log_segments()]
    states = sorted({str(part.delete_state) for part in parts if part.delete_state is not None})
    return LeakedTopic(
        topic=parts[0].topic_id_partition.topic,
        topic_id=topic_id,
        partitions=len(parts),
        segments=len(segments),
        log_bytes=sum(s.segment_size_in_bytes for s in segments),
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
