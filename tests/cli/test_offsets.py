"""`tierctl offsets`: both file formats, impossible offsets, and repairs, which only lower offsets."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands import offsets as commands_of_offsets
from tierctl.metadata.topic.folder import FolderTopic
from tierctl.model import Uuid
from tierctl.wire.batches.record_batch import Record, encode_batch
from tierctl.wire.files import checkpoints
from tierctl.wire.files import flatfile as snapshot
from tierctl.wire.files.checkpoints import OffsetsForm

from tests.cli.shell import rows, tierctl, tierctl_process
from tests.conftest import DATA

GOLDEN = DATA / "vectors" / "kafka-3.6" / "_rlmm_committed_offsets"
SNAPSHOT = DATA / "vectors" / "kafka-3.6" / "remote_log_snapshot"
NAME = "_rlmm_committed_offsets"
Capture = Callable[[str], Path]


def offsets(*args: object, code: int = 0) -> list[dict[str, Any]]:
    return rows("offsets", *args, code=code)


def test_show_reads_kafkas_own_form_and_that_of_the_kip(tmp_path: Path) -> None:
    found = offsets("show", GOLDEN)
    expected = [tuple(map(int, line.split())) for line in GOLDEN.read_text().splitlines()[2:]]
    assert [(row["metadata_partition"], row["committed_offset"]) for row in found] == expected
    assert {row["form"] for row in found} == {"checkpoint"}
    (tmp_path / NAME).write_text("3 17\n0 4\n")
    assert offsets("show", "--log-dir", tmp_path) == [
        {"metadata_partition": 3, "committed_offset": 17, "form": "kip"},
        {"metadata_partition": 0, "committed_offset": 4, "form": "kip"},
    ]
    ran = tierctl("offsets", "check", "--log-dir", tmp_path, "--log-dir", tmp_path / "typo")
    assert (ran.code, ran.out) == (10, "")
    assert f"{tmp_path}/typo: no such folder" in ran.err


@pytest.mark.parametrize(
    ("text", "good", "place"),
    [
        ("1 5\n2 x\n3 7\n", {1: 5, 3: 7}, "line 2 at byte 4"),
        ("what?\n", {}, "line 1 at byte 0"),
        ("1\n1\n0 5\n", {}, "line 1 at byte 0"),
    ],
)
def test_show_prints_the_good_lines_of_a_damaged_file(
    text: str, good: dict[int, int], place: str, tmp_path: Path
) -> None:
    """tests/wire/files/test_checkpoints.py has every kind of damage."""
    (tmp_path / NAME).write_text(text)
    ran = tierctl("offsets", "show", tmp_path / NAME, "--output", "jsonl")
    assert {row["metadata_partition"]: row["committed_offset"] for row in ran.rows} == good
    hint = "tierctl offsets repair keeps the good lines" if good else "check that this is a file of committed"
    assert (ran.code, f"\nhint: {hint}" in ran.err) == (7, True)
    assert f"{place} of {tmp_path / NAME}: " in ran.err


@pytest.fixture
def caches(after: Path, tmp_path: Path) -> Path:
    """Return the files of a broker with KIP-405's cache: flat files, and the offsets up to their events."""
    folder = tmp_path / "caches"
    assert tierctl("cache", "build", "--metadata", after, "--out", folder).code == 0
    ends = FolderTopic(after, complete=True).end_offsets()
    read = {number: end - 1 for number, end in ends.items() if end}
    (folder / NAME).write_bytes(checkpoints.write_committed_offsets(read))
    return folder


def committed(folder: Path) -> dict[int, int]:
    return dict(checkpoints.read_committed_offsets((folder / NAME).read_bytes()).offsets)


def test_good_caches_have_no_findings(after: Path, caches: Path) -> None:
    assert offsets("check", "--log-dir", caches, "--metadata", after) == []
    assert offsets("repair", "--log-dir", caches, "--metadata", after, "--apply") == []
    assert not (caches / f"{NAME}.bak").exists()


