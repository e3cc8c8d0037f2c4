"""`rebuild` of captured tiers into a new metadata topic publishes the same events as the brokers."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands import resources
from tierctl.model import RemoteLogSegmentState
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import ATTEMPTS, RemoteStorageManager

from tests.cli.shell import Ran, rows, tierctl
from tests.commands.ended import ended
from tests.commands.stopped import digests
from tests.metadata.topics import segments_at
from tests.support.amounts import rest_in_matrix
from tests.support.captures import private_keys
from tests.support.cluster_metadata import make_log_dir
from tests.support.faults import flip_bit

Capture = Callable[..., Path]
Writable = Callable[[str], Path]
TIERS = {
    "tiered-cluster": ("before", "before-remote"),
    "untiered-broker": ("tiered-metadata", "tiered-remote"),
    "delete-across-epoch": ("after", "after-remote"),
    "aiven-encrypted": ("broker-logs", "bucket"),
    "finite-metadata": ("before", "before-remote"),
    "aiven-plain": ("broker-logs", "bucket"),
}
"""The metadata and the tier of each capture, at a time without running deletions."""
UNUSED = {"broker_id", "event_timestamp_ms"}


Rebuild = Callable[..., Ran]


@pytest.fixture
def rebuild(tmp_path: Path) -> Rebuild:
    """Return a function that rebuilds the metadata of a tier in the folder `new`."""
    where = ("--metadata", tmp_path / "new", "--remote")
    return lambda remote, *more: tierctl("rebuild", *where, remote, *more)


def segments_of(*where: object) -> list[dict[str, Any]]:
    found = [{k: v for k, v in row.items() if k not in UNUSED} for row in rows("segments", *where)]
    return sorted(found, key=lambda row: row["segment_id"])


@pytest.mark.parametrize("name", rest_in_matrix(TIERS, 4))
def test_the_rebuilt_metadata_are_those_of_the_brokers(capture: Capture, tmp_path: Path, name: str) -> None:
    metadata, remote = (capture(name) / folder for folder in TIERS[name])
    before = digests(remote)
    where = ("--metadata", tmp_path / "new", "--remote", remote)
    keys = private_keys(capture(name))
    ran = tierctl("rebuild", *where, *keys, "--apply", "--output", "json").ok()
    assert {outcome["status"] for outcome in ran.json["outcomes"]} == {"done"}
    wanted = segments_of("--metadata", metadata)
    assert segments_of("--metadata", tmp_path / "new") == wanted
    assert len(wanted) >= 14
    assert digests(remote) == before
    same_records(remote, keys, ("--metadata", metadata), ("--metadata", tmp_path / "new"), ("--rebuild",))
    verified = tierctl("verify", *where, *keys)
    assert verified.code == 0, verified.out
    assert rows("rebuild", *where, *keys) == []


def test_a_run_opens_its_tier_once_and_repeats_every_call(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[TierSpec]()

    def opening(spec: TierSpec, **how: Any) -> RemoteStorageManager:
        opened.append(spec)
        return open_tier(spec, **how)

    monkeypatch.setattr(resources, "open_tier", opening)
    root = capture("finite-metadata")
    rebuilt = ("rebuild", "--metadata", tmp_path / "new", "--attempts", 3)
    status = ("status", "--metadata", root / "cut", "--log-dir", root / "cut")
    for command, attempts in ((rebuilt, 3), (status, ATTEMPTS)):
        opened.clear()
        tierctl(*command, "--remote", root / "before-remote")
        assert [spec.retry and spec.retry.attempts for spec in opened] == [attempts]


def same_records(remote: Path, keys: list[object], *sources: tuple[object, ...]) -> None:
    for how in ("read_uncommitted", "read_committed"):
        options = ("fetch", "--remote", remote, *keys, "--partition", 0, "--isolation", how)
        first, *others = (rows(*options, *source) for source in sources)
        assert others == [first] * len(others)
        assert len(first) > 100


def test_an_encrypted_bucket_without_its_key(capture: Capture, tmp_path: Path, rebuild: Rebuild) -> None:
    """Manifests are not encrypted; the lineages are, and the leader epochs of the segments show them."""
    root = capture("aiven-encrypted")
    ended(rebuild(root / "bucket", "--apply"), 0, "no --aiven-private-key is given")
    assert segments_of("--metadata", tmp_path / "new") == segments_of("--metadata", root / "broker-logs")


@pytest.mark.parametrize("with_disks", [False, True])
def test_an_unclean_election(capture: Capture, tmp_path: Path, rebuild: Rebuild, with_disks: bool) -> None:
    """Five of fifteen sets per topic are from the leader that lost; one has all offsets of a winner."""
    root = capture("unclean-leader") / "before"
    logs = [word for number in (1, 2) for word in ("--log-dir", root / f"broker-{number}")]
    ran = rebuild(root / "remote", *(logs if with_disks else ()), "--apply", "--output", "json").ok()
    steps = ran.json["steps"]
    for topic in ("payouts", "wallets"):
        own = [step for step in steps if step["topic"] == topic]
        assert [step["action"] for step in own] == ["publish_segment"] * 10 + ["discard_segment"] * 5
        twins = [step for step in own if (step["start_offset"], step["end_offset"]) == (432, 575)]
        assert [step["segment_leader_epochs"] for step in twins] == [[[0, 432], [4, 520]], [[0, 432]]]
    states = {segment.segment_id: segment.state for segment in segments_at(tmp_path / "new")}
    state = RemoteLogSegmentState
    of = {"publish_segment": state.COPY_SEGMENT_FINISHED, "discard_segment": state.DELETE_SEGMENT_STARTED}
    assert states == {step["segment_id"]: of[step["action"]] for step in steps}


def test_a_broker_that_lost_the_losers_metadata_only(capture: Capture, rebuild: Rebuild) -> None:
    """After the deletions of the later capture, each topic keeps a set that no broker ever deletes."""
    root = capture("unclean-leader") / "after"
    logs = ("--log-dir", root / "broker-1", "--log-dir", root / "broker-2")
    ran = rebuild(root / "remote", *logs, "--output", "json").ok()
    left = [skip for skip in ran.json["skipped"] if skip["segment_id"]]
    assert len(left) == 2
    assert all("below the log start offset" in skip["reason"] for skip in left)


def test_a_topic_id_that_no_disk_has_is_left_unchanged(capture: Capture, rebuild: Rebuild) -> None:
    root = capture("tiered-cluster")
    plan = rebuild(root / "before-remote", "--log-dir", root / "after", "--output", "json").json
    assert "shortlived" not in {step["topic"] for step in plan["steps"]}
    reasons = {skip["topic"]: skip["reason"] for skip in plan["skipped"] if not skip["segment_id"]}
    assert "it was deleted" in reasons["shortlived"]


@pytest.mark.parametrize("more", [(), ("--log-dir",), ("--log-start", "tier", "--log-dir")], ids=len)
def test_a_segment_that_the_metadata_have_as_deleted_is_not_published_again(
    capture: Capture, writable: Writable, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Its objects are back, from a copy or as older versions; no log start is put back for them."""
    logs, remote = writable("tiered-cluster/after"), capture("tiered-cluster") / "before-remote"
    metadata = logs if more else tmp_path / "alone"
    for folder in () if more else logs.glob("__remote_log_metadata-*"):
        shutil.copytree(folder, metadata / folder.name)
    where = ("--metadata", metadata, "--remote", remote, "--metadata-partitions", 5)
    ran = tierctl("rebuild", *where, *more, *((logs,) if more else ()), "--output", "json").ok()
    assert ran.json["steps"] == []
    told = [skip["topic"] for skip in ran.json["skipped"] if "DELETE_SEGMENT_FINISHED" in skip["reason"]]
    gone = {"clicks": 2, "metrics": 3, "orders": 2} | ({} if more else {"shortlived": 4})
    assert Counter(told) == gone


