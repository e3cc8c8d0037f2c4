"""The one protocol of commands that change something: decide a plan, check it, act, measure; saved plans."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tierctl import __version__
from tierctl.apply.run import Acts, run
from tierctl.apply.run_context import (
    Engine,
    LocalEngine,
    Outcome,
    RunContext,
    Status,
    Stop,
    exit_code,
    new_segment_id,
    stop_on_signals,
)
from tierctl.commands.metadata_folder import require_no_contradiction
from tierctl.commands.mutation import Mutation, leased, mutation, report_skips, require_not_ahead
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.errors import (
    ExitCode,
    LimitExceeded,
    SafetyRefusal,
    TierctlError,
    UsageError,
)
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.topic import topic_location
from tierctl.metadata.topic.folder import removed_if_unused
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import TopicConfig, TopicIdPartition, Uuid
from tierctl.model.checked_values import read_trusted, require_output, require_types, write_output
from tierctl.model.progress import Advance, Progress, SilentProgress, no_op
from tierctl.plan.copy import written_ms
from tierctl.plan.decisions import is_decided
from tierctl.plan.preconditions import require_recognised
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.saved import HostsPlan, PlanIdentity, SavedPlan, begins_plan, refusal
from tierctl.plan.steps import Action, Plan, Step
from tierctl.report import prometheus
from tierctl.report.plans import OUTCOMES, STEPS
from tierctl.report.prometheus import Family, Labels, Meter, Scope, measure_tier
from tierctl.report.results import TableResult, TableRows
from tierctl.storage.lease import open_lease

R = TypeVar("R", bound=MutationRequest)


def _json_types(default: Any) -> tuple[type, ...]:
    """Return the types that an option with this default has in a saved plan."""
    if isinstance(default, bool):
        return (bool,)
    if isinstance(default, tuple):
        return (list,)
    if isinstance(default, str):
        return (str,)
    return (str, int, bool, list, dict, type(None))


_HINT = "name the file that --plan-out wrote"
_OWN_PLAN = (
    "make the plan again with --plan-out in a folder of this user; nobody but this user and root may own or "
    "write the file, nor write the folder unless it is sticky, as /tmp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult(TableResult):
    """A plan and, if it was carried out, the outcome of each of its steps."""

    saved: SavedPlan
    """The plan as --plan-out writes it."""
    outcomes: Sequence[Outcome] | None
    """None if the plan was only made."""
    exit_code: int
    conclusion: str | None = None
    """What must be done before anything else, if the run requires something."""
    is_refused: bool = False
    """Whether `--apply` would refuse the plan, which was only made."""
    raised: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    """The log start offsets that the plan raises besides its steps, or that were raised."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.saved.plan

    @property
    def is_pending(self) -> bool:
        """Whether the plan has steps, or raises log start offsets, and has not been carried out."""
        return self.outcomes is None and bool(self.plan.steps or self.raised)

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: the steps of the plan, or their outcomes."""
        if self.outcomes is None:
            return STEPS, [step.to_json() for step in self.plan.steps]
        return OUTCOMES, [outcome.to_json() for outcome in self.outcomes]


class Change(ABC, Generic[R]):
    """One run of a command that may change a tier: it decides a plan, checks it, and acts.

    The command itself and `apply` of a saved plan both call `decide`, so that a step is carried out only if
    the current state produces it.
    """

    command: str
    """The name of the command in its plans."""
    request_type: ClassVar[type[Any]]
    """The class of its requests."""
    saved: ClassVar[tuple[str, ...]]
    """The fields of a request that are saved with its plan, because `apply` has no options for them."""
    logs_decide: ClassVar[bool] = False
    """Whether deletes are decided from log directories."""
    writes_logs: ClassVar[bool] = False
    """Whether files in log directories are written."""
    may_be_new: ClassVar[bool] = False
    """Whether the metadata folder need not have a metadata topic yet."""
    kept: ClassVar[Kept] = Kept.SEGMENTS
    """What executors keep of the segments for a plan that is only made."""
    changes_tier: bool = True
    """Whether objects of the tier are written or deleted; otherwise no lease is taken, and the tier need not
    be that of the metadata topic."""

    is_held_back: bool = False
    """Whether the plan leaves steps out because they breached a limit before."""
    is_void: bool = False
    """Whether no step of a saved plan is still decided, so that nothing else of it may be done either."""

    def __init__(self, run: Mutation, request: R) -> None:
        self.run = run
        self.request = request
        self.hosts: HostsPlan | None = None
        """What each of several hosts writes."""
        self._is_lease_lost = False

    @abstractmethod
    def decide(self) -> Plan:
        """Return the plan for the current state; called once, before the other methods."""

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Raise LimitExceeded or SafetyRefusal if `plan`, or this part of it, must not be carried out."""

    @abstractmethod
    def acts(self) -> Acts:
        """Return what is done for each action of the plan, in the order in which a run does it."""

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if brokers may do the work on `partitions` themselves; called before a wave.

        A run that writes files in log directories holds their locks, which keep brokers out.
        """
        if not self.writes_logs:
            self.run.check_fence(partitions)

    def require_topics(self) -> None:
        """Raise SafetyRefusal if topics that were selected by name are skipped.

        `apply` does not call it, because it drops the steps of such topics.
        """

    def topics_changed_by(self, plan: Plan) -> dict[str, str]:
        """Return the name of each topic that a run of `plan` changes, by its id; called after `decide`."""
        return {step.topic_id: step.topic for step in plan.steps}

    def log_starts(self) -> Mapping[TopicIdPartition, int]:
        """Return the log start offsets that a run raises besides its steps; called after `decide`."""
        return {}

    def announce(self) -> None:
        """Tell the operator what the plan needs besides its steps; called once the plan is saved."""

    def conclude(self, outcomes: Sequence[Outcome]) -> str | None:
        """Return what must be done before anything else; called with the outcomes of a plan."""

    @classmethod
    def makes_topic(cls, request: R) -> bool:
        """Return whether `request` makes a missing metadata topic on a cluster."""
        del request
        return False

    @classmethod
    def folder(cls, request: R, resources: Resources) -> FolderSettings | None:
        """Return the settings of a metadata topic in a folder; None for those of `open_topic`."""
        del request, resources
        return None

    @classmethod
    def reader(cls, resources: Resources) -> RemoteLogMetadataManager | None:
        """Open the metadata of a command that publishes none; None for one that publishes."""
        del resources
        return None

    @classmethod
    @contextmanager
    def opened(cls, request: R, progress: Progress | None, *, must_exist: bool = False) -> Iterator[Self]:
        """Check the fields of `request` and open what it names; if `must_exist`, no metadata topic is made.

        Raises UsageError for fields that contradict each other, and the errors of `require_plan_file` and
        `mutation`.
        """
        request.validate()
        require_plan_file(request.plan_out)
        with ExitStack() as opened:
            # A command that changes the tier may have stored the id of a new topic there: such a topic stays.
            if cls.may_be_new and not cls.changes_tier and request.apply and request.metadata is not None:
                location = topic_location(request.metadata_option, request.metadata)
                if location.is_local:
                    opened.enter_context(removed_if_unused(location.path))
            run = mutation(
                request.target,
                progress or SilentProgress(),
                logs_decide=cls.logs_decide,
                writes_logs=cls.writes_logs,
                may_be_new=cls.may_be_new and not must_exist,
                make_topic=cls.makes_topic(request) and not must_exist,
                changes_tier=cls.changes_tier,
                kept=Kept.SEGMENTS if must_exist else cls.kept,
                folder=lambda resources: cls.folder(request, resources),
                reader=cls.reader,
            )
            yield cls(opened.enter_context(run), request)

    def decided(self) -> Plan:
        """Return the plan for the current state; SafetyRefusal if topics selected by name are skipped."""
        plan = self.decide()
        self.require_topics()
        return plan

    def _own_options(self) -> dict[str, Any]:
        """Return the options that are saved with the plan of this run, as JSON values."""
        values = {name: getattr(self.request, name) for name in self.saved}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def request_again(
        cls, given: MutationRequest, options: Mapping[str, Any], selection: Mapping[str, Sequence[str]]
    ) -> R:
        """Return a request to decide a saved plan again.

        `options` were saved with the plan. The other fields are those of `given`, the request of `apply`, but
        for its topics and topic ids, which are those of `selection`. `require_options` has accepted them.
        """
        shared = {each.name for each in fields(cls.request_type)} & {each.name for each in fields(given)}
        values = {name: getattr(given, name) for name in shared} | dict(options) | dict(selection)
        make: Callable[..., R] = cls.request_type
        return make(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )

    @classmethod
    def require_options(cls, options: Mapping[str, Any]) -> None:
        """Raise SafetyRefusal for saved options of another command, or of another version of this one.

        UsageError for an option of another type than the default has: without a default, a text or a number.
        """
        if set(options) != set(cls.saved):
            raise refusal("options", expected=", ".join(sorted(cls.saved)), found=", ".join(sorted(options)))
        for each in fields(cls.request_type):
            if each.name in options:
                try:
                    require_types(options, {each.name: _json_types(each.default)}, "options.")
                except ValueError as e:
                    raise UsageError(f"not a plan: {e}", hint="make the plan again with --plan-out") from None

    def finish(
        self, plan: Plan, planned_by: Mapping[str, Any] | None = None, *, stop: Stop | None = None
    ) -> MutationResult:
        """Return `plan`, or with `apply` carry it out and return its outcomes too.

        `planned_by` are the planning command's own options, which are saved with the plan; None for those of
        this run. With `stop` the caller already listens to signals. Without `apply`, the reason for a refusal
        is only reported.
        """
        planned_by = self._own_options() if planned_by is None else planned_by
        this, request = self.run, self.run.request
        if this.tier_contents is not None:
            is_waived = request.allow_missing_objects or request.adopt_tier
            if not is_waived and any(step.action is Action.DELETE_SEGMENT for step in plan.steps):
                require_recognised(this.tier_contents)
        damaged = this.histories.report(this.metadata.state) or this.is_source_damaged
        damaged |= bool(this.unreadable)
        damaged |= report_skips(this.histories.unreported(plan.skipped), plan.refused, this.progress)
        saved = SavedPlan.of(plan, self._identity(plan), planned_by, self.hosts)
        write_plan(saved, request.plan_out, this.progress)
        self.announce()
        if request.apply:
            self._require_allowed(plan)
            request.confirm(plan)
            with self._running(plan, stop) as context:
                outcomes = run(plan, context, self.acts(), fence=self.fence, changes_tier=self.changes_tier)
            self._measure(plan, outcomes)
            code = self._exit_code(plan, outcomes, context, damaged=damaged)
            conclusion = self.conclude(outcomes)
            return MutationResult(
                saved=saved,
                outcomes=outcomes,
                exit_code=code,
                conclusion=conclusion,
                raised=self.log_starts() if context.changed.is_set() else {},
            )
        self._measure(plan, None)
        code = ExitCode.CORRUPT if damaged else ExitCode.REFUSED if plan.refused else ExitCode.OK
        refused = self._is_refused(plan)
        return MutationResult(
            saved=saved, outcomes=None, exit_code=code, is_refused=refused, raised=self.log_starts()
        )

    def _measure(self, plan: Plan, outcomes: Sequence[Outcome] | None) -> None:
        meter = self.run.request.meter
        if meter is not None:
            measure_mutation(meter, self.run, plan, outcomes)

    def _identity(self, plan: Plan) -> PlanIdentity:
        return PlanIdentity(
            tierctl_version=__version__,
            created_ms=self.run.request.clock_ms(),
            now_ms=self.run.resources.now_ms,
            place=self.run.place,
            source=self.run.source,
            topic_ids=self.topics_changed_by(plan),
        )

    def _require_allowed(self, plan: Plan) -> None:
        run, request = self.run, self.run.request
        require_not_ahead(request)
        require_no_contradiction(request, run.metadata.state)
        if plan.steps and run.cluster is not None:
            run.cluster.check_clock()
        if request.remote is not None and self.changes_tier:
            open_lease(run.remote, is_optional=request.no_lease)
        self.check(plan)

    def _is_refused(self, plan: Plan) -> bool:
        try:
            self._require_allowed(plan)
        except (LimitExceeded, SafetyRefusal) as e:
            self.run.progress.say(f"--apply would refuse this: {e.message}")
            return True
        return False

    @contextmanager
    def _running(self, plan: Plan, stop: Stop | None) -> Iterator[RunContext]:
        """Yield the context in which `plan` is carried out, under the lease; note whether that was lost."""
        this, request = self.run, self.run.request
        with ExitStack() as held:
            # Executors report their work only at the end of a wave; Spark's own bar shows their tasks.
            progress = SilentProgress() if this.resources.is_on_spark else this.progress
            advance, deleted = held.enter_context(work_bar(plan, progress))
            if stop is None:
                stop = held.enter_context(stop_on_signals(Stop()))
            request.throttle.stop_when(stop.asked)
            tier = this.remote if self.changes_tier else None
            held.enter_context(leased(tier, stop, this.progress, is_optional=request.no_lease))
            if request.on_begun is not None:
                request.on_begun()
            yield self._run_context(plan, stop, advance, deleted)
            self._is_lease_lost = stop.is_over()

    def _exit_code(
        self, plan: Plan, outcomes: Sequence[Outcome], context: RunContext, *, damaged: bool
    ) -> int:
        """Return the exit code of a plan that was carried out."""
        if self._is_lease_lost:
            self.run.progress.warn(
                "stopped: the lease of the tier may have expired, so another tierctl may change the tier; "
                "run again"
            )
            return ExitCode.LOCKED
        damaged = damaged or bool(self.run.metadata.state.quarantined)
        has_changed = context.changed.is_set()
        code = context.stop.exit_code or exit_code(outcomes, quarantined=damaged, has_changed=has_changed)
        held_back = ExitCode.LIMIT if self.is_held_back else ExitCode.OK
        return code or (ExitCode.REFUSED if plan.refused else held_back)

    def _run_context(self, plan: Plan, stop: Stop, advance: Advance, deleted: Advance) -> RunContext:
        run, request = self.run, self.run.request
        engine = self._engine(plan, stop)
        return RunContext(
            remote=run.remote,
            metadata=run.metadata,
            clock_ms=request.clock_ms,
            new_segment_id=new_segment_id,
            broker_id=request.broker_id,
            engine=engine,
            wave_size=request.wave_size or engine.wave_size,
            delete_wave_size=request.wave_size or engine.delete_wave_size,
            stop=stop,
            advance=advance,
            deleted=deleted,
            allow_missing_objects=request.allow_missing_objects,
            adopt_tier=request.adopt_tier,
            kafka_version=run.resources.kafka_version,
        )

    def _engine(self, plan: Plan, stop: Stop) -> Engine:
        run = self.run
        if not plan.steps or not run.resources.is_on_spark:
            return LocalEngine(run.request.threads)
        from tierctl.spark.executors.apply_engine import SideEffectContextSpec, SparkEngine

        spec = SideEffectContextSpec(remote=run.tier_spec.resolved(run.remote), source=run.from_remote)
        return SparkEngine(run.resources.executors, spec, stop=stop, title=plan.command)


_COPIES = {Action.COPY_SEGMENT, Action.MATERIALISE_PARTITION, Action.COPY_OBJECTS}


@contextmanager
def work_bar(plan: Plan, progress: Progress) -> Iterator[tuple[Advance, Advance]]:
    """Show the bytes that `plan` copies or, if it copies none, the segments that it deletes.

    Yield the function that adds copied bytes, and the one that adds deleted segments.
    """
    copies = [step for step in plan.steps if step.action in _COPIES]
    deletes = sum(step.action is Action.DELETE_SEGMENT for step in plan.steps)
    if copies:
        total = sum(int(step.details.get("segment_size_in_bytes") or 0) for step in copies)
        with progress.bar(plan.command, unit="bytes", total=total) as advance:
            yield advance, no_op
    elif deletes:
        with progress.bar(plan.command, unit="segments", total=deletes) as advance:
            yield no_op, advance
    else:
        yield no_op, no_op


def require_plan_file(file: Path | None) -> None:
    """Raise SafetyRefusal if `file` has content that is no plan; also raise those of `require_output`."""
    if file is not None:
        require_output("--plan-out", file, "plan", begins_plan)


def write_plan(plan: SavedPlan, file: Path | None, progress: Progress) -> None:
    """Write the plan to `file` for `tierctl apply`, atomically, and print its digest; do nothing for None.

    Only this user may read and write the file, whatever was there before. Raise the errors of
    `require_plan_file`.
    """
    if file is None:
        return
    require_plan_file(file)
    write_output("--plan-out", file, [plan.dumps().encode()], mode=0o600)
    progress.note(f"the digest of {file}, for apply --digest: {plan.digest}")


def read_plan(file: Path, *, digest: str | None = None) -> SavedPlan:
    """Return the plan in `file`.

    Raise UsageError if the file can't be read or is not a plan, and SafetyRefusal for one that somebody else
    may write, that was edited, that has another version, or whose digest is not `digest`.
    """
    try:
        text = read_trusted(file, hint=_OWN_PLAN, sticky_folder=True, kind="plan ").decode()
    except OSError as e:
        raise UsageError(f"plan {file}: {e.strerror}", hint=_HINT) from e
    except UnicodeDecodeError as e:
        raise UsageError(f"plan {file} is no text: {e}", hint=_HINT) from e
    if not text.strip():
        raise UsageError(f"plan {file} is empty", hint=_HINT)
    try:
        saved = SavedPlan.loads(text)
        if digest is not None and digest.lower() != saved.digest:
            hint = "this is another plan than the one of --digest"
            raise refusal("digest", expected=digest, found=saved.digest, hint=hint)
    except TierctlError as e:
        e.message = f"{file}: {e.message}"
        raise
    return saved


_COPY = (prometheus.COPY_REQUESTS, prometheus.COPY_ERRORS, prometheus.COPY_BYTES)
_DELETE = (prometheus.DELETE_REQUESTS, prometheus.DELETE_ERRORS, prometheus.DELETED_BYTES)
_FAMILIES = {Action.COPY_SEGMENT: _COPY, Action.DELETE_SEGMENT: _DELETE}


def measure_mutation(meter: Meter, run: Mutation, plan: Plan, outcomes: Sequence[Outcome] | None) -> None:
    """Measure the run of `plan`: the tier's state, the work done, and the steps that are not done.

    `outcomes` is None if the plan was not carried out. A topic that is not decided has no lag.
    """
    state, scope = run.metadata.state, Scope.of(run.resources.selection_request)
    measure_tier(meter, state)
    for outcome in outcomes or ():
        _count(meter, plan.command, outcome)
    if scope.is_partial or plan.is_recovery:
        return
    done = {id(outcome.step) for outcome in outcomes or () if outcome.status is Status.DONE}
    left = [step for step in plan.steps if id(step) not in done]
    parts = {part.topic_id_partition for part in state} | {step.topic_id_partition for step in plan.steps}
    is_from_logs = plan.command == "copy" and run.request.log_dir
    if is_from_logs:
        parts = set(plan.basis.log_starts)
    # A topic that was created again has two ids, of which the metadata may not have the new one.
    asked = parts | {skip.topic_id_partition for skip in plan.skipped}
    found = decided_topics(run, plan, asked)
    undecided = {each.topic for each in asked if (each.topic, each.topic_id) not in found}
    decided = {each.topic for each in parts} - undecided
    if plan.command == "copy":
        left_plan = replace(plan, steps=tuple(left))
        measure_copy_lag(meter, left_plan, decided, scope, now_ms=run.resources.now_ms)
        return
    known = {part.topic_id_partition.topic for part in state}
    # `delete` decides for deleted topics and `sweep` for all others: each sets only its own topics' values.
    is_delete = plan.command == "delete"
    topics = {part.topic_id_partition.topic for part in state if (part.delete_state is not None) == is_delete}
    topics = {topic for topic in topics if not scope.keeps((topic,))} | {step.topic for step in plan.steps}
    lag = [(step.topic, _size_bytes(step)) for step in left if step.action is Action.DELETE_SEGMENT]
    families = prometheus.DELETE_LAG_SEGMENTS, prometheus.DELETE_LAG_BYTES
    _set_lag(meter, families, lag, topics & decided, lambda labels: labels[0] in known - topics)


def decided_topics(
    run: Mutation,
    plan: Plan,
    partitions: Iterable[TopicIdPartition],
    *,
    also: frozenset[ReasonKind] = frozenset(),
) -> set[tuple[str, Uuid]]:
    """Return the topics of `partitions`, name and id, of which `plan` decides about every partition.

    Not decided are those of `undecided_partitions`, and one without a readable log or a known history.
    """
    left_out = {*run.histories.incomplete, *undecided_partitions(plan, also=also)}
    unread = {partition.topic for partition in run.unreadable}
    topics = {(each.topic, each.topic_id) for each in partitions if each.topic not in unread}
    return topics - {(each.topic, each.topic_id) for each in left_out}


def undecided_partitions(plan: Plan, *, also: frozenset[ReasonKind] = frozenset()) -> set[TopicIdPartition]:
    """Return the partitions that `plan` skips, unless `is_decided` or for a reason of `also`."""
    skips = [
        (skip.topic_id_partition, Reason.of(skip.reason)) for skip in plan.skipped if not skip.segment_id
    ]
    return {partition for partition, why in skips if not is_decided(why) and why.kind not in also}


def measure_copy_lag(meter: Meter, plan: Plan, topics: Collection[str], scope: Scope, *, now_ms: int) -> None:
    """Set the copy lag of `topics`, of which all is known; the age of what is known to wait is set of all."""
    if scope.is_partial:
        return
    lag = [
        (each.partition.topic, each.size_bytes or 0) for each in plan.decisions(now_ms) if each.is_copy_lag
    ]
    _set_lag(meter, (prometheus.COPY_LAG_SEGMENTS, prometheus.COPY_LAG_BYTES), lag, topics, scope.keeps)
    ages_s: dict[Labels, float] = {(topic,): 0 for topic in topics if not scope.keeps((topic,))}
    for topic, since_ms in _uncopied(plan):
        ages_s[topic,] = max(ages_s.get((topic,), 0), (now_ms - since_ms) / 1000)
    meter.set(prometheus.COPY_LAG_AGE, ages_s, scope.keeps)


def _uncopied(plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield the topic of segments that should be in the tier, and the time since when.

    That is the last write to a segment, because old records may be written today, or the end of the topic's
    copy lag, which counts from the largest timestamp. A segment that still waits for this lag should not be
    in the tier yet; one that waits for anything else should. A segment of another tier has its timestamp
    only.
    """
    for step in plan.steps:
        if step.action is Action.COPY_SEGMENT:
            lag_ms = plan.basis.configs.get(step.topic, TopicConfig()).copy_lag.ms or 0
            last_write_ms = written_ms(step)
            newest_ms = min(step.details["max_timestamp_ms"], last_write_ms)
            yield step.topic, max(last_write_ms, newest_ms + lag_ms)
    for skip in plan.skipped:
        oldest_ms = Reason.of(skip.reason).facts.get("oldest_ms")
        if oldest_ms is not None:
            yield skip.topic, oldest_ms


