"""The metadata topic of stopped brokers is lost or damaged: `rebuild` changes no other file, or refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.run_context import Label, Moment
from tierctl.files import PLAIN
from tierctl.locallog import list_partitions
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import make_partitions
from tierctl.model import Uuid
from tierctl.wire.batches.batch_head import CRC_AT, CRC_FROM
from tierctl.wire.files.checkpoints import read_offset_checkpoint
from tierctl.wire.kraft import topic_record
from tierctl.wire.metadata.values import metadata_partition
from tierctl.wire.primitives import crc32c

from tests.cli.shell import tierctl
from tests.commands.ended import ended
from tests.commands.stopped import (
    COUNT,
    LOG,
    LOSSES,
    Stopped,
    changed,
    digests,
    empty,
    flip,
    lose_events,
    lose_folders,
    metadata_bytes,
    split,
)
from tests.metadata.topics import topic_in
from tests.support.amounts import rest_in_matrix
from tests.support.broker_lock import can_start, running_broker
from tests.support.cluster_metadata import (
    make_log_dir,
    partition_record,
    topic_id_in,
    write_cluster_metadata,
    write_records,
)
from tests.support.faults import each_kill, observed
from tests.wire.batches.same import scan

Capture = Callable[..., Path]
Writable = Callable[[str], Path]
OTHER_COUNT, LOST = 4, 2
"""With this number, the captured topics have their events in the partition that is lost."""
OTHER_TOPIC = Uuid("AAAAAAAAAAAAAAAAAAAAEA")
OVERRIDDEN = "rlmm.config.remote.log.metadata.topic.num.partitions=3"


@pytest.fixture
def emptied(writable: Writable) -> Stopped:
    """Return brokers that lost the events."""
    found = Stopped(writable("unclean-leader/before"))
    for log_dir in found.log_dirs:
        (log_dir / ".lock").touch()
    lose_events(*found.log_dirs)
    return found


@pytest.fixture
def lacking(emptied: Stopped) -> Stopped:
    """Return brokers that lost the events, and all of them the last metadata partition."""
    for log_dir in emptied.log_dirs:
        shutil.rmtree(log_dir / f"{METADATA_TOPIC}-{LOST}")
    return emptied


def homes(brokers: Stopped) -> set[str]:
    """Return the folders of the metadata partitions that have events."""
    found = list_partitions([brokers.log_dirs[0]])
    tiered = [each for each in found if each.topic in {"payouts", "wallets"}]
    assert tiered
    return {
        f"{METADATA_TOPIC}-{metadata_partition(each.topic_id, each.partition, OTHER_COUNT)}"
        for each in tiered
    }


def config_of(folder: Path, count: int) -> Path:
    path = folder / f"{count}.properties"
    path.write_text(f"rlmm.config.remote.log.metadata.topic.num.partitions={count}\n")
    return path


@pytest.mark.parametrize("is_saved", [False, True], ids=["settings of a broker", "option of a saved plan"])
def test_a_lost_partition_is_made_again_in_every_replica(
    lacking: Stopped, tmp_path: Path, is_saved: bool
) -> None:
    topic_id = topic_id_in(lacking.log_dirs[0])
    if is_saved:
        saved = tmp_path / "plan.json"
        lacking.rebuild("--metadata-partitions", OTHER_COUNT, "--plan-out", saved).ok()
        tierctl("apply", saved, *lacking.where(), "--apply").ok()
    else:
        lacking.rebuild("--broker-config", config_of(tmp_path, OTHER_COUNT), "--apply").ok()
    assert {Path(name).parts[0] for name, data in lacking.written().items() if data} == homes(lacking)
    for log_dir in lacking.log_dirs:
        numbers = partitions_in(log_dir)
        assert numbers == list(range(OTHER_COUNT))
        assert {topic_id_in(log_dir, number) for number in numbers} == {topic_id}
    assert tierctl("segments", "--metadata", lacking.log_dirs[0]).code == 0


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((), "nothing states how many partitions"),
        (("--metadata-partitions", 1), "but the topic has 1 partitions"),
        (("--metadata-partitions", 5, "config"), "is unclear: 5 (--metadata-partitions) and 4"),
        (("--metadata-partitions", 5, "cluster"), "is unclear: 4 (the cluster's metadata) and 5"),
    ],
    ids=["no source", "a folder beyond", "another number in the settings", "another number in the cluster"],
)
def test_an_unclear_number_of_partitions_is_refused(
    lacking: Stopped, tmp_path: Path, sources: tuple[object, ...], expected: str
) -> None:
    if "cluster" in sources:
        write_cluster_metadata(lacking.brokers, OTHER_COUNT)
    config = ("--broker-config", config_of(tmp_path, OTHER_COUNT)) if "config" in sources else ()
    given = tuple(each for each in sources if each not in {"config", "cluster"})
    assert "hint: " in lacking.refuses(expected, *given, *config).err


def test_one_event_in_the_wrong_partition_stops_every_write(writable: Writable) -> None:
    """The topics of an earlier run with a wrong number of partitions are among the events."""
    brokers = Stopped(writable("unclean-leader/before"))
    own = brokers.log_dirs[0]
    logs = sorted((each.stat().st_size, each) for each in own.glob(f"{METADATA_TOPIC}-*/*.log"))
    (_, unused), (_, used) = logs[0], logs[-1]
    for log_dir in brokers.log_dirs:
        source, target = (log_dir / each.relative_to(own) for each in (used, unused))
        target.write_bytes(source.read_bytes())
    before = brokers.everything()
    where = ("--metadata", own, "--remote", brokers.remote)
    option = ("--metadata-partitions", COUNT)
    for command in (
        ("rebuild", *brokers.where(), *option),
        ("sweep", *where, "--log-start-offset", "wallets-0=500"),
        ("copy", *where, "--log-dir", own, "--topic", "wallets", "--assume-enabled", *option),
    ):
        ended(tierctl(*command, "--apply"), 4, "the number of metadata partitions is not the one")
    assert brokers.everything() == before


@pytest.mark.parametrize("has_ids", [True, False], ids=["cluster ids", "topic ids alone"])
def test_a_replica_of_another_topic_is_not_written(emptied: Stopped, has_ids: bool) -> None:
    *own, other = emptied.log_dirs
    for path in other.glob(f"{METADATA_TOPIC}-*/partition.metadata"):
        path.write_text(f"version: 0\ntopic_id: {OTHER_TOPIC}\n")
    for node, log_dir in enumerate(emptied.log_dirs if has_ids else (), 1):
        make_log_dir(log_dir, node, cluster_id="c" if log_dir in own else "other")
    expected = "of several clusters" if has_ids else f"-0 has topic id {OTHER_TOPIC}"
    emptied.refuses(expected, "--metadata-partitions", COUNT)


def test_a_topic_that_was_deleted_and_made_again_is_another_topic(lacking: Stopped) -> None:
    write_cluster_metadata(lacking.brokers, OTHER_COUNT)
    for path in lacking.log_dirs[0].glob(f"{METADATA_TOPIC}-*/partition.metadata"):
        path.write_text(f"version: 0\ntopic_id: {OTHER_TOPIC}\n")
    lacking.refuses("it was deleted")


def copy_to(capture: Capture, metadata: Path) -> tuple[object, ...]:
    """Return a copy of a broker's log to a new metadata folder, and to a tier beside it."""
    logs = ("--log-dir", capture("untiered-broker") / "local", "--topic", "bills", "--assume-enabled")
    where = ("--metadata", metadata, "--remote", metadata.parent / "tier", "--layout", "kafka")
    return ("copy", *where, *logs, "--apply")


