"""Records that lack between the last batch of a set and the next set: compacted, lost, cut, or not known.

Each case changes one segment of a captured tier without a manifest. payments has an idempotent producer, so
its producer snapshots have the last offsets; orders has none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.wire.files.indexes import build_indexes

from tests.cli.shell import tierctl
from tests.wire.batches.same import scan

Change = Callable[[Path, int], None]


def _shorten(log: Path, batches: int) -> None:
    data = log.read_bytes()
    log.write_bytes(data[: list(scan(data))[-batches].position])


def cut(log: Path, start: int) -> None:
    """Cut the log between two batches; its indexes have the last one."""
    del start
    _shorten(log, 1)


def compact(log: Path, start: int) -> None:
    """Remove the last batches as compaction does, which writes new indexes."""
    _shorten(log, 2)
    offsets, times = build_indexes(scan(log.read_bytes()), start)
    log.with_suffix(".index").write_bytes(offsets.data)
    log.with_suffix(".timeindex").write_bytes(times.data)


def cut_unseen(log: Path, start: int) -> None:
    """Cut the log above the last entry of each index."""
    compact(log, start)
    log.with_suffix(".timeindex").write_bytes(b"")


def lose(log: Path, start: int) -> None:
    del start
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()


ORDERS = [(0, 599), (600, 1199), (1200, 1799), (1800, 2399), (2400, 2999)]
PAYMENTS = [(0, 696), (697, 1393), (1394, 2090), (2091, 2787), (2788, 3484)]
UNKNOWN = "its objects do not tell"
CASES: dict[str, tuple[str, int, Change, list[tuple[int, int]], str]] = {
    "compacted, as the producer snapshot shows": ("payments", 697, compact, PAYMENTS, "compacted once"),
    "compacted, and the last set": ("payments", 2788, compact, [*PAYMENTS[:4], (2788, 3483)], ""),
    "cut, as its index shows": ("orders", 600, cut, ORDERS[2:], "its offset index has offset 1199"),
    "cut, or compacted": ("payments", 697, cut_unseen, [], UNKNOWN),
    "cut, or compacted, and the last set": ("payments", 2788, cut_unseen, PAYMENTS[:4], "ends at offset"),
    "cut, compacted, or lost": ("orders", 600, cut_unseen, [], UNKNOWN),
    "compacted, cut, or lost": ("orders", 600, compact, [], UNKNOWN),
    "a lost set": ("payments", 697, lose, PAYMENTS[2:], "no set has offsets 697 to 1393: these records"),
    "a lost set, or compacted": ("orders", 600, lose, [], UNKNOWN),
    "the last set is lost": ("orders", 2400, lose, ORDERS[:4], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_offsets_that_lack_at_the_end_of_a_set(
    writable: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    topic, start, change, spans, said = CASES[case]
    remote = writable("tiered-cluster/before-remote")
    (log,) = remote.rglob(f"{topic}-0-*/{start:020d}-*.log")
    change(log, start)
    where = ("--metadata", tmp_path / "new", "--remote", remote, "--topic", topic, "--partition", 0)
    ran = tierctl("rebuild", *where, "--output", "json")
    plan: dict[str, Any] = ran.json
    assert {step["action"] for step in plan["steps"]} <= {"publish_segment"}
    assert [(step["start_offset"], step["end_offset"]) for step in plan["steps"]] == spans
    assert said in ran.out + ran.err
    is_unclear = " or " in case
    assert ("not understood" in ran.err, ran.code) == (is_unclear, 7 if is_unclear else 0)
    if is_unclear and not spans:
        # The operator decides; what lies below the hole is left, and the run still says that it is unclear.
        after = tierctl("rebuild", *where, "--after-hole", "--output", "json")
        of_topic = PAYMENTS if topic == "payments" else ORDERS
        planned = [(s["start_offset"], s["end_offset"], s["action"]) for s in after.json["steps"]]
        assert planned == [(*span, "publish_segment") for span in of_topic if span[0] > start]
        assert (after.code, "it may be the only copy" in after.err) == (7, True)
