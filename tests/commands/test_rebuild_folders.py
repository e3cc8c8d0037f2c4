"""`rebuild` in the log directories of stopped brokers: locks, and replicas of the metadata topic."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.run_context import Label, Moment, observe
from tierctl.metadata.topic import METADATA_TOPIC

from tests.cli.shell import tierctl
from tests.commands.test_rebuild import digests, lose, metadata_bytes, offline
from tests.metadata.topics import topic_in
from tests.support.broker_lock import can_start, running_broker

Writable = Callable[[str], Path]


@pytest.fixture
def root(writable: Writable) -> Path:
    """Return three stopped brokers that lost the metadata topic, and their tier."""
    found = writable("unclean-leader/before")
    for broker in brokers_of(found):
        (broker / ".lock").touch()
    lose(*brokers_of(found))
    return found


def brokers_of(root: Path) -> list[Path]:
    return [root / f"broker-{number}" for number in (1, 2, 3)]


def test_no_broker_can_start_while_its_files_are_written(root: Path) -> None:
    startable: list[tuple[Label, Moment, str]] = []

    def probe(label: Label, moment: Moment) -> None:
        startable.extend((label, moment, each.name) for each in brokers_of(root) if can_start(each))

    observed: list[Label] = []
    observe(lambda label, moment: (observed.append(label), probe(label, moment))[1])
    try:
        ran = tierctl(*offline(root), "--apply")
    finally:
        observe(None)
    assert ran.code == 0, ran.err
    assert "rebuild.segments.publish" in observed
    assert startable == []
    assert all(map(can_start, brokers_of(root)))


@pytest.mark.parametrize("more", [(), ("--bootstrap-server", "localhost:1")], ids=["offline", "cluster"])
def test_a_log_directory_of_a_running_broker_is_not_written(root: Path, more: tuple[str, ...]) -> None:
    assert_refused(root, *offline(root), *more)


def test_no_option_of_a_saved_plan_allows_it(root: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert tierctl(*offline(root), "--plan-out", saved).code == 0
    assert_refused(root, "apply", saved, *offline(root)[1:-2], "--allow-live-brokers")


def assert_refused(root: Path, *command: object) -> None:
    before = digests(root)
    with running_broker(root / "broker-2"):
        ran = tierctl(*command, "--apply")
    assert (ran.code, "no option overrides" in ran.err) == (4, True), ran.err
    assert "--bootstrap-server" not in ran.err
    assert digests(root) == before


def test_replicas_are_not_written_before_the_operator_confirms(root: Path) -> None:
    """A run that is refused after its plan, or not confirmed, changes no replica."""
    broker = root / "broker-1"
    own = ("--log-dir", broker, "--metadata-partitions", 3)
    assert tierctl(*offline(root)[:5], *own, "--apply").code == 0
    before = metadata_bytes(root / "broker-2")
    refused = tierctl(*offline(root), "--apply", "--bootstrap-server", "localhost:1")
    assert refused.code == 5, refused.err
    assert metadata_bytes(root / "broker-2") == before == {}
    assert tierctl(*offline(root), "--apply").code == 0
    assert metadata_bytes(root / "broker-2") == metadata_bytes(broker)


def test_unfinished_writes_at_the_ends_of_the_logs(root: Path) -> None:
    first, second, _ = brokers_of(root)
    torn = bytes(7) + b"\x01" + b"torn" * 8
    for number in range(len(list(first.glob("__remote_log_metadata-*")))):
        folder = f"__remote_log_metadata-{number}"
        (first / folder / "00000000000000000000.log").write_bytes(torn)
        (second / folder / "00000000000000000000.log").write_bytes(torn[:20])
    for _ in range(2):
        tierctl(*offline(root), "--apply").ok()
    own, *others = [metadata_bytes(broker) for broker in brokers_of(root)]
    valid = {name: b"" if data == torn else data for name, data in own.items()}
    assert others == [valid, valid]
    assert sum(map(len, valid.values())) > 5000


@pytest.mark.parametrize("apply", [(), ("--apply",)], ids=["plan", "apply"])
def test_metadata_partitions_in_another_directory_are_missing_in_this_one(
    root: Path, apply: tuple[str, ...]
) -> None:
    """This happens with several log directories per broker, or with fewer replicas than brokers."""
    numbers = range(len(list((root / "broker-1").glob("__remote_log_metadata-*"))))
    shutil.rmtree(root / "broker-1" / f"__remote_log_metadata-{numbers[-1]}")
    before = digests(root)
    ran = tierctl(*offline(root), *apply)
    expected = f"{root / 'broker-2'} has {METADATA_TOPIC}-{numbers[-1]}"
    assert (ran.code, expected in ran.err) == (4, True), ran.err
    assert digests(root) == before


@pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "an empty folder"])
def test_a_refused_run_leaves_no_metadata_topic(is_there: bool, root: Path, tmp_path: Path) -> None:
    """The log directories of one broker lack a partition of the tier, so that its log start is unknown."""
    new = tmp_path / "new"
    if is_there:
        new.mkdir()
    broken = next(brokers_of(root)[0].glob("payouts-*")) / "leader-epoch-checkpoint"
    broken.write_text("damaged")
    where = ("--metadata", new, "--remote", root / "remote", "--log-dir", brokers_of(root)[0])
    ran = tierctl("rebuild", *where, "--apply")
    assert ran.code == 4, ran.err
    assert new.exists() is is_there
    assert list(new.glob("*")) == []
    tierctl("rebuild", "--metadata", new, "--remote", root / "remote", "--apply").ok()
    assert len(list(new.glob(f"{METADATA_TOPIC}-*"))) == 50


def test_a_topic_that_was_there_before_a_refused_run_stays(root: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    topic_in(new, writable=True, partition_count=3).close()
    before = digests(new)
    ran = tierctl("rebuild", "--metadata", new, "--remote", tmp_path / "none", "--apply")
    assert ran.code != 0
    assert digests(new) == before
