"""Stopped brokers lose folders of the metadata topic, the whole topic, or leader epochs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in

from tests.cli.shell import Ran
from tests.commands.stopped import lose_folders
from tests.live.commands import applied, on_disk, plan, refused, tierctl
from tests.live.history import (
    ISOLATIONS,
    TOPICS,
    Cluster,
    check_everything,
    cut_epochs,
    enable_copying,
    lose_metadata,
    served,
    served_from,
    tier,
)
from tests.live.replicas import (
    TOPIC,
    await_in_sync,
    check_served,
    leader_of,
    made_history,
    run_without_events,
    start,
    stop,
)
from tests.live.test_rebuild import offline
from tests.live.test_rebuild_online import rebuild_on_cluster
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def test_all_folders_are_lost(cluster: Cluster, twin: Broker) -> None:
    """Carried out as a saved plan: what the plan says, and no more, is written."""
    before, saved = tier(twin), twin.folder / "rebuild.plan"
    lose_folders(twin.log_dir)
    preview = tierctl(*offline(twin, "--plan-out", saved))
    assert (preview.code, f"{METADATA_TOPIC}-0, " in preview.err) == (0, True), preview.err
    assert partitions_in(twin.log_dir) == []
    applied("apply", saved, *on_disk(twin), "--apply")
    assert partitions_in(twin.log_dir) == list(range(METADATA_PARTITIONS))
    assert plan(*offline(twin))["steps"] == []
    assert tier(twin) == before
    twin.start()
    check_everything(twin, cluster, before)


def used_logs(broker: Broker) -> list[Path]:
    """Return the log files of the metadata partitions that have events."""
    found = sorted(broker.log_dir.glob(f"{METADATA_TOPIC}-*/*.log"))
    return [log for log in found if log.stat().st_size]


def test_one_partition_is_lost(cluster: Cluster, twin: Broker) -> None:
    """The others stay as they are, byte for byte; tests/commands/test_lost_folders.py has other losses."""
    before = tier(twin)
    lost, *others = used_logs(twin)
    kept = {log: log.read_bytes() for log in others}
    shutil.rmtree(lost.parent)
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
    starts = broker.offsets("earliest", "plain")
    records = served_from(broker, starts)
    broker.stop()
    placed = [partitions_in(disk) for disk in disks]
    assert all(placed)
    lose_folders(*disks)

    rebuild = ("rebuild", "--metadata", disks[0], "--remote", broker.remote_dir, "--log-dir", disks[0])
    assert "which is none of" in refused(*rebuild)
    applied(*rebuild, "--log-dir", disks[1], "--apply")
    assert [partitions_in(disk) for disk in disks] == placed
    assert plan(*rebuild, "--log-dir", disks[1])["steps"] == []
    broker.start()
    broker.await_idle()
    assert served_from(broker, starts) == records
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


def metadata_logs(node: Broker) -> dict[str, bytes]:
    found = sorted(node.log_dir.glob(f"{METADATA_TOPIC}-*/*"))
    files = (path for path in found if path.name.endswith((".log", "leader-epoch-checkpoint")))
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def led_by(asked: Broker, node: Broker) -> bool:
    """Return whether a broker leads the topic, or a partition of the metadata topic."""
    leaders = {leader_of(asked, METADATA_TOPIC, number) for number in range(METADATA_PARTITIONS)}
    return node.node_id in leaders | {leader_of(asked, TOPIC, 0)}


@pytest.mark.parametrize("ran_without", [False, True], ids=["none started since", "all ran without events"])
def test_each_host_applies_the_plan(brokers: Brokers, ran_without: bool) -> None:
    nodes = made_history(brokers)
    records = {how: nodes[0].records(TOPIC, isolation=how) for how in ISOLATIONS}
    stop(nodes)
    for node in nodes:
        lose_metadata(node)
    more: tuple[str, ...] = ()
    raised: list[Broker] = []
    if ran_without:
        raised = run_without_events(nodes)
        for node in nodes:
            lose_metadata(node)
        more = ("--log-start", "tier")
    shutil.rmtree(nodes[1].log_dir / f"{METADATA_TOPIC}-{METADATA_PARTITIONS - 1}")

    assert "--plan-out" in refused("rebuild", *on_disk(nodes[0]), *more)
    saved = nodes[0].folder / "rebuild.plan"
    planned = tierctl("rebuild", *on_disk(nodes[0]), *more, "--plan-out", saved)
    assert (planned.code, "brokers 1, 2, 3 have replicas" in planned.err) == (0, True), planned.err
    for node in reversed(nodes):
        done = applied("apply", saved, *on_disk(node), "--apply")
        put_back = [step["log_dir"] for step in done["steps"] if step["action"] == "write_checkpoints"]
        assert put_back == ([str(node.log_dir)] if node in raised else [])
    logs = [metadata_logs(node) for node in nodes]
    assert logs[0] == logs[1] == logs[2]
    assert any(logs[0].values())

    start(nodes)
    check_served(nodes, records)
    for node in nodes:
        others = [each for each in nodes if each is not node]
        node.stop(kill=True)
        others[0].wait_for("other leaders", lambda node=node, asked=others[0]: not led_by(asked, node))
        check_served(others, records)
        node.start()
        await_in_sync(others[0], TOPIC, METADATA_TOPIC)
    stop(nodes)


def checkpoint(broker: Broker) -> Path:
    return broker.log_dir / "plain-0" / "leader-epoch-checkpoint"


def in_tier(broker: Broker) -> list[int]:
    """Return the start offsets of the tiered segments of plain-0."""
    return sorted(
        int(log.name[:20]) for log in broker.remote_dir.glob("kafka-tiered-storage/plain-0-*/*.log")
    )


def asked(broker: Broker, *words: object) -> Ran:
    where = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir, "--output", "jsonl")
    return tierctl(*words, *where)


def of_plain(ran: Ran) -> list[dict[str, Any]]:
    found = ran.rows
    return [row for row in found if row["topic"] == "plain" and row["partition"] == 0]


def predicted(broker: Broker) -> list[int]:
    """Return the start offsets of the segments that the broker would delete, says `explain`."""
    deleted = [
        row for row in of_plain(asked(broker, "explain", "plain", 0)) if row["next_action"] == "delete"
    ]
    assert all("once it leads with the cut leader epochs" in row["reason"] for row in deleted)
    return sorted(row["start_offset"] for row in deleted)


def test_a_broker_deletes_what_explain_predicts(twin: Broker) -> None:
    assert predicted(twin) == []
    cut_epochs(twin, "plain")
    lost, whole = predicted(twin), in_tier(twin)
    assert lost
    twin.start()
    twin.wait_for("the deletes", lambda: in_tier(twin) == [at for at in whole if at not in lost])
    twin.await_idle()
    assert in_tier(twin) == [at for at in whole if at not in lost]


def test_a_repaired_checkpoint_loses_nothing(cluster: Cluster, twin: Broker) -> None:
    before, whole = tier(twin), checkpoint(twin).read_bytes()
    cut_epochs(twin, "plain")
    assert "plain-0: " in refused(*offline(twin))
    done = plan(*offline(twin, "--log-start", "tier", "--apply"))
    assert [(o["status"], o["action"]) for o in done["outcomes"]] == [("done", "write_checkpoints")]
    assert checkpoint(twin).read_bytes() == whole
    assert plan(*offline(twin))["steps"] == []
    assert predicted(twin) == []
    twin.start()
    check_everything(twin, cluster, before)
