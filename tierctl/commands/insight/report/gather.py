"""Gather what the report shows of every partition, from the plans of `copy`, `sweep` and `delete`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np

from tierctl.commands.copy import CopyRequest, explained
from tierctl.commands.insight.explain import Location
from tierctl.commands.insight.report.rows import Expiration
from tierctl.commands.insight.report.sums import AgeSums, Expirations
from tierctl.commands.insight.report.verdicts import Verdicts
from tierctl.commands.insight.requests import request_as
from tierctl.commands.insight.status import WAITING, TopicSums
from tierctl.commands.mutation import Mutation
from tierctl.commands.skips import any_not_understood, skip_lines
from tierctl.commands.sweep import SweepRequest, decide
from tierctl.metadata.daily_changes import DailyChanges, read_daily_changes
from tierctl.model import LocalLog, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.cluster import ClusterLog
from tierctl.model.progress import Advance
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import INTERNAL_TOPICS, newest_replicas
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Kept, Plan, Skip
from tierctl.report.html.kinds import SegmentKind
from tierctl.report.html.lanes import Lanes, LaneSegments, PartitionRow, items_per_lane
from tierctl.state.segments.columns import FINISHED
from tierctl.state.tier import PartitionState, TierState

_Key = tuple[Uuid, int]
_LOCAL_KINDS = {
    ReasonKind.COPIED: SegmentKind.COPIED,
    ReasonKind.NOT_ROLLED: SegmentKind.ACTIVE,
    **dict.fromkeys(WAITING, SegmentKind.WAITING),
}
"""The kind of a local segment by the reason why it is not copied."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The content of the report without findings; `undecided` has one line per reason for no decision."""

    lanes: Lanes
    topics: TopicSums
    ages: AgeSums
    expirations: Expirations
    next_expirations: tuple[Expiration, ...]
    changes: DailyChanges
    undecided: tuple[str, ...]
    now_ms: int
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class _LocalLogs:
    """The logs of the log directories by partition, and the decisions about their segments."""

    logs: Mapping[_Key, LocalLog]
    kinds: Mapping[tuple[TopicIdPartition, int], SegmentKind]

    @classmethod
    def of(cls, logs: Iterable[LocalLog], plan: Plan) -> Self:
        kinds = {
            (each.partition, each.start_offset): _LOCAL_KINDS.get(each.reason.kind, SegmentKind.LOCAL)
            for each in plan.kept
        }
        for step in plan.steps:
            if step.action is Action.COPY_SEGMENT and step.start_offset is not None:
                kinds[step.topic_id_partition, step.start_offset] = SegmentKind.NEXT
        shown = (log for log in logs if log.topic_id_partition.topic not in INTERNAL_TOPICS)
        return cls(newest_replicas(list(shown)), kinds)

    def segments(self, log: LocalLog) -> LaneSegments:
        """Return the segments of `log`; the active one ends at the log's end."""
        return LaneSegments.of_rows(
            (
                segment.base_offset,
                max((segment.next_base_offset or log.log_end_offset) - 1, segment.base_offset),
                segment.size_bytes,
                segment.max_timestamp_ms,
                _NO_EPOCH,
                self._kind(log, segment.base_offset, segment.next_base_offset).code,
            )
            for segment in log.segments
        )

    def _kind(self, log: LocalLog, base_offset: int, next_base_offset: int | None) -> SegmentKind:
        default = SegmentKind.ACTIVE if next_base_offset is None else SegmentKind.LOCAL
        kind = self.kinds.get((log.topic_id_partition, base_offset), default)
        return default if kind is SegmentKind.LOCAL else kind


def gather(run: Mutation, copying: CopyRequest) -> Gathered:
    """Return the content of the report for the partitions that the request of `run` selects."""
    now_ms = run.resources.now_ms
    verdicts = Verdicts(lambda: run.metadata.state, now_ms)
    deletes = _deletes(run, copying, verdicts)
    state = run.metadata.state
    removal = run.narrowed(plan_removal(state))
    verdicts.add_steps(deletes.steps)
    verdicts.add_steps(removal.steps)
    copies, logs = Plan(command="copy", steps=(), read={}), list[LocalLog]()
    if copying.log_dir:
        copies, logs = explained(run, copying, state), run.read_logs()
    selection = run.resources.selection
    local = _LocalLogs.of((log for log in logs if log.topic_id_partition in selection), copies)
    topics = TopicSums(run, state)
    if copying.log_dir:
        topics.add_lag(copies, logs)
    ages, expirations = AgeSums(now_ms), Expirations()
    rows = _partition_rows(run, state, local, _Sums(verdicts, ages, expirations))
    skips = [*removal.skipped, *deletes.skipped, *copies.skipped]
    is_damaged = run.histories.report(state) or any_not_understood(
        (skip.reason for skip in skips), run.request
    )
    return Gathered(
        lanes=_lanes(rows),
        topics=topics,
        ages=ages,
        expirations=expirations,
        next_expirations=tuple(expirations.rows(state)),
        changes=_changes(run),
        undecided=tuple(_undecided(run, skips)),
        now_ms=now_ms,
        is_damaged=is_damaged,
    )


