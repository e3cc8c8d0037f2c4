"""Every metric that tierctl writes: name, type, labels and meaning; and the meter of a run.

Metrics that KIP-405, KIP-852, KIP-956 and KIP-963 define have Kafka's names, as the rules of the JMX exporter
turn `kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec,topic=...` into a name: so a query for
brokers also finds the work of tierctl. tests/live/test_metric_names.py compares them with a broker's beans.

Who sets which: `measure_run` and `measure_throttle` those of a run (time, exit code, errors, throttles),
`measure_tier` those of the tier's state, `count_fetches` the reads of segments, `commands/verify` the
findings, and `commands/change.py` what a mutating run copies and deletes. A metric that none of them sets is
a defect.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tierctl import __version__
from tierctl.errors import ExitCode
from tierctl.model import RemoteLogSegmentState
from tierctl.model.selection import SelectionRequest, admits_topic
from tierctl.state.tier_state import TierState, sizes_by_group
from tierctl.storage.throttle import Direction, Fetches, Throttle


class Kind(StrEnum):
    """The type of a metric. A counter grows from run to run; a gauge has the value that was last seen."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; the name of a counter ends in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


_KAFKA = "kafka_server_brokertopicmetrics_"
_TOPIC = ("topic",)
_COMMAND = ("command",)


def _kafka_counter(name: str, source: str, text: str) -> Family:
    return Family(f"{_KAFKA}{name}_total", Kind.COUNTER, f"{text} ({source}PerSec)", _TOPIC)


def _kafka_gauge(name: str, text: str) -> Family:
    return Family(f"{_KAFKA}{name.lower()}", Kind.GAUGE, f"{text} ({name})", _TOPIC)


def _throttle(direction: str, word: str) -> Family:
    """Return a metric of KIP-956: of kafka.server:type=RemoteLogManager, remote-copy-throttle-time-avg."""
    name = f"remote-{direction}-throttle-time-{word[:3].replace('ave', 'avg')}"
    return Family(
        f"kafka_server_remotelogmanager_{name.replace('-', '_')}",
        Kind.GAUGE,
        f"The {word} wait of the last run for its limit of bytes per second, in milliseconds ({name})",
    )


COPY_BYTES = _kafka_counter("remotecopybytes", "RemoteCopyBytes", "Bytes of segments copied to the tier")
COPY_REQUESTS = _kafka_counter("remotecopyrequests", "RemoteCopyRequests", "Segments whose copy was begun")
COPY_ERRORS = _kafka_counter("remotecopyerrors", "RemoteCopyErrors", "Segments whose copy failed")
FETCH_BYTES = _kafka_counter("remotefetchbytes", "RemoteFetchBytes", "Bytes of segments read from the tier")
FETCH_REQUESTS = _kafka_counter("remotefetchrequests", "RemoteFetchRequests", "Reads of segments in the tier")
FETCH_ERRORS = _kafka_counter("remotefetcherrors", "RemoteFetchErrors", "Reads of segments that failed")
DELETE_REQUESTS = _kafka_counter(
    "remotedeleterequests", "RemoteDeleteRequests", "Segments whose deletion from the tier was begun"
)
DELETE_ERRORS = _kafka_counter(
    "remotedeleteerrors", "RemoteDeleteErrors", "Segments whose deletion from the tier failed"
)
DELETED_BYTES = Family(
    "tierctl_deleted_bytes_total", Kind.COUNTER, "Bytes of segments deleted from the tier", _TOPIC
)
COPY_LAG_BYTES = _kafka_gauge("RemoteCopyLagBytes", "Bytes of segments to copy that are not in the tier")
COPY_LAG_SEGMENTS = _kafka_gauge("RemoteCopyLagSegments", "Segments to copy that are not in the tier")
COPY_LAG_AGE = Family(
    "tierctl_copy_lag_oldest_age_seconds",
    Kind.GAUGE,
    "Age of the oldest segment that should be in the tier and is not: the time since the last write to its "
    "file, or since the end of the topic's copy lag if that is later; 0 if there is none",
    _TOPIC,
)
DELETE_LAG_BYTES = _kafka_gauge("RemoteDeleteLagBytes", "Bytes of segments to delete that are in the tier")
DELETE_LAG_SEGMENTS = _kafka_gauge("RemoteDeleteLagSegments", "Segments to delete that are in the tier")
SIZE_BYTES = _kafka_gauge("RemoteLogSizeBytes", "Bytes of finished segments in the tier")
METADATA_COUNT = _kafka_gauge("RemoteLogMetadataCount", "Segments that the metadata topic has, in any state")
COPY_THROTTLE_AVG = _throttle("copy", "average")
COPY_THROTTLE_MAX = _throttle("copy", "maximum")
FETCH_THROTTLE_AVG = _throttle("fetch", "average")
FETCH_THROTTLE_MAX = _throttle("fetch", "maximum")
TIER_SEGMENTS = Family(
    "tierctl_tier_segments", Kind.GAUGE, "Segments in the tier by state", ("topic", "state")
)
TIER_BYTES = Family(
    "tierctl_tier_bytes", Kind.GAUGE, "Bytes of segments in the tier by state", ("topic", "state")
)
FAILED_COPIES = Family(
    "tierctl_tier_failed_copies",
    Kind.GAUGE,
    "Copies that failed since the last one of their partition that succeeded",
    _TOPIC,
)
FAILING_SINCE = Family(
    "tierctl_tier_copies_failing_since_timestamp_seconds",
    Kind.GAUGE,
    "Time when the first of these copies was begun; none if no copy fails",
    _TOPIC,
)
DAMAGED_RECORDS = Family(
    "tierctl_tier_damaged_records", Kind.GAUGE, "Records of the metadata topic that can not be used"
)
FINDINGS = Family(
    "tierctl_verify_findings",
    Kind.GAUGE,
    "Findings of the last run of verify, status or report that looked for their kind in the whole tier",
    ("kind", "severity"),
)
LAST_SUCCESS = Family(
    "tierctl_last_success_timestamp_seconds",
    Kind.GAUGE,
    "Time when the last run with exit code 0 or 9 ended",
    _COMMAND,
)
LAST_APPLY = Family(
    "tierctl_last_apply_timestamp_seconds",
    Kind.GAUGE,
    "Time when the last run with --apply and exit code 0 ended",
    _COMMAND,
)
LAST_RUN = Family("tierctl_last_run_timestamp_seconds", Kind.GAUGE, "Time when the last run ended", _COMMAND)
LAST_DURATION = Family("tierctl_last_run_duration_seconds", Kind.GAUGE, "Duration of the last run", _COMMAND)
LAST_EXIT_CODE = Family("tierctl_last_run_exit_code", Kind.GAUGE, "Exit code of the last run", _COMMAND)
RUNS = Family("tierctl_runs_total", Kind.COUNTER, "Runs by exit code", ("command", "exit_code"))
ERRORS = Family(
    "tierctl_errors_total", Kind.COUNTER, "Errors that ended a run or failed a step", ("command", "kind")
)
BUILD_INFO = Family("tierctl_build_info", Kind.GAUGE, "Version of tierctl that wrote this file", ("version",))

