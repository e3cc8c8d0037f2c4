"""`explain` with a broker that tiers: its answer for each segment, and the broker's later actions."""

import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import base_offsets, rows, tierctl, where
from tests.support.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
KEPT = {"tiered": True, "local_retention_bytes": "-2"}
"""The local log keeps the segments that are in the tier."""
DAY_MS = 86_400_000
RETENTION_MS = 20_000
CHECKS_S = 6
"""Time in which the broker looks for segments to delete more than once (log.retention.check.interval.ms)."""
_Row = dict[str, Any]


def explained(broker: Broker, topic: str, *more: object) -> list[_Row]:
    own = (*where(broker), "--log-dir", broker.log_dir)
    return rows("explain", topic, 0, *own, *more)


def starts(found: list[_Row], *, location: str, kind: str | None = None) -> list[int]:
    """Return the start offsets of the segments in that location, with that kind of reason."""
    own = [row for row in found if row["location"] == location]
    return [row["start_offset"] for row in own if kind in {None, row["reason_kind"]}]


def facts(row: _Row) -> _Row:
    return {fact["name"]: fact["value"] for fact in row["facts"]}


def test_an_open_transaction(broker: Broker) -> None:
    topic = "explained-open"
    broker.create_topic(topic, **KEPT)
    broker.produce(topic, 2500)
    # Within this time only the command ends the transaction.
    more = {"transaction_timeout_ms": "600000"}
    with broker.transaction(topic, 2500, transactional_id=topic, **more):
        broker.await_idle()
        found = explained(broker, topic)
        in_tier = base_offsets(broker, topic)
        waiting = starts(found, location="local", kind="open_transaction")
        assert starts(found, location="tier") == in_tier
        assert starts(found, location="local", kind="copied") == in_tier
        assert len(waiting) >= 2
        first = next(row for row in found if row["start_offset"] == waiting[0])
        seen = facts(first)
        # Kafka's own tool reports the same producer and the same start of its open transaction.
        named = ("describe-producers", "--topic", topic, "--partition", "0")
        header, values = broker.tool("org.apache.kafka.tools.TransactionsCommand", *named).splitlines()
        kafkas = dict(zip(header.split(), values.split(), strict=True))
        assert seen["producer_id"] == int(kafkas["ProducerId"])
        assert seen["last_stable_offset"] == int(kafkas["CurrentTransactionStartOffset"]) == 2500
        assert f"a transaction is open by producer {kafkas['ProducerId']} since 20" in first["reason"]
        assert seen["transactional_id"] == topic
        # The command that explain names ends it.
        words = shlex.split(first["reason"].partition("; this ends it: ")[2])
        assert words == shlex.split(seen["end_command"])
        assert words[:3] == ["kafka-transactions.sh", "--bootstrap-server", broker.bootstrap]
        assert first["rule"] == "RLMCopyTask, candidate segments"
        (active,) = [row for row in found if row["reason_kind"] == "not_rolled"]
        assert [s["name"] for s in active["settings"]] == ["segment.bytes", "segment.ms"]
        assert active["settings"][0] == {"name": "segment.bytes", "value": "1048576", "source": "topic"}
        broker.tool("org.apache.kafka.tools.TransactionsCommand", *words[3:])
        broker.wait_for("the copies", lambda: base_offsets(broker, topic) == [*in_tier, *waiting])
    later = explained(broker, topic)
    assert starts(later, location="local", kind="copied") == [*in_tier, *waiting]
    assert starts(later, location="local", kind="not_rolled") == [active["start_offset"]]


@pytest.mark.matrix
def test_retention_by_time_and_a_segment_that_holds_others(broker: Broker) -> None:
    expiring, held = "explained-expiring", "explained-held"
    future_ms = time.time_ns() // 1_000_000 + DAY_MS
    for topic in (expiring, held):
        broker.create_topic(topic, **KEPT, retention_ms="-1", message_timestamp_after_max_ms=str(2 * DAY_MS))
    broker.produce(held, 600, timestamp_ms=future_ms)
    for topic in (expiring, held):
        broker.produce(topic, 3500)
    broker.await_idle()
    for topic in (held, expiring):
        broker.alter_topic(topic, retention_ms=str(RETENTION_MS))
    expected = [row for row in explained(broker, expiring) if row["location"] == "tier"]
    stalled = [row for row in explained(broker, held) if row["location"] == "tier"]
    in_tier = base_offsets(broker, held)
    assert {row["reason_kind"] for row in expected} == {"will_expire"}
    assert {row["reason_kind"] for row in stalled} == {"stalled"}
    assert [row["start_offset"] for row in stalled] == in_tier
    holder = stalled[0]
    assert facts(holder)["timestamp_ms"] == future_ms
    assert {facts(row)["held_by"] for row in stalled} == {holder["segment_id"]}
    assert [row["next_action"] for row in stalled] == ["none"] * len(in_tier)
    setting = {"name": "retention.ms", "value": str(RETENTION_MS), "source": "topic"}
    assert all(setting in row["settings"] for row in (*expected, *stalled))
    first_ms = expected[0]["expires_at_ms"]
    # Before Kafka 4.3 a segment expires at exactly retention.ms, since 4.3 a moment later.
    after_ms = 0 if broker.release.number < (4, 3) else 1
    assert first_ms == expected[0]["max_timestamp_ms"] + RETENTION_MS + after_ms
    for now_ms, action in ((first_ms - 1, "none"), (first_ms, "delete")):
        one = explained(broker, expiring, "--now", now_ms, "--segment-id", expected[0]["segment_id"])
        assert [row["next_action"] for row in one] == [action]

    ids = {row["segment_id"] for row in expected}
    broker.wait_for("the expiry", lambda: not ids & set(_listed(broker, expiring)))
    begun = _deletes_begun(broker, expiring)
    assert [each for each in begun if each in ids] == [row["segment_id"] for row in expected], "oldest first"
    for row in expected:
        assert begun[row["segment_id"]] >= row["expires_at_ms"]
    assert base_offsets(broker, held)[: len(in_tier)] == in_tier
    assert not _deletes_begun(broker, held)


