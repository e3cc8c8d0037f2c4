"""The request of `report --what-if`, and the rows of its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from tierctl.commands.request import Request
from tierctl.errors import ExitCode
from tierctl.model import Uuid
from tierctl.report import tier_tables
from tierctl.report.arrow.result import TableResult, TableRows

_WHAT_IF = "What if"
TOTAL = "(total)"
"""Instead of the topic in the row of all topics: no topic can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest(Request):
    """A request to calculate the contents of a tier after a change of retention settings."""

    what_if: Annotated[
        Sequence[str],
        typer.Option(
            "--what-if",
            metavar="TOPIC.SETTING=VALUE",
            help="Calculate the effect of this change without making it: retention.ms, retention.bytes, "
            "local.retention.ms or local.retention.bytes of a topic, or of each topic that matches a glob. "
            "Times such as 7d or 36h, sizes such as 50G, or numbers as in Kafka. Repeatable; a later change "
            "of the same setting replaces an earlier one.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = ()
    price_per_gb_month: Annotated[
        float | None,
        typer.Option(
            "--price-per-gb-month",
            metavar="PRICE",
            min=0,
            help="With --what-if: the price of storing a GB (2^30 bytes) for a month, in any currency.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = None
    price_per_1000_requests: Annotated[
        float | None,
        typer.Option(
            "--price-per-1000-requests",
            metavar="PRICE",
            min=0,
            help="With --what-if: the price of a thousand requests that store or delete objects.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = None
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            metavar="URI",
            help="With --what-if: read the tables that 'pipeline run' wrote to this folder instead of "
            "the metadata topic. With --engine spark, each executor decides for some of the metadata "
            "partitions.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutlook:
    """One topic id, or all of them as the topic TOTAL: now, right after the change, and in 90 days.

    `now` are the finished segments; `changed` are those that remain after the next run of the brokers'
    retention with the changed settings; `later` is 90 days from now with the change, at the observed growth,
    and `unchanged_later` the same with the present settings. Requests are those of a month: the next month
    with the present and with the changed settings, and the last month of the 90 days. Unknown values are
    None: `growth_since_ms` with less than a day of history, objects without the tier, costs without prices,
    and `local` without log directories. `undecided_partitions` counts those for which retention could not be
    decided.
    """

    topic: str
    topic_id: Uuid | None
    partitions: int
    undecided_partitions: int
    now_segments: int
    now_bytes: int
    now_objects: int | None
    now_requests: int | None
    now_cost: float | None
    changed_segments: int | None
    changed_bytes: int | None
    changed_objects: int | None
    changed_requests: int | None
    changed_cost: float | None
    later_segments: int | None
    later_bytes: int | None
    later_objects: int | None
    later_requests: int | None
    later_cost: float | None
    unchanged_later_bytes: int | None
    unchanged_later_cost: float | None
    growth_bytes_per_day: int | None
    growth_since_ms: int | None
    local_now_bytes: int | None
    local_changed_bytes: int | None
    local_later_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoss:
    """A group whose committed offset would fall below the log start, and the records that it would lose."""

    group: str
    topic: str
    topic_id: Uuid
    partition: int
    committed_offset: int
    new_log_start_offset: int
    lost_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(TableResult):
    """The result of a change of settings; the last row of `topics` is the total.

    `groups` are by group, topic and partition. The exit code is PARTIAL if a requested value is unknown, and
    CORRUPT for damaged metadata.
    """

    topics: tuple[TopicOutlook, ...]
    groups: tuple[GroupLoss, ...]
    exit_code: ExitCode

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: the topics, the rows that the command prints as JSON."""
        return tier_tables.WHAT_IF, self.topics
