"""All folders of the metadata topic are gone: `rebuild` makes them as KRaft's metadata on the node say."""

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
