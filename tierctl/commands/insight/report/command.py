"""`report`: sizes by topic and age, growth by day, next expirations; with `html` one page of all of it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tierctl import __version__
from tierctl.checks.findings import Finding, FindingKind
from tierctl.commands.copy.command import CopyRequest
from tierctl.commands.insight.report.gather import (
    EXPIRATIONS_MAX,
    REPORT_EXPIRATIONS,
    Gathered,
    Report,
    ReportRequest,
    gather,
    growth_rows,
)
from tierctl.commands.insight.status import STATUS
from tierctl.commands.mutation import mutation
from tierctl.commands.request import request_as
from tierctl.commands.resources import required
from tierctl.commands.verify import FINDINGS, VerifyRequest, verify
from tierctl.errors import ExitCode
from tierctl.model.choices import Severity
from tierctl.model.location import canonical_uri
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import iso_utc
from tierctl.report.html_lanes import Lanes
from tierctl.report.html_page import PageContent, require_replaceable, write_page
from tierctl.report.results import row_of
from tierctl.report.texts import printable

PAGE_COLUMNS = {"topics": STATUS, "expirations": REPORT_EXPIRATIONS, "findings": FINDINGS}
"""The columns of the rows that the page lists."""
SHOWN_MAX = 2000
"""Findings that the page lists; all of them are counted."""
MARKS_MAX = 4
"""Findings of one severity and partition that are marked in its lanes although they are not listed."""
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_RANKS = {str(severity): rank for rank, severity in enumerate(_ORDER)}


@dataclass(slots=True)
class ReportFindings:
    """The findings of one run: counted by kind and severity, and by partition and severity."""

    counts: Counter[tuple[FindingKind, Severity]] = field(default_factory=Counter)
    _of_partitions: dict[Severity, Counter[int]] = field(default_factory=dict)
    _kept: dict[Severity, list[Finding]] = field(default_factory=dict)
    _marked: list[tuple[int, Finding]] = field(default_factory=list)

    def add(self, findings: Iterable[Finding], lanes: Lanes) -> Iterator[Finding]:
        """Count each finding, and yield the findings whose severity is above info."""
        numbers = {(partition.topic, partition.partition): at for partition, at in lanes.partitions()}
        for finding in findings:
            self.counts[finding.check, finding.severity] += 1
            kept = self._kept.setdefault(finding.severity, [])
            kept += [finding] if len(kept) < SHOWN_MAX else []
            if (row := _row(finding, lanes, numbers)) is not None:
                counts = self._of_partitions.setdefault(finding.severity, Counter())
                counts[row] += 1
                self._marked += [(row, finding)] if counts[row] <= MARKS_MAX else []
            if finding.severity is not Severity.INFO:
                yield finding

    @property
    def problems(self) -> int:
        """The number of findings that are more than information."""
        return sum(count for (_, severity), count in self.counts.items() if severity is not Severity.INFO)

    def shown(self) -> list[Finding]:
        """Return the findings that the page lists, at most SHOWN_MAX, the most serious first."""
        return [finding for severity in _ORDER for finding in self._kept.get(severity, ())][:SHOWN_MAX]

    def to_json(self, lanes: Lanes) -> dict[str, Any]:
        """Return the columns for the lanes: counts by partition, and the findings that are marked.

        These are the listed ones, with their messages, and up to MARKS_MAX others of each severity and
        partition, without messages.
        """
        numbers = {(partition.topic, partition.partition): at for partition, at in lanes.partitions()}
        shown = self.shown()
        listed = [_marked(_row(finding, lanes, numbers), finding, finding.found) for finding in shown]
        known = {id(finding) for finding in shown}
        listed += [_marked(row, finding, "") for row, finding in self._marked if id(finding) not in known]
        listed.sort(key=lambda each: _RANKS[each[1]])
        counts = {
            str(severity): [self._of_partitions.get(severity, Counter())[row] for row in range(len(lanes))]
            for severity in _ORDER
        }
        return {"counts": counts, "listed": [each for each in listed if each[0] is not None]}


def _marked(row: int | None, finding: Finding, message: str) -> list[Any]:
    offsets = (finding.start_offset, finding.end_offset)
    return [row, str(finding.severity), str(finding.check), printable(message), *offsets]


def _row(finding: Finding, lanes: Lanes, numbers: dict[tuple[str, int], int]) -> int | None:
    """Return the number of the partition in `lanes` that the finding is about; None if it is about none.

    `numbers` finds a partition by name, for findings about logs whose topic id can't be read.
    """
    if finding.partition is None:
        return None
    if finding.topic_id is not None:
        return lanes.numbers.get((finding.topic_id, finding.partition))
    return numbers.get((finding.topic or "", finding.partition))


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
    findings = ReportFindings()
    with verify(request_as(VerifyRequest, request), progress) as found:
        gathered.topics.add_findings(findings.add(found, gathered.lanes))
    result = Report(
        sizes=tuple(gathered.ages.rows()),
        growth=tuple(growth_rows(gathered.changes, gathered.expirations)),
        expirations=gathered.next_expirations,
        problems=findings.problems,
        examined=str(found.examined),
        partitions=len(gathered.lanes),
        page=request.html,
        page_bytes=0,
        exit_code=ExitCode.CORRUPT if gathered.is_damaged else found.exit_code,
    )
    if request.html is None:
        return result
    page_bytes = write_page(request.html, _content(request, gathered, findings, result))
    return replace(result, page_bytes=page_bytes)


def _content(
    request: ReportRequest, gathered: Gathered, findings: ReportFindings, result: Report
) -> PageContent:
    """Return the content of the page."""
    lanes = gathered.lanes
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
        unknown_segments=gathered.changes.unknown_segments,
        lanes=lanes,
        lane_findings=findings.to_json(lanes),
    )


def _sources(request: ReportRequest, gathered: Gathered) -> Any:
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
