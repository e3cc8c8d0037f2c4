"""The file of `backup-config` has the same settings and ids as the output of Kafka's tools."""

import os
import re
import stat
from pathlib import Path

import pytest
from tierctl.model.local import SavedTopics
from tierctl.wire.files.topics_file import read_topics_file, write_topics_file

from tests.cli.shell import tierctl
from tests.cli.test_schemas import check
from tests.support.broker import Broker
from tests.support.kafka import fetch_release

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
SETTINGS = {"retention_ms": "604800000", "segment_bytes": "1048576", "cleanup_policy": "compact,delete"}


@pytest.fixture(scope="module")
def topics(broker: Broker) -> dict[str, int]:
    """Return topic names with partition counts: with few settings, tiered, and with a list."""
    found = {"saved-plain": 2, "saved.tiered": 3, "saved_list": 1}
    broker.create_topic("saved-plain", 2)
    broker.create_topic("saved.tiered", 3, tiered=True)
    broker.create_topic("saved_list", 1)
    broker.alter_topic("saved_list", **SETTINGS)
    return found


def described(broker: Broker, topic: str) -> tuple[str, int]:
    """Return topic id and partition count from kafka-topics."""
    said = broker.tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic)
    match = re.search(r"TopicId: (\S+)\s+PartitionCount: (\d+)", said)
    assert match, said
    return match[1], int(match[2])


def configured(broker: Broker, topic: str) -> dict[str, str]:
    """Return the topic's own settings from kafka-configs."""
    return {name: value for name, value, _ in kafka_configs(broker, topic)}


def kafka_configs(broker: Broker, topic: str, *options: str) -> list[tuple[str, str, str]]:
    """Return name, value and synonyms of the topic's settings from kafka-configs."""
    # Maven Central has no 4.4.0 jar with this tool; the jar of an older release works with any broker.
    release = broker.release if broker.release.number < (4, 4) else fetch_release("4.3.0")
    options = ("--describe", "--entity-type", "topics", "--entity-name", topic, *options)
    said = release.run("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *options)
    return re.findall(r"^\s+(\S+?)=(.*?) sensitive=\w+ synonyms=\{(.*)\}$", said, flags=re.MULTILINE)


def test_the_file_has_what_kafkas_tools_print(broker: Broker, topics: dict[str, int], tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    args = ("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", file)
    ran = tierctl(*args, "--output", "json").ok()
    assert "not covered: ACLs, quotas" in ran.err
    saved = read_topics_file(file.read_bytes(), str(file))
    for name, count in topics.items():
        topic = saved.topics[name]
        assert (topic.topic_id, topic.partitions) == described(broker, name)
        assert topic.partitions == count
        assert topic.settings == configured(broker, name)
    assert saved.topics["saved_list"].settings["cleanup.policy"] == "compact,delete"
    assert not [name for name in saved.topics if name.startswith("__")]
    rows = {row["topic"]: row for row in ran.json}
    assert rows.keys() == saved.topics.keys()
    for row in rows.values():
        check(row, "saved-topics")
    shown = {each["name"]: each["value"] for each in rows["saved.tiered"]["own_settings"]}
    assert shown == saved.topics["saved.tiered"].settings


def test_some_topics_and_an_existing_file(broker: Broker, topics: dict[str, int], tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_bytes(earlier := write_topics_file(SavedTopics(topics={})))
    file.chmod(0o666)
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
    args = ("backup-config", "--bootstrap-server", broker.bootstrap, "--output-file", file)
    unknown = tierctl(*args, "--topic", "saved-plane")
    assert (unknown.code, file.read_bytes()) == (10, earlier)
    assert "saved-plain" in unknown.err
    tierctl(*args, "--topic", "saved-*", "--topic", "saved_list").ok()
    assert set(read_topics_file(file.read_bytes(), "f").topics) == {"saved-plain", "saved_list"}
    mask = os.umask(0o022)
    os.umask(mask)
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (os.geteuid(), 0o666 & ~mask)
    assert [path.name for path in tmp_path.iterdir()] == ["topics.yaml"]
    nowhere = tierctl(*args[:-1], tmp_path / "missing" / "topics.yaml")
    assert (nowhere.code, "--output-file" in nowhere.err) == (2, True), nowhere.err


def test_without_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    assert tierctl("backup-config", "--output-file", file).code == 2
    refused = tierctl("backup-config", "--bootstrap-server", "localhost:1", "--output-file", file)
    assert refused.code == 5, refused.err
    assert not file.exists()
