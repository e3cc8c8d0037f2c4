"""Captured and made tiers as local logs of a new broker: the same records, up to every offset and time."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.commands.restore.new_logs import NewFolder, former_folder, remove_left
from tierctl.files import FileSystem
from tierctl.model import TopicIdPartition, TopicPartition
from tierctl.wire.batches.batch_head import CompressionType, Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.cli.shell import Ran, rows, tierctl
from tests.commands.ended import ended
from tests.locallog.made import PARTITION, TIME_MS, TOPIC_ID, write_log
from tests.read.made import made_tier
from tests.support.amounts import rest_in_matrix
from tests.support.captures import private_keys
from tests.support.cluster_metadata import make_log_dir
from tests.support.faults import flip_bit
from tests.wire.batches.same import scan

Capture = Callable[..., Path]
TIERS = {
    "tiered-cluster": ("before", "before-remote"),
    "delete-across-epoch": ("after", "after-remote"),
    "aiven-plain": ("broker-logs", "bucket"),
    "aiven-encrypted": ("broker-logs", "bucket"),
    "unclean-leader": ("before/broker-1", "before/remote"),
}
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return the directory of a stopped broker."""
    make_log_dir(tmp_path / "broker", 1, cluster_id="other")
    return tmp_path / "broker"


def new_id(topic: str) -> str:
    return topic.encode().hex()[:20].ljust(21, "A") + "A"


def records(*args: object) -> list[tuple[object, ...]]:
    found = rows("fetch", "--binary", "hex", *args)
    names = ("partition", "offset", "timestamp_ms", "timestamp_type", "key", "value")
    return [(*(row[name] for name in names), json.dumps(row["headers"])) for row in found]


def restored(log_dir: Path, topic: str, isolation: str) -> list[tuple[object, ...]]:
    """Return the records of the new topic, read only from the log directory."""
    nothing = log_dir.parent / "nothing"
    if not nothing.exists():
        (nothing / "__remote_log_metadata-0").mkdir(parents=True)
    (log_dir.parent / "tier" / "kafka-tiered-storage").mkdir(parents=True, exist_ok=True)
    where = ("--metadata", nothing, "--remote", log_dir.parent / "tier", "--log-dir", log_dir)
    return records(*where, "--topic", topic, "--isolation", isolation)


def restore(log_dir: Path, *args: object) -> Ran:
    return tierctl("restore", "log", "--log-dir", log_dir, *args)


RESTORED = [("tiered-cluster", True), ("delete-across-epoch", False)]
RESTORED += [(name, how) for name in TIERS for how in (True, False) if (name, how) not in RESTORED]


@pytest.mark.parametrize("case", rest_in_matrix(RESTORED), ids=str)
def test_every_record_of_the_captures(capture: Capture, log_dir: Path, case: tuple[str, bool]) -> None:
    name, with_metadata = case
    metadata, remote = (capture(name) / folder for folder in TIERS[name])
    where = ("--remote", remote, *private_keys(capture(name)))
    source = ("--metadata", metadata) if with_metadata else ()
    topics = {row["topic"] for row in rows("segments", "--metadata", metadata)}
    assert topics
    for topic in sorted(topics):
        arguments = (*where, *source, "--topic", topic, "--as-id", new_id(topic), "--apply")
        ran = restore(log_dir, *arguments, "--output", "json").ok()
        assert {each["status"] for each in ran.json["outcomes"]} == {"done"}
        for isolation in ISOLATIONS:
            wanted = records(*where, "--metadata", metadata, "--topic", topic, "--isolation", isolation)
            assert restored(log_dir, topic, isolation) == wanted
            assert wanted
        ended(restore(log_dir, *arguments), 0, "has the records already")


