"""`report`: sizes by topic and age, growth by day, next expirations; with `html` one page of all of it."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import typer

from tierctl import __version__
from tierctl.checks.findings import Finding, FindingKind
from tierctl.commands.copy.command import CopyRequest
from tierctl.commands.copy.decide import explained
from tierctl.commands.insight.explain import Location
from tierctl.commands.insight.status import STATUS, TopicSums
from tierctl.commands.mutation import Mutation, any_not_understood, mutation, skip_lines
from tierctl.commands.request import Request, request_as
from tierctl.commands.resources import required
from tierctl.commands.sweep.decide import decide_all
from tierctl.commands.verify.command import FINDINGS, ReadLogs, VerifyRequest, verify
from tierctl.errors import ExitCode, combined_exit_code
from tierctl.metadata.daily_changes import DAY_MAX, DAY_MS, DailyChanges, Day, DayChanges, read_daily_changes
from tierctl.model import (
    LocalLog,
    LocalSegment,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.choices import Severity
from tierctl.model.ids import INTERNAL_TOPICS
from tierctl.model.local import ClusterLog
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import (
    EXPIRED,
    KEPT,
    NEVER,
    ON_DISK,
    STOPPED,
    WAITING,
    Decision,
    DecisionColumns,
    TierDecisions,
    stop_lines,
    stopped_copies,
)
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Plan
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.html_lanes import Int64s, Lanes, LaneSegments, PartitionRow, SegmentKind
from tierctl.report.html_page import AGES, PageContent, require_replaceable, write_page
from tierctl.report.render import SHOW
from tierctl.report.results import TableResult, TableRows, row_of
from tierctl.report.texts import bytes_text, counted, printable
from tierctl.state.table_arrays import FINISHED, STATES
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
    DayGrowth, name="report-growth", title="Growth by day", commands="report --show growth", noun="row"
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
        *("due_ms", "topic", "partition", "start_offset", "end_offset", "segment_size_in_bytes"),
        *("max_timestamp_ms", "segment_id", "topic_id"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TableResult):
    """The report of a tier; `page` is the file that was written, with `page_bytes` bytes.

    The exit code is PARTIAL if an operator must act, CORRUPT for damaged bytes or records.
    """

    sizes: tuple[AgeSize, ...]
    growth: tuple[DayGrowth, ...]
    expirations: tuple[Expiration, ...]
    problems: int
    """Findings of `verify` that are more than information, and partitions whose copies stopped."""
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


_K = SegmentKind
_OF_REASONS = (
    (KEPT, _K.CURRENT),
    (STOPPED, _K.HELD),
    (EXPIRED, _K.DUE),
    ({ReasonKind.OFF_LINEAGE, ReasonKind.DOUBLED_SEGMENT}, _K.OFF_LINEAGE),
    ({ReasonKind.TOPIC_DELETED, ReasonKind.LEAKED}, _K.GONE),
    ({ReasonKind.COPY_STARTED, ReasonKind.COPY_MAY_RUN}, _K.COPYING),
    ({ReasonKind.DELETE_STARTED}, _K.DELETING),
)
"""The kind of a segment in the tier by the reason of its decision; of two, the later one counts."""
_S = RemoteLogSegmentState
_OF_STATES = {
    STATES.index(_S.COPY_SEGMENT_STARTED): _K.COPYING,
    STATES.index(_S.DELETE_SEGMENT_STARTED): _K.DELETING,
}


def segment_kinds(decided: DecisionColumns, states: npt.NDArray[np.uint8]) -> Int64s:
    """Return the codes of SegmentKind of a partition's segments; states count where nothing was decided."""
    kinds = np.full(len(states), _K.UNDECIDED.code, np.int64)
    for state, kind in _OF_STATES.items():
        kinds[(states == state) & ~decided.is_decided] = kind.code
    for reasons, kind in _OF_REASONS:
        kinds[decided.has(reasons)] = kind.code
    return kinds


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
            segment = live.table.metadata(int(live.rows[row]))
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
            **asdict(changed),
            expiring_segments=expiring[0],
            expiring_bytes=expiring[1],
        )


