"""`sweep`: delete from the tier what retention and the log start offset say."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tierctl.commands.mutation import Mutation
from tierctl.commands.planner import Planner
from tierctl.commands.plans import Decision, MutationResult
from tierctl.commands.request import MutationRequest
from tierctl.errors import RemoteTierMissing, TierctlError, UsageError
from tierctl.model import EpochEntry, IndexType, LocalLog, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.progress import Progress
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.retention.leaders import ClusterViews
from tierctl.plan.retention.sweep import plan_retention
from tierctl.plan.settings_names import require_known_names
from tierctl.plan.steps import Plan
from tierctl.state.tier import PartitionState, TierState
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

_Key = tuple[Uuid, int]
_FAILURES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(MutationRequest):
    """A request to delete the segments that a broker's expiration task would delete."""

    log_start_offset: Sequence[str] = ()
    """Log start offsets to raise, as `TOPIC-PARTITION=OFFSET`."""
    off_lineage: bool = False
    """Also delete segments that diverged from the lineage, once its start has passed their epochs."""
    unreferenced_epochs: bool = False
    """Also delete segments above the log start whose epochs are all older than the log's earliest one."""
    max_deletes: int | None = None
    """Segments that a run may delete; default 10,000."""
    max_fraction: float | None = None
    """Share of a partition's segments that a run may delete, if it has 20 or more; default 0.5."""


def sweep(request: SweepRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the deletes of every selected partition, and with `apply` carry them out.

    Each partition's plan has the oldest segments of its lineage, up to the first segment that no rule
    deletes; deletes that were begun are resumed. Source: Kafka's RLMExpirationTask. Raises LimitExceeded
    and SafetyRefusal before the first delete, LockedError, and the errors of the tier and the metadata.
    """
    return PLANNER.run(request, progress)


def _decide(run: Mutation, request: SweepRequest) -> Decision:
    state = run.metadata.refresh()
    logs = run.read_logs()
    run.resolve_selection(part.topic_id_partition for part in state)
    run.inspect_tier()
    views = _views(run, state)
    topics = CurrentTopics.of(logs) if views is None else views.topics
    asked = dict(map(_log_start, request.log_start_offset))
    current = _current_partitions(state, logs, topics)
    log_starts = asked | _kept_log_starts(run, current, logs, asked)
    raised = {current[named]: start for named, start in log_starts.items() if named in current}
    run.histories.examine(state, lambda: logs, log_starts=raised)
    plan = plan_retention(
        state,
        logs,
        _configs(run, state) if run.cluster is None else run.cluster.configs,
        now_ms=run.resources.now_ms,
        log_start_offsets=log_starts,
        lineages=_lineages(run, state, logs) if views is None else None,
        cluster=views,
        off_lineage=request.off_lineage,
        unreferenced_epochs=request.unreferenced_epochs,
    )

    def check(plan: Plan) -> None:
        examined = [part.topic_id_partition for part in _selected(run, state) if _is_in(topics, part)]
        run.check_plan_fence(plan, examined, [current[named] for named in asked])
        run.check_limits(plan, state, max_deletes=request.max_deletes, max_fraction=request.max_fraction)

    return Decision(
        plan=run.narrowed(plan),
        options=lambda: run.sweep_options({current[named]: offset for named, offset in asked.items()}),
        check=check,
    )


PLANNER = Planner(
    command="sweep",
    request=SweepRequest,
    decide=_decide,
    options=("log_start_offset", "off_lineage", "unreferenced_epochs"),
    logs_decide=True,
)


def _configs(run: Mutation, state: TierState) -> dict[str, TopicConfig]:
    """Return the settings in --topic-configs; UsageError if the names of its topics look mistyped."""
    configs = run.resources.topic_configs(run.settings)
    topics = {part.topic_id_partition.topic for part in _selected(run, state)}
    require_known_names(configs, run.resources.known_topics(state), topics - configs.keys())
    return configs


def _selected(run: Mutation, state: TierState) -> list[PartitionState]:
    """The partitions that retention may have something to say about."""
    return [
        part
        for part in state
        if part.topic_id_partition in run.resources.selection
        and part.delete_state is None
        and part.segment_count
    ]


def _is_in(topics: CurrentTopics, part: PartitionState) -> bool:
    return topics.why_not_current(part.topic_id_partition) is None


def _views(run: Mutation, state: TierState) -> ClusterViews | None:
    """What the leaders of the cluster say; None without one."""
    if run.cluster is None:
        return None
    return run.cluster.views(_selected(run, state), lambda part: _lineage_of_tier(run, part))


def _log_start(text: str) -> tuple[TopicPartition, int]:
    partition, equals, offset = text.partition("=")
    if not equals or not (offset.isascii() and offset.isdigit()):
        raise UsageError(
            f"--log-start-offset {text}: expected TOPIC-PARTITION=OFFSET", hint="as orders-1=1500"
        )
    return TopicPartition.parse(partition), int(offset)


def _current_partitions(
    state: TierState, logs: Collection[LocalLog], topics: CurrentTopics
) -> dict[TopicPartition, TopicIdPartition]:
    """What each name means now; names that may mean several topics are left out."""
    known = {part.topic_id_partition for part in state if part.delete_state is None}
    known |= {log.topic_id_partition for log in logs}
    current = [partition for partition in known if topics.why_not_current(partition) is None]
    times = Counter(partition.topic_partition for partition in current)
    return {p.topic_partition: p for p in current if times[p.topic_partition] == 1}


def _kept_log_starts(
    run: Mutation,
    current: Mapping[TopicPartition, TopicIdPartition],
    logs: Collection[LocalLog],
    asked: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """What earlier sweeps raised log starts to; nothing that the log itself does not reach."""
    if run.journal is None:
        return {}
    kept = run.journal.log_starts()
    ends = {log.topic_partition: log.high_watermark for log in logs}
    starts = {named: kept.get(partition.key, 0) for named, partition in current.items()}
    return {
        named: max(start, asked.get(named, 0))
        for named, start in starts.items()
        if 0 < start <= ends.get(named, start)
    }


def _lineages(
    run: Mutation, state: TierState, logs: Collection[LocalLog]
) -> dict[_Key, tuple[EpochEntry, ...]]:
    """Lineages of selected partitions without a log at hand, from the tier; what can't be read has none."""
    known = {log.topic_id_partition.key for log in logs}
    found: dict[_Key, tuple[EpochEntry, ...]] = {}
    failures: list[str] = []
    for part in state:
        partition = part.topic_id_partition
        if (
            partition.key in known
            or partition not in run.resources.selection
            or part.delete_state is not None
        ):
            continue
        try:
            found[partition.key] = _lineage_of_tier(run, part)
        except RemoteTierMissing:
            raise
        except TierctlError as e:
            failures.append(f"no lineage of {partition}: {e.message}")
    for failure in failures[:_FAILURES_SHOWN]:
        run.progress.warn(failure)
    if len(failures) > _FAILURES_SHOWN:
        more = len(failures) - _FAILURES_SHOWN
        run.progress.warn(f"no lineage of {more} more partitions; the plan lists them as skipped")
    return found


def _lineage_of_tier(run: Mutation, part: PartitionState) -> tuple[EpochEntry, ...]:
    newest = part.newest_segment()
    if newest is None:
        return ()
    with run.remote.fetch_index(newest, IndexType.LEADER_EPOCH) as stream:
        return read_leader_epoch_checkpoint(stream.read())
