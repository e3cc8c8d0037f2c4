"""Every command with a cluster that tiers, and the copy lag as the broker applies it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.live.commands import base_offsets, fetched, plan, rows, tierctl, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPIC = "all-commands"
HOUR_MS = "3600000"
# Topics by the setting that delays their segments; the broker's default copy lag is an hour.
LAGS: dict[str, dict[str, str]] = {
    TOPIC: {"remote_copy_lag_ms": "0"},
    "lag-default": {},
    "lag-size": {"remote_copy_lag_ms": "-1", "retention_ms": "-1", "remote_copy_lag_bytes": "2500000"},
    "lag-time": {"remote_copy_lag_ms": "1"},
    "lag-unlimited": {"remote_copy_lag_ms": "-1", "retention_ms": "-1"},
}


@pytest.fixture(scope="module")
def broker(brokers: Brokers) -> Iterator[Broker]:
    """Return a broker that has tiered all segments that its version and the copy lags allow."""
    made = brokers.own(start=False)
    has_lag = made.release.number >= (4, 4)
    if has_lag:
        made.settings["log.remote.copy.lag.ms"] = HOUR_MS
    made.start()
    for topic, settings in LAGS.items():
        lag = settings if has_lag else {}
        made.create_topic(topic, remote_storage_enable="true", segment_bytes="1048576", **lag)
        made.produce(topic, 5500)
    made.await_idle()
    yield made
    made.stop()


def test_what_the_broker_copied_is_what_copy_plans(broker: Broker, tmp_path: Path) -> None:
    """Plan a copy to an empty tier from the cluster's settings."""
    (tmp_path / "metadata").mkdir()
    ran = tierctl(
        *("copy", "--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier"),
        *("--bootstrap-server", broker.bootstrap, "--log-dir", broker.log_dir, "--output", "json"),
        *(word for topic in LAGS for word in ("--topic", topic)),
    ).ok()
    planned: dict[str, list[int]] = {topic: [] for topic in LAGS}
    for step in ran.json["steps"]:
        planned[step["topic"]].append(step["start_offset"])
    copied = {topic: base_offsets(broker, topic) for topic in LAGS}
    assert planned == copied
    by_size = len(copied.pop("lag-size"))
    counts = [len(offsets) for offsets in copied.values()]
    if broker.release.number >= (4, 4):
        assert counts == [5, 0, 5, 0]
        assert 0 < by_size < 5
    else:
        assert [*counts, by_size] == [5] * 5


def test_commands_that_read(broker: Broker, tmp_path: Path) -> None:
    mine = (*where(broker), "--topic", TOPIC)
    assert [row["start_offset"] for row in rows("segments", *mine)] == base_offsets(broker, TOPIC)
    (size,) = rows("segments", *mine, "--sizes")
    assert size["segments"] == 5
    (offsets,) = rows("segments", *mine, "--offsets")
    pending = offsets["latest_tiered"] + 1 if broker.release.number >= (4, 2) else None
    assert offsets["earliest_pending_upload"] == pending
    assert rows("segments", *mine, "--check") == []
    for deep in ((), ("--deep",)):
        ran = tierctl("verify", *mine, "--log-dir", broker.log_dir, *deep, "--output", "jsonl")
        assert (ran.code, [line for line in ran.lines if '"info"' not in line]) == (0, []), ran.err
    for style in ("kafka", "kip", "json"):
        assert len(tierctl("format", *where(broker)[:2], "--topic", TOPIC, "--style", style).lines) == 10
    last = offsets["latest_tiered"]
    served = [record for record in broker.records(TOPIC) if record[0] <= last]
    assert fetched(broker, TOPIC, 0, "read_committed") == served
    assert tierctl("cache", "build", *where(broker)[:2], "--out", tmp_path / "flat").code == 0
    assert tierctl("cache", "verify", tmp_path / "flat").code == 0
    offsets_file = tmp_path / "_rlmm_committed_offsets"
    offsets_file.write_text("0\n1\n0 99999\n")
    assert len(rows("offsets", "show", offsets_file)) == 1
    assert tierctl("offsets", "check", *where(broker)[:2], offsets_file).code == 7
    state = ("--state-dir", tmp_path / "state")
    assert [row["start_offset"] for row in rows("segments", *mine, *state)] == base_offsets(broker, TOPIC)
    assert [row["start_offset"] for row in rows("segments", *mine, *state)] == base_offsets(broker, TOPIC)


def test_commands_that_change_something(broker: Broker, tmp_path: Path) -> None:
    """They do not change the cluster's own tier, and work on another tier that is copied from it."""
    before = base_offsets(broker, TOPIC)
    mine = (*where(broker), "--topic", TOPIC)
    for command in (
        ("copy", *mine, "--log-dir", broker.log_dir),
        ("sweep", *mine, "--log-start-offset", f"{TOPIC}-0=1500"),
    ):
        assert tierctl(*command).code == 0
        assert tierctl(*command, "--apply").code == ExitCode.REFUSED
    assert rows("delete", *where(broker), "--find") == []

    metadata, tier, saved = tmp_path / "metadata", tmp_path / "tier", tmp_path / "plan"
    metadata.mkdir()
    source = ("--metadata", f"kafka://{broker.bootstrap}", "--from-remote", broker.remote_dir)
    target = ("--to-metadata", metadata, "--remote", tier)
    assert len(plan("copy", *source, *target, "--topic", TOPIC, "--plan-out", saved)["steps"]) == 5
    applied = plan("apply", saved, *source, *target, "--apply")
    assert [outcome["status"] for outcome in applied["outcomes"]] == ["done"] * 5
    own = ("--metadata", metadata, "--remote", tier)
    assert rows("verify", *own, "--deep") == []
    configs = tmp_path / "configs"
    configs.write_text(f"{TOPIC}.retention.ms=1\n")
    later = str(time.time_ns() // 1_000_000 + 1000)
    sweep = ("sweep", *own, "--topic-configs", configs, "--topic", TOPIC)
    assert len(plan(*sweep, "--now", later)["steps"]) == 5
    time.sleep(0.1)
    swept = plan(*sweep, "--apply")
    assert [outcome["status"] for outcome in swept["outcomes"]] == ["done"] * 5
    assert rows("segments", *own) == []
    assert base_offsets(broker, TOPIC) == before
