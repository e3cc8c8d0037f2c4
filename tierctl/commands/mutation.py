"""The flow of every command that may change a tier: fences, a plan, and with `apply` its outcomes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tierctl import __version__
from tierctl.apply.copy.log_source import LogSources
from tierctl.apply.copy.source import Sources
from tierctl.apply.defaults import NOT_A_BROKER_ID
from tierctl.apply.engine import Engine, LocalEngine
from tierctl.apply.exclusion import brokers_kept_out, leased, running_brokers
from tierctl.apply.journal import Journal
from tierctl.apply.measures import measure_mutation
from tierctl.apply.outcome import Outcome, exit_code
from tierctl.apply.run import RunOptions, run
from tierctl.apply.run_context import RunContext, new_segment_id
from tierctl.apply.stop import Stop, stop_on_signals
from tierctl.commands.histories import Histories
from tierctl.commands.local_logs import read_local_logs
from tierctl.commands.metadata_folder import counted, require_no_contradiction
from tierctl.commands.plans import Decision, MutationResult, place_of, require_not_ahead, write_plan
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.running_cluster import RunningCluster
from tierctl.commands.skips import report_skips
from tierctl.commands.tier_inspection import require_deletable, require_own_tier
from tierctl.errors import CustomMetadataTooLarge, ExitCode, LimitExceeded, SafetyRefusal, TierctlError
from tierctl.locallog import list_partitions
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import LocalLog, Selection, TopicIdPartition, TopicPartition
from tierctl.model.ids import ZERO_UUID
from tierctl.model.progress import Advance, Progress, SilentProgress, no_op
from tierctl.model.settings import broker
from tierctl.plan.copy.custom_metadata import CustomMetadataBreach, without_breaches
from tierctl.plan.limits import MAX_DELETES, MAX_FRACTION, check_limits
from tierctl.plan.safety import RunningBroker, TierContents, check_running_brokers
from tierctl.plan.saved import PlanIdentity, PlanPlace, SavedPlan
from tierctl.plan.steps import Action, Plan, Skip
from tierctl.report.prometheus import Scope
from tierctl.state.tier import TierState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.identity import tier_layout
from tierctl.storage.lease import open_lease
from tierctl.storage.open import TierSpec
from tierctl.storage.tier import RetrySettings

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


def custom_metadata_layout(remote: RemoteStorageManager, spec: TierSpec) -> str:
    """Return the name of the tier's layout, with the fields of custom metadata that it writes."""
    return f"{tier_layout(remote)} {','.join(sorted(spec.aiven.custom_metadata_fields))}".strip()


def record_breaches(outcomes: Sequence[Outcome], journal: Journal, layout: str) -> None:
    """Record the segments of `outcomes` whose custom metadata exceeded the limit."""
    breaches = [
        CustomMetadataBreach(
            topic_id=outcome.step.topic_id,
            partition=outcome.step.partition,
            start_offset=outcome.step.start_offset or 0,
            size_bytes=outcome.error.size_bytes,
            limit_bytes=outcome.error.limit_bytes,
            layout=layout,
        )
        for outcome in outcomes
        if isinstance(outcome.error, CustomMetadataTooLarge)
    ]
    if breaches:
        journal.record_breaches(breaches)


