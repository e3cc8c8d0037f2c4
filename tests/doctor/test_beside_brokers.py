"""Checks of clusters on real brokers: each once with the fault, and once without."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tierctl.checks import settings
from tierctl.checks.check import CheckResults
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.errors import ExitCode, MetadataError
from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import Uuid
from tierctl.model.choices import Severity
from tierctl.model.local import PartitionFacts, TopicFacts
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.times import system_clock_ms

from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, worst
from tests.live.secured import allow, login
from tests.support.broker import PASSWORD, USER, Broker, Brokers, jaas_quoted

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPIC = "doctor"
RIGHTS = (DoctorCheck.CLUSTER_RIGHTS, DoctorCheck.METADATA_RIGHTS, DoctorCheck.TOPIC_RIGHTS)


def outcomes(diagnosis: CheckResults, checks: Iterable[DoctorCheck]) -> dict[DoctorCheck, Severity]:
    return {check: worst(diagnosis.results, check).severity for check in checks}


def kinds(diagnosis: CheckResults, check: DoctorCheck) -> set[str]:
    faults = (
        each for each in diagnosis.results if each.check is check and each.severity in {PROBLEM, WARNING}
    )
    return {each.found.partition(":")[0] for each in faults}


@pytest.fixture(scope="module")
def wrong(brokers: Brokers) -> Broker:
    """Return a broker that tiers, with wrong settings."""
    return brokers.own(log_cleanup_policy="compact", unclean_leader_election_enable="true")


def test_settings_of_a_broker_and_its_topics(wrong: Broker) -> None:
    where = DoctorRequest(metadata=f"kafka://{wrong.bootstrap}")
    wrong.create_topic(TOPIC, tiered=True, cleanup_policy="delete")
    wrong.create_topic("plain")
    wrong.wait_for(METADATA_TOPIC, lambda: METADATA_TOPIC in wrong.admin.list_topics(timeout=5).topics)
    found = doctor(where)
    assert kinds(found, DoctorCheck.BROKER_CONFLICTS) == {"test_storage_manager", "tiering_default_compacted"}
    assert kinds(found, DoctorCheck.METADATA_SETTINGS) == {
        "metadata_few_replicas",
        "metadata_unclean_election",
    }
    # Before Kafka 4.0, topics accept timestamps in the future by default (KIP-1030).
    by_default = {"future_timestamps"} if wrong.release.number < (4, 0) else set()
    assert kinds(found, DoctorCheck.TOPIC_CONFLICTS) == {"unclean_leader_election"} | by_default
    assert found.exit_code is ExitCode.PARTIAL
    fine = (*RIGHTS, DoctorCheck.BROKERS_AGREE, DoctorCheck.METADATA_REPLICAS)
    fine += (DoctorCheck.TIERED_TOPICS, DoctorCheck.CONTROLLER_CLOCK, DoctorCheck.EVENT_CLOCK)
    assert outcomes(found, fine) == dict.fromkeys(fine, OK)

    wrong.alter_topic(METADATA_TOPIC, retention_ms="60000", unclean_leader_election_enable="false")
    wrong.alter_topic(TOPIC, unclean_leader_election_enable="false", local_retention_bytes="-2")
    found = doctor(where)
    assert kinds(found, DoctorCheck.METADATA_SETTINGS) == {"metadata_few_replicas", "metadata_retention"}
    assert kinds(found, DoctorCheck.TOPIC_CONFLICTS) == {"local_retention_equals_retention"} | by_default
    wrong.alter_topic(TOPIC, unclean_leader_election_enable="false", local_retention_bytes="1")
    assert kinds(doctor(where), DoctorCheck.TOPIC_CONFLICTS) == by_default


def test_the_clock_of_the_controller(wrong: Broker) -> None:
    for ahead_ms, severity in ((60_000, WARNING), (-3_600_000, PROBLEM)):
        request = DoctorRequest(
            bootstrap_server=wrong.bootstrap, clock_ms=lambda ahead=ahead_ms: system_clock_ms() - ahead
        )
        assert outcomes(doctor(request), [DoctorCheck.CONTROLLER_CLOCK]) == {
            DoctorCheck.CONTROLLER_CLOCK: severity
        }


def test_versions_of_brokers(wrong: Broker) -> None:
    asked = DoctorRequest(bootstrap_server=wrong.bootstrap)
    found = worst(doctor(asked).results, DoctorCheck.BROKER_VERSION)
    assert found.subject.startswith("Kafka ")
    given = DoctorRequest(bootstrap_server=wrong.bootstrap, kafka_version=KafkaVersion.parse("4.3.1"))
    assert outcomes(doctor(given), [DoctorCheck.BROKER_VERSION]) == {DoctorCheck.BROKER_VERSION: PROBLEM}


@pytest.fixture(scope="module")
def split(brokers: Brokers) -> tuple[Broker, Broker]:
    """Return a controller without tiering, and a broker that tiers."""
    controller = brokers.own(tiered=False, start=False, process_roles="controller")
    address = f"CONTROLLER://localhost:{controller.ports[1]}"
    controller.node_id = 1
    controller.settings |= {"listeners": address, "advertised.listeners": address}
    node = brokers.own(start=False, process_roles="broker")
    node.node_id, controller.voters = 2, f"1@localhost:{controller.ports[1]}"
    node.voters = controller.voters
    node.settings["listeners"] = f"PLAINTEXT://localhost:{node.ports[0]}"
    controller.launch()
    node.start()
    return controller, node


@pytest.mark.matrix
def test_a_controller_that_refuses_tiered_topics(split: tuple[Broker, Broker]) -> None:
    controller, node = split
    request = DoctorRequest(bootstrap_server=node.bootstrap, broker_config=controller.properties)
    topics = set(node.admin.list_topics(timeout=10).topics)
    found = worst(doctor(request).results, DoctorCheck.CONTROLLER_TIERS)
    assert (found.severity, "Tiered Storage functionality is disabled" in found.found) == (PROBLEM, True)
    in_file = worst(doctor(request).results, DoctorCheck.BROKER_FILE)
    assert (in_file.severity, "process.roles=controller" in in_file.found) == (PROBLEM, True)
    # The broker itself has no conflict, and the question makes no topic.
    assert set(node.admin.list_topics(timeout=10).topics) >= topics
    assert not [name for name in node.admin.list_topics(timeout=10).topics if "probe" in name]
    with pytest.raises(KafkaException, match="Tiered Storage functionality is disabled"):
        node.create_topic("tiered", tiered=True)

    # The setting alone is the fix: a controller needs no plugin.
    controller.stop()
    controller.settings["remote.log.storage.system.enable"] = "true"
    controller.launch()
    node.wait_for("the controller", lambda: doctor_finds(request, DoctorCheck.CONTROLLER_TIERS, OK))
    found_now = doctor(request).results
    assert not [each for each in found_now if "process.roles=controller," in each.found]
    node.create_topic("tiered", tiered=True)


def doctor_finds(request: DoctorRequest, check: DoctorCheck, severity: Severity) -> bool:
    return worst(doctor(request).results, check).severity is severity


@pytest.mark.matrix
def test_clients_of_the_metadata_topic_without_a_login(brokers: Brokers) -> None:
    name = "remote.log.metadata.manager.listener.name"
    node = brokers.own(secured=True, start=False)
    node.settings[name] = "SASL_SSL"
    node.launch()
    request = DoctorRequest(broker_config=node.properties)
    # Either the broker ends, or its metadata manager repeats this until it gives up.
    node.wait_for("the client's error", lambda: "Could not find a 'KafkaClient' entry" in node.said())
    found = worst(doctor(request).results, DoctorCheck.BROKER_FILE)
    assert (found.severity, "no rlmm.config.remote.log" in found.found) == (PROBLEM, True)
    node.stop(kill=True)

    prefix = "rlmm.config.remote.log.metadata.common.client."
    who = f'username="{USER}" password="{jaas_quoted(PASSWORD)}"'.replace("\\", "\\\\")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert node.certificates is not None
    node.settings |= {
        f"{prefix}sasl.mechanism": "PLAIN",
        f"{prefix}sasl.jaas.config": f"{module} required {who};",
        f"{prefix}ssl.truststore.location": str(node.certificates.truststore),
        f"{prefix}ssl.truststore.password": node.certificates.password,
    }
    node.start()
    node.wait_for("the topic", lambda: METADATA_TOPIC in node.admin.list_topics(timeout=5).topics)
    results = doctor(request).results
    assert not [each for each in results if "no rlmm.config" in each.found]


def test_internal_topics_that_are_to_be_tiered(wrong: Broker) -> None:
    request = DoctorRequest(bootstrap_server=wrong.bootstrap)
    wrong.alter_topic(METADATA_TOPIC, remote_storage_enable="true")
    found = [each for each in doctor(request).results if each.check is DoctorCheck.TOPIC_CONFLICTS]
    internal = [each for each in found if each.subject == METADATA_TOPIC]
    assert [each.found.partition(":")[0] for each in internal] == ["internal_topic_tiered"]


def test_a_topic_that_does_not_exist(wrong: Broker) -> None:
    request = DoctorRequest(bootstrap_server=wrong.bootstrap, topic=["none"])
    found = worst(doctor(request).results, DoctorCheck.TOPIC_CONFLICTS)
    assert (found.severity, found.error) == (NOT_CHECKED, ExitCode.NOT_FOUND)


NEEDED = (
    (Right("DescribeConfigs"), DoctorCheck.CLUSTER_RIGHTS, WARNING),
    (Right("Read", METADATA_TOPIC), DoctorCheck.METADATA_RIGHTS, PROBLEM),
    (Right("Write", METADATA_TOPIC), DoctorCheck.METADATA_RIGHTS, WARNING),
    (Right("Read", TOPIC), DoctorCheck.TOPIC_RIGHTS, WARNING),
    (Right("Delete", TOPIC), DoctorCheck.TOPIC_RIGHTS, WARNING),
)


@pytest.mark.matrix
def test_rights(brokers: Brokers, tmp_path: Path) -> None:
    guarded = brokers.guarded()
    for name in (TOPIC, METADATA_TOPIC):
        if name not in guarded.admin.list_topics(timeout=10).topics:
            guarded.create_topic(name)
    request = DoctorRequest(bootstrap_server=guarded.bootstrap_sasl, command_config=login(guarded, tmp_path))
    of_topics = {
        Right(operation, name)
        for name in (TOPIC, METADATA_TOPIC)
        for operation in ("Describe", "DescribeConfigs", "Read", "Write", "Delete")
    }
    everything = of_topics | {Right("DescribeConfigs"), Right("Describe")}
    rights = (*RIGHTS, DoctorCheck.CONTROLLER_CLOCK)
    allow(guarded, everything)
    assert outcomes(doctor(request), rights) == dict.fromkeys(rights, OK)
    for right, check, severity in NEEDED:
        allow(guarded, everything - {right})
        found = worst(doctor(request).results, check)
        assert (found.severity, found.fix) == (severity, right.hint), right
    # A list of all topics leaves out those that are hidden from this login: they are no missing ones.
    for name, check in (
        (METADATA_TOPIC, DoctorCheck.METADATA_SETTINGS),
        (TOPIC, DoctorCheck.TOPIC_CONFLICTS),
    ):
        allow(guarded, {right for right in everything if right.topic != name})
        found = worst(doctor(replace(request, topic=[TOPIC])).results, check)
        assert (found.error, found.fix) == (ExitCode.AUTHENTICATION, Right("Describe", name).hint)
    # Tiered topics need brokers that tier.
    allow(guarded, everything)
    assert outcomes(doctor(request), [DoctorCheck.TIERED_TOPICS])[DoctorCheck.TIERED_TOPICS] is OK


SAME = {"remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "30000"}


@pytest.mark.parametrize(
    ("other", "severity"),
    [
        (SAME, OK),
        (SAME | {"remote.log.storage.system.enable": "false"}, PROBLEM),
        (SAME | {"remote.log.manager.task.interval.ms": "1000"}, WARNING),
        (MetadataError("no answer"), NOT_CHECKED),
    ],
)
def test_brokers_that_differ(other: dict[str, str] | MetadataError, severity: Severity) -> None:
    """Use a fake cluster, because starting a second broker takes ten seconds."""
    both = [
        settings.Broker(name="broker 1", settings=SAME),
        settings.Broker(name="broker 2", settings=other),
    ]
    assert worst(settings.check_agreement(both), DoctorCheck.BROKERS_AGREE).severity is severity


@pytest.mark.parametrize(
    ("leader", "replicas", "in_sync", "version", "severity"),
    [
        (1, (1, 2, 3), (1, 2, 3), "4.4", OK),
        (1, (1, 2, 3), (1, 2), "4.4", WARNING),
        (1, (1, 2, 3), (1,), "4.4", PROBLEM),
        (None, (1, 2, 3), (), "4.4", PROBLEM),
        (1, (1,), (1,), "3.7", OK),
        (1, (1,), (1,), "3.6", PROBLEM),
    ],
)
def test_replicas_of_the_metadata_topic(
    leader: int | None, replicas: tuple[int, ...], in_sync: tuple[int, ...], version: str, severity: Severity
) -> None:
    """Use a fake cluster, because the check needs three brokers, some of them down."""
    whole = PartitionFacts(partition=0, leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3))
    other = PartitionFacts(partition=1, leader=leader, replicas=replicas, in_sync=in_sync)
    facts = TopicFacts(
        topic=METADATA_TOPIC, topic_id=Uuid.from_bytes(bytes(16)), partitions=(whole, other), is_internal=True
    )
    results = settings.check_metadata_replicas(facts, 2, KafkaVersion.parse(version))
    found = worst(results, DoctorCheck.METADATA_REPLICAS)
    assert found.severity is severity


@pytest.mark.parametrize(("is_tiering", "severity"), [(True, PROBLEM), (False, OK), (None, OK)])
def test_a_cluster_without_the_metadata_topic(is_tiering: bool | None, severity: Severity) -> None:
    found = worst(settings.missing_metadata_topic(is_tiering), DoctorCheck.METADATA_SETTINGS)
    assert found.severity is severity
    assert is_tiering is not True or "from Kafka 4.2 on they end two minutes after" in (found.why or "")
