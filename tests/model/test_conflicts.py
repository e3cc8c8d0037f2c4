"""Conflicts between settings: each kind once with its fault, and once without."""

from collections.abc import Callable, Iterable, Mapping

import pytest
from tierctl.errors import UsageError
from tierctl.model.conflicts import (
    Conflict,
    ConflictKind,
    broker_conflicts,
    internal_topic_conflicts,
    metadata_topic_conflicts,
    topic_conflicts,
)
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.settings.topic import BrokerDefaults

TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
UNLIMITED = {"local.retention.bytes": "-2", "retention.ms": "-1"}
LAGS = {"remote.copy.lag.ms": "-1"}
TIERING = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    "remote.log.metadata.manager.listener.name": "INTERNAL",
    "listeners": "INTERNAL://:9092",
}
LOCAL = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
K = ConflictKind
METADATA_CLASS = "remote.log.metadata.manager.class.name"
API = "org.apache.kafka.server.log.remote.storage"
NAME = "remote.log.metadata.manager.listener.name"
SASL = {NAME: "SASL_SSL", "listeners": "SASL_SSL://:9092"}
MANAGER = "rlmm.config.remote.log.metadata."
COMMON = f"{MANAGER}common.client."
REPLICATION = f"{MANAGER}topic.replication.factor"
CLIENTS = ("producer", "consumer", "admin")


