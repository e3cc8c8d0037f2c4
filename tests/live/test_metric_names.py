"""Kafka's metrics in --metrics-file have the names of a real broker's MBeans."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.cli import docs
from tierctl.report.prometheus import FAMILIES, Kind

from tests.support.broker import Broker, Brokers
from tests.support.kafka import KafkaRelease
from tests.support.servers import free_port

_BEAN = re.compile(r"kafka\.server:type=(?P<type>\w+),name=(?P<name>\w+)(?:,topic=\w+)?:(?P<attribute>\w+)")
_ATTRIBUTE = re.compile(r"kafka\.server:type=(?P<type>RemoteLogManager):(?P<attribute>[\w-]+)")
_TOPICS = "kafka_server_BrokerTopicMetrics_"
_RATE = "200000"
# The limit is below one segment per second, because the broker only has the metrics after a wait.
_LIMITS = {
    "remote_log_manager_copy_max_bytes_per_second": _RATE,
    "remote_log_manager_copy_quota_window_num": "2",
    "remote_log_manager_fetch_max_bytes_per_second": _RATE,
    "remote_log_manager_fetch_quota_window_num": "2",
}


@pytest.fixture
def jmx_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a free port, on which the JVMs that a test starts serve JMX."""
    port = free_port()
    facts = {
        "com.sun.management.jmxremote.port": port,
        "com.sun.management.jmxremote.rmi.port": port,
        "com.sun.management.jmxremote.host": "127.0.0.1",
        "com.sun.management.jmxremote.authenticate": "false",
        "com.sun.management.jmxremote.ssl": "false",
        "java.rmi.server.hostname": "127.0.0.1",
    }
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={value}" for name, value in facts.items()))
    return port


@pytest.fixture
def busy(jmx_port: int, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Return a broker that copied and read segments of a topic faster than its limits."""
    del jmx_port
    broker = brokers.own(**_LIMITS)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    broker.create_topic("measured", tiered=True)
    broker.produce("measured", 3000)
    broker.await_idle(quiet_s=6)
    assert len(broker.records("measured")) == 3000
    yield broker
    broker.stop()


def families_of(attributes: str) -> dict[str, Kind]:
    """Return the metrics that the JMX exporter's rules for Kafka make of a broker's attributes."""
    found = {}
    for bean in _BEAN.finditer(attributes):
        name = f"kafka_server_{bean['type']}_{bean['name']}".lower()
        if bean["name"].endswith("PerSec") and bean["attribute"] == "Count":
            found[f"{name.removesuffix('persec')}_total"] = Kind.COUNTER
        elif bean["attribute"] == "Value":
            found[name] = Kind.GAUGE
    for bean in _ATTRIBUTE.finditer(attributes):
        name = f"kafka_server_{bean['type']}_{bean['attribute']}".lower().replace("-", "_")
        found[name] = Kind.GAUGE
    return found


@pytest.mark.matrix
def test_the_names_and_types_are_those_of_the_brokers_mbeans(
    busy: Broker, jmx_port: int, kafka: KafkaRelease
) -> None:
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"
    printed = kafka.run("org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--one-time")
    ours = {name: family.kind for name, family in FAMILIES.items() if name.startswith("kafka_")}
    theirs = families_of(printed)
    assert len(ours) > 15
    assert ours == {name: theirs.get(name) for name in ours}
    manual = (Path(docs.__file__).parent / "manual" / "metrics.md").read_text()
    known = {each.removesuffix("_total") for each in ours}
    # RequestMetrics has RemoteTimeMs of all requests, which is not about tiered storage.
    unwritten = {
        name
        for name in re.findall(r"name=(\w*(?:Remote(?!TimeMs)|Retention)\w*)", printed)
        if f"{_TOPICS}{name}".lower().removesuffix("persec") not in known
    }
    assert len(unwritten) > 5
    assert {name for name in unwritten if f"`{name}`" not in manual} == set()
