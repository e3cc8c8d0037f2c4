"""Segments that can't be read, tiers of Aiven's plugin, and facts that prove a complete history."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA
from tierctl.cli.entry import run
from tierctl.errors import ExitCode
from tierctl.locallog import read_log_dirs
from tierctl.model import RemoteLogSegmentState, Selection
from tierctl.model.location import TruncatedMetadata
from tierctl.read.readable_log import EvidenceSources, examine_histories
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.cli.shell import tierctl
from tests.locallog.made import damage_last_batch
from tests.metadata.events import update_of
from tests.metadata.topics import manager_at, topic_in
from tests.storage.segments import metadata_of
from tests.support.lacking_store import BUCKET, LackingStore

Capture = Callable[[str], Path]


@pytest.mark.parametrize(
    ("given", "source", "isolation"),
    [
        ("no key", "of the broker", "read_committed"),
        ("another key", "of the broker", "read_uncommitted"),
        ("no key", "rebuilt", "read_uncommitted"),
        ("another key", "rebuilt", "read_committed"),
    ],
)
def test_segments_without_their_key(
    capture: Capture, tmp_path: Path, given: str, source: str, isolation: str
) -> None:
    root = capture("aiven-encrypted")
    keys: tuple[str, ...] = ()
    if given == "another key":
        (tmp_path / "other.pem").write_bytes(RSA.generate(2048).export_key())
        keys = ("--aiven-private-key", f"key1={tmp_path / 'other.pem'}")
    metadata = ("--rebuild",) if source == "rebuilt" else ("--metadata", root / "broker-logs")
    ran = tierctl(
        *("fetch", *metadata, "--remote", root / "bucket", "--log-dir", root / "broker-logs", *keys),
        *("--topic", "sensors", "--partition", 1, "--isolation", isolation),
        *("--columns", "offset", "--output", "csv", "--no-header"),
    )
    assert ran.code == 7, ran.err
    found = "another key" if keys else "none that is given"
    assert f"expected the private key 'key1'{', which decrypts' if keys else ', found'}" in ran.err
    assert f"found {found}" in ran.err
    assert "--aiven-private-key key1=FILE" in ran.err
    assert "Traceback" not in ran.err
    # Offsets from 722 on are in the local log alone.
    if source == "of the broker":
        assert [int(line) for line in ran.lines][:1] == [722]


PARTITIONS = {"clicks-0", "clicks-1", "orders-0", "orders-1", "orders-2"}
"""Each one of clicks has 3 segments, each one of orders 5."""


@pytest.mark.parametrize(
    ("forbidden", "code", "unread", "errors"),
    [
        ("", ExitCode.OK, set(), 0),
        # The other partitions are read: an error for each segment, and for the leader epochs.
        ("/clicks-0-", ExitCode.CORRUPT, {"clicks-0"}, 4),
        ("/orders-1-", ExitCode.CORRUPT, {"orders-1"}, 6),
        # Nothing of the topic is read: it is given up at the fifth object, and the next topic is read.
        ("/clicks-", ExitCode.CORRUPT, {"clicks-0", "clicks-1"}, 1),
        ("/kafka-tiered-storage/", ExitCode.AUTHENTICATION, PARTITIONS, 2),
    ],
)
def test_errors_of_refused_objects(
    capture: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    *,
    forbidden: str,
    code: ExitCode,
    unread: set[str],
    errors: int,
) -> None:
    root = capture("tiered-cluster")
    remote = root / "before-remote"
    with LackingStore() as store:
        store.found(monkeypatch)
        files = filter(Path.is_file, remote.rglob("*"))
        store.put({f"a/{path.relative_to(remote)}": path.read_bytes() for path in files})
        store.forbidden = forbidden
        ran = tierctl(
            *("fetch", "--metadata", root / "before", "--remote", f"s3://{BUCKET}/a", "--layout", "kafka"),
            *("--topic", "clicks", "--topic", "orders"),
            *("--columns", "topic,partition", "-o", "csv", "--no-header"),
        )
        assert ran.code == code, ran.err
        assert {line.replace(",", "-") for line in ran.lines} == PARTITIONS - unread
        assert ran.err.count("error: ") == errors, ran.err
        assert ran.err.count("the first 5 objects are all refused") == (errors if errors < 3 else 0)
        assert unread != PARTITIONS or store.count(f"GET /{BUCKET}/a/kafka-tiered-storage/") <= 10


OFFSETS_OF_ALL = ("--isolation", "read_committed", "--columns", "offset", "--output", "csv", "--no-header")


@pytest.fixture(scope="module")
def whole(capture: Capture) -> list[str]:
    """Return the offsets of the undamaged tier."""
    root = capture("tiered-cluster")
    where = ("--metadata", root / "after", "--remote", root / "after-remote")
    return tierctl("fetch", *where, *OFFSETS_OF_ALL).lines


@pytest.mark.parametrize(
    ("suffix", "entry"),
    [
        *((".log", entry) for entry in ("link", "pipe", "folder", "linked folder")),
        *((suffix, "link") for suffix in (".index", ".snapshot", ".leader_epoch_checkpoint")),
    ],
)
def test_an_entry_that_is_no_object(
    capture: Capture, whole: list[str], tmp_path: Path, suffix: str, entry: str
) -> None:
    """The records before and after it are read, and those of the other partitions."""
    root = capture("tiered-cluster")
    remote = Path(shutil.copytree(root / "after-remote", tmp_path / "remote"))
    *_, path = sorted(remote.rglob(f"clicks-0-*/*{suffix}"))
    path = path.parent if entry == "linked folder" else path
    path.rename(tmp_path / "aside")
    if entry == "pipe":
        os.mkfifo(path)
    elif entry == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "aside")
    more: tuple[object, ...] = ()
    if suffix == ".index":
        # An offset index is needed only to read from the middle of a segment, here its last 300 records.
        more = ("--topic", "clicks", "--partition", 0, "--offset", int(path.name[:20]) + 500)
    ran = tierctl("fetch", "--metadata", root / "after", "--remote", remote, *OFFSETS_OF_ALL, *more)
    lost = {"linked folder": 1600}.get(entry, 800 if suffix == ".log" else 0)
    assert len(ran.lines) == (300 if more else len(whole) - lost), ran.err
    assert (ran.code, str(path) in ran.err) == (ExitCode.CORRUPT, True), ran.err


def test_the_damaged_end_of_a_log(capture: Capture, tmp_path: Path) -> None:
    """A broker that starts cuts its log there; what precedes it is read."""
    root = capture("tiered-cluster")
    logs = tmp_path / "logs"
    shutil.copytree(root / "before", logs)
    first_lost = damage_last_batch(logs / "clicks-1")
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--log-dir", logs)
    shown = ("--columns", "offset", "-o", "csv", "--no-header")
    ran = tierctl("fetch", *where, "--topic", "clicks", "--partition", 1, *shown)
    assert ran.code == 7, ran.err
    assert [int(line) for line in ran.lines][-1] == first_lost - 1
    assert f"of {max((logs / 'clicks-1').glob('*.log'))}: expected CRC-32C" in ran.err


@pytest.mark.parametrize(
    ("name", "metadata"),
    [("aiven-plain", "of the broker"), ("aiven-plain", "rebuilt"), ("aiven-encrypted", "rebuilt in memory")],
)
def test_every_record_of_the_captures(
    capture: Capture, tmp_path: Path, name: str, metadata: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = capture(name)
    tier = [f"--remote={root / 'bucket'}", "--layout=aiven"]
    if name == "aiven-encrypted":
        tier += ["--aiven-private-key", f"key1={root / 'keys' / 'private.pem'}"]
    topic_in = {
        "of the broker": f"--metadata={root / 'broker-logs'}",
        "rebuilt": f"--metadata={tmp_path / 'new'}",
        "rebuilt in memory": "--rebuild",
    }[metadata]
    if metadata == "rebuilt":
        assert run(["rebuild", topic_in, *tier, "--apply"]) == 0
        capsys.readouterr()
    # The local log has the newest records, which are not in the tier.
    fetch = ["fetch", topic_in, *tier, "--log-dir", str(root / "broker-logs")]
    answers = sorted((root / "answers").glob("*.read_*.jsonl"))
    assert len(answers) == 6
    for answer in answers:
        name_of_log, isolation, _ = answer.name.split(".")
        topic, _, partition = name_of_log.rpartition("-")
        chosen = ["--topic", topic, "--partition", partition, "--isolation", isolation, "--binary=sha256"]
        assert run([*fetch, *chosen]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        found = [(row["offset"], row["timestamp_ms"], row["key"], row["value"]) for row in rows]
        expected = [json.loads(line) for line in answer.read_text().splitlines()[1:]]
        assert found == [(e["offset"], e["timestamp"], e["key"], e["value"]) for e in expected]
        assert found


REFUSE = TruncatedMetadata.REFUSE


@pytest.fixture
def root(capture: Callable[[str], Path]) -> Path:
    return capture("finite-metadata")


def incomplete(metadata: Path, sources: EvidenceSources) -> set[str]:
    """Return the names of the partitions whose history is not known to be complete."""
    state = manager_at(metadata).refresh()
    return {str(partition.topic_partition) for partition in examine_histories(state, sources, REFUSE)}


def test_a_log_start_without_a_checkpoint_proves_nothing(root: Path, tmp_path: Path) -> None:
    """Without the checkpoint, the first local segment counts as the log start, above all remote segments."""
    for folder in ("expiring-0", "keeplocal-0", "orders-0", "quiet-0"):
        shutil.copytree(root / "after" / folder, tmp_path / folder)
    sources = EvidenceSources(selection=Selection(), logs=lambda: read_log_dirs([tmp_path]))
    assert incomplete(root / "after", sources) == {"expiring-0", "keeplocal-0", "orders-0", "quiet-0"}
    shutil.copy(root / "after" / "log-start-offset-checkpoint", tmp_path)
    assert incomplete(root / "after", sources) == set()


@pytest.mark.parametrize(
    ("tier", "expected"),
    [("after-remote", {"keeplocal-0", "orders-0"}), ("empty", {"expiring-0", "keeplocal-0", "orders-0"})],
)
def test_a_tier_without_any_known_object_proves_nothing(
    root: Path, writable: Callable[[str], Path], tmp_path: Path, tier: str, expected: set[str]
) -> None:
    """A segment with an illegal name, the first one of the tier, has no key to look for."""
    metadata = writable("finite-metadata/after")
    whole = set(range(5)) - {each.metadata_partition for each in manager_at(metadata).refresh().missing}
    bad = metadata_of(7)
    number = next(n for n in range(-9, 0) if metadata_partition(bad.topic_id, n, 5) in whole)
    bad = replace(bad, topic="../x", partition=number)
    topic = topic_in(metadata, writable=True)
    for event in (bad, update_of(bad, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)):
        topic.append([(metadata_partition(bad.topic_id, number, 5), encode(event))])
    topic.close()
    folder = root / tier if tier != "empty" else tmp_path
    (tmp_path / "kafka-tiered-storage").mkdir()
    remote = open_tier(TierSpec.from_settings(folder.as_uri(), {}))
    sources = EvidenceSources(selection=Selection(), remote=lambda: remote)
    assert incomplete(metadata, sources) == expected
    remote.close()