def kinds(conflicts: Iterable[Conflict]) -> list[ConflictKind]:
    return [each.kind for each in conflicts]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"cleanup.policy": "compact"}, [K.COMPACTED_AND_TIERED]),
        ({"cleanup.policy": "compact,delete"}, [K.COMPACTED_AND_TIERED]),
        ({"cleanup.policy": ""}, []),
        ({"local.retention.ms": "8", "retention.ms": "7"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        ({"local.retention.ms": "-1", "retention.ms": "7"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        ({"local.retention.ms": "-1", "retention.ms": "-1"}, []),
        ({"local.retention.ms": "8", "retention.ms": "-1"}, []),
        ({"local.retention.ms": "604800001"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        ({"local.retention.bytes": "8", "retention.bytes": "7"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        ({"local.retention.bytes": "7", "retention.bytes": "7", "local.retention.ms": "1"}, []),
        ({"remote.log.copy.disable": "true"}, [K.COPY_DISABLED_WITH_LOCAL_RETENTION]),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "-2"}, []),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "-1"}, []),
        ({"remote.copy.lag.bytes": "2"}, [K.COPY_LAG_ABOVE_LOCAL_RETENTION]),
        ({"remote.copy.lag.bytes": "1"}, []),
        ({"remote.copy.lag.ms": "604800001"}, [K.COPY_LAG_ABOVE_LOCAL_RETENTION]),
        (UNLIMITED | LAGS, [K.COPY_LAG_UNLIMITED]),
        (UNLIMITED | LAGS | {"remote.copy.lag.ms": "0"}, [K.LOCAL_RETENTION_EQUALS_RETENTION]),
        (UNLIMITED | LAGS | {"local.retention.ms": "7"}, []),
        (UNLIMITED | LAGS | {"remote.log.copy.disable": "true"}, []),
        (UNLIMITED, [K.LOCAL_RETENTION_EQUALS_RETENTION]),
        ({"local.retention.bytes": "-2"}, [K.LOCAL_RETENTION_EQUALS_RETENTION]),
        ({"local.retention.bytes": "-1"}, [K.LOCAL_RETENTION_EQUALS_RETENTION]),
        ({"local.retention.bytes": "-2", "local.retention.ms": "1"}, []),
        ({"unclean.leader.election.enable": "true"}, [K.UNCLEAN_LEADER_ELECTION]),
        ({"remote.log.delete.on.disable": "true"}, [K.DELETE_ON_DISABLE]),
        ({"message.timestamp.after.max.ms": "604800001"}, [K.FUTURE_TIMESTAMPS]),
        ({"message.timestamp.after.max.ms": "3600000"}, []),
        ({"message.timestamp.after.max.ms": "604800001", "retention.ms": "-1"}, []),
        ({"message.timestamp.after.max.ms": "604800001", "message.timestamp.type": "LogAppendTime"}, []),
    ],
)
def test_topics(settings: Mapping[str, str], expected: list[ConflictKind]) -> None:
    assert kinds(topic_conflicts(TIERED | settings)) == expected
    # A topic that is not tiered has no conflict.
    assert kinds(topic_conflicts(TIERED | settings | {"remote.storage.enable": "false"})) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"remote.log.storage.manager.class.name": ""}, [K.NO_STORAGE_MANAGER]),
        ({"remote.log.storage.manager.class.name": LOCAL}, [K.TEST_STORAGE_MANAGER]),
        (
            {"remote.log.storage.manager.class.name": LOCAL, "rsm.config.delete.on.close": "true"},
            [K.TEST_STORAGE_MANAGER, K.TIER_DELETED_ON_CLOSE],
        ),
        ({"log.cleanup.policy": "compact"}, [K.TIERING_DEFAULT_COMPACTED]),
        ({"log.local.retention.ms": "5", "log.retention.ms": "4"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        (
            {"log.local.retention.ms": "3600001", "log.retention.hours": "1"},
            [K.LOCAL_RETENTION_ABOVE_RETENTION],
        ),
        ({"log.local.retention.ms": "3600000", "log.retention.hours": "1"}, []),
        ({"log.local.retention.bytes": "5", "log.retention.bytes": "4"}, [K.LOCAL_RETENTION_ABOVE_RETENTION]),
        ({"remote.log.metadata.manager.listener.name": ""}, [K.NO_METADATA_LISTENER]),
        ({"remote.log.metadata.manager.listener.name": "OTHER"}, [K.NO_METADATA_LISTENER]),
        ({"remote.log.metadata.manager.listener.name": "internal"}, []),
        (
            {
                "remote.log.metadata.manager.listener.name": "",
                "rlmm.config.remote.log.metadata.common.client.bootstrap.servers": "b:9092",
            },
            [],
        ),
        ({"remote.log.metadata.topic.num.partitions": "5"}, [K.METADATA_SETTING_WITHOUT_PREFIX]),
        ({"rlmm.config.remote.log.metadata.topic.num.partitions": "5"}, []),
        ({"rlmm.config.remote.log.metadata.topic.retention.ms": "1"}, [K.METADATA_RETENTION]),
        ({REPLICATION: "1"}, [K.METADATA_FEW_REPLICAS]),
        ({REPLICATION: "2"}, [K.METADATA_FEW_REPLICAS]),
        ({"rlmm.config.remote.log.metadata.topic.min.isr": "4"}, [K.METADATA_NO_SPARE_REPLICA]),
        ({"rlmm.config.remote.log.metadata.topic.min.isr": "3"}, [K.METADATA_NO_SPARE_REPLICA]),
        ({"rlmm.config.remote.log.metadata.topic.min.isr": "1"}, [K.METADATA_LOW_MIN_ISR]),
        (
            {"remote.log.metadata.manager.class.name": "Other", "listeners": "A://:1"},
            [K.NO_METADATA_LISTENER],
        ),
        ({"remote.log.metadata.manager.class.name": "Other", NAME: "", "listeners": "A://:1"}, []),
        ({"advertised.listeners": "A://a:1, INTERNAL://b:1"}, []),
        ({"advertised.listeners": "A://a:1"}, [K.NO_METADATA_LISTENER]),
        ({"controller.listener.names": "CONTROLLER,INTERNAL"}, [K.NO_METADATA_LISTENER]),
        ({f"{COMMON}bootstrap.servers": "a:1", "advertised.listeners": "A://a:1"}, [K.NO_METADATA_LISTENER]),
        (SASL, [K.METADATA_CLIENTS_WITHOUT_LOGIN]),
        # A map of protocols decides, not the listener's name.
        (SASL | {"listener.security.protocol.map": "SASL_SSL:SSL"}, []),
        (SASL | {f"{COMMON}sasl.mechanism": "PLAIN"}, []),
        (SASL | {f"{COMMON}security.protocol": "SSL"}, []),
        # The settings of the listener itself, and those without the prefix, do not reach the clients.
        (
            SASL | {"sasl.mechanism.inter.broker.protocol": "PLAIN", f"{COMMON[12:]}sasl.mechanism": "PLAIN"},
            [K.METADATA_CLIENTS_WITHOUT_LOGIN],
        ),
        (
            SASL | {f"{MANAGER}{kind}.sasl.mechanism": "PLAIN" for kind in CLIENTS[1:]},
            [K.METADATA_CLIENTS_WITHOUT_LOGIN],
        ),
        (SASL | {f"{MANAGER}{kind}.sasl.mechanism": "PLAIN" for kind in CLIENTS}, []),
    ],
)
def test_brokers(settings: Mapping[str, str], expected: list[ConflictKind]) -> None:
    assert kinds(broker_conflicts(TIERING | settings)) == expected
    assert kinds(broker_conflicts(TIERING | settings | {"remote.log.storage.system.enable": "false"})) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"process.roles": "controller"}, [K.CONTROLLER_DOES_NOT_TIER]),
        ({"process.roles": "broker,controller"}, []),
        ({"process.roles": "controller", "remote.log.storage.system.enable": "true"}, []),
        ({"remote.log.storage.manager.class.name": f"{API}.RemoteStorageManager"}, [K.PLUGIN_IS_INTERFACE]),
        ({"remote.log.storage.manager.class.name": f"{API}.NoOpRemoteStorageManager"}, []),
        ({METADATA_CLASS: f"{API}.RemoteLogMetadataManager"}, [K.PLUGIN_IS_INTERFACE]),
        ({"remote.log.manager.copier.thread.pool.size": "-1"}, [K.THREADS_OF_FORMER_POOL]),
        ({"remote.log.manager.expiration.thread.pool.size": " -1"}, [K.THREADS_OF_FORMER_POOL]),
        ({"remote.log.manager.expiration.thread.pool.size": "1"}, []),
    ],
)
def test_nodes(settings: Mapping[str, str], expected: list[ConflictKind]) -> None:
    assert kinds(broker_conflicts(settings)) == expected


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("__consumer_offsets", {"remote.storage.enable": "true"}, [K.INTERNAL_TOPIC_TIERED]),
        ("__remote_log_metadata", {"remote.storage.enable": "true"}, [K.INTERNAL_TOPIC_TIERED]),
        ("__consumer_offsets", {"remote.storage.enable": "false"}, []),
        ("orders", {"remote.storage.enable": "true"}, []),
    ],
)
def test_internal_topics(name: str, settings: Mapping[str, str], expected: list[ConflictKind]) -> None:
    assert kinds(internal_topic_conflicts(name, settings)) == expected


