"""`report --what-if` predicts what a broker does after the setting is changed."""

from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.kafka.client_settings import Right

from tests.cli.test_schemas import check
from tests.live.commands import await_recorded, base_offsets, rows, tierctl, where
from tests.live.secured import allow, copied_topic, forget_tier, login
from tests.live.test_refusals import RIGHTS as RIGHTS_OF_COMMANDS
from tests.live.test_refusals import RIGHTS_TOPIC
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
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
    await_recorded(broker, {topic: 5500, other: 5500})
    for group, offset in (("slow", 100), ("quick", 5400), ("at-the-begin", 0)):
        commit(broker, group, topic, offset)
    commit(broker, "of-another-topic", other, 100)
    change = ("--what-if", f"{topic}.retention.bytes={LIMIT}", "--topic", "what-if*")
    asked = ("report", *where(broker), *change, "--log-dir", broker.log_dir, "--price-per-gb-month", "0.023")
    changed, unchanged, total = rows(*asked)
    in_tier = base_offsets(broker, topic)
    assert changed["now_segments"] == unchanged["now_segments"] == len(in_tier)
    assert 0 < changed["changed_segments"] < len(in_tier) == unchanged["changed_segments"]
    assert changed["now_cost"] == pytest.approx(changed["now_bytes"] / 2**30 * 0.023, abs=5e-5)
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


@pytest.mark.matrix
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
        (RIGHTS, f"may describe; to examine all: {cluster.command}", 0),
        (RIGHTS | {cluster}, group.hint, 0),
        (RIGHTS | {group}, "1 consumer group was examined", 1),
    ):
        allow(guarded, rights)
        ran = tierctl(*asked)
        assert (ran.code, len(ran.json)) == (ExitCode.PARTIAL, losses), ran.err
        assert said in ran.err
    allow(guarded, RIGHTS | {cluster, group})
    ran = tierctl(*asked)
    assert (ran.code, [loss["group"] for loss in ran.json]) == (ExitCode.OK, ["unseen"]), ran.err
    check(ran.json[0], "group-losses")
