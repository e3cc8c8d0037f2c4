"""tierctl-recovery(7): its commands and steps run in order on a cluster that was lost."""

import re
import shlex
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.shell import environment, tierctl
from tests.docs.documents import BAD_DAY
from tests.live.history import Records, lose_metadata, run_until_damaged, served_from, set_back
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]
PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
TOPICS = ("orders", "payments")
THEN = 1500
"""The offset before which the page ends orders-0 when it restores an earlier state of the topic."""


def lines(text: str) -> Iterator[str]:
    """Return the command lines of the page's blocks, and the steps, which begin with `# `."""
    joined = re.sub(r" *\\\n\s*", " ", text)
    for line in joined.splitlines():
        if line.startswith(("$ ", "# ")):
            yield line


def records(broker: Broker, starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]) -> Records:
    """Return the records below `ends`."""
    found = served_from(broker, starts)
    return {
        (topic, number, how): [each for each in served if each[0] < ends[topic, number]]
        for (topic, number, how), served in found.items()
    }


@dataclass
class Story:
    """The cluster on which the steps of the page are carried out, and the records that it served before."""

    brokers: Brokers
    broker: Broker
    folder: Path
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    before: Records = field(default_factory=dict)
    said: str = ""
    """What the last command that names settings to set back printed on stderr."""

    def __post_init__(self) -> None:
        broker = self.broker
        broker.create_topic("orders", 2, tiered=True)
        broker.create_topic("payments", tiered=True)
        for _ in range(2):
            broker.produce("orders", 2500, batch=20)
            broker.produce("orders", 1300, partition=1)
            for number in range(5):
                broker.produce_transaction("payments", 300, commit=number % 3 != 1)
            broker.await_idle()
            broker.restart()
        broker.await_idle()
        self.starts = broker.offsets("earliest", *TOPICS)
        tiered = broker.offsets("latest-tiered", *TOPICS)
        self.ends = {key: tiered[key] + 1 for key in PARTITIONS}
        self.before = records(broker, self.starts, self.ends)

    @property
    def names(self) -> dict[str, str]:
        """Return the values that replace the names of the page."""
        return {
            "broker1:9092": self.broker.bootstrap,
            "s3://archive/tier": str(self.broker.remote_dir),
            "/var/lib/kafka/data": str(self.broker.log_dir),
            "/srv/kafka": str(self.broker.log_dir),
            "server.properties": str(self.broker.properties),
        }

    def steps(self) -> dict[str, Callable[[], None]]:
        """Return the steps of the page: actions of the operator, and events."""
        return {
            "The metadata topic is lost: stop the brokers, and start none.": self.lose_metadata,
            "Start the brokers.": self.start,
            "A broker ran without the events: stop the brokers.": self.run_without_metadata,
            "Start them, now that the files are put back.": self.start,
            # One broker here; test_rebuild_stopped.py has several.
            "The metadata topic is lost on brokers 1 and 2: stop both, and start none.": self.lose_metadata,
            "Copy rebuild.plan to the host of broker 2, then on each of the two hosts:": lambda: None,
            "Start the brokers once both hosts have printed the same digest.": self.start,
            "The cluster is lost, with its disks.": self.lose_cluster,
            "Format a new node with kafka-storage format, and do not start it.": self.format_node,
            "Start the node.": self.start,
            "Set the topics' settings back with the kafka-configs.sh commands that restore into printed.": (
                self.copy_again
            ),
            "Create orders-then, with as many partitions, and stop its brokers.": self.create_then,
            "Start the brokers again.": self.check_then,
        }

    def lose_metadata(self) -> None:
        self.broker.stop()
        lose_metadata(self.broker)

    def run_without_metadata(self) -> None:
        self.lose_metadata()
        run_until_damaged(self.broker, self.starts)

    def start(self) -> None:
        self.broker.start()
        self.check_served()

    def check_served(self) -> None:
        assert self.broker.offsets("earliest", *TOPICS) == self.starts
        assert records(self.broker, self.starts, self.ends) == self.before

    def lose_cluster(self) -> None:
        """Delete everything except the tier."""
        self.broker.stop()
        node = self.brokers.own(start=False)
        node.remote = self.broker.remote_dir
        shutil.rmtree(self.broker.log_dir)
        self.broker = node

    def format_node(self) -> None:
        self.broker.format()

    def copy_again(self) -> None:
        broker = self.broker
        assert set_back(broker, self.said) == sorted(TOPICS)
        broker.produce("orders", 2500)
        broker.await_idle()
        assert broker.offsets("latest-tiered", "orders")["orders", 0] >= self.ends["orders", 0]
        self.check_served()

    def create_then(self) -> None:
        self.broker.create_topic("orders-then", 2)
        self.broker.stop()

    def check_then(self) -> None:
        self.broker.start()
        whole = self.before["orders", 0, "read_uncommitted"]
        assert self.broker.records("orders-then") == whole[: bisect_left(whole, (THEN,))]
        assert self.broker.offsets("latest", "orders-then")["orders-then", 0] == THEN
        self.check_served()


def run(line: str, story: Story) -> None:
    """Run a command line of the page, which must succeed."""
    for name in sorted(story.names, key=len, reverse=True):
        line = line.replace(name, story.names[name])
    program, *words = shlex.split(line)
    assert program == "tierctl"
    ran = tierctl(*words, cwd=story.folder, env=environment(HOME=str(story.folder)))
    assert ran.code == 0, f"{line}\n{ran.out}\n{ran.err}"
    assert ran.out or ran.summary, line
    if "kafka-configs.sh" in ran.err:
        story.said = ran.err


def test_the_page_brings_the_records_back(brokers: Brokers, tmp_path: Path) -> None:
    story = Story(brokers=brokers, broker=brokers.own(), folder=tmp_path)
    steps = story.steps()
    for line in lines("\n".join(BAD_DAY.blocks("console"))):
        if line.startswith("# "):
            steps.pop(line[2:])()
        else:
            run(line[2:], story)
    story.broker.stop()
    assert not steps, "the page no longer has these steps"
