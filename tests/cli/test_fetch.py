"""`tierctl fetch` as a command: its output on stdout, stderr and a terminal, and its exit code.

`--erase-report` names every object that contains a key, as a search of all records does.
"""

import base64
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tierctl.cli.entry import run
from tierctl.read.record_rows import Binary, encoder, parse_key
from tierctl.report.table import bytes_text
from tierctl.wire.files.indexes import OffsetIndex

from tests.cli.shell import Ran, at_terminal, environment, rows, tierctl
from tests.read import brute
from tests.read.tier import Tier

Capture = Callable[[str], Path]


@pytest.fixture
def cluster(capture: Capture) -> list[str]:
    root = capture("tiered-cluster")
    return ["fetch", "--metadata", (root / "before").as_uri(), "--remote", (root / "before-remote").as_uri()]


@pytest.fixture
def unclean(capture: Capture) -> list[str]:
    root = capture("unclean-leader") / "before"
    logs = [f"--log-dir={root / broker}" for broker in ("broker-1", "broker-2")]
    return ["fetch", f"--metadata={root / 'broker-1'}", f"--remote={root / 'remote'}", *logs]


def test_without_a_topic_every_record_of_every_remote_segment(cluster: list[str], capture: Capture) -> None:
    objects = (capture("tiered-cluster") / "before-remote").rglob("*.log")
    by_folder: dict[str, list[Path]] = {}
    for log in objects:
        by_folder.setdefault(log.parent.name, []).append(log)
    expected = []
    for folder, files in by_folder.items():
        name, topic_id = folder[:-23], folder[-22:]
        topic, _, partition = name.rpartition("-")
        records = brute.visible(brute.decode_files(files))
        expected += [(topic, topic_id, int(partition), *r.answer) for r in records]

    found = [
        (r["topic"], r["topic_id"], r["partition"], r["offset"], r["timestamp_ms"], r["key"], r["value"])
        for r in rows(*cluster, "--binary", "sha256")
    ]
    assert found == sorted(expected, key=lambda row: (row[0], row[2], row[3]))


def test_rows_are_sorted_and_limited(cluster: list[str]) -> None:
    """With --sort all records are read, and the first rows are printed; without it reading stops."""
    where = [*cluster, "--topic", "orders", "--partition", "0", "--until", "9"]
    offsets = [row["offset"] for row in rows(*where)]
    assert [row["offset"] for row in rows(*where, "--limit", "4")] == offsets[:4]
    assert [row["offset"] for row in rows(*where, "--sort", "-offset", "--limit", "4")] == offsets[::-1][:4]


BYTES = [b"", b"plain", "é☃".encode(), b"\xff\x00", b"\x00nul", None]


@pytest.mark.parametrize("data", BYTES)
def test_binary_forms_say_what_they_are(data: bytes | None) -> None:
    for form in Binary:
        text, encoding = encoder(form)(data)
        undo: dict[str | None, Callable[[str], bytes]] = {
            "utf8": str.encode,
            "base64": base64.b64decode,
            "hex": bytes.fromhex,
        }
        if data is None:
            assert (text, encoding) == (None, None)
        elif form is Binary.SHA256:
            assert text == hashlib.sha256(data).hexdigest()
        elif form is not Binary.UTF8 or data != b"\xff\x00":
            assert undo[encoding](text or "") == data


def test_named_offsets(unclean: list[str], cluster: list[str]) -> None:
    """tests/read/test_partition_reader.py compares each of them with the answers of brokers."""
    for name, found in (("earliest-local", [1444]), ("latest", [])):
        given = rows(*unclean, "--topic", "payouts", "--offset", name, "--limit", "1")
        assert [row["offset"] for row in given] == found
    ran = tierctl(*cluster, "--topic", "payments", "--offset", "earliest-local")
    assert (ran.code, "the start of the local log is not known" in ran.err) == (2, True)


def test_from_time_to_time(unclean: list[str], capture: Capture) -> None:
    expected = brute.answers(capture("unclean-leader") / "answers" / "3-before-wallets-0.jsonl")
    begin, end = expected[500][1], expected[900][1]
    found = rows(*unclean, "--topic", "wallets", f"--from-time={begin}", f"--to-time={end}")
    first = next(a[0] for a in expected if a[1] >= begin)
    after = next(a[0] for a in expected if a[0] >= first and a[1] > end)
    assert [row["offset"] for row in found] == list(range(first, after))
    assert rows(*unclean, "--topic", "wallets", "--from-time", "2100-01-01T00:00:00Z") == []