def _set_lag(
    meter: Meter,
    families: tuple[Family, Family],
    lag: Iterable[tuple[str, int]],
    topics: Iterable[str],
    keeps: Callable[[Labels], bool],
) -> None:
    """Set the gauges of segments and of bytes of `topics`; `keeps` as in `Gauges`.

    `lag` has the topic and the size of each segment.
    """
    counts: dict[Labels, float] = {(topic,): 0 for topic in topics if not keeps((topic,))}
    sizes_bytes = dict(counts)
    for topic, size_bytes in lag:
        if (topic,) in counts:
            counts[topic,] += 1
            sizes_bytes[topic,] += size_bytes
    for family, values in zip(families, (counts, sizes_bytes), strict=True):
        meter.set(family, values, keeps)


def _count(meter: Meter, command: str, outcome: Outcome) -> None:
    step, is_failed = outcome.step, outcome.status is Status.FAILED
    if is_failed:
        meter.count(prometheus.ERRORS, command, type(outcome.error).__name__)
    if step.action not in _FAMILIES or not (is_failed or outcome.is_own):
        return
    requests, errors, size = _FAMILIES[step.action]
    meter.count(requests, step.topic)
    meter.count(errors, step.topic, by=int(is_failed))
    meter.count(size, step.topic, by=0 if is_failed else _size_bytes(step))


def _size_bytes(step: Step) -> int:
    return int(step.details.get("segment_size_in_bytes", 0))