def test_check_and_repair(after: Path, caches: Path) -> None:
    """Offsets beyond the end, unknown offsets, and offsets above an event of a missing cache are unsafe."""
    before = committed(caches)
    (caches / NAME).write_bytes(checkpoints.write_committed_offsets(before | {3: 9999, 17: 3}))
    next(caches.glob("shortlived-1-*.rlmcache")).unlink()
    unsafe = offsets("check", "--log-dir", caches, "--metadata", after, code=7)
    found = {(row["metadata_partition"], row["problem"], row["limit"]) for row in unsafe}
    assert found == {
        (3, "beyond the log's end", 63),
        (17, "unknown partition", None),
        (4, "ahead of the caches", None),
    }
    plan = offsets("repair", "--log-dir", caches, "--metadata", after, "--detailed-exitcode", code=9)
    assert {(s["action"], s["metadata_partition"], s["to_offset"]) for s in plan} == {
        ("lower", 3, 63),
        ("drop", 4, None),
        ("drop", 17, None),
    }
    for target in ("3=64", "4=0"):
        ran = tierctl("offsets", "repair", "--log-dir", caches, "--metadata", after, "--set", target)
        assert (ran.code, ran.out, "highest safe offset" in ran.err) == (4, "", True)
    assert committed(caches) == before | {3: 9999, 17: 3}
    assert offsets("repair", "--log-dir", caches, "--metadata", after, "--apply") == plan
    assert committed(caches) == {p: o for p, o in before.items() if p != 4}
    kept = checkpoints.read_committed_offsets((caches / f"{NAME}.bak").read_bytes())
    assert dict(kept.offsets) == before | {3: 9999, 17: 3}
    assert offsets("check", "--log-dir", caches, "--metadata", after) == []


def test_offsets_that_another_run_lowered_meanwhile_do_not_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plan = tmp_path / NAME, commands_of_offsets._plan

    def lowered(*given: Any) -> Any:
        path.write_text("0 10\n1 3\n")
        return plan(*given)

    path.write_text("0 10\n1 10\n")
    monkeypatch.setattr(commands_of_offsets, "_plan", lowered)
    ran = tierctl("offsets", "repair", path, "--set", "0=5", "--apply")
    assert (ran.code, "was changed by another program" in ran.err) == (4, True), ran.err
    assert path.read_text() == "0 10\n1 3\n"
    monkeypatch.undo()
    offsets("repair", path, "--set", "0=5", "--apply")
    assert path.read_text().split("\n")[:2] == ["0 5", "1 3"]


def test_an_offset_above_a_record_that_is_not_understood(after: Path, caches: Path, tmp_path: Path) -> None:
    """The event may be in no cache; a lower offset would not make it readable."""
    copied = shutil.copytree(after, tmp_path / "after")
    number, last = next(iter(committed(caches).items()))
    log = max((copied / f"__remote_log_metadata-{number}").glob("*.log"))
    strange = Record(offset=last + 1, timestamp_ms=0, key=None, value=b"cc", headers=())
    log.write_bytes(log.read_bytes() + encode_batch([strange]))
    (caches / NAME).write_bytes(checkpoints.write_committed_offsets(committed(caches) | {number: last + 1}))
    (row,) = offsets("check", "--log-dir", caches, "--metadata", copied, code=7)
    assert (row["problem"], row["committed_offset"], row["limit"]) == ("not understood", last + 1, last + 1)
    assert f"the record at offset {last + 1} is not understood" in row["detail"]
    ran = tierctl("offsets", "repair", "--log-dir", caches, "--metadata", copied, "-o", "jsonl")
    assert (ran.code, ran.rows) == (7, [])
    assert f"metadata partition {number} keeps offset {last + 1}: {row['detail']}" in ran.err
    to_it = f"{number}={last}"
    (step,) = offsets("repair", "--log-dir", caches, "--metadata", copied, "--set", to_it, "--apply")
    assert (step["action"], step["to_offset"]) == ("lower", last)


def test_nothing_to_compare_with(after: Path, caches: Path, tmp_path: Path) -> None:
    """Offsets that could not be compared are not safe: check and repair must end with an error."""
    (tmp_path / NAME).write_bytes((caches / NAME).read_bytes())
    for more in (("--log-dir", caches), (tmp_path / NAME,)):
        for command in ("check", "repair"):
            ran = tierctl("offsets", command, *more)
            assert (ran.code, ran.out) == (2, "")
            assert "nothing to compare the offsets with" in ran.err
            assert "--metadata" in ran.err
    write_snapshots(tmp_path, snapshot.write_snapshot(99, 10, []))
    assert tierctl("offsets", "check", "--log-dir", tmp_path).code == 2
    assert tierctl("offsets", "check", "--log-dir", caches, "--metadata", after).code == 0


