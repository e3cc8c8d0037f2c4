"""`copy`: its request, and which segments a broker's copy task would copy next, from log directories or from
another tier.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import typer

from tierctl.apply.run import Acts, DeleteSegments
from tierctl.apply.run_context import Outcome
from tierctl.commands.change import Change, MutationResult
from tierctl.commands.copy.act import BEGUN, CLEANUP_LABELS, CopySegments
from tierctl.commands.copy.source import LogSources, Sources, TierSources
from tierctl.commands.histories import report_unusable
from tierctl.commands.mutation import Mutation, kept_for_the_next_run, place_of
from tierctl.commands.request import (
    DECIDE,
    FROM_TIER,
    HOW,
    TYPED_ONLY,
    CustomMetadataMaxBytes,
    MutationRequest,
)
from tierctl.commands.resources import Resources
from tierctl.errors import CustomMetadataTooLarge, UsageError
from tierctl.locallog import with_open_transaction
from tierctl.metadata.state_dir import CustomMetadataBreach
from tierctl.model import (
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.choices import NOT_A_BROKER_ID
from tierctl.model.events import INTERNAL_TOPICS, writer_text
from tierctl.model.location import Layout, canonical_uri
from tierctl.model.progress import Progress
from tierctl.model.selection import counted, names_text
from tierctl.model.settings import broker
from tierctl.model.settings.topic import REMOTE_STORAGE_ENABLE
from tierctl.model.times import iso_utc
from tierctl.plan.copy import (
    plan_copy,
    plan_copy_from_tier,
    require_enabled,
    written_ms,
)
from tierctl.plan.dangling import Dangling
from tierctl.plan.decisions import Decision
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.reasons import Reason, abort_words, cleaned_text
from tierctl.plan.steps import Action, Plan, Skip, Step
from tierctl.read.partition_reader import illegal_name_error
from tierctl.read.readable_log import EvidenceSources, examine_histories, tier_lineage
from tierctl.read.segment import UncachedIndexes
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import is_start_unknown
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import spool_folder

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The copies that were decided, and where the bytes of their segments are.

    `examined` are the partitions of the logs, which brokers might copy themselves; None if another tier is
    copied from. `configs` are the settings of their topics, by name, without those that are `assumed` to be
    enabled.
    """

    plan: Plan
    sources: Sources
    examined: Collection[TopicIdPartition] | None = None
    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    assumed: Collection[str] = ()


def decide_from_logs(run: Mutation, *, assume_enabled: bool, clean_dangling: bool) -> Copies:
    """Decide the copies of segments in the log directories, and resolve the selection."""
    if run.resources.is_on_spark:
        # Starting a session takes half a minute.
        run.request.require_complete()
    state = run.metadata.refresh()
    logs = run.logs
    run.resolve_selection(part.topic_id_partition for part in state)
    run.inspect_tier(may_be_new=True)
    run.request.require_complete()
    # A segment whose events were deleted may be in the tier, although the local log still has it.
    run.histories.examine(state, lambda: logs, local_suffices=False)
    inputs = _inputs(run, state, logs, assume_enabled=assume_enabled)
    plan = _plan(run, state, inputs, clean_dangling=clean_dangling, ended_writer=_ended_writer(run))
    plan = run.narrowed(plan)
    _warn_of_gaps(run, state, plan)
    run.histories.ignore_untiered(state, plan.skipped)
    return Copies(
        plan=plan,
        sources=LogSources(run.request.log_dir, run.unread.add),
        examined=_led(run, logs),
        configs=inputs.configs,
        assumed=inputs.assumed_enabled,
    )


def _warn_of_gaps(run: Mutation, state: TierState, plan: Plan) -> None:
    """Warn of partitions whose copies begin above the tier, and whose log start is not known.

    A broker copies such a log from its first segment on. Below a known log start no record is missing.
    """
    replicas = newest_replicas(run.logs)
    firsts = {s.topic_id_partition: s for s in reversed(plan.steps) if s.action is Action.COPY_SEGMENT}
    for partition, step in sorted(firsts.items()):
        part, start = state.partition(partition), step.start_offset or 0
        finished = None if part is None else part.segments.finished_range()
        if finished is not None and finished[1] + 1 < start and is_start_unknown(replicas[partition.key]):
            run.progress.warn(
                f"{partition.topic_partition}: offsets {finished[1] + 1} to {start - 1} are neither in the "
                "tier nor in the log, and log-start-offset-checkpoint does not state that they were deleted: "
                "copies begin above this gap, as a broker's do, and verify reports it"
            )


