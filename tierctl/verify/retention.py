"""Checks of a partition's retention: whether a segment without a usable timestamp stops retention.ms."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tierctl.errors import RemoteResourceNotFound
from tierctl.model import TopicConfig
from tierctl.model.engine import Severity
from tierctl.model.settings import topic
from tierctl.plan.preconditions import why_never_tiered
from tierctl.plan.retention.breaches import PartitionView, expire
from tierctl.read.partition_reader import ReadablePartition
from tierctl.state.partition_segments import PartitionSegments
from tierctl.verify.findings import Finding, FindingKind, finding_of
from tierctl.verify.segments import LogFacts


@dataclass(frozen=True, slots=True)
class Retention:
    """The time as of which retention is checked, and the settings of the topic; None if they are unknown."""

    now_ms: int
    config: TopicConfig | None

    @property
    def is_age_known(self) -> bool:
        """Whether the settings state retention.ms, or the brokers' default is known."""
        return self.config is not None and (self.config.is_age_stated or self.config.retention_ms >= 0)


def check_retention(readable: ReadablePartition, log: LogFacts, retention: Retention) -> Iterator[Finding]:
    """Yield a finding if a segment stalls retention.ms, as `sweep` decides it.

    Topics that `sweep` skips because of their settings have no finding. Where retention.ms is not stated,
    Kafka's default is assumed, and the finding is information.
    """
    name = readable.topic_id_partition.topic
    if retention.config is not None and why_never_tiered(name, {name: retention.config}):
        return
    view = PartitionView(
        partition=readable.topic_id_partition,
        segments=PartitionSegments.of_cache(readable.cache),
        lineage=log.lineage,
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_only_bytes=log.local_only_bytes,
    )
    config, default_ms = retention.config or TopicConfig(), topic.RETENTION_MS.kafka_default
    if not retention.is_age_known:
        config = replace(config, retention_ms=default_ms)
    try:
        stalled = expire(view, config, retention.now_ms).stalled
    except RemoteResourceNotFound:
        # The lineage does not reach the log start, which other findings report.
        return
    if stalled is None:
        return
    severity, message = Severity.WARNING, stalled.message
    if not retention.is_age_known:
        severity = Severity.INFO
        message += f" ({topic.RETENTION_MS.name} is not stated: Kafka's default of {default_ms} is assumed)"
    yield finding_of(
        readable.topic_id_partition, FindingKind.STALLED_RETENTION, severity, message, stalled.segment
    )
