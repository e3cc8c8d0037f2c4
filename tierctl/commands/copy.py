"""`copy`: rolled segments from brokers' log directories, or from another tier, to the tier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tierctl.commands.mutation import Mutation, MutationResult, mutation
from tierctl.commands.source_tier import SourceTier, TierToTierRequest, source_tier
from tierctl.errors import UsageError
from tierctl.model import LocalLog, RemoteLogSegmentState, TopicIdPartition
from tierctl.model.progress import Progress, SilentProgress
from tierctl.plan.copy.dangling import DANGLING_AGE_MS_MIN, Dangling
from tierctl.plan.copy.from_logs import plan_copy
from tierctl.plan.copy.from_tier import plan_copy_from_tier
from tierctl.plan.preconditions import INTERNAL_TOPICS
from tierctl.plan.steps import Plan, Skip
from tierctl.read.index_lookup import UncachedIndexes
from tierctl.read.partitions import illegal_name_error
from tierctl.read.replicas import tier_lineage
from tierctl.state.tier import TierState


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest(TierToTierRequest):
    """A request to copy the segments that a broker's copy task would copy next."""

    clean_dangling: bool = False
    """Also delete the objects of copies that were begun over 24 hours ago and never finished."""
    create_metadata_topic: bool = False
    """Create the metadata topic if the cluster has none."""
    custom_metadata_max_bytes: int | None = None
    """KIP-917's limit; a segment with more stops its partition. Default: the broker setting, else 128."""


def copy(request: CopyRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the copies of every selected partition, and with `apply` carry them out.

    Copies rolled segments below the last stable offset, oldest first; segments that are in the tier already
    are not copied again. Source: Kafka's RLMCopyTask. Raises UsageError, SafetyRefusal, LockedError, and the
    errors of the tier and the metadata.
    """
    request.require_one_source()
    progress = progress or SilentProgress()
    if request.from_remote is not None:
        return _copy_from_tier(request, progress)
    if not request.log_dir:
        raise UsageError("--log-dir is missing", hint="name a broker's log directory (log.dirs)")
    with mutation(request, progress, may_be_new=True, make_topic=request.create_metadata_topic) as run:
        state = run.metadata.refresh()
        logs = run.read_logs()
        run.resolve_selection(part.topic_id_partition for part in state)
        plan = run.narrowed(_plan(run, state, logs, clean_dangling=request.clean_dangling))
        partitions = _led(run, logs)
        return run.conclude(
            plan,
            lambda: run.copy_options(custom_metadata_max_bytes=request.custom_metadata_max_bytes),
            check=lambda: run.check_plan_fence(plan, partitions),
        )


def _led(run: Mutation, logs: Sequence[LocalLog]) -> set[TopicIdPartition]:
    """Return the selected partitions that brokers might copy themselves."""
    partitions = {log.topic_id_partition for log in logs}
    return {p for p in partitions if p in run.resources.selection and p.topic not in INTERNAL_TOPICS}


def _plan(run: Mutation, state: TierState, logs: Sequence[LocalLog], *, clean_dangling: bool) -> Plan:
    configs = run.resources.topic_configs()
    refused_logs: tuple[Skip, ...] = ()
    live_broker_ids: tuple[int, ...] = ()
    if run.cluster is not None:
        leaders = run.cluster.leaders(sorted(_led(run, logs)))
        configs |= leaders.configs
        logs, refused_logs = leaders.sources(logs)
        live_broker_ids = leaders.broker_ids
    plan = plan_copy(
        state,
        logs,
        configs,
        clean_dangling_after_ms=DANGLING_AGE_MS_MIN if clean_dangling else None,
        now_ms=run.resources.now_ms,
        live_broker_ids=live_broker_ids,
    )
    unfinished = () if clean_dangling else tuple(_unfinished(run, state))
    return replace(plan, skipped=(*plan.skipped, *refused_logs, *unfinished))


def _unfinished(run: Mutation, state: TierState) -> Iterator[Skip]:
    """Yield the copies without an end: those of a run that was killed, or of a broker at work."""
    started = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    for part in state:
        if part.topic_id_partition not in run.resources.selection:
            continue
        for segment in part.cache.list_remote_log_segments():
            if segment.state is started:
                reason = (
                    f"its copy was begun by broker {segment.broker_id} at {segment.event_timestamp_ms} "
                    "and not finished; --clean-dangling deletes it 24 hours later"
                )
                yield Skip.of(part.topic_id_partition, reason, segment.segment_id)


def _copy_from_tier(request: CopyRequest, progress: Progress) -> MutationResult:
    """Plan, and with `apply` carry out, the copies of segments that `remote` lacks of `from_remote`."""
    with (
        mutation(request.target, progress, may_be_new=True, make_topic=request.create_metadata_topic) as run,
        source_tier(request, progress) as source,
    ):
        run.resolve_selection(part.topic_id_partition for part in source.metadata.state)
        plan = run.narrowed(_plan_from_tier(run, source, clean_dangling=request.clean_dangling))
        run.is_source_damaged = run.report_quarantined(source.metadata.state)
        run.from_remote = source.spec
        partitions = {step.topic_id_partition for step in plan.steps}
        return run.conclude(
            plan,
            lambda: run.copy_options(
                source.sources, custom_metadata_max_bytes=request.custom_metadata_max_bytes
            ),
            check=lambda: run.check_fence(partitions),
        )


def _plan_from_tier(run: Mutation, source: SourceTier, *, clean_dangling: bool) -> Plan:
    fetcher = UncachedIndexes(source.remote)
    state = source.metadata.state
    lineages = {
        part.topic_id_partition.key: tier_lineage(part.cache, fetcher, lambda e: run.progress.say(e.message))
        for part in state
        if part.topic_id_partition in run.resources.selection
        and illegal_name_error(part.topic_id_partition) is None
    }
    now_ms = run.resources.now_ms
    dangling = Dangling(now_ms=now_ms, after_ms=DANGLING_AGE_MS_MIN) if clean_dangling else None
    return plan_copy_from_tier(state, run.metadata.refresh(), lineages, dangling=dangling)
