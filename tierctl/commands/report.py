"""`report`: sizes by topic and age, growth by day, next expirations; with `html` one page of all of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tierctl import __version__
from tierctl.checks.findings import FINDINGS, Finding, FindingKind
from tierctl.commands.copy.command import CopyRequest, explained_copy
from tierctl.commands.explain import Location
from tierctl.commands.mutation import Mutation, any_not_understood, mutation, skip_lines
from tierctl.commands.request import Request, request_as
from tierctl.commands.resources import required
from tierctl.commands.status import STATUS, TopicSums, problems_text
from tierctl.commands.sweep import retention_inputs, summed_up
from tierctl.commands.tier_digest import (
    EXPIRATIONS_MAX,
    AgeSums,
    Expiration,
    Expirations,
    TierDigest,
)
from tierctl.commands.verify.command import ReadLogs, VerifyRequest, verify
from tierctl.errors import ExitCode, combined_exit_code
from tierctl.metadata.daily_changes import DailyChanges, DayChanges, read_daily_changes
from tierctl.metadata.parallel_fold import Kept
from tierctl.model import (
    LocalLog,
    LocalSegment,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.choices import Severity
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import ClusterLog
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import counted
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import ON_DISK, WAITING, Decision, is_decided, stop_lines, stopped_copies
from tierctl.plan.partition_deletes import removable
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Plan
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.html_lanes import (
    LaneItems,
    Lanes,
    LaneSegments,
    PartitionRow,
    SegmentKind,
    items_per_lane,
)
from tierctl.report.html_page import AGES, PageContent, require_page_file, write_page
from tierctl.report.render import SHOW, row_of
from tierctl.report.results import TableResult
from tierctl.report.table import bytes_text, printable
from tierctl.state.tier_state import TierState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest(Request):
    """A request for the report of a tier."""

    html: Annotated[
        Path | None,
        typer.Option(
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
REPORT_ROWS = (REPORT_SIZES, REPORT_GROWTH, REPORT_EXPIRATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TableResult):
    """The report of a tier; `page` is the file that was written, with `page_bytes` bytes.

    The exit code is PARTIAL if an operator must act, CORRUPT for damaged bytes or records.
    """

    table = REPORT_SIZES, "sizes"
    """The rows that the command prints as JSON."""

    sizes: tuple[AgeSize, ...]
    growth: tuple[DayGrowth, ...]
    expirations: tuple[Expiration, ...]
    problems: int
    """Findings of `verify` that are more than information, and partitions whose copies stopped."""
    problems_text: str
    not_expiring: int
    """Partitions of which it is not known what expires."""
    examined: str
    partitions: int
    page: Path | None
    page_bytes: int
    exit_code: ExitCode

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
        return "; ".join([f"{topics}: {each}", f"{expiring} to expire", *self.unknown, self.problems_text])

    @property
    def unknown(self) -> list[str]:
        """A text about the partitions of which it is not known what expires, if there are any."""
        partitions = counted(self.not_expiring, "partition")
        return [f"expirations not known for {partitions}"] if self.not_expiring else []


def age_rows(sums: Mapping[Location, AgeSums]) -> Iterator[AgeSize]:
    """Yield a row for each topic id, location and age that has segments, the youngest age first."""
    found = ((*topic, location, each) for location, own in sums.items() for topic, each in own.rows())
    for topic, topic_id, location, of_ages in sorted(found):
        for age, (count, size_bytes, oldest_ms, newest_ms) in zip(AGES, of_ages, strict=True):
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
    ReasonKind.ROLLED: SegmentKind.NEXT,
    **dict.fromkeys([ReasonKind.COPIED, *ON_DISK], SegmentKind.COPIED),
    **dict.fromkeys([ReasonKind.NOT_ROLLED, ReasonKind.LOCAL_ROLL], SegmentKind.ACTIVE),
    **dict.fromkeys(WAITING, SegmentKind.WAITING),
}
"""The kind of a local segment by the reason why it is copied or not."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The content of the report without findings.

    `undecided` has one line per reason for no decision, `stopped` the partitions of `stopped_copies`. Of
    `not_expiring` partitions it is not known what expires; `not_understood` ones could not be interpreted.
    """

    lanes: Lanes
    topics: TopicSums
    sizes: tuple[AgeSize, ...]
    growth: tuple[DayGrowth, ...]
    expirations: tuple[Expiration, ...]
    unknown_segments: int
    undecided: tuple[str, ...]
    stopped: Mapping[TopicIdPartition, Reason]
    not_expiring: int
    not_understood: int
    now_ms: int
    is_damaged: bool


def _local_lane(log: LocalLog, kinds: Mapping[tuple[TopicIdPartition, int], SegmentKind]) -> LaneSegments:
    """Return the segments of `log`, of which some have `kinds`; the active one ends at the log's end."""

    def kind(segment: LocalSegment) -> SegmentKind:
        default = SegmentKind.ACTIVE if segment.next_base_offset is None else SegmentKind.LOCAL
        return kinds.get((log.topic_id_partition, segment.base_offset), default)

    return LaneSegments.of_rows(
        (
            segment.base_offset,
            max((segment.next_base_offset or log.log_end_offset) - 1, segment.base_offset),
            segment.size_bytes,
            segment.max_timestamp_ms,
            _NO_EPOCH,
            kind(segment).code,
        )
        for segment in log.segments
    )