def _deletes(run: Mutation, copying: CopyRequest, verdicts: Verdicts) -> Plan:
    """Return the plan of a sweep; `verdicts` receives the segments on which it does not act."""
    with ExitStack() as shown:
        advance: Advance | None = None

        def receive(kept: Sequence[Kept]) -> None:
            # The bar is opened with the first result: opened earlier, it would hide the bars of reading.
            nonlocal advance
            if advance is None:
                advance = shown.enter_context(run.progress.bar("deciding about segments", unit="segments"))
            verdicts.receive(kept)
            advance(len(kept))

        return decide(run, request_as(SweepRequest, copying), on_kept=receive).plan


def _changes(run: Mutation) -> DailyChanges:
    topic = run.resources.metadata_topic(quiet=True)
    begins, ends = topic.beginning_offsets(), topic.end_offsets()
    if run.resources.is_on_spark:
        from tierctl.spark.executors.daily_changes import daily_changes

        location = run.resources.metadata_location
        return daily_changes(run.resources.executors, location, ends, run.resources.selection)
    total = sum(end - begins.get(partition, 0) for partition, end in ends.items())
    with run.progress.bar("reading copies and deletions", unit="events", total=total) as advance:
        return read_daily_changes(topic, ends, run.resources.selection.__contains__, advance)


@dataclass(frozen=True, slots=True)
class _Sums:
    """The decisions about the segments in the tier, and the sums to which these segments are added."""

    verdicts: Verdicts
    ages: AgeSums
    expirations: Expirations

    def add(self, part: PartitionState) -> PartitionRow:
        """Add the segments of `part` to the sums; return its row."""
        segments, verdict = part.segments, self.verdicts.of(part)
        live = segments.columns
        sizes = live.column("sizes").astype(np.int64)
        times_ms = live.column("max_timestamps").astype(np.int64)
        is_finished = live.states == FINISHED
        partition = part.topic_id_partition
        topic = (partition.topic, partition.topic_id)
        self.ages.add(topic, Location.TIER, sizes[is_finished], times_ms[is_finished])
        tier = LaneSegments.of(
            starts=live.column("starts"),
            ends=live.ends,
            sizes=sizes,
            times_ms=times_ms,
            epochs=segments.last_epochs,
            kinds=verdict.kinds,
        )
        next_ms = self.expirations.add(part, verdict.due_ms, sizes)
        return PartitionRow(partition=partition, tier=tier, next_expiry_ms=next_ms)


def _partition_rows(
    run: Mutation, state: TierState, local: _LocalLogs, sums: _Sums
) -> Mapping[_Key, PartitionRow]:
    """Return a row for each selected partition of the tier, and for each log of the log directories."""
    rows: dict[_Key, PartitionRow] = {}
    for part in state.by_metadata_partition():
        if part.topic_id_partition in run.resources.selection and part.segment_count:
            rows[part.topic_id_partition.key] = sums.add(part)
    for key, log in local.logs.items():
        row = rows.setdefault(key, PartitionRow(partition=log.topic_id_partition))
        row.local = local.segments(log)
        row.log_start_offset = log.log_start_offset if log.is_log_start_known else None
        row.log_end_offset = log.log_end_offset
        topic = (log.topic_id_partition.topic, log.topic_id_partition.topic_id)
        sums.ages.add(topic, Location.LOCAL, row.local.sizes, row.local.times_ms)
    for key, leader in _leader_logs(run, [row.partition for row in rows.values()]).items():
        _add_leader(rows[key], leader)
    return rows


def _leader_logs(run: Mutation, partitions: Sequence[TopicIdPartition]) -> Mapping[_Key, ClusterLog]:
    """Return the leaders' logs of `partitions` by key; empty without a cluster."""
    if run.cluster is None:
        return {}
    return run.cluster.leaders([each for each in partitions if is_legal_topic_name(each.topic)]).logs


def _add_leader(row: PartitionRow, log: ClusterLog) -> None:
    """Add the offsets of a leader's log, and the log itself unless a log directory has its segments."""
    row.log_start_offset, row.log_end_offset = log.log_start_offset, log.log_end_offset
    if not len(row.local) and log.log_end_offset > log.local_log_start_offset:
        last, size_bytes = log.log_end_offset - 1, log.local_log_bytes or 0
        leader = (log.local_log_start_offset, last, size_bytes, 0, _NO_EPOCH, SegmentKind.LEADER.code)
        row.local = LaneSegments.of_rows([leader])


def _lanes(rows: Mapping[_Key, PartitionRow]) -> Lanes:
    ordered = sorted(rows.values(), key=lambda row: (row.partition.topic, *row.partition.key))
    counts = [len(lane) for row in ordered for lane in (row.tier, row.local) if len(lane)]
    lanes = Lanes(items_per_lane(counts))
    for row in ordered:
        lanes.add(row)
    return lanes


def _undecided(run: Mutation, skips: Iterable[Skip]) -> Iterator[str]:
    """Yield one line per reason for undecided partitions, without the reasons of copies that only wait."""
    skips = [skip for skip in skips if Reason.of(skip.reason).kind not in WAITING]
    return skip_lines(run.histories.unreported(skips))
