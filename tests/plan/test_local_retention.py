"""What a broker deletes from its disk next by local retention, and why segments that should be gone stay."""

from dataclasses import replace
from typing import Any

import pytest
from tierctl.checks.findings import FindingKind
from tierctl.checks.segments import check_local_retention
from tierctl.model import LocalLog, Selection, TopicConfig
from tierctl.model.settings.scopes import KNOWN, KafkaVersion, SettingSource
from tierctl.model.settings.topic import BrokerDefaults, SettingValue
from tierctl.model.times import iso_utc
from tierctl.plan.copy import plan_copy
from tierctl.plan.decisions import LocalRetention, NextAction
from tierctl.plan.reasons import ReasonKind
from tierctl.state.lineage import RemoteLogMetadataCache

from tests.plan.tier import DAY_MS, NOW_MS, local_log, segment, tier

K = ReasonKind
BASES = [0, 100, 200, 300, 400]
LATER_MS = NOW_MS + 2 * DAY_MS
FUTURE_MS = LATER_MS + DAY_MS


def _log(future: int | None = None, **facts: Any) -> LocalLog:
    """Return a log whose segments were last written at NOW_MS; one may have a timestamp in the future."""
    log = local_log(BASES, 450, **facts)
    segments = [
        replace(
            each, modified_ms=NOW_MS, max_timestamp_ms=FUTURE_MS if each.base_offset == future else NOW_MS
        )
        for each in log.segments
    ]
    return replace(log, segments=tuple(segments))


def _decided(limits: LocalRetention, log: LocalLog, copied: int) -> list[tuple[int, bool, str]]:
    decided = limits.decide(log, copied, LATER_MS)
    return [(each.segment.base_offset, each.is_deleted, str(each.reason.kind)) for each in decided]


SIZE, TIME, START, HELD = K.LOCAL_RETENTION_BYTES, K.LOCAL_RETENTION_MS, K.LOCAL_LOG_START, K.LOCAL_HELD
BY_SIZE, BY_TIME = LocalRetention(ms=-1, size_bytes=300), LocalRetention(ms=DAY_MS, size_bytes=-1)


@pytest.mark.parametrize(
    ("limits", "log", "copied", "expected"),
    [
        (BY_SIZE, _log(), 399, [(0, True, SIZE), (100, True, SIZE)]),
        (BY_SIZE, _log(), 99, [(0, True, SIZE), (100, False, HELD)]),
        (
            replace(BY_SIZE, ms=DAY_MS),
            _log(),
            299,
            [(0, True, SIZE), (100, True, SIZE), (200, True, TIME), (300, False, HELD)],
        ),
        (BY_SIZE, _log(log_start_offset=100), 399, [(0, True, START), (100, True, SIZE)]),
        (BY_TIME, _log(), 399, [(base, True, TIME) for base in BASES[:4]]),
        (BY_TIME, _log(), -1, [(base, False, HELD) for base in BASES[:4]]),
        (BY_TIME, _log(future=100), 399, [(0, True, TIME), *((base, False, HELD) for base in BASES[1:4])]),
        (
            replace(BY_TIME, kafka_version=KafkaVersion(4, 5)),
            _log(future=100),
            399,
            [(base, True, TIME) for base in BASES[:4]],
        ),
        (replace(BY_SIZE, size_bytes=0), _log(future=100), 399, [(base, True, SIZE) for base in BASES[:4]]),
        (LocalRetention(ms=3 * DAY_MS, size_bytes=-1), _log(future=100), 399, []),
    ],
)
def test_what_goes_and_what_stays(
    limits: LocalRetention, log: LocalLog, copied: int, expected: list[tuple[int, bool, str]]
) -> None:
    assert _decided(limits, log, copied) == expected