def test_a_log_ends_before_any_offset(capture: Capture, log_dir: Path) -> None:
    metadata, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    where = ("--remote", remote, "--metadata", metadata, "--topic", "payments")
    everything = records(*where, "--isolation", "read_uncommitted")
    committed = {each[1] for each in records(*where, "--isolation", "read_committed")}
    cut: list[int] = []
    for end in (1, 50, 51, 697, 1234, 3485, 9999):
        name, until = f"then-{end}", f"payments-0={end}"
        new = ("--as", name, "--as-id", new_id(f"{end:x}f"))
        ran = restore(log_dir, *where, *new, "--until", until, "--apply").ok()
        beyond = f"--until {until}: the tier has no record from offset 3485 on"
        assert (beyond in ran.err) == (end > 3485), ran.err
        wanted = [each for each in everything if each[1] < end]
        assert restored(log_dir, name, "read_uncommitted") == wanted
        found = {each[1] for each in restored(log_dir, name, "read_committed")}
        # A transaction that ends above --until is aborted: it is the last one.
        assert found <= committed
        missing = [each[1] for each in wanted if each[1] in committed - found]
        assert not missing or missing[-1] == max(each[1] for each in wanted)
        assert not missing or not [each for each in found if each > missing[0]]
        # Without the marker that aborts it, consumers would wait for its end.
        logs = [path.read_bytes() for path in sorted((log_dir / f"{name}-0").glob("*.log"))]
        assert not missing or scan(b"".join(logs))[-1].is_control
        cut += missing
    assert cut


@pytest.mark.parametrize("end", [697, 698, 3000, None])
def test_a_log_with_another_end_is_not_the_log(capture: Capture, log_dir: Path, end: int | None) -> None:
    """A run with another --until is refused; the markers that abort open transactions belong to the log."""
    metadata, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    where = ("--remote", remote, "--metadata", metadata, "--topic", "payments", "--as-id", new_id("x"))

    def again(until: int | None) -> Ran:
        more = () if until is None else ("--until", f"payments-0={until}")
        return restore(log_dir, *where, "--as", "new", *more, "--apply")

    again(end).ok()
    for other in (1, 50, 696, 697, 698, 1394, 2000, 2999, 3000, 3010, 3484, None):
        ended(again(other), *((0, "has the records already") if other == end else (4, "has records")))


@pytest.mark.parametrize("base", [0, 900_000])
def test_the_log_of_another_topic_is_not_the_log(capture: Capture, log_dir: Path, base: int) -> None:
    remote = ("--remote", capture("tiered-cluster") / "before-remote")
    restore(log_dir, *remote, "--topic", "payments", "--as", "x", "--as-id", new_id("x"), "--apply").ok()
    new = ("--topic", "orders", "--partition", 0, "--as", "x", "--until", "orders-0=500", "--apply")
    folder = log_dir / "x-0"
    first, *others = sorted(folder.glob("*.log"))
    for path in others:
        path.unlink()
    first.rename(folder / f"{base // 9:020d}.log")
    (folder / f"{base + 500:020d}.log").write_bytes(b"")
    ended(restore(log_dir, *remote, *new), 4, "has records")


def test_a_log_of_segments_that_overlap_is_the_log(tmp_path: Path, log_dir: Path) -> None:
    """A new leader may copy the end of the segment before again; the log has these records once."""
    spans = [(0, 10), (10, 20), (15, 25), (25, 35)]
    segments = [
        [[Record(at, TIME_MS + at, None, b"v") for at in range(base, base + 5)] for base in range(*span, 5)]
        for span in spans
    ]
    partition = TopicIdPartition(TOPIC_ID, PARTITION.topic, PARTITION.partition)
    made = made_tier(tmp_path, partition, segments)
    tier = ("--metadata", made["metadata"], "--remote", made["remote"], "--topic", PARTITION.topic)
    where = (*tier, "--as", "new", "--as-id", new_id("x"), "--apply")
    restore(log_dir, *where).ok()
    assert [each[1] for each in restored(log_dir, "new", "read_committed")] == list(range(35))
    ended(restore(log_dir, *where), 0, "has the records already")
    log = log_dir / "new-0" / f"{25:020d}.log"
    log.write_bytes(log.read_bytes()[:-74])
    ended(restore(log_dir, *where), 4, "has records")


