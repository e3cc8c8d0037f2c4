"""Checks of clusters on real brokers: each once with the fault, and once without."""

import socket
from collections.abc import Iterable
from pathlib import Path

import pytest
from tierctl.commands import Diagnosis, DoctorRequest, doctor
from tierctl.commands.insight import doctor as doctor_checks
from tierctl.doctor import brokers as broker_checks
from tierctl.doctor.checks import Check
from tierctl.doctor.result import Outcome
from tierctl.errors import ExitCode, MetadataError
from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import Uuid
from tierctl.model.local import PartitionFacts, TopicFacts
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.model.times import system_clock_ms

from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, worst
from tests.live.secured import allow, login
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPIC = "doctor"


def outcomes(diagnosis: Diagnosis, checks: Iterable[Check]) -> dict[Check, Outcome]:
    return {check: worst(diagnosis.results, check).outcome for check in checks}


def kinds(diagnosis: Diagnosis, check: Check) -> set[str]:
    faults = (
        each for each in diagnosis.results if each.check is check and each.outcome in {PROBLEM, WARNING}
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
    found = doctor(where)
    assert kinds(found, Check.BROKER_CONFLICTS) == {"test_storage_manager", "tiering_default_compacted"}
    assert kinds(found, Check.METADATA_SETTINGS) == {"metadata_few_replicas", "metadata_unclean_election"}
    # Before Kafka 4.0, topics accept timestamps in the future by default (KIP-1030).
    by_default = {"future_timestamps"} if wrong.release.number < (4, 0) else set()
    assert kinds(found, Check.TOPIC_CONFLICTS) == {"unclean_leader_election"} | by_default
    assert found.exit_code is ExitCode.PARTIAL
    fine = (Check.BROKERS_AGREE, Check.METADATA_REPLICAS, Check.TIERED_TOPICS, Check.CONTROLLER_CLOCK)
    fine += (Check.CLUSTER_RIGHTS, Check.METADATA_RIGHTS, Check.TOPIC_RIGHTS, Check.EVENT_CLOCK)
    assert outcomes(found, fine) == dict.fromkeys(fine, OK)

    wrong.alter_topic(METADATA_TOPIC, retention_ms="60000", unclean_leader_election_enable="false")
    wrong.alter_topic(TOPIC, unclean_leader_election_enable="false", local_retention_bytes="-2")
    found = doctor(where)
    assert kinds(found, Check.METADATA_SETTINGS) == {"metadata_few_replicas", "metadata_retention"}
    assert kinds(found, Check.TOPIC_CONFLICTS) == {"local_retention_equals_retention"} | by_default
    wrong.alter_topic(TOPIC, unclean_leader_election_enable="false", local_retention_bytes="1")
    assert kinds(doctor(where), Check.TOPIC_CONFLICTS) == by_default


def test_the_clock_of_the_controller(wrong: Broker) -> None:
    for ahead_ms, outcome in ((60_000, WARNING), (-3_600_000, PROBLEM)):
        request = DoctorRequest(
            bootstrap_server=wrong.bootstrap, clock_ms=lambda ahead=ahead_ms: system_clock_ms() - ahead
        )
        assert outcomes(doctor(request), [Check.CONTROLLER_CLOCK]) == {Check.CONTROLLER_CLOCK: outcome}


def test_versions_of_brokers(wrong: Broker) -> None:
    asked = DoctorRequest(bootstrap_server=wrong.bootstrap)
    found = worst(doctor(asked).results, Check.BROKER_VERSION)
    assert found.subject.startswith("Kafka ")
    given = DoctorRequest(bootstrap_server=wrong.bootstrap, kafka_version=KafkaVersion.parse("4.3.1"))
    assert outcomes(doctor(given), [Check.BROKER_VERSION]) == {Check.BROKER_VERSION: PROBLEM}


def test_a_topic_that_does_not_exist(wrong: Broker) -> None:
    found = worst(
        doctor(DoctorRequest(bootstrap_server=wrong.bootstrap, topic=["none"])).results, Check.TOPIC_CONFLICTS
    )
    assert (found.outcome, found.error) == (NOT_CHECKED, ExitCode.NOT_FOUND)


NEEDED = (
    (Right("DescribeConfigs"), Check.CLUSTER_RIGHTS, WARNING),
    (Right("Read", METADATA_TOPIC), Check.METADATA_RIGHTS, PROBLEM),
    (Right("Write", METADATA_TOPIC), Check.METADATA_RIGHTS, WARNING),
    (Right("Read", TOPIC), Check.TOPIC_RIGHTS, WARNING),
    (Right("Delete", TOPIC), Check.TOPIC_RIGHTS, WARNING),
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
    rights = (Check.CLUSTER_RIGHTS, Check.METADATA_RIGHTS, Check.TOPIC_RIGHTS, Check.CONTROLLER_CLOCK)
    allow(guarded, everything)
    assert outcomes(doctor(request), rights) == dict.fromkeys(rights, OK)
    for right, check, outcome in NEEDED:
        allow(guarded, everything - {right})
        found = worst(doctor(request).results, check)
        assert (found.outcome, found.fix) == (outcome, right.hint), right
    # Tiered topics need brokers that tier.
    allow(guarded, everything)
    assert outcomes(doctor(request), [Check.TIERED_TOPICS])[Check.TIERED_TOPICS] is OK


def test_brokers_that_do_not_answer(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        alone = doctor(DoctorRequest(bootstrap_server=servers))
        assert (alone.exit_code, {each.outcome for each in alone.results}) == (
            ExitCode.RETRYABLE,
            {NOT_CHECKED},
        )
        beside = doctor(DoctorRequest(bootstrap_server=servers, state_dir=tmp_path))
        assert beside.exit_code is ExitCode.PARTIAL


SAME = {"remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "30000"}


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (SAME, OK),
        (SAME | {"remote.log.storage.system.enable": "false"}, PROBLEM),
        (SAME | {"remote.log.manager.task.interval.ms": "1000"}, WARNING),
        (MetadataError("no answer"), NOT_CHECKED),
    ],
)
def test_brokers_that_differ(other: dict[str, str] | MetadataError, outcome: Outcome) -> None:
    """Use a fake cluster, because starting a second broker takes ten seconds."""
    both = [
        broker_checks.Broker(name="broker 1", settings=SAME),
        broker_checks.Broker(name="broker 2", settings=other),
    ]
    assert worst(broker_checks.check_agreement(both), Check.BROKERS_AGREE).outcome is outcome


@pytest.mark.parametrize(
    ("leader", "in_sync", "outcome"),
    [(1, (1, 2, 3), OK), (1, (1, 2), WARNING), (1, (1,), PROBLEM), (None, (), PROBLEM)],
)
def test_replicas_of_the_metadata_topic(
    leader: int | None, in_sync: tuple[int, ...], outcome: Outcome
) -> None:
    """Use a fake cluster, because the check needs three brokers, some of them down."""
    whole = PartitionFacts(partition=0, leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3))
    other = PartitionFacts(partition=1, leader=leader, replicas=(1, 2, 3), in_sync=in_sync)
    facts = TopicFacts(
        topic=METADATA_TOPIC, topic_id=Uuid.from_bytes(bytes(16)), partitions=(whole, other), is_internal=True
    )
    assert worst(doctor_checks.check_replicas(facts, 2), Check.METADATA_REPLICAS).outcome is outcome


@pytest.mark.parametrize(("is_tiering", "outcome"), [(True, PROBLEM), (False, OK), (None, OK)])
def test_a_cluster_without_the_metadata_topic(is_tiering: bool | None, outcome: Outcome) -> None:
    assert worst(doctor_checks.missing(is_tiering), Check.METADATA_SETTINGS).outcome is outcome
