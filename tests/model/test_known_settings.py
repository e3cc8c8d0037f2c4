"""Names and values of broker settings: unknown names, and values that Kafka refuses."""

from pathlib import Path

import pytest
from tierctl.errors import UsageError
from tierctl.model.settings.known import require_bounds, unknown_client_names, unknown_names

from tests.support.kafka import KafkaRelease


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
        ("remote.log.metadata.custom.metadata.max.bytes", "-1", "of at least 0"),
        ("remote.log.manager.task.retry.jitter", "0.6", "from 0 to 0.5"),
        ("remote.log.manager.thread.pool.size", "0", "of at least 1"),
        ("log.cleanup.policy", "compcat", "one of compact, delete"),
        ("log.local.retention.ms", "-3", "of at least -2"),
    ],
)
def test_bounds(name: str, value: str, bound: str) -> None:
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


@pytest.mark.kafka
def test_the_names_of_kafkas_own_clients_are_known(kafka: KafkaRelease, tmp_path: Path) -> None:
    source = tmp_path / "Names.java"
    source.write_text(
        "import org.apache.kafka.clients.admin.*; import org.apache.kafka.clients.consumer.*;\n"
        "import org.apache.kafka.clients.producer.*;\n"
        "public class Names { public static void main(String[] a) {\n"
        "ProducerConfig.configNames().forEach(System.out::println);\n"
        "ConsumerConfig.configNames().forEach(System.out::println);\n"
        "AdminClientConfig.configNames().forEach(System.out::println); } }\n"
    )
    names = kafka.run(str(source)).split()
    assert len(names) > 100
    assert [each for each in unknown_client_names(dict.fromkeys(names, "x")) if each.is_misspelt] == []