FAMILIES = {family.name: family for family in list(globals().values()) if isinstance(family, Family)}
"""Every metric by its name."""


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

    def count_fetches(self, fetches: Mapping[str, Fetches]) -> None:
        """Count the reads of segments, by topic."""
        for topic, each in fetches.items():
            self.count(FETCH_REQUESTS, topic, by=each.requests)
            self.count(FETCH_BYTES, topic, by=each.size_bytes)
            self.count(FETCH_ERRORS, topic, by=each.errors)


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
        return cls(
            topics=selection.topics, is_partial=selection.narrows_partitions or bool(selection.topic_ids)
        )

    def keeps(self, labels: Labels) -> bool:
        """Return whether the gauge of the topic `labels[0]` stays as an earlier run wrote it."""
        return bool(self.topics) and not admits_topic(self.topics, labels[0])


_SUCCESS = (ExitCode.OK, ExitCode.PLAN_PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that ended.

    `error` is the class of the error that ended it. `is_applied` is whether it had --apply. `end_s` is in
    seconds since 1970.
    """

    command: str
    exit_code: int
    error: str | None
    is_applied: bool
    end_s: float
    seconds: float


def measure_throttle(meter: Meter, throttle: Throttle) -> None:
    """Measure the waits of a run for its limits; without a limit, an earlier run's values stay."""
    gauges = {
        Direction.COPY: (COPY_THROTTLE_AVG, COPY_THROTTLE_MAX),
        Direction.FETCH: (FETCH_THROTTLE_AVG, FETCH_THROTTLE_MAX),
    }
    for direction, times in throttle.times.items():
        average, maximum = gauges[direction]
        waits = times.ended
        meter.set(average, {(): waits.sum_s * 1000 / max(waits.count, 1)})
        meter.set(maximum, {(): waits.max_s * 1000})


def measure_run(meter: Meter, run: Run) -> None:
    """Measure `run`; after a failure, the time of the last success stays as an earlier run wrote it."""
    command = run.command
    meter.set_one(LAST_RUN, command, run.end_s)
    meter.set_one(LAST_DURATION, command, run.seconds)
    meter.set_one(LAST_EXIT_CODE, command, run.exit_code)
    if run.exit_code in _SUCCESS:
        meter.set_one(LAST_SUCCESS, command, run.end_s)
        if run.is_applied:
            meter.set_one(LAST_APPLY, command, run.end_s)
    meter.count(RUNS, command, str(run.exit_code))
    if run.error is not None:
        meter.count(ERRORS, command, run.error)
    meter.set(BUILD_INFO, {(__version__,): 1})


_LIVE_STATES = [s for s in RemoteLogSegmentState if s is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED]


def measure_tier(meter: Meter, state: TierState) -> None:
    """Set the gauges of every topic that has segments in `state`."""
    groups: dict[str, int] = {}
    members = [
        (groups.setdefault(part.topic_id_partition.topic, len(groups)), part)
        for part in state
        if part.segment_count
    ]
    sizes = sizes_by_group(state, members, len(groups))
    segments: dict[Labels, float] = {}
    sizes_bytes: dict[Labels, float] = {}
    for topic, group in groups.items():
        for name in _LIVE_STATES:
            segments[topic, str(name)], sizes_bytes[topic, str(name)] = sizes.of(group, name)
    meter.set(TIER_SEGMENTS, segments)
    meter.set(TIER_BYTES, sizes_bytes)
    meter.set(METADATA_COUNT, {(topic,): int(sizes.counts[group].sum()) for topic, group in groups.items()})
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    meter.set(SIZE_BYTES, {(topic,): sizes.of(group, finished)[1] for topic, group in groups.items()})
    meter.set(DAMAGED_RECORDS, {(): len(state.quarantined)})
    attempts: dict[Labels, float] = dict.fromkeys(((topic,) for topic in groups), 0)
    since_s: dict[Labels, float] = {}
    for part in state:
        if failed := part.failed_copies:
            labels = (part.topic_id_partition.topic,)
            attempts[labels] = attempts.get(labels, 0) + failed.attempts
            since_s[labels] = min(since_s.get(labels, math.inf), failed.since_ms / 1000)
    meter.set(FAILED_COPIES, attempts)
    meter.set(FAILING_SINCE, since_s)
