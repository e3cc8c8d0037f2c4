"""`rebuild`: publish the metadata of segments whose objects are in the tier, after the metadata were lost."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tierctl.apply.run import RunOptions
from tierctl.commands.metadata_folder.count import folder_of, is_of_a_broker
from tierctl.commands.metadata_folder.settings import folder_settings
from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.recovery.afterwards import conclude_rebuild
from tierctl.commands.recovery.copying import require_copying_disabled
from tierctl.commands.recovery.hosts import plan_for_hosts, recipe
from tierctl.commands.recovery.logs import DecidingLogs, local_holes, require_read_logs
from tierctl.commands.recovery.metadata_settings import require_lasting_events
from tierctl.commands.recovery.publishing_fence import PublishingFence
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import DECIDE, TYPED_ONLY
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.locallog import ensure_stopped, list_partitions, require_own_log_dirs
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import (
    LocalLog,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierctl.model.progress import Progress
from tierctl.plan.basis import Basis
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.rebuild.hosts import HostsPlan
from tierctl.plan.rebuild.log_start import AskedLogStart
from tierctl.plan.rebuild.partition import PartitionInputs
from tierctl.plan.rebuild.plan import RebuildPlan, Refused, plan_rebuild
from tierctl.plan.steps import REBUILD, Plan, Skip
from tierctl.state.tier import TierState
from tierctl.storage.object_sets import by_partition

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest(MutationRequest):
    """A request to publish the lost metadata again, derived from the objects of the tier."""

    log_start: Annotated[
        str | None,
        typer.Option(
            "--log-start",
            metavar="tier|disk|OFFSET",
            help="Log start offset for partitions whose log start offset a broker may have raised because it "
            "knew no segments. tier: restore the log start offset that the objects of the newest segment "
            "state. OFFSET: restore this offset, which must lie between the two; choose the partition with "
            "--topic and --partition. Both write the checkpoint files of every replica. disk: keep the "
            "raised offset, and leave out the segments below it. Without this option such partitions are "
            "refused (exit 4).",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None
    after_hole: Annotated[
        bool,
        typer.Option(
            "--after-hole",
            help="Where the objects do not tell what became of the offsets between two segments (compacted, "
            "cut off, or those of a lost segment), begin the log after them; the segments below are left. "
            "Without this option such partitions are left out (exit 7).",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    hosts: HostsPlan | None = None
    """What a saved plan writes on each of several hosts."""

    @property
    def is_on_cluster(self) -> bool:
        """Return whether the metadata topic is on a running cluster."""
        return (self.metadata or "").startswith("kafka:")

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        asked = None if self.log_start is None else AskedLogStart.parse(self.log_start)
        if self.is_on_cluster and asked is not None and asked.choice != "disk":
            raise UsageError(
                "--log-start puts checkpoint files of stopped brokers back, not those of a running cluster",
                hint="stop the brokers, and name their directories with --log-dir and --metadata file://…",
            )
        folder = folder_of(self.metadata)
        if folder is None or not is_of_a_broker(folder):
            return
        if not partitions_in(folder):
            raise SafetyRefusal(
                f"{folder} is a broker's log directory and has no partition of {METADATA_TOPIC}",
                hint="only the broker can make them, with the topic's id: disable copying on the topics, "
                "start the brokers, and use --metadata kafka://...; to read the tier only, name a new folder",
            )
        if not self.log_dir and self.bootstrap_server is None:
            raise UsageError(
                f"--log-dir is missing: {folder} is a broker's log directory",
                hint="name the log directories of all replicas: they show where each log starts, and whether "
                "a broker has raised a log start since the metadata were lost",
            )


def rebuild(request: RebuildRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the events that publish the tier's segments again, and with `apply` publish them.

    No object of the tier is written or deleted, and none of tierctl's own. Raises SafetyRefusal if the log
    start of a partition may have been raised by a broker without metadata, or if a broker runs on a log
    directory; NotFoundError for a tier without segments; and the errors of the tier and the metadata.
    """
    return PLANNER.run(request, progress)


