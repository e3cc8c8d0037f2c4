"""The content of the page, as rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tierctl.report.html.lanes import Lanes
from tierctl.report.view import Row

AGES = ("under 1h", "1h to 1d", "1d to 7d", "7d to 30d", "30d to 90d", "90d to 1y", "over 1y", "unknown")
"""Ages of a segment's newest record; unknown without a timestamp, and for a time after that of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """The content of the page; rows have the columns of `tables`, and times are in milliseconds since 1970.

    `sources` are names and values of the sources; `examined` describes the objects that `verify` compared.
    `findings` are the listed ones, and `finding_counts` has the number of all of them by kind and severity.
    `undecided` has one line per reason for undecided partitions. `unknown_segments` is the number of events
    whose segment has an unknown size, so that they are missing in the growth by day. `lane_findings` are the
    columns for the marks in lanes.
    """

    version: str
    now_ms: int
    sources: Sequence[tuple[str, str]]
    examined: str
    checks_objects: bool
    topics: Sequence[Row]
    sizes: Sequence[Row]
    growth: Sequence[Row]
    expirations: Sequence[Row]
    are_all_expirations: bool
    findings: Sequence[Row]
    finding_counts: Mapping[tuple[str, str], int]
    undecided: Sequence[str]
    unknown_segments: int
    lanes: Lanes
    lane_findings: Mapping[str, Any]
