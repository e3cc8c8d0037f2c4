"""Make pages with lanes (partition charts) of any size, and open them in a browser."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierctl.commands.report import PAGE_COLUMNS
from tierctl.model import TopicIdPartition, Uuid
from tierctl.report.html_lanes import (
    ITEMS_MAX,
    LaneItems,
    Lanes,
    LaneSegments,
    PartitionRow,
    SegmentKind,
)
from tierctl.report.html_page import PageContent, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
HOSTILE = (
    "</script><img src=x onerror=document.title=1>",
    "\u202eevil\u2066<b>",
    "{{data}}&amp;\"'`<!--",
    "x" * 249,
    "\ud800\x00\x1b[31m\u2028",
    "__proto__",
)
"""Names that a record of a damaged or malicious metadata topic may have."""


def topic_id(number: int) -> Uuid:
    """Return the id of topic `number`."""
    return Uuid.from_bytes((number + 1).to_bytes(16, "big"))


def partition_row(
    topic: str, number: int, *, segments: int, topic_number: int = 0, limit: int = ITEMS_MAX
) -> PartitionRow:
    """Return a partition with `segments` in the tier, of an hour and 1000 offsets each, and an active one.

    The lane has at most `limit` items.
    """
    base = NOW_MS - segments * HOUR_MS
    kinds = [SegmentKind.DUE, *([SegmentKind.CURRENT] * segments)]
    tier = [
        (1000 * at, 1000 * at + 999, 1 << 20, base + at * HOUR_MS, at // 10, kinds[at].code)
        for at in range(segments)
    ]
    end = 1000 * segments
    return PartitionRow(
        partition=TopicIdPartition(topic_id(topic_number), topic, number),
        tier=LaneItems.of(LaneSegments.of_rows(tier), limit),
        local=LaneItems.of(
            LaneSegments.of_rows([(end, end + 499, 1 << 19, NOW_MS, -1, SegmentKind.ACTIVE.code)]), limit
        ),
        log_start_offset=0,
        log_end_offset=end + 500,
        next_expiry_ms=NOW_MS,
    )


def content(rows: Sequence[PartitionRow], **changes: Any) -> PageContent:
    """Return a page about `rows`, with a finding for each of the first three, and all tables."""
    lanes = Lanes(max(len(lane) for row in rows for lane in (row.tier, row.local)))
    for row in rows:
        lanes.add(row)
    topics = list(dict.fromkeys((row.partition.topic, row.partition.topic_id) for row in rows))
    named = [{"topic": name, "topic_id": identity} for name, identity in topics]
    found = [
        {
            "severity": severity,
            "check": "gap",
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "start_offset": 500,
            "end_offset": 600,
            "key": row.partition.topic,
            "found": f"found in {row.partition.topic}",
            "fix": "look",
        }
        for severity, row in zip(("error", "warning", "info"), rows, strict=False)
    ]
    marks = [[at, each["severity"], "gap", "a gap", 500, 600] for at, each in enumerate(found)]
    counts = {level: [0] * len(rows) for level in ("error", "warning", "info")}
    for at, each in enumerate(found):
        counts[str(each["severity"])][at] = 1
    facts: dict[str, Any] = {
        "version": "0",
        "now_ms": NOW_MS,
        "sources": [("Metadata", topics[0][0])],
        "examined": "segments",
        "checks_objects": False,
        "columns": PAGE_COLUMNS,
        "topics": [
            each | {"log_bytes": 1 << 30, "segments": 9, "partitions": 1, "first_record_ms": 1, "problems": 0}
            for each in named
        ],
        "sizes": [
            each | {"location": "tier", "age": "1h to 1d", "segments": 9, "log_bytes": 1 << 30}
            for each in named
        ],
        "growth": [
            each
            | {"day": "2027-01-15", "copied_bytes": 900, "deleted_bytes": 500, "expiring_bytes": 100}
            | dict.fromkeys(("copied_segments", "deleted_segments", "expiring_segments"), 1)
            for each in named
        ],
        "expirations": [
            each
            | {"due_ms": NOW_MS, "partition": 0, "start_offset": 0, "end_offset": 9, "segment_id": "AA"}
            | {"segment_size_in_bytes": 9, "max_timestamp_ms": NOW_MS - HOUR_MS}
            for each in named
        ],
        "are_all_expirations": True,
        "findings": found,
        "finding_counts": {("gap", str(each["severity"])): 1 for each in found},
        "stopped": [f"{topics[0][0]}-0: a transaction is open; 99 more, see tierctl explain"],
        "undecided": [f"skipped {name}: no settings" for name, _ in topics],
        "not_understood": 0,
        "unknown_segments": 0,
        "lanes": lanes,
        "lane_findings": {"counts": counts, "listed": marks},
    }
    return PageContent(**(facts | changes))


def hostile_rows() -> list[PartitionRow]:
    """Return a partition for each hostile name."""
    named = enumerate(HOSTILE)
    return [partition_row(name, number, segments=3, topic_number=number) for number, name in named]


def lanes_in(page: Path) -> dict[str, Any]:
    """Return the columns of the lanes in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@dataclass(slots=True)
class Opened:
    """An open page, with its console messages and requests."""

    page: "Page"
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: "Browser", file: Path, **options: Any) -> Iterator[Opened]:
    """Open the page of `file` in a context with `options`; fail if it logs a message or sends a request."""
    context = browser.new_context(**options)
    page = context.new_page()
    found = Opened(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("dialog", lambda dialog: found.said.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: found.requests.append(request.url))
    try:
        page.goto(file.as_uri())
        yield found
        assert found.said == []
        assert found.requests == [file.as_uri()]
    finally:
        context.close()


def written(folder: Path, rows: Sequence[PartitionRow], **changes: Any) -> Path:
    """Write a page about `rows`; return its file."""
    file = folder / "tier.html"
    write_page(file, content(rows, **changes))
    return file