def _ended_writer(run: Mutation) -> int | None:
    """Return the broker id of copies that no run can be making while this run has the lease of the tier.

    None with --no-lease: another run may be making them.
    """
    return None if run.request.no_lease else NOT_A_BROKER_ID


def explained_copy(run: Mutation, state: TierState, *, custom_metadata_max_bytes: int | None = None) -> Plan:
    """Return the plan of copies from the log directories, with the reasons for all selected segments.

    Topics of which no settings are known count as not enabled. The selection must be resolved.
    """
    logs = run.logs
    run.histories.examine(state, lambda: logs, local_suffices=False)
    inputs = _inputs(run, state, logs)
    plan = run.narrowed(_plan(run, state, inputs, explained=run.resources.selection))
    run.histories.ignore_untiered(state, plan.skipped)
    return without_breaches(run, plan, custom_metadata_limit(run, custom_metadata_max_bytes))


def custom_metadata_limit(run: Mutation, asked_bytes: int | None) -> int:
    """Return KIP-917's limit in bytes: the one of the command line, else that of the broker settings."""
    stated = broker.CUSTOM_METADATA_MAX_BYTES.value(run.resources.broker_settings)
    return stated if asked_bytes is None else asked_bytes


def _custom_metadata_layout(run: Mutation) -> str:
    """Return the name of the tier's layout, with the fields of custom metadata that it writes."""
    fields = ",".join(sorted(run.tier_spec.aiven.custom_metadata_fields))
    return f"{run.remote.layout.name} {fields}".strip()


def without_breaches(run: Mutation, plan: Plan, limit_bytes: int) -> Plan:
    """Return `plan` without the copies from the offset of each recorded breach on, and with the reasons.

    KIP-917: segments whose custom metadata exceeded the limit are not uploaded again for the same result.
    Copying of the partition stops there, as a broker's does; these segments are in `kept`. A breach of
    another limit or of another layout does not count any more. Without a tier in the request its layout is
    unknown, and is taken to be the same as then.
    """
    breaches = () if run.journal is None else run.journal.custom_metadata_breaches()
    if not breaches:
        return plan
    layout = None if run.request.remote is None else _custom_metadata_layout(run)
    held = {
        (breach.topic_id, breach.partition): breach
        for breach in sorted(breaches, key=lambda each: -each.start_offset)
        if breach.limit_bytes == limit_bytes and layout in {None, breach.layout}
    }
    steps: list[Step] = []
    kept: list[Decision] = []
    reasons: dict[TopicIdPartition, Reason] = {}
    for step in plan.steps:
        breach, start = held.get(step.topic_id_partition.key), step.start_offset or 0
        if breach is None or step.action is not Action.COPY_SEGMENT or start < breach.start_offset:
            steps.append(step)
            continue
        reason = reasons.setdefault(step.topic_id_partition, breach.reason_since(written_ms(step)))
        kept.append(
            Decision(
                partition=step.topic_id_partition,
                segment_id=None,
                start_offset=start,
                end_offset=step.end_offset,
                reason=reason,
                size_bytes=step.details["segment_size_in_bytes"],
            )
        )
    skips = [Skip.of(partition, reason) for partition, reason in reasons.items()]
    return replace(plan, steps=tuple(steps), skipped=(*plan.skipped, *skips), kept=(*plan.kept, *kept))


def record_breaches(run: Mutation, outcomes: Sequence[Outcome]) -> None:
    """Record the segments of `outcomes` whose custom metadata exceeded the limit, in the state directory."""
    breaches = [
        CustomMetadataBreach(
            topic_id=outcome.step.topic_id,
            partition=outcome.step.partition,
            start_offset=outcome.step.start_offset or 0,
            size_bytes=outcome.error.size_bytes,
            limit_bytes=outcome.error.limit_bytes,
            layout=_custom_metadata_layout(run),
        )
        for outcome in outcomes
        if isinstance(outcome.error, CustomMetadataTooLarge)
    ]
    folder = run.request.state_dir
    if breaches and run.journal is not None and folder is not None:
        otherwise = "the next run uploads the segments over the limit once more"
        with kept_for_the_next_run(folder, run.progress, otherwise):
            run.journal.record_breaches(breaches)