def test_raw_bytes_are_the_objects(
    cluster: list[str], capture: Capture, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = sorted((capture("tiered-cluster") / "before-remote").rglob("payments-0-*/*.log"))[1]
    segment_id = log.stem[21:]
    out = tmp_path / "out.bin"
    assert run([*cluster, "--raw-segment", segment_id, "--out", str(out)]) == 0
    assert out.read_bytes() == log.read_bytes()
    size = bytes_text(log.stat().st_size)
    assert f"fetch: {size} written to {out}" in capfdbinary.readouterr().err.decode()
    for index, suffix in (
        ("offset", ".index"),
        ("timestamp", ".timeindex"),
        ("transaction", ".txnindex"),
        ("producer-snapshot", ".snapshot"),
        ("leader-epoch", ".leader_epoch_checkpoint"),
    ):
        out = tmp_path / index
        assert run([*cluster, "--raw-segment", segment_id, "--index", index, "--out", str(out)]) == 0
        assert out.read_bytes() == log.with_suffix(suffix).read_bytes()
        # The same segment contains the offset.
        args = ["--topic", "payments", "--offset", str(int(log.stem[:20]) + 5), "--index", index]
        assert run([*cluster, *args, "--out", str(out)]) == 0
        assert out.read_bytes() == log.with_suffix(suffix).read_bytes()
    capfdbinary.readouterr()
    assert run([*cluster, "--raw-segment", segment_id]) == 0
    assert capfdbinary.readouterr().out == log.read_bytes()


def test_a_decoded_index_has_its_entries(cluster: list[str], capture: Capture) -> None:
    log = sorted((capture("tiered-cluster") / "before-remote").rglob("payments-0-*/*.log"))[1]
    args = ["--raw-segment", log.stem[21:], "--index", "offset"]
    index = OffsetIndex.decode(log.with_suffix(".index").read_bytes(), int(log.stem[:20]))
    entries = [entry._asdict() for entry in index]
    assert rows(*cluster, *args) == entries
    assert len(entries) > 3
    assert rows(*cluster, *args, "--limit", "3") == entries[:3]
    printed = tierctl(*cluster, *args, "-o", "csv", "--columns", "position").ok()
    assert printed.lines == ["position", *(str(entry["position"]) for entry in entries)]
    # A limit of the environment is one of records.
    env = environment(TIERCTL_LIMIT="5", TIERCTL_ISOLATION="read_committed")
    assert tierctl(*cluster, *args[:2], "--index", "leader-epoch", env=env).ok().out.startswith("0\n")


@pytest.fixture
def damaged(capture: Capture, tmp_path: Path) -> list[str]:
    """Return a command over a copy of the tier, in the folder `remote`, that a test may damage."""
    root = capture("tiered-cluster")
    shutil.copytree(root / "before-remote", tmp_path / "remote")
    return ["fetch", f"--metadata={root / 'before'}", f"--remote={tmp_path / 'remote'}"]


def test_a_missing_index_is_rebuilt(damaged: list[str], tmp_path: Path) -> None:
    log = min((tmp_path / "remote").rglob("payments-0-*/*.log"))
    before = log.with_suffix(".timeindex").read_bytes()
    log.with_suffix(".timeindex").unlink()
    log.with_suffix(".txnindex").unlink()
    args = [*damaged, "--raw-segment", log.stem[21:]]
    ran = tierctl(*args, "--index", "timestamp", "--out", tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == before
    assert "rebuilt from the segment" in ran.err
    ran = tierctl(*args, "--index", "transaction")
    assert (ran.code, "tierctl verify --deep tells which" in ran.err) == (10, True)


def test_a_log_of_another_size_is_not_the_segment(
    damaged: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = min((tmp_path / "remote").rglob("payments-0-*/*.log"))
    os.truncate(log, 1000)
    for out in ([], ["--out", str(tmp_path / "out")]):
        assert run([*damaged, "--raw-segment", log.stem[21:], *out]) == 7
        ran = capfdbinary.readouterr()
        assert ran.out == (b"" if out else log.read_bytes())
        assert b"as the segment's metadata say, found 1000" in ran.err
    assert not list(tmp_path.glob("out*"))


def test_a_segment_without_aborted_transactions_has_an_empty_index(
    cluster: list[str], capture: Capture, tmp_path: Path
) -> None:
    """It has no object: brokers state that in the metadata."""
    root = capture("tiered-cluster")
    tier = Tier.of(root / "before", root / "before-remote")
    segments = tier.segments("orders") + tier.segments("payments")
    flagged = [each for each in segments if each.txn_index_empty]
    assert 0 < len(flagged) < len(segments)
    for segment in segments:
        args = [*cluster, "--raw-segment", str(segment.segment_id), "--index", "transaction"]
        tierctl(*args, "--out", out := tmp_path / str(segment.segment_id)).ok()
        assert (out.read_bytes() == b"") is segment.txn_index_empty
        assert (tierctl(*args, "--output", "jsonl").ok().rows == []) is segment.txn_index_empty


def test_auxiliary_state_is_what_a_follower_would_have(
    cluster: list[str], capture: Capture, tmp_path: Path
) -> None:
    root = capture("tiered-cluster")
    log = max((root / "before-remote").rglob("orders-1-*/*.log"))
    args = ["--topic", "orders", "--partition", "1", "--auxiliary-state", "3000", "--out", str(tmp_path)]
    found = tierctl(*cluster, *args).ok().json
    assert found["segment_id"] == log.stem[21:]
    assert found["next_offset"] == 3000
    local = (root / "before" / "orders-1" / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
    epochs = [[int(number) for number in line.split()] for line in local]
    assert found["leader_epochs"] == [entry for entry in epochs if entry[1] < 3000]
    written = tmp_path / "00000000000000003000.snapshot"
    assert written.read_bytes() == log.with_suffix(".snapshot").read_bytes()
    assert (tmp_path / "leader-epoch-checkpoint").read_text().split("\n")[1] == str(
        len(found["leader_epochs"])
    )


ORDERS_1 = ["--topic", "orders", "--partition", "1"]
SEGMENT = ["--raw-segment", "AAAAAAAAAAAAAAAAAAAAAA"]
WRONG = {
    "no such topic": (["--topic", "nothing"], 10),
    "a column of records for entries": (
        [*ORDERS_1, "--offset", "3000", "--index", "offset", "-o", "csv", "--columns", "value"],
        2,
    ),
    "offset beyond the end": (["--topic", "orders", "--partition", "0", "--offset", "99999"], 10),
    "no offset": (["--topic", "orders", "--offset", "soon"], 2),
    "two beginnings": (["--offset", "5", "--from-time", "1"], 2),
    "no segment": (SEGMENT, 10),
    "records of a segment": ([*SEGMENT, "--offset", "5"], 2),
    "no segment id": (["--raw-segment", "short"], 2),
    "format of raw bytes": ([*SEGMENT, "-o", "json"], 2),
    **{
        f"{option[0]} of {objects[-2]}": ([*objects, *option], 2)
        for objects in (SEGMENT, [*ORDERS_1, "--index", "offset"], [*ORDERS_1, "--auxiliary-state", "3000"])
        for option in (
            ["--limit", "5"],
            ["--until", "3"],
            ["--to-time", "3"],
            ["--isolation", "read_committed"],
            ["--sort", "offset"],
        )
    },
    "index of many": (["--index", "offset"], 2),
    "out of records": (["--out", "x"], 2),
    "auxiliary state of many": (["--auxiliary-state", "5"], 2),
    "auxiliary state beyond the tier": ([*ORDERS_1, "--auxiliary-state", "999999"], 10),
}


@pytest.mark.parametrize(("args", "code"), WRONG.values(), ids=WRONG)
def test_what_can_not_be_had_ends_with_its_code(cluster: list[str], args: list[str], code: int) -> None:
    ran = tierctl(*cluster, *args)
    assert (ran.code, ran.err.startswith("error: ")) == (code, True)


@pytest.mark.parametrize(("is_flipped", "code"), [(False, 10), (True, 7)])
def test_damage_is_reported_and_the_rest_printed(
    is_flipped: bool, code: int, damaged: list[str], tmp_path: Path
) -> None:
    _, changed, missing, *_ = sorted((tmp_path / "remote").rglob("orders-0-*/*.log"))
    if is_flipped:
        data = bytearray(changed.read_bytes())
        data[500] ^= 1
        changed.write_bytes(data)
    missing.unlink()
    ran = tierctl(*damaged, "--topic", "orders", "--partition", "0")
    offsets = [row["offset"] for row in ran.rows]
    assert (ran.code, offsets[0], offsets[-1]) == (code, 0, 2999)
    assert len(offsets) < 3000
    assert ran.err.count("error: ") == 1 + is_flipped
    assert "hint: " in ran.err


def test_a_second_run_reads_indexes_from_the_state_directory(damaged: list[str], tmp_path: Path) -> None:
    """The cache of indexes has the size that the broker's settings state."""
    asked = [*damaged, "--topic=orders", "--partition=2", "--offset=1000", "--limit=2"]
    (tmp_path / "server.properties").write_text("remote.log.index.file.cache.total.size.bytes=1\n")
    small = (f"--state-dir={tmp_path / 'small'}", f"--broker-config={tmp_path / 'server.properties'}")
    first = rows(*asked, *small)
    assert not any((tmp_path / "small" / "remote-log-index-cache").glob("*.index"))
    assert rows(*asked, f"--state-dir={tmp_path / 'state'}") == first
    for index in (tmp_path / "remote").rglob("*.index"):
        index.write_bytes(b"\x00")
    assert rows(*asked, f"--state-dir={tmp_path / 'state'}") == first


def test_a_deleted_topic_is_not_proposed(capture: Callable[[str], Path]) -> None:
    root = capture("tiered-cluster")
    where = ("--metadata", root / "after", "--remote", root / "after-remote")
    for more in ((), ("--log-dir", root / "after")):
        ran = tierctl("fetch", "--topic", "shortlived", *where, *more)
        assert ran.code == 10
        assert "error: the tier has no finished segment of shortlived, and no log" in ran.err
        assert "hint: the topic was deleted, or its segments expired" in ran.err
        assert "clicks" not in ran.err


WIDTH = 80


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        (
            "fetch --topic clicks --partition 0 --limit 3",
            ["topic", "partition", "offset", "time"],
        ),
        ("fetch --topic clicks --limit 3 --columns offset,value", ["offset", "value"]),
        ("format --limit 3", ["metadata_offset", "topic", "partition", "start", "end", "state"]),
        ("format --limit 3 --sep ;", None),
        ("fetch --topic clicks --limit 3 --output jsonl", None),
    ],
)
def test_the_default_at_a_terminal(command: str, headings: list[str] | None, tier: list[str]) -> None:
    name, *options = command.split()
    ran = at_terminal(name, *(tier if name == "fetch" else tier[:2]), *options)
    lines = ran.lines
    assert ran.code == 0, ran.raw_err
    if headings is None:
        assert len(lines) == 3
        assert not lines[0].startswith(("topic", "metadata_offset"))
    else:
        assert len(lines) == 4
        assert lines[0].split()[: len(headings)] == headings
        assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ("--topic orders --output jsonl", 20),
        ("--topic orders --partition 0 --until 45", 45),
        ("--topic orders --partition 0 --sort -offset", 600),
    ],
)
def test_a_terminal_shows_20_records(options: str, count: int, tier: list[str]) -> None:
    ran = at_terminal("fetch", *tier, *options.split(), "--no-header")
    assert len(ran.lines) >= count
    assert ("a terminal shows 20 records, --limit N more" in ran.raw_err) is (count == 20)
    assert (len(ran.lines) == count) is (count < 600)


