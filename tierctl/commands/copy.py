"""`copy`: rolled segments from brokers' log directories, or from another tier, to the tier."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.commands.histories import report_unusable
from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult, place_of
from tierctl.commands.shared_options import (
    AssumeEnabled,
    CleanDangling,
    CreateMetadataTopic,
    CustomMetadataMaxBytes,
)
from tierctl.commands.source_tier import SourceTier, TierToTierRequest, source_tier
from tierctl.errors import UsageError
from tierctl.locallog import with_open_transaction
from tierctl.model import LocalLog, RemoteLogSegmentState, Selection, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.progress import Progress
from tierctl.model.settings import topic
from tierctl.model.times import iso_utc
from tierctl.plan.copy.dangling import DANGLING_AGE_MS_MIN, Dangling
from tierctl.plan.copy.enabled import require_enabled
from tierctl.plan.copy.from_logs import plan_copy
from tierctl.plan.copy.from_tier import plan_copy_from_tier
from tierctl.plan.preconditions import INTERNAL_TOPICS, require_known_names
from tierctl.plan.steps import Plan, Skip
from tierctl.read.leader_logs import EvidenceSources, examine_histories
from tierctl.read.partition_reader import illegal_name_error
from tierctl.read.readable_log import tier_lineage
from tierctl.read.segment import UncachedIndexes
from tierctl.state.lineage import Lineage
from tierctl.state.tier import TierState


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest(TierToTierRequest):
    """A request to copy the segments that a broker's copy task would copy next."""

    clean_dangling: CleanDangling = False
    assume_enabled: AssumeEnabled = False
    create_metadata_topic: CreateMetadataTopic = False
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