def with_end_command(run: Mutation, partition: TopicPartition, reason: Reason) -> Reason:
    """Return the reason of an open transaction with its transactional id, and the command that ends it.

    The id is known on a cluster only, and not of a transaction that its coordinator has forgotten.
    """
    cluster, producer, name = run.resources.cluster, reason.facts.get("producer_id"), None
    if cluster is not None and producer is not None:
        name = cluster.leaders.transactional_id(producer)
    servers = (run.request.cluster_servers or "HOST:PORT").removeprefix("kafka://")
    if name is not None and run.resources.kafka_version.can_terminate_transactions:
        words = ["forceTerminateTransaction", "--transactionalId", name]
    else:
        words = abort_words(partition, reason)
    file = run.request.command_config
    login = [] if file is None else ["--command-config", str(file)]
    command = shlex.join(["kafka-transactions.sh", "--bootstrap-server", servers, *login, *words])
    return Reason(reason.kind, **reason.facts, transactional_id=name, end_command=command)


def _led(run: Mutation, logs: Sequence[LocalLog]) -> set[TopicIdPartition]:
    """Return the selected partitions that brokers might copy themselves."""
    partitions = {log.topic_id_partition for log in logs}
    return {p for p in partitions if p in run.resources.selection and p.topic not in INTERNAL_TOPICS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """Hold the logs that may be copied, the reasons of the `refused` ones, and the settings of their topics.

    `stated` are the settings on the cluster or in --topic-configs; `configs` also has the broker's defaults
    for topics without any.
    """

    logs: Sequence[LocalLog]
    stated: Mapping[str, TopicConfig]
    configs: Mapping[str, TopicConfig]
    assumed_enabled: frozenset[str]
    refused: tuple[Skip, ...] = ()
    live_broker_ids: tuple[int, ...] = ()


def _inputs(
    run: Mutation, state: TierState, logs: Sequence[LocalLog], *, assume_enabled: bool = False
) -> _Inputs:
    """Read the logs and their settings from the cluster or --topic-configs; UsageError for mistyped names."""
    partitions = sorted(_led(run, logs))
    in_file = run.resources.topic_configs()
    default = TopicConfig.from_settings({}, run.resources.broker_defaults())
    inputs = _Inputs(
        logs=logs,
        stated=in_file,
        configs={log.topic_partition.topic: default for log in logs} | in_file,
        assumed_enabled=run.resources.selection.topics if assume_enabled else frozenset(),
    )
    if run.cluster is not None:
        leaders = run.cluster.leaders(partitions)
        run.resources.note_unused(leaders.configs)
        copyable, refused = leaders.sources(logs)
        inputs = replace(
            inputs,
            logs=[with_open_transaction(log) for log in copyable],
            stated={**in_file, **leaders.configs},
            configs={**inputs.configs, **leaders.configs},
            refused=refused,
            live_broker_ids=leaders.broker_ids,
        )
    unread = run.untiered.keys() if run.cluster is None else set[str]()
    without_settings = ({partition.topic for partition in partitions} | unread) - inputs.stated.keys()
    known = run.resources.known_topics(state) | {partition.topic for partition in run.unreadable}
    run.resources.check_topic_names(in_file, known, without_settings)
    return inputs


def _plan(
    run: Mutation,
    state: TierState,
    inputs: _Inputs,
    *,
    clean_dangling: bool = False,
    ended_writer: int | None = None,
    explained: Selection | None = None,
) -> Plan:
    now_ms = run.resources.now_ms
    dangling = Dangling(now_ms=now_ms, alive=inputs.live_broker_ids)
    plan = plan_copy(
        state,
        inputs.logs,
        inputs.configs,
        assumed_enabled=inputs.assumed_enabled,
        dangling=dangling if clean_dangling else None,
        ended_writer=ended_writer,
        now_ms=now_ms,
        explained=explained,
    )
    unfinished = () if clean_dangling else tuple(_unfinished(run, state, plan))
    return replace(
        plan,
        skipped=(*plan.skipped, *inputs.refused, *unfinished),
        basis=replace(plan.basis, configs=inputs.stated),
    )


def _unfinished(run: Mutation, state: TierState, plan: Plan) -> Iterator[Skip]:
    """Yield the segments in COPY_SEGMENT_STARTED that `plan` leaves: a broker may make the copy now."""
    withdrawn = {step.segment_id for step in plan.steps}
    begun = [
        part.topic_id_partition
        for part in state.by_metadata_partition()
        if part.topic_id_partition in run.resources.selection and part.segments.count_in(_STARTED)
    ]
    found = state.map_in_order(partial(_begun_copies, frozenset(begun)), [each.key for each in begun])
    for partition, segment in found:
        if segment.segment_id not in withdrawn:
            by, at = writer_text(segment.broker_id), iso_utc(segment.event_timestamp_ms)
            later = cleaned_text(segment.broker_id)
            reason = f"its copy was begun by {by} at {at} and not finished; {later}"
            yield Skip.of(partition, reason, segment.segment_id)


def _begun_copies(
    partitions: Collection[TopicIdPartition], state: TierState
) -> Iterator[tuple[TopicIdPartition, RemoteLogSegmentMetadata]]:
    """Yield the segments of `partitions` in COPY_SEGMENT_STARTED."""
    for part in state:
        if part.topic_id_partition in partitions:
            for segment in part.segments.in_state(_STARTED):
                yield part.topic_id_partition, segment


def decide_from_tier(run: Mutation, source: MutationRequest, *, clean_dangling: bool) -> Copies:
    """Decide the copies of segments that `run` does not have in its tier; `source` names that with them."""
    resources = run.resources.enter(Resources(request=source, progress=run.progress))
    metadata, remote = resources.metadata(), resources.remote
    state = metadata.refresh()
    resources.inspect_tier(metadata)
    sources = TierSources(metadata, remote, run.resources.enter(spool_folder()))
    selection = run.resolve_selection(part.topic_id_partition for part in state)
    run.metadata.refresh()
    run.inspect_tier(may_be_new=True)
    run.histories.examine(run.metadata.state)
    evidence = EvidenceSources(selection=selection, remote=lambda: remote)
    incomplete = examine_histories(state, evidence, source.truncated_metadata)
    run.is_source_damaged = report_unusable(run.resources, state.quarantined, incomplete)
    run.from_remote = resources.tier_spec().resolved(remote)
    run.source = place_of(source, metadata, remote)
    now_ms = run.resources.now_ms
    plan = plan_copy_from_tier(
        state,
        run.metadata.state,
        _lineages(run, sources),
        dangling=Dangling(now_ms=now_ms) if clean_dangling else None,
        ended_writer=_ended_writer(run),
    )
    return Copies(plan=run.narrowed(plan), sources=sources)


def _lineages(run: Mutation, source: TierSources) -> dict[tuple[Uuid, int], Lineage]:
    """Return the lineage of each selected user partition of the tier that is copied from."""
    fetcher = UncachedIndexes(source.remote)
    parts = [
        part
        for part in source.metadata.state
        if part.topic_id_partition in run.resources.selection
        and illegal_name_error(part.topic_id_partition) is None
    ]
    found = {}
    with run.progress.bar("reading leader epochs", unit="files", total=len(parts)) as advance:
        for part in parts:
            lineage = tier_lineage(part.cache, fetcher, lambda e: run.progress.warn(e.message))
            found[part.topic_id_partition.key] = lineage
            advance(1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TierToTierRequest(MutationRequest):
    """A request that may copy from one tier to another.

    With `from_remote`, `metadata` is the metadata topic of the tier that is copied from.
    """

    from_remote: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Copy segments from this tier, which --metadata describes, instead of from log directories.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None
    from_layout: Annotated[
        Layout | None,
        typer.Option(
            help="Layout of --from-remote. Default: the layout found there.", rich_help_panel=FROM_TIER
        ),
    ] = None
    to_metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Metadata topic of --remote, the tier that receives the copies. It must not be the metadata "
            "topic of --from-remote.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None
    to_command_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Like --command-config, for --to-metadata. Default: --command-config.",
            rich_help_panel=FROM_TIER,
        ),
    ] = None

    @property
    def target(self) -> Self:
        """Implement `MutationRequest.target`: `metadata` is that of the tier that is copied to."""
        if self.to_metadata is None:
            return self
        # The state directory is that of `metadata`.
        config = self.to_command_config or self.command_config
        return replace(self, metadata=self.to_metadata, state_dir=None, command_config=config)

    @property
    def source(self) -> Self:
        """The request with `remote` being the tier that is copied from."""
        return replace(self, remote=self.from_remote, layout=self.from_layout, adopt_tier=False)

    def validate(self) -> None:
        """Implement `MutationRequest.validate`; refuse to copy a tier onto itself, too."""
        if self.from_remote is None:
            for name in ("to_metadata", "from_layout", "to_command_config"):
                if getattr(self, name) is not None:
                    raise UsageError(f"--{name.replace('_', '-')} needs --from-remote")
            return
        if self.log_dir:
            raise UsageError("--log-dir and --from-remote exclude each other", hint="copy from one of them")
        if self.to_metadata is None:
            raise UsageError(
                "--to-metadata is missing",
                hint="the copies need another metadata topic: in the metadata topic of --from-remote, a "
                "broker would take each copy for a second copy of the same offsets, and never delete the "
                "first",
            )
        metadata = None if self.metadata is None else canonical_uri("--metadata", self.metadata)
        if metadata == canonical_uri("--to-metadata", self.to_metadata):
            raise UsageError("--metadata and --to-metadata are the same topic", hint="name another one")
        remote = None if self.remote is None else canonical_uri("--remote", self.remote)
        source = canonical_uri("--from-remote", self.from_remote)
        if remote == source and self.from_layout == self.layout:
            raise UsageError(
                "--from-remote and --remote are the same tier", hint="name another tier, or another layout"
            )
        if remote is not None and remote != source:
            outer, inner = sorted((f"{remote.rstrip('/')}/", f"{source.rstrip('/')}/"), key=len)
            if inner.startswith(outer):
                raise UsageError(
                    f"--remote {remote} and --from-remote {source}: one is in the other",
                    hint="name a place outside: the copies would be unknown objects of the other tier",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest(TierToTierRequest):
    """A request to copy the segments that a broker's copy task would copy next."""

    clean_dangling: Annotated[
        bool,
        typer.Option(
            help="Also delete the objects of copies that started over 24 hours ago and did not finish, "
            "whoever began them, if that broker is gone, unless their offsets may be nowhere else: then "
            "verify --plan-out plans to finish the copy. copy always deletes what a killed run of tierctl "
            "began; sweep deletes objects below the log start offset.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    assume_enabled: Annotated[
        bool,
        typer.Option(
            help="With --topic: copy these topics although their settings do not state "
            "remote.storage.enable. Topics with remote.storage.enable=false and compacted topics are "
            "still refused.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    create_metadata_topic: Annotated[
        bool,
        typer.Option(
            help="Create __remote_log_metadata if the cluster does not have it, with the "
            "remote.log.metadata.topic.* settings of --broker-config (default: 50 partitions, 3 "
            "replicas).",
            rich_help_panel=HOW,
        ),
    ] = False
    custom_metadata_max_bytes: CustomMetadataMaxBytes = None

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        TierToTierRequest.validate(self)
        if self.from_remote is None and not self.log_dir:
            raise UsageError("--log-dir is missing", hint="name a broker's log directory (log.dirs)")
        if self.assume_enabled and self.from_remote is not None:
            raise UsageError(
                "--assume-enabled needs --log-dir", hint="copies from another tier need no settings"
            )
        if self.assume_enabled and not self.topic:
            raise UsageError("--assume-enabled needs --topic", hint="name each topic that may be copied")

    def require_complete(self) -> None:
        """Implement `Request.require_complete`: something must state which topics are enabled."""
        CopyRequest.validate(self)
        states_enabled = self.topic_configs is not None or self.has_cluster or self.assume_enabled
        if self.from_remote is None and not states_enabled:
            raise UsageError(
                "no source of topic settings is named, and only topics with "
                f"{REMOTE_STORAGE_ENABLE.name}=true are copied",
                hint="give the settings with --topic-configs, the cluster with --bootstrap-server, or each "
                "topic with --topic and --assume-enabled",
            )


def copy(request: CopyRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of every selected partition, and with `apply` carry them out.

    Copies rolled segments below the last stable offset, oldest first; segments that are in the tier already
    are not copied again. Topics without remote.storage.enable=true are left out. Source: Kafka's RLMCopyTask.
    Raises UsageError, SafetyRefusal, LockedError, and the errors of the tier and the metadata.
    """
    with Copy.opened(request, progress) as change:
        return change.finish(change.decided())


class Copy(Change[CopyRequest]):
    """One run of `copy`."""

    command = "copy"
    request_type = CopyRequest
    saved = ("topic", "assume_enabled", "clean_dangling", "create_metadata_topic", "metadata_partitions")
    may_be_new = True

    @classmethod
    def makes_topic(cls, request: CopyRequest) -> bool:
        """Implement `Change.makes_topic`."""
        return request.create_metadata_topic

    def decide(self) -> Plan:
        """Implement `Change.decide`: the segments of log directories, or those of `from_remote`."""
        run, request = self.run, self.request
        if request.from_remote is not None:
            self._copies = decide_from_tier(run, request.source, clean_dangling=request.clean_dangling)
        else:
            self._copies = decide_from_logs(
                run, assume_enabled=request.assume_enabled, clean_dangling=request.clean_dangling
            )
        self._limit_bytes = custom_metadata_limit(run, request.custom_metadata_max_bytes)
        plan = without_breaches(run, self._copies.plan, self._limit_bytes)
        self.is_held_back = len(plan.steps) < len(self._copies.plan.steps)
        if any(step.action is Action.COPY_SEGMENT for step in plan.steps):
            # Before the first event: each failed attempt would leave events that look like a failing broker.
            run.remote.layout.require_writable()
        return plan

    def require_topics(self) -> None:
        """Implement `Change.require_topics`: a topic that is named must be enabled."""
        copies = self._copies
        if copies.examined is not None:
            require_enabled(
                {partition.topic for partition in copies.examined},
                copies.configs,
                named=self.run.resources.selection_request.named_topics,
                assumed=copies.assumed,
                unread={partition.topic for partition in self.run.unreadable},
            )

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: no broker may do this work itself."""
        copied = sorted({step.topic for step in plan.steps if step.action is Action.COPY_SEGMENT})
        if copied and self.request.allow_live_brokers:
            self.run.progress.warn(
                f"--allow-live-brokers: brokers that tier {names_text(copied)} copy every segment of this "
                "plan again: they read what is copied only when they become leaders"
            )
        if self._copies.examined is None:
            self.run.check_fence({step.topic_id_partition for step in plan.steps})
        else:
            self.run.check_plan_fence(plan, self._copies.examined)

    def acts(self) -> Acts:
        """Implement `Change.acts`: the clean-up of what earlier runs left, then copies."""
        copying = CopySegments(sources=self._copies.sources, custom_metadata_max_bytes=self._limit_bytes)
        return {
            Action.DELETE_SEGMENT: DeleteSegments(labels=CLEANUP_LABELS),
            Action.COPY_SEGMENT: copying,
        }

    def conclude(self, outcomes: Sequence[Outcome]) -> str | None:
        """Implement `Change.conclude`: how the copies are ended that the run began before it was stopped.

        Segments whose custom metadata exceeded the limit are recorded, so that they are not uploaded again.
        """
        record_breaches(self.run, outcomes)
        begun = sum(outcome.reason == BEGUN for outcome in outcomes)
        if not begun:
            return None
        request, ending = self.request, "the next run withdraws what was stored and copies again"
        if request.no_lease or request.broker_id != NOT_A_BROKER_ID:
            ending = (
                f"the next run copies again, and what was stored stays: {cleaned_text(request.broker_id)}"
            )
        return f"{counted(begun, 'copy/copies')} begun and not finished: {ending}"