@pytest.mark.parametrize(
    ("log", "copied", "why"),
    [
        (_log(), -1, "stays: it is not copied: nothing of the log is in the tier"),
        (_log(), 99, "stays: it is not copied: offsets up to 99 are in the tier"),
        (
            _log(future=0),
            399,
            f"timestamp {iso_utc(FUTURE_MS)} is in the future, and Kafka before 4.5 counts local.retention",
        ),
    ],
)
def test_why_segments_stay(log: LocalLog, copied: int, why: str) -> None:
    held = [each for each in BY_TIME.decide(log, copied, LATER_MS) if not each.is_deleted]
    assert why in held[0].reason
    assert f"local.retention.ms {DAY_MS}: the newest record is of" in held[0].reason
    first = held[0].segment.base_offset
    assert f"but stays: behind the segment from offset {first}: it" in held[1].reason


def test_without_copies_the_setting_is_the_retention() -> None:
    """A copied segment stays by retention.ms, too; local.retention.ms does not count then."""
    limits = replace(BY_TIME, needs_copy=False)
    held = next(each for each in limits.decide(_log(future=0), 399, LATER_MS) if not each.is_deleted)
    assert "is in the future, and Kafka counts retention.ms from that time on" in held.reason
    assert "local.retention" not in held.reason


AGE_MS, BYTES = "local.retention.ms", "local.retention.bytes"
SIZES = [50, 60, 70, 80, 90]
WHOLE = TopicConfig(retention_ms=0, retention_bytes=-1)


def _stated(**settings: int) -> TopicConfig:
    """Return a topic that states local.retention `ms` and `bytes`, and `retention_ms`."""
    names = {"ms": AGE_MS, "bytes": BYTES, "retention_ms": "retention.ms"}
    stated = {
        names[key]: SettingValue(name=names[key], value=str(value), source=SettingSource.FILE)
        for key, value in settings.items()
    }
    return TopicConfig(retention_ms=settings.get("retention_ms", -1), stated=stated)


LEFT: dict[str, tuple[TopicConfig, dict[str, int], int, int]] = {
    "no limit": (_stated(), {}, 399, 5),
    "all of it is younger": (_stated(ms=DAY_MS), {}, 399, 5),
    "time, but not the active segment": (_stated(ms=DAY_MS - 1), {}, 399, 1),
    "time, once the active segment is copied": (_stated(ms=DAY_MS - 1), {}, 449, 0),
    "the active segment is younger": (_stated(ms=DAY_MS, bytes=0), {}, 399, 1),
    "the active segment is copied but for a record": (_stated(ms=0), {}, 448, 1),
    "size never leaves less than the limit": (_stated(bytes=1), {}, 449, 1),
    "no size": (_stated(bytes=0), {}, 449, 0),
    "only what is in the tier": (_stated(ms=0), {}, 250, 3),
    "nothing is in the tier": (_stated(ms=0), {}, -1, 5),
    "wholly inside the excess": (_stated(bytes=350 - 110), {}, 399, 3),
    "one byte too little": (_stated(bytes=350 - 109), {}, 399, 4),
    "the larger of both": (_stated(bytes=300, ms=0), {}, 399, 1),
    "-2 is the retention": (_stated(ms=-2, retention_ms=0), {}, 399, 1),
    "unstated is the retention": (_stated(retention_ms=0), {}, 399, 1),
    "-1 is no limit": (_stated(ms=-1, retention_ms=0), {}, 399, 5),
    "copying is disabled: also what is not in the tier": (replace(WHOLE, is_copy_disabled=True), {}, -1, 0),
    "copying is disabled: size": (TopicConfig(retention_bytes=240, is_copy_disabled=True), {}, -1, 3),
    "tiering is off: no local limit counts": (
        replace(_stated(ms=0, retention_ms=DAY_MS), remote_storage_enable=False),
        {},
        399,
        5,
    ),
    "tiering is off: what is not in the tier": (replace(WHOLE, remote_storage_enable=False), {}, -1, 0),
    "no deletes by the policy": (replace(WHOLE, cleanup_policy=frozenset({"compact"})), {}, 399, 5),
    "below the log start without a limit": (TopicConfig(), {"log_start_offset": 200}, -1, 3),
    "within a segment": (TopicConfig(), {"log_start_offset": 199}, -1, 4),
    "the excess is above it": (TopicConfig(retention_bytes=240), {"log_start_offset": 200}, 399, 3),
    "time goes on above it": (WHOLE, {"log_start_offset": 200}, 299, 2),
    # Records in the tier were replicated, even if the checkpoint of the high watermark is older.
    "not replicated": (replace(WHOLE, is_copy_disabled=True), {"high_watermark": 299}, -1, 3),
    "its end is not replicated": (replace(WHOLE, is_copy_disabled=True), {"high_watermark": 449}, -1, 1),
    "nothing is replicated": (replace(WHOLE, is_copy_disabled=True), {"high_watermark": 0}, -1, 5),
    "in the tier, with an old high watermark": (WHOLE, {"high_watermark": 0}, 399, 1),
    "a part is in the tier": (WHOLE, {"high_watermark": 0}, 199, 3),
}


