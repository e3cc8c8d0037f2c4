"""What Aiven's plugin tiered, read through `tierctl fetch`: every record equals what a consumer read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.main import run

Capture = Callable[[str], Path]
ISOLATIONS = ("read_committed", "read_uncommitted")


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", ["aiven-plain", "aiven-encrypted"])
def test_every_record_of_the_captures(
    capture: Capture, name: str, isolation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = capture(name)
    fetch = ["fetch", f"--metadata={root / 'broker-logs'}", f"--remote={root / 'bucket'}", "--layout=aiven"]
    fetch += ["--log-dir", str(root / "broker-logs"), "--binary=sha256", f"--isolation={isolation}"]
    if name == "aiven-encrypted":
        fetch += ["--aiven-private-key", f"key1={root / 'keys' / 'private.pem'}"]
    answers = sorted((root / "answers").glob(f"*.{isolation}.jsonl"))
    assert len(answers) == 3
    for answer in answers:
        topic, _, partition = answer.name.split(".")[0].rpartition("-")
        assert run([*fetch, "--topic", topic, "--partition", partition]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        found = [(row["offset"], row["timestamp_ms"], row["key"], row["value"]) for row in rows]
        expected = [json.loads(line) for line in answer.read_text().splitlines()[1:]]
        assert found == [(e["offset"], e["timestamp"], e["key"], e["value"]) for e in expected]
        assert found
