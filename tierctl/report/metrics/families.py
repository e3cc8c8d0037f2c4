"""Every metric that tierctl writes: name, type, labels and meaning.

Metrics that KIP-405, KIP-852, KIP-956 and KIP-963 define have Kafka's names, as the rules of the JMX exporter
turn `kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec,topic=...` into a name: so a query for
brokers also finds the work of tierctl. tests/live/test_metric_names.py compares them with a broker's beans.

Who sets which: `metrics/runs.py` those of a run (time, exit code, errors, throttles), `metrics/tier.py` those
of the tier's state, `commands/verify.py` the findings, `apply/measures.py` what a mutating run copies and
deletes, and `metrics/meter.py` the reads of segments. A metric that none of them sets is a defect.
"""

from dataclasses import dataclass
from enum import StrEnum


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