def gather(run: Mutation, copying: CopyRequest) -> Gathered:
    """Return the content of the report for the partitions that the request of `run` selects."""
    now_ms = run.resources.now_ms
    inputs = retention_inputs(run)
    state, selection, histories = inputs.state, run.resources.selection, run.histories
    own_logs = (log for log in run.logs if log.topic_id_partition in selection)
    logs = newest_replicas([log for log in own_logs if log.topic_id_partition.topic not in INTERNAL_TOPICS])
    rows = _partition_rows(run, state, logs)
    removed, unremovable = removable(state)
    removed = [partition for partition in removed if partition in selection]
    digest = TierDigest(
        now_ms=now_ms,
        limit=_items_per_lane(rows, state, logs),
        removed=frozenset(partition.key for partition in removed),
        unreadable=frozenset(run.unreadable),
    )
    deletes = summed_up(run, inputs, digest)
    topics, copies = TopicSums(run, state), Plan(command="copy", steps=(), read={})
    if copying.log_dir:
        copies = explained_copy(run, state)
        topics.add_lag(copies, run.logs)
    stopped = stopped_copies(copies.kept, now_ms - run.request.copy_limit_ms)
    topics.add_stopped(stopped)
    for line in stop_lines(stopped):
        run.progress.warn(line)
    local_ages, changes = _add_lanes(rows, digest, logs, copies.decisions(now_ms)), _changes(run)
    skips = [skip for skip in unremovable if skip.topic_id_partition in selection]
    skips += [*run.unread_skips(removed), *deletes.skipped, *run.unread_skips(digest.unread)]
    whole = [skip for skip in skips if skip.segment_id is None]
    for line in skip_lines(histories.unreported(whole)):
        run.progress.note(line)
    not_expiring = {skip.topic_id_partition for skip in whole if not is_decided(Reason.of(skip.reason))}
    skips += copies.skipped
    undecided = [skip for skip in skips if Reason.of(skip.reason).kind not in WAITING]
    not_understood = {s.topic_id_partition for s in skips if any_not_understood([s.reason], run.request)}
    is_damaged = histories.report(state) or bool(not_understood)
    return Gathered(
        lanes=Lanes.of(rows.values(), digest.limit),
        topics=topics,
        sizes=tuple(age_rows({Location.TIER: digest.ages, Location.LOCAL: local_ages})),
        growth=tuple(growth_rows(changes, digest.expirations)),
        expirations=tuple(digest.expirations.next()),
        unknown_segments=changes.unknown_segments,
        undecided=(*histories.texts(), *skip_lines(histories.unreported(undecided))),
        stopped=stopped,
        not_expiring=len(not_expiring | histories.incomplete.keys()),
        not_understood=len(not_understood - histories.incomplete.keys()) + histories.unknown,
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


def _partition_rows(
    run: Mutation, state: TierState, logs: Mapping[_Key, LocalLog]
) -> Mapping[_Key, PartitionRow]:
    """Return a row for each selected partition of the tier, and for each of `logs`, without their lanes."""
    rows = {
        part.topic_id_partition.key: PartitionRow(partition=part.topic_id_partition)
        for part in state
        if part.topic_id_partition in run.resources.selection and part.segment_count
    }
    for key, log in logs.items():
        row = rows.setdefault(key, PartitionRow(partition=log.topic_id_partition))
        row.log_start_offset = log.log_start_offset if log.is_log_start_known else None
        row.log_end_offset = log.log_end_offset
    named = [row.partition for row in rows.values() if is_legal_topic_name(row.partition.topic)]
    for key, leader in ({} if run.cluster is None else run.cluster.leader_logs(named)).items():
        _add_leader(rows[key], leader, has_lane=key in logs and bool(logs[key].segments))
    return rows


def _add_leader(row: PartitionRow, log: ClusterLog, *, has_lane: bool) -> None:
    """Add the offsets of a leader's log, and the log itself unless a log directory has its segments."""
    row.log_start_offset, row.log_end_offset = log.log_start_offset, log.log_end_offset
    if not has_lane and log.log_end_offset > log.local_log_start_offset:
        last, size_bytes = log.log_end_offset - 1, log.local_log_bytes or 0
        leader = (log.local_log_start_offset, last, size_bytes, 0, _NO_EPOCH, SegmentKind.LEADER.code)
        row.local = LaneItems.of(LaneSegments.of_rows([leader]), 1)


def _items_per_lane(
    rows: Mapping[_Key, PartitionRow], state: TierState, logs: Mapping[_Key, LocalLog]
) -> int:
    """Return how many items a lane may have; `rows` have no lanes yet but those of leaders."""
    counts = [state.partitions[key].segment_count for key in rows.keys() & state.partitions.keys()]
    counts += [len(log.segments) for log in logs.values()]
    counts += [row.local.segments for row in rows.values()]
    return items_per_lane([count for count in counts if count])


def _add_lanes(
    rows: Mapping[_Key, PartitionRow],
    digest: TierDigest,
    logs: Mapping[_Key, LocalLog],
    decisions: Iterable[Decision],
) -> AgeSums:
    """Add the lanes of the tier and of `logs`, about which there are `decisions`; return the logs' sums."""
    for key, (lane, next_ms) in digest.lanes.items():
        rows[key].tier, rows[key].next_expiry_ms = lane, next_ms
    kinds = {
        (each.partition, each.start_offset): _LOCAL_KINDS[each.reason.kind]
        for each in decisions
        if each.reason.kind in _LOCAL_KINDS
    }
    ages = AgeSums(digest.now_ms)
    for key, log in logs.items():
        segments, partition = _local_lane(log, kinds), log.topic_id_partition
        ages.add((partition.topic, partition.topic_id), segments.sizes, segments.times_ms)
        if len(segments):
            rows[key].local = LaneItems.of(segments, digest.limit)
    return ages


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
        require_page_file(request.html)
    copying = request_as(CopyRequest, request)
    with mutation(copying, progress or SilentProgress(), kept=Kept.FACTS) as run:
        gathered = gather(run, copying)
        logs = ReadLogs(run.logs, run.unread.errors)
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
        problems_text=problems_text(
            request,
            findings.problems,
            len(gathered.stopped),
            gathered.not_understood,
            checks_objects=request.remote is not None,
        ),
        not_expiring=gathered.not_expiring,
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
        expirations=[row_of(row, REPORT_EXPIRATIONS) for row in result.expirations],
        are_all_expirations=len(result.expirations) < EXPIRATIONS_MAX,
        findings=[row_of(finding, FINDINGS) for finding in findings.shown()],
        finding_counts={(str(kind), str(level)): n for (kind, level), n in findings.counts.items()},
        undecided=gathered.undecided,
        not_understood=gathered.not_understood,
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
