"""`restore into` is killed at each of its steps, and then a real broker is started on the node.

The tier is that of a lost cluster whose real broker copied it: two tiered topics of three leader epochs, and
a tiered topic without objects. Each run begins with the folder that `kafka-storage format` made, always the
same one, so that all runs must write the same ids and hence the same bytes. Each kill is a SIGKILL.

- `test_after_each_kill_...` makes the kills of `KILLS`: every label of the command, and the changes of files
  that it makes. Where a run meets one several times, the kill is at the middle one, so that half of the work
  is done. The same command again must exit with 0, and the node must then have the same files, byte for byte,
  as without a kill, and the same segments in its metadata topic, whose events contain the time of their run.
- `test_a_broker_serves_...` starts a broker after that, for each class of state in `STATES`. A stock consumer
  must get every record below the end of the tier: offset, timestamp, key and value, with both isolation
  levels. After the last change no second run is made. No object of the tier may change.
- `test_a_broker_that_is_started_too_early_...` starts the broker without the second run, by mistake. The only
  guard is that the topics are written last; there is no marker file. The broker must know no topic of the
  tier, and no object may change. `restore into` must refuse the node, and complete the newly formatted one.

No state has a part of meta.properties: `kafka-storage format` wrote it, and `restore into` does not.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.commands import Ran
from tests.live.history import TOPICS, served_from, tier
from tests.live.restoring import Lost, new_node, restore
from tests.live.test_materialise import expected
from tests.support.broker import Broker, Brokers
from tests.support.formatted import LOGS, bootstrap_name, files, segments
from tests.support.kafka import VERSION
from tests.support.killing import RESTORE_LABELS, SIGKILLED, Zygote, met

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

METADATA_LOG = "00000000000000000000.log"
BOOTSTRAP = Path(bootstrap_name(VERSION)).name
TORN_BYTES = 10
Kill = tuple[str, str]
"""A label and "before" or "after", or "file" and the change of a file that does not happen."""
TORN: Kill = ("file", f"fsync {METADATA_LOG}")
"""The events are written, and the test cuts the last batch: a kill or a power cut can do this."""
CREATED: Kill = ("restore.bootstrap.write", "after")
NOT_CREATED: Kill = ("file", f"rename {BOOTSTRAP}")
"""Everything is written, and the new bootstrap file, under a temporary name, is beside the old one."""
STATES: dict[str, Kill] = {
    "nothing is written": ("restore.staging.create", "before"),
    "half of the logs lack their leader epochs": ("file", "write leader-epoch-checkpoint"),
    "half of the partitions have their folders": ("restore.partition.rename", "after"),
    "the metadata log ends within a batch": TORN,
    "the topics are not created": NOT_CREATED,
    "the topics are created": CREATED,
}
KILLS: list[Kill] = [
    *((label, moment) for label in RESTORE_LABELS for moment in ("before", "after")),
    ("file", "write leader-epoch-checkpoint"),
    ("file", "write partition.metadata"),
    ("file", "rename recovery-point-offset-checkpoint"),
    ("file", "write replication-offset-checkpoint.tmp"),
    ("file", "rename leader-epoch-checkpoint"),
    ("file", f"rename {METADATA_LOG}"),
    ("file", f"write {METADATA_LOG}"),
    TORN,
    ("file", f"rename {BOOTSTRAP}.bak"),
    ("file", f"write {BOOTSTRAP}.tmp"),
    NOT_CREATED,
]


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
    ran = forked(*restore(lost, node, "--deletes-are-denied", "--apply"))
    assert ran.code == 0, ran.err
    return Site(lost, node, formatted, forked, met(ran), files(node.log_dir), segments(node.log_dir))


def test_after_each_kill_the_same_command_completes_the_node(site: Site) -> None:
    before = tier(site.node)
    for kill in KILLS:
        site.kill(kill)
        again = site.run()
        assert again.code == 0, (kill, again.err)
        site.check_restored(kill)
    assert tier(site.node) == before


@pytest.mark.parametrize("kill", STATES.values(), ids=STATES)
def test_a_broker_serves_every_record_after_a_kill(site: Site, kill: Kill) -> None:
    node, before = site.node, tier(site.node)
    site.kill(kill)
    if kill != CREATED:
        assert site.run().code == 0
    site.check_restored(kill)
    node.start()
    assert served_from(node, site.lost.cluster.starts) == expected(site.lost.cluster, site.lost.ends)
    node.stop(kill=True)
    assert tier(node) == before, "copying is disabled, and nothing is deleted"


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