def write_snapshots(folder: Path, *contents: bytes) -> None:
    """Write the snapshots of Kafka 3 of partitions of a topic."""
    for number, content in enumerate(contents):
        (folder / f"orders-{number}").mkdir()
        (folder / f"orders-{number}" / "remote_log_snapshot").write_bytes(content)


def test_offsets_ahead_of_kafka_3s_snapshots(tmp_path: Path) -> None:
    write_snapshots(tmp_path, *(snapshot.write_snapshot(2, offset, []) for offset in (40, 30)))
    (tmp_path / NAME).write_text("0\n1\n2 35\n")
    (row,) = offsets("check", "--log-dir", tmp_path, code=7)
    assert (row["problem"], row["limit"]) == ("ahead of a cache", 30)
    offsets("repair", "--log-dir", tmp_path, "--apply")
    assert (tmp_path / NAME).read_text() == "0\n1\n2 30\n"


@pytest.mark.parametrize("content", [snapshot.write_snapshot(2, 10, []), b"\0\0\0"])
def test_a_snapshot_of_a_deleted_partition_says_nothing(content: bytes, tmp_path: Path) -> None:
    """A broker that was killed leaves its folder, and ignores it: the snapshot stays as it was."""
    write_snapshots(tmp_path, snapshot.write_snapshot(2, 40, []), content)
    (tmp_path / "orders-1").rename(tmp_path / "orders-1.5bdc1fcf2ea94c4aa0b0b1a8-delete")
    (tmp_path / NAME).write_text("0\n1\n2 35\n")
    assert offsets("check", "--log-dir", tmp_path) == []


def test_a_cache_with_a_damaged_entry_holds_no_event_for_sure(after: Path, caches: Path) -> None:
    """Its header states the offset before which it had all events, but some of them are lost."""
    flat = max(caches.glob("orders-*.rlmcache"), key=lambda path: path.stat().st_size)
    flat.write_bytes(flat.read_bytes()[:-5])
    (row,) = offsets("check", "--log-dir", caches, "--metadata", after, code=7)
    assert row["problem"] == "ahead of the caches"
    offsets("repair", "--log-dir", caches, "--metadata", after, "--apply")
    assert offsets("check", "--log-dir", caches, "--metadata", after) == []


@pytest.mark.parametrize("damage", ["empty", "renamed"])
def test_a_cache_of_an_unknown_partition_holds_no_event(damage: str, after: Path, caches: Path) -> None:
    """A crash may leave an empty file, and there may be no other one to compare the offsets with.

    Only the name of a flat file states its partition.
    """
    for flat in [*caches.glob("*.rlmcache")]:
        if damage == "empty":
            flat.write_bytes(b"")
        else:
            flat.rename(caches / flat.name.replace("-", "", 2))
    ran = tierctl("offsets", "check", "--log-dir", caches, "--metadata", after, "-o", "jsonl")
    assert (ran.code, {row["limit"] for row in ran.rows}) == (7, {None})
    assert ran.err.count("unreadable: ") == 9
    (caches / NAME).write_text("0\n0\n")
    assert offsets("check", "--log-dir", caches, "--metadata", after, code=7) == []


def test_a_damaged_snapshot_of_kafka_3_holds_no_event_for_sure(tmp_path: Path) -> None:
    write_snapshots(tmp_path, SNAPSHOT.read_bytes()[:-1])
    (tmp_path / NAME).write_text("0\n1\n3 4567\n")
    (row,) = offsets("check", "--log-dir", tmp_path, code=7)
    assert (row["problem"], row["limit"], "is damaged" in row["detail"]) == ("ahead of a cache", None, True)


