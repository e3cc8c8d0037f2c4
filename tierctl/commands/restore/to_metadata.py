"""`rebuild`: publish the metadata of segments whose objects are in the tier, after the metadata were lost."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from shlex import quote
from typing import Annotated, Self

import typer

from tierctl.apply.run import Acts
from tierctl.apply.run_context import Outcome, Status
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.metadata_folder import folder_of, folder_settings, is_of_a_broker, is_untraceable
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import DECIDE, TYPED_ONLY, MutationRequest
from tierctl.commands.resources import Resources
from tierctl.commands.restore.hosts import checkpoint_steps, plan_for_hosts, rebuild_acts, report_steps
from tierctl.commands.restore.inventory import (
    DecidingLogs,
    TierSets,
    inputs_of,
    known_sets,
    require_read_logs,
    with_deleted,
)
from tierctl.commands.restore.new_logs import refusal_of
from tierctl.commands.restore.new_node import COPYING_DISABLED
from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import MetadataError, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.locallog import ensure_stopped, list_partitions, require_own_log_dirs
from tierctl.metadata.daily_changes import SegmentsOf, deleted_of
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.base import DEFAULT_METADATA_PARTITIONS
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.model import ListedSet, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.conflicts import ConflictKind, metadata_topic_conflicts
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.progress import Progress
from tierctl.model.selection import counted
from tierctl.model.settings import topic
from tierctl.plan.partition_choice import (
    AskedLogStart,
    PartitionDecision,
    PartitionInputs,
    decide_partition,
    segment_steps,
    skips_of,
    unclear_skips,
    why_undecided,
)
from tierctl.plan.reasons import is_not_understood
from tierctl.plan.saved import HostsPlan
from tierctl.plan.steps import REBUILD, Action, Basis, Plan, Skip, Step
from tierctl.spark.executors.task import shared_tier
from tierctl.state.tier_state import TierState
from tierctl.storage.object_sets import by_partition, ordered, sets_among
from tierctl.storage.open_tier import TierSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A partition about which nothing may be published, and why; `is_damaged` if --log-start decides it."""

    partition: TopicIdPartition
    reason: str
    is_damaged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """The plan, the partitions that forbid to carry it out, and the decision about each of the others."""

    plan: Plan
    refused: tuple[Refused, ...]
    decisions: Mapping[TopicIdPartition, PartitionDecision]


