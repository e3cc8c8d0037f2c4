"""Gather what the report shows of every partition, from the plans of `copy`, `sweep` and `delete`."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import typer

from tierctl.commands.copy.command import CopyRequest
from tierctl.commands.copy.decide import explained
from tierctl.commands.insight.explain import Location
from tierctl.commands.insight.status import WAITING, TopicSums
from tierctl.commands.mutation import Mutation, any_not_understood, skip_lines
from tierctl.commands.request import Request
from tierctl.commands.sweep.decide import explained as explained_sweep
from tierctl.errors import ExitCode
from tierctl.metadata.daily_changes import DAY_MAX, DAY_MS, DailyChanges, Day, DayChanges, read_daily_changes
from tierctl.model import LocalLog, RemoteLogSegmentState, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.local import ClusterLog
from tierctl.model.progress import Advance
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import INTERNAL_TOPICS, newest_replicas
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Kept, Plan, Skip, Step
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.html_lanes import Int64s, Lanes, LaneSegments, PartitionRow, SegmentKind, items_per_lane
from tierctl.report.html_page import AGES
from tierctl.report.render import SHOW
from tierctl.report.results import TableResult, TableRows
from tierctl.report.texts import bytes_text, counted
from tierctl.state.segments.columns import FINISHED, STATES
from tierctl.state.tier_state import PartitionState, TierState

EXPIRATIONS_MAX = 1000
"""A report has this many of the next expirations at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest(Request):
    """A request for the report of a tier."""

    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write one HTML page to this file instead; it needs no network and no other file. An "
            "existing report is replaced atomically; any other existing file is refused.",
            rich_help_panel=SHOW,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeSize:
    """The segments of one topic id in the tier, or in the log directories, whose newest record has one age.

    Segments of the tier count if they are finished. `oldest_ms` and `newest_ms` are the lowest and the
    highest of the largest timestamps; None if no segment has one.
    """

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    location: Annotated[Location, f.LOCATION, Shown(0)]
    age: Annotated[
        str, Field(Kind.WORD, "age of the segments' newest records; unknown without a timestamp"), Shown(0)
    ]
    segments: Annotated[int, f.SEGMENTS, Shown(2)]
    log_bytes: Annotated[int, f.LOG_BYTES, Shown(0)]
    oldest_ms: Annotated[
        int | None, Field(Kind.TIME, "lowest of the segments' largest timestamps", "oldest"), Shown(3)
    ]
    newest_ms: Annotated[
        int | None, Field(Kind.TIME, "highest of the segments' largest timestamps", "newest"), Shown(4)
    ]


