"""Brokers whose log directories are on different hosts: one saved plan, the same bytes on each of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from tierctl.cli.docs.write import schemas
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import EpochEntry, TopicPartition
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import batches, encode_batch
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    read_leader_epoch_checkpoint,
    read_partition_metadata,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.kraft import topic_record

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.commands.stopped import COUNT, LOSSES, digests, lose_events, lose_folders
from tests.locallog import made
from tests.support.cluster_metadata import (
    make_log_dir,
    partition_record,
    topic_id_in,
    write_cluster_metadata,
)
from tests.support.faults import each_kill, observed
from tests.wire.batches.same import scan

Writable = Callable[[str], Path]


class Hosts:
    """Brokers 1 and 2 have all replicas of the metadata topic, broker 3 has none; each has its own host."""

    def __init__(self, root: Path) -> None:
        self.remote = root / "remote"
        self.saved = root / "rebuild.plan"
        self.disks = {node: root / f"host-{node}" for node in (1, 2, 3)}

    @classmethod
    def of(cls, root: Path) -> "Hosts":
        made = cls(root)
        for disk in made.disks.values():
            shutil.copytree(root / "broker-2", disk)
        write_cluster_metadata({node: made.disks[node] for node in (1, 2)}, COUNT)
        cluster = "__cluster_metadata-0"
        for node in (2, 3):
            shutil.copytree(made.disks[1] / cluster, made.disks[node] / cluster)
        make_log_dir(made.disks[3], 3)
        return made

    def where(self, node: int) -> tuple[object, ...]:
        return ("--metadata", self.disks[node], "--log-dir", self.disks[node], "--remote", self.remote)

    def plan(self, *more: object, node: int = 1) -> Ran:
        return tierctl("rebuild", *self.where(node), "--plan-out", self.saved, *more)

    def apply(self, node: int, *more: object) -> Ran:
        return tierctl("apply", self.saved, *self.where(node), "--apply", *more)

    def content(self, node: int) -> dict[str, bytes]:
        """Return the files of the metadata partitions, without backups."""
        found = sorted(self.disks[node].glob(f"{METADATA_TOPIC}-*/*"))
        return {
            f"{path.parent.name}/{path.name}": path.read_bytes() for path in found if path.suffix != ".bak"
        }

    def everything(self, node: int) -> dict[str, str]:
        return digests(self.disks[node])

    def refuses(self, node: int, text: str) -> Ran:
        """Check that a host does not apply the plan, says `text`, and changes no file."""
        before = self.everything(node)
        ran = ended(self.apply(node), 4, text)
        assert self.everything(node) == before
        return ran

    def log(self, node: int, number: int) -> Path:
        (found,) = self.disks[node].glob(f"{METADATA_TOPIC}-{number}/*.log")
        return found


@pytest.fixture
def hosts(writable: Writable) -> Hosts:
    return Hosts.of(writable("unclean-leader/before"))


@pytest.fixture
def lost(hosts: Hosts) -> Hosts:
    lose_events(*hosts.disks.values())
    return hosts


def used_partition(hosts: Hosts, node: int = 1) -> int:
    sizes = {number: hosts.log(node, number).stat().st_size for number in range(COUNT)}
    return max(sizes, key=lambda number: sizes[number])


def cut_log(hosts: Hosts, node: int, records: int) -> None:
    """Remove the last records of the used metadata partition, and its indexes."""
    path = hosts.log(node, used_partition(hosts))
    data = path.read_bytes()
    path.write_bytes(data[: scan(data)[-records].position])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def lose_a_folder_here_and_the_files_there(hosts: Hosts) -> None:
    lose_events(hosts.disks[1], hosts.disks[2])
    shutil.rmtree(hosts.disks[1] / f"{METADATA_TOPIC}-0")
    epochs = hosts.disks[2] / f"{METADATA_TOPIC}-0" / LEADER_EPOCHS_FILE
    epochs.write_bytes(write_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(3, 40)]))


def lose_all_folders(hosts: Hosts) -> None:
    lose_folders(hosts.disks[1], hosts.disks[2])


def lose_the_newest(hosts: Hosts) -> None:
    # One host has a leader epoch without records, and a write that a crash interrupted.
    for node in (1, 2):
        cut_log(hosts, node, 9)
    number = used_partition(hosts)
    path = hosts.log(2, number)
    epochs = path.parent / LEADER_EPOCHS_FILE
    known = read_leader_epoch_checkpoint(epochs.read_bytes())
    end = len(scan(path.read_bytes()))
    epochs.write_bytes(write_leader_epoch_checkpoint([*known, EpochEntry(known[-1].epoch + 1, end)]))
    path.write_bytes(path.read_bytes() + b"\0\0\0\0\0\0\0")


def flip_a_bit(hosts: Hosts) -> None:
    for node in (1, 2):
        LOSSES["a bit flipped"](hosts.log(node, used_partition(hosts)).parent)


@pytest.mark.parametrize(
    "damaged", [lose_all_folders, lose_a_folder_here_and_the_files_there, lose_the_newest, flip_a_bit]
)
def test_each_host_writes_the_same_bytes(hosts: Hosts, damaged: Callable[[Hosts], None]) -> None:
    damaged(hosts)
    planned = hosts.plan().ok()
    for line in ("brokers 1, 2 have replicas", "1. copy", "to the hosts of brokers 2", "4. when the hosts"):
        assert line in planned.err
    saved = json.loads(hosts.saved.read_text())
    jsonschema.validate(saved, schemas()["plan.schema.json"])
    digest = saved["hosts"]["sha256"]
    before = hosts.everything(3)
    for node in (2, 1):
        ran = hosts.apply(node).ok()
        assert f"broker {node} have the planned digest {digest}" in ran.err
        assert "start no broker before the hosts of brokers 1, 2" in ran.summary
    assert hosts.content(1) == hosts.content(2)
    assert any(hosts.content(1).values())
    states = {json.loads(line)["state"] for line in segments(hosts)}
    assert "COPY_SEGMENT_FINISHED" in states
    assert hosts.everything(3) == before
    written = hosts.content(1)
    ended(hosts.apply(2), 0, "nothing was written", digest)
    assert hosts.content(2) == written


def segments(hosts: Hosts) -> list[str]:
    return tierctl("segments", "--metadata", hosts.disks[1], "--output", "jsonl").lines


def test_a_kill_at_any_change_of_a_file_and_a_second_run_end_in_the_same_bytes(lost: Hosts) -> None:
    assert lost.plan().code == 0
    assert lost.apply(1).code == 0
    for killed in each_kill(lambda: lost.apply(2).ok(), lost.disks[2], step=11):
        lost.apply(2).ok()
        assert lost.content(2) == lost.content(1), killed
    assert killed > 20


def truncated(hosts: Hosts) -> None:
    cut_log(hosts, 2, 1)


def longer(hosts: Hosts) -> None:
    """The host on which the plan was made had the shorter log."""
    cut_log(hosts, 1, 1)
    assert hosts.plan().code == 0


def changed(hosts: Hosts) -> None:
    """The last batch has as many records, with other times."""
    path = hosts.log(2, used_partition(hosts))
    data = path.read_bytes()
    whole = data[: scan(data)[-1].position]
    records = next(iter(batches(data[len(whole) :]))).records()
    later = [record._replace(timestamp_ms=record.timestamp_ms + 1) for record in records]
    path.write_bytes(whole + encode_batch(later))


def emptied(hosts: Hosts) -> None:
    lose_events(hosts.disks[2])


OTHER_BASES: dict[str, Callable[[Hosts], None]] = {
    "a record is missing": truncated,
    "a record more": longer,
    "another record": changed,
    "all records are missing": emptied,
}


@pytest.mark.parametrize("case", OTHER_BASES)
def test_a_host_with_another_base_writes_nothing(hosts: Hosts, case: str) -> None:
    lose_events(hosts.disks[3])
    for node in (1, 2):
        cut_log(hosts, node, 9)
    assert hosts.plan().code == 0
    OTHER_BASES[case](hosts)
    # The other partitions are as the plan states them: all or nothing.
    ran = hosts.refuses(2, f"{METADATA_TOPIC}-{used_partition(hosts)} has")
    assert "replace these folders by those of the host of broker 1" in ran.err
    preview = tierctl("apply", hosts.saved, *hosts.where(2))
    assert "--apply would refuse this" in preview.err
    # The hint's remedy.
    assert hosts.apply(1).code == 0
    for folder in hosts.disks[1].glob(f"{METADATA_TOPIC}-*"):
        shutil.rmtree(hosts.disks[2] / folder.name)
        shutil.copytree(folder, hosts.disks[2] / folder.name)
    ended(hosts.apply(2), 0, "nothing was written")
    assert hosts.content(1) == hosts.content(2)


def test_records_behind_the_base_that_the_plan_does_not_have(lost: Hosts) -> None:
    """Another run than that of the plan wrote there."""
    assert lost.plan().code == 0
    assert lost.apply(1).code == 0
    first = lost.content(1)
    lose_events(lost.disks[1], lost.disks[2])
    assert lost.plan().code == 0
    for name, data in first.items():
        (lost.disks[2] / name).write_bytes(data)
    lost.refuses(2, "has other records than the plan from offset 0 on")


def test_refused_on_the_host_of_another_broker_and_for_a_part_of_the_plan(lost: Hosts) -> None:
    assert lost.plan().code == 0
    before = [lost.everything(node) for node in (1, 2, 3)]
    ended(lost.apply(3), 4, "the plan's brokers: expected 1, 2, found 3")
    ended(lost.apply(2, "--topic", "payouts"), 2, "can't be narrowed")
    direct = tierctl("rebuild", *lost.where(2), "--apply")
    ended(direct, 4, "--plan-out", "has replicas on brokers 1, which would not get the events")
    assert tierctl("rebuild", *lost.where(2), "--apply", "--plan-out", lost.saved).code == 4
    assert [lost.everything(node) for node in (1, 2, 3)] == before


def raise_log_start(hosts: Hosts, node: int, topic: str, offset: int) -> None:
    """Let a broker have started without metadata, and raised the log start of a partition."""
    made.raise_log_start(hosts.disks[node], TopicPartition(topic, 0), offset)


def local_start(hosts: Hosts, topic: str) -> int:
    return min(int(path.stem) for path in hosts.disks[1].glob(f"{topic}-0/*.log"))


def test_log_starts_that_were_raised_on_another_host(lost: Hosts) -> None:
    raise_log_start(lost, 2, "payouts", local_start(lost, "payouts"))
    assert lost.plan().code == 0
    lost.refuses(2, "payouts-0: the log start is")
    # The host that decides is damaged: its plan is not saved without the choice.
    raise_log_start(lost, 1, "payouts", local_start(lost, "payouts"))
    lost.saved.unlink()
    ended(lost.plan(), 4, "--log-start tier")
    assert not lost.saved.exists()
    assert lost.plan("--log-start", "tier").code == 0
    for node in (1, 2):
        lost.apply(node).ok()
    assert lost.content(1) == lost.content(2)
    own = [lost.disks[node] / "payouts-0" / LEADER_EPOCHS_FILE for node in (1, 2, 3)]
    assert len({path.read_bytes() for path in own}) == 1
    ended(lost.apply(2), 0, "nothing was written")


def test_a_replica_of_another_history_may_not_lead_with_the_plan(lost: Hosts) -> None:
    path = lost.disks[2] / "payouts-0" / LEADER_EPOCHS_FILE
    entries = read_leader_epoch_checkpoint(path.read_bytes())
    first, second, *others = entries
    path.write_bytes(
        write_leader_epoch_checkpoint([first, EpochEntry(second.epoch - 1, second.start_offset), *others])
    )
    assert lost.plan().code == 0
    lost.refuses(2, "payouts-0: the log has leader epoch")


def test_the_tier_contradicts_the_plan(lost: Hosts) -> None:
    assert lost.plan().code == 0
    steps = json.loads(lost.saved.read_text())["steps"]
    gone = next(step["segment_id"] for step in steps if step["action"] == "publish_segment")
    for path in lost.remote.rglob(f"*{gone}*"):
        path.unlink()
    lost.refuses(2, f"segment {gone} has no object")


def register(hosts: Hosts, value: bytes) -> None:
    """Append a record to the cluster's metadata on the host that decides."""
    (log,) = hosts.disks[1].glob("__cluster_metadata-0/*.log")
    log.write_bytes(log.read_bytes() + encode_batch([Record(COUNT + 1, 0, None, value)]))


