"""The metadata topic of stopped brokers is lost or damaged in part: `rebuild` changes no other file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.model import Uuid
from tierctl.wire.kraft import topic_record

from tests.cli.shell import Ran, tierctl
from tests.commands.test_rebuild import digests, metadata_bytes
from tests.commands.test_rebuild_hosts import Hosts, batch_sizes
from tests.support.amounts import rest_in_matrix
from tests.support.cluster_metadata import (
    make_log_dir,
    partition_record,
    topic_id_in,
    write_cluster_metadata,
    write_records,
)
from tests.support.faults import each_kill

Writable = Callable[[str], Path]
COUNT = 3
SECOND_DISK = "broker-1-second"
ON_SECOND_DISK = 0
"""The partition that broker 1 has on its second disk; it has all events of the capture."""


def disk_id(node: int, *, second: bool = False) -> Uuid:
    return Uuid.from_bytes(bytes([node, second] * 8))


def assigned(number: int, node: int) -> Uuid:
    return disk_id(node, second=node == 1 and number == ON_SECOND_DISK)


class Disks:
    """Three stopped brokers that lost all replicas of the metadata topic; broker 1 has two disks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.topic_id = topic_id_in(root / "broker-1")
        self.log_dirs = [root / f"broker-{node}" for node in (1, 2, 3)]
        self.second = root / SECOND_DISK

    @classmethod
    def lost(cls, root: Path) -> "Disks":
        made = cls(root)
        brokers = dict(enumerate(made.log_dirs, 1))
        write_cluster_metadata(brokers, COUNT, directory_of=assigned)
        for node, log_dir in brokers.items():
            make_log_dir(log_dir, node, disk_id(node))
        make_log_dir(made.second, 1, disk_id(1, second=True))
        for log_dir in made.log_dirs:
            for folder in log_dir.glob(f"{METADATA_TOPIC}-*"):
                shutil.rmtree(folder)
        return made

    def where(self, *, first: int = 0) -> tuple[object, ...]:
        logs = [word for path in (*self.log_dirs, self.second) for word in ("--log-dir", path)]
        return ("--metadata", self.log_dirs[first], "--remote", self.root / "remote", *logs)

    def rebuild(self, *more: object) -> Ran:
        return tierctl("rebuild", *self.where(), *more)

    def content(self) -> list[dict[str, bytes]]:
        """Return the metadata partitions of each broker."""
        found = [metadata_bytes(log_dir) for log_dir in self.log_dirs]
        found[0] |= metadata_bytes(self.second)
        return found

    def everything(self) -> dict[str, str]:
        return {path: digest for path, digest in digests(self.root).items() if not path.endswith(".lock")}


@pytest.fixture
def disks(writable: Writable) -> Disks:
    return Disks.lost(writable("unclean-leader/before"))


def check_made(disks: Disks) -> None:
    assert partitions_in(disks.second) == [ON_SECOND_DISK]
    assert partitions_in(disks.log_dirs[0]) == [n for n in range(COUNT) if n != ON_SECOND_DISK]
    for log_dir in (*disks.log_dirs, disks.second):
        assert {topic_id_in(log_dir, number) for number in partitions_in(log_dir)} == {disks.topic_id}
    first, *others = disks.content()
    assert others == [first, first]
    assert len(first) == COUNT
    assert sum(map(len, first.values())) > 5000


def test_other_commands_read_the_partitions_of_a_broker_on_several_disks(disks: Disks) -> None:
    assert disks.rebuild("--apply").code == 0
    first, other, _ = disks.log_dirs
    read = ("segments", "--output", "jsonl", "--metadata")
    on_one = tierctl(*read, other)
    on_two = tierctl(*read, first, "--log-dir", first, "--log-dir", disks.second)
    assert (on_two.code, on_two.lines) == (0, on_one.lines), on_two.err
    assert on_two.lines
    lacking = tierctl(*read, first, "--log-dir", other)
    assert (lacking.code, f"none numbered {ON_SECOND_DISK}" in lacking.err) == (7, True), lacking.err


