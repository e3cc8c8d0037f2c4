"""RLMExpirationTask for every partition: what retention deletes from the tier, and what it may not."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from tierctl.errors import RemoteResourceNotFound, SafetyRefusal, UsageError
from tierctl.model import EpochEntry, LocalLog, TopicConfig, TopicPartition, Uuid
from tierctl.model.settings import topic
from tierctl.plan.preconditions import (
    CurrentTopics,
    newest_replicas,
    why_behind,
    why_never_tiered,
    why_unknown,
)
from tierctl.plan.retention.breaches import expire, resume_deletions
from tierctl.plan.retention.leaders import ClusterViews
from tierctl.plan.retention.partition_view import View, view_of_log, view_of_tier
from tierctl.plan.retention.unreferenced_epochs import orphan_steps
from tierctl.plan.steps import Plan, Skip, Step
from tierctl.state.tier import PartitionState, TierState

CLOCK_SKEW_MS_MAX = 5 * 60 * 1000

PartitionKey = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    state: TierState
    logs: Mapping[PartitionKey, LocalLog]
    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    now_ms: int
    log_starts: Mapping[PartitionKey, int]
    lineages: Mapping[PartitionKey, Sequence[EpochEntry]]
    cluster: ClusterViews | None
    off_lineage: bool
    unreferenced_epochs: bool


@dataclass(slots=True)
class _Decided:
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)


def plan_retention(
    state: TierState,
    logs: Collection[LocalLog],
    configs: Mapping[str, TopicConfig],
    *,
    now_ms: int,
    log_start_offsets: Mapping[TopicPartition, int] | None = None,
    lineages: Mapping[PartitionKey, Sequence[EpochEntry]] | None = None,
    cluster: ClusterViews | None = None,
    off_lineage: bool = False,
    unreferenced_epochs: bool = False,
) -> Plan:
    """Delete what brokers would at `now_ms`, a contiguous prefix of each partition's lineage.

    Settings that `configs` lacks are no limit. `log_start_offsets` raises log starts as DeleteRecords does.
    `lineages` serves partitions without a log at hand: the entries of the newest finished segment's
    leader-epoch index; retention.bytes deletes nothing there. With `cluster` its leaders say what logs say
    else: `logs` and `lineages` count for nothing. Segments wholly below the log start whose epochs are all
    older than the checkpoint's first entry are deleted, too. `unreferenced_epochs` also deletes such segments
    that reach above the log start, `off_lineage` those and the ones that diverged, once the log start has
    passed their epochs. Steps that move the log start say so in `new_log_start_offset`: it moves
    there before anything is deleted.

    Raises SafetyRefusal when the clock is more than five minutes behind the newest event, and UsageError
    for a log start that no partition has or that lies above the high watermark.
    """
    topics = CurrentTopics.of(logs) if cluster is None else cluster.topics
    replicas = newest_replicas(logs) if cluster is None else {}
    ends = {key: log.high_watermark for key, log in replicas.items()}
    if cluster is not None:
        ends = {key: view.log_end_offset for key, view in cluster.views.items()}
    request = _Request(
        state=state,
        logs=replicas,
        topics=topics,
        configs=configs,
        now_ms=now_ms,
        log_starts=_resolve(state, replicas, ends, topics, log_start_offsets or {}),
        lineages=lineages or {},
        cluster=cluster,
        off_lineage=off_lineage,
        unreferenced_epochs=unreferenced_epochs,
    )
    decided = _Decided()
    for part in state:
        _decide(request, part, decided)
    return Plan(
        command="sweep", steps=tuple(decided.steps), read=dict(state.read), skipped=tuple(decided.skipped)
    )


def check_not_ahead(state: TierState, now_ms: int, *, clock_ms: int) -> None:
    """SafetyRefusal when `now_ms` is over five minutes ahead of the clock and of every event.

    As of a time that has not come yet, what is alive now has expired. Where events are later than the
    clock, it is the clock that is wrong.
    """
    if now_ms <= clock_ms + CLOCK_SKEW_MS_MAX:
        return
    segments = (segment for part in state for segment in part.cache.list_remote_log_segments())
    latest_ms = max((segment.event_timestamp_ms for segment in segments), default=0)
    if now_ms > latest_ms + CLOCK_SKEW_MS_MAX:
        ahead_s = (now_ms - max(clock_ms, latest_ms)) // 1000
        raise SafetyRefusal(
            f"decided as of {now_ms}, {ahead_s} s ahead of the clock and of the newest event: what is to be "
            "kept would expire",
            hint="leave --now out; without --apply a plan may look ahead",
        )


def decided_as_of_ms(plan: Plan) -> int:
    """The latest time that a kept plan's steps were decided as of; 0 when none was by time."""
    steps = (step.details for step in plan.steps if step.details.get("breach") == topic.RETENTION_MS.name)
    times = ((details.get("cutoff_ms"), details.get("retention_ms")) for details in steps)
    return max(
        (cutoff + limit for cutoff, limit in times if _is_number(cutoff) and _is_number(limit)), default=0
    )


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int)


