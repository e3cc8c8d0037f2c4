"""Sweeps, predictions and figures beside brokers are those of the brokers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import observe
from tierctl.errors import ExitCode
from tierctl.kafka.client_settings import Right

from tests.cli.shell import Ran
from tests.cli.test_schemas import check
from tests.live.commands import base_offsets, plan, rows, tierctl, twin_of, where
from tests.live.secured import allow, copied_topic, forget_tier, login
from tests.live.test_leaks import leak
from tests.live.test_refusals import RIGHTS as RIGHTS_OF_COMMANDS
from tests.live.test_refusals import RIGHTS_TOPIC
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


# The broker has all segments of "kept" locally, and of "gone" only those that are not in the tier.
TOPICS = ("kept", "gone")
SHORTENED = {"log.retention.bytes": "3300000"}
TASKS = "remote.log.manager.task.interval.ms"


@pytest.fixture
def broker(brokers: Brokers) -> Iterator[Broker]:
    """Return a stopped broker that tiered five segments of each topic; none had expired."""
    made = brokers.own(log_retention_bytes="-1")
    made.create_topic("kept", tiered=True, local_retention_bytes="-2")
    made.create_topic("gone", tiered=True)
    for topic in TOPICS:
        made.produce(topic, 5500)
    made.await_idle()
    assert all(len(base_offsets(made, topic)) == 5 for topic in TOPICS)
    made.stop()
    yield made
    made.stop()


def what_a_broker_deletes(broker: Broker, folder: Path) -> dict[str, list[int]]:
    """Return the starts of the segments of each topic after the broker's copy has deleted expired ones."""
    twin = twin_of(broker, folder)
    try:
        twin.start()
        # Until a broker knows what was copied, its size retention deletes too much (KAFKA-20732).
        twin.wait_for(
            "the twin to know its tier", lambda: len(twin.offsets("latest-tiered", *TOPICS)) == len(TOPICS)
        )
        time.sleep(2)
        for topic in TOPICS:
            twin.alter_topic(topic, retention_bytes=SHORTENED["log.retention.bytes"])
        twin.wait_for(
            "the twin to expire something",
            lambda: all(len(base_offsets(twin, topic)) < 5 for topic in TOPICS),
        )
        twin.await_idle()
        return {topic: base_offsets(twin, topic) for topic in TOPICS}
    finally:
        twin.stop()


@pytest.mark.matrix
def test_sweep_deletes_what_a_broker_would(broker: Broker, tmp_path: Path) -> None:
    left = what_a_broker_deletes(broker, tmp_path / "twin")
    broker.settings |= SHORTENED | {TASKS: "500"}
    broker.tiered = False
    broker.start()
    # Ten task intervals after the broker's last event.
    time.sleep(5)
    ends = {topic: tier_end(broker, topic) for topic in TOPICS}
    assert broker.offsets("earliest", "gone") == {("gone", 0): ends["gone"]}, "it forgot the tier"
    sweep = ("sweep", *where(broker), "--wave-size", 1, "--apply")
    assert {(step["topic"], step["breach"]) for step in plan(*sweep[:-1])["steps"]} <= {
        *((topic, "retention.bytes") for topic in TOPICS),
        ("kept", "log_start_offset"),
    }
    restarted_meanwhile(broker, sweep, tmp_path)
    plan(*sweep)
    assert {topic: base_offsets(broker, topic) for topic in TOPICS} == left
    assert plan(*sweep)["steps"] == []
    assert broker.offsets("earliest", "kept")["kept", 0] >= left["kept"][0]
    assert {row["state"] for row in rows("segments", *where(broker)[:2])} == {"COPY_SEGMENT_FINISHED"}

    # The remaining segments are the topic: a broker that tiers again serves them.
    broker.settings |= {"log.retention.bytes": "-1"}
    broker.restart(tiered=True)
    start = left["gone"][0]
    broker.wait_for(
        "the broker to see its tier", lambda: broker.offsets("earliest", "gone") == {("gone", 0): start}
    )
    assert [record[0] for record in broker.records("gone", start=start)] == list(range(start, 5500))


def tier_end(broker: Broker, topic: str) -> int:
    found = rows("segments", *where(broker)[:2], "--topic", topic)
    return max(int(row["end_offset"]) for row in found) + 1