@pytest.mark.parametrize("how", ["at once", "saved plan"])
def test_the_folders_are_made_where_the_controller_assigned_them(
    disks: Disks, tmp_path: Path, how: str
) -> None:
    planned = disks.rebuild("--plan-out", tmp_path / "plan.json")
    assert (planned.code, f"{disks.second} lacks {METADATA_TOPIC}-{ON_SECOND_DISK}, or" in planned.err) == (
        0,
        True,
    )
    assert disks.content() == [{}, {}, {}]
    if how == "at once":
        ran = disks.rebuild("--apply")
    else:
        ran = tierctl("apply", tmp_path / "plan.json", *disks.where(), "--apply")
    assert ran.code == 0, ran.err
    check_made(disks)
    again = disks.rebuild("--apply", "--output", "json")
    assert (again.code, again.json["steps"]) == (0, []), again.err


def test_a_kill_at_any_change_of_a_file_and_a_second_run_make_them(disks: Disks, tmp_path: Path) -> None:
    backup = shutil.copytree(disks.root, tmp_path / "lost")

    def reset() -> None:
        shutil.rmtree(disks.root)
        shutil.copytree(backup, disks.root)

    for killed in each_kill(lambda: disks.rebuild("--apply").ok(), reset, step=29):
        disks.rebuild("--apply").ok()
        check_made(disks)
        assert disks.rebuild("--apply").code == 0, killed
    assert killed > 60


def test_the_directory_that_is_assigned_must_be_named(disks: Disks) -> None:
    before = disks.everything()
    ran = tierctl("rebuild", *disks.where()[:-2], "--apply")
    assert (ran.code, f"directory.id={disk_id(1, second=True)}" in ran.err) == (4, True), ran.err
    assert disks.everything() == before


def test_the_newest_copy_of_the_clusters_metadata_decides(disks: Disks) -> None:
    """Another broker's copy ends before the last partition was made."""
    assert disks.topic_id is not None
    older = [topic_record(METADATA_TOPIC, disks.topic_id)]
    older += [partition_record(disks.topic_id, number, (1, 2, 3)) for number in range(COUNT - 1)]
    write_records(disks.log_dirs[1], older)
    disks.rebuild("--apply").ok()
    check_made(disks)


@pytest.mark.parametrize("what", ["no copy", "the topic was deleted", "an empty copy"])
def test_without_the_topics_id_the_way_through_the_controllers_is_printed(disks: Disks, what: str) -> None:
    folder = disks.log_dirs[0] / "__cluster_metadata-0"
    shutil.rmtree(folder)
    if what == "an empty copy":
        folder.mkdir()
    if what == "the topic was deleted":
        write_records(disks.log_dirs[0], [topic_record("payouts", Uuid("AAAAAAAAAAAAAAAAAAAAEA"))])
    before = disks.everything()
    for apply in ((), ("--apply",)):
        ran = disks.rebuild("--metadata-partitions", COUNT, *apply)
        assert (ran.code, "nothing here states the topic's id" in ran.err) == (4, True), ran.err
        for line in ("process.roles=controller", "5. restart"):
            assert line in ran.err
        configs, (rebuild,) = (
            [line.split() for line in ran.raw_err.splitlines() if line.startswith(command)]
            for command in ("kafka-configs.sh --bootstrap-controller ", "tierctl rebuild ")
        )
        assert [words[words.index("--entity-name") + 1] for words in configs] == ["payouts", "wallets"]
        assert rebuild[-1] == "--apply"
        assert disks.everything() == before


USED = f"{METADATA_TOPIC}-0"
"""The metadata partition that has all events of the capture."""
LOG = f"{'0' * 20}.log"


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def changed(change: Callable[[bytes, list[int]], bytes]) -> Callable[[Path], None]:
    """Return a function that changes the log file, whose batches end at the given positions."""

    def apply(folder: Path) -> None:
        data = (folder / LOG).read_bytes()
        ends = [0]
        for size in batch_sizes(data):
            ends.append(ends[-1] + size)
        (folder / LOG).write_bytes(change(data, ends))
        for suffix in (".index", ".timeindex"):
            (folder / LOG).with_suffix(suffix).unlink(missing_ok=True)

    return apply