COPIER_THREADS = {"remote.log.manager.copier.thread.pool.size": "-1"}
ONE_OF_TWO = {"min.insync.replicas": "2", REPLICATION: "1"}
FUTURE = {"message.timestamp.after.max.ms": "0"}


@pytest.mark.parametrize(
    ("check", "settings", "version", "expected"),
    [
        # Settings of later versions do not count.
        (topic_conflicts, TIERED | {"remote.copy.lag.bytes": "2"}, (4, 3), []),
        (topic_conflicts, TIERED | FUTURE | {"remote.log.copy.disable": "true"}, (3, 8), []),
        # Before Kafka 4.0 every timestamp is accepted unless a limit is set.
        (topic_conflicts, TIERED, (3, 9), [K.FUTURE_TIMESTAMPS]),
        (broker_conflicts, COPIER_THREADS, (3, 9), []),
        # The least in-sync replicas were no setting of the metadata manager yet.
        (broker_conflicts, TIERING, (4, 1), [K.METADATA_LOW_MIN_ISR]),
        (broker_conflicts, TIERING | {"min.insync.replicas": "2"}, (4, 1), []),
        # More in-sync replicas than there are count as all of them since Kafka 3.7.
        (broker_conflicts, TIERING | ONE_OF_TWO, (3, 6), [K.METADATA_MIN_ISR_ABOVE_REPLICATION]),
        (broker_conflicts, TIERING | ONE_OF_TWO, (3, 7), [K.METADATA_FEW_REPLICAS]),
    ],
)
def test_versions(
    check: Callable[[Mapping[str, str], KafkaVersion], Iterable[Conflict]],
    settings: Mapping[str, str],
    version: tuple[int, int],
    expected: list[ConflictKind],
) -> None:
    assert kinds(check(settings, KafkaVersion(*version))) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"retention.ms": "604800000"}, [K.METADATA_RETENTION]),
        ({"retention.bytes": "0"}, [K.METADATA_RETENTION]),
        ({"cleanup.policy": "compact,delete"}, [K.METADATA_COMPACTED]),
        ({"unclean.leader.election.enable": "true"}, [K.METADATA_UNCLEAN_ELECTION]),
    ],
)
def test_metadata_topic(settings: Mapping[str, str], expected: list[ConflictKind]) -> None:
    whole = {"retention.ms": "-1", "min.insync.replicas": "2"}
    assert kinds(metadata_topic_conflicts(whole | settings, 3)) == expected


def test_kafkas_default_retention_is_finite() -> None:
    (found,) = metadata_topic_conflicts({"min.insync.replicas": "2"}, 3)
    assert (found.kind, found.found) == (K.METADATA_RETENTION, "retention.ms=604800000 (default)")


def test_what_is_found_names_values_and_defaults() -> None:
    (found,) = topic_conflicts(
        {"remote.storage.enable": "true", "local.retention.bytes": "2", "retention.bytes": "1"}
    )
    assert found.names == ("local.retention.bytes", "retention.bytes")
    assert found.found == "local.retention.bytes=2, retention.bytes=1"


def test_conflicts_of_the_metadata_topic_name_the_settings_of_the_broker() -> None:
    name = "rlmm.config.remote.log.metadata.topic.retention.ms"
    (found,) = broker_conflicts(TIERING | {name: "5", "log.retention.ms": "7"})
    assert (found.names, found.found) == ((name,), "metadata topic: retention.ms=5")


def test_invalid_values_are_errors_and_no_conflicts() -> None:
    with pytest.raises(UsageError):
        list(topic_conflicts(TIERED | {"retention.ms": "x"}))


def test_defaults_of_brokers_count_for_what_topics_leave_open() -> None:
    brokers = BrokerDefaults(settings={"log.retention.hours": "1", "log.cleanup.policy": "compact"})
    in_force = brokers.in_force(TIERED | {"local.retention.ms": "3600001"})
    assert kinds(topic_conflicts(in_force)) == [K.COMPACTED_AND_TIERED, K.LOCAL_RETENTION_ABOVE_RETENTION]
    assert kinds(topic_conflicts(brokers.in_force(TIERED | {"cleanup.policy": "delete"}))) == []


def test_every_kind_has_a_case() -> None:
    tables = (test_topics, test_brokers, test_versions, test_metadata_topic, test_nodes, test_internal_topics)
    cases = [case for test in tables for mark in test.pytestmark for case in mark.args[1]]
    found = {kind for case in cases for kind in case[-1]}
    assert set(ConflictKind) == found
