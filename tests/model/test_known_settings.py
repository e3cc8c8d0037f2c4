"""Names and values of broker settings: unknown names, and values that Kafka refuses."""

import pytest
from tierctl.errors import UsageError
from tierctl.model.settings.known import require_bounds, unknown_names


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
    assert list(unknown_names({name: "x", "log.dirs": "/data"})) == [(name, nearest)]


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
    assert [name for name, _ in unknown_names(settings)] == ["tiers.what"]


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
