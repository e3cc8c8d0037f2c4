"""`tierctl sweep`: retention over the tier."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import typer

from tierctl.cli import mutation_options as own
from tierctl.cli import options
from tierctl.cli.mutation import Mutation, clock_ms, mutation
from tierctl.cli.plans import say
from tierctl.cli.taking import takes
from tierctl.errors import RemoteTierMissing, TierctlError, UsageError
from tierctl.model import EpochEntry, IndexType, LocalLog, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.settings import topic
from tierctl.plan.plan import Plan

if TYPE_CHECKING:
    from tierctl.plan.leader_views import ClusterViews
    from tierctl.plan.preconditions import CurrentTopics
    from tierctl.state.tier import PartitionState, TierState

_Key = tuple[Uuid, int]
RETENTION = frozenset({topic.RETENTION_MS.name, topic.RETENTION_BYTES.name})
"""Breaches that follow from a topic's settings."""


def register(app: typer.Typer) -> None:
    """Adds `sweep`."""
    app.command("sweep")(sweep)


@takes(options.where, options.state, options.selection, ..., own.changing, options.engine)
def sweep(
    ctx: typer.Context,
    topic_configs: options.TopicConfigs = None,
    now: options.Now = None,
    log_start_offset: own.LogStartOffsets = None,
    off_lineage: own.OffLineage = False,
    unreferenced_epochs: own.UnreferencedEpochs = False,
    max_deletes: own.MaxDeletes = None,
    max_fraction: own.MaxFraction = None,
) -> int:
    """Delete from the tier what retention and the log start offset say, as a broker would.

    The oldest segments of each partition's lineage, up to the first that nothing says; deletions that were
    begun are resumed. Beside a cluster whose brokers don't tier, settings, lineages and log starts are its
    leaders', and log starts are raised there first (DeleteRecords). Else settings come from
    --topic-configs: what they don't say is unlimited. Without a partition's --log-dir its lineage is then
    read from the newest remote segment, and retention.bytes deletes nothing.
    """
    from tierctl.plan.preconditions import CurrentTopics
    from tierctl.plan.sweep import check_not_ahead

    with mutation(ctx) as run:
        state = run.refresh()
        logs = run.read_logs()
        views = _views(run, state)
        topics = CurrentTopics.of(logs) if views is None else views.topics
        asked = dict(map(_log_start, log_start_offset or ()))
        current = _current_partitions(state, logs, topics)
        log_starts = asked | _kept_log_starts(run, current, logs, asked)
        plan = run.narrowed(_plan(run, state, logs, views, log_starts))

        def check() -> None:
            looked_at = [part.topic_id_partition for part in _selected(run, state) if _is_in(topics, part)]
            run.check_plan_fence(plan, looked_at, [current[named] for named in asked])
            run.check_limits(plan, state)
            check_not_ahead(state, run.context.now_ms, clock_ms=clock_ms())

        return run.conclude(
            plan,
            lambda: run.sweep_options({current[named]: offset for named, offset in asked.items()}),
            check=check,
        )


def _selected(run: Mutation, state: "TierState") -> "list[PartitionState]":
    """The partitions that retention may have something to say about."""
    return [
        part
        for part in state
        if part.topic_id_partition in run.context.selection and part.delete_state is None and len(part.cache)
    ]


def _is_in(topics: "CurrentTopics", part: "PartitionState") -> bool:
    return topics.why_not_current(part.topic_id_partition) is None


def _views(run: Mutation, state: "TierState") -> "ClusterViews | None":
    """What the leaders of the cluster say; None without one."""
    if run.live is None:
        return None
    return run.live.views(_selected(run, state), lambda part: _lineage_of_tier(run, part))


def still_expired(run: Mutation, state: "TierState") -> "set[Uuid] | None":
    """The segments that retention deletes by what the cluster says now; None without a cluster."""
    views = _views(run, state)
    if views is None:
        return None
    return {step.segment_id for step in _plan(run, state, (), views, {}).steps if step.segment_id}


def _log_start(text: str) -> tuple[TopicPartition, int]:
    partition, equals, offset = text.partition("=")
    if not equals or not (offset.isascii() and offset.isdigit()):
        raise UsageError(
            f"--log-start-offset {text}: expected TOPIC-PARTITION=OFFSET", hint="as orders-1=1500"
        )
    return TopicPartition.parse(partition), int(offset)


def _current_partitions(
    state: "TierState", logs: Collection[LocalLog], topics: "CurrentTopics"
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


def _plan(
    run: Mutation,
    state: "TierState",
    logs: Collection[LocalLog],
    views: "ClusterViews | None",
    log_starts: Mapping[TopicPartition, int],
) -> Plan:
    from tierctl.plan.sweep import plan_retention

    return plan_retention(
        state,
        logs,
        run.context.topic_configs() if run.live is None else run.live.configs,
        now_ms=run.context.now_ms,
        log_start_offsets=log_starts,
        lineages=_lineages(run, state, logs) if views is None else None,
        cluster=views,
        off_lineage=bool(run.params.get("off_lineage")),
        unreferenced_epochs=bool(run.params.get("unreferenced_epochs")),
    )


def _lineages(
    run: Mutation, state: "TierState", logs: Collection[LocalLog]
) -> dict[_Key, tuple[EpochEntry, ...]]:
    """Lineages of selected partitions without a log at hand, from the tier; what can't be read has none."""
    known = {log.topic_id_partition.key for log in logs}
    found: dict[_Key, tuple[EpochEntry, ...]] = {}
    for part in state:
        partition = part.topic_id_partition
        if partition.key in known or partition not in run.context.selection or part.delete_state is not None:
            continue
        try:
            found[partition.key] = _lineage_of_tier(run, part)
        except RemoteTierMissing:
            raise
        except TierctlError as e:
            say(f"no lineage of {partition}: {e.message}")
    return found


def _lineage_of_tier(run: Mutation, part: "PartitionState") -> tuple[EpochEntry, ...]:
    from tierctl.read.replicas import newest_segment
    from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

    newest = newest_segment(part.cache.list_remote_log_segments())
    if newest is None:
        return ()
    with run.remote.fetch_index(newest, IndexType.LEADER_EPOCH) as stream:
        return read_leader_epoch_checkpoint(stream.read())
