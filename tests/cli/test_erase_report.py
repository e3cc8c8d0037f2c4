"""`fetch --erase-report` names every object that contains a key, as a search of all records does."""

import base64
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tierctl.read.record_rows import parse_key

from tests.cli.shell import Ran, tierctl
from tests.read import brute

Capture = Callable[[str], Path]
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
    assert "1 objects of the tier belong to no segment" in ran.err
    assert str(logs[0].stem.split("-", 1)[1]) in ran.err
    # The first batch of the first segment is unreadable; the other records are found.
    missed = all_found - found(ran)
    assert found(ran) < all_found
    assert {each[0] for each in missed} == {str(logs[0])}
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
    log.symlink_to(tmp_path / "aside")
    words = ("--remote", tier, "--erase-report", f"hex:{key.hex()}", "-o", "jsonl")
    ran = tierctl("fetch", "--metadata", metadata, *words)
    assert (ran.code, str(log) in ran.err) == (7, True), ran.err
    assert found(ran) == occurrences(others, [key])


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
