"""`rebuild` in log directories of stopped brokers: locks, replicas, and the number of metadata partitions."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.run_context import Label, Moment, observe
from tierctl.files import PLAIN
from tierctl.locallog import list_partitions
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import make_partitions
from tierctl.model import Uuid
from tierctl.wire.metadata.values import metadata_partition

from tests.cli.shell import tierctl
from tests.commands.test_rebuild import digests, lose, metadata_bytes, offline
from tests.metadata.topics import topic_in
from tests.support.broker_lock import can_start, running_broker
from tests.support.cluster_metadata import topic_id_in, write_cluster_metadata

Writable = Callable[[str], Path]
COUNT, LOST = 4, 2
"""With this number, the captured topics have their events in the partition that is lost."""
OVERRIDDEN = "rlmm.config.remote.log.metadata.topic.num.partitions=3"


@pytest.fixture
def root(writable: Writable) -> Path:
    """Return three stopped brokers that lost the events, and all of them the last metadata partition."""
    found = writable("unclean-leader/before")
    lose(*brokers_of(found).values())
    for broker in brokers_of(found).values():
        shutil.rmtree(broker / f"{METADATA_TOPIC}-{LOST}")
    return found


def contents(root: Path) -> dict[str, str]:
    return {path: digest for path, digest in digests(root).items() if not path.endswith(".lock")}


def brokers_of(root: Path) -> dict[int, Path]:
    return {number: root / f"broker-{number}" for number in (1, 2, 3)}


def rebuild(root: Path, *more: object, nodes: tuple[int, ...] = (1, 2, 3)) -> tuple[object, ...]:
    logs = [word for node in nodes for word in ("--log-dir", brokers_of(root)[node])]
    return ("rebuild", "--metadata", root / "broker-1", "--remote", root / "remote", *logs, *more)


def homes(root: Path) -> dict[str, str]:
    """Return the folders of the metadata partitions that have events, each with a topic of theirs."""
    found = list_partitions([root / "broker-1"])
    tiered = [each for each in found if each.topic in {"payouts", "wallets"}]
    assert tiered
    return {
        f"{METADATA_TOPIC}-{metadata_partition(each.topic_id, each.partition, COUNT)}": each.topic
        for each in tiered
    }


def config_of(folder: Path, count: int) -> Path:
    path = folder / f"{count}.properties"
    path.write_text(f"rlmm.config.remote.log.metadata.topic.num.partitions={count}\n")
    return path


@pytest.mark.parametrize("source", ["cluster metadata", "server.properties", "option", "saved plan"])
def test_a_lost_partition_is_made_again_in_every_replica(root: Path, tmp_path: Path, source: str) -> None:
    topic_id = topic_id_in(root / "broker-1")
    more: tuple[object, ...] = ()
    if source == "cluster metadata":
        write_cluster_metadata(brokers_of(root), COUNT)
    elif source == "server.properties":
        more = ("--broker-config", config_of(tmp_path, COUNT))
    else:
        more = ("--metadata-partitions", COUNT)
    command = rebuild(root, *more)
    if source == "saved plan":
        assert tierctl(*command, "--plan-out", tmp_path / "plan.json").code == 0
        command = ("apply", tmp_path / "plan.json", *rebuild(root)[1:])
    tierctl(*command, "--apply").ok()
    found = [metadata_bytes(broker) for broker in brokers_of(root).values()]
    assert found[0] == found[1] == found[2]
    assert {Path(name).parts[0] for name, data in found[0].items() if data} == set(homes(root))
    for broker in brokers_of(root).values():
        numbers = partitions_in(broker)
        assert numbers == list(range(COUNT))
        assert {topic_id_in(broker, number) for number in numbers} == {topic_id}
    assert tierctl("segments", "--metadata", root / "broker-1").code == 0


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
def test_refused(root: Path, tmp_path: Path, sources: tuple[object, ...], expected: str) -> None:
    if "cluster" in sources:
        write_cluster_metadata(brokers_of(root), COUNT)
    more: tuple[object, ...] = ("--broker-config", config_of(tmp_path, COUNT)) if "config" in sources else ()
    given = tuple(each for each in sources if each not in {"config", "cluster"})
    before = contents(root)
    for apply in ((), ("--apply",)):
        ran = tierctl(*rebuild(root, *given, *more), *apply)
        assert (ran.code, expected in ran.err) == (4, True), ran.err
        assert "hint: " in ran.err
        assert contents(root) == before


def test_one_event_in_the_wrong_partition_stops_every_write(writable: Writable) -> None:
    """The topics of an earlier run with a wrong number of partitions are among the events."""
    root = writable("unclean-leader/before")
    own = root / "broker-1"
    logs = sorted((each.stat().st_size, each) for each in own.glob(f"{METADATA_TOPIC}-*/*.log"))
    (_, empty), (_, used) = logs[0], logs[-1]
    for broker in brokers_of(root).values():
        source, target = (broker / each.relative_to(own) for each in (used, empty))
        target.write_bytes(source.read_bytes())
    before = contents(root)
    where = ("--metadata", own, "--remote", root / "remote")
    option = ("--metadata-partitions", 3)
    for command in (
        rebuild(root, *option),
        ("sweep", *where, "--log-start-offset", "wallets-0=500"),
        ("copy", *where, "--log-dir", own, "--topic", "wallets", "--assume-enabled", *option),
    ):
        ran = tierctl(*command, "--apply")
        assert (ran.code, "the number of metadata partitions is not the one" in ran.err) == (4, True), ran.err
    assert contents(root) == before


def test_all_replicas_must_be_named(root: Path) -> None:
    write_cluster_metadata(brokers_of(root), COUNT)
    before = contents(root)
    ran = tierctl(*rebuild(root, nodes=(1, 2)), "--apply")
    assert (ran.code, "has replicas on brokers 3" in ran.err) == (4, True), ran.err
    assert contents(root) == before


def test_a_topic_that_was_deleted_and_made_again_is_another_topic(root: Path) -> None:
    write_cluster_metadata(brokers_of(root), COUNT)
    for path in (root / "broker-1").glob(f"{METADATA_TOPIC}-*/partition.metadata"):
        path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEA\n")
    ran = tierctl(*rebuild(root), "--apply")
    assert (ran.code, "it was deleted" in ran.err) == (4, True), ran.err


@pytest.mark.parametrize("made", [range(7), range(3, 7), range(0)])
def test_a_folder_that_a_killed_run_did_not_finish_is_completed(
    made: range, capture: Callable[..., Path], tmp_path: Path
) -> None:
    """tierctl makes the partitions from the last one down to 0, and then records their number."""
    logs = capture("untiered-broker") / "local"
    new, config = tmp_path / "metadata", config_of(tmp_path, 7)
    where = ("--metadata", new, "--remote", tmp_path / "tier", "--log-dir", logs)
    copy = ("copy", *where, "--topic", "bills", "--assume-enabled", "--layout", "kafka", "--apply")
    make_partitions(new, reversed(made), Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), fs=PLAIN)
    assert tierctl(*copy, "--broker-config", config).code == 0
    assert partitions_in(new) == list(range(7))
    assert tierctl(*copy).code == 0


def test_the_number_of_a_new_folder_is_kept(capture: Callable[..., Path], tmp_path: Path) -> None:
    logs = capture("untiered-broker") / "local"
    new, config = tmp_path / "metadata", config_of(tmp_path, 7)
    where = ("--metadata", new, "--remote", tmp_path / "tier", "--log-dir", logs)
    copy = ("copy", *where, "--topic", "bills", "--assume-enabled", "--layout", "kafka", "--apply")
    assert tierctl(*copy, "--broker-config", config).code == 0
    assert len(list(new.glob(f"{METADATA_TOPIC}-*"))) == 7
    # Without an option, the number is the one with which the folder was made.
    assert tierctl(*copy).code == 0
    shutil.rmtree(new / f"{METADATA_TOPIC}-6")
    before = contents(tmp_path)
    for command in (copy, (*copy, "--broker-config", config_of(tmp_path, 7))):
        ran = tierctl(*command)
        assert (ran.code, f"{METADATA_TOPIC}-6 is missing" in ran.err) == (4, True), ran.err
    assert contents(tmp_path) == before
    tierctl("rebuild", *where[:4], "--apply").ok()
    assert len(list(new.glob(f"{METADATA_TOPIC}-*"))) == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "50 partitions (Kafka's default)"),
        (
            ("--override", "rlmm.config.remote.log.metadata.topic.num.partitions=3"),
            "3 partitions (--override)",
        ),
        (("--broker-config", "{config}"), "4 partitions ({config}, line 1)"),
        (("--metadata-partitions", 5), "5 partitions (--metadata-partitions)"),
    ],
)
def test_a_new_folder_gets_the_stated_number(
    options: tuple[object, ...], said: str, writable: Writable, tmp_path: Path
) -> None:
    config, metadata = config_of(tmp_path, COUNT), tmp_path / "metadata"
    told = [str(each).format(config=config) for each in options]
    logs = ("--log-dir", writable("untiered-broker/local"), "--topic", "*", "--assume-enabled")
    ran = tierctl("copy", "--metadata", metadata, "--remote", tmp_path / "tier", *logs, *told, "--apply")
    said = said.format(config=config)
    assert f"a new {METADATA_TOPIC} has {said}" in ran.raw_err, ran.raw_err
    assert len(partitions_in(metadata)) == int(said.split()[0])


@pytest.fixture
def emptied(writable: Writable) -> Path:
    """Return three stopped brokers that lost the metadata topic, and their tier."""
    found = writable("unclean-leader/before")
    for broker in log_dirs_of(found):
        (broker / ".lock").touch()
    lose(*log_dirs_of(found))
    return found


def log_dirs_of(emptied: Path) -> list[Path]:
    return [emptied / f"broker-{number}" for number in (1, 2, 3)]


def test_no_broker_can_start_while_its_files_are_written(emptied: Path) -> None:
    startable: list[tuple[Label, Moment, str]] = []

    def probe(label: Label, moment: Moment) -> None:
        startable.extend((label, moment, each.name) for each in log_dirs_of(emptied) if can_start(each))

    observed: list[Label] = []
    observe(lambda label, moment: (observed.append(label), probe(label, moment))[1])
    try:
        ran = tierctl(*offline(emptied), "--apply")
    finally:
        observe(None)
    assert ran.code == 0, ran.err
    assert "rebuild.segments.publish" in observed
    assert startable == []
    assert all(map(can_start, log_dirs_of(emptied)))


@pytest.mark.parametrize("more", [(), ("--bootstrap-server", "localhost:1")], ids=["offline", "cluster"])
def test_a_log_directory_of_a_running_broker_is_not_written(emptied: Path, more: tuple[str, ...]) -> None:
    assert_refused(emptied, *offline(emptied), *more)


def test_no_option_of_a_saved_plan_allows_it(emptied: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert tierctl(*offline(emptied), "--plan-out", saved).code == 0
    assert_refused(emptied, "apply", saved, *offline(emptied)[1:-2], "--allow-live-brokers")


def assert_refused(emptied: Path, *command: object) -> None:
    before = digests(emptied)
    with running_broker(emptied / "broker-2"):
        ran = tierctl(*command, "--apply")
    assert (ran.code, "no option overrides" in ran.err) == (4, True), ran.err
    assert "--bootstrap-server" not in ran.err
    assert digests(emptied) == before


def test_replicas_are_not_written_before_the_operator_confirms(emptied: Path) -> None:
    """A run that is refused after its plan, or not confirmed, changes no replica."""
    broker = emptied / "broker-1"
    own = ("--log-dir", broker, "--metadata-partitions", 3)
    assert tierctl(*offline(emptied)[:5], *own, "--apply").code == 0
    before = metadata_bytes(emptied / "broker-2")
    refused = tierctl(*offline(emptied), "--apply", "--bootstrap-server", "localhost:1")
    assert refused.code == 5, refused.err
    assert metadata_bytes(emptied / "broker-2") == before == {}
    assert tierctl(*offline(emptied), "--apply").code == 0
    assert metadata_bytes(emptied / "broker-2") == metadata_bytes(broker)


def test_unfinished_writes_at_the_ends_of_the_logs(emptied: Path) -> None:
    first, second, _ = log_dirs_of(emptied)
    torn = bytes(7) + b"\x01" + b"torn" * 8
    for number in range(len(list(first.glob("__remote_log_metadata-*")))):
        folder = f"__remote_log_metadata-{number}"
        (first / folder / "00000000000000000000.log").write_bytes(torn)
        (second / folder / "00000000000000000000.log").write_bytes(torn[:20])
    for _ in range(2):
        tierctl(*offline(emptied), "--apply").ok()
    own, *others = [metadata_bytes(broker) for broker in log_dirs_of(emptied)]
    valid = {name: b"" if data == torn else data for name, data in own.items()}
    assert others == [valid, valid]
    assert sum(map(len, valid.values())) > 5000


@pytest.mark.parametrize("apply", [(), ("--apply",)], ids=["plan", "apply"])
def test_metadata_partitions_in_another_directory_are_missing_in_this_one(
    emptied: Path, apply: tuple[str, ...]
) -> None:
    """This happens with several log directories per broker, or with fewer replicas than brokers."""
    numbers = range(len(list((emptied / "broker-1").glob("__remote_log_metadata-*"))))
    shutil.rmtree(emptied / "broker-1" / f"__remote_log_metadata-{numbers[-1]}")
    before = digests(emptied)
    ran = tierctl(*offline(emptied), *apply)
    expected = f"{emptied / 'broker-2'} has {METADATA_TOPIC}-{numbers[-1]}"
    assert (ran.code, expected in ran.err) == (4, True), ran.err
    assert digests(emptied) == before


@pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "an empty folder"])
def test_a_refused_run_leaves_no_metadata_topic(is_there: bool, emptied: Path, tmp_path: Path) -> None:
    """The log directories of one broker lack a partition of the tier, so that its log start is unknown."""
    new = tmp_path / "new"
    if is_there:
        new.mkdir()
    broken = next(log_dirs_of(emptied)[0].glob("payouts-*")) / "leader-epoch-checkpoint"
    broken.write_text("damaged")
    where = ("--metadata", new, "--remote", emptied / "remote", "--log-dir", log_dirs_of(emptied)[0])
    ran = tierctl("rebuild", *where, "--apply")
    assert ran.code == 4, ran.err
    assert new.exists() is is_there
    assert list(new.glob("*")) == []
    tierctl("rebuild", "--metadata", new, "--remote", emptied / "remote", "--apply").ok()
    assert len(list(new.glob(f"{METADATA_TOPIC}-*"))) == 50


def test_a_topic_that_was_there_before_a_refused_run_stays(emptied: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    topic_in(new, writable=True, partition_count=3).close()
    before = digests(new)
    ran = tierctl("rebuild", "--metadata", new, "--remote", tmp_path / "none", "--apply")
    assert ran.code != 0
    assert digests(new) == before