def test_a_log_ends_before_the_first_later_record(capture: Capture, log_dir: Path) -> None:
    metadata, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    where = ("--remote", remote, "--metadata", metadata, "--topic", "orders", "--partition", 0)
    everything = records(*where)
    at_ms = everything[len(everything) // 2][2]
    restore(log_dir, *where, "--as-id", new_id("x"), "--until", at_ms, "--apply").ok()
    assert restored(log_dir, "orders", "read_uncommitted") == records(*where, "--to-time", at_ms)


def test_the_checkpoints_from_before_the_first_run_are_kept(capture: Capture, log_dir: Path) -> None:
    """Several partitions change them several times, and a run that goes on after another one again."""
    where = ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "orders")
    names = [f"{each}-checkpoint" for each in ("log-start-offset", "recovery-point-offset")]
    before = "0\n1\nother 0 7\n"
    for name in names:
        (log_dir / name).write_text(before)
    for partitions in (("--partition", "0", "--partition", "1"), ()):
        options = (*partitions, "--as-id", new_id("x"), "--wave-size", 1, "--apply")
        between = (log_dir / names[0]).read_text()
        restore(log_dir, *where, *options).ok()
        for name in names:
            assert (log_dir / f"{name}.bak").read_text() == before
    assert (log_dir / f"{names[0]}.2.bak").read_text() == between
    assert "orders 1 " in between
    assert "orders 2 " in (log_dir / names[0]).read_text()


def test_a_saved_plan_is_carried_out(capture: Capture, log_dir: Path, tmp_path: Path) -> None:
    _, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    where = ("--remote", remote, "--topic", "orders")
    saved = tmp_path / "plan.json"
    restore(log_dir, *where, "--as-id", new_id("x"), "--until", "orders-1=100", "--plan-out", saved).ok()
    assert not list(log_dir.glob("orders-*"))
    tierctl("apply", saved, "--remote", remote, "--log-dir", log_dir, "--apply").ok()
    assert {each[0] for each in restored(log_dir, "orders", "read_committed")} == {0, 1, 2}
    assert len([each for each in restored(log_dir, "orders", "read_committed") if each[0] == 1]) == 100


def _lose(remote: Path, what: str) -> None:
    """Damage the second segment of orders-1."""
    folder = next(remote.glob("kafka-tiered-storage/orders-1-*"))
    log = sorted(folder.glob("*.log"))[1]
    log.unlink() if what == "missing" else flip_bit(log)


@pytest.mark.parametrize(
    ("what", "with_metadata", "expected"),
    [
        ("missing", True, (4, "the tier has no log of segment")),
        ("missing", False, (4, "no set of objects has offsets 600 to 1199")),
        ("damaged", True, (7, "CRC-32C")),
        ("damaged", False, (4, "no set of objects has offsets 600 to 1199")),
    ],
)
def test_lost_and_damaged_objects(
    writable: Callable[[str], Path], log_dir: Path, what: str, with_metadata: bool, expected: tuple[int, str]
) -> None:
    code, why = expected
    remote, metadata = writable("tiered-cluster/before-remote"), writable("tiered-cluster/before")
    _lose(remote, what)
    source = ("--metadata", metadata) if with_metadata else ("--metadata", "none")
    where = ("--remote", remote, *source, "--topic", "orders", "--partition", 1, "--as-id", new_id("x"))
    ran = restore(log_dir, *where, "--apply")
    assert (ran.code, why in ran.err + ran.out) == (code, True), ran.err + ran.out
    assert [path.name for path in log_dir.glob("[!.]*")] == ["meta.properties"]
    if not with_metadata:
        later = restore(log_dir, *where, "--after-hole", "--apply")
        # A damaged set is not understood, and says so in the exit code.
        assert later.code == (7 if what == "damaged" else 0), later.err
        assert restored(log_dir, "orders", "read_committed")[0][1] == 1200


def test_metadata_that_begin_after_a_hole(
    writable: Callable[[str], Path], capture: Capture, log_dir: Path
) -> None:
    remote = writable("tiered-cluster/before-remote")
    folder = next(remote.glob("kafka-tiered-storage/payments-0-*"))
    for path in folder.glob("00000000000000000697-*"):
        path.unlink()
    rebuilt = log_dir.parent / "rebuilt"
    assert tierctl("rebuild", "--metadata", rebuilt, "--remote", remote, "--apply").code == 0
    shutil.rmtree(remote)
    shutil.copytree(capture("tiered-cluster") / "before-remote", remote)
    where = ("--remote", remote, "--metadata", rebuilt, "--topic", "payments", "--partition", 0)
    restore(log_dir, *where, "--as-id", new_id("x"), "--apply").ok()
    assert restored(log_dir, "payments", "read_uncommitted")[0][1] == 1394