@dataclass(kw_only=True)
class Mutation:
    """One run of a command that may change a tier; `mutation` opens it.

    With `apply` the fences are up and the metadata are writable.
    """

    request: MutationRequest
    resources: Resources
    metadata: RemoteLogMetadataManager
    unreadable: set[TopicPartition] = field(default_factory=set)
    """Partitions whose log could not be read."""
    _tier_contents: TierContents | None = None  # when it was inspected
    _is_held_back: bool = False  # whether segments are left out that breached KIP-917's limit before
    is_source_damaged: bool = False
    """Whether a tier that is copied from has metadata that could not be used."""
    from_remote: TierSpec | None = None
    """How to open the tier that is copied from."""
    source: PlanPlace | None = None
    """The tier that is copied from, and its metadata topic."""
    changes_tier: bool = True
    """Whether objects of the tier are written or deleted."""
    running_brokers: tuple[RunningBroker, ...] = ()
    """Brokers that run on log directories, if no cluster is named that says whether they tier."""

    @property
    def progress(self) -> Progress:
        """The receiver of messages."""
        return self.resources.progress

    def read_logs(self, partitions: Collection[TopicPartition] | None = None) -> list[LocalLog]:
        """Read the logs of the log directories that have a selected name and number, or of `partitions`.

        A log that can't be read is reported and added to `unreadable`; the other logs are still read.
        """
        selection = self.resources.selection_request
        select = selection.may_select if partitions is None else partitions.__contains__

        def report(folder: Path, error: TierctlError) -> None:
            self.progress.warn(f"unreadable: {folder}: {error.message}; {error.hint or 'it is left out'}")
            self.unreadable.add(TopicPartition.parse(folder.name))

        return read_local_logs(self.request.log_dir, self.progress, select=select, on_error=report)

    def resolve_selection(self, *known: Iterable[TopicIdPartition]) -> Selection:
        """Resolve the selection among the `known` partitions and those of the log directories."""
        in_logs = list_partitions(self.request.log_dir)
        # A log that can't be read has an unknown id, but its name is known.
        unreadable = (TopicIdPartition(ZERO_UUID, p.topic, p.partition) for p in self.unreadable)
        return self.resources.resolve_selection(in_logs, unreadable, *known)

    def narrowed(self, plan: Plan) -> Plan:
        """Return the part of `plan` about selected partitions with readable logs."""
        selection = self.resources.selection
        steps = [step for step in plan.steps if step.topic_id_partition in selection]
        skips = [skip for skip in plan.skipped if skip.topic_id_partition in selection]
        unread = {p for s in steps if (p := s.topic_id_partition).topic_partition in self.unreadable}
        kept = tuple(step for step in steps if step.topic_id_partition not in unread)
        skips += [Skip.of(partition, "its log can't be read") for partition in sorted(unread)]
        refused = tuple(skip for skip in plan.refused if skip in skips)
        return replace(plan, steps=kept, skipped=tuple(skips), refused=refused)

    def copy_options(
        self, sources: Sources | None = None, *, custom_metadata_max_bytes: int | None = None
    ) -> RunOptions:
        """Return the options of a copy; `sources` are the log directories if None."""
        max_bytes = self._custom_metadata_limit(custom_metadata_max_bytes)
        sources = LogSources(self.read_logs) if sources is None else sources
        return RunOptions(sources=sources, custom_metadata_max_bytes=max_bytes, fence=self.check_fence)

    def _custom_metadata_limit(self, asked_bytes: int | None) -> int:
        stated = broker.CUSTOM_METADATA_MAX_BYTES.value(self.resources.broker_settings)
        return stated if asked_bytes is None else asked_bytes

    def without_breaches(self, plan: Plan, custom_metadata_max_bytes: int | None) -> Plan:
        """Return a copy's plan without the segments that breached KIP-917's limit in an earlier run.

        Without a tier in the request its layout is unknown, and is taken to be the same as then.
        """
        if self.journal is None or not (breaches := self.journal.custom_metadata_breaches()):
            return plan
        limit_bytes = self._custom_metadata_limit(custom_metadata_max_bytes)
        layout = None if self.request.remote is None else self._custom_metadata_layout
        kept = without_breaches(plan, breaches, limit_bytes=limit_bytes, layout=layout)
        self._is_held_back = len(kept.steps) < len(plan.steps)
        return kept

    @property
    def _custom_metadata_layout(self) -> str:
        return custom_metadata_layout(self.remote, self.tier_spec)

    def removal_options(self) -> RunOptions:
        """Return the options of partition deletes."""
        return RunOptions(fence=self.check_deleted)

    @cached_property
    def cluster(self) -> RunningCluster | None:
        """The cluster that has the data; None if none is named."""
        cluster = self.resources.cluster
        if cluster is None:
            return None
        return RunningCluster(
            cluster=cluster,
            metadata=self.metadata,
            topic=self.resources.metadata_topic() if self.resources.is_on_cluster else None,
            own_broker_ids={NOT_A_BROKER_ID, self.request.broker_id},
            now_ms=self.request.clock_ms,
        )

    def check_fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if brokers may do this work themselves, unless `allow_live_brokers`."""
        if not partitions or self.request.allow_live_brokers:
            return
        if self.cluster is not None:
            self.cluster.check_fence(partitions)
        else:
            check_running_brokers(self.running_brokers)

    def check_deleted(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if the cluster still has the topic of one of `partitions`.

        The objects of a deleted topic may be deleted beside running brokers: no broker does it.
        """
        if self.cluster is not None and partitions:
            self.cluster.check_deleted(partitions)

    def check_plan_fence(
        self,
        plan: Plan,
        examined: Collection[TopicIdPartition],
        more: Collection[TopicIdPartition] = (),
    ) -> None:
        """Raise SafetyRefusal if brokers may carry out a step of `plan`, or work on `more`, themselves.

        Partitions without a step are left to the brokers that lead them; a plan without steps is refused if
        brokers do the work on all `examined` partitions.
        """
        planned = {step.topic_id_partition for step in plan.steps} | set(more)
        if planned or self.cluster is None:
            self.check_fence(planned or examined)
        elif not self.request.allow_live_brokers:
            self.cluster.check_any_open(examined)

    @cached_property
    def journal(self) -> Journal | None:
        """The records of earlier runs in the state directory; None without one."""
        return None if self.request.state_dir is None else Journal(self.request.state_dir)

    def check_limits(
        self, plan: Plan, state: TierState, *, max_deletes: int | None, max_fraction: float | None
    ) -> None:
        """Raise LimitExceeded if the plan deletes more than the limits (None: the defaults) allow."""
        check_limits(
            plan,
            state,
            max_deletes=MAX_DELETES if max_deletes is None else max_deletes,
            max_fraction=MAX_FRACTION if max_fraction is None else max_fraction,
        )

    @cached_property
    def histories(self) -> Histories:
        """The histories of the selected partitions; the selection must be resolved."""
        return Histories(self.resources, remote=lambda: self.remote)

    def conclude(
        self, decision: Decision, *, planned_by: Mapping[str, Any], stop: Stop | None = None
    ) -> MutationResult:
        """Return the decision's plan, or with `apply` carry it out and return its outcomes too.

        `planned_by` are the planning command's own options, which are saved with the plan. Without `apply`,
        the reason for a refusal is only reported. With `stop` the caller already listens to signals.
        """
        plan = decision.plan
        if self._tier_contents is not None:
            require_deletable(plan, self._tier_contents, self.request)
        damaged = self.histories.report(self.metadata.state)
        damaged = damaged or bool(self.unreadable) or self.is_source_damaged
        damaged |= report_skips(self.histories.unreported(plan.skipped), plan.refused, self.progress)
        saved = SavedPlan.of(plan, self._identity(plan), planned_by, decision.hosts)
        write_plan(saved, self.request.plan_out, self.progress)
        decision.announce()
        if self.request.apply:
            self._check(decision)
            self.request.confirm(plan)
            result = self._carry_out(saved, decision.options, damaged=damaged, stop=stop)
            return replace(result, conclusion=decision.conclude(result.outcomes or ()))
        self._measure(plan, None)
        code = ExitCode.CORRUPT if damaged else ExitCode.REFUSED if plan.refused else ExitCode.OK
        refused = self._is_refused(decision)
        return MutationResult(saved=saved, outcomes=None, exit_code=code, is_refused=refused)

    def _measure(self, plan: Plan, outcomes: Sequence[Outcome] | None) -> None:
        if self.request.meter is not None:
            scope = Scope.of(self.resources.selection_request)
            measure_mutation(self.request.meter, plan, outcomes, self.metadata.state, scope)

    def _identity(self, plan: Plan) -> PlanIdentity:
        return PlanIdentity(
            tierctl_version=__version__,
            created_ms=self.request.clock_ms(),
            now_ms=self.resources.now_ms,
            place=self.place,
            source=self.source,
            topic_ids={step.topic_id: step.topic for step in plan.steps},
        )

    @cached_property
    def place(self) -> PlanPlace:
        """The tier that is changed, and its metadata topic."""
        return place_of(self.request, self.metadata, None if self.request.remote is None else self.remote)

    def _carry_out(
        self, saved: SavedPlan, options: Callable[[], RunOptions], *, damaged: bool, stop: Stop | None
    ) -> MutationResult:
        plan = saved.plan
        with ExitStack() as held:
            # Executors report their work only at the end of a wave; Spark's own bar shows their tasks.
            progress = SilentProgress() if self.resources.is_on_spark else self.progress
            advance, deleted = held.enter_context(work_bar(plan, progress))
            if stop is None:
                stop = held.enter_context(stop_on_signals(Stop()))
            self.request.throttle.stop_when(stop.asked)
            tier = self.remote if self.changes_tier else None
            lease = held.enter_context(leased(tier, stop, self.progress, is_optional=self.request.no_lease))
            outcomes = run(plan, self._run_context(plan, stop, advance, deleted), options())
            if self.journal is not None:
                record_breaches(outcomes, self.journal, self._custom_metadata_layout)
            lost = lease is not None and lease.is_lost()
        self._measure(plan, outcomes)
        damaged = damaged or bool(self.metadata.state.quarantined)
        if lost:
            self.progress.warn(
                "stopped: the lease of the tier may have expired, so another tierctl may change the tier; "
                "run again"
            )
            code: int = ExitCode.LOCKED
        else:
            code = stop.exit_code or exit_code(outcomes, quarantined=damaged)
            held_back = ExitCode.LIMIT if self._is_held_back else ExitCode.OK
            code = code or (ExitCode.REFUSED if plan.refused else held_back)
        return MutationResult(saved=saved, outcomes=outcomes, exit_code=code)

    def _run_context(self, plan: Plan, stop: Stop, advance: Advance, deleted: Advance) -> RunContext:
        engine = self._engine(plan, stop)
        return RunContext(
            remote=self.remote,
            metadata=self.metadata,
            clock_ms=self.request.clock_ms,
            new_segment_id=new_segment_id,
            broker_id=self.request.broker_id,
            engine=engine,
            wave_size=self.request.wave_size or engine.wave_size,
            delete_wave_size=self.request.wave_size or engine.delete_wave_size,
            stop=stop,
            advance=advance,
            deleted=deleted,
            allow_missing_objects=self.request.allow_missing_objects,
            adopt_tier=self.request.adopt_tier,
            kafka_version=self.resources.kafka_version,
        )

    def _engine(self, plan: Plan, stop: Stop) -> Engine:
        if not plan.steps or not self.resources.is_on_spark:
            return LocalEngine(self.request.threads)
        from tierctl.spark.executors.engine import SideEffectContextSpec, SparkEngine

        spec = SideEffectContextSpec(remote=self.tier_spec.resolved(self.remote), source=self.from_remote)
        return SparkEngine(self.resources.executors, spec, stop=stop, title=plan.command)

    @cached_property
    def remote(self) -> RemoteStorageManager:
        """The tier; failed calls are repeated according to the retry settings."""
        return self.resources.open_tier(self.tier_spec)

    def inspect_tier(self, *, may_be_new: bool = False) -> None:
        """Call `require_own_tier` if the request names a tier that is changed."""
        if self.request.remote is not None and self.changes_tier:
            self._tier_contents = require_own_tier(
                self.request, self.remote, self.metadata, self.progress, may_be_new=may_be_new
            )

    @cached_property
    def tier_spec(self) -> TierSpec:
        """How to open the tier."""
        settings = self.resources.broker_settings
        return self.resources.tier_spec(RetrySettings.from_settings(settings, attempts=self.request.attempts))

    def _check(self, decision: Decision) -> None:
        require_not_ahead(self.request)
        require_no_contradiction(self.request, self.metadata.state)
        if self.request.remote is not None and self.changes_tier:
            open_lease(self.remote, is_optional=self.request.no_lease)
        decision.check(decision.plan)

    def _is_refused(self, decision: Decision) -> bool:
        try:
            self._check(decision)
        except (LimitExceeded, SafetyRefusal) as e:
            self.progress.say(f"--apply would refuse this: {e.message}")
            return True
        return False


