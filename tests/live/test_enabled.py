"""`copy` asks the brokers which topics are enabled for tiering."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tierctl.kafka import librdkafka
from tierctl.metadata.topic import METADATA_TOPIC

from tests.live.commands import assumed, await_recorded, metadata_settings, rows, tierctl, where
from tests.live.test_backup_config import kafka_configs
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PLAIN, COMPACTED = "opt-in-plain", "opt-in-compacted"
COPY_OFF, NOT_STATED = "opt-in-copy-off", "opt-in-not-stated"


@pytest.fixture(scope="module")
def compacting(brokers: Brokers) -> Iterator[Broker]:
    """Return a broker without tiering, whose topics are compacted unless they state another policy."""
    settings = {"log_cleanup_policy": "compact", "replica_high_watermark_checkpoint_interval_ms": "200"}
    broker = brokers.own(tiered=False, **settings)
    broker.create_topic(PLAIN, cleanup_policy="delete")
    broker.create_topic(COMPACTED)
    for topic in (PLAIN, COMPACTED):
        broker.produce(topic, 2500)
    await_recorded(broker, {PLAIN: 2500, COMPACTED: 2500})
    yield broker
    broker.stop()


def test_settings_in_a_file_that_the_cluster_has_otherwise(compacting: Broker, tmp_path: Path) -> None:
    file = tmp_path / "topics.properties"
    file.write_text(f"{PLAIN}.retention.ms=5\n{PLAIN}.cleanup.policy=delete\n")
    where_it_is = ("--metadata", tmp_path / "metadata", "--bootstrap-server", compacting.bootstrap)
    places = (*where_it_is, "--remote", tmp_path / "tier", "--log-dir", compacting.log_dir)
    said = f"--topic-configs: not used, because the cluster has other values: {PLAIN}.retention.ms=5\n"
    ran = tierctl("copy", *places, "--topic-configs", file, *assumed(PLAIN))
    assert (ran.code, said in ran.raw_err) == (0, True), ran.raw_err
    ran = tierctl("copy", *places, *assumed(PLAIN), "--apply")
    assert (ran.code, said in ran.raw_err) == (0, False), ran.raw_err
    for command in ("sweep", "verify", "status", "report", f"explain {PLAIN}-0"):
        ran = tierctl(*command.split(), *places, "--topic-configs", file)
        assert ran.raw_err.count(said) == 1, ran.raw_err


def test_settings_of_a_topic_and_their_origins(compacting: Broker, tmp_path: Path) -> None:
    """`config show --topic` has the values of kafka-configs, and the first synonym there as the origin."""
    file = tmp_path / "topics.properties"
    file.write_text(f"{PLAIN}.cleanup.policy=compact\n{COMPACTED}.retention.ms=5\n")
    show = ("config", "show", "--bootstrap-server", compacting.bootstrap)
    shown: dict[str, dict[str, tuple[str, str, str | None]]] = {PLAIN: {}, COMPACTED: {}}
    ran = tierctl(*show, "--topic-configs", file, "--topic", "opt-in-*", "-o", "json")
    for row in ran.json:
        if row["topic"]:
            shown[row["topic"]][row["setting"]] = (row["value"], row["source"], row["place"])
    for topic, found in shown.items():
        in_kafka = {
            name: (value, *_origin(synonyms))
            for name, value, synonyms in kafka_configs(compacting, topic, "--all")
        }
        assert found.items() <= in_kafka.items()
    assert shown[PLAIN]["cleanup.policy"] == ("delete", "topic", None)
    assert shown[COMPACTED]["cleanup.policy"] == (
        "compact",
        "broker default",
        "broker setting log.cleanup.policy",
    )
    assert (
        f"not used, because the cluster has other values: {COMPACTED}.retention.ms=5, {PLAIN}.c"
        in ran.raw_err
    )
    assert {row["topic"] for row in rows(*show, "--topic", PLAIN)} == {None, PLAIN}
    ran = tierctl(*show, "--topic", "opt-in-plane")
    assert (ran.code, PLAIN in ran.err) == (10, True), ran.err


def _origin(synonyms: str) -> tuple[str, str | None]:
    """Return source and place of a setting whose value has these synonyms in kafka-configs."""
    kind, _, name = synonyms.partition("=")[0].partition(":")
    if kind == "DYNAMIC_TOPIC_CONFIG":
        return "topic", None
    return (
        ("default", None) if kind in {"DEFAULT_CONFIG", ""} else ("broker default", f"broker setting {name}")
    )


def test_a_metadata_topic_with_more_replicas_than_brokers(
    compacting: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # copy waits so long for a broker that has heard of the topic.
    monkeypatch.setattr(librdkafka, "_HEARING_S", 1)
    copy = ("copy", *where(compacting), "--log-dir", compacting.log_dir, *assumed(PLAIN), "--apply")
    ran = tierctl(*copy)
    assert (ran.code, "copy --create-metadata-topic" in ran.err) == (10, True), ran.err
    ran = tierctl(*copy, "--create-metadata-topic")
    assert (ran.code, "with 3 replicas: the cluster has fewer" in ran.err) == (2, True), ran.err
    assert "remote.log.metadata.topic.replication.factor" in ran.err


def test_beside_a_broker_that_does_not_tier(compacting: Broker, tmp_path: Path) -> None:
    logs = ("--log-dir", compacting.log_dir, "--broker-config", metadata_settings(tmp_path))
    copy = ("copy", *where(compacting), *logs, "--create-metadata-topic", "-o", "json", "--apply")

    def events() -> int:
        if METADATA_TOPIC not in compacting.admin.list_topics(timeout=10).topics:
            return 0
        return len(tierctl("format", "--style", "json", *where(compacting)[:2]).lines)

    for options, message in (
        ((), f"none of the 2 selected topics is copied ({COMPACTED}, {PLAIN})"),
        (("--topic", PLAIN), f"topic {PLAIN} is not copied: remote.storage.enable=true is not among"),
        (assumed(COMPACTED), f"topic {COMPACTED} is not copied: cleanup.policy=compact: Kafka refuses"),
        (assumed(PLAIN, COMPACTED), f"topic {COMPACTED} is not copied: cleanup.policy=compact"),
    ):
        ran = tierctl(*copy, *options)
        assert (ran.code, message in ran.err, events()) == (4, True, 0), ran.err
    # Settings in a file do not override those of the cluster.
    enabled = tmp_path / "topics.properties"
    enabled.write_text(f"{PLAIN}.remote.storage.enable=true\n")
    ran = tierctl(*copy, "--topic", PLAIN, "--topic-configs", enabled)
    assert (ran.code, events()) == (4, 0), ran.err
    ran = tierctl(*copy, *assumed(PLAIN)).ok()
    assert {outcome["status"] for outcome in ran.json["outcomes"]} == {"done"}
    assert {row["topic"] for row in rows("segments", *where(compacting)[:2])} == {PLAIN}


def test_beside_a_broker_that_tiers(broker: Broker) -> None:
    broker.create_topic(NOT_STATED)
    broker.create_topic(COPY_OFF, tiered=True, remote_log_copy_disable="true", local_retention_bytes="-2")
    broker.wait_for(
        "the metadata topic", lambda: METADATA_TOPIC in broker.admin.list_topics(timeout=5).topics
    )
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        broker.create_topic(COMPACTED, tiered=True, cleanup_policy="compact,delete")
    copy = ("copy", *where(broker), "--log-dir", broker.log_dir, "-o", "json")
    ran = tierctl(*copy, "--topic", COPY_OFF)
    assert (ran.code, ran.json["steps"]) == (0, []), ran.err
    assert "remote.log.copy.disable=true" in ran.err
    ran = tierctl(*copy, "--topic", NOT_STATED)
    assert (ran.code, "remote.storage.enable=true is not among" in ran.err) == (4, True), ran.err
    broker.alter_topic(NOT_STATED, remote_storage_enable="true")
    assert tierctl(*copy, "--topic", NOT_STATED).code == 0
