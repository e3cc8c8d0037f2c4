"""Copies that brokers make and withdraw, because the store refuses writes, until it accepts them."""

from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode

from tests.live.commands import base_offsets, rows, tierctl, where
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def problems(broker: Broker, code: ExitCode) -> list[dict[str, Any]]:
    words = ("status", *where(broker), "--log-dir", broker.log_dir, "--show", "problems")
    ran = tierctl(*words, "--output", "json")
    assert ran.code == code, ran.err
    found: list[dict[str, Any]] = ran.json
    return found


def begun(broker: Broker) -> int:
    """Return how many segments have been begun in the metadata topic."""
    events = rows("format", *where(broker)[:2], "--state", "COPY_SEGMENT_STARTED")
    return len(events)


def test_a_store_that_refuses_writes(brokers: Brokers) -> None:
    broker = brokers.own()
    broker.create_topic("refused", 2, tiered=True)
    # A file is where the folder of partition 1 belongs: LocalTieredStorage can't write there, even as root.
    folder = broker.remote_dir / "kafka-tiered-storage"
    folder.mkdir(exist_ok=True)
    obstacle = folder / f"refused-1-{broker.topic_id('refused')}"
    obstacle.write_text("")
    for partition in (0, 1):
        broker.produce("refused", 2500, partition=partition)
    broker.wait_for("some attempts", lambda: begun(broker) > 8)

    (found,) = problems(broker, ExitCode.PARTIAL)
    assert (found["check"], found["subject"]) == ("failing_copies", "refused-1")
    count, rest = found["found"].split(" ", 1)
    assert int(count) >= 5
    assert rest.startswith("attempts to copy the log from offset 0 on failed since 20")
    assert rest.endswith(f" by broker {broker.node_id}")
    ran = tierctl("explain", "refused", 1, *where(broker), "--log-dir", broker.log_dir, "--output", "json")
    assert ran.code == ExitCode.PARTIAL
    first = next(row for row in ran.json if row["location"] == "local")
    facts = {fact["name"]: fact["value"] for fact in first["facts"]}
    assert (first["next_action"], facts["failed_by"]) == ("copy", broker.node_id)
    assert facts["failed_copies"] >= int(count)
    assert "attempts to copy the log from offset 0 on failed since" in first["reason"]
    assert tierctl("explain", "refused", 0, *where(broker), "--log-dir", broker.log_dir).code == ExitCode.OK

    obstacle.unlink()
    broker.wait_for("the copies", lambda: len(base_offsets(broker, "refused")) == 4)
    broker.await_idle()
    assert problems(broker, ExitCode.OK) == []
    days = rows("report", *where(broker), "--show", "growth")
    assert sum(day["copied_segments"] for day in days) == 4
    assert sum(day["deleted_segments"] for day in days) == 0

    # The topic is deleted in the middle of an attempt: nobody copies it any more.
    kept = Path(f"{obstacle}.aside")
    obstacle.rename(kept)
    obstacle.write_text("")
    broker.produce("refused", 2000, partition=1)
    broker.wait_for("a problem", lambda: bool(_problems_now(broker)))
    broker.delete_topic("refused")
    broker.wait_for("the topic's end", lambda: "failing_copies" not in _problems_now(broker))
    broker.stop()


def _problems_now(broker: Broker) -> str:
    return tierctl("status", *where(broker)[:2], "--show", "problems").out