@pytest.mark.parametrize("made", [range(7), range(3, 7)])
def test_a_folder_that_a_killed_run_did_not_finish_is_completed(
    made: range, capture: Capture, tmp_path: Path
) -> None:
    """tierctl makes the partitions from the last one down to 0, and then records their number."""
    new = tmp_path / "metadata"
    copy = copy_to(capture, new)
    make_partitions(new, reversed(made), Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), fs=PLAIN)
    tierctl(*copy, "--broker-config", config_of(tmp_path, 7)).ok()
    assert partitions_in(new) == list(range(7))
    assert tierctl(*copy).code == 0


def test_the_number_of_a_new_folder_is_kept(capture: Capture, tmp_path: Path) -> None:
    new = tmp_path / "metadata"
    copy, config = copy_to(capture, new), ("--broker-config", config_of(tmp_path, 7))
    tierctl(*copy, *config).ok()
    assert partitions_in(new) == list(range(7))
    # Without an option, the number is the one with which the folder was made.
    assert tierctl(*copy).code == 0
    shutil.rmtree(new / f"{METADATA_TOPIC}-6")
    before = digests(tmp_path)
    for command in (copy, (*copy, *config)):
        ended(tierctl(*command), 4, f"{METADATA_TOPIC}-6 is missing")
    assert digests(tmp_path) == before
    tierctl("rebuild", "--metadata", new, "--remote", tmp_path / "tier", "--apply").ok()
    assert partitions_in(new) == list(range(7))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "50 partitions (Kafka's default)"),
        (("--override", OVERRIDDEN), "3 partitions (--override)"),
        (("--broker-config", "{config}"), "4 partitions ({config}, line 1)"),
        (("--metadata-partitions", 5), "5 partitions (--metadata-partitions)"),
    ],
)
def test_a_new_folder_gets_the_stated_number(
    options: tuple[object, ...], said: str, capture: Capture, tmp_path: Path
) -> None:
    config, metadata = config_of(tmp_path, 4), tmp_path / "metadata"
    told = [str(each).format(config=config) for each in options]
    ran = tierctl(*copy_to(capture, metadata), *told)
    said = said.format(config=config)
    assert f"a new {METADATA_TOPIC} has {said}" in ran.raw_err, ran.raw_err
    assert len(partitions_in(metadata)) == int(said.split()[0])