def restarted_meanwhile(broker: Broker, sweep: tuple[object, ...], tmp_path: Path) -> None:
    """The broker stops between an object's deletion and its DELETE_SEGMENT_FINISHED, and restarts."""
    hasty = tmp_path / "client.properties"
    hasty.write_text("request.timeout.ms=2000\ndelivery.timeout.ms=3000\ndefault.api.timeout.ms=3000\n")

    def stop(label: str, moment: str) -> None:
        if (label, moment) == ("sweep.segment.delete", "after") and broker.is_running:
            broker.stop(kill=True)

    observe(stop)
    try:
        ran = tierctl(*sweep, "--command-config", hasty)
    finally:
        observe(None)
    assert ran.code in {ExitCode.PARTIAL, ExitCode.RETRYABLE}, ran.err
    broker.start()
    states = {row["state"] for row in rows("segments", *where(broker)[:2])}
    assert "DELETE_SEGMENT_STARTED" in states


KEPT = {"tiered": True, "local_retention_bytes": "-2", "retention_ms": "-1"}
LIMIT = 2_200_000
GUARDED = "what-if-guarded"
RIGHTS = frozenset(
    Right(each.operation, GUARDED if each.topic == RIGHTS_TOPIC else each.topic)
    for each in RIGHTS_OF_COMMANDS
)


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    """Commit an offset of a consumer group, as if it had read up to there."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_the_broker_does_what_was_predicted(broker: Broker) -> None:
    topic, other = "what-if", "what-if-other"
    for name in (topic, other):
        broker.create_topic(name, **KEPT)
        broker.produce(name, 5500)
    broker.await_idle()
    checkpoint = broker.log_dir / "replication-offset-checkpoint"
    ends = [f"{name} 0 5500" for name in (topic, other)]
    broker.wait_for("the high watermarks", lambda: all(end in checkpoint.read_text() for end in ends))
    for group, offset in (("slow", 100), ("quick", 5400), ("at-the-begin", 0)):
        commit(broker, group, topic, offset)
    commit(broker, "of-another-topic", other, 100)
    change = ("--what-if", f"{topic}.retention.bytes={LIMIT}", "--topic", "what-if*")
    asked = ("report", *where(broker), *change, "--log-dir", broker.log_dir, "--price-per-gb-month", "0.023")
    changed, unchanged, total = rows(*asked)
    in_tier = base_offsets(broker, topic)
    assert changed["now_segments"] == unchanged["now_segments"] == len(in_tier)
    assert 0 < changed["changed_segments"] < len(in_tier) == unchanged["changed_segments"]
    assert changed["now_cost"] == round(changed["now_bytes"] / 2**30 * 0.023, 4)
    assert (changed["growth_bytes_per_day"], changed["later_bytes"]) == (None, None), "less than a day"
    assert total["changed_bytes"] == changed["changed_bytes"] + unchanged["changed_bytes"]
    losses = rows(*asked, "--show", "groups")
    assert {(loss["group"], loss["topic"], loss["committed_offset"]) for loss in losses} == {
        ("slow", topic, 100),
        ("at-the-begin", topic, 0),
    }
    (start,) = {loss["new_log_start_offset"] for loss in losses}
    assert [start - loss["lost_records"] for loss in losses] == [0, 100]

    broker.alter_topic(topic, retention_bytes=str(LIMIT))
    broker.wait_for("the deletes", lambda: len(base_offsets(broker, topic)) == changed["changed_segments"])
    broker.await_idle()
    assert (
        broker.offsets("earliest", topic)
        == {(topic, 0): start}
        == {(topic, 0): base_offsets(broker, topic)[0]}
    )
    after, *_ = rows(*asked)
    assert (after["now_bytes"], after["now_objects"]) == (
        changed["changed_bytes"],
        changed["changed_objects"],
    )
    assert after["local_now_bytes"] == changed["local_changed_bytes"]


def test_what_a_user_may_not_see_is_said(brokers: Brokers, tmp_path: Path) -> None:
    guarded = brokers.guarded()
    forget_tier(guarded)
    copied_topic(guarded, GUARDED, tmp_path)
    commit(guarded, "unseen", GUARDED, 1)
    config = login(guarded, tmp_path)
    own = ("--metadata", f"kafka://{guarded.bootstrap_sasl}", "--command-config", config)
    asked = ("report", *own, "--remote", guarded.remote_dir, "--what-if", f"{GUARDED}.retention.ms=1ms")
    asked = (*asked, "--topic", GUARDED, "--show", "groups", "-o", "json")
    cluster, group = Right("Describe"), Right("Describe", group="unseen")
    for rights, said, losses in (
        (RIGHTS, f"may describe were examined; to examine all: {cluster.command}", 0),
        (RIGHTS | {cluster}, group.hint, 0),
        (RIGHTS | {group}, "only the 1 consumer groups", 1),
    ):
        allow(guarded, rights)
        ran = tierctl(*asked)
        assert (ran.code, len(ran.json)) == (ExitCode.PARTIAL, losses), ran.err
        assert said in ran.err
    allow(guarded, RIGHTS | {cluster, group})
    ran = tierctl(*asked)
    assert (ran.code, [loss["group"] for loss in ran.json]) == (ExitCode.OK, ["unseen"]), ran.err
    check(ran.json[0], "group-losses")


def shown(ran: Ran) -> dict[str, dict[str, Any]]:
    return {row["topic"]: row for row in ran.json}


@pytest.mark.matrix
def test_lag_leaks_and_runs(brokers: Brokers, tmp_path: Path) -> None:
    broker = brokers.own()
    (tmp_path / "state").mkdir()
    status = ("status", *where(broker), "--log-dir", broker.log_dir, "--state-dir", tmp_path / "state")
    broker.create_topic("waiting", tiered=True)
    broker.create_topic("plain")
    broker.produce("waiting", 2500)
    broker.produce("plain", 1500)
    more = {"transaction_timeout_ms": "600000"}
    with broker.transaction("waiting", 2500, transactional_id="open", **more) as producer:
        broker.await_idle()
        ran = tierctl(*status, "--output", "json")
        assert (ran.code, ran.err) == (ExitCode.OK, ""), "a topic that is not tiered needs no note"
        row = shown(ran)["waiting"]
        in_tier = base_offsets(broker, "waiting")
        assert (row["segments"], row["first_offset_in_tier"], row["problems"]) == (len(in_tier), 0, 0)
        assert row["lag_segments"] >= 2
        assert row["lag_bytes"] > 2 * 900_000
        assert "next: tierctl explain waiting-0 --metadata" in ran.summary
        late = (*status, "--now", "+2h", "--show", "problems", "--output", "json")
        ran = tierctl(*late)
        assert ran.code == ExitCode.PARTIAL
        (problem,) = ran.json
        assert (problem["check"], problem["subject"]) == ("open_transaction", "waiting-0")
        assert tierctl(*late, "--copy-limit", "3h").code == ExitCode.OK
        producer.commit_transaction(30)
    broker.await_idle()
    later = shown(tierctl(*status, "--output", "json"))["waiting"]
    assert (later["lag_segments"], later["lag_bytes"]) == (0, 0)
    assert later["segments"] == row["segments"] + row["lag_segments"]

    topic_id = leak(broker, "leaked")
    ran = tierctl(*status)
    assert ran.code == ExitCode.PARTIAL
    assert "unknown_topic" in ran.out
    assert "tierctl delete --find --mark" in ran.out
    explained = rows("explain", "leaked", 0, *status[1:-2])
    assert {(row["next_action"], row["reason_kind"]) for row in explained} == {("none", "leaked")}
    two_days = tierctl(*status, "--now", "+2d", "--output", "json")
    assert shown(two_days)["leaked"]["stuck_deletes"] == len(base_offsets(broker, "leaked")) == 5
    for step in ("--mark", None):
        words = ("delete", *where(broker), "--topic-id", topic_id, "--apply", *filter(None, [step]))
        assert tierctl(*words, *(() if step else ("--yes",))).code == 0
    assert tierctl(*status).code == ExitCode.OK
    runs = tierctl(*status, "--show", "runs", "--output", "json")
    assert {row["command"] for row in json.loads(runs.out)} == {"status"}
    broker.stop()