_Key = tuple[Uuid, int]
_LOCAL_KINDS = {
    ReasonKind.ROLLED: _K.NEXT,
    **dict.fromkeys([ReasonKind.COPIED, *ON_DISK], _K.COPIED),
    ReasonKind.NOT_ROLLED: _K.ACTIVE,
    **dict.fromkeys(WAITING, _K.WAITING),
}
"""The kind of a local segment by the reason why it is copied or not."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The content of the report without findings.

    `undecided` has one line per reason for no decision, `stopped` the partitions of `stopped_copies`.
    """

    lanes: Lanes
    topics: TopicSums
    sizes: tuple[AgeSize, ...]
    growth: tuple[DayGrowth, ...]
    expirations: tuple[Expiration, ...]
    unknown_segments: int
    undecided: tuple[str, ...]
    stopped: Mapping[TopicIdPartition, Reason]
    now_ms: int
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class _LocalLogs:
    """The logs of the log directories by partition, and the decisions about their segments."""

    logs: Mapping[_Key, LocalLog]
    kinds: Mapping[tuple[TopicIdPartition, int], SegmentKind]

    @classmethod
    def of(cls, logs: Iterable[LocalLog], decisions: Iterable[Decision]) -> Self:
        kinds = {
            (each.partition, each.start_offset): _LOCAL_KINDS[each.reason.kind]
            for each in decisions
            if each.reason.kind in _LOCAL_KINDS
        }
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
                self._kind(log, segment).code,
            )
            for segment in log.segments
        )

    def _kind(self, log: LocalLog, segment: LocalSegment) -> SegmentKind:
        default = _K.ACTIVE if segment.next_base_offset is None else _K.LOCAL
        return self.kinds.get((log.topic_id_partition, segment.base_offset), default)


def gather(run: Mutation, copying: CopyRequest) -> Gathered:
    """Return the content of the report for the partitions that the request of `run` selects."""
    now_ms = run.resources.now_ms
    decisions = TierDecisions(lambda: run.metadata.state)
    deletes = decide_all(run, decisions)
    state = run.metadata.state
    removal = run.narrowed(plan_removal(state))
    decisions.add(removal.decisions(now_ms))
    topics = TopicSums(run, state)
    copies, logs = Plan(command="copy", steps=(), read={}), list[LocalLog]()
    if copying.log_dir:
        copies, logs = explained(run, state), run.logs
        topics.add_lag(copies, logs)
    stopped = stopped_copies(copies.kept, now_ms - run.request.copy_limit_ms)
    topics.add_stopped(stopped)
    for line in stop_lines(stopped):
        run.progress.warn(line)
    selection = run.resources.selection
    own_logs = (log for log in logs if log.topic_id_partition in selection)
    local = _LocalLogs.of(own_logs, copies.decisions(now_ms))
    sums = _Sums(decisions, AgeSums(now_ms), Expirations())
    rows = _partition_rows(run, state, local, sums)
    skips = [*removal.skipped, *deletes.skipped, *copies.skipped]
    undecided = [skip for skip in skips if Reason.of(skip.reason).kind not in WAITING]
    is_damaged = run.histories.report(state) or any_not_understood(
        (skip.reason for skip in skips), run.request
    )
    changes = _changes(run)
    return Gathered(
        lanes=Lanes.of(rows.values()),
        topics=topics,
        sizes=tuple(sums.ages.rows()),
        growth=tuple(growth_rows(changes, sums.expirations)),
        expirations=tuple(sums.expirations.rows(state)),
        unknown_segments=changes.unknown_segments,
        undecided=tuple(skip_lines(run.histories.unreported(undecided))),
        stopped=stopped,
        now_ms=now_ms,
        is_damaged=is_damaged,
    )


def _changes(run: Mutation) -> DailyChanges:
    topic = run.resources.metadata_topic(quiet=True)
    begins, ends = topic.beginning_offsets(), topic.end_offsets()
    if run.resources.is_on_spark:
        from tierctl.spark.fold import changes_by_day

        location = run.resources.metadata_location
        return changes_by_day(run.resources.executors, location, ends, run.resources.selection)
    total = sum(end - begins.get(partition, 0) for partition, end in ends.items())
    with run.progress.bar("reading copies and deletions", unit="events", total=total) as advance:
        return read_daily_changes(topic, ends, run.resources.selection.__contains__, advance)