def test_no_broker_can_start_while_its_files_are_written(emptied: Stopped) -> None:
    """The files are those of every replica; their checkpoints begin anew, the former ones are kept."""
    startable: list[tuple[Label, Moment, str]] = []
    met: list[Label] = []

    def probe(label: Label, moment: Moment) -> None:
        met.append(label)
        startable.extend((label, moment, each.name) for each in emptied.log_dirs if can_start(each))

    with observed(probe):
        ran = emptied.rebuild("--metadata-partitions", COUNT, "--apply")
    assert ran.code == 0, ran.err
    assert "rebuild.segments.publish" in met
    assert startable == []
    assert all(map(can_start, emptied.log_dirs))
    assert sum(map(len, emptied.written().values())) > 5000
    for log_dir in emptied.log_dirs:
        for name in ("recovery-point-offset", "replication-offset"):
            offsets = read_offset_checkpoint((log_dir / f"{name}-checkpoint").read_bytes())
            assert not [each for each in offsets if each.topic == METADATA_TOPIC and offsets[each]]
            assert (log_dir / f"{name}-checkpoint.bak").exists()


def test_a_log_directory_of_a_running_broker_is_not_written(emptied: Stopped, tmp_path: Path) -> None:
    saved, number = tmp_path / "plan.json", ("--metadata-partitions", COUNT)
    emptied.rebuild(*number, "--plan-out", saved).ok()
    before = emptied.everything()
    with running_broker(emptied.log_dirs[1]):
        for command in (
            ("rebuild", *emptied.where(), *number),
            ("rebuild", *emptied.where(), *number, "--bootstrap-server", "localhost:1"),
            ("apply", saved, *emptied.where(), "--allow-live-brokers"),
        ):
            ran = ended(tierctl(*command, "--apply"), 4, "no option overrides")
            assert "--bootstrap-server" not in ran.err
    assert emptied.everything() == before


def test_replicas_are_not_written_before_the_operator_confirms(emptied: Stopped) -> None:
    """A run that is refused after its plan, or not confirmed, changes no replica."""
    number = ("--metadata-partitions", COUNT)
    first, second, _ = emptied.log_dirs
    tierctl("rebuild", *emptied.where(first), *number, "--apply").ok()
    refused = emptied.rebuild(*number, "--apply", "--bootstrap-server", "localhost:1")
    assert refused.code == 5, refused.err
    assert metadata_bytes(second) == {}
    emptied.rebuild(*number, "--apply").ok()
    assert emptied.written()


def test_metadata_partitions_in_another_directory_are_missing_in_this_one(emptied: Stopped) -> None:
    """This happens with several log directories per broker, or with fewer replicas than brokers."""
    first, second, _ = emptied.log_dirs
    shutil.rmtree(first / f"{METADATA_TOPIC}-{COUNT - 1}")
    expected = f"{second} has {METADATA_TOPIC}-{COUNT - 1}, which {first} lacks: whether its broker"
    emptied.refuses(expected, "--metadata-partitions", COUNT)


