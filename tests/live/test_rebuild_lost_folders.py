"""Folders of the metadata topic are gone, brokers are stopped: `rebuild` makes them from KRaft's metadata.

No broker starts before the rebuild; afterwards a stock consumer reads every record.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in

from tests.live.commands import plan, tierctl
from tests.live.history import (
    ISOLATIONS,
    TOPICS,
    Cluster,
    batch_ends,
    check_everything,
    enable_copying,
    served,
    tier,
)
from tests.live.test_rebuild import offline
from tests.live.test_rebuild_online import rebuild_on_cluster
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def lose_folders(*log_dirs: Path) -> None:
    for log_dir in log_dirs:
        for folder in log_dir.glob(f"{METADATA_TOPIC}-*"):
            shutil.rmtree(folder)


def test_all_folders_are_lost(cluster: Cluster, twin: Broker) -> None:
    """Carried out as a saved plan: what the plan says, and no more, is written."""
    before, saved = tier(twin), twin.folder / "rebuild.plan"
    lose_folders(twin.log_dir)
    preview = tierctl(*offline(twin, "--plan-out", saved))
    assert (preview.code, f"{METADATA_TOPIC}-0, " in preview.err) == (0, True), preview.err
    assert partitions_in(twin.log_dir) == []
    where = ("--metadata", twin.log_dir, "--remote", twin.remote_dir, "--log-dir", twin.log_dir)
    done = plan("apply", saved, *where, "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    assert partitions_in(twin.log_dir) == list(range(METADATA_PARTITIONS))
    assert plan(*offline(twin))["steps"] == []
    assert tier(twin) == before
    twin.start()
    check_everything(twin, cluster, before)


def used_logs(broker: Broker) -> list[Path]:
    """Return the log files of the metadata partitions that have events."""
    found = sorted(broker.log_dir.glob(f"{METADATA_TOPIC}-*/*.log"))
    return [log for log in found if log.stat().st_size]


def damage(log: Path) -> None:
    """Overwrite bytes of the second batch."""
    data = log.read_bytes()
    at = batch_ends(data)[1] + 90
    log.write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 :])


LOSSES: dict[str, Callable[[Path], None]] = {
    "no folder": lambda log: shutil.rmtree(log.parent),
    "damaged": damage,
}
"""tests/commands/test_damaged_partitions.py has all of them, without a broker."""


@pytest.mark.parametrize("name", LOSSES)
def test_one_partition_is_lost(cluster: Cluster, twin: Broker, name: str) -> None:
    """The others stay as they are, byte for byte."""
    before = tier(twin)
    lost, *others = used_logs(twin)
    kept = {log: log.read_bytes() for log in others}
    LOSSES[name](lost)
    done = plan(*offline(twin, "--apply"))
    assert done["steps"]
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    assert {log: log.read_bytes() for log in others} == kept
    assert plan(*offline(twin))["steps"] == []
    twin.start()
    check_everything(twin, cluster, before)


def test_a_broker_with_two_disks(brokers: Brokers) -> None:
    """Each folder is made in the directory that the controller assigned to the partition."""
    broker = brokers.own(start=False)
    disks = [broker.log_dir, broker.folder / "second"]
    broker.settings["log.dirs"] = ",".join(map(str, disks))
    broker.start()
    broker.create_topic("plain", 3, tiered=True)
    for number in range(3):
        broker.produce("plain", 2500, partition=number, seed=number)
    broker.await_idle()
    records = {
        (number, how): broker.records("plain", number, isolation=how)
        for number in range(3)
        for how in ISOLATIONS
    }
    broker.stop()
    placed = [partitions_in(disk) for disk in disks]
    assert all(placed)
    lose_folders(*disks)

    rebuild = ("rebuild", "--metadata", disks[0], "--remote", broker.remote_dir, "--log-dir", disks[0])
    refused = tierctl(*rebuild, "--apply")
    assert (refused.code, "which is none of" in refused.err) == (4, True), refused.err
    done = plan(*rebuild, "--log-dir", disks[1], "--apply")
    assert {outcome["status"] for outcome in done["outcomes"]} == {"done"}
    assert [partitions_in(disk) for disk in disks] == placed
    assert plan(*rebuild, "--log-dir", disks[1])["steps"] == []
    broker.start()
    broker.await_idle()
    for (number, how), expected in records.items():
        assert broker.records("plain", number, isolation=how) == expected
    said = broker.said()
    assert "Deleted remote log segment" not in said
    assert "has been moved" not in said
    broker.stop()


def test_without_the_clusters_metadata_the_printed_steps_lead_through_the_controller(
    cluster: Cluster, twin: Broker
) -> None:
    """`--log-dir` names no copy of KRaft's metadata: the refusal prints the steps that this test does."""
    before = tier(twin)
    lose_folders(twin.log_dir)
    elsewhere = twin.folder / "__cluster_metadata-0"
    (twin.log_dir / "__cluster_metadata-0").rename(elsewhere)
    refused = tierctl(*offline(twin, "--apply"))
    assert (refused.code, "nothing here states the topic's id" in refused.err) == (4, True), refused.err
    elsewhere.rename(twin.log_dir / "__cluster_metadata-0")

    steps = [line.removeprefix("note:").strip() for line in refused.raw_err.splitlines()]
    commands = [line.split()[1:] for line in steps if line.startswith("kafka-configs.sh ")]
    assert [words[words.index("--entity-name") + 1] for words in commands] == sorted(TOPICS)
    twin.roles = "controller"
    twin.launch()
    for words in commands:
        own = [word.replace("CONTROLLER:9093", f"localhost:{twin.ports[1]}") for word in words]
        assert "Completed updating config" in twin.release.with_tools.run("kafka.admin.ConfigCommand", *own)
    twin.stop()
    twin.roles = "broker,controller"
    twin.start()
    twin.await_idle()
    assert twin.offsets("earliest", *TOPICS) == cluster.starts
    rebuild_on_cluster(twin)
    twin.restart()
    assert served(twin) == cluster.records
    enable_copying(twin)
    check_everything(twin, cluster, before)
