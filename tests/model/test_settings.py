"""The registry of settings, their defaults and versions, and the names and values that Kafka refuses."""

import ast
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import tierctl
from tierctl.errors import UsageError
from tierctl.model.settings import SETTINGS, TABLES, broker, clients, topic
from tierctl.model.settings.known import require_bounds, unknown_client_names, unknown_names
from tierctl.model.settings.scopes import KafkaVersion, Scope, Table, Type
from tierctl.model.settings.topic import BrokerDefaults, CopyLag, TopicConfig

from tests.support.kafka import KafkaRelease

ROOT = Path(tierctl.__file__).parent


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.scope)
def test_every_row_is_complete(table: Table) -> None:
    assert len({row.name for row in table}) == len(table.rows)
    for row in table:
        assert row.scope is table.scope
        assert row.treatment.startswith(("acted on: ", "read and ignored: "))
        assert len(row.use) > 15
        assert row.values
        assert row.since
        for value in (row.default, row.assumed):
            if value is not None and row.type is not Type.LIST:
                assert row.parse(str(value).lower() if isinstance(value, bool) else str(value)) == value


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (topic.RETENTION_MS, " 7 ", 7),
        (topic.RETENTION_MS, "-1", -1),
        (topic.RETENTION_BYTES, str((1 << 63) - 1), (1 << 63) - 1),
        (topic.REMOTE_STORAGE_ENABLE, "TRUE", True),
        (topic.CLEANUP_POLICY, "", ()),
        (topic.CLEANUP_POLICY, "compact, delete", ("compact", "delete")),
        (broker.TASK_RETRY_JITTER, "0.5", 0.5),
        (clients.SECURITY_PROTOCOL, "SASL_SSL", "SASL_SSL"),
    ],
)
def test_values(row: object, text: str, value: object) -> None:
    assert row.parse(text) == value  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (topic.RETENTION_MS, "-2", "retention.ms='-2' is not a whole number of at least -1"),
        (topic.RETENTION_BYTES, str(1 << 63), "is not a whole number of at most 9223372036854775807$"),
        (topic.RETENTION_BYTES, "1k", "is not a whole number$"),
        (topic.REMOTE_STORAGE_ENABLE, "1", "is not true or false"),
        (broker.CUSTOM_METADATA_MAX_BYTES, str(1 << 31), "of at least 0 and at most 2147483647$"),
        (broker.TASK_RETRY_JITTER, "0.6", "is not a number from 0 to 0.5"),
        (broker.TASK_RETRY_JITTER, "nan", "is not a number from 0 to 0.5"),
        (clients.CHUNK_SIZE, "0", "is not a whole number from 1 to 1073741823"),
        (clients.TOPIC_RETENTION_MS, "0", "retention.ms='0' is not .*of at least 1, or -1"),
        (clients.TOPIC_MIN_ISR, "32768", "is not .*from 1 to"),
        (topic.TABLE.rows["compression.gzip.level"], "0", "is not a whole number from 1 to 9, or -1"),
        (topic.CLEANUP_POLICY, "delete,compcat", "is not one of compact, delete"),
        (clients.SECURITY_PROTOCOL, "TLS", "is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_invalid_values(row: object, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        row.parse(text)  # type: ignore[attr-defined]


def test_stated_assumed_and_default_values() -> None:
    assert topic.RETENTION_MS.given({}) is None
    assert topic.RETENTION_MS.value({}) == -1
    assert topic.RETENTION_MS.default == 604_800_000
    assert broker.TASK_INTERVAL_MS.value({}) == 30_000
    assert broker.TASK_INTERVAL_MS.value({broker.TASK_INTERVAL_MS.name: "5"}) == 5
    with pytest.raises(KeyError):
        broker.METADATA_MANAGER_LISTENER.value({})


def test_a_row_is_defined_once_and_says_what_is_done_with_it() -> None:
    table = Table(Scope.TOPIC)
    table.flag("a.flag", default=False, ignored="tests ignore it")
    with pytest.raises(ValueError, match=r"a\.flag"):
        table.flag("a.flag", default=False, ignored="tests ignore it")
    with pytest.raises(ValueError, match=r"b\.flag"):
        table.flag("b.flag", default=False)


OTHER_LIBRARIES = {
    "kafka/librdkafka.py": "settings of librdkafka, which has names of its own and some in common with Kafka",
    "kafka/leader_log.py": "settings of kafka-python by the names that --command-config has",
    "kafka/topic_client.py": "settings of librdkafka's producer",
}
"""Files that may name settings of other libraries, with the reason."""

NAME = re.compile(r"[a-z0-9.]+[a-z0-9]")
FAMILIES = ("remote.", "rlmm.", "rsm.", "log.retention.", "log.local.", "local.retention.", "ssl.", "sasl.")
"""Prefixes of Kafka's setting names."""


def _named_settings(file: Path) -> set[str]:
    """Return the settings in string literals of a module: registered ones, and others with a prefix."""
    names = {row.name for row in SETTINGS}
    literals = {
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        text for text in literals if text in names or (text.startswith(FAMILIES) and NAME.fullmatch(text))
    }


def test_only_the_registry_names_settings() -> None:
    found = {
        str(file.relative_to(ROOT)): names
        for file in sorted(ROOT.rglob("*.py"))
        if (ROOT / "model" / "settings") not in file.parents and (names := _named_settings(file))
    }
    allowed = OTHER_LIBRARIES.keys()
    assert {file: names for file, names in found.items() if file not in allowed} == {}
    assert allowed <= found.keys()


DAY_MS = 24 * 60 * 60 * 1000
LAG = {"remote.copy.lag.ms": "60"}


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
        ({"local.retention.ms": "-1"}, {"log.remote.copy.lag.ms": "-1"}, CopyLag(ms=None)),
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
        # The settings of the topic alone.
        ({"remote.copy.lag.ms": "-1", "retention.ms": "-1"}, {}, CopyLag(ms=None)),
        ({"remote.copy.lag.ms": "-1", "local.retention.ms": "60"}, {}, CopyLag(ms=60)),
        ({"remote.copy.lag.ms": "60", "retention.ms": "-1"}, {}, CopyLag(ms=60)),
        ({"retention.bytes": "700"}, {}, CopyLag()),
        ({"remote.copy.lag.bytes": "0", "remote.copy.lag.ms": "60"}, {}, CopyLag()),
        (LAG | {"retention.bytes": "700"}, {}, CopyLag(ms=60, bytes=700)),
        (LAG | {"retention.bytes": "700", "local.retention.bytes": "600"}, {}, CopyLag(ms=60, bytes=600)),
        (LAG | {"retention.bytes": "700", "local.retention.bytes": "-1"}, {}, CopyLag(ms=60)),
    ],
)
def test_copy_lag(topic: Mapping[str, str], broker: Mapping[str, str], lag: CopyLag) -> None:
    assert TopicConfig.from_settings(topic, BrokerDefaults(settings=broker)).copy_lag == lag