def test_a_refused_run_leaves_no_metadata_topic(emptied: Stopped, tmp_path: Path) -> None:
    """The log directories of one broker lack a partition of the tier, so that its log start is unknown."""
    first, *_ = emptied.log_dirs
    (next(first.glob("payouts-*")) / "leader-epoch-checkpoint").write_text("damaged")
    (tmp_path / "empty").mkdir()
    for new, is_there in ((tmp_path / "new", False), (tmp_path / "empty", True)):
        where = ("--metadata", new, "--remote", emptied.remote, "--log-dir", first)
        ran = tierctl("rebuild", *where, "--apply")
        assert ran.code == 4, ran.err
        assert new.exists() is is_there
        assert list(new.glob("*")) == []


def test_a_topic_that_was_there_before_a_refused_run_stays(tmp_path: Path) -> None:
    new = tmp_path / "new"
    topic_in(new, writable=True, partition_count=3).close()
    before = digests(new)
    ran = tierctl("rebuild", "--metadata", new, "--remote", tmp_path / "none", "--apply")
    assert ran.code != 0
    assert digests(new) == before


ON_SECOND_DISK = 0
"""The partition that broker 1 has on its second disk; it has all events of the capture."""


def disk_id(node: int, *, second: bool = False) -> Uuid:
    return Uuid.from_bytes(bytes([node, second] * 8))


class Disks(Stopped):
    """Brokers that lost all replicas of the metadata topic; broker 1 has two disks."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.second = root / "broker-1-second"
        self.topic_id = topic_id_in(self.log_dirs[0])
        write_cluster_metadata(
            self.brokers,
            COUNT,
            directory_of=lambda number, node: disk_id(node, second=node == 1 and number == ON_SECOND_DISK),
        )
        for node, log_dir in self.brokers.items():
            make_log_dir(log_dir, node, disk_id(node))
        make_log_dir(self.second, 1, disk_id(1, second=True))
        lose_folders(*self.log_dirs)

    def where(self, *log_dirs: Path) -> tuple[object, ...]:
        return super().where(*(log_dirs or (*self.log_dirs, self.second)))

    def logs(self) -> list[dict[str, bytes]]:
        first, *others = super().logs()
        return [first | metadata_bytes(self.second), *others]

    def check_made(self) -> None:
        assert partitions_in(self.second) == [ON_SECOND_DISK]
        assert partitions_in(self.log_dirs[0]) == [n for n in range(COUNT) if n != ON_SECOND_DISK]
        for log_dir in (*self.log_dirs, self.second):
            assert {topic_id_in(log_dir, number) for number in partitions_in(log_dir)} == {self.topic_id}
        written = self.written()
        assert len(written) == COUNT
        assert sum(map(len, written.values())) > 5000


@pytest.fixture
def disks(writable: Writable) -> Disks:
    return Disks(writable("unclean-leader/before"))


def test_other_commands_read_the_partitions_of_a_broker_on_several_disks(disks: Disks) -> None:
    assert disks.rebuild("--apply").code == 0
    first, other, _ = disks.log_dirs
    read = ("segments", "--output", "jsonl", "--metadata")
    on_one = tierctl(*read, other)
    on_two = tierctl(*read, first, "--log-dir", first, "--log-dir", disks.second)
    assert (on_two.code, on_two.lines) == (0, on_one.lines), on_two.err
    assert on_two.lines
    ended(tierctl(*read, first, "--log-dir", other), 7, f"none numbered {ON_SECOND_DISK}")


def test_the_folders_are_made_where_the_controller_assigned_them(disks: Disks, tmp_path: Path) -> None:
    """The other tests of these brokers apply a rebuild at once."""
    saved = tmp_path / "plan.json"
    planned = disks.rebuild("--plan-out", saved).ok()
    assert f"{disks.second} lacks {METADATA_TOPIC}-{ON_SECOND_DISK}, or" in planned.err
    assert disks.logs() == [{}, {}, {}]
    tierctl("apply", saved, *disks.where(), "--apply").ok()
    disks.check_made()
    again = disks.rebuild("--apply", "--output", "json")
    assert (again.code, again.json["steps"]) == (0, []), again.err


def test_a_kill_at_any_change_of_a_file_and_a_second_run_make_them(disks: Disks) -> None:
    for killed in each_kill(lambda: disks.rebuild("--apply").ok(), disks.root, step=43):
        disks.rebuild("--apply").ok()
        disks.check_made()
        assert disks.rebuild("--apply").code == 0, killed
    assert killed > 60


def test_the_directory_that_is_assigned_must_be_named(disks: Disks) -> None:
    before = disks.everything()
    ran = tierctl("rebuild", *disks.where(*disks.log_dirs), "--apply")
    ended(ran, 4, f"directory.id={disk_id(1, second=True)}")
    assert disks.everything() == before


def test_the_newest_copy_of_the_clusters_metadata_decides(disks: Disks) -> None:
    """Another broker's copy ends before the last partition was made."""
    assert disks.topic_id is not None
    older = [topic_record(METADATA_TOPIC, disks.topic_id)]
    older += [partition_record(disks.topic_id, number, (1, 2, 3)) for number in range(COUNT - 1)]
    write_records(disks.log_dirs[1], older)
    disks.rebuild("--apply").ok()
    disks.check_made()


