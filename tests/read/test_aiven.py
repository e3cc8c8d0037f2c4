"""Segments of Aiven's plugin, read by `tierctl fetch`: every record equals a consumer's.

The metadata is that of the broker, or was derived from the bucket by a rebuild.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.entry import run

Capture = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("aiven-plain", "of the broker"),
        ("aiven-plain", "rebuilt"),
        ("aiven-encrypted", "rebuilt in memory"),
    ],
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