def _resolve(
    state: TierState,
    logs: Mapping[PartitionKey, LocalLog],
    ends: Mapping[PartitionKey, int],
    topics: CurrentTopics,
    wanted: Mapping[TopicPartition, int],
) -> dict[PartitionKey, int]:
    """Log starts by topic id: a name may have meant several topics in its life."""
    known = {part.topic_id_partition for part in state if part.delete_state is None}
    known |= {log.topic_id_partition for log in logs.values()}
    resolved: dict[PartitionKey, int] = {}
    for named, offset in wanted.items():
        meant = [p for p in known if p.topic_partition == named and topics.why_not_current(p) is None]
        if len(meant) != 1:
            raise UsageError(
                f"--log-start-offset {named}: {len(meant)} partitions of that name",
                hint="name one that the metadata know; --log-dir tells a topic from its predecessors",
            )
        end = ends.get(meant[0].key)
        if end is not None and offset > end:
            raise UsageError(f"--log-start-offset {named}={offset} is above the high watermark {end}")
        resolved[meant[0].key] = offset
    return resolved


def _decide(request: _Request, part: PartitionState, decided: _Decided) -> None:
    partition = part.topic_id_partition
    if len(part.cache) == 0:
        return
    reason = why_unknown(request.state, part) or request.topics.why_not_current(partition)
    reason = reason or why_never_tiered(partition.topic, request.configs)
    if request.cluster is not None:
        reason = reason or request.cluster.why_unseen(partition)
    if reason:
        decided.skipped.append(Skip.of(partition, reason))
        return
    view = _view(request, part)
    _check_clock(view, request.now_ms)
    steps = resume_deletions(view)
    notes: Sequence[str]
    why_not = _why_not_judged(part, view)
    if why_not:
        notes = (why_not,)
    else:
        found, notes = _expired(request, view)
        steps += found
    decided.steps += steps
    decided.skipped += [Skip.of(partition, note) for note in notes]


def _view(request: _Request, part: PartitionState) -> View:
    key = part.topic_id_partition.key
    if request.cluster is not None:
        return request.cluster.views[key].raised_to(request.log_starts.get(key, 0))
    log = request.logs.get(key)
    view = view_of_log(part, log) if log else view_of_tier(part, request.lineages.get(key, ()))
    return view.raised_to(request.log_starts.get(key, 0))


def _check_clock(view: View, now_ms: int) -> None:
    newest_ms = max((segment.event_timestamp_ms for segment in view.segments), default=0)
    if newest_ms > now_ms + CLOCK_SKEW_MS_MAX:
        raise SafetyRefusal(
            f"the clock says {now_ms}, but {view.partition} has an event of {newest_ms}, "
            f"{(newest_ms - now_ms) // 1000} s later",
            hint="set the clock, or decide as of a later time with --now",
        )


def _why_not_judged(part: PartitionState, view: View) -> str | None:
    """Why this lineage can't say which segments belong to it."""
    if view.lineage.latest is None:
        return "no leader epochs are known: nothing but begun deletions is decided"
    return why_behind(part, view.lineage.latest.epoch)


def _expired(request: _Request, view: View) -> tuple[list[Step], Sequence[str]]:
    config = request.configs.get(view.partition.topic)
    try:
        expiry = expire(view, config or TopicConfig(), request.now_ms)
    except RemoteResourceNotFound as e:
        return [], (f"nothing expires: {e.message}",)
    steps = list(expiry.steps)
    steps += orphan_steps(
        view,
        expiry.log_start_offset,
        {step.segment_id for step in steps},
        off_lineage=request.off_lineage,
        unreferenced_epochs=request.unreferenced_epochs,
    )
    notes = list(expiry.notes)
    if config is None:
        notes.append("no settings are known for this topic: neither time nor size expires anything")
    return steps, notes
