"""What tierctl refuses beside brokers that tier or that grant it too few rights: nothing is changed."""

import shutil
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.kafka.client_settings import ClientSettings, Right
from tierctl.metadata.server_properties import MetadataClients
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.cluster_topic import ClusterTopic
from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, Uuid
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.live.commands import assumed, base_offsets, plan, rows, tierctl, where
from tests.live.secured import allow, copied_topic, forget_tier, login
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


TOPIC = "guarded"


@pytest.fixture(scope="module")
def led(broker: Broker) -> tuple[Broker, Uuid]:
    """Return a broker that tiers and leads the topic, and has tiered all rolled segments."""
    if TOPIC not in broker.admin.list_topics(timeout=10).topics:
        broker.create_topic(TOPIC, tiered=True)
        broker.produce(TOPIC, 2500)
        broker.await_idle()
    return broker, broker.topic_id(TOPIC)


@pytest.fixture
def replica(led: tuple[Broker, Uuid], tmp_path: Path) -> Path:
    """Return a copy of the broker's log directory, on which no broker runs."""
    broker, _ = led
    folder = tmp_path / "replica"
    shutil.copytree(broker.log_dir / f"{TOPIC}-0", folder / f"{TOPIC}-0")
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint", "meta.properties"):
        shutil.copy(broker.log_dir / name, folder)
    return folder


def refused(*args: object) -> str:
    ran = tierctl(*args, "--apply")
    assert ran.code == 4, (ran.out, ran.err)
    assert "--allow-live-brokers" in ran.err, "the way out"
    return ran.err


def test_a_leader_that_tiers(led: tuple[Broker, Uuid], replica: Path) -> None:
    broker, topic_id = led
    before = base_offsets(broker, TOPIC)
    for args in (
        ("sweep", "--topic", TOPIC, "--log-start-offset", f"{TOPIC}-0=1500"),
        ("sweep", "--topic", TOPIC),
        ("copy", "--topic", TOPIC, "--log-dir", replica),
    ):
        assert "broker 7 leads it and tiers" in refused(*args, *where(broker))
        planned = tierctl(*args, *where(broker))
        assert planned.code == 0
        assert "--apply would refuse this" in planned.err
    mark = ("delete", "--mark", "--topic-id", topic_id, *where(broker))
    for more in ((), ("--apply",), ("--i-know-it-is-deleted", topic_id), ("--allow-live-brokers", "--apply")):
        ran = tierctl(*mark, *more)
        assert (ran.code, f"the cluster still has topic {TOPIC}" in ran.err) == (4, True)
    assert base_offsets(broker, TOPIC) == before
    assert all(
        row["state"] == "COPY_SEGMENT_FINISHED"
        for row in rows("segments", *where(broker)[:2], "--topic", TOPIC)
    )


def test_a_running_brokers_own_files(led: tuple[Broker, Uuid], tmp_path: Path) -> None:
    broker, _ = led
    copy = ("copy", "--remote", broker.remote_dir, *assumed(TOPIC), "--log-dir", broker.log_dir)
    assert "broker 7 leads it and tiers" in refused(*copy, "--metadata", f"kafka://{broker.bootstrap}")
    # Without a cluster, the metadata topic in its log directory shows that the broker may tier.
    aside = tmp_path / "metadata"
    ran = tierctl(*copy, "--metadata", aside, "--apply", "--allow-live-brokers")
    assert (ran.code, "is the tier of another metadata topic" in ran.err) == (4, True), ran.err
    copy = (*copy, "--adopt-tier")
    assert "may tier these partitions itself" in refused(*copy, "--metadata", aside, "--assume-enabled")
    asked = ("--metadata", aside, "--bootstrap-server", broker.bootstrap)
    assert "broker 7 leads it and tiers" in refused(*copy, *asked)
    # No option makes tierctl write the files of a running broker's metadata topic.
    for flags in ((), ("--allow-live-brokers",)):
        ran = tierctl(*copy, "--metadata", broker.log_dir, "--apply", *flags)
        assert (ran.code, "no option overrides this check" in ran.err) == (4, True)


