"""kill -9 around every side effect of `restore into`, `new-ids` and `log`: nothing half is ever used."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.run_context import LABELS
from tierctl.commands.restore.new_logs import former_folder
from tierctl.files import PLAIN, exclusive
from tierctl.locallog import read_log_dirs
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.wire.files.checkpoints import read_offset_checkpoint
from tierctl.wire.kraft import topic_of

from tests.apply.worlds import World
from tests.cli.shell import tierctl
from tests.commands.ended import ended
from tests.support.formatted import LOGS, bootstrap_name, files, formatted_node, segments
from tests.support.killing import RESTORE_LABELS, SIGKILLED, Zygote, met, moments
from tests.support.signing import signing_key

BOOTSTRAP = Path(bootstrap_name("4.4.0")).name
METADATA_LOG = "00000000000000000000.log"
TORN = f"fsync {METADATA_LOG}"
"""The events are written, and the test cuts the last batch: a kill or a power cut can do this."""
CHANGES = (
    *("write leader-epoch-checkpoint", "write partition.metadata", "rename leader-epoch-checkpoint"),
    *("rename recovery-point-offset-checkpoint", "write replication-offset-checkpoint.tmp"),
    *(f"rename {METADATA_LOG}", f"write {METADATA_LOG}", TORN),
    *(f"rename {BOOTSTRAP}.bak", f"write {BOOTSTRAP}.tmp", f"rename {BOOTSTRAP}"),
)
"""Changes of files, each of which a killed run does not make the middle time."""


def into(world: World, node: Path) -> tuple[object, ...]:
    configs = node.parent / "configs"
    configs.write_text("bills.retention.ms=-1\n")
    return (
        *("restore", "into", node, "--log-dir", node, "--remote", world.remote, "--topic-configs", configs),
        *("--topic", "bills", "--deletes-are-denied", "--apply"),
    )


def has_topic(node: Path) -> bool:
    values = BootstrapFile.decode((node / bootstrap_name("4.4.0")).read_bytes()).values
    return any(topic_of(value) is not None for value in values)


@pytest.mark.slow
def test_kill_around_every_side_effect_of_into(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole = formatted_node(tmp_path / "whole")
    objects = tiered.objects()
    ran = forked(*into(tiered, whole)).ok()
    assert (
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name bills "
        "--delete-config remote.log.copy.disable,local.retention.ms,local.retention.bytes\n"
    ) in ran.raw_err
    end, known = files(whole), segments(whole)
    assert known
    assert has_topic(whole)
    middle = (["file", each, (met(ran)["file", each] + 1) // 2] for each in CHANGES)
    kills = [*moments(met(ran), RESTORE_LABELS), *middle]
    for at, kill in enumerate(kills):
        node = formatted_node(tmp_path / str(at))
        assert forked(*into(tiered, node), kills=[kill]).code == SIGKILLED
        if TORN in kill:
            last = max(node.glob(f"{LOGS}*/{METADATA_LOG}"), key=lambda log: log.stat().st_mtime_ns)
            last.write_bytes(last.read_bytes()[:-10])
        # The topic is written last: a broker that starts with it finds its log, checkpoints and segments.
        if has_topic(node):
            assert files(node) == end, kill
            assert segments(node) == known, kill
        forked(*into(tiered, node)).ok()
        assert files(node) == end, kill
        assert segments(node) == known, kill
        assert not list(node.glob("*-delete"))
    assert forked(*into(tiered, whole)).code == 0
    assert (files(whole), segments(whole)) == (end, known), "a rerun changes nothing"
    assert tiered.objects() == objects


def test_a_saved_plan_names_the_same_node_in_another_folder(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, other = (formatted_node(tmp_path / each / "node") for each in ("one", "two"))
    before, plan = files(other), tmp_path / "plan"
    _, _, _, *options, _ = into(tiered, planned)
    monkeypatch.chdir(planned.parent)
    tierctl("restore", "into", "node", *options, "--plan-out", plan).ok()
    monkeypatch.chdir(other.parent)
    tierctl("apply", plan, *options[:6], "--apply").ok()
    assert has_topic(planned)
    assert files(other) == before


LOG_LABELS = tuple(
    label
    for label in LABELS
    if label.startswith(("materialise.", "restore.staging.", "restore.partition.", "restore.old_folder."))
    or label == "restore.checkpoints.write"
)
LOG_ID = Uuid("AAAAAAAAAAAAAAAAAAAAAQ")


def new_broker(folder: Path) -> Path:
    """Return the directory of a stopped broker with the empty log of a new topic."""
    partition = folder / "bills-0"
    partition.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {LOG_ID}")
    (partition / "00000000000000000000.log").touch()
    return folder


def log_command(world: World, log_dir: Path) -> tuple[object, ...]:
    return ("restore", "log", *world.where, "--topic", "bills", "--log-dir", log_dir, "--apply")


@pytest.fixture
def without_keys(tiered: World, tmp_path: Path) -> tuple[object, ...]:
    """Return the options that erase the records of the first key of bills-0, with the lists in `lists`."""
    row = json.loads(tierctl("fetch", *tiered.where, "--topic", "bills", "--binary", "hex").lines[0])
    (tmp_path / "keys").write_text(f"hex:{row['key']}\n")
    signing_key(tmp_path / "key.pem")
    files_of = ("--without-keys", tmp_path / "keys", "--sign-with", tmp_path / "key.pem")
    return (*files_of, "--left-out", tmp_path / "lists")


def lists(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "lists").glob("*"))}


def log_files(log_dir: Path) -> dict[str, bytes]:
    """Return every file that a broker does not delete when it starts, except backups and locks."""
    found = (path for path in log_dir.rglob("*") if path.is_file() and path.suffix not in {".bak", ".lock"})
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in found
        if not path.relative_to(log_dir).parts[0].endswith("-delete")
    }


@pytest.mark.slow
def test_kill_around_every_side_effect_of_log(
    tiered: World, forked: Zygote, tmp_path: Path, without_keys: tuple[object, ...]
) -> None:
    whole = new_broker(tmp_path / "whole")
    ran = forked(*log_command(tiered, whole), *without_keys).ok()
    end, listed = log_files(whole), lists(tmp_path)
    assert list(listed) == ["bills-0.jsonl", "bills-0.jsonl.sig"]
    (log,) = read_log_dirs([whole])
    assert log.log_end_offset > 0
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs] == [(0, 0)]
    assert not list(whole.glob("*-delete"))
    for at, kill in enumerate(moments(met(ran), LOG_LABELS)):
        log_dir = new_broker(tmp_path / str(at))
        shutil.rmtree(tmp_path / "lists")
        before = {name: data for name, data in log_files(log_dir).items() if name.startswith("bills-0")}
        assert forked(*log_command(tiered, log_dir), *without_keys, kills=[kill]).code == SIGKILLED
        there = {name: data for name, data in log_files(log_dir).items() if name.startswith("bills-0")}
        committed = {name: data for name, data in end.items() if name.startswith("bills-0")}
        assert there in ({}, before, committed), kill
        if there == committed:
            assert log_files(log_dir) == end
            assert lists(tmp_path) == listed
        again = forked(*log_command(tiered, log_dir), *without_keys).ok()
        assert "left out" in again.err
        assert log_files(log_dir) == end
        assert lists(tmp_path) == listed
        assert not list(log_dir.glob("*-delete"))
    assert forked(*log_command(tiered, whole), *without_keys).code == 0
    assert (log_files(whole), lists(tmp_path)) == (end, listed), "a rerun changes nothing"


def test_too_little_room_is_refused_before_anything_is_written(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = new_broker(tmp_path / "broker")
    before = log_files(log_dir)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("tierctl.commands.restore.to_log.shutil.disk_usage", lambda _path: usage)
    ran = tierctl(*log_command(tiered, log_dir))
    assert (ran.code, "has 1000 bytes free, the logs need" in ran.err) == (4, True), ran.err
    assert log_files(log_dir) == before


ID_LABELS = [label for label in LABELS if label.startswith("restore.") and "bootstrap" not in label]
NEW_ID = Uuid("NewIdNewIdNewIdNewIdNQ")
TIER = "kafka-tiered-storage"


def partitions(world: World) -> list[str]:
    """Return the names of the partitions of bills that have objects."""
    found = {path.name[:-23] for path in (world.remote / TIER).iterdir()}
    return sorted(name for name in found if name.startswith("bills-"))


def with_new_topic(world: World, target: Path, epochs: str = "1\n99 0\n") -> World:
    """Return a copy of the world whose broker has the empty logs of a new topic."""
    found = world.clone(target)
    (found.metadata / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    for name in partitions(world):
        folder = found.metadata / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW_ID}")
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{epochs}")
        (folder / "00000000000000000000.log").touch()
    return found


def new_ids(world: World, *more: object) -> tuple[object, ...]:
    return (
        *("restore", "new-ids", *world.where, "--log-dir", world.metadata, "--topic", "bills"),
        *("--assume-enabled", "--apply", *more),
    )


def copies(world: World) -> dict[str, bytes]:
    """Return the objects under the new id, by the keys that they have under the old id."""
    old = next(
        path.name[-22:]
        for path in (world.remote / TIER).iterdir()
        if path.name.startswith("bills-") and path.name[-22:] != NEW_ID
    )
    return {key.replace(NEW_ID, old): data for key, data in world.objects().items() if NEW_ID in key}


def new_segments(world: World) -> set[tuple[object, ...]]:
    return {_facts(segment) for segment in world.segments() if segment.topic_id == NEW_ID}


def _facts(s: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (s.partition, s.segment_id, s.start_offset, s.end_offset, s.segment_leader_epochs, s.state)


def logs(world: World) -> dict[str, bytes]:
    """Return the files of the new topic's logs, and the topic's entries in the checkpoint files."""
    found = {
        str(path.relative_to(world.metadata)): path.read_bytes()
        for path in world.metadata.glob("bills-*/*")
        if not path.parent.name.endswith("-delete")
    }
    for path in world.metadata.glob("*-offset-checkpoint"):
        own = {p: o for p, o in read_offset_checkpoint(path.read_bytes()).items() if p.topic == "bills"}
        found[path.name] = str(sorted(own.items())).encode()
    return found


@pytest.mark.slow
def test_kill_around_every_side_effect_of_new_ids(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole = with_new_topic(tiered, tmp_path / "whole")
    ran = forked(*new_ids(whole)).ok()
    end = (copies(whole), logs(whole), new_segments(whole))
    objects = tiered.objects()
    of_bills = {key: data for key, data in objects.items() if key.startswith(f"{TIER}/bills-")}
    assert end[0] == of_bills
    assert len(end[2]) == sum(key.endswith(".log") for key in of_bills)
    assert objects.items() <= whole.objects().items()
    for at, kill in enumerate(moments(met(ran), ID_LABELS)):
        world = with_new_topic(tiered, tmp_path / str(at))
        assert forked(*new_ids(world), kills=[kill]).code == SIGKILLED
        if new_segments(world):
            # Events are written last: every segment that they name is in the tier, and the logs are renamed.
            assert (copies(world), logs(world)) == end[:2], kill
        forked(*new_ids(world)).ok()
        assert (copies(world), logs(world), new_segments(world)) == end, kill
        assert objects.items() <= world.objects().items()
        assert not list(world.metadata.glob("*-delete"))
    assert forked(*new_ids(whole)).code == 0
    assert (copies(whole), logs(whole), new_segments(whole)) == end, "a rerun changes nothing"


def prepared(world: World, folder: Path, command: str) -> tuple[Path, tuple[object, ...]]:
    """Return a new log directory, and the command line that restores bills into it."""
    if command == "into":
        node = formatted_node(folder / "node")
        return node, into(world, node)
    new = with_new_topic(world, folder / "world")
    return new.metadata, new_ids(new) if command == "new-ids" else log_command(world, new.metadata)


@pytest.mark.parametrize("command", ["into", "new-ids", "log"])
def test_one_run_at_a_time_in_a_log_directory(tiered: World, tmp_path: Path, command: str) -> None:
    """Where no broker has run, the second of two runs deleted the new files of the first one."""
    log_dir, run = prepared(tiered, tmp_path, command)
    with exclusive(log_dir):
        ended(tierctl(*run), 6, f"{log_dir} is being written by another tierctl")
        tierctl(*(each for each in run if each != "--apply")).ok()
    tierctl(*run).ok()


@pytest.mark.parametrize("nth", [1, 3, 5])
@pytest.mark.parametrize(
    ("number", "code", "hint"),
    [
        (errno.ENOSPC, 5, "the disk is full: free space, then run again"),
        (errno.EACCES, 11, "this user may not do that: check owner and mode of the folder"),
    ],
)
@pytest.mark.parametrize("command", ["into", "new-ids", "log"])
def test_a_staging_folder_that_can_not_be_made(
    tiered: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: str,
    nth: int,
    number: int,
    code: int,
    hint: str,
) -> None:
    log_dir, run = prepared(tiered, tmp_path, command)
    before, since = log_files(log_dir), 0

    def fail(_operation: str, path: Path) -> None:
        nonlocal since
        since += bool(since or path.name.endswith("-delete"))
        if since == nth + 1:
            raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(PLAIN, "_observe", fail)
    # The objects of new-ids are copied before.
    ended(tierctl(*run), 3 if command == "new-ids" else code, f"{os.strerror(number)} (", f"{hint})")
    assert (log_files(log_dir), list(log_dir.glob("*-delete"))) == (before, [])
    tierctl(*run).ok()


@pytest.mark.parametrize(
    ("make", "code"),
    [(lambda path: path.symlink_to(__file__), 4), (lambda path: path.write_text("damaged"), 7)],
)
@pytest.mark.parametrize("command", ["into", "new-ids", "log"])
def test_a_checkpoint_that_can_not_be_changed(
    tiered: World, tmp_path: Path, command: str, make: Callable[[Path], object], code: int
) -> None:
    """The logs were in place before a run met the link, and its exit code says that nothing was changed."""
    log_dir, run = prepared(tiered, tmp_path, command)
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.unlink(missing_ok=True)
    make(checkpoint)
    before = log_files(log_dir)
    # The objects of new-ids are copied before.
    ended(tierctl(*run), 3 if (command, code) == ("new-ids", 4) else code, f"{checkpoint}")
    assert (log_files(log_dir), list(log_dir.glob("*-delete"))) == (before, [])
    checkpoint.unlink()
    tierctl(*run).ok()


@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("command", ["new-ids", "log"])
def test_a_disk_that_fails_while_the_log_is_put_in_place(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, command: str, nth: int, lasts: bool
) -> None:
    """The folder of the new topic was set aside, and deleted with what the run left."""
    state = "its former folder is" if lasts else "the partition's folder was not changed"
    if nth == 3:
        state = "the new log is in its place, but a power cut may undo that"
    log_dir, run = prepared(tiered, tmp_path, command)
    since: list[str] = []

    def fail(operation: str, path: Path) -> None:
        since.extend([operation] if since or path.name == "old" else [])
        if len(since) == nth + 2 or (lasts and len(since) > nth + 2):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(PLAIN, "_observe", fail)
    ran = tierctl(*run)
    monkeypatch.undo()
    ended(ran, 3 if command == "new-ids" else 5, "Input/output error", f"({state}")
    folders = [former_folder(log_dir, name) for name in partitions(tiered)]
    assert all((folder / "partition.metadata").exists() for folder in folders)
    assert lasts or [folder.parent for folder in folders] == [log_dir]
    seen: list[tuple[str, Path]] = []
    monkeypatch.setattr(PLAIN, "_observe", lambda *each: seen.append(each))
    assert tierctl(*run).code == 0
    assert ("fsync-dir", log_dir) in seen
    assert list(log_dir.glob("bills-*/*.log"))
    assert not list(log_dir.glob("*-delete"))


def test_what_is_refused(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    low = with_new_topic(tiered, tmp_path / "low", epochs="0\n")
    used = with_new_topic(tiered, tmp_path / "used")
    (used.metadata / "bills-0" / "00000000000000000000.log").write_bytes(b"\0" * 100)
    other_file = with_new_topic(tiered, tmp_path / "other_file")
    (other_file.metadata / "bills-0" / "00000000000000000000.log.gz").touch()
    missing = with_new_topic(tiered, tmp_path / "missing")
    shutil.rmtree(missing.metadata / "bills-0")
    replicas = with_new_topic(tiered, tmp_path / "replicas")
    other = tmp_path / "other"
    shutil.copytree(replicas.metadata, other)
    damaged = with_new_topic(tiered, tmp_path / "hole")
    logs_of = sorted((damaged.remote / TIER).glob("bills-0-*/*.log"))
    logs_of[1].unlink()
    for world, more, why in (
        (low, (), "would truncate the lineage"),
        (used, (), "has or had records"),
        (other_file, (), "0.log.gz would be deleted with the folder"),
        (missing, (), "no log directory has a folder of bills-0"),
        (replicas, ("--log-dir", other), "with one replica"),
        (damaged, (), "no set of objects has offsets"),
    ):
        before = world.objects()
        ran = forked(*new_ids(world, *more))
        assert (ran.code, why in ran.err) == (4, True), ran.err
        assert world.objects() == before
        assert not new_segments(world)


def test_a_saved_plan_is_carried_out(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole, planned = (with_new_topic(tiered, tmp_path / name) for name in ("whole", "planned"))
    assert forked(*new_ids(whole)).code == 0
    saved = tmp_path / "plan.json"
    forked(*new_ids(planned)[:-1], "--plan-out", saved).ok()
    assert not copies(planned)
    apply = ("apply", saved, *planned.where, "--log-dir", planned.metadata, "--apply")
    for _ in range(2):
        ran = forked(*apply)
    for found in (copies, logs, new_segments):
        assert found(planned) == found(whole)
    ran = forked(*new_ids(planned), "--topic-id", NEW_ID)
    assert (ran.code, "--from-id" in ran.err) == (2, True), ran.err