def test_a_topic_whose_folder_can_not_be_read_may_exist(
    capture: Capture, writable: Writable, tmp_path: Path, rebuild: Rebuild
) -> None:
    remote, logs = capture("tiered-cluster") / "before-remote", writable("tiered-cluster/after")
    (logs / "shortlived-0").symlink_to(tmp_path / "unmounted")
    plan = rebuild(remote, "--log-dir", logs, "--topic", "shortlived", "--output", "json").json
    assert plan["steps"] == []
    assert all("shortlived-0 can't be read" in skip["reason"] for skip in plan["skipped"])


def test_a_partition_without_its_log_directory_is_refused(
    capture: Capture, writable: Writable, rebuild: Rebuild
) -> None:
    """Another partition of the topic shows that it exists: the missing replicas are on other brokers."""
    remote, logs = capture("tiered-cluster") / "before-remote", writable("tiered-cluster/before")
    shutil.rmtree(logs / "clicks-1")
    more = ("--log-dir", logs, "--topic", "clicks", "--apply")
    ended(rebuild(remote, *more), 4, "clicks-1: no log directory has this partition")
    rebuild(remote, *more, "--partition", "0").ok()


def test_a_saved_plan_is_carried_out(capture: Capture, tmp_path: Path) -> None:
    where = ("--metadata", tmp_path / "new", "--remote", capture("tiered-cluster") / "before-remote")
    saved = tmp_path / "plan.json"
    assert tierctl("rebuild", *where, "--plan-out", saved, "--detailed-exitcode").code == 9
    assert not (tmp_path / "new").exists()
    ran = tierctl("apply", saved, *where, "--topic", "orders", "--apply", "--output", "json").ok()
    assert {step["topic"] for step in ran.json["steps"]} == {"orders"}
    assert tierctl("apply", saved, *where, "--apply").code == 0
    wanted = segments_of("--metadata", capture("tiered-cluster") / "before")
    assert segments_of("--metadata", tmp_path / "new") == wanted