REPORT_SIZES = Columns(
    AgeSize,
    name="report-sizes",
    title="Sizes by topic and age",
    commands="report",
    noun="row",
    word="location",
    size="log_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGrowth:
    """The growth of the tier on one day (UTC) for one topic id.

    Copies and deletions are counted from the events in the metadata topic. `expiring` counts the segments
    that retention.ms deletes on that day; segments that have expired already count for the day of the report.
    """

    day: Annotated[str, Field(Kind.TEXT, "day in UTC, as 2026-11-21"), Shown(0)]
    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    copied_segments: Annotated[
        int, Field(Kind.NUMBER, "segments whose copy finished on this day", "copied"), Shown(3)
    ]
    copied_bytes: Annotated[int, Field(Kind.BYTES, "size of their logs", "copied_size"), Shown(1)]
    deleted_segments: Annotated[
        int, Field(Kind.NUMBER, "segments whose deletion finished on this day", "deleted"), Shown(4)
    ]
    deleted_bytes: Annotated[int, Field(Kind.BYTES, "size of their logs", "deleted_size"), Shown(1)]
    expiring_segments: Annotated[
        int, Field(Kind.NUMBER, "segments that brokers may delete from this day on", "expiring"), Shown(4)
    ]
    expiring_bytes: Annotated[int, Field(Kind.BYTES, "size of their logs", "expiring_size"), Shown(2)]


REPORT_GROWTH = Columns(
    DayGrowth,
    name="report-growth",
    title="Growth by day",
    commands="report --show growth",
    noun="row",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiration:
    """A segment of the tier that brokers delete next; from `due_ms` on they may."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    segment_id: Annotated[Uuid, f.SEGMENT_ID, Shown(4)]
    start_offset: Annotated[int, f.START_OFFSET, Shown(1)]
    end_offset: Annotated[int, f.END_OFFSET, Shown(2)]
    segment_size_in_bytes: Annotated[int, f.SEGMENT_SIZE_IN_BYTES, Shown(1)]
    max_timestamp_ms: Annotated[int, f.MAX_TIMESTAMP_MS, Shown(3)]
    due_ms: Annotated[
        int, Field(Kind.TIME, "time from which brokers may delete the segment", "due"), Shown(0)
    ]


REPORT_EXPIRATIONS = Columns(
    Expiration,
    name="report-expirations",
    title="Next expirations",
    commands="report --show expirations",
    noun="segment to expire/segments to expire",
    size="segment_size_in_bytes",
    terminal=(
        "due_ms",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "segment_size_in_bytes",
        "max_timestamp_ms",
        "segment_id",
        "topic_id",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TableResult):
    """The report of a tier; `page` is the file that was written, with `page_bytes` bytes.

    The exit code is that of `verify`: PARTIAL if an operator must act, CORRUPT for damaged bytes or records.
    """

    sizes: tuple[AgeSize, ...]
    growth: tuple[DayGrowth, ...]
    expirations: tuple[Expiration, ...]
    problems: int
    """Findings of `verify` that are more than information."""
    examined: str
    partitions: int
    page: Path | None
    page_bytes: int
    exit_code: ExitCode

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: the sizes, the rows that the command prints as JSON."""
        return REPORT_SIZES, self.sizes

    @property
    def summary(self) -> str:
        """The topics, their sizes in the tier and in the logs, and how many segments expire next."""
        topics = counted(len({row.topic_id for row in self.sizes}), "topic")
        sizes = {Location.TIER: 0}
        for row in self.sizes:
            sizes[row.location] = sizes.get(row.location, 0) + row.log_bytes
        each = ", ".join(f"{bytes_text(size)} {location}" for location, size in sizes.items())
        expiring = f"{EXPIRATIONS_MAX} or more segments"
        if len(self.expirations) < EXPIRATIONS_MAX:
            expiring = counted(len(self.expirations), "segment")
        return f"{topics}: {each}; {expiring} to expire; {counted(self.problems, 'problem')}"


NEVER = -1
"""A due time that is unknown, or does not exist."""
_K, _R = SegmentKind, ReasonKind
_OF_REASONS = {
    _R.WILL_EXPIRE: _K.CURRENT,
    _R.BEHIND_OLDER: _K.CURRENT,
    _R.NO_LIMIT_REACHED: _K.CURRENT,
    _R.STALLED: _K.HELD,
    _R.BEHIND_HOLE: _K.HELD,
    _R.OFF_LINEAGE: _K.OFF_LINEAGE,
    _R.TOPIC_DELETED: _K.GONE,
    _R.LEAKED: _K.GONE,
    _R.COPY_STARTED: _K.COPYING,
    _R.DELETE_STARTED: _K.DELETING,
    _R.RETENTION_MS: _K.DUE,
    _R.RETENTION_BYTES: _K.DUE,
    _R.LOG_START_OFFSET: _K.DUE,
    _R.UNREFERENCED_EPOCHS: _K.DUE,
}
"""The kind of a segment in the tier by the reason of its step, or the reason why it stays."""
_S = RemoteLogSegmentState
_OF_STATES = {
    STATES.index(_S.COPY_SEGMENT_STARTED): _K.COPYING,
    STATES.index(_S.DELETE_SEGMENT_STARTED): _K.DELETING,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decisions about the segments of one partition, in the order of its columns.

    `kinds` are codes of SegmentKind; `due_ms` is the time from which brokers may delete a segment, or NEVER.
    """

    kinds: Int64s
    due_ms: Int64s


class Verdicts:
    """The verdicts of the partitions of the state that `state` returns, which must not change meanwhile."""

    def __init__(self, state: Callable[[], TierState], now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._by_partition: dict[tuple[Uuid, int], Verdict] = {}

    def receive(self, kept: Sequence[Kept]) -> None:
        """Add the segments of one partition on which a sweep does not act."""
        if kept:
            verdict, rows = self._indexed(kept[0].partition.key)
            for each in kept:
                if each.segment_id is not None and (row := rows.get(each.segment_id.bytes)) is not None:
                    kind = _OF_REASONS.get(each.reason.kind, _K.UNDECIDED)
                    verdict.kinds[row] = kind.code
                    verdict.due_ms[row] = each.reason.facts.get("expires_at_ms", NEVER)

    def add_steps(self, steps: Iterable[Step]) -> None:
        """Add the segments that the steps of a plan delete: brokers may do so now."""
        by_partition: dict[tuple[Uuid, int], list[Step]] = {}
        for step in steps:
            if step.action is Action.DELETE_SEGMENT:
                by_partition.setdefault(step.topic_id_partition.key, []).append(step)
        for key, deletes in by_partition.items():
            verdict, rows = self._indexed(key)
            for step in deletes:
                if step.segment_id is not None and (row := rows.get(step.segment_id.bytes)) is not None:
                    kind = _OF_REASONS.get(Reason.of(step.reason).kind, _K.UNDECIDED)
                    verdict.kinds[row] = kind.code
                    verdict.due_ms[row] = self._now_ms

    def of(self, part: PartitionState) -> Verdict:
        """Return the verdict on the segments of `part`; states count where no plan knows a segment."""
        found = self._by_partition.get(part.topic_id_partition.key)
        return self._initial(part) if found is None else found

    def _indexed(self, key: tuple[Uuid, int]) -> tuple[Verdict, dict[bytes, int]]:
        """Return the verdict of a partition, and its rows by segment id."""
        part = self._state().partitions[key]
        verdict = self._by_partition.setdefault(key, self._initial(part))
        return verdict, {raw: row for row, raw in enumerate(part.segments.columns.ids)}

    def _initial(self, part: PartitionState) -> Verdict:
        states = part.segments.columns.states
        kinds = np.full(len(states), _K.UNDECIDED.code, np.int64)
        for state, kind in _OF_STATES.items():
            kinds[states == state] = kind.code
        return Verdict(kinds, np.full(len(states), NEVER, np.int64))


HOUR_MS = 60 * 60 * 1000
_LIMITS_MS = (HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS, 365 * DAY_MS)

Topic = tuple[str, Uuid]


@dataclass(slots=True)
class AgeSums:
    """The sums by topic id, location and age as of `now_ms`."""

    now_ms: int
    _sums: dict[tuple[str, Uuid, Location], Int64s] = field(default_factory=dict)

    def add(self, topic: Topic, location: Location, sizes: Int64s, times_ms: Int64s) -> None:
        """Add segments with these sizes and largest timestamps."""
        if not len(sizes):
            return
        ages = np.searchsorted(_LIMITS_MS, self.now_ms - times_ms, side="right")
        ages[(times_ms <= 0) | (times_ms > self.now_ms)] = len(AGES) - 1
        sums = self._sums.setdefault((*topic, location), _empty_sums())
        np.add.at(sums[0], ages, 1)
        np.add.at(sums[1], ages, sizes)
        np.minimum.at(sums[2], ages, times_ms)
        np.maximum.at(sums[3], ages, times_ms)

    def rows(self) -> Iterator[AgeSize]:
        """Yield a row for each topic id, location and age that has segments, the youngest age first."""
        for (topic, topic_id, location), sums in sorted(self._sums.items(), key=lambda item: item[0]):
            for age, (count, size_bytes, oldest_ms, newest_ms) in zip(AGES, sums.T.tolist(), strict=True):
                if count:
                    yield AgeSize(
                        topic=topic,
                        topic_id=topic_id,
                        location=location,
                        age=age,
                        segments=count,
                        log_bytes=size_bytes,
                        oldest_ms=oldest_ms if oldest_ms > 0 else None,
                        newest_ms=newest_ms if newest_ms > 0 else None,
                    )


def _empty_sums() -> Int64s:
    """Return the columns count, bytes, lowest and highest time, with one value per age."""
    sums = np.zeros((4, len(AGES)), np.int64)
    sums[2:] = [[np.iinfo(np.int64).max], [-1]]
    return sums


@dataclass(slots=True)
class Expirations:
    """The segments that brokers delete by day and topic id, and the next ones of all."""

    days: dict[Day, tuple[int, int]] = field(default_factory=dict)
    """Number and size of the segments that become due."""
    _next: list[tuple[int, str, Uuid, int, int]] = field(default_factory=list)
    """Due time, topic, topic id, partition, and row in the partition's columns."""
    _latest_ms: int = np.iinfo(np.int64).max
    """The time after which a segment is not among the next ones."""

    def add(self, part: PartitionState, due_ms: Int64s, sizes: Int64s) -> int | None:
        """Add the segments of a partition that have a due time; return the first such time."""
        rows = np.flatnonzero(due_ms != NEVER)
        if not len(rows):
            return None
        partition = part.topic_id_partition
        days, which = np.unique(np.clip(due_ms[rows] // DAY_MS, 0, DAY_MAX), return_inverse=True)
        sums = np.zeros(len(days), np.int64)
        np.add.at(sums, which, sizes[rows])
        for day, count, size_bytes in zip(
            days.tolist(), np.bincount(which).tolist(), sums.tolist(), strict=True
        ):
            key = (partition.topic, partition.topic_id, day)
            before = self.days.get(key, (0, 0))
            self.days[key] = before[0] + count, before[1] + size_bytes
        order = rows[np.argsort(due_ms[rows], kind="stable")][:EXPIRATIONS_MAX]
        for row, at_ms in zip(order.tolist(), due_ms[order].tolist(), strict=True):
            if at_ms <= self._latest_ms:
                self._next.append((at_ms, partition.topic, partition.topic_id, partition.partition, row))
        if len(self._next) > 8 * EXPIRATIONS_MAX:
            self._next = heapq.nsmallest(EXPIRATIONS_MAX, self._next)
            self._latest_ms = self._next[-1][0]
        return int(due_ms[rows].min())

    def rows(self, state: TierState) -> Iterator[Expiration]:
        """Yield the segments that become due next, at most EXPIRATIONS_MAX."""
        for due_ms, _, topic_id, number, row in heapq.nsmallest(EXPIRATIONS_MAX, self._next):
            live = state.partitions[topic_id, number].segments.columns
            segment = live.columns.metadata(int(live.rows[row]))
            yield Expiration(
                topic=segment.topic,
                topic_id=segment.topic_id,
                partition=segment.partition,
                segment_id=segment.segment_id,
                start_offset=segment.start_offset,
                end_offset=segment.end_offset,
                segment_size_in_bytes=segment.segment_size_in_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                due_ms=due_ms,
            )


def growth_rows(changes: DailyChanges, expirations: Expirations) -> Iterator[DayGrowth]:
    """Yield a row for each day and topic id with a copy, a deletion or an expiration, by day and topic."""
    days = changes.days.keys() | expirations.days.keys()
    for topic, topic_id, day in sorted(days, key=lambda key: (key[2], key[0], key[1])):
        changed = changes.days.get((topic, topic_id, day), DayChanges())
        expiring = expirations.days.get((topic, topic_id, day), (0, 0))
        yield DayGrowth(
            day=datetime.fromtimestamp(day * 86400, UTC).date().isoformat(),
            topic=topic,
            topic_id=topic_id,
            copied_segments=changed.copied_segments,
            copied_bytes=changed.copied_bytes,
            deleted_segments=changed.deleted_segments,
            deleted_bytes=changed.deleted_bytes,
            expiring_segments=expiring[0],
            expiring_bytes=expiring[1],
        )


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
    deletes = _deletes(run, verdicts)
    state = run.metadata.state
    removal = run.narrowed(plan_removal(state))
    verdicts.add_steps(deletes.steps)
    verdicts.add_steps(removal.steps)
    copies, logs = Plan(command="copy", steps=(), read={}), list[LocalLog]()
    if copying.log_dir:
        copies, logs = explained(run, state), run.read_logs()
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


def _deletes(run: Mutation, verdicts: Verdicts) -> Plan:
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

        return explained_sweep(run, receive)


def _changes(run: Mutation) -> DailyChanges:
    topic = run.resources.metadata_topic(quiet=True)
    begins, ends = topic.beginning_offsets(), topic.end_offsets()
    if run.resources.is_on_spark:
        from tierctl.spark.executors.fold import daily_changes

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
