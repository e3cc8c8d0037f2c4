"""log-start-offset-checkpoint has no record of a partition: the log start is unknown, not the local start.

This is so up to a minute after tiering was enabled, and after a kill.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.shell import tierctl


def _without_record(writable: Callable[[str], Path], partition: str) -> Path:
    """Return log directories in which the local log of `partition` begins at 3000, its leader epochs at 0."""
    logs = writable("tiered-cluster/after")
    file = logs / "log-start-offset-checkpoint"
    version, _, *rows = file.read_text().splitlines()
    kept = [row for row in rows if not row.startswith(f"{partition} ")]
    file.write_text("\n".join([version, str(len(kept)), *kept, ""]))
    return logs


def _rows(*words: object) -> list[dict[str, Any]]:
    ran = tierctl(*words, "--topic", "orders", "-o", "jsonl").ok()
    return ran.rows


def test_rebuild_publishes_the_whole_log(writable: Callable[[str], Path], tmp_path: Path) -> None:
    logs, remote = _without_record(writable, "orders 0"), writable("tiered-cluster/after-remote")
    where = ("--metadata", tmp_path / "new", "--remote", remote, "--log-dir", logs)
    starts = [row["start_offset"] for row in _rows("rebuild", *where) if row["partition"] == 0]
    assert starts == [0, 600, 1200, 1800, 2400]
    # Leader epochs that begin above the oldest segments may have been cut: the operator decides.
    (logs / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n2 2000\n4 3667\n")
    ran = tierctl("rebuild", *where, "--topic", "orders")
    assert "orders-0: the log start is 2000, and complete segments from 0 on" in ran.err
    assert [row for row in _rows("rebuild", *where) if row["partition"] == 0] == []


def test_copy_and_sweep_decide_as_with_a_record(writable: Callable[[str], Path]) -> None:
    whole = writable("tiered-cluster/before")
    metadata = ("--metadata", whole)
    logs = _without_record(writable, "orders 0")
    for words in (("sweep", *metadata, "--log-dir", logs), ("verify", *metadata, "--log-dir", logs)):
        assert [row for row in _rows(*words) if row["partition"] == 0] == []
