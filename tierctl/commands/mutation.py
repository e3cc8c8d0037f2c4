"""What a command that may change a tier has open, and the fences that keep brokers and other runs out."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tierctl.apply.run_context import Stop
from tierctl.commands.histories import Histories, opened_metadata
from tierctl.commands.local_logs import UnreadLogs, read_local_logs
from tierctl.commands.metadata_folder import with_count
from tierctl.commands.request import MutationRequest, Request
from tierctl.commands.resources import Resources, require_own_tier
from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import TierctlError
from tierctl.files import broker_kept_out, is_dir
from tierctl.locallog import is_locked, read_log_dir_facts
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.state_dir import Journal
from tierctl.metadata.topic.base import translated
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings, TopicPlacement
from tierctl.model import (
    LocalLog,
    LogDirFacts,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.choices import NOT_A_BROKER_ID
from tierctl.model.events import ZERO_UUID
from tierctl.model.location import DERIVED, canonical_uri
from tierctl.model.progress import WAITS, Progress, SilentProgress
from tierctl.model.selection import counted, names_text, ranges_text
from tierctl.plan.copy import why_not_enabled
from tierctl.plan.partition_deletes import require_in_none
from tierctl.plan.preconditions import RunningBroker, TierContents, check_running_brokers
from tierctl.plan.reasons import Reason, is_not_understood
from tierctl.plan.saved import PlanPlace
from tierctl.plan.steps import Plan, Skip, check_not_ahead
from tierctl.storage.lease import ObjectLease, open_lease
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RemoteStorageManager


@dataclass(kw_only=True)
class Mutation:
    """One run of a command that may change a tier; `mutation` opens it.

    With `apply` the fences are up and the metadata are writable.
    """

    request: MutationRequest
    resources: Resources
    metadata: RemoteLogMetadataManager
    tier_contents: TierContents | None = None
    """What was found in the tier, if it was inspected."""
    is_source_damaged: bool = False
    """Whether a tier that is copied from has metadata that could not be used."""
    from_remote: TierSpec | None = None
    """How to open the tier that is copied from."""
    source: PlanPlace | None = None
    """The tier that is copied from, and its metadata topic."""
    changes_tier: bool = True
    """Whether objects of the tier are written or deleted."""
    placement: TopicPlacement | None = None
    """Where the partitions of a metadata topic in log directories are."""
    needs_untiered: bool = True
    """Whether the logs of `untiered` topics are read."""

    @property
    def progress(self) -> Progress:
        """The receiver of messages."""
        return self.resources.progress

    @cached_property
    def unread(self) -> UnreadLogs:
        """The logs that could not be read."""
        return UnreadLogs(self.progress)

    @property
    def unreadable(self) -> Collection[TopicPartition]:
        """Partitions whose log could not be read."""
        return self.unread.partitions

    @cached_property
    def logs(self) -> list[LocalLog]:
        """The logs of the log directories that have a selected name and number, as they were at first use.

        Those of `untiered` topics are left out. A log that can't be read is reported and added to
        `unreadable`; the other logs are still read.
        """
        untiered, may_select = self.untiered, self.resources.selection_request.may_select
        return read_local_logs(
            self.request.log_dir,
            self.progress,
            select=lambda p: p.topic not in untiered and may_select(p),
            on_error=self.unread.add,
        )

    @cached_property
    def untiered(self) -> Mapping[str, Reason]:
        """Topics of the log directories whose logs answer nothing, and why brokers copy nothing of them.

        The metadata, which must have been read, know no partition of these topics. Empty for a run that
        `needs_untiered`.
        """
        if self.needs_untiered:
            return {}
        found = {p.topic for p in self.resources.partitions_in_logs if p in self.resources.selection}
        names = found - self.metadata.state.topics
        default = TopicConfig.from_settings({}, self.resources.broker_defaults())
        configs = dict.fromkeys(names, default) | self.resources.topic_configs()
        in_force = {} if self.cluster is None else self.cluster.configs_of(names)
        reasons = {name: why_not_enabled(name, configs | in_force) for name in names}
        untiered = {name: reason for name, reason in reasons.items() if reason}
        self.resources.note_unused({name: config for name, config in in_force.items() if name in untiered})
        return untiered

    def resolve_selection(self, *known: Iterable[TopicIdPartition]) -> Selection:
        """Resolve the selection among the `known` partitions and those of the log directories."""
        in_logs = self.resources.partitions_in_logs
        # A log that can't be read has an unknown id, but its name is known.
        unreadable = (TopicIdPartition(ZERO_UUID, p.topic, p.partition) for p in self.unreadable)
        return self.resources.resolve_selection(in_logs, unreadable, *known)

    def narrowed(self, plan: Plan) -> Plan:
        """Return the part of `plan` about selected partitions with readable logs."""
        selection = self.resources.selection
        steps = [step for step in plan.steps if step.topic_id_partition in selection]
        skips = [skip for skip in plan.skipped if skip.topic_id_partition in selection]
        unread = self.unread_skips(step.topic_id_partition for step in steps)
        left_out = {skip.topic_id_partition for skip in unread}
        kept = tuple(step for step in steps if step.topic_id_partition not in left_out)
        skips += unread
        refused = tuple(skip for skip in plan.refused if skip in skips)
        return replace(plan, steps=kept, skipped=tuple(skips), refused=refused)

    def unread_skips(self, partitions: Iterable[TopicIdPartition]) -> list[Skip]:
        """Return a skip of each of `partitions` whose log can't be read."""
        unread = {partition for partition in partitions if partition.topic_partition in self.unreadable}
        return [Skip.of(partition, "its log can't be read") for partition in sorted(unread)]

    @cached_property
    def cluster(self) -> RunningCluster | None:
        """The cluster that has the data; None if none is named."""
        cluster = self.resources.cluster
        if cluster is None:
            return None
        return RunningCluster(
            cluster=cluster,
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
            check_running_brokers(running_brokers(self.request.log_dir))

    def check_deleted(self, partitions: Collection[TopicIdPartition]) -> None:
        """Raise SafetyRefusal if the cluster or a log directory still has the topic of one of `partitions`.

        The objects of a deleted topic may be deleted beside running brokers: no broker does it.
        """
        if self.cluster is not None and partitions:
            self.cluster.check_deleted(partitions)
        if partitions:
            require_in_none(self.log_dirs, partitions)

    @cached_property
    def log_dirs(self) -> Sequence[LogDirFacts]:
        """The topics that have a folder in each log directory, at first use."""
        return [read_log_dir_facts(log_dir) for log_dir in dict.fromkeys(self.request.log_dir)]

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

    @cached_property
    def histories(self) -> Histories:
        """The histories of the selected partitions; the selection must be resolved."""
        return Histories(self.resources)

    @cached_property
    def place(self) -> PlanPlace:
        """The tier that is changed, and its metadata topic."""
        return place_of(self.request, self.metadata, None if self.request.remote is None else self.remote)

    @property
    def remote(self) -> RemoteStorageManager:
        """The tier."""
        return self.resources.remote

    def inspect_tier(self, *, may_be_new: bool = False) -> None:
        """Call `require_own_tier` if the request names a tier that is changed."""
        if self.request.remote is not None and self.changes_tier:
            self.tier_contents = require_own_tier(
                self.request, self.remote, self.metadata, self.progress, may_be_new=may_be_new
            )

    @property
    def tier_spec(self) -> TierSpec:
        """How to open the tier."""
        return self.resources.tier_spec()


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
    needs_untiered: bool = True,
    folder: Callable[[Resources], FolderSettings | None] | None = None,
    kept: Kept = Kept.SEGMENTS,
    reader: Callable[[Resources], RemoteLogMetadataManager | None] = lambda _resources: None,
) -> Iterator[Mutation]:
    """Open the sources of the request; with `apply`, check the fences and open them for writing.

    With `may_be_new` the metadata folder need not have a metadata topic yet; otherwise a missing topic is a
    NotFoundError. With `logs_decide`, deletes are decided from the log start and the leader epochs in log
    directories, unless a cluster is named; otherwise only rolled segments are read there, which no broker
    changes. `reader` opens metadata that is only read, and `needs_untiered` is that of `Mutation`. `folder`
    makes the settings of a metadata topic in a folder; a command without it has no --apply. Raise
    LockedError if another tierctl is running. Raise SafetyRefusal if a broker runs on the metadata folder, on
    a log directory in which the command `writes_logs`, or, unless `allow_live_brokers`, on one that decides;
    and with `apply` if `now_ms` is in the future.
    """
    if request.apply:
        require_not_ahead(request)
    with Resources(request=request, progress=progress) as resources, ExitStack() as held:
        decisive = logs_decide and resources.cluster is None
        if request.apply and (writes_logs or (decisive and not request.allow_live_brokers)):
            held.enter_context(brokers_kept_out(request.log_dir, are_written=writes_logs))
        own, says = (None, SilentProgress()) if folder is None else (folder(resources), progress)
        settings = with_count(resources, request, own, says, may_be_new=may_be_new)
        metadata = reader(resources) or opened_metadata(
            resources,
            Kept.SEGMENTS if request.apply or request.state_dir is not None else kept,
            writable=request.apply,
            may_be_new=may_be_new,
            make_topic=make_topic,
            folder=settings,
        )
        yield Mutation(
            request=request,
            resources=resources,
            metadata=metadata,
            placement=None if settings is None else settings.placement,
            changes_tier=changes_tier,
            needs_untiered=needs_untiered,
        )


