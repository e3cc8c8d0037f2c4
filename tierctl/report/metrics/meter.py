"""Collect the metrics of one run."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from tierctl.model.selection import SelectionRequest, admits_topic
from tierctl.report.metrics import families
from tierctl.report.metrics.families import Family, Kind
from tierctl.storage.throttle import Fetches

Labels = tuple[str, ...]
"""The values of a family's labels, in their order."""


def _never(_labels: Labels) -> bool:
    """Return False: the run measured all values of the gauge."""
    return False


@dataclass(slots=True)
class Gauges:
    """The values of one gauge; `keeps` returns whether an earlier run's value for other labels stays."""

    values: dict[Labels, float]
    keeps: Callable[[Labels], bool] = _never


@dataclass(slots=True)
class Meter:
    """The metrics of one run: what counters grow by, and the new values of gauges."""

    counts: dict[Family, Counter[Labels]] = field(default_factory=dict)
    gauges: dict[Family, Gauges] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, family: Family, *labels: str, by: int = 1) -> None:
        """Let a counter grow by `by`, from any thread; with 0 the counter is only written."""
        assert family.kind is Kind.COUNTER
        assert len(labels) == len(family.labels)
        with self._lock:
            self.counts.setdefault(family, Counter())[labels] += by

    def set(
        self, family: Family, values: Mapping[Labels, float], keeps: Callable[[Labels], bool] = _never
    ) -> None:
        """Set the values of a gauge by labels; see `Gauges` for `keeps`."""
        assert family.kind is Kind.GAUGE
        self.gauges[family] = Gauges(dict(values), keeps)

    def set_one(self, family: Family, label: str, value: float) -> None:
        """Set one value of a gauge with one label; values of other labels stay."""
        self.set(family, {(label,): value}, lambda labels: labels != (label,))

    @property
    def fetches(self) -> "FetchMeter":
        """The counters of reads of segments."""
        return FetchMeter(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The topics that a run examines completely, so that it may replace their gauges."""

    topics: Collection[str] = ()
    """Names and globs; empty means every topic."""
    is_partial: bool = False
    """Whether only some partitions or topic ids are selected, so that no topic is examined whole."""

    @classmethod
    def of(cls, selection: SelectionRequest) -> Self:
        """Return the scope of a run with this selection."""
        return cls(topics=selection.topics, is_partial=bool(selection.partitions or selection.topic_ids))

    def keeps(self, labels: Labels) -> bool:
        """Return whether the gauge of the topic `labels[0]` stays as an earlier run wrote it."""
        return bool(self.topics) and not admits_topic(self.topics, labels[0])


@dataclass(frozen=True, slots=True)
class FetchMeter:
    """Implement `storage.observed.FetchObserver`: count the reads of segments in `meter`."""

    meter: Meter

    def begun(self, topic: str) -> None:
        """Implement `FetchObserver.begun`."""
        self.meter.count(families.FETCH_REQUESTS, topic)
        self.meter.count(families.FETCH_BYTES, topic, by=0)
        self.meter.count(families.FETCH_ERRORS, topic, by=0)

    def read(self, topic: str, size_bytes: int) -> None:
        """Implement `FetchObserver.read`."""
        self.meter.count(families.FETCH_BYTES, topic, by=size_bytes)

    def failed(self, topic: str) -> None:
        """Implement `FetchObserver.failed`."""
        self.meter.count(families.FETCH_ERRORS, topic)

    def add(self, fetches: Mapping[str, Fetches]) -> None:
        """Count the reads of another process, by topic."""
        for topic, each in fetches.items():
            self.meter.count(families.FETCH_REQUESTS, topic, by=each.requests)
            self.meter.count(families.FETCH_BYTES, topic, by=each.size_bytes)
            self.meter.count(families.FETCH_ERRORS, topic, by=each.errors)