@pytest.mark.parametrize(
    ("more", "code", "why"),
    [
        (
            ("--topic", "orders", "--topic", "payments", "--as", "x"),
            2,
            "--as and --as-id need exactly one topic",
        ),
        (("--topic", "orders"), 4, "has no topic id: name that of the new topic with --as-id"),
        (("--topic", "orders", "--until", "orders-9=3"), 10, "--until names orders-9"),
        (("--topic", "orders", "--until", "orders-1=x"), 2, "expected TOPIC-PARTITION=OFFSET"),
        (("--topic", "orders", "--until", 3), 4, "the tier has no record of it below offset 0"),
        ((), 2, "--topic is missing"),
        (("--topic", "orders", "--as", "../x"), 2, "not a valid topic name"),
    ],
)
def test_contradicting_options(
    capture: Capture, log_dir: Path, more: tuple[object, ...], code: int, why: str
) -> None:
    remote = ("--remote", capture("tiered-cluster") / "before-remote")
    ended(restore(log_dir, *remote, *more, "--apply"), code, why)


def test_the_own_topic_id_and_a_folder_that_is_no_log_directory(
    capture: Capture, tmp_path: Path, log_dir: Path
) -> None:
    remote = ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "payments")
    own = rows("segments", "--metadata", capture("tiered-cluster") / "before", "--topic", "payments")
    refused = restore(log_dir, *remote, "--as-id", own[0]["topic_id"], "--apply")
    ended(refused, 4, "is of the topic that is restored")
    (tmp_path / "other").mkdir()
    refused = restore(tmp_path / "other", *remote, "--apply")
    ended(refused, 2, "it is not a log directory of a broker")


BASE = f"{0:020d}"
EMPTY = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (f"{BASE}.log.cleaned", Path.touch),
        (f"{BASE}.log.58.bak", Path.touch),
        ("notes.gz", Path.touch),
        ("keep", Path.mkdir),
        (f"{9:020d}.index", Path.mkdir),
        (f"{9:020d}.snapshot", lambda path: path.symlink_to(__file__)),
        ("9" * 20 + ".log", lambda path: path.write_bytes(b"records")),
        (f"{BASE}.txnindex", lambda path: path.write_bytes(bytes(34))),
    ],
)
def test_only_the_folder_of_an_empty_log_is_replaced(
    capture: Capture, log_dir: Path, name: str, make: Callable[[Path], object]
) -> None:
    folder = log_dir / "new-0"
    folder.mkdir()
    for each in (*(f"{BASE}{suffix}" for suffix in EMPTY), "leader-epoch-checkpoint.tmp"):
        (folder / each).touch()
    where = ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "payments")
    new = (*where, "--as", "new", "--as-id", new_id("x"), "--apply")
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    before = sorted(each.name for each in folder.iterdir())
    ended(restore(log_dir, *new), 4, f"{folder / name} would be deleted with the folder")
    assert (sorted(each.name for each in folder.iterdir()), list(log_dir.glob("*-delete"))) == (before, [])
    (folder / name).rename(log_dir / "moved-away")
    restore(log_dir, *new).ok()
    assert restored(log_dir, "new", "read_committed")


def test_a_mark_that_is_no_text_names_no_partition(log_dir: Path) -> None:
    """The folder around it stays; a folder whose mark names the partition was left by a killed run."""
    for name, mark in (("other-1-delete", b"new-0\xff"), ("own-1-delete", b"new-0")):
        (log_dir / name).mkdir()
        (log_dir / name / "tierctl-materialise").write_bytes(mark)
    assert former_folder(log_dir, "new-0") == log_dir / "new-0"
    remove_left(log_dir, "new-0")
    assert [path.name for path in log_dir.glob("*-delete")] == ["other-1-delete"]