def place_of(
    request: MutationRequest, metadata: RemoteLogMetadataManager, remote: RemoteStorageManager | None
) -> PlanPlace:
    """Return the tier and the metadata topic that `request` names; `remote` and `metadata` have them open."""
    return PlanPlace(
        metadata=DERIVED if request.metadata is None else canonical_uri("--metadata", request.metadata),
        cluster=metadata.identity(),
        tier=None if request.remote is None else canonical_uri("--remote", request.remote),
        layout=None if remote is None else remote.layout.name,
    )


def require_not_ahead(request: MutationRequest) -> None:
    """Raise SafetyRefusal if the request decides as of a time in the future."""
    if request.now_ms is not None:
        check_not_ahead(request.now_ms, clock_ms=request.clock_ms())


_WRITTEN_HINT = (
    "files in this directory are written: stop the broker, or leave the directory out; no option overrides "
    "this check"
)
_DECIDING_HINT = (
    "deletes are decided from the log start and the leader epochs in this directory, which a running broker "
    "changes: name the broker's cluster with --bootstrap-server, which then decides, or stop the broker; "
    "--allow-live-brokers overrides this check"
)


@contextmanager
def brokers_kept_out(log_dirs: Sequence[Path], *, are_written: bool = False) -> Iterator[None]:
    """Prevent brokers from starting on `log_dirs` during the block.

    Raise SafetyRefusal if a broker already runs on one of them. `are_written` selects its hint: whether the
    run writes files there, or only decides from them what is deleted.
    """
    hint = _WRITTEN_HINT if are_written else _DECIDING_HINT
    with ExitStack() as held:
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder, hint=hint))
        yield


