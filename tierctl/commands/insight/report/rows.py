"""The request of `report`, and the rows of its result."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tierctl.commands.insight.explain import Location
from tierctl.commands.request import Request
from tierctl.errors import ExitCode
from tierctl.model import Uuid
from tierctl.report import tier_tables
from tierctl.report.arrow.result import TableResult, TableRows
from tierctl.report.summary import counted
from tierctl.report.units import bytes_text
from tierctl.report.view import SHOW

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

    topic: str
    topic_id: Uuid
    location: Location
    age: str
    segments: int
    log_bytes: int
    oldest_ms: int | None
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGrowth:
    """The growth of the tier on one day (UTC) for one topic id.

    Copies and deletions are counted from the events in the metadata topic. `expiring` counts the segments
    that retention.ms deletes on that day; segments that have expired already count for the day of the report.
    """

    day: str
    topic: str
    topic_id: Uuid
    copied_segments: int
    copied_bytes: int
    deleted_segments: int
    deleted_bytes: int
    expiring_segments: int
    expiring_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiration:
    """A segment of the tier that brokers delete next; from `due_ms` on they may."""

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    segment_size_in_bytes: int
    max_timestamp_ms: int
    due_ms: int


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
        return tier_tables.REPORT_SIZES, self.sizes

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
