"""`verify` and `segments` print the same rows in the same order with and without --engine spark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.spark.executors import checked_segments as spark_verify
from tierctl.storage.layouts.kafka import owner_of_folder

from tests.spark.executors.bulk import METADATA, Capture, assert_same, small_pieces, within
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt

__all__ = ["small_pieces"]

pytestmark = pytest.mark.usefixtures("spark", "small_pieces")

TIERS = {
    "tiered-cluster/before": ("tiered-cluster/before-remote", "tiered-cluster/before"),
    "tiered-cluster/after": ("tiered-cluster/after-remote", "tiered-cluster/after"),
    "untiered-broker/tiered-metadata": ("untiered-broker/tiered-remote", "untiered-broker/local"),
    "unclean-leader/after/broker-1": ("unclean-leader/after/remote", "unclean-leader/after/broker-2"),
    "aiven-plain/broker-logs": ("aiven-plain/bucket", "aiven-plain/broker-logs"),
    "aiven-encrypted/broker-logs": ("aiven-encrypted/bucket", "aiven-encrypted/broker-logs"),
}
DAMAGE = (
    *("record flipped", "log cut", "offset index cut", "time index flipped", "snapshot gone"),
    *("leader epochs changed", "transactions gone", "foreign segment", "foreign object", "temporary file"),
    *("copy dangling", "metadata unreadable", "partition marked"),
)
MISPLACED = ("object misplaced", "foreign segment", "foreign object", "update of nothing")


def _options(capture: Capture, place: str) -> list[object]:
    remote, logs = (within(capture, each) for each in TIERS[place])
    key = [("--aiven-private-key", f"key1={capture('aiven-encrypted') / 'keys' / 'private.pem'}")]
    return [
        *("--metadata", within(capture, place), "--remote", remote, "--log-dir", logs),
        *(word for pair in key if "encrypted" in place for word in pair),
    ]


@pytest.mark.parametrize("place", TIERS)
def test_captures(place: str, capture: Capture) -> None:
    said = assert_same("verify", *_options(capture, place), "--deep", "--now", NOW_MS, "-o", "json")
    assert said.code == (3 if "unclean" in place else 0)


def test_a_sample(capture: Capture) -> None:
    sample = ("--sample", "40%", "--budget", "8MB", "--seed", 5, "--now", NOW_MS, "-o", "json")
    said = assert_same("verify", *_options(capture, next(iter(TIERS))), *sample)
    assert (said.json[-1]["check"], "ended the run early" in said.json[-1]["found"]) == ("not_read", True)


@pytest.mark.parametrize("place", METADATA)
def test_segments(place: str, capture: Capture) -> None:
    assert assert_same("segments", "--metadata", within(capture, place), "-o", "json").code == 0


@pytest.mark.parametrize("more", [("--all",), ("--check",), ("--sizes",), ("--offsets",)], ids=" ".join)
def test_everything_else_of_segments(more: tuple[str, ...], capture: Capture) -> None:
    where = _options(capture, "tiered-cluster/after")
    assert assert_same("segments", *where, *more, "--now", NOW_MS, "-o", "csv").out


@pytest.mark.parametrize(
    ("spoils", "more", "count"),
    [(DAMAGE, ("--deep",), 11), (DAMAGE, ("--topic", "clicks"), 6), (MISPLACED, (), 5)],
    ids=["deep", "of one topic", "misplaced"],
)
def test_spoilt(
    spoils: tuple[str, ...], more: tuple[str, ...], count: int, writable: Callable[[str], Path]
) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in spoils:
        CASES[name].spoil(tier)
    where = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    said = assert_same("verify", *where, *more, "--now", NOW_MS, "-o", "jsonl")
    assert (said.code, len(said.lines)) == (7 if spoils is DAMAGE else 3, count)


def test_another_tiers_metadata(capture: Capture) -> None:
    """No object belongs to the metadata: there is one error instead of findings."""
    metadata = within(capture, "untiered-broker/tiered-metadata")
    remote = within(capture, "tiered-cluster/after-remote")
    said = assert_same("verify", "--metadata", metadata, "--remote", remote, "-o", "csv")
    assert said.code == 5
    assert "has no object of the finished segments" in said.err


def test_a_store_that_is_not_there(capture: Capture, tmp_path: Path) -> None:
    where = ("--metadata", within(capture, "tiered-cluster/after"), "--remote", tmp_path / "none")
    assert assert_same("verify", *where).code == 5


def test_logs_that_an_executor_does_not_see(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.spark.executors.bulk import tierctl

    monkeypatch.setattr(spark_verify, "check", _blind)
    where = _options(capture, "tiered-cluster/after")
    said = tierctl("verify", *where, "--deep", "--engine", "spark", "--master", "local[2]")
    assert said.code == 5
    assert "can't find" in said.err


def _blind(spec: object, piece: object) -> list[object]:
    from dataclasses import replace

    from tierctl.checks.deep import SegmentsTask
    from tierctl.spark.executors.checked_segments import _require_logs

    if isinstance(piece, SegmentsTask):
        logs = tuple(replace(log, directory=Path("/nowhere")) for log in piece.logs)
        _require_logs(replace(piece, logs=logs))
    return []


@pytest.mark.parametrize(
    ("folder", "owner"),
    [
        ("kafka-tiered-storage/a-0-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", 0)),
        ("a-b-12-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", 12)),
        ("prefix-a-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", None)),
        ("x/a-AAAAAAAAAAAAAAAAAAAAAQ/7/", ("AAAAAAAAAAAAAAAAAAAAAQ", 7)),
        ("kafka-tiered-storage/", None),
        ("a-0-AAAAAAAAAAAAAAAAAAAAAQ", None),
        ("", None),
    ],
)
def test_owners_of_folders(folder: str, owner: tuple[str, int | None] | None) -> None:
    assert owner_of_folder(folder) == owner
