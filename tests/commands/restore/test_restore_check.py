"""`restore check` finds each forced fault with the right check, and reports nothing else."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.checks import restored
from tierctl.checks import served as of_consumers
from tierctl.checks.check import exit_code_of
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode
from tierctl.kafka.librdkafka import ServedRecord
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import EpochEntry, IsolationLevel, TopicIdPartition, Uuid
from tierctl.model.local import PartitionOffsets
from tierctl.model.progress import SilentProgress
from tierctl.plan.choose_sets import Hole
from tierctl.read.partition_reader import PartitionReader
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.commands.restore.serving import Cluster, Key, tier_records
from tests.read.made import made_tier
from tests.support.cluster_metadata import make_log_dir

KEY = ("orders", 1)

OPTIONS = ("--topic", "orders", "--election-timeout", "1s", "--produce", "orders")
READ = IsolationLevel.READ_UNCOMMITTED


def offsets_of(start: int, end: int, *, local: int = 0) -> PartitionOffsets:
    """Return the offsets of a log whose tier has `start` to `end`, and that goes on with `local` offsets."""
    return PartitionOffsets(
        log_start_offset=start,
        high_watermark=end + local,
        last_stable_offset=end + local,
        local_log_start_offset=end,
        latest_tiered_offset=end - 1,
    )


@pytest.fixture(scope="module")
def served(capture: Callable[[str], Path]) -> Cluster:
    """Return a cluster that serves topic orders of the captured tier correctly."""
    root = capture("tiered-cluster")
    metadata, remote = root / "before", root / "before-remote"
    rows = [json.loads(line) for line in tierctl("segments", "--metadata", metadata, "-o", "jsonl").lines]
    records = {each: tier_records(metadata, remote, str(each)) for each in IsolationLevel}
    epochs: dict[Key, tuple[EpochEntry, ...]] = {}
    found: dict[Key, PartitionOffsets] = {}
    for key in records[READ]:
        path = metadata / f"{key[0]}-{key[1]}" / "leader-epoch-checkpoint"
        epochs[key] = tuple(read_leader_epoch_checkpoint(path.read_bytes()))
        own = [row for row in rows if (row["topic"], row["partition"]) == key]
        end = max(row["end_offset"] for row in own) + 1
        found[key] = offsets_of(min(row["start_offset"] for row in own), end, local=100)
    return Cluster(
        ids={row["topic"]: Uuid(row["topic_id"]) for row in rows},
        partitions={key[0]: 3 for key in epochs},
        records=records,
        epochs=epochs,
        offsets=found,
    )


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((restored, "_SETTLED_S"), (of_consumers, "_READABLE_S"), (of_consumers, "_PAUSE_S")):
        monkeypatch.setattr(module, name, 0)


Fault = Callable[[Cluster], object]


def changed_record(**changes: Any) -> Fault:
    def change(cluster: Cluster) -> None:
        own = cluster.records[READ][KEY]
        own[700] = own[700]._replace(**changes)

    return change


def changed_offsets(**changes: int | None) -> Fault:
    return lambda cluster: cluster.offsets.update({KEY: replace(cluster.offsets[KEY], **changes)})


def next_one(record: ServedRecord | None) -> ServedRecord | None:
    return record if record is None or record.offset % 7 else record._replace(offset=record.offset + 1)


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "log start raised": (changed_offsets(log_start_offset=400), "offsets", "earliest is 400, expected 0"),
    "tier not known": (changed_offsets(latest_tiered_offset=None), "offsets", "latest-tiered is not"),
    "tier known in part": (changed_offsets(latest_tiered_offset=5), "offsets", "latest-tiered is 5, "),
    "log too short": (
        changed_offsets(high_watermark=1, local_log_start_offset=0),
        "offsets",
        "latest is 1, expected",
    ),
    "gap": (changed_offsets(local_log_start_offset=9000), "offsets", "earliest-local is 9000, expected"),
    "epoch missing": (
        lambda cluster: cluster.epochs.update({KEY: cluster.epochs[KEY][1:]}),
        "leader_epochs",
        "its leader has epoch 2 from",
    ),
    "one epoch": (
        lambda cluster: cluster.epochs.update({KEY: (EpochEntry(0, 0),)}),
        "leader_epochs",
        "the tier's log has epoch 0 from 0, epoch 2 from",
    ),
    "another value": (changed_record(value=b"other"), "records", "at offset 700 has another value"),
    "another key": (changed_record(key=b"other"), "records", "at offset 700 has another key"),
    "another time": (changed_record(timestamp_ms=1), "records", "at offset 700 has another timestamp"),
    "another header": (changed_record(headers=(("a", b"b"),)), "records", "has another header"),
    "another epoch": (changed_record(leader_epoch=9), "records", "has another leader epoch"),
    "not served": (
        lambda cluster: cluster.records[IsolationLevel.READ_COMMITTED][KEY].pop(700),
        "records",
        "read_committed: offset 700 is in the tier, and is not served",
    ),
    "not in the tier": (
        lambda cluster: cluster.records[READ][KEY].insert(1, cluster.records[READ][KEY][0]),
        "records",
        "read_uncommitted: offset 0 is served, and is not in the tier",
    ),
    "seek by time": (lambda cluster: setattr(cluster, "time_shift", 1), "seeks", "the first record at "),
    "seek": (lambda cluster: setattr(cluster, "found_by_seek", next_one), "seeks", "a seek to 0 found 1, "),
    "truncation": (
        lambda cluster: setattr(cluster, "truncates", True),
        "election",
        "Partition log truncation detected",
    ),
    "jump": (
        lambda cluster: setattr(cluster, "jumps", 5),
        "election",
        "offset 6 came, expected 1, after the election, from position 1 on",
    ),
    "producer fenced": (
        lambda cluster: setattr(cluster, "refuses_producers", True),
        "producers",
        "a transaction: INVALID_PRODUCER_EPOCH",
    ),
}


Check = Callable[..., tuple[Ran, list[Any]]]


@pytest.fixture
def cluster(served: Cluster) -> Cluster:
    """Return a copy of the cluster, which a test may change; its records and facts are immutable."""
    return replace(
        served,
        ids=dict(served.ids),
        partitions=dict(served.partitions),
        records={level: {key: [*own] for key, own in all_.items()} for level, all_ in served.records.items()},
        epochs=dict(served.epochs),
        offsets=dict(served.offsets),
        stalls_at=set(),
    )


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capture: Callable[[str], Path]) -> Check:
    """Return a function that checks a cluster, or the tier alone: it returns the run and its rows."""

    def checked(
        cluster: Cluster | None, *options: object, remote: Path | None = None
    ) -> tuple[Ran, list[Any]]:
        monkeypatch.setattr(Resources, "cluster", cluster)
        tier = remote or capture("tiered-cluster") / "before-remote"
        server = () if cluster is None else ("--bootstrap-server", "broker:9092")
        ran = tierctl("restore", "check", "--remote", tier, *server, *options, "--output", "jsonl")
        return ran, ran.rows

    return checked


def found_by(rows: list[Any], name: str) -> Any:
    """Return the only result of a check."""
    (found,) = [row for row in rows if row["check"] == name]
    return found


def errors(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row["severity"] == "error"]


def test_a_cluster_that_serves_the_tier_is_clean(check: Check, cluster: Cluster) -> None:
    ran, rows = check(cluster, *OPTIONS)
    assert ran.code == 0, ran.out
    ok = {(row["check"], row["subject"]) for row in rows if row["severity"] == "ok"}
    names = ("offsets", "leader_epochs", "records", "seeks", "election", "producers")
    assert ok == {(name, f"orders-{n}") for name in names for n in range(3)} | {("objects", "")}
    assert errors(rows) == []
    assert cluster.closed == 0


def test_what_read_committed_can_not_compare_is_named(
    check: Check, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartitionReader, "undecided_offset", 700)
    ran, rows = check(cluster, *OPTIONS)
    assert ran.code == 0, "the tier can't tell, and read_uncommitted compares these records"
    found = [row["found"] for row in rows if (row["check"], row["severity"]) == ("records", "not_checked")]
    assert len(found) == 3
    assert all(each.startswith("read_committed: offsets 700 to ") for each in found)


@pytest.mark.parametrize("log_start", [405, 1000])
def test_delete_records_inside_a_batch_or_segment_is_no_fault(
    check: Check, cluster: Cluster, log_start: int
) -> None:
    changed_offsets(log_start_offset=log_start)(cluster)
    first, *others = cluster.epochs[KEY]
    cluster.epochs[KEY] = (first._replace(start_offset=log_start), *others)
    for own in cluster.records.values():
        own[KEY] = [record for record in own[KEY] if record.offset >= log_start]
    ran, rows = check(cluster, "--topic", "orders")
    assert errors(rows) == []
    assert ran.code != 3
    # At the border of a segment, a leader that knew no segments may have raised it.
    changed_offsets(log_start_offset=600)(cluster)
    cluster.epochs[KEY] = (first._replace(start_offset=600), *others)
    _, rows = check(cluster, "--topic", "orders")
    assert any("earliest is 600, expected 0" in row["found"] for row in errors(rows))


def test_a_time_below_the_log_start_hides_later_records_from_brokers(check: Check, tmp_path: Path) -> None:
    """A broker answers nothing if the first segment with so large a timestamp has it below the log start."""
    times = [1, 2, 10**6, *range(3, 9), *range(20, 30), 10**6]
    batches = [[Record(offset, at, None, b"v")] for offset, at in enumerate(times)]
    partition = TopicIdPartition(Uuid.from_bytes(bytes(range(16))), "orders", 0)
    tier = made_tier(tmp_path, partition, [batches[:9], batches[9:]])
    own = [ServedRecord(offset, at, 0, None, b"v", ()) for offset, at in enumerate(times)][5:]
    key, log_start, end = ("orders", 0), 5, len(times)
    cluster = Cluster(
        ids={"orders": partition.topic_id},
        partitions={"orders": 1},
        records={each: {key: own} for each in IsolationLevel},
        epochs={key: (EpochEntry(0, log_start),)},
        offsets={key: offsets_of(log_start, end)},
    )
    found = cluster.offset_for_time
    cluster.offset_for_time = lambda name, at: None if at > 8 else found(name, at)
    rows = check(cluster, "--topic", "orders", remote=Path(tier["remote"]))[1]
    assert errors(rows) == []


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_found_by_its_check(check: Check, cluster: Cluster, case: str) -> None:
    fault, name, text = FAULTS[case]
    fault(cluster)
    ran, rows = check(cluster, *OPTIONS)
    assert ran.code == 3
    failed = errors(rows)
    assert failed[0] == rows[0]
    assert any(row["check"] == name and text in row["found"] for row in failed), failed
    # A seek may also find the changed record that a scan finds.
    assert {row["check"] for row in failed} <= {name, "seeks", *(["election"] if name == "records" else [])}
    assert all(row["why"] and row["fix"] for row in failed)


def test_no_election_is_no_clean_answer(check: Check, cluster: Cluster) -> None:
    cluster.elects = False
    ran, rows = check(cluster, "--topic", "orders", "--election-timeout", "10ms")
    found = [row for row in rows if row["check"] == "election"]
    assert (ran.code, {row["severity"] for row in found}) == (3, {"not_checked"})
    assert "no new leader was elected" in found[0]["found"]


def test_copying_disabled_hides_the_tiered_offset(check: Check, cluster: Cluster) -> None:
    changed_offsets(latest_tiered_offset=None)(cluster)
    cluster.is_copy_disabled = True
    assert check(cluster, "--topic", "orders")[0].code == 0


RESTARTS: dict[str, tuple[tuple[EpochEntry, ...], str, str]] = {
    "not restarted": ((EpochEntry(0, 0),), "error", "brokers [1] were not restarted since tierctl filled"),
    "restarted": ((EpochEntry(0, 0), EpochEntry(1, 99)), "ok", "have a new leader epoch since tierctl"),
    "epochs not known": ((EpochEntry(1, 99),), "not_checked", "it does not know their leader epochs"),
}


@pytest.mark.parametrize("case", RESTARTS)
def test_brokers_that_skip_the_events_of_a_topic_created_again_are_found(
    check: Check, cluster: Cluster, capture: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    """Everything is served until brokers copy: only the leader epochs of the metadata topic show it."""
    epochs, verdict, text = RESTARTS[case]
    metadata, remote = tmp_path / "metadata", capture("tiered-cluster") / "before-remote"
    made = ("rebuild", "--metadata", metadata, "--remote", remote, "--metadata-partitions", 3)
    tierctl(*made, "--apply").ok()
    cluster.ids[METADATA_TOPIC] = metadata_topic_id(metadata)
    cluster.partitions[METADATA_TOPIC] = 3
    cluster.epochs.update({(METADATA_TOPIC, number): epochs for number in range(3)})
    ran, rows = check(cluster, "--metadata", metadata, "--topic", "orders")
    found = found_by(rows, "restarts")
    assert (found["severity"], text in found["found"]) == (verdict, True), found
    assert ran.code == (0 if verdict == "ok" else 3), rows
    if verdict == "error":
        assert rows[0] == found
        assert "restart the brokers" in found["fix"]
        assert "skip new events" in found["why"]


def test_a_metadata_topic_that_brokers_began_says_nothing_about_restarts(
    check: Check, cluster: Cluster, capture: Callable[[str], Path]
) -> None:
    metadata = capture("tiered-cluster") / "before"
    ran, rows = check(cluster, "--metadata", metadata, "--topic", "orders")
    assert (ran.code, rows[0]["check"]) == (3, "restarts")
    assert "the cluster has not the metadata topic" in rows[0]["found"]
    cluster.ids[METADATA_TOPIC] = metadata_topic_id(metadata)
    cluster.partitions[METADATA_TOPIC] = 5
    ran, rows = check(cluster, "--metadata", metadata, "--topic", "orders")
    found = found_by(rows, "restarts")
    assert (found["severity"], "begins with an event of tierctl" in found["found"]) == ("not_checked", True)
    assert ran.code == 0, "nothing can tell"


def metadata_topic_id(folder: Path) -> Uuid:
    text = next(folder.glob(f"{METADATA_TOPIC}-*/partition.metadata")).read_text()
    return Uuid(text.split("topic_id:")[1].strip())


@pytest.mark.parametrize("part", [".log", ".index", ".leader_epoch_checkpoint"])
def test_a_deleted_or_changed_object_is_found(
    check: Check, writable: Callable[[str], Path], part: str
) -> None:
    remote = writable("tiered-cluster/before-remote")
    before = remote.parent / "before.listing"
    assert check(None, "--listing-out", before, remote=remote)[0].code == 0
    assert check(None, "--before", before, remote=remote)[0].code == 0
    victim = next(path for path in sorted(remote.rglob("*")) if path.name.endswith(part))
    victim.write_bytes(victim.read_bytes()[:-1])
    ran, rows = check(None, "--before", before, remote=remote)
    assert (ran.code, rows[0]["check"]) == (3, "objects")
    assert "objects of 1 segment have another size: " in rows[0]["found"]
    victim.unlink()
    ran, rows = check(None, "--before", before, remote=remote)
    assert (ran.code, rows[0]["check"]) == (3, "objects")
    assert "objects of 1 segment were deleted: " in rows[0]["found"]


def second_set(remote: Path) -> list[Path]:
    """Return the objects of the second segment of orders-1."""
    folder = next(remote.rglob("orders-1-*"))
    start = sorted(path.name for path in folder.glob("*.log"))[1][:20]
    return list(folder.glob(f"{start}-*"))


def test_what_the_tier_can_not_serve_any_more_is_found(
    check: Check, cluster: Cluster, writable: Callable[[str], Path]
) -> None:
    """Without the objects of a segment, the tier's log begins after a hole, and that of brokers does not."""
    remote = writable("tiered-cluster/before-remote")
    for path in second_set(remote):
        path.unlink()
    ran, rows = check(cluster, "--topic", "orders", remote=remote)
    assert ran.code == 7, "as for every other command that misses these records"
    failed = {(row["check"], row["subject"]) for row in errors(rows)}
    assert ("offsets", "orders-1") in failed
    assert {subject for _, subject in failed} == {"orders-1"}
    assert any("no set of objects has offsets" in row["found"] for row in rows)