@pytest.mark.parametrize(
    ("options", "hints"),
    [
        ("--topic payments --partition 0 --offset 100 --index offset", ("--output table", "--out", "pipe")),
        ("--raw-segment AAAAAAAAAAAAAAAAAAAAEA", ("--out", "pipe")),
    ],
)
def test_a_terminal_gets_no_raw_bytes(options: str, hints: tuple[str, ...], tier: list[str]) -> None:
    ran = at_terminal("fetch", *tier, *options.split())
    assert (ran.code, ran.out) == (2, "")
    assert [hint in ran.raw_err for hint in hints] == [True] * len(hints)
    if "--index" in options:
        assert len(at_terminal("fetch", *tier, *options.split(), "--output", "table").lines) > 1


@pytest.mark.parametrize(("options", "shown"), [([], 6), (["--all"], 9)])
def test_findings_of_a_partition_are_one_row(
    options: list[str], shown: int, capture: Callable[[str], Path]
) -> None:
    """Each hint is printed once for its kind, and every finding is counted."""
    root = capture("tiered-cluster")
    where = ["--metadata", str(root / "before"), "--log-dir", str(root / "after")]
    ran = at_terminal("verify", *where, *options)
    lines = ran.lines
    assert ran.code == 3, ran.raw_err
    assert sum(line.startswith(("warning ", "info ")) for line in lines) == shown
    text = " ".join(" ".join(lines).split())
    assert text.count("fix: ") == 2
    assert ("; 2 more like this, see --all" in text) is not bool(options)
    assert ": 2 problems of 1 topic: 2 warning; 7 info" in ran.raw_err