def test_what_is_wrong_with_the_command_line(capture: Capture, writable: Writable, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    remote = ("--remote", root / "before-remote")
    broker = writable("tiered-cluster/before")
    make_log_dir(broker, 1)
    for args, code, text in (
        (("--metadata", broker, *remote), 2, "--log-dir is missing"),
        (("--metadata", tmp_path / "new"), 2, "--remote is missing"),
        (("--metadata", tmp_path / "new", *remote, "--log-start", "teir"), 2, "expected tier, disk or"),
        (("--metadata", "kafka://localhost:1", *remote, "--log-start", "tier"), 2, "stop the brokers"),
        (
            ("--metadata", tmp_path / "other", *remote, "--log-start", "7", "--apply"),
            4,
            "--log-start 7 is not possible",
        ),
        (("--metadata", tmp_path / "new", "--remote", tmp_path / "tier"), 5, "check that it is mounted"),
    ):
        ended(tierctl("rebuild", *args), code, text)
    assert not (tmp_path / "new").exists()


def test_a_tier_that_can_only_be_read_is_enough(writable: Writable, rebuild: Rebuild) -> None:
    """The run needs no lease, no identity and no right to write."""
    remote = writable("untiered-broker/tiered-remote")
    before = digests(remote)
    folders = [remote, *(path for path in remote.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        rebuild(remote, "--apply").ok()
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert digests(remote) == before


def test_objects_of_one_id_at_two_offsets_are_not_taken_for_each_other(
    writable: Writable, rebuild: Rebuild
) -> None:
    remote = writable("untiered-broker/tiered-remote")
    victim = sorted(remote.rglob("*.log"))[3]
    shutil.copy(victim, victim.with_name(f"{int(victim.name[:20]) - 1:020d}{victim.name[20:]}"))
    ran = rebuild(remote, "--apply", "--output", "json")
    ended(ran, 0, "objects of this segment id at another offset are published")
    assert {step["action"] for step in ran.json["steps"]} == {"publish_segment"}


def logs_of(remote: Path, topic: str) -> list[Path]:
    """Return the logs of the segments of partition 0, in order of offsets."""
    return sorted(remote.glob(f"kafka-tiered-storage/{topic}-0-*/*.log"))


def test_a_tier_that_tierctl_filled_belongs_to_the_rebuilt_topic(capture: Capture, tmp_path: Path) -> None:
    """The tier's identity names its metadata topic; the new topic gets that id, and the tier is unchanged."""
    logs = capture("untiered-broker") / "local"
    copied = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier", "--log-dir", logs)
    (tmp_path / "metadata").mkdir()
    tierctl("copy", *copied, "--topic", "bills", "--assume-enabled", "--layout", "kafka", "--apply").ok()
    before = digests(tmp_path / "tier")
    where = ("--metadata", tmp_path / "new", "--remote", tmp_path / "tier")
    assert tierctl("rebuild", *where, "--apply").code == 0
    assert digests(tmp_path / "tier") == before
    for command in ("verify", "fetch"):
        tierctl(command, *where).ok()


def test_the_records_of_the_last_leader_are_read_with_nothing_but_the_tier(capture: Capture) -> None:
    root = capture("unclean-leader") / "before"
    same_records(root / "remote", [], ("--metadata", root / "broker-1"), ("--rebuild",))


def fetch_metrics(remote: Path) -> tuple[object, ...]:
    return ("fetch", "--remote", remote, "--rebuild", "--topic", "metrics", "--partition", 0)


NOT_READ: dict[str, tuple[int, str, str]] = {
    "the newest log": (-1, ".log", "is not read"),
    "a snapshot in the middle": (2, ".snapshot", "no segment has offsets"),
}


@pytest.mark.parametrize("case", NOT_READ)
def test_a_rebuild_in_memory_reports_what_it_can_not_read(writable: Writable, case: str) -> None:
    """The output lacks records that the tier had, so the exit code is that of corrupt data."""
    at, suffix, message = NOT_READ[case]
    remote = writable("tiered-cluster/before-remote")
    log = logs_of(remote, "metrics")[at]
    flip_bit(log.with_suffix(suffix))
    ran = ended(tierctl(*fetch_metrics(remote)), 7, message)
    assert len(ran.lines) > 100


@pytest.mark.parametrize(
    ("suffix", "name"), [(".index", "offset index"), (".timeindex", "time index"), (".snapshot", None)]
)
def test_a_damaged_index_is_named_where_its_segment_is_published(
    writable: Writable, tmp_path: Path, suffix: str, name: str | None
) -> None:
    """The log is whole, so the segment is published; but brokers fail to read it by such an index."""
    remote = writable("tiered-cluster/before-remote")
    path = min(remote.rglob(f"metrics-0-*/0*{suffix}"))
    if name is not None:
        path.write_bytes(path.read_bytes()[:-3])
    found = rows("rebuild", "--metadata", tmp_path / "new", "--remote", remote, "--topic", "metrics")
    told = {row["segment_id"]: row["reason"] for row in found if "verify --deep" in row["reason"]}
    if name is None:
        assert told == {}
    else:
        assert list(told) == [path.name[21:43]]
        assert f"its {name} can't be used: brokers fail to read it" in told[path.name[21:43]]


def test_a_tier_that_was_copied_while_the_log_began_within_a_segment(
    writable: Writable, tmp_path: Path
) -> None:
    """DeleteRecords raises the log start within a segment; brokers copy the whole segment then."""
    logs = writable("untiered-broker/local")
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nbills 0 300\n")
    (logs / "bills-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 300\n2 2000\n")
    settings = tmp_path / "topics.properties"
    settings.write_text("bills.remote.storage.enable=true\n")
    remote, copied, rebuilt = tmp_path / "tier", tmp_path / "copied", tmp_path / "rebuilt"
    options = ("--log-dir", logs, "--topic-configs", settings, "--topic", "bills", "--partition", 0)
    tierctl("copy", "--metadata", copied, "--remote", remote, *options, "--apply").ok()
    tierctl("rebuild", "--metadata", rebuilt, "--remote", remote, "--apply").ok()
    assert segments_of("--metadata", rebuilt) == segments_of("--metadata", copied)
    found = [
        rows("fetch", *where, "--remote", remote)
        for where in (("--metadata", copied), ("--metadata", rebuilt), ("--rebuild",))
    ]
    assert found[0][0]["offset"] == 300
    assert found[0] == found[1] == found[2]


TRANSACTION_INDEXES: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "missing": (lambda _: None, "there is no transaction index, though 4 transactions were aborted"),
    "empty": (lambda _: b"", "there is no transaction index, though 4 transactions were aborted"),
    "cut within an entry": (lambda data: data[:-3], "transaction index"),
    "cut after an entry": (lambda data: data[: len(data) // 2], "was aborted at"),
    "of another segment": (lambda data: data[:25] + b"\7" + data[26:], "its transaction index is wrong"),
}


@pytest.mark.parametrize("case", TRANSACTION_INDEXES)
def test_a_segment_with_a_wrong_transaction_index_is_not_published(
    writable: Writable, tmp_path: Path, case: str
) -> None:
    """With such an index, brokers serve records of aborted transactions as committed, without an error."""
    change, why = TRANSACTION_INDEXES[case]
    remote = writable("tiered-cluster/after-remote")
    path = next(remote.rglob("payments-0-*/*697-*.txnindex"))
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    where = ("--metadata", tmp_path / "new", "--remote", remote, "--topic", "payments", "--partition", 0)
    ended(tierctl("rebuild", *where, "--apply"), 7, why, "verify --deep --plan-out")
    assert segments_at(tmp_path / "new") == []
    ended(tierctl("fetch", "--rebuild", *where[2:], "--isolation", "read_committed"), 7, why)


def test_objects_of_no_segment_are_named(writable: Writable, rebuild: Rebuild) -> None:
    remote = writable("untiered-broker/tiered-remote")
    folder = next(remote.rglob("*.log")).parent
    for name in ("notes.txt", "00000000000000000000.log", *(f"z{number}" for number in range(9))):
        (folder / name).touch()
    named = (f"{folder.name}/{name}" for name in ("00000000000000000000.log", "notes.txt", "z2"))
    ran = ended(rebuild(remote), 0, "belong to no segment, such as ", *named)
    assert f"{folder.name}/z3" not in ran.err


def test_a_segment_with_an_older_producer_snapshot_is_not_published(
    writable: Writable, rebuild: Rebuild
) -> None:
    remote = writable("tiered-cluster/after-remote")
    older, newer = (next(remote.rglob(f"payments-0-*/*{start}-*.snapshot")) for start in (697, 2788))
    shutil.copyfile(older, newer)
    ran = rebuild(remote, "--topic", "payments")
    ended(ran, 7, "its producer snapshot is wrong: producer 1 wrote last")


def test_a_rebuild_in_memory_reports_a_partition_that_is_refused(
    capture: Capture, writable: Writable
) -> None:
    """The newest set is damaged, and there is a hole between the local log and the others."""
    remote = writable("tiered-cluster/before-remote")
    flip_bit(logs_of(remote, "metrics")[-1])
    logs = ("--log-dir", capture("tiered-cluster") / "before")
    ended(tierctl(*fetch_metrics(remote), *logs), 7, "a gap: the tier ends at offset")


def test_rebuild_and_a_metadata_topic_contradict(capture: Capture) -> None:
    remote = capture("untiered-broker") / "tiered-remote"
    both = tierctl("fetch", "--remote", remote, "--rebuild", "--metadata", remote)
    ended(both, 2, "--rebuild can't be used with --metadata")


def test_segments_that_were_copied_under_another_topic_id(writable: Writable, rebuild: Rebuild) -> None:
    """Both topics have objects in the tier with the same segment ids, as after restore new-ids."""
    remote = writable("untiered-broker/tiered-remote")
    once = len(rebuild(remote, "--output", "jsonl").ok().rows)
    for folder in list((remote / "kafka-tiered-storage").iterdir()):
        copied = folder.with_name(f"copy-of-{folder.name[:-22]}A{folder.name[-21:]}")
        shutil.copytree(folder, copied)
    steps = rebuild(remote, "--output", "jsonl").ok().rows
    assert len(steps) == 2 * once
    assert len({(step["topic_id"], step["partition"], step["segment_id"]) for step in steps}) == 2 * once
    rebuild(remote, "--apply").ok()
    assert rebuild(remote, "--output", "jsonl").ok().rows == []