@pytest.mark.parametrize(("config", "facts", "copied", "left"), LEFT.values(), ids=LEFT)
def test_what_is_left(config: TopicConfig, facts: dict[str, int], copied: int, left: int) -> None:
    log = local_log(BASES, 450, sizes=SIZES, **facts)  # type: ignore[arg-type]
    found = LocalRetention.of(config).left(log, copied, NOW_MS + DAY_MS)
    assert [segment.base_offset for segment in found] == BASES[5 - left :]


@pytest.mark.parametrize(
    ("config", "facts", "is_rolled"),
    [
        ({"local.retention.ms": DAY_MS}, {}, True),
        ({"local.retention.bytes": 0}, {}, True),
        ({"remote.log.copy.disable": "true", "retention.ms": DAY_MS}, {}, True),
        ({"local.retention.ms": DAY_MS}, {"high_watermark": 449}, False),
        ({"local.retention.bytes": 1}, {}, False),
        ({"local.retention.ms": 3 * DAY_MS}, {}, False),
        ({"retention.ms": -1}, {}, False),
    ],
)
@pytest.mark.parametrize("copied", [399, 299])
def test_which_limit_rolls_the_active_segment(
    config: dict[str, Any], facts: dict[str, Any], is_rolled: bool, copied: int
) -> None:
    """Brokers roll it if nothing is left before it, whatever segment.bytes and segment.ms are."""
    stated = {"remote.storage.enable": "true", "retention.ms": "-1"} | {k: str(v) for k, v in config.items()}
    configs = {"orders": TopicConfig.from_settings(stated)}
    state = tier(segment(1, 0, copied))
    plan = plan_copy(state, [_log(**facts)], configs, now_ms=LATER_MS, explained=Selection())
    active = next(each for each in plan.decisions(LATER_MS) if each.end_offset is None)
    is_left = copied == 399 or "remote.log.copy.disable" in config
    assert active.reason.kind is (K.LOCAL_ROLL if is_rolled and is_left else K.NOT_ROLLED)
    if active.reason.kind is K.LOCAL_ROLL:
        assert "100 bytes; brokers roll it at their next retention check (" in active.reason
        assert active.reason.facts["setting"] in active.reason


@pytest.mark.parametrize("policy", ["", "compact", "delete", "compact,delete"])
@pytest.mark.parametrize("version", KNOWN, ids=str)
@pytest.mark.parametrize(
    "more", [{}, {"remote.log.copy.disable": "true"}, {"remote.storage.enable": "false"}]
)
def test_which_policies_delete(policy: str, version: KafkaVersion, more: dict[str, str]) -> None:
    """An empty policy deletes as of Kafka 4.2, where the topic copies (KAFKA-19112)."""
    brokers = BrokerDefaults(version=version)
    stated = {"remote.storage.enable": "true", "cleanup.policy": policy, "retention.ms": "7"} | more
    found = LocalRetention.of(TopicConfig.from_settings(stated, brokers))
    is_copying = not brokers.known(more)
    is_deleted = "delete" in policy or (policy == "" and is_copying and version >= KafkaVersion(4, 2))
    assert found.ms == (7 if is_deleted else -1)