@pytest.mark.parametrize("what", ["no copy", "the topic was deleted", "an empty copy"])
def test_without_the_topics_id_the_way_through_the_controllers_is_printed(disks: Disks, what: str) -> None:
    folder = disks.log_dirs[0] / "__cluster_metadata-0"
    shutil.rmtree(folder)
    if what == "an empty copy":
        folder.mkdir()
    if what == "the topic was deleted":
        write_records(disks.log_dirs[0], [topic_record("payouts", Uuid("AAAAAAAAAAAAAAAAAAAAEA"))])
    ran = disks.refuses("nothing here states the topic's id", "--metadata-partitions", COUNT)
    for line in ("process.roles=controller", "5. restart"):
        assert line in ran.err
    configs, (rebuild,) = (
        [line.split() for line in ran.raw_err.splitlines() if line.startswith(command)]
        for command in ("kafka-configs.sh --bootstrap-controller ", "tierctl rebuild ")
    )
    assert [words[words.index("--entity-name") + 1] for words in configs] == ["payouts", "wallets"]
    assert rebuild[-1] == "--apply"


USED = f"{METADATA_TOPIC}-0"
"""The metadata partition that has all events of the capture."""


class Whole(Stopped):
    """Brokers that have all partitions of the metadata topic."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        first, *others = self.log_dirs
        for log_dir in others:
            # The capture is of running brokers: their logs end at different offsets.
            lose_folders(log_dir)
            for folder in first.glob(f"{METADATA_TOPIC}-*"):
                shutil.copytree(folder, log_dir / folder.name)
        self.topic_id = topic_id_in(first)
        write_cluster_metadata(self.brokers, COUNT)

    def others(self) -> dict[str, str]:
        """Return the files that a rebuild of one metadata partition must not change."""
        own = (USED, "-offset-checkpoint")
        found = self.everything().items()
        return {path: digest for path, digest in found if not any(name in path for name in own)}

    def segments(self) -> set[str]:
        ran = tierctl("segments", "--metadata", self.log_dirs[0], "--output", "jsonl").ok()
        return {json.loads(line)["segment_id"] for line in ran.lines}


@pytest.fixture
def brokers(writable: Writable) -> Whole:
    return Whole(writable("unclean-leader/before"))


ALL = (0, 1, 2)
ON_SOME = [(name, ALL if at % 3 else (at % 2,)) for at, name in enumerate(LOSSES)]
LOST_ON = ON_SOME + [(name, (at % 2,) if at % 3 else ALL) for at, name in enumerate(LOSSES)]


@pytest.mark.parametrize("loss", rest_in_matrix(LOST_ON, len(LOSSES)), ids=str)
def test_one_partition_is_restored(brokers: Whole, loss: tuple[str, tuple[int, ...]]) -> None:
    """A whole replica is copied to the others; without one, what precedes the damage is kept."""
    name, lost_on = loss
    whole, known, others = brokers.logs()[0], brokers.segments(), brokers.others()
    for number in lost_on:
        LOSSES[name](brokers.log_dirs[number] / USED)
    damaged = brokers.logs()
    planned = brokers.rebuild()
    assert (planned.code, brokers.logs()) == (0, damaged), planned.err
    brokers.rebuild("--apply").ok()
    first = brokers.written()
    assert {topic_id_in(log_dir) for log_dir in brokers.log_dirs} == {brokers.topic_id}
    if len(lost_on) == 1:
        assert first == whole
    assert brokers.segments() == known
    assert brokers.others() == others
    again = brokers.rebuild("--apply", "--output", "json")
    assert (again.code, again.json["steps"]) == (0, []), again.err
    assert brokers.logs() == [first] * 3


def of_magic_3(data: bytes, ends: list[int]) -> bytes:
    return flip(flip(data, ends[9] + 16, 3), ends[9] + 80)


def of_a_new_codec(data: bytes, ends: list[int]) -> bytes:
    at = ends[9]
    batch = flip(data[at : ends[10]], CRC_FROM + 1, 5)
    batch = batch[:CRC_AT] + crc32c(batch[CRC_FROM:]).to_bytes(4, "big") + batch[CRC_FROM:]
    return data[:at] + batch + data[ends[10] :]


@pytest.mark.parametrize("found_on", [0, 1])
@pytest.mark.parametrize(
    ("newer", "found"),
    [
        (of_magic_3, "magic 0, 1 or 2, found magic 3"),
        (lambda data, ends: flip(of_magic_3(data, ends), ends[2] + 80), "magic 0, 1 or 2, found magic 3"),
        (of_a_new_codec, "a compression type from 0 to 4, found 5"),
    ],
    ids=["magic 3", "magic 3 after damage", "a new compression"],
)
def test_the_batches_of_a_newer_kafka_are_no_damage(
    brokers: Whole, newer: Callable[[bytes, list[int]], bytes], found: str, found_on: int
) -> None:
    folder = brokers.log_dirs[found_on] / USED
    changed(newer)(folder)
    refused = brokers.refuses(found).err
    assert str(folder / LOG) in refused
    assert "hint: a newer Kafka wrote this batch" in refused


def test_damaged_bytes_are_kept(brokers: Whole) -> None:
    folder = brokers.log_dirs[1] / USED
    whole = (folder / LOG).read_bytes()
    split(folder)
    _, later = sorted(folder.glob("*.log"))
    last = later.read_bytes()
    earlier = later.with_name(f"{later.name}.bak")
    earlier.write_bytes(b"of an earlier run")
    assert brokers.rebuild("--apply").code == 0
    assert later.with_name(f"{later.name}.2.bak").read_bytes() == last
    assert earlier.read_bytes() == b"of an earlier run"
    at = scan(whole)[9].position
    # What an earlier run kept stays, and is not kept twice.
    for damage in (80, 81, 80):
        (folder / LOG).write_bytes(flip(whole, at + damage))
        ended(brokers.rebuild("--apply"), 0, f"{folder} is damaged, or lacks records, from offset")
        assert (folder / LOG).read_bytes() == whole
    kept = {path.name: path.read_bytes() for path in folder.glob(f"{LOG}.*.bak")}
    names = {f"{LOG}.{at}.bak": 80, f"{LOG}.{at}.2.bak": 81}
    assert kept == {name: flip(whole, at + damage)[at:].rstrip(b"\0") for name, damage in names.items()}


@pytest.mark.parametrize("name", rest_in_matrix(["a segment lost", "a bit flipped"]))
def test_a_kill_at_any_change_of_a_file_and_a_second_run(brokers: Whole, name: str) -> None:
    known, others = brokers.segments(), brokers.others()
    for log_dir in brokers.log_dirs:
        LOSSES[name](log_dir / USED)
    for killed in each_kill(lambda: brokers.rebuild("--apply").ok(), brokers.root, step=17):
        brokers.rebuild("--apply").ok()
        assert brokers.written()
        assert (brokers.segments(), brokers.others()) == (known, others), killed
    assert killed > 20


def test_replicas_that_are_whole_and_differ_are_refused(brokers: Whole) -> None:
    """Two rebuilds of an emptied partition, each on its own host, have other times in their records."""
    for log_dir in brokers.log_dirs[:2]:
        empty(log_dir / USED)
    own = shutil.copytree(brokers.log_dirs[0], brokers.root / "own")
    (own / "meta.properties").unlink()
    shutil.rmtree(own / "__cluster_metadata-0")
    where = ("--metadata", own, "--remote", brokers.remote, "--log-dir", own)
    tierctl("rebuild", *where, "--metadata-partitions", COUNT, "--apply").ok()
    shutil.copy(own / USED / LOG, brokers.log_dirs[1] / USED / LOG)
    before = brokers.logs()
    ended(brokers.rebuild("--apply"), 4, "the replicas of a metadata partition differ")
    assert brokers.logs() == before