@pytest.mark.parametrize(("log_start", "code"), [(10, ExitCode.PARTIAL), (11, ExitCode.OK)])
def test_a_hole_is_no_clean_answer(monkeypatch: pytest.MonkeyPatch, log_start: int, code: ExitCode) -> None:
    """Unless DeleteRecords raised the log start above it: then nothing below belongs to the log."""
    monkeypatch.setattr(of_consumers, "_scan", lambda *_: ())
    choice = SimpleNamespace(hole=Hole(5, 9), left=())
    facts = {"is_cut": False, "subject": "orders-0", "start_offset": log_start}
    log: Any = SimpleNamespace(decision=SimpleNamespace(choice=choice), **facts)
    server: Any = SimpleNamespace(consumer=lambda _: SimpleNamespace(close=lambda: None))
    results = [*of_consumers.check_records(log, server, SilentProgress())]
    assert exit_code_of(results) is code, results


@pytest.mark.parametrize("has_twin", [False, True])
def test_sets_that_are_not_understood_end_the_check_with_7(
    check: Check, cluster: Cluster, writable: Callable[[str], Path], has_twin: bool
) -> None:
    """Also where the log does not need the set: nothing else may fail, and it is not known what it has."""
    remote = writable("tiered-cluster/before-remote")
    objects = second_set(remote)
    for path in objects if has_twin else ():
        shutil.copy(path, path.with_name(path.name.replace(path.name[21:43], "TwinTwinTwinTwinTwinTQ")))
    [epochs] = [path for path in objects if path.suffix == ".leader_epoch_checkpoint"]
    epochs.write_bytes(b"7" + epochs.read_bytes()[1:])
    ran, rows = check(cluster, "--topic", "orders", remote=remote)
    assert (ran.code, any("not understood" in row["found"] for row in rows)) == (7, True)
    assert bool(errors(rows)) is not has_twin


