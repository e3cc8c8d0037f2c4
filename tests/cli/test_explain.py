"""On captured data, the rows of `explain` are the decisions of copy and sweep with the same options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode
from tierctl.model.times import iso_utc

from tests.cli.shell import rows, tierctl

Capture = Callable[..., Path]
CONFIGS = "{topic}.remote.storage.enable=true\n{topic}.retention.ms={ms}\n{topic}.retention.bytes={size}\n"
TOPICS = (("orders", 3), ("payments", 1), ("clicks", 1), ("metrics", 1))


def keys(found: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(s["partition"], s["segment_id"], s["start_offset"], s["end_offset"]) for s in found}


@pytest.mark.parametrize(
    ("limits", "version"), [((0, -1), "4.4"), ((-1, 2_000_000), "3.9"), ((604_800_000, 1_000_000), "4.4")]
)
def test_its_deletes_are_those_of_sweep(
    limits: tuple[int, int], version: str, capture: Capture, tmp_path: Path
) -> None:
    root = capture("tiered-cluster")
    configs = tmp_path / "configs"
    configs.write_text(
        "".join(CONFIGS.format(topic=topic, ms=limits[0], size=limits[1]) for topic, _ in TOPICS)
    )
    where = ("--metadata", root / "before", "--log-dir", root / "before", "--topic-configs", configs)
    where = (*where, "--kafka-version", version)
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
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local")
    where = (*where, "--topic-configs", configs, "--broker-config", server)
    found = rows("explain", "ledger", 0, *where, "--now", "2026-11-21T11:00:00Z")
    waiting = [row for row in found if row["reason_kind"] == "open_transaction"]
    assert [row["start_offset"] for row in waiting] == [2788, 3481, 4081]
    assert (
        "by producer 1000 since 2026-11-21T10:35:48Z at the last stable offset 3280" in waiting[0]["reason"]
    )
    assert {"name": "producer_id", "value": 1000} in waiting[0]["facts"]
    command = "abort --topic ledger --partition 0 --start-offset 3280"
    assert f"kafka-transactions.sh --bootstrap-server HOST:PORT {command}" in waiting[0]["reason"]
    kept = next(row for row in found if row["location"] == "tier")
    assert kept["settings"] == [
        {"name": "retention.ms", "value": "-1", "source": "not stated"},
        {"name": "retention.bytes", "value": "9000000", "source": "topic settings file"},
    ]
    assert found[-1]["reason_kind"] == "not_rolled"
    assert {each["source"] for each in found[-1]["settings"]} == {"default"}


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


def test_a_deletion_by_age_has_its_numbers(capture: Callable[[str], Path], tmp_path: Path) -> None:
    root, configs = capture("tiered-cluster") / "after", tmp_path / "topics.properties"
    configs.write_text("clicks.retention.ms=86400000\nclicks.remote.storage.enable=true\n")
    where = ("--metadata", root, "--log-dir", root, "--topic-configs", configs)
    ran = tierctl("explain", "clicks", "0", *where, "--now", "2026-11-24T12:00:00Z")
    assert "3 segments of 1 topic: 2 to delete, 1 to keep for now, " in ran.summary
    for row in rows("explain", "clicks", 0, *where, "--now", "2026-11-24T12:00:00Z"):
        newest = iso_utc(row["max_timestamp_ms"])
        text = f"retention.ms 86400000: its newest record is of {newest}, before 2026-11-23T12:00:00Z"
        assert (row["reason"] == text) is (row["next_action"] == "delete")
    assert "max_timestamp_ms" in ran.lines[0]