def test_a_broker_that_has_only_some_of_the_partitions(lost: Hosts) -> None:
    topic_id = topic_id_in(lost.disks[1])
    assert topic_id is not None
    register(lost, partition_record(topic_id, 0, [1, 2, 3]))
    ended(lost.plan(), 4, f"broker 3 has replicas of {METADATA_TOPIC}-0, but not of {METADATA_TOPIC}-1")
    assert not lost.saved.exists()


def test_a_topic_of_other_hosts_is_not_taken_for_deleted(lost: Hosts) -> None:
    """The deciding host has no replica of a topic: its absence there is no proof."""
    topic_id = read_partition_metadata((lost.disks[1] / "payouts-0/partition.metadata").read_bytes())
    for node in (1, 2):
        shutil.rmtree(lost.disks[node] / "payouts-0")
    assert lost.plan().code == 0
    assert "payouts" not in {step["topic"] for step in json.loads(lost.saved.read_text())["steps"]}
    lost.saved.unlink()
    register(lost, topic_record("payouts", topic_id))
    ended(lost.plan(), 4, "payouts (")
    assert not lost.saved.exists()


def test_the_bytes_on_the_disk_are_compared_at_the_end(lost: Hosts) -> None:
    assert lost.plan().code == 0

    def interfere(label: str, moment: str) -> None:
        if (label, moment) == ("rebuild.segments.publish", "after"):
            lost.log(2, used_partition(lost, 2)).write_bytes(b"")

    with observed(interfere):
        ended(lost.apply(2), 5, "start no broker; another program wrote there")
