"""The cells of the table of engines that need a cluster, and faults of executors beside brokers."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model.choices import EngineName
from tierctl.model.location import TopicLocation

from tests.doctor.cases import OK, PROBLEM, worst
from tests.live.secured import allow, login
from tests.spark.on_engines import Run, require_same_on_both_engines
from tests.spark.scenes import besides_spark
from tests.support.broker import Broker, Brokers

checks = import_module("tierctl.commands.doctor")

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPICS = ("engines-1", "engines-2", "engines-3")


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Broker:
    """Return the broker with topics of which one has settings of its own."""
    for name in TOPICS:
        broker.create_topic(name, 2)
    broker.alter_topic(TOPICS[0], retention_ms="604800000")
    return broker


@pytest.mark.usefixtures("spark")
def test_both_engines_check_the_same_of_a_cluster(
    topics: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scene(run: Run, _folder: Path) -> Any:
        ran = run("doctor", "--metadata", f"kafka://{topics.bootstrap}", "--topic", "engines-*", "-o", "json")
        return ran.code, besides_spark(ran.json)

    require_same_on_both_engines(scene, tmp_path, monkeypatch)


def rights(*operations_of_metadata: str) -> set[Right]:
    """Return the rights on the topics that doctor asks for; fewer on the metadata topic."""
    of_topics = {
        Right(operation, name) for name in TOPICS for operation in ("Describe", "DescribeConfigs", "Read")
    }
    of_metadata = {Right(operation, METADATA_TOPIC) for operation in operations_of_metadata}
    return of_topics | of_metadata | {Right("DescribeConfigs"), Right("Describe")}


@pytest.mark.usefixtures("spark")
def test_executors_without_a_right_and_without_the_file_of_credentials(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = brokers.guarded()
    for name in (*TOPICS, METADATA_TOPIC):
        if name not in guarded.admin.list_topics(timeout=10).topics:
            guarded.create_topic(name)
    guarded.produce(METADATA_TOPIC, 1, size=20)
    on_spark = {
        "bootstrap_server": guarded.bootstrap_sasl,
        "command_config": login(guarded, tmp_path),
        "engine": EngineName.SPARK,
        "master": "local[2]",
    }
    request = DoctorRequest(metadata=f"kafka://{guarded.bootstrap_sasl}", **on_spark)

    allow(guarded, rights("Describe", "DescribeConfigs", "Read"))
    found = doctor(request).results
    for check in (DoctorCheck.SPARK_CLUSTER, DoctorCheck.SPARK_METADATA):
        assert worst(found, check).severity is OK, worst(found, check)

    allow(guarded, rights("Describe", "DescribeConfigs"))
    found = doctor(request).results
    assert worst(found, DoctorCheck.SPARK_CLUSTER).severity is OK
    refused = worst(found, DoctorCheck.SPARK_METADATA)
    assert (refused.severity, METADATA_TOPIC in refused.found) == (PROBLEM, True)
    assert "kafka-acls" in (refused.fix or "")

    # The executors are on a machine without the file.
    elsewhere = TopicLocation(uri=f"kafka://{guarded.bootstrap_sasl}", command_config=str(tmp_path / "none"))
    monkeypatch.setattr(checks, "cluster_location", lambda _: elsewhere)
    lost = worst(doctor(request).results, DoctorCheck.SPARK_CLUSTER)
    assert (lost.severity, "none" in lost.found) == (PROBLEM, True)