TIERS = {
    "tiered-cluster": ("before", "before-remote"),
    "unclean-leader": ("before/broker-1", "before/remote"),
    "untiered-broker": ("tiered-metadata", "tiered-remote"),
}


def occurrences(logs: Iterable[Path], keys: Iterable[bytes]) -> set[tuple[str, int, int, str]]:
    """Return object, offset, timestamp and hash of every record with one of the keys, from a full search."""
    wanted = frozenset(keys)
    return {
        (str(log), record.offset, record.timestamp_ms, hashlib.sha256(record.key).hexdigest())
        for log in logs
        for record in brute.visible(list(brute.decode(log.read_bytes())))
        if record.key in wanted and record.key is not None
    }


def found(ran: Ran) -> set[tuple[str, int, int, str]]:
    listed = [(row["object"], row["offset"], row["timestamp_ms"], row["key_sha256"]) for row in ran.rows]
    assert len(listed) == len(set(listed))
    return set(listed)


def some_keys(logs: list[Path]) -> list[bytes]:
    """Return the first keys of the first, a middle and the last segment with keys."""
    first = [next((r.key for r in brute.decode(log.read_bytes()) if r.key), None) for log in logs]
    keys = [key for key in first if key is not None]
    return [keys[0], keys[len(keys) // 2], keys[-1]]


def begins_with_a_key(log: Path) -> bool:
    return next(brute.decode(log.read_bytes())).key is not None


@pytest.mark.parametrize(
    ("name", "with_metadata"),
    [("tiered-cluster", True), ("unclean-leader", False), ("untiered-broker", True)],
)
def test_every_object_with_the_key_is_named(capture: Capture, name: str, with_metadata: bool) -> None:
    metadata, remote = (capture(name) / folder for folder in TIERS[name])
    logs = sorted(remote.rglob("*.log"))
    keys = some_keys(logs)
    words = [word for key in keys for word in ("--erase-report", f"hex:{key.hex()}")]
    where = ("--metadata", metadata) if with_metadata else ()
    ran = tierctl("fetch", *where, "--remote", remote, *words, "-o", "jsonl")
    assert ran.code == 0, ran.err
    assert found(ran) == occurrences(logs, keys)
    assert len(ran.rows) > len(keys)
    assert f"searched {len(logs)} segments" in ran.err
    states = {row.get("state") for row in ran.rows}
    assert (None in states) != with_metadata


def test_the_local_logs_are_searched_too(capture: Capture) -> None:
    root = capture("tiered-cluster")
    remote, local = root / "before-remote", root / "before"
    active = [path for path in sorted(local.glob("orders-*/*.log")) if path.stat().st_size]
    logs = [*remote.glob("*/orders-*/*.log"), *active]
    key = some_keys(active)[0]
    where = ("--remote", remote, "--log-dir", local, "--topic", "orders")
    ran = tierctl("fetch", *where, "--erase-report", f"hex:{key.hex()}", "-o", "jsonl")
    assert ran.code == 0, ran.err
    assert found(ran) == occurrences(logs, [key])
    assert any(row.get("segment_id") is None for row in ran.rows)


def test_an_encrypted_tier(capture: Capture) -> None:
    root = capture("aiven-encrypted")
    (secret,) = root.glob("keys/private*")
    where = ("--remote", root / "bucket", "--aiven-private-key", secret, "-o", "jsonl")
    fetched = tierctl("fetch", "--metadata", root / "broker-logs", *where, "--binary", "sha256").rows
    key = fetched[len(fetched) // 2]["key"]
    wanted = {(r["topic"], r["partition"], r["offset"]) for r in fetched if r["key"] == key}
    ran = tierctl("fetch", *where, "--erase-report", f"sha256:{key}")
    assert ran.code == 0, ran.err
    assert {(row["topic"], row["partition"], row["offset"]) for row in ran.rows} == wanted
    assert wanted
    sealed = tierctl("fetch", "--remote", root / "bucket", "--erase-report", f"sha256:{key}", "-o", "jsonl")
    assert sealed.code != 0
    assert sealed.rows == []


def test_the_tier_of_other_metadata_is_refused(capture: Capture) -> None:
    other, remote = capture("unclean-leader") / "before/broker-1", capture("tiered-cluster") / "before-remote"
    ran = tierctl("fetch", "--metadata", other, "--remote", remote, "--erase-report", "key")
    assert (ran.code, ran.out) == (5, ""), ran.err
    assert "are --remote (bucket, prefix), --layout and --metadata right?" in ran.err


def test_what_was_not_searched_is_no_success(capture: Capture, tmp_path: Path) -> None:
    metadata, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    shutil.copytree(remote, tmp_path / "tier")
    logs = sorted((tmp_path / "tier").rglob("*.log"), key=begins_with_a_key, reverse=True)
    key = some_keys(logs)[0]
    all_found = occurrences(logs, [key])
    damaged = bytearray(logs[0].read_bytes())
    damaged[70] ^= 1
    logs[0].write_bytes(damaged)
    logs[1].with_suffix(".timeindex").unlink()
    (logs[0].parent / "notes.txt").write_text("no segment")
    where = ("--remote", tmp_path / "tier", "--erase-report", f"hex:{key.hex()}", "-o", "jsonl")
    ran = tierctl("fetch", "--metadata", metadata, *where)
    assert ran.code == 7
    assert "objects of the tier that belong to no segment and were not searched: 1" in ran.err
    assert str(logs[0].stem.split("-", 1)[1]) in ran.err
    # The first batch of the first segment is unreadable; the other records are found.
    missed = all_found - found(ran)
    assert found(ran) < all_found
    assert {each[0] for each in missed} == {str(logs[0])}
    for suffix in ("", ".zst"):
        logs[0].rename(f"{logs[0]}{suffix}")
        without = tierctl("fetch", *where)
        assert without.code == 7
        assert without.err.count("was not searched") == 2


def test_a_log_that_is_no_object_is_no_success(capture: Capture, tmp_path: Path) -> None:
    """Its segment is in the metadata, so that its objects are not read before the search."""
    metadata, remote = (capture("tiered-cluster") / folder for folder in TIERS["tiered-cluster"])
    tier = Path(shutil.copytree(remote, tmp_path / "tier"))
    log, *others = sorted(tier.rglob("*.log"))
    key = some_keys(others)[0]
    log.rename(tmp_path / "aside")
    words = ("--remote", tier, "--erase-report", f"hex:{key.hex()}", "-o", "jsonl")
    for instead, code in ((log, 7), (Path(f"{log}.zst"), 10)):
        instead.symlink_to(tmp_path / "aside")
        ran = tierctl("fetch", "--metadata", metadata, *words)
        assert (ran.code, str(log) in ran.err) == (code, True), ran.err
        assert found(ran) == occurrences(others, [key])
        instead.unlink()


@pytest.mark.parametrize("words", [("--offset", "3"), ("--index", "offset")])
def test_it_searches_every_record(words: tuple[str, ...], tier: list[str]) -> None:
    ran = tierctl("fetch", *tier, "--erase-report", "k", *words)
    assert (ran.code, "searches every record" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("key", [b"hex", "Straße".encode(), bytes(range(256))])
def test_a_key_in_every_form(key: bytes) -> None:
    digest = hashlib.sha256(key).digest()
    assert parse_key(f"hex:{key.hex()}") == digest
    assert parse_key(f"base64:{base64.b64encode(key).decode()}") == digest
    assert parse_key(f"sha256:{digest.hex().upper()}") == digest
    assert parse_key("id:7") == hashlib.sha256(b"id:7").digest()


@pytest.mark.parametrize("text", ["hex:0", "base64:*", "sha256:00", "sha256:zz", ""])
def test_a_malformed_key_is_refused(text: str, tier: list[str]) -> None:
    ran = tierctl("fetch", *tier, "--erase-report", text)
    assert (ran.code, ran.out) == (2, "")
    assert ("is no key" if text else "expected a key, found nothing") in ran.err


def test_keys_that_do_not_occur_are_named(capture: Capture) -> None:
    remote = capture("tiered-cluster") / "before-remote"
    (key, *_) = some_keys(sorted(remote.rglob("*.log")))
    asked = ("--erase-report", f"hex:{key.hex()}", "--erase-report", "nobody", "--erase-report", "hex:")
    ran = tierctl("fetch", "--remote", remote, *asked, "-o", "jsonl")
    assert (ran.code, bool(ran.rows)) == (0, True), ran.err
    absent = sorted(hashlib.sha256(each).hexdigest() for each in (b"nobody", b""))
    assert f"2 of 3 keys are in no record that was searched, by SHA-256: {', '.join(absent)}" in ran.err
    assert "keys are in no record" not in tierctl("fetch", "--remote", remote, *asked[:2]).err
