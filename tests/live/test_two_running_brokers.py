"""Two brokers lose the metadata topic, and the lines of README and tierctl-recovery(7) are run as printed."""

import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC

from tests.cli.shell import Ran, tierctl
from tests.docs.documents import BAD_DAY
from tests.docs.running import replaced
from tests.live.history import ISOLATIONS, lose_metadata
from tests.live.test_bad_day import lines
from tests.live.test_rebuild_online import RESTART, run_readmes_lines
from tests.live.test_restore_check import check
from tests.live.test_several_brokers import METADATA_SETTINGS, in_sync, leader_of
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
TOPIC = "both"
FACTOR = "rlmm.config.remote.log.metadata.topic.replication.factor"

Served = dict[tuple[int, str], list[tuple[int, int, bytes | None, bytes | None]]]


def made_history(brokers: Brokers) -> list[Broker]:
    """Brokers 1 and 2, each the leader of one partition of a topic of several epochs, and a controller."""
    nodes = brokers.cluster(3, tiered=True, start=False, transaction_state_log_replication_factor="2")
    nodes[2].roles = "controller"
    for node in nodes:
        node.settings |= {**METADATA_SETTINGS, FACTOR: "2"}
    launch(nodes)
    nodes[0].create_topic(TOPIC, 2, replicas=2, tiered=True)
    for seed in (1, 2):
        fill(nodes[0], seed)
        roll(nodes[:2])
    elect = ("--election-type", "preferred", "--all-topic-partitions")
    nodes[0].tool("org.apache.kafka.tools.LeaderElectionCommand", *elect)
    nodes[0].wait_for("two leaders", lambda: {leader_of(nodes[0], TOPIC, each) for each in (0, 1)} == {1, 2})
    fill(nodes[0], 3)
    return nodes


def launch(nodes: list[Broker]) -> None:
    for node in nodes:
        node.launch()
    for node in nodes[:2]:
        node.await_up()


def fill(broker: Broker, seed: int) -> None:
    for partition in (0, 1):
        broker.produce(TOPIC, 1300, partition=partition, seed=10 * seed + partition, acks="all")
        for commit in (True, False):
            broker.produce_transaction(TOPIC, 60, partition=partition, commit=commit)
    broker.await_idle()


def roll(nodes: list[Broker]) -> None:
    """Restart one broker after the other, as an operator does."""
    for node in nodes:
        node.restart()
        await_in_sync(node)


def await_in_sync(asked: Broker) -> None:
    for topic in (TOPIC, METADATA_TOPIC):
        asked.wait_for("replicas in sync", partial(is_in_sync, asked, topic), 120)


def is_in_sync(asked: Broker, topic: str) -> bool:
    return in_sync(asked, topic) == 2


def leads_everything(node: Broker) -> bool:
    topics = {TOPIC: 2, METADATA_TOPIC: METADATA_PARTITIONS}
    led = [(topic, number) for topic, count in topics.items() for number in range(count)]
    return {leader_of(node, *each) for each in led} == {node.node_id}


def served(broker: Broker) -> Served:
    assert broker.offsets("earliest", TOPIC) == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    return {
        (number, how): broker.records(TOPIC, number, isolation=how) for number in (0, 1) for how in ISOLATIONS
    }


def check_each_alone(nodes: list[Broker], records: Served) -> None:
    """Each of the brokers serves every record while the other one is down; then new ones are tiered, too."""
    for down, left in (nodes, nodes[::-1]):
        down.stop(kill=True)
        left.wait_for("one leader", partial(leads_everything, left), 120)
        assert served(left) == records
        down.start()
        await_in_sync(left)
    before = nodes[0].offsets("latest-tiered", TOPIC)
    fill(nodes[0], 9)
    after = nodes[0].offsets("latest-tiered", TOPIC)
    assert all(after[key] > before[key] for key in before)
    found = served(nodes[0])
    assert {key: found[key][: len(each)] for key, each in records.items()} == records


def test_the_readmes_lines_on_two_running_brokers(brokers: Brokers) -> None:
    nodes = made_history(brokers)
    asked, both = nodes[0], nodes[:2]
    records = served(asked)
    asked.delete_topic(METADATA_TOPIC)
    said = run_readmes_lines(asked, TOPIC, replicas=2)
    assert RESTART in said.raw_err
    assert served(asked) == records
    found = check(asked)
    # The topic's id decides in which metadata partitions its events are, and so which brokers lead them.
    said_of = re.search(r"brokers \[(1|2|1, 2)\] were not restarted", found.text("restarts"))
    assert (found.code, said_of is not None) == (3, True), found.rows
    roll(both)
    found = check(asked)
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert served(asked) == records
    asked.alter_topic(TOPIC, remote_log_copy_disable="false", local_retention_bytes="1")
    check_each_alone(both, records)


def run_on(node: Broker, line: str, folder: Path) -> Ran:
    """Run a line of the page on the host of a broker, which has this folder alone."""
    names = {"/var/lib/kafka/data": node.log_dir, "s3://archive/tier": node.remote_dir}
    program, *words = shlex.split(replaced(line, names))
    ran = tierctl(*words, cwd=folder)
    assert (program, ran.code) == ("tierctl", 0), ran.err
    return ran


def test_the_pages_lines_for_brokers_on_different_hosts(brokers: Brokers, tmp_path: Path) -> None:
    nodes = made_history(brokers)
    both = nodes[:2]
    hosts = [tmp_path / str(node.node_id) for node in both]
    records = served(nodes[0])
    (block,) = (each for each in BAD_DAY.blocks("console") if "on brokers 1 and 2" in each)
    stop_both, plan, _, apply, _ = lines(block)
    assert stop_both.startswith("# The metadata topic is lost on brokers 1 and 2: stop both")
    for node in nodes:
        node.stop(kill=True)
    for node, host in zip(both, hosts, strict=True):
        lose_metadata(node)
        host.mkdir()
    run_on(both[0], plan[2:], hosts[0])
    shutil.copy(hosts[0] / "rebuild.plan", hosts[1])
    said = [run_on(node, apply[2:], host) for node, host in zip(both, hosts, strict=True)]
    digests = [re.findall(r"\b[0-9a-f]{64}\b", each.raw_err + each.out) for each in said]
    assert digests[0] == digests[1] != [], [each.err for each in said]
    launch(nodes)
    await_in_sync(nodes[0])
    found = check(nodes[0])
    assert (found.code, found.found("error")) == (0, {}), (found.rows, found.err)
    assert served(nodes[0]) == records
    check_each_alone(both, records)