@contextmanager
def mutation(
    request: MutationRequest,
    progress: Progress,
    *,
    logs_decide: bool = False,
    writes_logs: bool = False,
    may_be_new: bool = False,
    make_topic: bool = False,
    changes_tier: bool = True,
    folder: Callable[[Resources], FolderSettings | None] = lambda _resources: None,
    reader: Callable[[Resources], RemoteLogMetadataManager] | None = None,
) -> Iterator[Mutation]:
    """Open the sources of the request; with `apply`, check the fences and open them for writing.

    With `may_be_new` the metadata folder need not have a metadata topic yet; otherwise a missing topic is a
    NotFoundError. With `logs_decide`, deletes are decided from the log start and the leader epochs in log
    directories, unless a cluster is named; otherwise only rolled segments are read there, which no broker
    changes. `reader` opens metadata that is only read. Raise LockedError if another tierctl is running. Raise
    SafetyRefusal if a broker runs on the metadata folder, on a log directory in which the command
    `writes_logs`, or, unless `allow_live_brokers`, on one that decides; and with `apply` if `now_ms` is in
    the future.
    """
    if request.apply:
        require_not_ahead(request)
    with Resources(request=request, progress=progress) as resources, ExitStack() as held:
        decisive = logs_decide and resources.cluster is None
        if request.apply and (writes_logs or (decisive and not request.allow_live_brokers)):
            held.enter_context(brokers_kept_out(request.log_dir, are_written=writes_logs))
        running = () if decisive or resources.cluster is not None else running_brokers(request.log_dir)
        opened = None if reader is None else reader(resources)
        metadata = opened or resources.metadata(
            writable=request.apply,
            may_be_new=may_be_new,
            make_topic=make_topic,
            folder=counted(request, folder(resources), progress),
        )
        yield Mutation(
            request=request,
            resources=resources,
            metadata=metadata,
            running_brokers=running,
            changes_tier=changes_tier,
        )