def _decide(run: Mutation, request: RebuildRequest) -> Decision:
    state = run.metadata.refresh()
    tier = TierSets.to_change(run)
    listed = tier.listed()
    logs = run.read_logs()
    in_tier = {each.partition for each in listed}
    if run.cluster is None:
        require_own_log_dirs(request.log_dir, {partition.topic_id for partition in in_tier}, "the tier")
    selection = run.resolve_selection(in_tier, (part.topic_id_partition for part in state))
    chosen = sorted(partition for partition in in_tier if partition in selection)
    deleted = _deleted(run, chosen)
    wanted = set(chosen) - deleted.keys()
    deciding = DecidingLogs.of(run, sorted(wanted), logs)
    sets = tier.derived(
        [each for each in listed if each.partition in wanted],
        finished=list(_finished(state, wanted)) if deciding.leaders else (),
        with_lineages=True,
    )
    inputs = (
        replace(each, unsound=tier.unsound(each.serving)) for each in _inputs(state, sets, deciding, logs)
    )
    asked = None if request.log_start is None else AskedLogStart.parse(request.log_start)
    found = plan_rebuild(state, inputs, asked, after_hole=request.after_hole)
    skipped = (*(Skip.of(partition, reason) for partition, reason in deleted.items()), *found.plan.skipped)
    starts = {partition: log.log_start_offset for partition, log in deciding.leaders.items()}
    plan = run.narrowed(replace(found.plan, skipped=skipped, basis=Basis(log_starts=starts)))
    hosts = plan_for_hosts(run, request, plan, found, deleted)
    if hosts is not None:
        # Other hosts lack what this one was decided from, so that the plan is checked before it is saved.
        _check(run, request, plan, found)
    return Decision(
        plan=plan,
        options=lambda: _options(run, request, starts),
        check=lambda plan: _check(run, request, plan, found),
        conclude=lambda outcomes: conclude_rebuild(run, outcomes),
        hosts=hosts,
        announce=lambda: _announce(run, hosts),
    )


def _announce(run: Mutation, hosts: HostsPlan | None) -> None:
    for line in () if hosts is None else recipe(hosts, run.request):
        run.progress.say(line)


def _folder(request: RebuildRequest, resources: Resources) -> FolderSettings:
    settings = replace(folder_settings(request, resources), remakes_lost=True)
    hosts = request.hosts
    if hosts is None:
        return replace(settings, has_other_hosts=request.plan_out is not None and not request.apply)
    return replace(
        settings,
        has_other_hosts=True,
        leader_epochs={number: base.leader_epochs for number, base in hosts.bases.items()},
        clock_ms=lambda: hosts.timestamp_ms,
    )


PLANNER = Planner(
    command=REBUILD,
    request=RebuildRequest,
    decide=_decide,
    options=("log_start", "after_hole", "metadata_partitions"),
    logs_decide=True,
    writes_logs=True,
    may_be_new=True,
    changes_tier=False,
    folder=_folder,
)


def _deleted(run: Mutation, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, str]:
    """Return the partitions whose topic was deleted, each with the evidence."""
    if run.cluster is not None:
        current = run.cluster.current_topics({partition.topic for partition in partitions})
        reasons = {partition: current.why_not_current(partition) for partition in partitions}
    elif run.request.log_dir:
        there = {partition.topic_id for partition in list_partitions(run.request.log_dir)}
        current = CurrentTopics({})
        reason = "no log directory has a partition of this topic id: it was deleted, and sweep removes leaks"
        reasons = {partition: None if partition.topic_id in there else reason for partition in partitions}
    else:
        return {}
    return {partition: reason for partition, reason in reasons.items() if reason is not None}


def _finished(
    state: TierState, partitions: Collection[TopicIdPartition]
) -> Iterator[RemoteLogSegmentMetadata]:
    for part in state:
        if part.topic_id_partition in partitions:
            yield from (s for s in part.cache.list_remote_log_segments() if s.state is _FINISHED)


def _inputs(
    state: TierState,
    sets: Sequence[ObjectSet],
    deciding: DecidingLogs,
    logs: Sequence[LocalLog],
) -> Iterator[PartitionInputs]:
    for partition, own in by_partition(sets).items():
        part = state.partition(partition)
        known = () if part is None else part.cache.list_remote_log_segments()
        leader = deciding.leaders.get(partition)
        yield PartitionInputs(
            partition=partition,
            sets=own,
            known={segment.segment_id: segment.state for segment in known},
            leader=leader,
            local_holes=local_holes(own, leader),
            why_no_log=deciding.missing.get(partition),
            replicas=[log for log in logs if log.topic_id_partition == partition],
        )


def _options(
    run: Mutation, request: RebuildRequest, log_starts: Mapping[TopicIdPartition, int]
) -> RunOptions:
    """Return the options of a rebuild, with a `PublishingFence` if brokers are running."""
    if run.cluster is None or not request.is_on_cluster:
        return RunOptions()
    return RunOptions(fence=PublishingFence(run.cluster, log_starts))


def _check(run: Mutation, request: RebuildRequest, plan: Plan, found: RebuildPlan) -> None:
    """Raise SafetyRefusal if the plan may not be applied."""
    refused = [each for each in found.refused if each.partition in run.resources.selection]
    if refused:
        raise _refusal(refused)
    require_read_logs(run)
    if request.is_on_cluster and run.cluster is not None:
        require_lasting_events(run.cluster, run.progress)
        require_copying_disabled(run.cluster, {step.topic for step in plan.steps})
    for folder in request.log_dir:
        ensure_stopped(Path(folder))


def _refusal(refused: Sequence[Refused]) -> SafetyRefusal:
    hint = (
        "if brokers ran since the metadata were lost: --log-start tier puts the log start back; if retention "
        "or DeleteRecords raised it: --log-start disk leaves the segments below it out"
        if any(each.is_damaged for each in refused)
        else "leave these partitions out with --topic and --partition"
    )
    return refusal_of(((each.partition, each.reason) for each in refused), hint)
