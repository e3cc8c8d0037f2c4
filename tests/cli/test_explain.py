"""`explain` on captured data: the decisions of copy and sweep, each with its rule, settings and reason."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import rows, tierctl
from tests.support.captures import private_keys

Capture = Callable[..., Path]
CONFIGS = "{topic}.remote.storage.enable=true\n{topic}.retention.ms={ms}\n{topic}.retention.bytes={size}\n"
TOPICS = ("orders", "payments", "clicks", "metrics")


def keys(found: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(s["partition"], s["segment_id"], s["start_offset"], s["end_offset"]) for s in found}


def test_its_deletes_are_those_of_sweep(capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    configs = tmp_path / "configs"
    configs.write_text(
        "".join(CONFIGS.format(topic=topic, ms=604_800_000, size=1_000_000) for topic in TOPICS)
    )
    where = ("--metadata", root / "before", "--log-dir", root / "before", "--topic-configs", configs)
    where = (*where, "--kafka-version", "4.4")
    for topic in ("orders", "clicks"):
        swept = rows("sweep", *where, "--remote", root / "before-remote", "--topic", topic, "--partition", 0)
        explained = rows("explain", topic, 0, *where)
        deleted = [row for row in explained if row["next_action"] == "delete"]
        assert keys(deleted) == keys(swept)
        # explain adds the numbers that the rule compared.
        assert {s["segment_id"]: s["reason"] for s in swept} == {
            row["segment_id"]: row["reason"].partition(": ")[0] for row in deleted
        }
        listed = rows("segments", *where[:2], "--topic", topic, "--partition", 0)
        assert keys(listed) == keys([row for row in explained if row["location"] == "tier"])


def test_its_copies_are_those_of_copy(capture: Capture, tmp_path: Path) -> None:
    root = capture("copy-lag", "4.4.0")
    now = (root / "looked_at_ms").read_text().strip()
    (tmp_path / "metadata").mkdir()
    for number in range(50):
        (tmp_path / "metadata" / f"__remote_log_metadata-{number}").mkdir()
    where = ("--metadata", tmp_path / "metadata", "--log-dir", root / "local", "--now", now)
    where = (*where, "--topic-configs", root / "topics.properties")
    copied = rows("copy", *where, "--remote", tmp_path / "tier")
    topics = {row["topic"] for row in copied}
    assert topics
    for topic in topics:
        explained = rows("explain", topic, 0, *where)
        assert keys([row for row in explained if row["next_action"] == "copy"]) == keys(
            [row for row in copied if row["topic"] == topic and row["partition"] == 0]
        )


def test_a_transaction_and_the_sources_of_settings(capture: Capture, tmp_path: Path) -> None:
    root = capture("untiered-broker")
    configs, server = tmp_path / "configs", tmp_path / "server.properties"
    configs.write_text("ledger.remote.storage.enable=true\nledger.retention.bytes=9000000\n")
    server.write_text("log.cleanup.policy=delete\n")
    (client := tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local")
    where = (*where, "--topic-configs", configs, "--broker-config", server, "--command-config", client)
    found = rows("explain", "ledger", 0, *where, "--now", "2026-11-21T11:00:00Z")
    waiting = [row for row in found if row["reason_kind"] == "open_transaction"]
    assert [row["start_offset"] for row in waiting] == [2788, 3481, 4081]
    assert (
        "by producer 1000 since 2026-11-21T10:35:48Z at the last stable offset 3280" in waiting[0]["reason"]
    )
    assert {"name": "producer_id", "value": 1000} in waiting[0]["facts"]
    # Without it, Kafka's tool can't log in where tierctl needs it to.
    command = f"--command-config {client} abort --topic ledger --partition 0 --start-offset 3280"
    assert f"kafka-transactions.sh --bootstrap-server HOST:PORT {command}" in waiting[0]["reason"]
    kept = next(row for row in found if row["location"] == "tier")
    assert kept["settings"] == [
        {"name": "retention.ms", "value": "-1", "source": "not stated"},
        {"name": "retention.bytes", "value": "9000000", "source": "topic settings file"},
    ]
    assert found[-1]["reason_kind"] == "not_rolled"
    assert "the active segment is not rolled yet" in found[-1]["reason"]
    sources = {each["name"]: each["source"] for each in found[-1]["settings"]}
    assert sources == {"segment.bytes": DEFAULT, "segment.ms": DEFAULT}
    assert {row["rule"] for row in (*waiting, found[-1])} == {CANDIDATES}
    assert waiting[0]["settings"] == []


def test_segments_that_are_not_decided_are_counted_apart(capture: Capture, tmp_path: Path) -> None:
    """Without the tier and the logs no leader epochs are known; they were segments to keep for now."""
    root, configs = capture("untiered-broker"), tmp_path / "configs"
    configs.write_text("ledger.remote.storage.enable=true\nledger.retention.bytes=1000\n")
    where = ("--metadata", root / "tiered-metadata", "--topic-configs", configs)
    ran = tierctl("explain", "ledger", 0, *where, "--output", "jsonl")
    assert {row["reason_kind"] for row in ran.rows} == {"not_understood"}
    assert f"segments of 1 topic: {len(ran.rows)} not decided (see the reason), " in ran.summary
    # What an option can add is no input that is not understood.
    assert (ran.code, "--remote is missing" in ran.err) == (3, True)
    ran = tierctl("explain", "ledger", 0, *where, "--remote", root / "tiered-remote", "--output", "jsonl")
    assert "delete" in {row["next_action"] for row in ran.rows}
    assert "not decided" not in ran.summary


@pytest.mark.parametrize("words", [("explain", "audit-0"), ("sweep", "--topic", "audit")])
def test_leader_epochs_that_are_encrypted(words: tuple[str, ...], capture: Capture) -> None:
    """Without the logs the lineage is in an encrypted index: the option that the warning names reads it."""
    root = capture("aiven-encrypted")
    where = (*words, "--metadata", root / "broker-logs", "--remote", root / "bucket")
    ran = tierctl(*where)
    assert (ran.code, "; --aiven-private-key key1=FILE, or name it in" in ran.err) == (7, True)
    ran = tierctl(*where, *private_keys(root))
    assert (ran.code, "no lineage of" in ran.err) == (0, False)


@pytest.mark.parametrize("command", [("explain", "orders-0"), ("status",), ("report",), ("sweep",)])
def test_only_commands_with_apply_say_what_it_would_refuse(
    command: tuple[str, ...], writable: Callable[[str], Path]
) -> None:
    """Nothing in the directory of a broker that is no controller states the number of metadata partitions."""
    logs = writable("tiered-cluster/after")
    (logs / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    ran = tierctl(*command, "--metadata", logs, "--log-dir", logs)
    assert ("--apply would refuse this" in ran.err) is (command == ("sweep",))


@pytest.mark.parametrize("own", ["", "ledger.retention.bytes=-1\n"])
def test_the_retention_of_brokers_frees_disks(capture: Capture, tmp_path: Path, own: str) -> None:
    root = capture("untiered-broker")
    configs, server = tmp_path / "configs", tmp_path / "server.properties"
    configs.write_text(f"ledger.remote.storage.enable=true\n{own}")
    server.write_text("log.retention.bytes=1000\n")
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local")
    where = (*where, "--topic-configs", configs, "--broker-config", server)
    found = rows("explain", "ledger", 0, *where, "--now", "2026-11-21T11:00:00Z")
    freed = [row for row in found if row["reason_kind"] == "local_retention_bytes"]
    assert bool(freed) is (own == "")
    for row in freed:
        assert {"name": "retention.bytes", "value": "1000", "source": DEFAULT} in row["settings"]
    assert not [row for row in found if row["location"] == "tier" and row["next_action"] == "delete"]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--offset", "700"), [("tier", 600)]),
        (("--segment-id", "2uQvpFARRDyAGaqTdZtf4w"), [("tier", 600)]),
        (("--offset", "3499"), [("local", 3000)]),
        (("--time", "0"), [("tier", 0), ("local", 3000)]),
    ],
)
def test_one_segment(options: tuple[str, ...], offsets: list[tuple[str, int]], capture: Capture) -> None:
    root = capture("tiered-cluster") / "before"
    found = rows("explain", "orders", 0, "--metadata", root, "--log-dir", root, *options)
    assert [(row["location"], row["start_offset"]) for row in found] == offsets


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("orders", "9"), ExitCode.NOT_FOUND, "0-2"),
        (
            ("orders", "0", "--segment-id", "none"),
            ExitCode.NOT_FOUND,
            "no segment of the partition has id none",
        ),
        (("orders", "0", "--offset", "99999"), ExitCode.NOT_FOUND, "no segment of the partition has offset"),
        (("orders", "0", "--offset", "1", "--time", "0"), ExitCode.USAGE, "give one of them"),
    ],
)
def test_what_is_not_there(args: tuple[str, ...], code: int, message: str, capture: Capture) -> None:
    root = str(capture("tiered-cluster") / "before")
    ran = tierctl("explain", *args, "--metadata", root, "--log-dir", root)
    assert ran.code == code
    assert message in ran.err


LAG, CLUSTER, EPOCHS = ("copy-lag", "4.4.0"), ("tiered-cluster", "4.3.0"), ("delete-across-epoch", "4.3.0")
UNCLEAN = ("unclean-leader", "4.3.0")
FOLDERS = {
    LAG: ("tiered-metadata", "local"),
    CLUSTER: ("after", "after"),
    EPOCHS: ("before", "before"),
    UNCLEAN: ("before/broker-1", "before/broker-1"),
}
"""The folders of the metadata topic and of the log in each capture."""
FILE, DEFAULT = "topic settings file", "default"
CANDIDATES, BY_TIME = "RLMCopyTask, candidate segments", "RLMExpirationTask, by retention time"
LOOKED_AT_MS = "1795332948011"
"""When the copy lag was captured."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An answer: where it is given, and what the row says."""

    kind: str
    of: tuple[str, str] = LAG
    topic: str = "future"
    location: str = "tier"
    action: str = "none"
    rule: str = BY_TIME
    sources: dict[str, str] = field(default_factory=lambda: {"retention.ms": FILE})
    words: str
    now: str = LOOKED_AT_MS


