"""`report`: sizes by topic and age, growth by day, next expirations; with `html` one page of all of it."""

from dataclasses import asdict
from typing import Any

from tierctl import __version__
from tierctl.commands.copy import CopyRequest
from tierctl.commands.insight.report.findings import ReportFindings
from tierctl.commands.insight.report.gather import Gathered, gather
from tierctl.commands.insight.report.rows import EXPIRATIONS_MAX, Report, ReportRequest
from tierctl.commands.insight.report.sums import growth_rows
from tierctl.commands.insight.requests import request_as
from tierctl.commands.mutation import mutation
from tierctl.commands.resources import required
from tierctl.commands.verify import VerifyRequest, finding_row, verify
from tierctl.errors import ExitCode
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import iso_utc
from tierctl.model.uris import canonical_uri
from tierctl.report.html.content import PageContent
from tierctl.report.html.file import require_replaceable, write_page


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
    return Report(**{**_fields(result), "page_bytes": page_bytes})


def _fields(result: Report) -> dict[str, Any]:
    return {name: getattr(result, name) for name in Report.__slots__}


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
        topics=[asdict(row) for row in gathered.topics.rows()],
        sizes=[asdict(row) for row in result.sizes],
        growth=[asdict(row) for row in result.growth],
        expirations=[asdict(row) for row in result.expirations],
        are_all_expirations=len(result.expirations) < EXPIRATIONS_MAX,
        findings=[finding_row(finding) for finding in findings.shown()],
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
