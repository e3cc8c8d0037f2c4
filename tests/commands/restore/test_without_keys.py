"""`restore log --without-keys`: the remaining records and batches, and the signed lists."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.commands.restore.test_materialise import TIERS, log_dir, new_id, records, restore, restored, rows
from tests.support.amounts import rest_in_matrix
from tests.support.captures import private_keys
from tests.support.signing import is_signed, signing_key
from tests.wire.batches.same import scan

__all__ = ["log_dir"]

Capture = Callable[..., Path]
KEY, VALUE = 4, 5


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signing_key(tmp_path_factory.mktemp("signing") / "key.pem")


def options(key: Path, log_dir: Path, keys: list[str]) -> tuple[object, ...]:
    """Return the options that erase the records of `keys`, with lists beside the log directory."""
    file = log_dir.parent / "keys"
    file.write_text("".join(f"{each}\n" for each in keys))
    return ("--without-keys", file, "--left-out", log_dir.parent / "lists", "--sign-with", key)


Erase = Callable[..., Ran]


@pytest.fixture
def erase(capture: Capture, log_dir: Path, key: Path) -> Erase:
    """Return a function that restores topic orders without the records of some keys."""

    def run(keys: list[str], *more: object) -> Ran:
        return restore(log_dir, *orders(capture), *NEW, *options(key, log_dir, keys), *(more or ("--apply",)))

    return run


NEW = ("--as-id", new_id("x"))


def orders(capture: Capture) -> tuple[object, ...]:
    return ("--remote", capture("tiered-cluster") / "before-remote", "--topic", "orders")


def first_key(capture: Capture, *more: object) -> Any:
    """Return the first key of topic orders, in hex."""
    found = records(*orders(capture), "--metadata", capture("tiered-cluster") / "before", *more)
    return next(each[KEY] for each in found if each[KEY] is not None)


def listed(log_dir: Path) -> list[dict[str, Any]]:
    paths = sorted((log_dir.parent / "lists").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()[1:]]


def batches(data: bytes) -> list[bytes]:
    return [data[head.position : head.position + head.size_bytes] for head in scan(data)]


def emptied(each: tuple[object, ...], keys: set[object]) -> tuple[object, ...]:
    """Return the record as it must be in the new log."""
    return (*each[:KEY], None, None, "[]") if each[KEY] in keys else each


@pytest.mark.parametrize("name", rest_in_matrix(TIERS))
def test_records_are_emptied_at_their_offsets(capture: Capture, log_dir: Path, key: Path, name: str) -> None:
    metadata, remote = (capture(name) / folder for folder in TIERS[name])
    where = ("--remote", remote, *private_keys(capture(name)), "--metadata", metadata)
    for topic in sorted({row["topic"] for row in rows("segments", "--metadata", metadata)}):
        shutil.rmtree(log_dir.parent / "lists", ignore_errors=True)
        chosen = ("--topic", topic)
        everything = records(*where, *chosen, "--isolation", "read_uncommitted")
        known = list(dict.fromkeys(each[KEY] for each in everything if each[KEY] is not None))
        if not known:
            continue
        keys = {known[0], known[len(known) // 2], known[-1]}
        more = options(key, log_dir, [f"hex:{each}" for each in keys])
        arguments = (*where, *chosen, "--as-id", new_id(topic), *more, "--apply")
        ran = restore(log_dir, *arguments).ok()
        wanted = [emptied(each, keys) for each in everything]
        assert restored(log_dir, topic, "read_uncommitted") == wanted != everything
        committed = records(*where, *chosen, "--isolation", "read_committed")
        assert restored(log_dir, topic, "read_committed") == [emptied(each, keys) for each in committed]
        # The first batch also has records below the log start.
        found = {(row["partition"], row["offset"], row["key_sha256"]) for row in listed(log_dir)}
        assert found >= {
            (each[0], each[1], hashlib.sha256(bytes.fromhex(str(each[KEY]))).hexdigest())
            for each in everything
            if each[KEY] in keys
        }
        assert f"left out {len(listed(log_dir))} records with {len(keys)} of {len(keys)} keys" in ran.err
        assert "not found" not in ran.err
        again = restore(log_dir, *arguments)
        ended(again, 0, "has the records already", f"left out {len(listed(log_dir))} records")


def test_only_the_batches_of_the_keys_change(capture: Capture, log_dir: Path, key: Path) -> None:
    """Other batches, and the other fields of changed batches, equal those of a run without --without-keys."""
    remote = ("--remote", capture("tiered-cluster") / "before-remote")
    plain = log_dir.parent / "plain"
    shutil.copytree(log_dir, plain)
    before = records(*remote, "--metadata", capture("tiered-cluster") / "before", "--topic", "clicks")
    chosen = next(each[KEY] for each in before if each[KEY] is not None)
    arguments = (*remote, "--topic", "clicks", "--as-id", new_id("x"), "--apply")
    assert restore(plain, *arguments).code == 0
    restore(log_dir, *arguments, *options(key, log_dir, [f"hex:{chosen}"])).ok()
    changed = same = 0
    for log in sorted(plain.glob("clicks-*/*.log")):
        new = batches((log_dir / log.relative_to(plain)).read_bytes())
        for old, now in zip(batches(log.read_bytes()), new, strict=True):
            if old == now:
                same += 1
                continue
            changed += 1
            assert old[:8] == now[:8]
            assert old[12:17] == now[12:17]
            assert old[21:61] == now[21:61]
    assert changed
    assert same


def test_the_lists_are_signed(erase: Erase, capture: Capture, log_dir: Path, key: Path) -> None:
    keys, more = [f"hex:{first_key(capture, '--partition', 1)}"], ("--partition", 1, "--apply")
    erase(keys, *more).ok()
    path = log_dir.parent / "lists" / "orders-1.jsonl"
    signature = path.with_name("orders-1.jsonl.sig")
    assert is_signed(key, path, signature)
    assert set(listed(log_dir)[0]) == {
        *("topic", "partition", "offset", "timestamp_ms", "key_sha256", "segment_id", "object")
    }
    assert Path(listed(log_dir)[0]["object"]).is_file()
    data = path.read_bytes()
    for at in range(0, len(data), len(data) // 20):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert not is_signed(key, path, signature)
    # The log exists, but no list states that it has none of the keys.
    ended(erase(keys, *more), 4, "no signed list says")
    path.write_bytes(data)
    erase(keys, *more).ok()


def test_a_plain_log_is_not_taken_for_one_without_the_keys(
    erase: Erase, capture: Capture, log_dir: Path
) -> None:
    restore(log_dir, *orders(capture), *NEW, "--apply").ok()
    ended(erase(["any"]), 4, "has records, and no signed list")


def test_keys_that_do_not_occur_are_named(erase: Erase, capture: Capture) -> None:
    chosen = f"hex:{first_key(capture)}"
    ran = erase(["nobody", chosen, "hex:ff00", chosen])
    ended(ran, 0, "with 1 of 3 keys", "not found: 2 keys", "those of lines 1, 3")


def test_a_saved_plan_is_of_its_keys(erase: Erase, capture: Capture, log_dir: Path, key: Path) -> None:
    saved = log_dir.parent / "plan.json"
    erase(["nobody"], "--plan-out", saved).ok()
    assert "nobody" not in saved.read_text()
    apply = ("apply", saved, *orders(capture)[:2], "--log-dir", log_dir, "--apply")
    options(key, log_dir, ["somebody"])
    ended(tierctl(*apply), 4, "does not decide it now")
    options(key, log_dir, ["nobody"])
    ended(tierctl(*apply), 0, "not found: 1 keys")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has no keys"),
        (b"a\n\nb\n", "line 2: expected a key, found nothing"),
        (b"\n", "line 1: expected a key, found nothing"),
        (b"a\nhex:0\n", "line 2: hex:... is no key"),
        (b"base64:*\n", "line 1: base64:... is no key"),
        (b"a\r\n", "line 1: expected a key, found one with a carriage return"),
        (b"a\n3601", "line 2: expected a line feed after the last key, found the end of the file"),
        (b"a\n\xff\n", "expected UTF-8, found byte 0xff at byte 2"),
        (None, "can't be read: No such file or directory"),
    ],
)
def test_malformed_files_of_keys(
    capture: Capture, log_dir: Path, key: Path, content: bytes | None, why: str
) -> None:
    more = options(key, log_dir, [])
    file = log_dir.parent / "keys"
    file.unlink() if content is None else file.write_bytes(content)
    ended(restore(log_dir, *orders(capture), *NEW, *more, "--apply"), 2, why)
    assert [path.name for path in log_dir.glob("[!.]*")] == ["meta.properties"]


def test_a_file_is_no_folder_of_lists(erase: Erase, log_dir: Path) -> None:
    (log_dir.parent / "lists").write_text("not a folder")
    ended(erase(["k"]), 2, "lists is not a folder")


@pytest.mark.parametrize("name", ["orders-0.jsonl", "orders-0.jsonl.sig"])
def test_another_file_is_not_replaced_by_a_list(erase: Erase, log_dir: Path, name: str) -> None:
    """Records that fetch wrote may have the name of a list."""
    other = log_dir.parent / "lists" / name
    other.parent.mkdir()
    other.write_text('{"topic": "orders", "partition": 0, "offset": 0}\n')
    ended(erase(["k"]), 4, f"{name}: the file is no")
    assert other.read_text().startswith('{"topic"')
    assert [path.name for path in log_dir.glob("[!.]*")] == ["meta.properties"]


@pytest.mark.parametrize("what", ["missing", "text", "other", "alone"])
def test_keys_that_sign_nothing(capture: Capture, log_dir: Path, tmp_path: Path, what: str) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    path = tmp_path / "other.pem"
    if what == "text":
        path.write_text("no key")
    if what == "other":
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        path.write_bytes(generate_private_key(SECP256R1()).private_bytes(*form, serialization.NoEncryption()))
    more = options(path, log_dir, ["k"])[: 2 if what == "alone" else None]
    why = {"missing": "can't be read", "text": "expected an unencrypted", "other": "expected an Ed25519 key"}
    ended(restore(log_dir, *orders(capture), *more), 2, why.get(what, "must be given together"))