def test_kafkas_defaults() -> None:
    """Without settings the local retention is retention.ms, which is 7 days in Kafka."""
    stated = {"remote.storage.enable": "true"}
    assert LocalRetention.of(TopicConfig.from_settings(stated)).ms == 7 * DAY_MS
    hours = BrokerDefaults(settings={"log.retention.hours": "1"})
    assert LocalRetention.of(TopicConfig.from_settings(stated, hours)).ms == 3_600_000
    own = {**stated, "local.retention.ms": "5", "local.retention.bytes": "-2", "retention.bytes": "9"}
    found = LocalRetention.of(TopicConfig.from_settings(own, hours))
    assert (found.ms, found.size_bytes) == (5, 9)


@pytest.mark.parametrize("more", [{}, {"remote.log.copy.disable": "true"}])
def test_defaults_of_brokers(more: dict[str, str]) -> None:
    """Defaults that the broker's file states make up the local retention; the topic's own values go first."""
    brokers = BrokerDefaults(settings={"log.retention.ms": "5000", "log.retention.bytes": "1000"})
    stated = {"remote.storage.enable": "true"} | more
    found = LocalRetention.of(TopicConfig.from_settings(stated, brokers))
    assert (found.ms, found.size_bytes) == (5000, 1000)
    own = {**stated, "retention.ms": "-1", "retention.bytes": "-1"}
    found = LocalRetention.of(TopicConfig.from_settings(own, brokers))
    assert (found.ms, found.size_bytes) == (-1, -1)
    config = TopicConfig.from_settings(stated, brokers)
    assert (config.retention_ms, config.retention_bytes) == (-1, -1), "they delete nothing from the tier"


CONFIG = TopicConfig.from_settings(
    {"remote.storage.enable": "true", "local.retention.ms": str(DAY_MS), "retention.ms": "-1"}
)


def test_decisions_about_copied_segments() -> None:
    state = tier(segment(1, 0, 99), segment(2, 100, 199))
    plan = plan_copy(state, [_log(future=100)], {"orders": CONFIG}, now_ms=LATER_MS, explained=Selection())
    found = {each.start_offset: each for each in plan.decisions(LATER_MS)}
    assert [(at, found[at].action, found[at].reason.kind) for at in BASES] == [
        (0, NextAction.DELETE_LOCAL, TIME),
        (100, NextAction.NONE, HELD),
        (200, NextAction.COPY, K.ROLLED),
        (300, NextAction.COPY, K.ROLLED),
        (400, NextAction.NONE, K.NOT_ROLLED),
    ]


@pytest.mark.parametrize(
    ("config", "at_ms", "is_found"),
    [
        (CONFIG, LATER_MS, True),
        (CONFIG, NOW_MS + 60_000, False),
        (replace(CONFIG, remote_storage_enable=None), LATER_MS, False),
        (TopicConfig.from_settings({"remote.storage.enable": "true"}), LATER_MS, False),
        (
            TopicConfig.from_settings({"remote.storage.enable": "true", "local.retention.bytes": "1"}),
            NOW_MS,
            False,
        ),
    ],
)
def test_the_finding(config: TopicConfig, at_ms: int, is_found: bool) -> None:
    """Segments that were written less than an hour ago may still be copied."""
    found = list(check_local_retention(RemoteLogMetadataCache.empty(), [_log()], config, at_ms))
    assert [(each.check, each.start_offset) for each in found] == [
        (FindingKind.LOCAL_NOT_FREED, 0)
    ] * is_found
    if is_found:
        assert "the replica in /logs/b1 has 4 segments (400 B) too many" in found[0].found
