"""The finding stalled_retention agrees with the decisions of `sweep`."""

from dataclasses import replace

import pytest
from tierctl.checks.findings import FindingKind
from tierctl.checks.segments import Retention, check_partition
from tierctl.model import RemoteLogSegmentMetadata, TopicConfig
from tierctl.model.choices import Severity
from tierctl.model.times import iso_utc
from tierctl.plan.expiry import plan_retention
from tierctl.read.partition_reader import ReadablePartition

from tests.plan.tier import DAY_MS, NOW_MS, PARTITION, local_log, segment, tier

LOG = local_log([400], 410)
RETENTION_MS = 2 * DAY_MS
OLD_MS = NOW_MS - 10 * DAY_MS


def segments(*times_ms: int) -> list[RemoteLogSegmentMetadata]:
    return [segment(n, 100 * n, 100 * n + 99, max_timestamp_ms=at) for n, at in enumerate(times_ms)]


DAYS = TopicConfig(retention_ms=RETENTION_MS)


@pytest.mark.parametrize(
    ("times_ms", "config", "stalled", "since_ms"),
    [
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), DAYS, 0, OLD_MS + RETENTION_MS),
        ((NOW_MS + 1, OLD_MS + 5, OLD_MS, OLD_MS), DAYS, 0, OLD_MS + RETENTION_MS),
        ((OLD_MS, NOW_MS + 1, OLD_MS + 7, OLD_MS + 9), DAYS, 1, OLD_MS + 7 + RETENTION_MS),
        ((OLD_MS, NOW_MS + 1, NOW_MS, NOW_MS), DAYS, 1, None),
        # Brokers delete a segment without a timestamp, and what follows it.
        ((OLD_MS, 0, NOW_MS, NOW_MS), DAYS, None, None),
        ((-1, OLD_MS, OLD_MS, OLD_MS), DAYS, None, None),
        ((OLD_MS, OLD_MS, NOW_MS, 0), DAYS, None, None),
        ((OLD_MS,) * 4, DAYS, None, None),
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), TopicConfig.from_settings({"retention.ms": "-1"}), None, None),
        # retention.bytes deletes the segment whatever its timestamp is.
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), replace(DAYS, retention_bytes=0), None, None),
        ((NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS), replace(DAYS, remote_storage_enable=False), None, None),
    ],
)
def test_stalled_retention(
    times_ms: tuple[int, ...], config: TopicConfig, stalled: int | None, since_ms: int | None
) -> None:
    made = segments(*times_ms)
    state = tier(*made)
    readable = ReadablePartition(PARTITION, state.partitions[PARTITION.key].cache, (LOG,))
    found = [
        finding
        for finding in check_partition(
            readable, None, lambda _: None, now_ms=NOW_MS, retention=Retention(NOW_MS, config)
        )
        if finding.check is FindingKind.STALLED_RETENTION
    ]
    plan = plan_retention(state, [LOG], {"orders": config}, now_ms=NOW_MS)
    said = [
        skip.reason
        for skip in plan.skipped
        if "stalled" in skip.reason and "but brokers do" not in skip.reason
    ]
    assert [finding.found for finding in found] == said
    assert [finding.segment_id for finding in found] == (
        [] if stalled is None else [made[stalled].segment_id]
    )
    if stalled is not None:
        assert (
            "no segment behind it is due yet" if since_ms is None else f"(since {iso_utc(since_ms)})"
        ) in said[0]
        assert found[0].severity is Severity.WARNING


@pytest.mark.parametrize("config", [None, TopicConfig(), TopicConfig(retention_bytes=1 << 40)], ids=str)
def test_an_age_that_is_not_stated_is_kafkas_default(config: TopicConfig | None) -> None:
    state = tier(*segments(NOW_MS + 1, OLD_MS, OLD_MS, OLD_MS))
    readable = ReadablePartition(PARTITION, state.partitions[PARTITION.key].cache, (LOG,))
    [finding] = check_partition(
        readable, None, lambda _: None, now_ms=NOW_MS, retention=Retention(NOW_MS, config)
    )
    assert (finding.check, finding.severity) == (FindingKind.STALLED_RETENTION, Severity.INFO)
    assert f"since {iso_utc(OLD_MS + 7 * DAY_MS)}" in finding.found
    assert "Kafka's default of 604800000 is assumed" in finding.found