def test_nothing_is_written_through_a_link(
    capture: Capture, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the broker owns the new folders, and could make links in them at once."""
    (own := tmp_path / "own").write_bytes(b"of this user")
    make_folder, make_part = FileSystem.make_folder, NewFolder.make_part
    planted: list[Path] = []

    def plant(path: Path) -> None:
        path.symlink_to(own)
        planted.append(path)

    def made(self: FileSystem, path: Path, *, like: Path | None = None, **mode: int) -> None:
        make_folder(self, path, like=like, **mode)
        if like is not None and path.name.endswith("-delete"):
            plant(path / "tierctl-materialise")

    def part(self: NewFolder) -> NewFolder:
        found = make_part(self)
        plant(found.path / "raw")
        return found

    monkeypatch.setattr(FileSystem, "make_folder", made)
    monkeypatch.setattr(NewFolder, "make_part", part)
    where = ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "payments")
    restore(log_dir, *where, "--as-id", new_id("x"), "--apply").ok()
    assert {each.name for each in planted} == {"tierctl-materialise", "raw"}
    assert own.read_bytes() == b"of this user"


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("not-mounted"), Path.touch])
def test_a_replica_that_is_no_folder(
    make: Callable[[Path], None], capture: Capture, tmp_path: Path, log_dir: Path
) -> None:
    """A link to a disk that is not mounted may lead to the log of another replica, which has records."""
    made = write_log(log_dir, [], partition=TopicPartition("new", 0))
    other = tmp_path / "other"
    make_log_dir(other, 2, cluster_id="other")
    make(other / made.name)
    remote = ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "payments")
    ran = restore(log_dir, "--log-dir", other, *remote, "--partition", 0, "--as", "new", "--apply")
    ended(ran, 4, f"{other / made.name} is no folder")


SEGMENTS = [[[0, 1, 2], [3]], [[4, 5], [7, 9, 10]], [[11, 12, 13, 14]]]
"""Offsets of records by segment and batch; compaction removed the records between."""
END = 15


def _batch(offsets: list[int], compression: CompressionType) -> bytes:
    made = [
        # Times fall and rise: the largest one of a batch is not always the last.
        Record(at, TIME_MS - 7 * (at % 3), b"k%d" % at, b"v" * 100, (("h", b"%d" % at),))
        for at in offsets
    ]
    return encode_batch(made, base_offset=offsets[0], last_offset=offsets[-1], compression=compression)


@pytest.mark.parametrize("compression", CompressionType, ids=lambda each: each.name)
def test_a_log_ends_before_each_offset(tmp_path: Path, log_dir: Path, compression: CompressionType) -> None:
    batches = [[_batch(offsets, compression) for offsets in segment] for segment in SEGMENTS]
    snapshots = {segment[0][0]: () for segment in SEGMENTS[1:]} | {END: ()}
    write_log(tmp_path / "old", [*batches, []], snapshots=snapshots)
    tier = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "old-tier")
    (tmp_path / "metadata").mkdir()
    copy = ("copy", *tier, "--log-dir", tmp_path / "old", "--topic", PARTITION.topic, "--assume-enabled")
    tierctl(*copy, "--layout", "kafka", "--apply").ok()
    everything = records(*tier)
    assert [each[1] for each in everything] == [at for s in SEGMENTS for batch in s for at in batch]
    for end in range(1, END + 1) if compression is CompressionType.NONE else (10,):
        options = ("--topic", PARTITION.topic, "--as", f"then-{end}", "--as-id", new_id(f"{end:x}f"))
        ran = restore(log_dir, *tier, *options, "--until", f"{PARTITION}={end}", "--apply").ok()
        found = restored(log_dir, f"then-{end}", "read_uncommitted")
        assert found == [each for each in everything if int(str(each[1])) < end]
        assert "clock" not in ran.err
    later = ("--topic", PARTITION.topic, "--as", "later", "--as-id", new_id("aaf"))
    ran = restore(log_dir, *tier, *later, "--until", "2100-01-01T00:00:00Z")
    ended(ran, 0, "markers of transactions count by the broker's clock")
