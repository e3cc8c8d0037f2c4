"""`restore into` is killed before it has created the topics, and a broker is started on the node by mistake.

The only guard is that the topics are written last; there is no marker file. The broker must know no topic of
the tier, and no object may change. `restore into` must refuse the node, and complete the newly formatted one.
tests/apply/test_kill_restore.py has the kills after which the command is repeated.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.commands import Ran
from tests.live.history import TOPICS, tier
from tests.live.restoring import Lost, new_node, restore
from tests.support.broker import Broker, Brokers
from tests.support.formatted import LOGS, bootstrap_name, files, segments
from tests.support.kafka import VERSION
from tests.support.killing import SIGKILLED, Zygote, met

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

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
    site.kill(kill)
    node.start()
    node.await_idle()
    assert not {*TOPICS, "unused"} & node.admin.list_topics(timeout=30).topics.keys()
    refused = site.run()
    assert (refused.code, "a broker is running on" in refused.err) == (4, True), refused.err
    node.stop()
    refused = site.run()
    assert (refused.code, "shows that a node was started" in refused.err) == (4, True), refused.err
    assert tier(node) == before
    site.format()
    assert site.run().code == 0
    site.check_restored(kill)
