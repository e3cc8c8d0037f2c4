"""`report --what-if`: decide with present and changed settings; sum up and price the remaining segments."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any

import typer

from tierctl.commands.mutation import Mutation, any_not_understood, mutation, skip_lines
from tierctl.commands.request import Request, request_as
from tierctl.commands.resources import Resources
from tierctl.commands.sweep import OF_TIER_AND_DISKS, Changes, SweepRequest, changed_configs, retention_inputs
from tierctl.commands.what_if_facts import (
    FactsRequest,
    facts_from_tables,
    gather_facts,
    object_counts,
)
from tierctl.errors import ExitCode, TierctlError, UsageError
from tierctl.kafka.client_settings import Right
from tierctl.kafka.cluster import Cluster, CommittedOffset
from tierctl.metadata.parallel_fold import Kept
from tierctl.model import TopicPartition, Uuid
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import counted, names_text
from tierctl.plan.forecast import (
    DAY_MS,
    HORIZONS_DAYS,
    MONTH_DAYS,
    GatheredFacts,
    Holding,
    Outlook,
    PartitionFacts,
    grown,
    growth_since_ms,
    held,
    local_later,
    requests,
    rounded,
    sum_of,
)
from tierctl.plan.reasons import AGE_NOT_STATED
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import TableResult

_WHAT_IF = "What if"
TOTAL = "(total)"
"""Instead of the topic in the row of all topics: no topic can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest(Request):
    """A request to calculate the contents of a tier after a change of retention settings."""

    what_if: Annotated[
        Sequence[str],
        typer.Option(
            metavar="TOPIC.SETTING=VALUE",
            help="Calculate the effect of this change without making it: retention.ms, retention.bytes, "
            "local.retention.ms or local.retention.bytes of a topic, or of each topic that matches a "
            "glob. Times such as 7d or 36h, sizes such as 50G, or numbers as in Kafka. Repeatable; a "
            "later change of the same setting replaces an earlier one.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = ()
    price_per_gb_month: Annotated[
        float | None,
        typer.Option(
            metavar="PRICE",
            min=0,
            help="With --what-if: the price of storing a GB (2^30 bytes) for a month, in any currency.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = None
    price_per_1000_requests: Annotated[
        float | None,
        typer.Option(
            metavar="PRICE",
            min=0,
            help="With --what-if: the price of a thousand requests that store or delete objects.",
            rich_help_panel=_WHAT_IF,
        ),
    ] = None
    warehouse: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="With --what-if: read the tables that 'pipeline run' wrote to this folder instead of the "
            "metadata topic. With --engine spark, each executor decides for some of the metadata "
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

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid | None, f.TOPIC_ID, Shown(9)]
    partitions: Annotated[int, f.PARTITIONS, Shown(8)]
    undecided_partitions: Annotated[
        int, Field(Kind.NUMBER, "partitions for which retention is not decided", "undecided"), Shown(4)
    ]
    now_segments: Annotated[int, Field(Kind.NUMBER, "finished segments now", "segments"), Shown(5)]
    now_bytes: Annotated[int, Field(Kind.BYTES, "size of their logs", "now"), Shown(0)]
    now_objects: Annotated[
        int | None,
        Field(Kind.NUMBER, "their objects in the store; null without --remote", "objects"),
        Shown(7),
    ]
    now_requests: Annotated[
        int | None,
        Field(Kind.NUMBER, "requests in the next 30 days under the present settings", "requests"),
        Shown(6),
    ]
    now_cost: Annotated[
        float | None, Field(Kind.COST, "cost of a month at that size; null without a price", "cost"), Shown(1)
    ]
    changed_segments: Annotated[
        int | None, Field(Kind.NUMBER, "segments that the change leaves of them", "segments_then"), Shown(5)
    ]
    changed_bytes: Annotated[int | None, Field(Kind.BYTES, "size of their logs", "changed"), Shown(0)]
    changed_objects: Annotated[
        int | None, Field(Kind.NUMBER, "their objects in the store", "objects_then"), Shown(7)
    ]
    changed_requests: Annotated[
        int | None, Field(Kind.NUMBER, "requests in the 30 days after the change", "requests_then"), Shown(6)
    ]
    changed_cost: Annotated[
        float | None, Field(Kind.COST, "cost of a month at that size", "cost_then"), Shown(1)
    ]
    later_segments: Annotated[
        int | None, Field(Kind.NUMBER, "segments in 90 days under the change", "segments_90d"), Shown(5)
    ]
    later_bytes: Annotated[int | None, Field(Kind.BYTES, "size of their logs", "in_90d"), Shown(0)]
    later_objects: Annotated[
        int | None, Field(Kind.NUMBER, "their objects in the store", "objects_90d"), Shown(7)
    ]
    later_requests: Annotated[
        int | None, Field(Kind.NUMBER, "requests in the last 30 of the 90 days", "requests_90d"), Shown(6)
    ]
    later_cost: Annotated[
        float | None, Field(Kind.COST, "cost of a month at that size", "cost_90d"), Shown(1)
    ]
    unchanged_later_bytes: Annotated[
        int | None, Field(Kind.BYTES, "size in 90 days under the present settings", "unchanged_90d"), Shown(9)
    ]
    unchanged_later_cost: Annotated[
        float | None, Field(Kind.COST, "cost of a month at that size", "cost_unchanged_90d"), Shown(9)
    ]
    growth_bytes_per_day: Annotated[
        int | None,
        Field(Kind.BYTES, "bytes that a day adds; null with less than a day seen", "growth"),
        Shown(3),
    ]
    growth_since_ms: Annotated[
        int | None,
        Field(Kind.TIME, "begin of the time in which the growth was seen", "growth_since"),
        Shown(9),
    ]
    local_now_bytes: Annotated[
        int | None, Field(Kind.BYTES, "size of the logs in --log-dir; null without", "local"), Shown(2)
    ]
    local_changed_bytes: Annotated[
        int | None, Field(Kind.BYTES, "size of these logs after the change", "local_changed"), Shown(2)
    ]
    local_later_bytes: Annotated[
        int | None, Field(Kind.BYTES, "size of these logs in 90 days under the change", "local_90d"), Shown(2)
    ]


WHAT_IF = Columns(
    TopicOutlook,
    name="what-if",
    title="Tier under the changed settings, by topic",
    commands="report --what-if",
    noun="row",
    terminal=(
        "topic",
        "now_bytes",
        "changed_bytes",
        "later_bytes",
        "now_cost",
        "changed_cost",
        "later_cost",
        "local_now_bytes",
        "local_changed_bytes",
        "local_later_bytes",
        "growth_bytes_per_day",
        "undecided_partitions",
        "now_segments",
        "changed_segments",
        "later_segments",
        "now_requests",
        "changed_requests",
        "later_requests",
        "now_objects",
        "changed_objects",
        "later_objects",
        "partitions",
        "unchanged_later_bytes",
        "unchanged_later_cost",
        "growth_since_ms",
        "topic_id",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoss:
    """A group whose committed offset would fall below the log start, and the records that it would lose."""

    group: Annotated[str, Field(Kind.NAME, "id of the consumer group"), Shown(0)]
    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    committed_offset: Annotated[int, f.COMMITTED_OFFSET, Shown(1)]
    new_log_start_offset: Annotated[int, f.NEW_LOG_START_OFFSET, Shown(1)]
    lost_records: Annotated[
        int, Field(Kind.NUMBER, "offsets from the committed one to the new log start", "lost"), Shown(0)
    ]


GROUP_LOSSES = Columns(
    GroupLoss,
    name="group-losses",
    title="Consumer groups that would lose records",
    commands="report --what-if --show groups",
    noun="loss/losses",
)
CHANGE_ROWS = (WHAT_IF, GROUP_LOSSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(TableResult):
    """The result of a change of settings; the last row of `topics` is the total.

    `groups` are by group, topic and partition. The exit code is PARTIAL if a requested value is unknown, and
    CORRUPT for damaged metadata.
    """

    table = WHAT_IF, "topics"
    """The rows that the command prints as JSON."""

    topics: tuple[TopicOutlook, ...]
    groups: tuple[GroupLoss, ...]
    exit_code: ExitCode


_LAST = HORIZONS_DAYS[-1]
_GB = 1 << 30
_COST_DIGITS = 4
_PRICE_MAX = 10**12
"""The largest price; the cost of any number of bytes is a number of JSON then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices of storage and of requests; None for one that is not asked for."""

    per_gb_month: float | None = None
    per_1000_requests: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a price that is negative, too large or no number."""
        for each in fields(self):
            price = getattr(self, each.name)
            if price is not None and not 0 <= price <= _PRICE_MAX:
                option = f"--price-{each.name.replace('_', '-')}"
                raise UsageError(f"{option} {price}: expected a number from 0 to 10^12", hint="as 0.023")

    def cost(self, holding: Holding | None, request_count: int | None) -> Fraction | None:
        """Return the exact cost of a month; None without a price, or if an amount with a price is unknown."""
        log_bytes = None if holding is None else holding.log_bytes
        parts = ((self.per_gb_month, log_bytes, _GB), (self.per_1000_requests, request_count, 1000))
        priced = [(price, amount, unit) for price, amount, unit in parts if price is not None]
        costs = [Fraction(str(price)) * amount / unit for price, amount, unit in priced if amount is not None]
        return Fraction(sum(costs)) if priced and len(costs) == len(priced) else None


_Outlook = Callable[[PartitionFacts], Outlook]
_UNCHANGED: _Outlook = attrgetter("unchanged")
_CHANGED: _Outlook = attrgetter("changed")


@dataclass(frozen=True, kw_only=True)
class _Topic:
    """The partitions of one topic; a value that is unknown for one of them is None for the topic."""

    facts: Sequence[PartitionFacts]
    now_ms: int
    prices: Prices
    counts_objects: bool

    def row(self, topic: str, topic_id: Uuid) -> TopicOutlook:
        """Return the row of the topic."""
        unchanged_later = self.held(_UNCHANGED, _LAST)
        later_requests = self.requests(_UNCHANGED, _LAST - MONTH_DAYS)
        values: dict[str, Any] = {
            **self._amounts("now", self.now, self.requests(_UNCHANGED, 0)),
            **self._amounts("changed", self.held(_CHANGED, 0), self.requests(_CHANGED, 0)),
            **self._amounts("later", self.held(_CHANGED, _LAST), self.requests(_CHANGED, _LAST - MONTH_DAYS)),
            "unchanged_later_bytes": None if unchanged_later is None else unchanged_later.log_bytes,
            "unchanged_later_cost": self.prices.cost(unchanged_later, later_requests),
            **self.local(),
        }
        return TopicOutlook(
            topic=topic,
            topic_id=topic_id,
            partitions=len(self.facts),
            undecided_partitions=self.undecided,
            growth_bytes_per_day=self.growth_bytes_per_day,
            growth_since_ms=self.growth_since_ms,
            **values,
        )

    def _amounts(self, when: str, holding: Holding | None, request_count: int | None) -> dict[str, Any]:
        return {
            f"{when}_segments": None if holding is None else holding.segments,
            f"{when}_bytes": None if holding is None else holding.log_bytes,
            f"{when}_objects": holding.objects if holding is not None and self.counts_objects else None,
            f"{when}_requests": request_count,
            f"{when}_cost": self.prices.cost(holding, request_count),
        }

    @cached_property
    def undecided(self) -> int:
        """The number of partitions for which retention is not decided with one of the settings."""
        return sum(each.unchanged.is_undecided or each.changed.is_undecided for each in self.facts)

    @cached_property
    def growth_since_ms(self) -> int | None:
        """The begin of the time in which the growth was seen; None if the growth is unknown."""
        return growth_since_ms(self.facts, self.now_ms)

    @property
    def now(self) -> Holding:
        return sum((each.now for each in self.facts), Holding())

    @property
    def growth_bytes_per_day(self) -> int | None:
        if self.growth_since_ms is None:
            return None
        return sum_of([grown(each, DAY_MS, self.now_ms) for each in self.facts]).log_bytes

    def held(self, outlook: _Outlook, days: int) -> Holding | None:
        if self.undecided or (days and self.growth_since_ms is None):
            return None
        return sum_of([held(each, outlook(each), days, self.now_ms) for each in self.facts])

    def requests(self, outlook: _Outlook, begin_days: int) -> int | None:
        if self.undecided or self.growth_since_ms is None or not self.counts_objects:
            return None
        found = sum(requests(each, outlook(each), begin_days, self.now_ms) for each in self.facts)
        return rounded(found)

    def local(self) -> dict[str, int | None]:
        known = [each for each in self.facts if each.local is not None]
        logs = [each.local for each in known if each.local is not None]
        later = [local_later(each, self.now_ms) or 0 for each in known]
        return {
            "local_now_bytes": sum(log.log_bytes for log in logs) if logs else None,
            "local_changed_bytes": sum(log.left_bytes for log in logs) if logs else None,
            "local_later_bytes": None if not logs or self.growth_since_ms is None else rounded(sum(later)),
        }


def topic_rows(
    facts: Sequence[PartitionFacts], *, now_ms: int, prices: Prices, counts_objects: bool
) -> Iterator[TopicOutlook]:
    """Yield a row for each topic id, by name, and one for all of them."""
    topics: dict[tuple[str, Uuid], list[PartitionFacts]] = defaultdict(list)
    for each in facts:
        topics[each.topic, each.topic_id].append(each)
    rows = [
        _Topic(facts=topics[named], now_ms=now_ms, prices=prices, counts_objects=counts_objects).row(*named)
        for named in sorted(topics)
    ]
    for row in (*rows, _total(rows)):
        names = [each.name for each in fields(row) if each.name.endswith("_cost")]
        costs: dict[str, Any] = {name: _rounded(getattr(row, name)) for name in names}
        yield replace(row, **costs)


def _rounded(cost: Fraction | None) -> float | None:
    """Return `cost` with four decimal places, or with two digits if only 0 would be left of it."""
    return None if cost is None else round(float(cost), _COST_DIGITS) or float(f"{float(cost):.1e}")


def _total(rows: Sequence[TopicOutlook]) -> TopicOutlook:
    """Return the sums of all topics: None where one topic's is, but of those that no log directory has."""
    names = [each.name for each in fields(TopicOutlook) if each.name not in {"topic", "topic_id"}]

    def of_topics(name: str) -> list[Any]:
        if not name.startswith("local_"):
            return [getattr(row, name) for row in rows]
        return [getattr(row, name) for row in rows if row.local_now_bytes is not None] or [None]

    values: dict[str, Any] = {name: _sum(of_topics(name), name) for name in names}
    return TopicOutlook(topic=TOTAL, topic_id=None, **values)


def _sum(values: Sequence[Any], name: str) -> Any:
    if None in values:
        return None
    return min(values, default=None) if name == "growth_since_ms" else sum(values)


_SHOWN = 5


def group_losses(
    cluster: Cluster | None, facts: Sequence[PartitionFacts], progress: Progress
) -> tuple[tuple[GroupLoss, ...], bool]:
    """Return the losses by group, topic and partition, and whether all groups could be asked.

    A group loses the records from its committed offset, or from the present log start if that is higher, up
    to the new log start. What a login may not see is reported. Without a cluster, no group is known.
    """
    if cluster is None:
        return (), True
    moved = {
        TopicPartition(each.topic, each.partition): each
        for each in facts
        if each.changed.log_start_offset is not None
    }
    if not moved:
        progress.note("the change raises no log start offset, so no consumer group loses records")
        return (), True
    try:
        starts = {
            partition: each.log_start_offset for partition, each in cluster.partition_offsets(moved).items()
        }
        found = cluster.committed_offsets(moved)
    except TierctlError as e:
        progress.warn(f"it is unknown which consumer groups would lose records: {e.message}; {e.hint}")
        return (), False
    for error in found.unreadable[:_SHOWN]:
        progress.warn(f"it is unknown whether a consumer group would lose records: {error}")
    if len(found.unreadable) > _SHOWN:
        progress.warn(f"{counted(len(found.unreadable) - _SHOWN, 'more consumer group')} could not be read")
    if not found.lists_all:
        progress.warn(
            f"{counted(found.groups, 'consumer group was/consumer groups were')} examined, those that this "
            f"user may describe; to examine all: {Right('Describe').command}"
        )
    losses = tuple(_losses(found.offsets, moved, starts))
    return losses, found.lists_all and not found.unreadable


def _losses(
    offsets: Sequence[CommittedOffset],
    moved: Mapping[TopicPartition, PartitionFacts],
    starts: Mapping[TopicPartition, int],
) -> Iterator[GroupLoss]:
    for each in offsets:
        facts = moved[each.partition]
        new_start = facts.changed.log_start_offset or 0
        if each.offset < new_start:
            yield GroupLoss(
                group=each.group,
                topic=facts.topic,
                topic_id=facts.topic_id,
                partition=facts.partition,
                committed_offset=each.offset,
                new_log_start_offset=new_start,
                lost_records=max(new_start - max(each.offset, starts[each.partition]), 0),
            )


def what_if(request: WhatIfRequest, progress: Progress | None = None) -> WhatIf:
    """Return the remaining segments of the selected topics after the change, now and in 90 days.

    Nothing is changed. The decisions are those of `sweep` for the same request, once with the present and
    once with the changed settings. Raise UsageError for an unknown setting or topic and for a change that
    Kafka refuses, NotFoundError if the selection does not exist, SafetyRefusal for a clock that is behind the
    events, and the errors of the metadata, the tier and the cluster.
    """
    changes = Changes.parse(request.what_if, "--what-if", OF_TIER_AND_DISKS)
    if not changes.changes:
        raise UsageError("--what-if is missing", hint="as --what-if 'orders.retention.ms=7d'")
    prices = Prices(
        per_gb_month=request.price_per_gb_month, per_1000_requests=request.price_per_1000_requests
    )
    if request.warehouse is not None:
        with Resources(request=request, progress=progress or SilentProgress()) as resources:
            gathered = facts_from_tables(resources, changes, request.warehouse)
            for line in skip_lines(gathered.skipped):
                resources.progress.say(line)
            return _result(resources, gathered, prices, is_damaged=gathered.damaged > 0)
    sweeping, progress = request_as(SweepRequest, request), progress or SilentProgress()
    with mutation(sweeping, progress, kept=Kept.FACTS) as run:
        gathered = _gather(run, changes)
        is_damaged = run.histories.report(run.metadata.state)
        return _result(run.resources, gathered, prices, is_damaged=is_damaged or bool(run.unreadable))


def _gather(run: Mutation, changes: Changes) -> GatheredFacts:
    inputs = retention_inputs(run, size_limit=changes.size_limit)
    asked = FactsRequest(
        changed=changed_configs(run, inputs, changes),
        selection=run.resources.selection,
        objects=None if run.request.remote is None else object_counts(run.remote),
        unreadable=run.unreadable,
    )
    gathered = gather_facts(inputs, asked)
    for line in skip_lines(run.histories.unreported(gathered.skipped)):
        run.progress.say(line)
    return gathered


def _result(resources: Resources, gathered: GatheredFacts, prices: Prices, *, is_damaged: bool) -> WhatIf:
    facts = gathered.facts
    if gathered.removed:
        left_out = "partition that is being deleted is/partitions that are being deleted are"
        them = "it" if gathered.removed == 1 else "them"
        resources.progress.note(
            f"{counted(gathered.removed, left_out)} left out; tierctl delete removes {them}"
        )
    topics = tuple(
        topic_rows(facts, now_ms=resources.now_ms, prices=prices, counts_objects=gathered.counts_objects)
    )
    for text in _unknown(resources, topics[:-1], facts):
        resources.progress.note(text)
    groups, knows_groups = group_losses(resources.cluster, facts, resources.progress)
    is_complete = knows_groups and not topics[-1].undecided_partitions
    is_damaged = is_damaged or any_not_understood(
        (skip.reason for skip in gathered.skipped), resources.request
    )
    code = ExitCode.OK if is_complete else ExitCode.PARTIAL
    return WhatIf(topics=topics, groups=groups, exit_code=ExitCode.CORRUPT if is_damaged else code)


def _unknown(
    resources: Resources, topics: Sequence[TopicOutlook], facts: Sequence[PartitionFacts]
) -> Iterator[str]:
    """Yield a text for each kind of unknown value, with the reason."""
    unstated = {each.topic: each.changed.is_age_stated for each in facts if not each.unchanged.is_age_stated}
    for is_changed, figures in ((False, "the figures"), (True, "the figures without the change")):
        names = sorted(topic for topic, is_stated in unstated.items() if is_stated is is_changed)
        if names:
            yield f"{names_text(names)}: {AGE_NOT_STATED}, so {figures} count no expiry by age"
    young = sorted({row.topic for row in topics if row.growth_since_ms is None})
    if young:
        yield f"less than a day of history: the growth of {names_text(young)} is not known"
    undecided = sorted({row.topic for row in topics if row.undecided_partitions})
    if undecided:
        yield (
            f"not decided, so not known under the change: {names_text(undecided)}; retention.bytes needs the "
            "size of the log, from the cluster or --log-dir"
        )
    if resources.cluster is None:
        yield "it is unknown without a cluster which consumer groups would lose records: --bootstrap-server"
    if not resources.request.log_dir:
        yield "the brokers' disks are not known without --log-dir"
