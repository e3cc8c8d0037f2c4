"""Which topics are copied, and Kafka 4.4's copy lag: the limits that release a segment."""

from dataclasses import replace

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.model import LocalSegment, TopicConfig
from tierctl.model.settings.topic import CopyLag
from tierctl.plan.copy import require_enabled, why_not_enabled, why_waiting

from tests.plan.tier import NOW_MS, local_log


def segment(age_ms: int) -> LocalSegment:
    return replace(local_log([0, 10], 20).segments[0], max_timestamp_ms=NOW_MS - age_ms)


BY_BYTES = "299 bytes follow it, the limit by remote.copy.lag.bytes is 300"


@pytest.mark.parametrize(
    ("lag", "age_ms", "following_bytes", "waits_for"),
    [
        (CopyLag(ms=0, bytes=None), 0, 0, None),
        (CopyLag(ms=500, bytes=0), 0, 0, None),
        (CopyLag(ms=0, bytes=500), 0, 0, None),
        (CopyLag(ms=500, bytes=None), 499, 9999, "499 ms old, the limit by remote.copy.lag.ms is 500"),
        (CopyLag(ms=500, bytes=None), 500, 0, None),
        (CopyLag(ms=500, bytes=None), -1, 0, None),
        (CopyLag(ms=None, bytes=300), 9999, 299, BY_BYTES),
        (CopyLag(ms=None, bytes=300), -1, 299, BY_BYTES),
        (CopyLag(ms=None, bytes=300), 0, 300, None),
        (CopyLag(ms=500, bytes=300), 499, 299, BY_BYTES),
        (CopyLag(ms=500, bytes=300), 500, 0, None),
        (CopyLag(ms=500, bytes=300), 0, 300, None),
        (CopyLag(ms=None, bytes=None), 10**12, 10**12, "no segment is ever copied"),
    ],
)
def test_a_segment_waits_until_one_limit_is_met(
    lag: CopyLag, age_ms: int, following_bytes: int, waits_for: str | None
) -> None:
    reason = why_waiting(segment(age_ms), following_bytes, lag, NOW_MS)
    assert (reason is None) == (waits_for is None)
    assert waits_for is None or waits_for in str(reason)


ON = TopicConfig(remote_storage_enable=True)
OFF = TopicConfig(remote_storage_enable=False)
SILENT = TopicConfig()
COMPACTED = TopicConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact", "delete"}))
CONFIGS = {"on": ON, "off": OFF, "silent": SILENT, "compacted": COMPACTED}
CONFIGS["compacted-silent"] = TopicConfig(cleanup_policy=frozenset({"compact"}))
NOT_AMONG = "remote.storage.enable=true is not among the topic's settings"
REFUSED = "Kafka refuses remote storage for compacted topics"


@pytest.mark.parametrize(
    ("name", "reason", "if_assumed"),
    [
        ("on", None, None),
        ("off", "remote.storage.enable=false", "remote.storage.enable=false"),
        ("silent", NOT_AMONG, None),
        ("absent", NOT_AMONG, None),
        ("compacted", *[f"cleanup.policy=compact,delete: {REFUSED}"] * 2),
        ("compacted-silent", *[f"cleanup.policy=compact: {REFUSED}"] * 2),
        ("__consumer_offsets", *["internal topics are never tiered"] * 2),
    ],
)
def test_why_a_topic_is_left_out(name: str, reason: str | None, if_assumed: str | None) -> None:
    for expected, assumed in ((reason, "other"), (if_assumed, name)):
        found = why_not_enabled(name, CONFIGS, {assumed})
        assert (found or "").startswith(expected or "")
        assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    ("topics", "named", "assumed", "message"),
    [
        ((), (), (), None),
        (("on", "silent", "off", "compacted"), (), (), None),
        (("on", "absent"), ("on",), (), None),
        (("silent",), ("silent",), ("silent",), None),
        (("off",), (), (), None),
        (("silent", "absent"), (), (), f"is copied (absent, silent): {NOT_AMONG}"),
        (("silent", "off"), (), (), f"none of the 2 selected topics is copied (off, silent): {NOT_AMONG}"),
        (("compacted", "off"), (), (), "none of the 2 selected topics is copied"),
        (("compacted",), (), (), f"(compacted): cleanup.policy=compact,delete: {REFUSED}"),
        (("on", "silent"), ("on", "silent"), (), f"topic silent is not copied: {NOT_AMONG}"),
        (("on", "silent"), ("on", "silent"), ("silent",), None),
        (("off",), ("off",), ("off",), "topic off is not copied: remote.storage.enable=false"),
        (("compacted",), ("compacted",), ("compacted",), "topic compacted is not copied: cleanup.policy"),
    ],
)
def test_what_a_run_refuses(
    topics: tuple[str, ...], named: tuple[str, ...], assumed: tuple[str, ...], message: str | None
) -> None:
    if message is None:
        require_enabled(topics, CONFIGS, named=named, assumed=assumed)
        return
    with pytest.raises(SafetyRefusal) as refused:
        require_enabled(topics, CONFIGS, named=named, assumed=assumed)
    assert message in refused.value.message
    assert ("--assume-enabled" in (refused.value.hint or "")) == (NOT_AMONG in message)
