"""The rows of topics: sums of what `plan.forecast.model` calculates of their partitions, and their costs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from math import inf
from typing import Any

from tierctl.commands.insight.whatif.rows import TOTAL, TopicOutlook
from tierctl.errors import UsageError
from tierctl.model import Uuid
from tierctl.plan.forecast.facts import DAY_MS, HORIZONS_DAYS, Holding, Outlook, PartitionFacts
from tierctl.plan.forecast.model import (
    MONTH_DAYS,
    grown,
    growth_since_ms,
    held,
    local_later,
    requests,
    rounded,
    sum_of,
)

_LAST = HORIZONS_DAYS[-1]
_GB = 1 << 30
_COST_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices of storage and of requests; None for one that is not asked for."""

    per_gb_month: float | None = None
    per_1000_requests: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a price that is negative or no number."""
        for each in fields(self):
            price = getattr(self, each.name)
            if price is not None and not 0 <= price < inf:
                option = f"--price-{each.name.replace('_', '-')}"
                raise UsageError(f"{option} {price}: expected a number of at least 0", hint="as 0.023")

    def cost(self, holding: Holding | None, request_count: int | None) -> float | None:
        """Return the cost of a month; None without a price, or if an amount that has a price is unknown."""
        log_bytes = None if holding is None else holding.log_bytes
        parts = ((self.per_gb_month, log_bytes, _GB), (self.per_1000_requests, request_count, 1000))
        priced = [(price, amount, unit) for price, amount, unit in parts if price is not None]
        costs = [Fraction(str(price)) * amount / unit for price, amount, unit in priced if amount is not None]
        return round(float(sum(costs)), _COST_DIGITS) if priced and len(costs) == len(priced) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summing:
    """How partitions become rows: the time, the prices, and whether the objects of a segment are known."""

    now_ms: int
    prices: Prices
    counts_objects: bool

    def rows(self, facts: Sequence[PartitionFacts]) -> Iterator[TopicOutlook]:
        """Yield a row for each topic id, by name, and one for all of them."""
        topics: dict[tuple[str, Uuid], list[PartitionFacts]] = defaultdict(list)
        for each in facts:
            topics[each.topic, each.topic_id].append(each)
        rows = [self._row(*named, topics[named]) for named in sorted(topics)]
        yield from rows
        yield _total(rows)

    def _row(self, topic: str, topic_id: Uuid, facts: Sequence[PartitionFacts]) -> TopicOutlook:
        since_ms = growth_since_ms(facts, self.now_ms)
        undecided = sum(each.unchanged.is_undecided or each.changed.is_undecided for each in facts)
        of_topic = _Topic(
            facts=facts,
            now_ms=self.now_ms,
            is_decided=not undecided,
            is_growth_known=since_ms is not None,
            counts_objects=self.counts_objects,
        )
        unchanged_later = of_topic.held(_unchanged, _LAST)
        later_requests = of_topic.requests(_unchanged, _LAST - MONTH_DAYS)
        values: dict[str, Any] = {
            **self._amounts("now", of_topic.now, of_topic.requests(_unchanged, 0)),
            **self._amounts("changed", of_topic.held(_changed, 0), of_topic.requests(_changed, 0)),
            **self._amounts(
                "later", of_topic.held(_changed, _LAST), of_topic.requests(_changed, _LAST - MONTH_DAYS)
            ),
            "unchanged_later_bytes": None if unchanged_later is None else unchanged_later.log_bytes,
            "unchanged_later_cost": self.prices.cost(unchanged_later, later_requests),
            **of_topic.local(),
        }
        return TopicOutlook(
            topic=topic,
            topic_id=topic_id,
            partitions=len(facts),
            undecided_partitions=undecided,
            growth_bytes_per_day=of_topic.growth_bytes_per_day,
            growth_since_ms=since_ms,
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


def _unchanged(facts: PartitionFacts) -> Outlook:
    return facts.unchanged


def _changed(facts: PartitionFacts) -> Outlook:
    return facts.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """The partitions of one topic; a value that is unknown for one of them is None for the topic."""

    facts: Sequence[PartitionFacts]
    now_ms: int
    is_decided: bool
    is_growth_known: bool
    counts_objects: bool

    @property
    def now(self) -> Holding:
        return sum((each.now for each in self.facts), Holding())

    @property
    def growth_bytes_per_day(self) -> int | None:
        if not self.is_growth_known:
            return None
        return sum_of([grown(each, DAY_MS, self.now_ms) for each in self.facts]).log_bytes

    def held(self, outlook: Callable[[PartitionFacts], Outlook], days: int) -> Holding | None:
        if not self.is_decided or (days and not self.is_growth_known):
            return None
        return sum_of([held(each, outlook(each), days, self.now_ms) for each in self.facts])

    def requests(self, outlook: Callable[[PartitionFacts], Outlook], begin_days: int) -> int | None:
        if not (self.is_decided and self.is_growth_known and self.counts_objects):
            return None
        found = sum(requests(each, outlook(each), begin_days, self.now_ms) for each in self.facts)
        return rounded(found)

    def local(self) -> dict[str, int | None]:
        known = [each for each in self.facts if each.local is not None]
        logs = [each.local for each in known if each.local is not None]
        later = [local_later(each, self.now_ms) or 0 for each in known]
        return {
            "local_now_bytes": sum(log.log_bytes for log in logs) if logs else None,
            "local_changed_bytes": sum(log.changed.left_bytes for log in logs) if logs else None,
            "local_later_bytes": rounded(sum(later)) if logs and self.is_growth_known else None,
        }


def _total(rows: Sequence[TopicOutlook]) -> TopicOutlook:
    """Return the sums of all topics: None where one topic's is, but of those that no log directory has."""
    names = [each.name for each in fields(TopicOutlook) if each.name not in {"topic", "topic_id"}]
    values: dict[str, Any] = {name: _sum([getattr(row, name) for row in rows], name) for name in names}
    return TopicOutlook(topic=TOTAL, topic_id=None, **values)


def _sum(values: Sequence[Any], name: str) -> Any:
    if name.startswith("local_"):
        values = [value for value in values if value is not None] or [None]
    if None in values:
        return None
    if name == "growth_since_ms":
        return min(values, default=None)
    return round(sum(values), _COST_DIGITS) if name.endswith("_cost") else sum(values)