def test_a_lag_above_the_local_retention_is_refused_where_the_topic_states_it() -> None:
    for kind, retention in itertools.product(("ms", "bytes"), ("local.retention", "retention")):
        stated = {f"remote.copy.lag.{kind}": "6", f"{retention}.{kind}": "5"}
        with pytest.raises(UsageError, match=rf"remote\.copy\.lag\.{kind}=6 is above .* of 5"):
            TopicConfig.from_settings(stated)
    with pytest.raises(UsageError, match=r"remote\.copy\.lag\.ms"):
        TopicConfig.from_settings({"remote.copy.lag.ms": "-2"})
    of_broker = BrokerDefaults(settings={"log.remote.copy.lag.ms": "6"})
    assert TopicConfig.from_settings({"local.retention.ms": "5"}, of_broker).copy_lag == CopyLag(ms=6)


def test_a_cleanup_policy_of_a_broker_is_that_of_its_topics() -> None:
    brokers = BrokerDefaults(settings={"log.cleanup.policy": "compact"})
    assert TopicConfig.from_settings({}, brokers).cleanup_policy == {"compact"}
    assert TopicConfig.from_settings({"cleanup.policy": "delete"}, brokers).cleanup_policy == {"delete"}


@pytest.mark.parametrize(("version", "limit"), [("3.9", str(2**63 - 1)), ("4.0", "3600000")])
def test_the_default_for_future_timestamps_is_that_of_the_version(version: str, limit: str) -> None:
    brokers = BrokerDefaults(version=KafkaVersion.parse(version))
    name = topic.TIMESTAMP_AFTER_MAX_MS.name
    assert TopicConfig.from_settings({}, brokers).setting(name).value == limit
    assert TopicConfig.from_settings({name: "7"}, brokers).setting(name).value == "7"


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


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("remote.log.storage.system.enabled", "remote.log.storage.system.enable"),
        ("num.io.thread", "num.io.threads"),
        ("remote.log.metadata.topic.num.partition", "remote.log.metadata.topic.num.partitions"),
        ("ssl.keystore.locaton", "ssl.keystore.location"),
        ("qqqq", None),
    ],
)
def test_unknown_names(name: str, nearest: str | None) -> None:
    found = [each[:2] for each in unknown_names({name: "x", "log.dirs": "/data"})]
    assert found == [(name, nearest)]


@pytest.mark.parametrize(
    "name",
    [
        *("num.io.threads", "zookeeper.connect", "controller.quorum.voters", "group.share.enable"),
        *("sasl.enabled.mechanisms", "ssl.keystore.location", "log.message.format.version"),
        *("listener.name.external.ssl.keystore.location", "rsm.config.anything", "rlmm.config.anything"),
        *("super.users", "config.providers.file.class", "remote.log.metadata.common.client.client.id"),
        "errors.deadletterqueue.topic.name.prefix",
    ],
)
def test_settings_that_some_kafka_knows(name: str) -> None:
    assert list(unknown_names({name: "x"})) == []