def split(folder: Path) -> None:
    """Lose the middle one of three segments."""
    data = (folder / LOG).read_bytes()
    sizes = batch_sizes(data)
    last = data[sum(sizes[:20]) :]
    (folder / LOG).write_bytes(data[: sum(sizes[:8])])
    (folder / f"{int.from_bytes(last[:8]):020d}.log").write_bytes(last)


LOSSES: dict[str, Callable[[Path], None]] = {
    "no folder": remove,
    "emptied": empty,
    "cut between batches": changed(lambda data, ends: data[: ends[9]]),
    "cut in a batch": changed(lambda data, ends: data[: ends[9] + 70]),
    "first bytes lost": changed(lambda data, ends: data[ends[0] + 300 :]),
    "first batches lost": changed(lambda data, ends: data[ends[9] :]),
    "a batch lost": changed(lambda data, ends: data[: ends[9]] + data[ends[10] :]),
    "a bit flipped": changed(lambda data, ends: data[: ends[9] + 80] + b"\xff" + data[ends[9] + 81 :]),
    "zeros": changed(lambda data, ends: data[: ends[9]] + bytes(ends[12] - ends[9]) + data[ends[12] :]),
    "last batch damaged": changed(
        lambda data, ends: data[: ends[-2] + 61] + bytes(9) + data[ends[-2] + 70 :]
    ),
    "a segment lost": split,
}


