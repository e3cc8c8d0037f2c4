"""The settings of a topic with the defaults and versions of brokers."""

from collections.abc import Mapping

import pytest
from tierctl.errors import UsageError
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.settings.topic import BrokerDefaults, CopyLag, TopicConfig

DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    ("topic", "broker", "lag"),
    [
        ({}, {}, CopyLag(ms=0)),
        ({}, {"log.remote.copy.lag.ms": "5"}, CopyLag(ms=5)),
        # Kafka's default of the lag in ms is 0, so a lag in bytes alone has no effect.
        ({}, {"log.remote.copy.lag.bytes": "5"}, CopyLag(ms=0)),
        ({}, {"log.remote.copy.lag.ms": "5", "log.remote.copy.lag.bytes": "0"}, CopyLag(ms=0)),
        ({"remote.copy.lag.ms": "0"}, {"log.remote.copy.lag.ms": "5"}, CopyLag(ms=0)),
        ({"remote.copy.lag.bytes": "7"}, {"log.remote.copy.lag.ms": "5"}, CopyLag(ms=5, bytes=7)),
        # -1 means the local retention of the topic or the broker; if that is -2, it means the retention.
        ({}, {"log.remote.copy.lag.ms": "-1", "log.local.retention.ms": "9"}, CopyLag(ms=9)),
        ({"local.retention.ms": "8"}, {"log.remote.copy.lag.ms": "-1"}, CopyLag(ms=8)),
        ({}, {"log.remote.copy.lag.ms": "-1"}, CopyLag(ms=7 * DAY_MS)),
        ({}, {"log.remote.copy.lag.ms": "-1", "log.retention.hours": "24"}, CopyLag(ms=DAY_MS)),
        (
            {},
            {"log.remote.copy.lag.ms": "-1", "log.retention.minutes": "2", "log.retention.hours": "24"},
            CopyLag(ms=120_000),
        ),
        (
            {},
            {"log.remote.copy.lag.ms": "-1", "log.retention.ms": "3", "log.retention.minutes": "2"},
            CopyLag(ms=3),
        ),
        ({"retention.ms": "6"}, {"log.remote.copy.lag.ms": "-1", "log.retention.ms": "3"}, CopyLag(ms=6)),
        ({}, {"log.remote.copy.lag.ms": "-1", "log.retention.ms": "-1"}, CopyLag(ms=None)),
        (
            {"remote.copy.lag.ms": "4"},
            {"log.remote.copy.lag.bytes": "-1", "log.retention.bytes": "11"},
            CopyLag(ms=4, bytes=11),
        ),
    ],
)
def test_copy_lag(topic: Mapping[str, str], broker: Mapping[str, str], lag: CopyLag) -> None:
    assert TopicConfig.from_settings(topic, BrokerDefaults(settings=broker)).copy_lag == lag


def test_a_lag_above_the_local_retention_is_refused_where_the_topic_states_it() -> None:
    with pytest.raises(UsageError, match=r"remote\.copy\.lag\.ms=6 is above .* of 5"):
        TopicConfig.from_settings({"remote.copy.lag.ms": "6", "local.retention.ms": "5"})
    of_broker = BrokerDefaults(settings={"log.remote.copy.lag.ms": "6"})
    assert TopicConfig.from_settings({"local.retention.ms": "5"}, of_broker).copy_lag == CopyLag(ms=6)


def test_the_retention_of_a_broker_limits_no_topic() -> None:
    brokers = BrokerDefaults(settings={"log.retention.ms": "5", "log.retention.bytes": "6"})
    config = TopicConfig.from_settings({}, brokers)
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)


def test_a_cleanup_policy_of_a_broker_is_that_of_its_topics() -> None:
    brokers = BrokerDefaults(settings={"log.cleanup.policy": "compact"})
    assert TopicConfig.from_settings({}, brokers).cleanup_policy == {"compact"}
    assert TopicConfig.from_settings({"cleanup.policy": "delete"}, brokers).cleanup_policy == {"delete"}


@pytest.mark.parametrize(
    ("version", "lag", "disabled"),
    [
        ("3.8", CopyLag(), False),
        ("3.9", CopyLag(), True),
        ("4.3", CopyLag(), True),
        ("4.4", CopyLag(ms=5), True),
    ],
)
def test_settings_that_a_version_does_not_have_decide_nothing(
    version: str, lag: CopyLag, disabled: bool
) -> None:
    brokers = BrokerDefaults(version=KafkaVersion.parse(version), settings={"log.remote.copy.lag.ms": "5"})
    config = TopicConfig.from_settings({"remote.log.copy.disable": "true"}, brokers)
    assert (config.copy_lag, config.is_copy_disabled) == (lag, disabled)
    assert config.kafka_version == KafkaVersion.parse(version)
