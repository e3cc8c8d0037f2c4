"""Limits of bytes per second (KIP-956, RLMQuotaManager), and reports of what a process read and stored."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self

from tierctl.errors import TransferStopped, UsageError
from tierctl.model.settings import broker
from tierctl.model.settings.scopes import parse_size

# Kafka compares the average of several windows with its quota, so a broker may exceed it for seconds. tierctl
# holds the limit at every moment: in no time span are more bytes transferred than rate times span plus burst.

_BURST_BYTES_MIN = 4096
_PART_BYTES_MAX = 1 << 20
_POLL_S = 0.1
"""Interval at which a wait checks for a request to stop."""


def parse_rate(text: str) -> int:
    """Return the bytes per second in `text`, as 50M, 800KiB or 1048576; UsageError for another form."""
    try:
        rate = parse_size(text.strip().lower().removesuffix("/s"))
    except UsageError:
        rate = 0
    if rate < 1:
        raise UsageError(
            f"{text!r} is no number of bytes per second",
            hint="expected 1 or more, as 50M: K, M and G are powers of 1024",
        )
    return rate


class Direction(StrEnum):
    """Whether bytes are stored in a tier or read from it, as Kafka's quotas name it."""

    COPY = "copy"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A rate, and the bytes that may be transferred at once after a pause."""

    bytes_per_second: float
    burst_bytes: int

    @classmethod
    def of(cls, bytes_per_second: float, window_s: int) -> Self:
        """Return the limit whose burst is `window_s` seconds at the rate, and at least 4 KiB."""
        return cls(
            bytes_per_second=bytes_per_second,
            burst_bytes=max(_BURST_BYTES_MIN, int(bytes_per_second * window_s)),
        )

    def shared(self, by: int) -> Self:
        """Return the share of one of `by` processes."""
        return type(self)(
            bytes_per_second=self.bytes_per_second / by,
            burst_bytes=max(_BURST_BYTES_MIN // by, self.burst_bytes // by, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """The limits of copies and of fetches; None is unlimited. Picklable, for executors."""

    copy: Limit | None = None
    fetch: Limit | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the limits in a broker's settings; Kafka's default is unlimited."""

        def limit(rate: int, unlimited: int, window_s: int) -> Limit | None:
            return None if rate == unlimited else Limit.of(rate, window_s)

        return cls(
            copy=limit(
                broker.COPY_MAX_BYTES_PER_SECOND.value(settings),
                broker.COPY_MAX_BYTES_PER_SECOND.kafka_default,
                broker.COPY_QUOTA_WINDOW_S.value(settings),
            ),
            fetch=limit(
                broker.FETCH_MAX_BYTES_PER_SECOND.value(settings),
                broker.FETCH_MAX_BYTES_PER_SECOND.kafka_default,
                broker.FETCH_QUOTA_WINDOW_S.value(settings),
            ),
        )

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.copy is not None or self.fetch is not None

    def shared(self, by: int) -> Self:
        """Return the share of one of `by` processes that transfer at the same time."""
        return replace(
            self,
            copy=None if self.copy is None else self.copy.shared(by),
            fetch=None if self.fetch is None else self.fetch.shared(by),
        )


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of one direction: their number, sum and maximum, and how long at least one thread waited."""

    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0
    elapsed_s: float = 0.0

    def __add__(self, other: object) -> Self:
        """Return both together, of which none was at the same time as another."""
        if not isinstance(other, Waits):
            return NotImplemented
        return type(self)(
            self.count + other.count,
            self.sum_s + other.sum_s,
            max(self.max_s, other.max_s),
            self.elapsed_s + other.elapsed_s,
        )


@dataclass(slots=True)
class WaitTimes:
    """The waits of one direction that have `ended`, while threads wait."""

    ended: Waits = Waits()
    _waiting: int = 0
    _since_s: float = 0.0

    def begin(self, now_s: float) -> None:
        """Count a thread that begins to wait."""
        if not self._waiting:
            self._since_s = now_s
        self._waiting += 1

    def end(self, now_s: float, waited_s: float) -> None:
        """Count a thread that has waited for `waited_s`."""
        self._waiting -= 1
        self.ended += Waits(1, waited_s, waited_s, 0.0 if self._waiting else now_s - self._since_s)


@dataclass(slots=True)
class _Bucket:
    """A token bucket that all threads share; those that wait are served in the order of their requests."""

    limit: Limit
    clock_s: Callable[[], float]
    available_bytes: float = field(init=False)
    at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.available_bytes, self.at_s = self.limit.burst_bytes, self.clock_s()

    def reserve(self, size_bytes: int) -> float:
        """Take `size_bytes`, at most a burst; return the seconds after which they may be transferred."""
        now_s = self.clock_s()
        refill = (now_s - self.at_s) * self.limit.bytes_per_second
        self.available_bytes = min(self.limit.burst_bytes, self.available_bytes + refill) - size_bytes
        self.at_s = now_s
        return max(0.0, -self.available_bytes / self.limit.bytes_per_second)

    def give_back(self, size_bytes: int) -> None:
        """Return bytes that were reserved and not transferred."""
        self.available_bytes = min(self.limit.burst_bytes, self.available_bytes + size_bytes)


class Throttle:
    """The limits of one run, shared by all its tiers and threads; without settings nothing is limited.

    `stop` ends every wait at once: transfers that wait, now or later, raise TransferStopped.
    """

    def __init__(
        self,
        settings: ThrottleSettings | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._clock_s = clock_s
        self._stopped = threading.Event()
        self._sleep = self._stopped.wait if sleep is None else sleep
        self._lock = threading.Lock()
        self._buckets: dict[Direction, _Bucket] = {}
        self._is_stopped: Callable[[], bool] = self._stopped.is_set
        self.times: dict[Direction, WaitTimes] = {}
        """The waits by direction, for the directions with a limit."""
        self._elapsed_elsewhere_s: defaultdict[str, float] = defaultdict(float)
        self.limit(settings or ThrottleSettings())

    def limit(self, settings: ThrottleSettings) -> None:
        """Set these limits; a direction that already has a limit keeps it."""
        for direction in Direction:
            limit: Limit | None = getattr(settings, direction)
            if limit is not None and direction not in self._buckets:
                self._buckets[direction] = _Bucket(limit, self._clock_s)
                self.times[direction] = WaitTimes()

    def stop(self) -> None:
        """End every wait."""
        self._stopped.set()

    def stop_when(self, is_stopped: Callable[[], bool]) -> None:
        """Also end every wait once `is_stopped()` is True."""
        self._is_stopped = lambda: self._stopped.is_set() or is_stopped()

    @property
    def elapsed_s(self) -> float:
        """How long at least one thread waited, summed over both directions.

        With waits of other processes it is that of the process that waited longest: theirs may overlap.
        """
        own_s = sum(times.ended.elapsed_s for times in self.times.values())
        return max(own_s, *self._elapsed_elsewhere_s.values(), 0.0)

    def take_waits(self) -> dict[Direction, Waits]:
        """Return the waits that ended since the last call, for the directions that had some."""
        with self._lock:
            taken = {direction: times.ended for direction, times in self.times.items()}
            for times in self.times.values():
                times.ended = Waits()
        return {direction: waits for direction, waits in taken.items() if waits.count}

    def add_waits(self, process: str, waits: Mapping[Direction, Waits]) -> None:
        """Add waits of another process (from its `take_waits`), from any thread."""
        with self._lock:
            for direction, each in waits.items():
                self.times.setdefault(direction, WaitTimes()).ended += replace(each, elapsed_s=0.0)
                self._elapsed_elsewhere_s[process] += each.elapsed_s

    def part_bytes(self, direction: Direction, size_bytes: int) -> int:
        """Return how many of `size_bytes` to transfer at once."""
        bucket = self._buckets.get(direction)
        return size_bytes if bucket is None else min(size_bytes, bucket.limit.burst_bytes, _PART_BYTES_MAX)

    def wait(self, direction: Direction, size_bytes: int) -> float:
        """Wait until `size_bytes` may be transferred, and return the seconds of the wait.

        Raise TransferStopped if the run is told to stop meanwhile.
        """
        bucket = self._buckets.get(direction)
        waited_s = 0.0
        while bucket is not None and size_bytes > 0:
            part = min(size_bytes, bucket.limit.burst_bytes)
            with self._lock:
                wait_s = bucket.reserve(part)
            if wait_s > 0:
                waited_s += self._wait(direction, wait_s)
            size_bytes -= part
        return waited_s

    def give_back(self, direction: Direction, size_bytes: int) -> None:
        """Return bytes that were waited for and not transferred."""
        bucket = self._buckets.get(direction)
        if bucket is not None and size_bytes:
            with self._lock:
                bucket.give_back(size_bytes)

    def _wait(self, direction: Direction, wait_s: float) -> float:
        begun_s = self._clock_s()
        times = self.times[direction]
        with self._lock:
            times.begin(begun_s)
        try:
            while (left_s := begun_s + wait_s - self._clock_s()) > 0:
                if self._is_stopped():
                    raise TransferStopped(
                        f"the run was stopped while the limit of {direction} was waited for"
                    )
                self._sleep(min(left_s, _POLL_S))
        finally:
            now_s = self._clock_s()
            with self._lock:
                times.end(now_s, now_s - begun_s)
        return now_s - begun_s


UNLIMITED = Throttle()
"""For stores without limits."""


class Fetches(NamedTuple):
    """The reads of a topic's segments: how many began, the bytes that arrived, and how many failed."""

    requests: int = 0
    size_bytes: int = 0
    errors: int = 0

    def __add__(self, other: object) -> Self:
        """Return the sums of both."""
        if not isinstance(other, Fetches):
            return NotImplemented
        return type(self)(*(own + more for own, more in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The reads by topic and the waits by direction of one process; picklable.

    `process` names the process: its waits never overlap, while those of two processes may.
    """

    process: str
    fetches: Mapping[str, Fetches]
    waits: Mapping[Direction, Waits]


@dataclass(slots=True)
class FetchCounts:
    """Counts the reads of segments by topic, from several threads, until they are taken."""

    _counts: dict[str, Fetches] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, topic: str, more: Fetches) -> None:
        """Count reads of segments of `topic`."""
        with self._lock:
            self._counts[topic] = self._counts.get(topic, Fetches()) + more

    def take(self) -> dict[str, Fetches]:
        """Return the counts by topic since the last call."""
        with self._lock:
            found, self._counts = self._counts, {}
            return found