def _listed(broker: Broker, topic: str) -> list[str]:
    return [row["segment_id"] for row in rows("segments", *where(broker)[:2], "--topic", topic)]


def _deletes_begun(broker: Broker, topic: str) -> dict[str, int]:
    """Return when the broker began to delete each segment, by id, in the order of the events."""
    found = rows("format", *where(broker)[:2], "--topic", topic, "--state", "DELETE_SEGMENT_STARTED")
    return {each["segment_id"]: each["event_timestamp_ms"] for each in found}


def _local(broker: Broker, topic: str) -> list[int]:
    return sorted(int(log.stem) for log in (broker.log_dir / f"{topic}-0").glob("*.log"))


def _explained_from_disk(broker: Broker, topic: str, folder: Path, settings: _Row) -> list[_Row]:
    """Return the rows of local segments with settings that the broker does not have yet."""
    configs = folder / "topics.properties"
    lines = {"remote.storage.enable": "true", "retention.ms": "-1", **settings}
    configs.write_text("".join(f"{topic}.{name}={value}\n" for name, value in lines.items()))
    version = ".".join(map(str, broker.release.number[:2]))
    options = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir, "--topic-configs", configs)
    found = tierctl("explain", topic, 0, *options, "--kafka-version", version, "--output", "jsonl")
    assert found.code in {0, 3}, found.err
    return [row for row in found.rows if row["location"] == "local"]


def _predicted_and_left(
    broker: Broker, topic: str, folder: Path, settings: _Row
) -> tuple[list[_Row], list[int]]:
    """Return the rows with `settings`, and the segments on the disk after the broker has applied them."""
    found = _explained_from_disk(broker, topic, folder, settings)
    left = [row["start_offset"] for row in found if row["next_action"] != "delete_local"]
    broker.alter_topic(topic, **{name.replace(".", "_"): str(value) for name, value in settings.items()})
    broker.wait_for("the deletions", lambda: _local(broker, topic) == left)
    time.sleep(CHECKS_S)
    return found, _local(broker, topic)


@pytest.mark.matrix
def test_local_retention_by_size_and_by_time(broker: Broker, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    for topic, settings, kind in (
        ("local-size", {"local.retention.bytes": 2_500_000}, "local_retention_bytes"),
        ("local-time", {"local.retention.ms": DAY_MS}, "local_retention_ms"),
    ):
        broker.create_topic(topic, **KEPT, retention_ms="-1")
        broker.produce(topic, 3000, timestamp_ms=now_ms - 2 * DAY_MS)
        broker.produce(topic, 2500)
        broker.await_idle()
        found, left = _predicted_and_left(broker, topic, tmp_path, settings)
        deleted = [row for row in found if row["next_action"] == "delete_local"]
        assert len(deleted) >= 2
        assert {row["reason_kind"] for row in deleted} == {kind}
        assert left == [row["start_offset"] for row in found if row not in deleted]
        (name, value), *_ = settings.items()
        wanted = {"name": name, "value": str(value), "source": "topic settings file"}
        assert deleted[0]["settings"][0] == wanted


@pytest.mark.matrix
def test_a_timestamp_in_the_future_holds_local_segments(broker: Broker, tmp_path: Path) -> None:
    topic, now_ms = "local-future", time.time_ns() // 1_000_000
    broker.create_topic(topic, **KEPT, retention_ms="-1", message_timestamp_after_max_ms=str(2 * DAY_MS))
    for count, at_ms in ((1500, now_ms - 2 * DAY_MS), (100, now_ms + DAY_MS), (3000, now_ms - 2 * DAY_MS)):
        broker.produce(topic, count, timestamp_ms=at_ms)
    broker.await_idle()
    found, left = _predicted_and_left(broker, topic, tmp_path, {"local.retention.ms": 1000})
    assert left == [row["start_offset"] for row in found if row["next_action"] != "delete_local"]
    assert len(found) > len(left) > 1
    if broker.release.number < (4, 5):
        held = _explained_from_disk(broker, topic, tmp_path, {"local.retention.ms": 1000})[0]
        assert (held["reason_kind"], held["start_offset"]) == ("local_held", left[0])
        assert "KAFKA-20609" in str(held["reason"])


@pytest.mark.matrix
def test_local_retention_leaves_what_is_not_copied(broker: Broker, tmp_path: Path) -> None:
    topic = "local-open"
    broker.create_topic(topic, **KEPT, retention_ms="-1")
    broker.produce(topic, 2500)
    with broker.transaction(topic, 2500, transactional_id=topic) as producer:
        broker.await_idle()
        found, left = _predicted_and_left(broker, topic, tmp_path, {"local.retention.bytes": 1})
        # The checkpoint of the high watermark, which is read here, is older than the broker's own.
        kinds = {"open_transaction", "not_replicated"}
        waiting = [row["start_offset"] for row in found if row["reason_kind"] in kinds]
        assert waiting == left[:-1]
        assert len(found) > len(left) > 1
        producer.commit_transaction(30)