def running_brokers(log_dirs: Iterable[Path]) -> tuple[RunningBroker, ...]:
    """Return the brokers that run on these log directories now."""
    return tuple(
        RunningBroker(log_dir=log_dir, metadata_partitions=partitions_in(log_dir))
        for log_dir in log_dirs
        if is_dir(log_dir) and is_locked(log_dir)
    )


@contextmanager
def leased(
    remote: RemoteStorageManager | None,
    stop: Stop,
    progress: Progress,
    *,
    is_optional: bool = False,
) -> Iterator[None]:
    """Hold the lease of the tier during the block; no lease if `remote` is None.

    Raise LockedError if another tierctl holds the lease. If the store supports no lease, hold none if it
    `is_optional`; otherwise raise SafetyRefusal; if only its writes show that, `progress` warns what
    is lost. Once the lease is lost or uncertain, `stop` ends the run before its next side effect.
    """
    lease = None if remote is None else open_lease(remote, is_optional=is_optional)
    if lease is None:
        yield
        return
    with ExitStack() as held:
        with WAITS.waiting("taking the lease of the tier"):
            held.enter_context(lease)
        if isinstance(lease, ObjectLease) and lease.why_without is not None:
            progress.warn(lease.why_without)
        stop.guard(lease.is_lost)
        yield


@contextmanager
def kept_for_the_next_run(folder: Path, progress: Progress, otherwise: str) -> Iterator[None]:
    """Only warn of an error in the block, which stores in the state directory `folder` what the run did.

    What it did is still to be reported; `otherwise` says what the next run does without the record.
    """
    try:
        with translated(f"--state-dir {folder}"):
            yield
    except TierctlError as e:
        hint = f" ({e.hint})" if e.hint else ""
        progress.warn(f"{e.message}{hint}; {otherwise}")


def report_skips(skips: Collection[Skip], refused: Collection[Skip], progress: Progress) -> bool:
    """Report what a plan leaves out, and as warnings the partitions for which an option is `refused`.

    Return whether something was left out because it is not understood.
    """
    for line in skip_lines(skip for skip in skips if skip not in refused):
        progress.say(line)
    for line in skip_lines(refused):
        progress.warn(line)
    return any(is_not_understood(skip.reason) for skip in (*skips, *refused))


def any_not_understood(reasons: Iterable[str], request: Request) -> bool:
    """Return whether one of `reasons` is that something was not understood.

    Without --remote the leader epochs in the tier are not read, which is no such reason.
    """
    return request.remote is not None and any(map(is_not_understood, reasons))


def skip_lines(skips: Iterable[Skip]) -> Iterator[str]:
    """Yield one line per reason, in the order of their first skips; skips of segments have a line each.

    Partitions with the same reason are listed by topic, a bounded number of them.
    """
    # Steps of copies, which are no segments yet, may give the same reason several times for a partition.
    partitions: dict[str, dict[TopicIdPartition, None]] = defaultdict(dict)
    segments: list[str] = []
    for skip in skips:
        if skip.segment_id is None:
            partitions[skip.reason][skip.topic_id_partition] = None
        else:
            partition = _partitions_text([skip.topic_id_partition])
            segments.append(f"skipped {partition} segment {skip.segment_id}: {skip.reason}")
    for reason, skipped in partitions.items():
        yield f"skipped {_partitions_text(skipped)}: {reason}"
    yield from segments


def _partitions_text(partitions: Collection[TopicIdPartition]) -> str:
    numbers: dict[tuple[str, Uuid], list[int]] = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic, partition.topic_id].append(partition.partition)
    if len(partitions) == 1:
        return _topic_text(next(iter(numbers.items())))
    names = names_text(list(map(_topic_text, numbers.items())))
    return f"{len(partitions)} partitions of {counted(len(numbers), 'topic')} ({names})"


def _topic_text(item: tuple[tuple[str, Uuid], list[int]]) -> str:
    (topic, _), numbers = item
    return f"{topic}-{numbers[0]}" if len(numbers) == 1 else f"{topic}-[{ranges_text(numbers)}]"