class Brokers:
    """Three stopped brokers, each with all partitions of the metadata topic."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log_dirs = [root / f"broker-{node}" for node in (1, 2, 3)]
        for log_dir in self.log_dirs[1:]:
            # The capture is of running brokers: their logs end at different offsets.
            for folder in log_dir.glob(f"{METADATA_TOPIC}-*"):
                shutil.rmtree(folder)
            for folder in self.log_dirs[0].glob(f"{METADATA_TOPIC}-*"):
                shutil.copytree(folder, log_dir / folder.name)
        self.topic_id = topic_id_in(self.log_dirs[0])
        write_cluster_metadata(dict(enumerate(self.log_dirs, 1)), 3)

    def rebuild(self, *more: object) -> Ran:
        logs = [word for path in self.log_dirs for word in ("--log-dir", path)]
        return tierctl(
            *("rebuild", "--metadata", self.log_dirs[0], "--remote", self.root / "remote", *logs, *more)
        )

    def logs(self) -> list[dict[str, bytes]]:
        return [metadata_bytes(log_dir) for log_dir in self.log_dirs]

    def others(self) -> dict[str, str]:
        """Return the files that a rebuild of one metadata partition must not change."""
        found = digests(self.root).items()
        own = (USED, ".lock", "-offset-checkpoint")
        return {path: digest for path, digest in found if not any(name in path for name in own)}

    def segments(self) -> set[str]:
        ran = tierctl("segments", "--metadata", self.log_dirs[0], "--output", "jsonl").ok()
        return {json.loads(line)["segment_id"] for line in ran.lines}


@pytest.fixture
def brokers(writable: Writable) -> Brokers:
    return Brokers(writable("unclean-leader/before"))


ALL = (0, 1, 2)
ON_SOME = [(name, ALL if at % 3 else (at % 2,)) for at, name in enumerate(LOSSES)]
LOST = ON_SOME + [(name, (at % 2,) if at % 3 else ALL) for at, name in enumerate(LOSSES)]


@pytest.mark.parametrize("loss", rest_in_matrix(LOST, len(LOSSES)), ids=str)
def test_one_partition_is_restored(brokers: Brokers, loss: tuple[str, tuple[int, ...]]) -> None:
    """A whole replica is copied to the others; without one, what precedes the damage is kept."""
    name, lost_on = loss
    whole, known, others = brokers.logs()[0], brokers.segments(), brokers.others()
    for number in lost_on:
        LOSSES[name](brokers.log_dirs[number] / USED)
    damaged = brokers.logs()
    planned = brokers.rebuild()
    assert (planned.code, brokers.logs()) == (0, damaged), planned.err
    brokers.rebuild("--apply").ok()
    first, *copies = brokers.logs()
    assert copies == [first, first]
    assert {topic_id_in(log_dir) for log_dir in brokers.log_dirs} == {brokers.topic_id}
    if len(lost_on) == 1:
        assert first == whole
    assert brokers.segments() == known
    assert brokers.others() == others
    again = brokers.rebuild("--apply", "--output", "json")
    assert (again.code, again.json["steps"]) == (0, []), again.err
    assert brokers.logs() == [first] * 3


def test_damaged_bytes_are_kept(brokers: Brokers) -> None:
    folder = brokers.log_dirs[1] / USED
    whole = (folder / LOG).read_bytes()
    split(folder)
    _, later = sorted(folder.glob("*.log"))
    last = later.read_bytes()
    assert brokers.rebuild("--apply").code == 0
    assert later.with_name(f"{later.name}.bak").read_bytes() == last
    at = sum(batch_sizes(whole)[:9])
    damaged = whole[: at + 80] + b"\xff" + whole[at + 81 :]
    (folder / LOG).write_bytes(damaged)
    ran = brokers.rebuild("--apply")
    assert (ran.code, f"{folder} is damaged, or lacks records, from offset" in ran.err) == (0, True), ran.err
    assert (folder / f"{LOG}.{at}.bak").read_bytes() == damaged[at:].rstrip(b"\0")
    assert (folder / LOG).read_bytes() == whole


@pytest.mark.parametrize("name", rest_in_matrix(["a segment lost", "a bit flipped"]))
def test_a_kill_at_any_change_of_a_file_and_a_second_run(brokers: Brokers, tmp_path: Path, name: str) -> None:
    known, others = brokers.segments(), brokers.others()
    for log_dir in brokers.log_dirs:
        LOSSES[name](log_dir / USED)
    backup = shutil.copytree(brokers.root, tmp_path / "damaged")

    def reset() -> None:
        shutil.rmtree(brokers.root)
        shutil.copytree(backup, brokers.root)

    for killed in each_kill(lambda: brokers.rebuild("--apply").ok(), reset, step=7):
        brokers.rebuild("--apply").ok()
        first, *copies = brokers.logs()
        assert copies == [first, first], killed
        assert (brokers.segments(), brokers.others()) == (known, others), killed
    assert killed > 20


def test_replicas_that_are_whole_and_differ_are_refused(brokers: Brokers) -> None:
    """Two rebuilds of an emptied partition, each on its own host, have other times in their records."""
    for log_dir in brokers.log_dirs[:2]:
        empty(log_dir / USED)
    shutil.copytree(brokers.log_dirs[0], brokers.root / "own")
    where = ("--metadata", brokers.root / "own", "--remote", brokers.root / "remote")
    (brokers.root / "own" / "meta.properties").unlink()
    shutil.rmtree(brokers.root / "own" / "__cluster_metadata-0")
    own = ("--log-dir", brokers.root / "own", "--metadata-partitions", 3)
    assert tierctl("rebuild", *where, *own, "--apply").code == 0
    shutil.copy(brokers.root / "own" / USED / LOG, brokers.log_dirs[1] / USED / LOG)
    before = brokers.logs()
    ran = brokers.rebuild("--apply")
    assert (ran.code, "the replicas of a metadata partition differ" in ran.err) == (4, True), ran.err
    assert brokers.logs() == before


def test_hosts_with_the_same_damage_write_the_same_bytes(writable: Writable) -> None:
    hosts = Hosts.of(writable("unclean-leader/before"))
    for node in (1, 2):
        LOSSES["a bit flipped"](hosts.disks[node] / USED)
    hosts.plan().ok()
    for node in (1, 2):
        ran = hosts.apply(node)
        assert (ran.code, "have the planned digest" in ran.err) == (0, True), ran.err
    assert hosts.content(1) == hosts.content(2)
