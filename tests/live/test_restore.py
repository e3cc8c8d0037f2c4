"""A cluster is lost; a formatted node serves its topics from the tier, also after a kill (b1)."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.commands import Ran, applied, on_disk, plan, refused, tierctl
from tests.live.history import (
    PARTITIONS,
    TOPICS,
    Cluster,
    Lost,
    await_damage,
    check_everything,
    disable_copying,
    enable_copying,
    new_node,
    restore,
    seeks,
    served,
    set_back,
    tier,
)
from tests.live.history import epoch_starts as epoch_starts_of
from tests.live.replicas import await_in_sync, elect_preferred, launch, leader_of, stop
from tests.live.test_materialise import expected
from tests.live.test_restore_check import check_over_election
from tests.support.broker import Broker, Brokers
from tests.support.formatted import LOGS, bootstrap_name, files, segments
from tests.support.kafka import VERSION
from tests.support.killing import SIGKILLED, Zygote, met

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def check_goes_on(node: Broker, lost: Lost, before: dict[str, int]) -> None:
    """Check that the node has the lost records, and tiers, expires and deletes; then stop it."""
    node.delete_topic("unused")
    records = expected(lost.cluster, lost.ends)
    check_everything(node, Cluster(broker=node, records=records, starts=lost.cluster.starts), before)
    node.stop()


def test_b4_the_metadata_are_published_to_the_started_node(lost: Lost, brokers: Brokers) -> None:
    node = new_node(lost, brokers)
    before = tier(node)
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--publish-later", "--apply"))
    assert (ran.code, "tierctl rebuild --metadata kafka://" in ran.err) == (0, True), ran.err
    assert not list(node.log_dir.glob("__remote_log_metadata-*"))
    assert plan(*restore(lost, node, "--publish-later"))["steps"] == []

    node.start()
    node.await_idle()
    topics = (word for topic in TOPICS for word in ("--topic", topic))
    rebuild = ("rebuild", "--metadata", f"kafka://{node.bootstrap}", "--remote", node.remote_dir, *topics)
    applied(*rebuild, "--broker-config", node.properties, "--apply")
    records = expected(lost.cluster, lost.ends)
    assert node.offsets("earliest", *TOPICS) == lost.cluster.starts
    node.wait_for(
        "the published segments", lambda: node.records("plain") == records["plain", 0, "read_uncommitted"]
    )
    seeks(node, records, epoch_starts_of(node))
    assert tier(node) == before, "copying is disabled, and nothing is deleted"

    enable_copying(node)
    check_goes_on(node, lost, before)


def test_bempty_copying_was_on_before_the_metadata_were_published(lost: Lost, brokers: Brokers) -> None:
    """The leaders raised the log starts: nothing is published to them until these are put back."""
    node = new_node(lost, brokers)
    before = tier(node)
    tierctl(*restore(lost, node, "--deletes-are-denied", "--publish-later", "--apply")).ok()
    node.start()
    enable_copying(node)
    await_damage(node, lost.cluster.starts)
    disable_copying(node)
    topics = tuple(word for topic in TOPICS for word in ("--topic", topic))
    online = ("rebuild", "--metadata", f"kafka://{node.bootstrap}", "--remote", node.remote_dir, *topics)
    reason = "a broker that knew no segments may have raised it"
    assert reason in refused(*online, "--broker-config", node.properties)
    node.stop()
    assert reason in refused("rebuild", *on_disk(node), *topics)
    assert tier(node) == before
    plan("rebuild", *on_disk(node), *topics, "--log-start", "tier", "--apply")

    node.start()
    enable_copying(node)
    check_goes_on(node, lost, before)


def test_b1_a_new_node_serves_the_tier_under_the_old_ids(lost: Lost, brokers: Brokers) -> None:
    node = new_node(lost, brokers)
    before = tier(node)
    assert "it is not proven that the objects" in refused(*restore(lost, node))
    assert not list(node.log_dir.glob("*-0/*.log"))
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply")).ok()
    assert plan(*restore(lost, node))["steps"] == []
    assert tier(node) == before

    node.start()
    records = expected(lost.cluster, lost.ends)
    assert node.offsets("earliest", *TOPICS) == lost.cluster.starts
    seeks(node, records, epoch_starts_of(node))
    node.stop(kill=True)
    node.start()
    node.await_idle()
    assert tier(node) == before, "copying is disabled, and nothing is deleted"
    # Topics without objects in the tier: tiered ones are restored with their partitions, others are not.
    assert {("unused", 0), ("unused", 1)} == set(node.offsets("latest", "unused"))
    assert not node.offsets("latest", "local")
    assert "a broker is running on" in refused(*restore(lost, node, "--deletes-are-denied"))

    assert set_back(node, ran.raw_err) == ["plain", "tx", "unused"]
    node.produce_transaction("tx", 50)
    check_goes_on(node, lost, before)
    assert "shows that a node was started" in refused(*restore(lost, node, "--deletes-are-denied"))


def second_broker(brokers: Brokers, node: Broker) -> Broker:
    """Start a second broker, which is no controller, in the cluster of `node`."""
    made = brokers.own(start=False)
    made.node_id, made.voters = node.node_id + 1, f"{node.node_id}@localhost:{node.ports[1]}"
    made.remote = node.remote_dir
    made.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{made.bootstrap}"}
    made.start()
    return made


def assign(broker: Broker, replicas: list[Broker]) -> None:
    """Give every partition these replicas; the first one is elected if it is in sync."""
    ids = [each.node_id for each in replicas]
    wanted = [{"topic": topic, "partition": number, "replicas": ids} for topic, number in PARTITIONS]
    file = broker.folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    broker.tool(tool, "--reassignment-json-file", str(file), "--execute")


def test_rep_a_second_broker_builds_its_replicas_from_the_tier(lost: Lost, brokers: Brokers) -> None:
    """Only the first broker was prepared; the second one joins the replicas, leads, and is then alone."""
    node = new_node(lost, brokers)
    before = tier(node)
    ran = tierctl(*restore(lost, node, "--deletes-are-denied", "--apply"))
    assert (ran.code, "add others by reassignment" in ran.err) == (0, True), ran.err
    node.start()
    other = second_broker(brokers, node)
    assign(node, [node, other])
    await_in_sync(node, *TOPICS, replicas=2)
    records = expected(lost.cluster, lost.ends)

    def elect() -> None:
        assign(node, [other, node])
        elect_preferred(node)

    found = check_over_election(node, elect)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert found.found("ok")["election"] == set(PARTITIONS)
    assert {leader_of(node, *key) for key in PARTITIONS} == {other.node_id}
    assert other.offsets("earliest", *TOPICS) == lost.cluster.starts
    assert served(other) == records
    assert "caused truncation" not in other.said()

    assign(node, [other])
    node.wait_for("one replica", lambda: not list(node.log_dir.glob("plain-?/*.log")), 120)
    assert tier(node) == before, "copying is disabled, and nothing is deleted"
    enable_copying(other)
    check_goes_on(other, lost, before)
    node.stop()


def test_several_controllers_have_the_records_of_the_restored_topics(lost: Lost, brokers: Brokers) -> None:
    """The bootstrap file is copied to the other controllers; then the prepared node is lost."""
    nodes = brokers.cluster(3, tiered=True, start=False)
    first = nodes[0]
    shutil.copytree(lost.cluster.broker.remote_dir, first.remote_dir)
    before = tier(first)
    ran = tierctl(*restore(lost, first, "--deletes-are-denied", "--apply"))
    assert (ran.code, "each of the other 2 controllers" in ran.err) == (0, True), ran.err
    (name,) = (found.relative_to(first.log_dir) for found in first.log_dir.rglob("*.checkpoint"))
    for each in nodes[1:]:
        shutil.copy(first.log_dir / name, each.log_dir / name)
    launch(nodes[1:])
    first.start()
    assert not list(first.log_dir.glob("*-stray"))
    assign(first, nodes)
    await_in_sync(first, *TOPICS)
    assert first.offsets("earliest", *TOPICS) == lost.cluster.starts
    first.stop(kill=True)
    left = nodes[1]
    left.wait_for("other leaders", lambda: not {leader_of(left, *key) for key in PARTITIONS} & {-1, 1})
    records = expected(lost.cluster, lost.ends)
    assert left.offsets("earliest", *TOPICS) == lost.cluster.starts
    assert served(left) == records
    assert tier(left) == before, "copying is disabled, and nothing is deleted"
    stop(nodes[1:])


METADATA_LOG = "00000000000000000000.log"
BOOTSTRAP = Path(bootstrap_name(VERSION)).name
TORN_BYTES = 10
Kill = tuple[str, str]
"""A label and "before" or "after", or "file" and the change of a file that does not happen."""
TORN: Kill = ("file", f"fsync {METADATA_LOG}")
"""The events are written, and the test cuts the last batch: a kill or a power cut can do this."""
NOT_CREATED: Kill = ("file", f"rename {BOOTSTRAP}")
"""Everything is written, and the new bootstrap file, under a temporary name, is beside the old one."""


@dataclass(frozen=True)
class Site:
    """A node, the folder that `kafka-storage format` made for it, and what a run without a kill left."""

    lost: Lost
    node: Broker
    formatted: Path
    forked: Zygote
    counts: dict[tuple[str, str], int]
    files: dict[str, bytes]
    segments: set[tuple[object, ...]]

    def format(self) -> None:
        """Give the node the folder after `kafka-storage format` again."""
        shutil.rmtree(self.node.log_dir)
        shutil.copytree(self.formatted, self.node.log_dir)

    def run(self, *kills: list[object]) -> Ran:
        """Run `restore into` in a process of its own."""
        command = restore(self.lost, self.node, "--deletes-are-denied", "--apply")
        return self.forked(*command, kills=list(kills))

    def kill(self, kill: Kill) -> None:
        """Format the node, and kill a run at the middle one of the moments `kill`."""
        self.format()
        ran = self.run([*kill, (self.counts[kill] + 1) // 2])
        assert ran.code == SIGKILLED, (kill, ran.err)
        if kill == TORN:
            logs = self.node.log_dir.glob(f"{LOGS}*/{METADATA_LOG}")
            last = max(logs, key=lambda log: log.stat().st_mtime_ns)
            last.write_bytes(last.read_bytes()[:-TORN_BYTES])

    def check_restored(self, kill: Kill) -> None:
        """Check that the node has what a run without a kill leaves."""
        assert files(self.node.log_dir) == self.files, kill
        assert segments(self.node.log_dir) == self.segments, kill
        assert not list(self.node.log_dir.glob("*-delete")), kill


@pytest.fixture(scope="module")
def site(lost: Lost, brokers: Brokers, forked: Zygote) -> Site:
    node = new_node(lost, brokers)
    formatted = Path(shutil.copytree(node.log_dir, node.folder / "formatted"))
    ran = forked(*restore(lost, node, "--deletes-are-denied", "--apply")).ok()
    return Site(lost, node, formatted, forked, met(ran), files(node.log_dir), segments(node.log_dir))


@pytest.mark.parametrize("kill", [TORN, NOT_CREATED], ids=["within a batch", "before the topics"])
def test_a_broker_that_is_started_too_early_deletes_nothing(site: Site, kill: Kill) -> None:
    node, before = site.node, tier(site.node)
    command = restore(site.lost, node, "--deletes-are-denied")
    site.kill(kill)
    node.start()
    node.await_idle()
    assert not {*TOPICS, "unused"} & node.admin.list_topics(timeout=30).topics.keys()
    assert "a broker is running on" in refused(*command)
    node.stop()
    assert "shows that a node was started" in refused(*command)
    assert tier(node) == before
    site.format()
    assert site.run().code == 0
    site.check_restored(kill)