LOG_LINES = {
    "": True,
    "Deleted remote log segment RemoteLogSegmentId{id=AAAAAAAAAAAAAAAAAAAAAQ} due to": False,
    "About to delete remote log segment AAAAAAAAAAAAAAAAAAAAAQ": False,
    "New epoch entry EpochEntry(epoch=8) caused truncation of conflicting entries": False,
}


@pytest.mark.parametrize("line", LOG_LINES)
def test_deletions_in_a_broker_log_are_found(check: Check, tmp_path: Path, line: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"[x] INFO started\n[x] INFO {line}\n")
    ran, rows = check(None, "--broker-log", path)
    assert ran.code == (0 if LOG_LINES[line] else 3)
    assert (found_by(rows, "broker_logs")["severity"] == "ok") is LOG_LINES[line]


def test_a_broker_log_without_a_line_is_not_checked(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    assert check(None, "--broker-log", path)[0].code == 3
    path.touch()
    ran, rows = check(None, "--broker-log", path)
    assert (ran.code, found_by(rows, "broker_logs")["severity"]) == (3, "not_checked")


def test_cut_epochs_in_a_log_directory_are_found(check: Check, writable: Callable[[str], Path]) -> None:
    logs = writable("tiered-cluster/before")
    assert check(None, "--log-dir", logs)[0].code == 0
    ran, rows = check(None, "--log-dir", logs.parent)
    assert (ran.code, rows[0]["check"], rows[0]["severity"]) == (3, "leader_epochs", "not_checked")
    (logs / "orders-1" / "leader-epoch-checkpoint").write_text("0\n1\n2 2000\n")
    ran, rows = check(None, "--log-dir", logs)
    failed = [(row["check"], row["subject"]) for row in errors(rows)]
    assert (ran.code, failed) == (3, [("leader_epochs", "orders-1")])


@pytest.mark.parametrize("name", ["orders", "new"])
@pytest.mark.parametrize("until", [None, "orders-1=700"])
def test_a_log_that_was_written_is_checked_without_a_cluster(
    check: Check, capture: Callable[[str], Path], tmp_path: Path, name: str, until: str | None
) -> None:
    """The log directory tells that the topic has another id than the tier's: its only leader epoch is 0."""
    logs = tmp_path / "logs"
    make_log_dir(logs, 1, cluster_id="other")
    more = ("--topic", "orders", "--as", name, *(() if until is None else ("--until", until)))
    remote = ("--remote", capture("tiered-cluster") / "before-remote")
    new = ("--as-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--log-dir", logs, "--apply")
    tierctl("restore", "log", *remote, *more, *new).ok()
    ran, rows = check(None, *more, "--log-dir", logs)
    found = {row["subject"]: row["severity"] for row in rows if row["check"] == "leader_epochs"}
    assert (ran.code, found) == (0, {f"{name}-{number}": "ok" for number in range(3)}), rows
    (logs / f"{name}-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 5\n")
    ran, rows = check(None, *more, "--log-dir", logs)
    assert [row["subject"] for row in errors(rows)] == [f"{name}-1"]
    (logs / f"{name}-2" / "partition.metadata").write_bytes(b"damaged")
    ran, rows = check(None, *more, "--log-dir", logs)
    found = {row["subject"]: row["severity"] for row in rows if row["check"] == "leader_epochs"}
    assert (ran.code, found) == (7, {f"{name}-0": "ok", f"{name}-1": "error", f"{name}-2": "not_checked"}), (
        rows
    )


def test_a_partition_that_only_until_names_is_refused(check: Check, capture: Callable[[str], Path]) -> None:
    logs = capture("tiered-cluster") / "before"
    ran, _ = check(None, "--topic", "orders", "--log-dir", logs, "--until", "nosuch-0=5")
    ended(ran, 10, "--until names nosuch-0")


def test_a_topic_that_the_cluster_has_not_is_never_clean(check: Check, cluster: Cluster) -> None:
    del cluster.ids["metrics"]
    cluster.partitions["payments"] = 0
    cluster.ids["clicks"] = cluster.ids["orders"]
    ran, rows = check(cluster)
    assert (ran.code, errors(rows)) == (3, [])
    left = {
        row["subject"].rpartition("-")[0]: row["found"]
        for row in rows
        if row["check"] == "offsets" and row["severity"] != "ok"
    }
    assert "the cluster has no topic metrics: deleted, or not restored" in left["metrics"]
    assert "has no partition 0" in left["payments"]
    assert "has another id" in left["clicks"]
    ran, rows = check(cluster, "--topic", "metrics")
    assert (ran.code, rows[0]["severity"], rows[0]["check"]) == (3, "error", "offsets")


def test_a_cluster_that_has_nothing_of_the_tier_is_never_clean(check: Check, cluster: Cluster) -> None:
    cluster.ids.clear()
    ran, rows = check(cluster)
    assert (ran.code, rows[0]["check"], rows[0]["severity"]) == (3, "offsets", "not_checked")
    assert "the cluster has no topic clicks: deleted, or not restored" in rows[0]["found"]


REFUSED = {
    "--apply": "No such option: --apply",
    "--as-id x": "No such option: --as-id",
    "--produce x": "--produce needs a cluster",
    "--election-timeout 1s": "--election-timeout needs a cluster",
}


@pytest.mark.parametrize("line", REFUSED)
def test_options_that_contradict_each_other_are_refused(capture: Callable[[str], Path], line: str) -> None:
    ran = tierctl("restore", "check", "--remote", capture("tiered-cluster") / "before-remote", *line.split())
    ended(ran, 2, REFUSED[line])


_ID = b'"AAAAAAAAAAAAAAAAAAAAAQ"'
NO_SETS = (
    *(
        b"",
        b"[]",
        b"5",
        b"null",
        b'["x", 1]',
        b"\xff",
        b"[" * 100_000,
        b'{"a": 1}',
        b'[null, "t", 0, null, []]',
    ),
    *(b'[%s, "t", 0, %s, %s]' % (_ID, _ID, sizes) for sizes in (b"5", b"[5]", b"[[1]]", b"[[1, 1e400]]")),
    *(b'[%s, "t", %s, %s, []]' % (_ID, number, _ID) for number in (b"NaN", b"Infinity", b"null", b"[]")),
)
"""Lines that are no set of a listing."""


@pytest.mark.parametrize(
    "text",
    [b"", b"other\n", b"tierctl listing 1\n", *(b"tierctl listing 1\n" + line + b"\n" for line in NO_SETS)],
    ids=lambda text: text[:40],
)
def test_a_file_that_is_no_listing_is_refused(check: Check, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "before"
    path.write_bytes(text)
    assert check(None, "--before", path)[0].code == 7


def test_a_listing_that_is_not_there_is_refused(check: Check, tmp_path: Path) -> None:
    assert check(None, "--before", tmp_path / "none")[0].code == 10
    assert check(None, "--before", tmp_path)[0].code == 2