def test_plugins_with_prefixes_of_their_own() -> None:
    settings = {"remote.log.storage.manager.impl.prefix": "tier.", "tier.what": "x", "tiers.what": "x"}
    assert [name for name, *_ in unknown_names(settings)] == ["tiers.what"]


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("remote.log.manager.copier.thread.pool.size", "0", "of at least 1, or -1"),
        ("log.cleanup.policy", "compcat", "one of compact, delete"),
        ("log.local.retention.ms", "-3", "of at least -2"),
    ],
)
def test_bounds(name: str, value: str, bound: str) -> None:
    """test_settings_of_tiering_have_the_bounds_of_kafkas_own compares those of all settings."""
    with pytest.raises(UsageError, match=rf"server\.properties: {name}='{value}' is not .*{bound}"):
        require_bounds({name: value}, "server.properties")


AIVEN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
KAFKA = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
CLIENT = "rlmm.config.remote.log.metadata.common.client."


@pytest.mark.parametrize(
    ("name", "plugin", "nearest"),
    [
        ("rsm.config.chunk.sizes", AIVEN, "rsm.config.chunk.size"),
        ("rsm.config.storage.s3.buckt.name", AIVEN, "rsm.config.storage.s3.bucket.name"),
        ("rsm.config.storage.s3.bucket.name", AIVEN, None),
        ("rsm.config.encryption.key.pairs.k.public.key.fil", AIVEN, None),
        ("rsm.config.delete.on.clos", KAFKA, "rsm.config.delete.on.close"),
        ("rsm.config.chunk.sizes", "x.OtherPlugin", None),
        (f"{CLIENT}security.protocl", AIVEN, f"{CLIENT}security.protocol"),
        (f"{CLIENT.replace('common', 'comon')}security.protocol", AIVEN, f"{CLIENT}security.protocol"),
        (f"{CLIENT}max.poll.records", AIVEN, None),
        ("remote.log.storage.enable", AIVEN, "remote.log.storage.system.enable"),
    ],
)
def test_misspelt_names_of_tiering(name: str, plugin: str, nearest: str | None) -> None:
    settings = {"remote.log.storage.manager.class.name": plugin, name: "x"}
    found = [(each.nearest, each.is_misspelt) for each in unknown_names(settings)]
    assert found == ([] if nearest is None else [(nearest, True)])


_CANDIDATES = (
    "x",
    "-3",
    "-2",
    "-1",
    "0",
    "1",
    "32768",
    "2147483648",
    "9223372036854775807",
    "0.5",
    "0.6",
    "true",
)


@pytest.mark.kafka
def test_settings_of_tiering_have_the_bounds_of_kafkas_own(kafka: KafkaRelease, tmp_path: Path) -> None:
    source = (
        "import org.apache.kafka.common.config.*;\n"
        "public class Bounds { public static void main(String[] candidates) {\n"
        "for (var key : org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig.configDef()\n"
        ".configKeys().values()) { System.out.print(key.name); for (String each : candidates) {\n"
        "try { Object value = ConfigDef.parseType(key.name, each, key.type);\n"
        "if (key.validator != null) key.validator.ensureValid(key.name, value);\n"
        'System.out.print(" " + each); } catch (ConfigException e) { } } System.out.println(); } } }\n'
    )
    accepted = {
        line.split()[0]: line.split()[1:]
        for line in kafka.run_source(tmp_path, source, *_CANDIDATES).splitlines()
    }
    assert len(accepted) > 25
    if kafka.number >= (4, 0):
        # Kafka 4 refuses -1, which doctor reports as threads_of_former_pool.
        for pool in (broker.COPIER_THREADS, broker.EXPIRATION_THREADS):
            accepted[pool.name].insert(0, "-1")
    assert {name: [each for each in _CANDIDATES if _is_valid(name, each)] for name in accepted} == accepted


def _is_valid(name: str, text: str) -> bool:
    try:
        broker.TABLE.rows[name].parse(text)
    except UsageError:
        return False
    return True


@pytest.mark.kafka
def test_the_names_of_kafkas_own_clients_are_known(kafka: KafkaRelease, tmp_path: Path) -> None:
    source = (
        "import org.apache.kafka.clients.admin.*; import org.apache.kafka.clients.consumer.*;\n"
        "import org.apache.kafka.clients.producer.*;\n"
        "public class Names { public static void main(String[] a) {\n"
        "ProducerConfig.configNames().forEach(System.out::println);\n"
        "ConsumerConfig.configNames().forEach(System.out::println);\n"
        "AdminClientConfig.configNames().forEach(System.out::println); } }\n"
    )
    names = kafka.run_source(tmp_path, source).split()
    assert len(names) > 100
    assert [each for each in unknown_client_names(dict.fromkeys(names, "x")) if each.is_misspelt] == []