def plan_rebuild(
    state: TierState,
    partitions: Iterable[PartitionInputs],
    asked: AskedLogStart | None = None,
    *,
    after_hole: bool = False,
) -> RebuildPlan:
    """Return the steps that publish the lost metadata of `partitions`.

    `state` are the metadata that are left. `after_hole` accepts that a log begins after offsets of which it
    is not known what became of their records. Per partition, the steps of checkpoint files come first, then
    the chain in order of offsets, then the sets that are published as being deleted.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    refused: list[Refused] = []
    decisions: dict[TopicIdPartition, PartitionDecision] = {}
    for inputs in partitions:
        partition = inputs.partition
        reason = _why_not(state, partition)
        if reason is not None:
            skipped.append(Skip.of(partition, reason))
            continue
        decision = decide_partition(inputs, asked)
        reason = why_undecided(decision, after_hole=after_hole)
        if reason is not None:
            skipped += [Skip.of(partition, reason), *unclear_skips(inputs, decision.choice)]
            if is_not_understood(reason):
                # This is about the partition alone: the others are published.
                continue
            refused.append(
                Refused(
                    partition=partition,
                    reason=reason,
                    is_damaged=decision.is_damaged and asked is None,
                )
            )
            continue
        decisions[partition] = decision
        if decision.start_offset < decision.log_start.offset:
            lineage, start = decision.lineage.entries, decision.start_offset
            steps += checkpoint_steps(partition, inputs.replicas, lineage, start_offset=start)
        steps += segment_steps(inputs, decision)
        skipped += skips_of(inputs, decision.choice)
    plan = Plan(command=REBUILD, steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))
    return RebuildPlan(plan=plan, refused=tuple(refused), decisions=decisions)


def _why_not(state: TierState, partition: TopicIdPartition) -> str | None:
    if partition.topic in INTERNAL_TOPICS:
        return "internal topics are never tiered"
    part = state.partition(partition)
    if part is None:
        return None
    if part.delete_state is not None:
        return f"the partition is being deleted ({part.delete_state})"
    if state.is_damaged(part.metadata_partition):
        return f"metadata partition {part.metadata_partition} has records that could not be understood"
    return None


def require_copying_disabled(cluster: RunningCluster, topics: Collection[str]) -> None:
    """Raise SafetyRefusal if brokers copy segments of one of `topics`."""
    configs = cluster.cluster.topic_configs(topics)
    wanted = ", ".join(f"{name}={value}" for name, value in COPYING_DISABLED.items())
    copying = sorted(name for name in topics if not configs[name].is_copy_disabled)
    if copying:
        raise SafetyRefusal(
            f"brokers copy segments of {', '.join(copying)}: while copying is enabled, a leader that does "
            "not know the segments of the tier raises the log start offset, and deletes the segments once "
            "they are published",
            hint=f"set {wanted} on these topics first (Kafka 3.9 and later), and restore the "
            "previous values after the rebuild; with older brokers, stop them and use --metadata file://…",
        )


_WAIT_S = 60
_PAUSE_S = 0.5
_RESTART = (
    "the brokers' consumer skips events at offsets that it remembers of an older metadata topic: restart the "
    "brokers with copying still disabled, then run this command again"
)
RESTART_FIRST = "published; restart the brokers before copying is enabled again"


def conclude_rebuild(run: Mutation, outcomes: Sequence[Outcome]) -> str | None:
    """Check the published segments with their leaders, if the topic is on a cluster; print the next steps.

    Return what must be done first on a cluster.

    Raise the errors of `require_served`.
    """
    steps = [outcome.step for outcome in outcomes if outcome.status is Status.DONE]
    if not steps or len(steps) < len(outcomes):
        return None
    if run.cluster is None or not run.resources.is_on_cluster:
        if run.request.log_dir:
            run.progress.say(
                "start the brokers, then compare what they serve with the tier: tierctl restore check "
                "--metadata kafka://..."
            )
        return None
    count = require_served(run.cluster, steps)
    topics = ", ".join(sorted({step.topic for step in steps}))
    run.progress.say(f"leaders serve the first published segment of {counted(count, 'partition')}")
    # Whether the topic was deleted under the brokers is not visible from outside: the check of the first
    # segments may pass although events in other metadata partitions are skipped.
    run.progress.say(
        "if the metadata topic was deleted while the brokers ran, they skip new events until they are "
        "restarted, and segments that they copy become unreadable once these are deleted locally"
    )
    run.progress.say(
        f"after that, set on {topics}: {topic.COPY_DISABLE.name}=false, and the previous "
        f"{topic.LOCAL_RETENTION_MS.name} and {topic.LOCAL_RETENTION_BYTES.name}"
    )
    return RESTART_FIRST


def _first_published(steps: Sequence[Step]) -> dict[TopicIdPartition, Step]:
    found: dict[TopicIdPartition, Step] = {}
    for step in steps:
        if step.action is Action.PUBLISH_SEGMENT:
            found.setdefault(step.topic_id_partition, step)
    return found


def require_served(cluster: RunningCluster, steps: Sequence[Step]) -> int:
    """Wait until each leader serves its first published segment; return the number of partitions.

    Brokers read the events with a delay. Raise MetadataError if a leader serves no record of the segment
    within a minute, and immediately if its log start is above the segment: then the leader deletes the
    segment.
    """
    deadline = time.monotonic() + _WAIT_S
    waiting = _first_published(steps)
    count = len(waiting)
    problem = ""
    while waiting:
        for partition, step in list(waiting.items()):
            log_start: int | None = None
            try:
                log_start = _log_start(cluster, partition)
                if log_start is not None and _serves(cluster, step, log_start):
                    del waiting[partition]
            except TierctlError as e:
                problem = e.message
            _require_not_above(step, log_start)
        if waiting and time.monotonic() > deadline:
            names = ", ".join(str(each.topic_partition) for each in waiting)
            raise MetadataError(
                f"the events are published, but the leaders of {names} do not serve them yet"
                f"{f' ({problem})' if problem else ''}",
                hint=_RESTART,
            )
        if waiting:
            time.sleep(_PAUSE_S)
    return count


def _log_start(cluster: RunningCluster, partition: TopicIdPartition) -> int | None:
    """Return the log start offset that the leader reports; None without a leader."""
    return next((log.log_start_offset for log in cluster.cluster.logs([partition])), None)


def _serves(cluster: RunningCluster, step: Step, log_start: int) -> bool:
    # The log may start within the segment, after a DeleteRecords.
    at = max(step.start_offset or 0, log_start)
    if at > (step.end_offset or 0):
        return False
    partition = step.topic_id_partition.topic_partition
    return cluster.cluster.leaders.batch_bytes(partition, at, at + 1, bytes_max=0) > 0


def _require_not_above(step: Step, log_start: int | None) -> None:
    """Raise MetadataError if the log starts above the segment: the log start rose after the publication."""
    if log_start is not None and log_start > (step.end_offset or 0):
        partition = step.topic_id_partition.topic_partition
        raise MetadataError(
            f"the log start of {partition} rose to {log_start}, above its first "
            f"published segment ({step.start_offset} to {step.end_offset}): its leader deletes that segment",
            hint="keep copying disabled, and look for deletions: 'Deleted remote log segment' and "
            "'Incremented log start offset' in the log of the leader, and DELETE_SEGMENT_STARTED in tierctl "
            "segments; retention or DeleteRecords may have done it, too",
        )


def require_publishable(
    cluster: RunningCluster,
    partitions: Collection[TopicIdPartition],
    log_starts: Mapping[TopicIdPartition, int],
) -> None:
    """Raise SafetyRefusal if brokers copy these topics, or if a log start has risen or is unknown.

    `log_starts` are those the plan was made with. Deriving the metadata may take hours. Meanwhile an operator
    may enable copying, or a leader may raise its log start; a leader deletes segments that are published
    below its log start.
    """
    if not partitions:
        return
    require_copying_disabled(cluster, {partition.topic for partition in partitions})
    logs = cluster.leader_logs(partitions)
    for partition in sorted(partitions):
        name, planned = partition.topic_partition, log_starts[partition]
        log = logs.get(partition.key)
        if log is None:
            raise SafetyRefusal(
                f"{name} has no leader any more, so its log start is unknown",
                hint="run again once it has one",
            )
        if log.log_start_offset > planned:
            raise SafetyRefusal(
                f"the log start of {name} rose from {planned} to {log.log_start_offset} since the plan "
                "was made: its leader would delete segments that are published below it",
                hint="find the reason in the log of the leader, then run again",
            )


_LOSES_EVENTS = {ConflictKind.METADATA_RETENTION, ConflictKind.METADATA_COMPACTED}
_SHOWN_REPLICAS = 1
"""Conflicts about the number of replicas are not examined here."""


def require_lasting_events(cluster: RunningCluster, progress: Progress) -> None:
    """Raise SafetyRefusal if the metadata topic deletes events or refuses them; it is on a cluster.

    If a topic was deleted while brokers ran, their own consumers create it again with the cluster's defaults:
    `num.partitions` partitions and `log.retention.ms`, 1 and 7 days. After that time the published events
    are gone, and brokers raise the log starts. Warn if the topic is on another cluster, which is not asked.
    """
    settings = cluster.cluster.topic_settings([METADATA_TOPIC])[METADATA_TOPIC]
    if isinstance(settings, NotFoundError):
        progress.warn(f"the settings of {METADATA_TOPIC}, which is on another cluster, were not checked")
        return
    if isinstance(settings, TierctlError):
        raise settings
    found = [
        each for each in metadata_topic_conflicts(settings, _SHOWN_REPLICAS) if each.kind in _LOSES_EVENTS
    ]
    if found:
        count = "unknown" if cluster.topic is None else cluster.topic.partition_count
        raise SafetyRefusal(
            f"{METADATA_TOPIC} has {found[0].found} (partitions: {count}): brokers would not keep the "
            "published events. A topic that was created by auto-creation has such settings",
            hint="add partitions to it until it has remote.log.metadata.topic.num.partitions of the brokers "
            f"(default {DEFAULT_METADATA_PARTITIONS}), {found[0].kind.row.fix}, and restart the brokers with "
            "copying disabled",
        )


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest(MutationRequest):
    """A request to publish the lost metadata again, derived from the objects of the tier."""

    log_start: Annotated[
        str | None,
        typer.Option(
            metavar="tier|disk|OFFSET",
            help="Log start offset for partitions whose log start offset a broker may have raised because it "
            "knew no segments, or was cut below its local log by another leader. tier: restore the log "
            "start offset that the objects of the newest segment state; records that DeleteRecords "
            "removed before the loss are then served again, and the plan states of how many offsets. "
            "OFFSET: restore this offset, which must lie between the two; choose the partition with "
            "--topic and --partition. Both write the checkpoint files of every replica. disk: keep the "
            "raised offset, and leave out the segments below it. Without this option such partitions "
            "are refused (exit 4).",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None
    after_hole: Annotated[
        bool,
        typer.Option(
            help="Where the objects do not tell what became of the offsets between two segments (compacted, "
            "cut off, or those of a lost segment), begin the log after them; the segments below are "
            "left. Without this option such partitions are left out (exit 7).",
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
    with Rebuild.opened(request, progress) as change:
        return change.finish(change.decided())


_Key = tuple[Uuid, int]
_Known = list[RemoteLogSegmentMetadata]
"""All segments of a partition that are in the metadata."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Tell which partitions a rebuild does nothing about; `logs` and the options decide as in its plan."""

    logs: DecidingLogs
    asked: AskedLogStart | None
    after_hole: bool

    def __call__(self, state: TierState, listed: Sequence[ListedSet], known: _Known) -> bool:
        """Return whether the sets of a partition are of finished segments, and its plan is empty.

        Without the log that decides, the objects themselves are read.
        """
        partition = listed[0].partition
        sets = known_sets(listed, known) if partition in self.logs.leaders else None
        if sets is None:
            return False
        inputs = inputs_of(partition, sets, known, self.logs)
        found = plan_rebuild(state, [inputs], self.asked, after_hole=self.after_hole)
        return not (found.plan.steps or found.plan.skipped or found.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """The question for `TierState.map_parts` which partitions are not `settled`: their sets and segments.

    `folders` are those in the tier of each partition.
    """

    spec: TierSpec
    folders: Mapping[_Key, Sequence[str]]
    settled: Settled

    def __call__(self, state: TierState) -> Iterator[tuple[_Key, list[ListedSet], _Known]]:
        """Yield each such partition; raise RemoteStorageError for a folder that can't be listed."""
        remote = shared_tier(self.spec)
        for part in state.by_metadata_partition():
            key = part.topic_id_partition.key
            objects = chain.from_iterable(map(remote.list_objects, self.folders.get(key, ())))
            listed = _sets_of({key}, sets_among(remote, objects))
            known = list(part.cache.list_remote_log_segments()) if listed else []
            if listed and not self.settled(state, listed, known):
                yield key, listed, known


def _sets_of(keys: Collection[_Key], sets: Iterable[ListedSet]) -> list[ListedSet]:
    """Return the sets of some partitions, in order; one that was listed with two folders occurs once."""
    found = ordered(each for each in sets if each.partition.key in keys)
    return [each for each, following in zip_longest(found, found[1:]) if each != following]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSources:
    """What a rebuild compares: the sets of objects in the tier, and the segments in the metadata.

    `listed` has all sets. It is None if executors have the segments: `folders` are those that they have
    listed, with the partitions whose sets are there.
    """

    tier: TierSets
    state: TierState
    listed: Sequence[ListedSet] | None
    folders: Mapping[str, Collection[TopicIdPartition]]

    @classmethod
    def of(cls, tier: TierSets, state: TierState) -> Self:
        """List the tier; raise as `TierSets.listed`."""
        if state.elsewhere is None:
            return cls(tier=tier, state=state, listed=tier.listed(), folders={})
        return cls(tier=tier, state=state, listed=None, folders=tier.partitions_by_folder())

    @property
    def partitions(self) -> set[TopicIdPartition]:
        """The partitions that have sets."""
        if self.listed is not None:
            return {each.partition for each in self.listed}
        return {each for found in self.folders.values() for each in found}

    def to_decide(
        self, wanted: Collection[TopicIdPartition], settled: Settled
    ) -> tuple[list[ListedSet], SegmentsOf]:
        """Return the sets of the partitions in `wanted`, and the function that returns their segments.

        If executors have the segments, settled partitions are left out.
        """
        keys = {partition.key for partition in wanted}
        if self.listed is not None:
            return [each for each in self.listed if each.partition.key in keys], self.state.segments_of
        folders: dict[_Key, list[str]] = {key: [] for key in keys}
        for folder, partitions in self.folders.items():
            for key in keys & {each.key for each in partitions}:
                folders[key].append(folder)
        question = Unsettled(spec=self.tier.shared_spec, folders=folders, settled=settled)
        listed: list[ListedSet] = []
        known: dict[_Key, _Known] = {}
        for key, own, segments in self.state.map_parts(question, keys):
            listed += own
            known[key] = segments
        lost = keys - self.state.partitions.keys()
        more = self.tier.sets_in({folder for key in lost for folder in folders[key]})
        return ordered([*listed, *_sets_of(lost, more)]), lambda partition: known.get(partition.key, ())


class Rebuild(Change[RebuildRequest]):
    """One run of `rebuild`."""

    command = REBUILD
    request_type = RebuildRequest
    saved = ("log_start", "after_hole", "metadata_partitions")
    logs_decide = True
    writes_logs = True
    may_be_new = True
    kept = Kept.FACTS
    changes_tier = False

    @classmethod
    def folder(cls, request: RebuildRequest, resources: Resources) -> FolderSettings | None:
        """Implement `Change.folder`."""
        if is_untraceable(request):
            raise _untraceable(request, resources)
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

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        run, request = self.run, self.request
        state = run.metadata.refresh()
        tier = TierSets.to_change(run)
        sources = RebuildSources.of(tier, state)
        logs = run.logs
        in_tier = sources.partitions
        if run.cluster is None:
            require_own_log_dirs(request.log_dir, {partition.topic_id for partition in in_tier}, "the tier")
        selection = run.resolve_selection(in_tier, (part.topic_id_partition for part in state))
        chosen = sorted(partition for partition in in_tier if partition in selection)
        deleted = _deleted(run, chosen)
        wanted = set(chosen) - deleted.keys()
        deciding = DecidingLogs.of(run, sorted(wanted), logs)
        asked = None if request.log_start is None else AskedLogStart.parse(request.log_start)
        settled = Settled(deciding, asked, after_hole=request.after_hole)
        listed, known = sources.to_decide(wanted, settled)
        known = with_deleted(known, listed, deleted_of(run.metadata.deleted_segments))
        unread = {_DELETED, _FINISHED} if deciding.leaders else {_DELETED}
        sets = tier.derived(
            listed,
            finished=(each for whose in wanted for each in known(whose) if each.state in unread),
            with_lineages=True,
            is_part=not {each.key for each in wanted} <= {each.partition.key for each in listed},
        )
        inputs = (
            inputs_of(partition, own, known(partition), deciding)
            for partition, own in by_partition(sets).items()
        )
        inputs = (replace(each, unsound=tier.unsound(each.serving)) for each in inputs)
        found = self._found = plan_rebuild(state, inputs, asked, after_hole=request.after_hole)
        skipped = (
            *(Skip.of(partition, reason) for partition, reason in deleted.items()),
            *found.plan.skipped,
        )
        starts = self._starts = {
            partition: log.log_start_offset for partition, log in deciding.leaders.items()
        }
        plan = run.narrowed(replace(found.plan, skipped=skipped, basis=Basis(log_starts=starts)))
        self.hosts = plan_for_hosts(run, request, plan, found.decisions, deleted)
        if self.hosts is not None:
            # Other hosts lack what this one was decided from, so that the plan is checked before it is saved.
            self.check(plan)
        return plan

    def announce(self) -> None:
        """Implement `Change.announce`."""
        if self.hosts is not None:
            report_steps(self.hosts, self.run.request, self.run.progress)

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        refused = [each for each in self._found.refused if each.partition in self.run.resources.selection]
        if refused:
            raise _refusal(refused)
        require_read_logs(self.run)
        if self.request.is_on_cluster and self.run.cluster is not None:
            require_lasting_events(self.run.cluster, self.run.progress)
            require_copying_disabled(self.run.cluster, {step.topic for step in plan.steps})
        for folder in self.request.log_dir:
            ensure_stopped(Path(folder))

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: running brokers must not have raised a log start since."""
        if self.run.cluster is not None and self.request.is_on_cluster:
            require_publishable(self.run.cluster, partitions, self._starts)

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        return rebuild_acts()

    def conclude(self, outcomes: Sequence[Outcome]) -> str | None:
        """Implement `Change.conclude`."""
        return conclude_rebuild(self.run, outcomes)


def _untraceable(request: RebuildRequest, resources: Resources) -> SafetyRefusal:
    """Tell the way through the controllers, which know the topic; return the refusal of any other."""
    there = {partition.topic_id for partition in list_partitions(request.log_dir)}
    listed = {each.partition for each in TierSets.of(resources).listed()}
    topics = sorted({each.topic for each in listed if each.topic_id in there} or {e.topic for e in listed})
    config = "kafka-configs.sh --bootstrap-controller CONTROLLER:9093 --alter --entity-type topics"
    disabled = ",".join(f"{name}={value}" for name, value in COPYING_DISABLED.items())
    enabled = f"{topic.COPY_DISABLE.name}=false,{topic.LOCAL_RETENTION_MS.name}=…"
    say, command = resources.progress.say, resources.progress.command
    say(f"if the cluster's metadata are lost on this node, only controllers know {METADATA_TOPIC}:")
    say("1. start controllers and no broker; if a node is both, with these settings in server.properties:")
    say("   process.roles=controller, and in listeners only those of controller.listener.names")
    say("2. disable copying, so that no broker raises a log start (Kafka 3.9 and later):")
    for name in topics:
        command(f"{config} --entity-name {name} --add-config {disabled}")
    say("3. put server.properties back and start the brokers: they make the partitions, empty")
    say("4. publish the metadata of the tier again:")
    command(f"tierctl rebuild --metadata kafka://BROKER:9092 --remote {quote(str(request.remote))} --apply")
    say(f"5. restart the brokers, then set on these topics {enabled},{topic.LOCAL_RETENTION_BYTES.name}=…")
    return SafetyRefusal(
        f"{folder_of(request.metadata)} is a broker's log directory and has no partition of "
        f"{METADATA_TOPIC}, and nothing here states the topic's id and partitions",
        hint="name the directory with the node's __cluster_metadata-0 (metadata.log.dir, else the first of "
        "log.dirs) with --log-dir; if it is lost, follow the steps above; to read the tier only, name a new "
        "folder as --metadata",
    )


def _deleted(run: Mutation, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, str]:
    """Return the partitions whose topic was deleted, or may have been, each with the reason."""
    if run.cluster is not None:
        current = run.cluster.current_topics({partition.topic for partition in partitions})
        reasons = {partition: current.why_not_current(partition) for partition in partitions}
    elif run.request.log_dir:
        there = {partition.topic_id for partition in list_partitions(run.request.log_dir)}
        unreadable = {topic: name for each in run.log_dirs for topic, name in each.unreadable_topics.items()}
        reasons = {
            partition: _why_left_out(unreadable.get(partition.topic))
            for partition in partitions
            if partition.topic_id not in there
        }
    else:
        return {}
    return {partition: reason for partition, reason in reasons.items() if reason is not None}


def _why_left_out(unreadable: str | None) -> str:
    """Return why a topic without a log is left out; `unreadable` is a folder that may be a log of it."""
    if unreadable is None:
        return "no log directory has a partition of this topic id: it was deleted, and sweep removes leaks"
    return f"the topic id of folder {unreadable} can't be read: whether this topic exists is not known"


def _refusal(refused: Sequence[Refused]) -> SafetyRefusal:
    hint = (
        "if brokers ran since the metadata were lost: --log-start tier puts the log start back; if retention "
        "or DeleteRecords raised it: --log-start disk leaves the segments below it out"
        if any(each.is_damaged for each in refused)
        else "leave these partitions out with --topic and --partition"
    )
    return refusal_of(((each.partition, each.reason) for each in refused), hint)
