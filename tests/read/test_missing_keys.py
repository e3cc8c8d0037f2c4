"""`fetch` without the key of encrypted segments: errors name the key, and the other records are printed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA

from tests.cli.shell import tierctl

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
    other = tmp_path / "other.pem"
    other.write_bytes(RSA.generate(2048).export_key())
    keys = ("--aiven-private-key", f"key1={other}") if given == "another key" else ()
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