def test_an_unreadable_snapshot_is_no_success(tmp_path: Path) -> None:
    write_snapshots(tmp_path, SNAPSHOT.read_bytes(), b"\0\0\0")
    (tmp_path / NAME).write_text("0\n2\n3 4567\n4 9\n")
    for command in ("check", "repair"):
        assert offsets(command, "--log-dir", tmp_path, code=7) == []


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0", snapshot.write_snapshot(-1, 1 << 40, [])])
def test_a_partition_without_its_snapshot_of_kafka_3(
    content: bytes | None, after: Path, tmp_path: Path
) -> None:
    """Its broker wrote all snapshots before the offsets, so that it would never read these events again.

    A partition without events needs no snapshot, nor does one that is not on this broker.
    """
    folder = tmp_path / "broker"
    built, read = write_broker(folder, after)
    where = ("--log-dir", folder, "--metadata", after)
    assert offsets("check", *where) == []
    for lost in built[1:]:
        file = folder / f"{lost['topic']}-{lost['partition']}" / "remote_log_snapshot"
        whole = file.read_bytes()
        file.unlink() if content is None else file.write_bytes(content)
        (row,) = offsets("check", *where, code=7)
        number = lost["metadata_partition"]
        assert (row["metadata_partition"], row["problem"]) == (number, "ahead of the caches")
        assert f"{lost['topic_id']}:{lost['topic']}-{lost['partition']}" in row["detail"]
        assert row["limit"] is None or row["limit"] < read[number]
        file.write_bytes(whole)