CASES = (
    Case(
        kind="rolled",
        location="local",
        action="copy",
        rule="RLMCopyTask",
        sources={"remote.storage.enable": FILE},
        words="rolled, below the last stable offset 744",
    ),
    Case(
        kind="retention_ms",
        action="delete",
        words="retention.ms 3600000: its newest record is of 2026-11-22T00:28:41Z, before 2026-11-22T06:",
    ),
    Case(
        kind="will_expire",
        of=CLUSTER,
        topic="metrics",
        sources={"retention.ms": FILE, "retention.bytes": DEFAULT},
        words="expires at 2026-11-21T11:30:23Z: its newest record is of 2026-11-21T10:30:23Z",
        now="2026-11-21T11:00:00Z",
    ),
    Case(
        kind="stalled",
        words="is in the future, so neither it nor any behind it expires by retention.ms",
    ),
    Case(
        kind="off_lineage",
        of=UNCLEAN,
        topic="payouts",
        rule="RLMExpirationTask, within leader epochs",
        sources={},
        words="off the lineage: its epochs 0@576 are not those of the log: 0@0, 4@520, 5@1220",
        now="2026-11-21T12:00:00Z",
    ),
    Case(
        kind="doubled_segment",
        of=UNCLEAN,
        topic="wallets",
        rule="RemoteLogLeaderEpochState: one segment per offset",
        sources={},
        words="copied again from the same offset as UC8FylgaRL6SzJDUVQYCsg: brokers keep this copy until the "
        "topic is deleted; sweep deletes it once it lies wholly below the log start offset",
    ),
    Case(
        kind="log_start_offset",
        of=EPOCHS,
        topic="ledger",
        action="delete",
        rule="RLMExpirationTask, by log start offset",
        sources={},
        words="below the log start offset 313",
        now="2026-11-22T08:00:00Z",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_an_answer(case: Case, capture: Capture, tmp_path: Path) -> None:
    root, file = capture(*case.of), tmp_path / "topics.properties"
    metadata, log = (root / folder for folder in FOLDERS[case.of])
    file.write_text(f"{case.topic}.remote.storage.enable=true\n{case.topic}.retention.ms=3600000\n")
    where = ("--metadata", metadata, "--log-dir", log, "--topic-configs", file, "--now", case.now)
    found = answered("explain", case.topic, 0, *where)
    own = [row for row in found if (row["reason_kind"], row["location"]) == (case.kind, case.location)]
    assert own, [(row["reason_kind"], row["location"], row["reason"]) for row in found]
    assert case.words in own[0]["reason"]
    for row in own:
        assert (row["next_action"], row["rule"]) == (case.action, case.rule)
        assert {each["name"]: each["source"] for each in row["settings"]} == case.sources
        stated = (f"{each['name']}={each['value']} ({each['source']})" for each in row["settings"])
        assert row["decided_by"] == "; ".join([case.rule, *stated])


def test_the_settings_that_a_copy_lag_of_minus_one_refers_to_are_named(capture: Capture) -> None:
    root = capture(*LAG)
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local", "--now", LOOKED_AT_MS)
    found = answered("explain", "bylocal-0", *where, "--topic-configs", root / "topics.properties")
    waiting = [row["decided_by"] for row in found if row["reason_kind"] == "copy_lag"]
    assert waiting
    decided = (
        f"{CANDIDATES}; remote.copy.lag.ms=-1 ({FILE}); local.retention.ms=10800000 ({FILE}); "
        f"remote.copy.lag.bytes=-1 ({FILE}); local.retention.bytes=3000000 ({FILE})"
    )
    assert set(waiting) == {decided}


def answered(*args: object) -> list[dict[str, Any]]:
    ran = tierctl(*args, "--output", "jsonl")
    # 3: the open transaction also keeps segments on the disk that local retention should have deleted.
    assert ran.code in {0, 3}, ran.err
    return ran.rows


def test_what_the_broker_deleted_beyond_retention_bytes_is_explained_and_reported(capture: Capture) -> None:
    """Brokers count what is below the log start; sweep does not, and keeps one segment more."""
    root = capture("delete-across-epoch")
    where = ("--metadata", root / "before", "--log-dir", root / "before")
    now = (root / "now_ms").read_text().strip()
    where = (*where, "--now", now, "--topic-configs", root / "topics.properties")
    lines = (root / "deleted-over-retention.txt").read_text().splitlines()
    deleted = {line.split()[3] for line in lines if line.startswith("both-0 ")}
    found = [row for row in answered("explain", "both-0", *where) if row["location"] == "tier"]
    last = "Xjzz5wpERwmcbZ2NRvKjbg"
    assert {row["segment_id"] for row in found if row["next_action"] == "delete"} == deleted
    (row,) = (row for row in found if row["segment_id"] == last)
    assert (row["reason_kind"], row["rule"]) == ("retention_bytes", "RLMExpirationTask, by retention size")
    assert "brokers also count 2032790 bytes below the log start" in row["reason"]
    due = answered("report", "--show", "expirations", *where, "--topic", "both")
    assert {row["segment_id"] for row in due} == deleted
    assert {row["segment_id"] for row in answered("sweep", *where, "--topic", "both")} == deleted - {last}


def test_a_segment_that_brokers_never_delete_is_deleted_by_a_plain_sweep(capture: Capture) -> None:
    """The brokers of the capture kept it, although its epochs have left their checkpoints."""
    after = capture("unclean-leader") / "after"
    logs = [f"--log-dir={after / f'broker-{broker}'}" for broker in (1, 2, 3)]
    where = ("--metadata", after / "broker-1", *logs)
    selected, doubled = (*where, "--topic", "wallets"), "YKjh5jBvR9ebdjZhpxTgaA"
    explained = tierctl("explain", "wallets-0", *where, "--output", "jsonl")
    checked, stated = (tierctl(command, *selected) for command in ("verify", "status"))
    assert [ran.code for ran in (explained, checked, stated)] == [3, 3, 3]
    found = [json.loads(line) for line in explained.lines]
    assert [row["segment_id"] for row in found if row["reason_kind"] == "doubled_segment"] == [doubled]
    assert {row["next_action"] for row in found} == {"none"}
    assert [step["segment_id"] for step in answered("sweep", *selected)] == [doubled]
    for ran in (checked, stated):
        assert "next: tierctl sweep --metadata" in ran.summary
        assert "off-lineage" not in ran.out + ran.err + ran.summary


def test_segments_of_a_marked_topic_are_deleted_by_delete(writable: Callable[[str], Path]) -> None:
    """A leaked topic is marked: explain and delete agree about each of its segments."""
    metadata, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    where = ("--metadata", metadata, "--remote", remote)
    (topic_id,) = {row["topic_id"] for row in answered("segments", *where, "--topic", "shortlived")}
    named = ("--topic-id", topic_id, "--i-know-it-is-deleted", topic_id)
    marked = tierctl("delete", *where, "--mark", *named, "--apply", "--yes", "--allow-live-brokers")
    assert marked.code == 0, marked.err
    steps = answered("delete", *where)
    planned = {step["segment_id"] for step in steps if step["segment_id"] and step["partition"] == 0}
    found = answered("explain", "shortlived", 0, *where)
    assert planned
    assert {row["segment_id"] for row in found if row["next_action"] == "delete"} == planned
    assert {row["reason_kind"] for row in found} == {"topic_deleted"}
    assert {row["rule"] for row in found} == {"RemotePartitionRemover (KIP-405)"}


@pytest.mark.parametrize("second", ["clicks", "-2", "0x", "1.5"])
def test_a_second_word_that_is_no_number(second: str, capture: Callable[[str], Path]) -> None:
    ran = tierctl("explain", "--metadata", capture("tiered-cluster") / "before", "--", "orders", second)
    assert (ran.code, ran.out) == (2, "")
    assert f"error: PARTITION: expected the number of a partition, found '{second}'\n" in ran.err
    assert "hint: name one partition, as orders-0 or orders 0; run explain once for each" in ran.err