@dataclass(frozen=True, slots=True)
class _Sums:
    """The decisions about the segments in the tier, and the sums to which these segments are added."""

    decisions: TierDecisions
    ages: AgeSums
    expirations: Expirations

    def add(self, part: PartitionState) -> PartitionRow:
        """Add the segments of `part` to the sums; return its row."""
        segments, decided = part.segments, self.decisions.of(part)
        live = segments.columns
        sizes = live.column("size").astype(np.int64)
        times_ms = live.column("max_timestamp").astype(np.int64)
        is_finished = live.states == FINISHED
        partition = part.topic_id_partition
        topic = (partition.topic, partition.topic_id)
        self.ages.add(topic, Location.TIER, sizes[is_finished], times_ms[is_finished])
        tier = LaneSegments.of(
            starts=live.column("start"),
            ends=live.column("end"),
            sizes=sizes,
            times_ms=times_ms,
            epochs=segments.last_epochs,
            kinds=segment_kinds(decided, live.states),
        )
        next_ms = self.expirations.add(part, decided.due_ms, sizes)
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
    named = [row.partition for row in rows.values() if is_legal_topic_name(row.partition.topic)]
    for key, leader in ({} if run.cluster is None else run.cluster.leaders(named).logs).items():
        _add_leader(rows[key], leader)
    return rows


def _add_leader(row: PartitionRow, log: ClusterLog) -> None:
    """Add the offsets of a leader's log, and the log itself unless a log directory has its segments."""
    row.log_start_offset, row.log_end_offset = log.log_start_offset, log.log_end_offset
    if not len(row.local) and log.log_end_offset > log.local_log_start_offset:
        last, size_bytes = log.log_end_offset - 1, log.local_log_bytes or 0
        leader = (log.local_log_start_offset, last, size_bytes, 0, _NO_EPOCH, SegmentKind.LEADER.code)
        row.local = LaneSegments.of_rows([leader])


PAGE_COLUMNS = {"topics": STATUS, "expirations": REPORT_EXPIRATIONS, "findings": FINDINGS}
"""The columns of the rows that the page lists."""
SHOWN_MAX = 2000
"""Findings that the page lists; all of them are counted."""
MARKS_MAX = 4
"""Findings of one severity and partition that are marked in its lanes although they are not listed."""
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_RANKS = {str(severity): rank for rank, severity in enumerate(_ORDER)}