def copy(request: CopyRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of every selected partition, and with `apply` carry them out.

    Copies rolled segments below the last stable offset, oldest first; segments that are in the tier already
    are not copied again. Topics without remote.storage.enable=true are left out. Source: Kafka's RLMCopyTask.
    Raises UsageError, SafetyRefusal, LockedError, and the errors of the tier and the metadata.
    """
    return PLANNER.run(request, progress)


def _decide(run: Mutation, request: CopyRequest) -> Decision:
    if request.from_remote is not None:
        return _decide_from_tier(run, request)
    state = run.metadata.refresh()
    logs = run.read_logs()
    run.resolve_selection(part.topic_id_partition for part in state)
    run.inspect_tier(may_be_new=True)
    _require_settings(run, request)
    partitions = _led(run, logs)
    # A segment whose events were deleted may be in the tier, although the local log still has it.
    run.histories.examine(state, lambda: logs, local_suffices=False)
    inputs = _inputs(run, request, state, logs)
    plan = run.narrowed(_plan(run, request, state, inputs))
    plan = run.without_breaches(plan, request.custom_metadata_max_bytes)
    run.histories.ignore_untiered(state, plan.skipped)
    return Decision(
        plan=plan,
        options=lambda: run.copy_options(custom_metadata_max_bytes=request.custom_metadata_max_bytes),
        check=lambda plan: run.check_plan_fence(plan, partitions),
        require_topics=lambda: require_enabled(
            {partition.topic for partition in partitions},
            inputs.configs,
            named=run.resources.selection_request.named_topics,
            assumed=inputs.assumed_enabled,
        ),
    )


PLANNER = Planner(
    command="copy",
    request=CopyRequest,
    decide=_decide,
    options=("topic", "assume_enabled", "clean_dangling", "create_metadata_topic", "metadata_partitions"),
    may_be_new=True,
    makes_topic=lambda request: request.create_metadata_topic,
)


def explained(run: Mutation, request: CopyRequest, state: TierState) -> Plan:
    """Return the plan of copies from the log directories, with the reasons for all selected segments.

    Topics of which no settings are known count as not enabled. The selection must be resolved.
    """
    logs = run.read_logs()
    run.histories.examine(state, lambda: logs, local_suffices=False)
    inputs = _inputs(run, request, state, logs)
    plan = run.narrowed(_plan(run, request, state, inputs, explained=run.resources.selection))
    return run.without_breaches(plan, request.custom_metadata_max_bytes)


def _led(run: Mutation, logs: Sequence[LocalLog]) -> set[TopicIdPartition]:
    """Return the selected partitions that brokers might copy themselves."""
    partitions = {log.topic_id_partition for log in logs}
    return {p for p in partitions if p in run.resources.selection and p.topic not in INTERNAL_TOPICS}


def _require_settings(run: Mutation, request: CopyRequest) -> None:
    """Raise UsageError if nothing states which topics are enabled."""
    if request.topic_configs is None and not request.assume_enabled and run.cluster is None:
        raise UsageError(
            "no source of topic settings is named, and only topics with "
            f"{topic.REMOTE_STORAGE_ENABLE.name}=true are copied",
            hint="give the settings with --topic-configs, the cluster with --bootstrap-server, or each topic "
            "with --topic and --assume-enabled",
        )


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


def _inputs(run: Mutation, request: CopyRequest, state: TierState, logs: Sequence[LocalLog]) -> _Inputs:
    """Read the logs and their settings from the cluster or --topic-configs; UsageError for mistyped names."""
    partitions = sorted(_led(run, logs))
    in_file = run.resources.topic_configs()
    default = TopicConfig.from_settings({}, run.resources.broker_defaults())
    inputs = _Inputs(
        logs=logs,
        stated=in_file,
        configs={log.topic_partition.topic: default for log in logs} | in_file,
        assumed_enabled=run.resources.selection.topics if request.assume_enabled else frozenset(),
    )
    if run.cluster is not None:
        leaders = run.cluster.leaders(partitions)
        copyable, refused = leaders.sources(logs)
        inputs = replace(
            inputs,
            logs=[with_open_transaction(log) for log in copyable],
            stated={**in_file, **leaders.configs},
            configs={**inputs.configs, **leaders.configs},
            refused=refused,
            live_broker_ids=leaders.broker_ids,
        )
    without_settings = {partition.topic for partition in partitions} - inputs.stated.keys()
    known = run.resources.known_topics(state) | {partition.topic for partition in run.unreadable}
    note = require_known_names(in_file, known, without_settings)
    if note is not None:
        run.progress.note(note)
    return inputs


def _plan(
    run: Mutation,
    request: CopyRequest,
    state: TierState,
    inputs: _Inputs,
    explained: Selection | None = None,
) -> Plan:
    plan = plan_copy(
        state,
        inputs.logs,
        inputs.configs,
        assumed_enabled=inputs.assumed_enabled,
        clean_dangling_after_ms=DANGLING_AGE_MS_MIN if request.clean_dangling else None,
        now_ms=run.resources.now_ms,
        live_broker_ids=inputs.live_broker_ids,
        explained=explained,
    )
    unfinished = () if request.clean_dangling else tuple(_unfinished(run, state))
    return replace(
        plan,
        skipped=(*plan.skipped, *inputs.refused, *unfinished),
        basis=replace(plan.basis, configs=inputs.stated),
    )


def _unfinished(run: Mutation, state: TierState) -> Iterator[Skip]:
    """Yield the segments in COPY_SEGMENT_STARTED: a killed run left the copy, or a broker makes it now."""
    started = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    for part in state:
        if part.topic_id_partition not in run.resources.selection:
            continue
        for segment in part.cache.list_remote_log_segments():
            if segment.state is started:
                reason = (
                    f"its copy was begun by broker {segment.broker_id} at "
                    f"{iso_utc(segment.event_timestamp_ms)} and not finished; --clean-dangling deletes it "
                    "24 hours later"
                )
                yield Skip.of(part.topic_id_partition, reason, segment.segment_id)


def _decide_from_tier(run: Mutation, request: CopyRequest) -> Decision:
    """Decide the copies of segments of `from_remote` that `remote` does not have."""
    source = run.resources.enter(source_tier(request, run.progress))
    selection = run.resolve_selection(part.topic_id_partition for part in source.metadata.state)
    run.metadata.refresh()
    run.inspect_tier(may_be_new=True)
    run.histories.examine(run.metadata.state)
    evidence = EvidenceSources(selection=selection, remote=lambda: source.remote)
    incomplete = examine_histories(source.metadata.state, evidence, request.truncated_metadata)
    run.is_source_damaged = report_unusable(run.resources, source.metadata.state, incomplete)
    run.from_remote = source.spec
    run.source = place_of(request.source, source.metadata, source.remote)
    plan = run.narrowed(_plan_from_tier(run, source, clean_dangling=request.clean_dangling))
    return Decision(
        plan=run.without_breaches(plan, request.custom_metadata_max_bytes),
        options=lambda: run.copy_options(
            source.sources, custom_metadata_max_bytes=request.custom_metadata_max_bytes
        ),
        check=lambda plan: run.check_fence({step.topic_id_partition for step in plan.steps}),
    )


def _plan_from_tier(run: Mutation, source: SourceTier, *, clean_dangling: bool) -> Plan:
    state = source.metadata.state
    lineages = _lineages(run, source)
    now_ms = run.resources.now_ms
    dangling = Dangling(now_ms=now_ms, after_ms=DANGLING_AGE_MS_MIN) if clean_dangling else None
    return plan_copy_from_tier(state, run.metadata.state, lineages, dangling=dangling)


def _lineages(run: Mutation, source: SourceTier) -> dict[tuple[Uuid, int], Lineage]:
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