def test_a_snapshot_that_states_another_metadata_partition_has_no_event_for_sure(
    after: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    built, read = write_broker(folder, after)
    lost = built[1]
    own = lost["metadata_partition"]
    other = next(number for number in read if number != own)
    file = folder / f"{lost['topic']}-{lost['partition']}" / "remote_log_snapshot"
    file.write_bytes(snapshot.write_snapshot(other, read[other], []))
    (row,) = offsets("check", "--log-dir", folder, "--metadata", after, code=7)
    assert (row["metadata_partition"], row["problem"], row["limit"]) == (own, "ahead of a cache", None)
    assert f"it states metadata partition {other}, but the events of" in row["detail"]
    offsets("repair", "--log-dir", folder, "--metadata", after, "--apply")
    assert committed(folder) == {number: offset for number, offset in read.items() if number != own}


def write_broker(folder: Path, after: Path) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Write the log directory of a broker of Kafka 3 that read all events but those of the first partition.

    Return the rows of `cache build`, and the committed offsets.
    """
    built = rows("cache", "build", "--metadata", after, "--out", folder.with_name("flat"))
    ends = FolderTopic(after, complete=True).end_offsets()
    of_an_untiered = {"topic": "untiered", "topic_id": "0123456789abcdefghijkg", "partition": 0}
    for row in [*built[1:], of_an_untiered]:
        of_partition = folder / f"{row['topic']}-{row['partition']}"
        of_partition.mkdir(parents=True)
        topic_id = checkpoints.write_partition_metadata(Uuid(row["topic_id"]))
        (of_partition / "partition.metadata").write_bytes(topic_id)
        if (number := row.get("metadata_partition")) is not None:
            data = snapshot.write_snapshot(number, ends[number] - 1, [])
            (of_partition / "remote_log_snapshot").write_bytes(data)
    read = {number: end - 1 for number, end in ends.items() if end}
    (folder / NAME).write_bytes(checkpoints.write_committed_offsets(read))
    return built, read


def test_the_caches_of_another_broker_are_not_compared(after: Path, tmp_path: Path) -> None:
    """They would stand for a snapshot that this one lacks, and one that is behind would lower its offsets."""
    own, other = tmp_path / "own", tmp_path / "other"
    built, _ = write_broker(own, after)
    shutil.copytree(own, other)
    (other / NAME).unlink()
    for number, folder in enumerate((own, other)):
        (folder / "meta.properties").write_text(
            f"version=1\ncluster.id=yDRBVCh3QKmOs6aFeYUCUQ\nnode.id={number}\n"
        )
    lost, behind = (f"{row['topic']}-{row['partition']}/remote_log_snapshot" for row in built[1:3])
    (own / lost).unlink()
    (other / behind).write_bytes(snapshot.write_snapshot(built[2]["metadata_partition"], 0, []))
    alone = offsets("check", "--log-dir", own, "--metadata", after, code=7)
    assert [row["problem"] for row in alone] == ["ahead of the caches"]
    ran = tierctl(
        "offsets", "check", "--log-dir", own, "--log-dir", other, "--metadata", after, "-o", "jsonl"
    )
    assert (ran.code, ran.rows) == (7, alone)
    assert f"{other} is not compared with {own / NAME}: it is of broker 1" in ran.err


def test_raising_needs_force(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_text("1 5\n2 9\n")
    for target in ("1=6", "7=0"):
        ran = tierctl("offsets", "repair", file, "--set", target, "--apply")
        assert (ran.code, ran.out) == (4, "")
        assert "--force" in ran.err
    assert file.read_text() == "1 5\n2 9\n"
    offsets("repair", file, "--set", "1=6", "--set", "2=3", "--force", "--apply")
    assert file.read_text() == "1 6\n2 3\n"
    assert checkpoints.read_committed_offsets(file.read_bytes()).form is OffsetsForm.KIP


@pytest.mark.parametrize(
    "text",
    [
        "garbage\n",
        "0\n",
        "0\n1\norders 0 1800\n",
        "orders 0 1800\n",
        "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:/:/bin/sh\n",
        "1\n2\n0 5\n1 7\n",
        "\0\0\0\0",
    ],
)
def test_a_file_without_a_good_line_starts_over_with_force_only(text: str, tmp_path: Path) -> None:
    """It may be a file of another kind, or of a version whose lines mean something else."""
    file = tmp_path / NAME
    file.write_text(text)
    for more in ([], ["--apply"], ["--set", "0=3", "--apply"]):
        ran = tierctl("offsets", "repair", file, *more)
        assert (ran.code, ran.out, "--force" in ran.err, file.read_text()) == (7, "", True, text)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    steps = offsets("repair", file, "--apply", "--force")
    assert ({step["action"] for step in steps}, committed(tmp_path)) == ({"start_over"}, {})
    assert (tmp_path / f"{NAME}.bak").read_text() == text


@pytest.mark.parametrize("text", ["0\n2\n0 0\n1 40\n", "0\n1\norders 0 1800\n", "0\n0\n", ""])
@pytest.mark.parametrize("name", [*checkpoints.CHECKPOINT_FILES, "17.leader-epoch-checkpoint"])
def test_another_checkpoint_file_is_refused(name: str, text: str, after: Path, tmp_path: Path) -> None:
    """A leader-epoch checkpoint has the same lines as a file of committed offsets."""
    file = tmp_path / name
    file.write_text(text)
    for command in ("show", "check", "repair"):
        more = [] if command == "show" else ["--metadata", after]
        ran = tierctl("offsets", command, file, *more, *["--apply", "--force"] * (command == "repair"))
        assert (ran.code, ran.out, f"committed offsets: {NAME}" in ran.err) == (2, "", True)
    assert file.read_text() == text


@pytest.mark.parametrize("head", ["", "0\n4\n"])
def test_repair_keeps_the_good_lines_of_a_damaged_file(head: str, tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_text(f"{head}1 5\n2 x\n3 7\n4 9\n")
    (step,) = offsets("repair", file)
    assert (step["action"], "2 x" in step["reason"]) == ("drop_line", True)
    steps = offsets("repair", file, "--set", "4=8", "--apply")
    assert [each["action"] for each in steps] == ["drop_line", "lower"]
    assert file.read_text() == f"{head and head.replace('4', '3')}1 5\n3 7\n4 8\n"
    assert committed(tmp_path) == {1: 5, 3: 7, 4: 8}


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("0\n2\n1 5\n2 7", ["rewrite"]),
        ("0\n9\n1 5\n2 7\n", ["rewrite"]),
        ("x\n2\n1 5\n2 7\n", ["rewrite"]),
        ("2\n1 5\n2 7\n", ["rewrite", "rewrite"]),
        ("0\n2\n1 5\n2 7\nx", ["rewrite", "drop_line"]),
        ("1 5\n2 7\n2 9\n", ["drop_line"]),
    ],
)
def test_a_line_that_is_kept_is_not_called_dropped(text: str, actions: list[str], tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_text(text)
    assert [step["action"] for step in offsets("repair", file, "--apply")] == actions
    assert committed(tmp_path) == {1: 5, 2: 7}
    assert offsets("repair", file, "--set", "1=5") == []
    assert {each.name for each in tmp_path.iterdir()} <= {NAME, f"{NAME}.bak"}, "no lock is left"


def test_repair_refuses_a_running_brokers_file(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("1 5\n")
    lock = tmp_path / ".lock"
    lock.touch()
    with lock.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        # POSIX locks belong to a process, so another process must query them.
        ran = tierctl_process("offsets", "repair", tmp_path / NAME, "--set", "1=2", "--apply")
    assert ran.code == 4
    assert "broker is running" in ran.err
    assert (tmp_path / NAME).read_text() == "1 5\n"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["show"], 2, "no offsets are named"),
        (["check", "--log-dir", "."], 10, "no such file"),
        (["repair", NAME, "--set", "x=1"], 2, "expected PARTITION=OFFSET"),
        (["repair", NAME, "--set", "2147483648=1", "--force"], 2, "expected PARTITION=OFFSET"),
        (["repair", NAME, "--metadata", "kafka://x"], 2, "no host:port"),
        (["repair", NAME, "--set", "1=2", "--set", "1=3", "--apply"], 2, "names partition 1 twice: 2 and 3"),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], code: int, message: str, tmp_path: Path) -> None:
    if NAME in args:
        (tmp_path / NAME).write_text("1 5\n")
    ran = tierctl("offsets", *args, cwd=tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert not list(tmp_path.glob("*.bak"))


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_kept_of_a_file_can_be_read_by_nobody_else(is_link: bool, tmp_path: Path) -> None:
    """Whoever owns the folder could make a link to a file that only the user of the run can read."""
    secret = tmp_path / "secret"
    secret.write_text("for this user\n")
    secret.chmod(0o600)
    folder = tmp_path / "logs"
    folder.mkdir()
    if is_link:
        (folder / NAME).symlink_to(secret)
    else:
        secret.rename(folder / NAME)
    ran = tierctl("offsets", "repair", "--log-dir", folder, "--apply", "--force")
    if is_link:
        assert ran.code == 4, ran.err
        assert f"{folder}/{NAME} is a symbolic link" in ran.err
        assert (folder / NAME).is_symlink()
        assert not list(folder.glob("*.bak"))
    else:
        assert ran.code == 0, ran.err
        assert (folder / f"{NAME}.bak").stat().st_mode & 0o777 == 0o600


def test_a_plan_of_verify_lowers_them(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was written by a broker of Kafka 3.6; a second verify finds no problem."""
    monkeypatch.chdir(tmp_path)
    after = shutil.copytree(capture("tiered-cluster") / "after", tmp_path / "after")
    (after / NAME).write_bytes(checkpoints.write_committed_offsets({3: 9999, 4: 2, 17: 3}))
    where = ("--metadata", after, "--remote", capture("tiered-cluster") / "after-remote")
    verify = ("verify", *where, "--log-dir", "after", "--kind", "unsafe_committed_offset")
    found = tierctl(*verify, "--plan-out", tmp_path / "plan.json", "--output", "json")
    assert {(row["partition"], row["topic"]) for row in found.json} == {
        (3, "__remote_log_metadata"),
        (17, "__remote_log_metadata"),
    }
    steps = json.loads((tmp_path / "plan.json").read_text())["steps"]
    assert [(step["action"], step["partition"], step["to_offset"]) for step in steps] == [
        ("lower_offset", 3, 63),
        ("lower_offset", 17, None),
    ]
    apply = ("apply", tmp_path / "plan.json", *where, "--log-dir", after, "--apply", "--no-lease")
    monkeypatch.chdir(tmp_path.parent)
    ran = tierctl(*apply)
    assert ran.code == 0, ran.err
    assert committed(after) == {3: 63, 4: 2}
    monkeypatch.chdir(tmp_path)
    assert (after / f"{NAME}.bak").exists()
    assert tierctl(*verify, "--output", "json").json == []
    (after / NAME).write_text("damaged\n")
    assert "damaged" in tierctl(*verify[:-2], "--kind", "unreadable_log", "--output", "json").out