class ReportFindings:
    """The findings of one run: counted by kind and severity, and by severity and partition in `lanes`."""

    def __init__(self, lanes: Lanes) -> None:
        self.counts: Counter[tuple[FindingKind, Severity]] = Counter()
        self._lanes = lanes
        # Findings about logs whose topic id can't be read have the name only.
        self._named = {(each.topic, each.partition): number for each, number in lanes.partitions()}
        self._of_partitions: Counter[tuple[Severity, int]] = Counter()
        self._kept: dict[Severity, list[Finding]] = defaultdict(list)
        self._marked: list[Finding] = []

    def add(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Count each finding, and yield the findings whose severity is above info."""
        for finding in findings:
            severity = finding.severity
            self.counts[finding.check, severity] += 1
            kept = self._kept[severity]
            kept += [finding] if len(kept) < SHOWN_MAX else []
            if (row := self._row(finding)) is not None:
                self._of_partitions[severity, row] += 1
                self._marked += [finding] if self._of_partitions[severity, row] <= MARKS_MAX else []
            if severity is not Severity.INFO:
                yield finding

    @property
    def problems(self) -> int:
        """The number of findings that are more than information."""
        return sum(count for (_, severity), count in self.counts.items() if severity is not Severity.INFO)

    def shown(self) -> list[Finding]:
        """Return the findings that the page lists, at most SHOWN_MAX, the most serious first."""
        return [finding for severity in _ORDER for finding in self._kept[severity]][:SHOWN_MAX]

    def to_json(self) -> dict[str, Any]:
        """Return the columns for the lanes: counts by partition, and the findings that are marked.

        These are the listed ones, with their messages, and up to MARKS_MAX others of each severity and
        partition, without messages.
        """
        shown = self.shown()
        known = {id(finding) for finding in shown}
        listed = [self._mark(finding, finding.found) for finding in shown]
        listed += [self._mark(finding, "") for finding in self._marked if id(finding) not in known]
        listed.sort(key=lambda each: _RANKS[each[1]])
        counts = {
            str(severity): [self._of_partitions[severity, row] for row in range(len(self._lanes))]
            for severity in _ORDER
        }
        return {"counts": counts, "listed": [each for each in listed if each[0] is not None]}

    def _mark(self, finding: Finding, message: str) -> list[Any]:
        offsets = (finding.start_offset, finding.end_offset)
        return [self._row(finding), str(finding.severity), str(finding.check), printable(message), *offsets]

    def _row(self, finding: Finding) -> int | None:
        """Return the number of the partition that the finding is about; None if it is about none."""
        if finding.partition is None:
            return None
        if finding.topic_id is not None:
            return self._lanes.numbers.get((finding.topic_id, finding.partition))
        return self._named.get((finding.topic or "", finding.partition))


def report(request: ReportRequest, progress: Progress | None = None) -> Report:
    """Return the report of the selected topics; with `html` write the page to that file.

    The decisions are those of `copy`, `sweep` and `delete`, and the findings those of `verify`, for the same
    request. Raises UsageError, before any work, for a file that can't be written or that is something other
    than a report; NotFoundError if the selection does not exist, SafetyRefusal for a clock that is behind the
    events, and the errors of the metadata, the tier and the cluster.
    """
    if request.html is not None:
        require_replaceable(request.html)
    copying = request_as(CopyRequest, request)
    with mutation(copying, progress or SilentProgress()) as run:
        gathered = gather(run, copying)
        logs = ReadLogs(run.logs, run.log_errors)
    findings = ReportFindings(gathered.lanes)
    with verify(request_as(VerifyRequest, request), progress, logs=logs) as found:
        gathered.topics.add_findings(findings.add(found))
    codes = [ExitCode.PARTIAL for _ in gathered.stopped] + [found.exit_code]
    codes += [ExitCode.CORRUPT] if gathered.is_damaged else []
    result = Report(
        sizes=gathered.sizes,
        growth=gathered.growth,
        expirations=gathered.expirations,
        problems=findings.problems + len(gathered.stopped),
        examined=str(found.examined),
        partitions=len(gathered.lanes),
        page=request.html,
        page_bytes=0,
        exit_code=combined_exit_code(codes, is_partly_done=True),
    )
    if request.html is None:
        return result
    page_bytes = write_page(request.html, _content(request, gathered, findings, result))
    return replace(result, page_bytes=page_bytes)


def _content(
    request: ReportRequest, gathered: Gathered, findings: ReportFindings, result: Report
) -> PageContent:
    """Return the content of the page."""
    return PageContent(
        version=__version__,
        now_ms=gathered.now_ms,
        sources=tuple(_sources(request, gathered)),
        examined=result.examined,
        checks_objects=request.remote is not None,
        columns=PAGE_COLUMNS,
        topics=[asdict(row) for row in gathered.topics.rows()],
        sizes=[asdict(row) for row in result.sizes],
        growth=[asdict(row) for row in result.growth],
        expirations=[asdict(row) for row in result.expirations],
        are_all_expirations=len(result.expirations) < EXPIRATIONS_MAX,
        findings=[row_of(finding, FINDINGS) for finding in findings.shown()],
        finding_counts={(str(kind), str(level)): n for (kind, level), n in findings.counts.items()},
        undecided=gathered.undecided,
        stopped=stop_lines(gathered.stopped),
        unknown_segments=gathered.unknown_segments,
        lanes=gathered.lanes,
        lane_findings=findings.to_json(),
    )


def _sources(request: ReportRequest, gathered: Gathered) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each place that was read, and of each option that decides."""
    yield "Metadata", canonical_uri("--metadata", required("--metadata", request.metadata))
    if request.bootstrap_server is not None:
        yield "Cluster", request.bootstrap_server
    if request.remote is not None:
        yield "Tier", canonical_uri("--remote", request.remote)
    for folder in request.log_dir:
        yield "Log directory", str(folder)
    if request.topic_configs is not None:
        yield "Topic settings", str(request.topic_configs)
    yield "As of", iso_utc(gathered.now_ms)
    for option, values in (("Topics", request.topic), ("Topic ids", request.topic_id)):
        if values:
            yield option, ", ".join(values)
    if request.partition:
        yield "Partitions", ", ".join(map(str, request.partition))