def test_a_kept_plan_is_fenced_too(led: tuple[Broker, Uuid], tmp_path: Path) -> None:
    broker, _ = led
    kept = tmp_path / "plan.json"
    asked = ("sweep", "--topic", TOPIC, "--log-start-offset", f"{TOPIC}-0=1500", "--plan-out", kept)
    assert tierctl(*asked, *where(broker)).code == 0
    assert "broker 7 leads it" in refused("apply", kept, *where(broker))


@pytest.fixture
def secured(brokers: Brokers) -> Broker:
    """Return a broker that does not tier, and whose authorizer hides broker settings from USER."""
    broker = brokers.guarded()
    forget_tier(broker)
    allow(broker, [Right("All", "*"), Right("Describe"), Right("Create")])
    return broker


@pytest.mark.matrix
def test_settings_that_cannot_be_read_and_other_writers(
    secured: Broker, led: tuple[Broker, Uuid], tmp_path: Path
) -> None:
    # This test is the last one with this broker: its event fences the metadata partition for ten minutes.
    topic_id = copied_topic(secured, "told", tmp_path)
    sweep = ("sweep", "--topic", "told", "--log-start-offset", "told-0=1100", "--remote", secured.remote_dir)
    open_listener = ("--metadata", f"kafka://{secured.bootstrap}")
    kept = tmp_path / "plan.json"
    assert len(plan(*sweep, *open_listener, "--plan-out", kept)["steps"]) == 1
    # The tier of the plan, with the metadata topic of another cluster.
    other = ("--metadata", f"kafka://{led[0].bootstrap}", "--remote", secured.remote_dir)
    elsewhere = tierctl("apply", kept, *other, "--apply")
    assert (elsewhere.code, "the plan's metadata_topic_id: expected" in elsewhere.err) == (4, True)

    # The same cluster, for a user who may not read the brokers' settings.
    by_user = (
        "--metadata",
        f"kafka://{secured.bootstrap_sasl}",
        "--command-config",
        login(secured, tmp_path),
    )
    assert "settings can't be read" in refused(*sweep, *by_user)

    # Another broker id wrote to the same metadata partition a moment ago.
    stranger = RemoteLogSegmentMetadataUpdate(
        topic="told",
        topic_id=topic_id,
        partition=0,
        segment_id=Uuid("u6uHqOrgTh-HLODx2Wo0EA"),
        broker_id=99,
        event_timestamp_ms=time.time_ns() // 1_000_000,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    clients = MetadataClients.same(ClientSettings(bootstrap_servers=(secured.bootstrap,)))
    topic = ClusterTopic(clients, writable=True)
    number = metadata_partition(topic_id, 0, METADATA_PARTITIONS)
    topic.append([(number, encode(stranger))])
    said = refused(*sweep, *open_listener)
    assert f"broker 99 wrote to metadata partition {number}" in said
    assert "10 task intervals (" in said
    topic.append([(number, encode(replace(stranger, broker_id=-1)))])
    topic.close()

    apply = ("apply", kept, "--remote", secured.remote_dir, *open_listener, "--allow-live-brokers", "--apply")
    done = plan(*apply)
    assert [outcome["status"] for outcome in done["outcomes"]] == ["done"]
    # The log start was raised on the cluster before the first deletion.
    assert secured.offsets("earliest", "told") == {("told", 0): 1100}
    assert len(base_offsets(secured, "told")) == 2
    again = plan(*apply)
    assert [skip["reason"] for skip in again["skipped"]] == ["the segment is deleted already"]
    elsewhere = tierctl("apply", kept, *other, "--apply")
    assert (elsewhere.code, "the plan's metadata_topic_id: expected" in elsewhere.err) == (4, True)


RIGHTS_TOPIC = "rights"
RIGHTS = frozenset(
    {
        *(Right(operation, METADATA_TOPIC) for operation in ("Describe", "Read", "Write", "Create")),
        *(Right(operation, RIGHTS_TOPIC) for operation in ("Describe", "DescribeConfigs", "Read", "Delete")),
        Right("DescribeConfigs"),
    }
)
"""All rights that copy, sweep and delete need, as the manual states them."""


@pytest.fixture(scope="module")
def guarded(brokers: Brokers) -> Broker:
    """Return a broker without a metadata topic; a tier belongs to the topic of its first copy."""
    broker = brokers.guarded()
    forget_tier(broker)
    return broker


def by_user(broker: Broker, folder: Path) -> tuple[object, ...]:
    config = login(broker, folder)
    config.write_text(config.read_text() + "request.timeout.ms=10000\n")
    return (
        *("--metadata", f"kafka://{broker.bootstrap_sasl}", "--command-config", config),
        *("--remote", broker.remote_dir),
    )


def without(operations: Collection[str], topic: str | None) -> frozenset[Right]:
    return RIGHTS - {Right(operation, topic) for operation in operations}


@pytest.mark.matrix
def test_rights(guarded: Broker, tmp_path: Path) -> None:
    mine = by_user(guarded, tmp_path)

    def refused(left: frozenset[Right], missing: Right, *args: object) -> None:
        allow(guarded, left)
        ran = tierctl(*args, *mine)
        assert (ran.code, ran.out) == (ExitCode.AUTHENTICATION, ""), (missing, ran.out, ran.err)
        assert missing.hint in ran.err, (missing, ran.err)

    create = Right("Create", METADATA_TOPIC)
    copy = ("copy", "--create-metadata-topic", "--log-dir", guarded.log_dir)
    refused(RIGHTS - {create}, create, *copy, "--apply")
    assert METADATA_TOPIC not in guarded.admin.list_topics(timeout=10).topics
    copied_topic(guarded, RIGHTS_TOPIC, tmp_path)
    assert len(base_offsets(guarded, RIGHTS_TOPIC)) == 3

    sweep = ("sweep", "--log-start-offset", f"{RIGHTS_TOPIC}-0=1100", "--apply")
    for operations, topic, command in (
        (("Describe", "Read", "Write"), METADATA_TOPIC, ("segments",)),
        (("Read",), METADATA_TOPIC, ("segments",)),
        (("Write",), METADATA_TOPIC, sweep),
        (("Describe", "Read", "Delete"), RIGHTS_TOPIC, sweep),
        (("DescribeConfigs",), RIGHTS_TOPIC, sweep),
    ):
        refused(without(operations, topic), Right(operations[0], topic), *command)
    allow(guarded, without({"DescribeConfigs"}, None))
    ran = tierctl(*sweep, *mine)
    assert (ran.code, "settings can't be read" in ran.err) == (ExitCode.REFUSED, True)
    allow(guarded, without({"Delete"}, RIGHTS_TOPIC))
    ran = tierctl(*sweep, *mine)
    assert (ran.code, Right("Delete", RIGHTS_TOPIC).hint in ran.err) == (ExitCode.AUTHENTICATION, True), (
        ran.err
    )
    # Nothing was changed, not even the log start.
    assert guarded.offsets("earliest", RIGHTS_TOPIC) == {(RIGHTS_TOPIC, 0): 0}
    listed = rows("segments", *where(guarded)[:2], "--topic", RIGHTS_TOPIC)
    assert [row["state"] for row in listed] == ["COPY_SEGMENT_FINISHED"] * 3

    # The other rights are sufficient.
    allow(guarded, RIGHTS)
    done = plan(*sweep, *mine)
    assert [outcome["status"] for outcome in done["outcomes"]] == ["done"]
    assert guarded.offsets("earliest", RIGHTS_TOPIC) == {(RIGHTS_TOPIC, 0): 1100}
