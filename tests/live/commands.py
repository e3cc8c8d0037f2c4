"""Command lines against a running broker, and what its tier holds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.shell import Ran, environment, tierctl
from tests.support.broker import Broker

_KILLED = """
import os, sys
from tierctl.apply.labels import observe
from tierctl.cli.main import run

def kill(label, moment):
    if (label, moment) == ({label!r}, {moment!r}):
        os._exit(137)

observe(kill)
sys.exit(run({args!r}))
"""


def where(broker: Broker) -> tuple[object, ...]:
    """The options that name a broker's metadata topic and its tier."""
    return ("--metadata", f"kafka://{broker.bootstrap}", "--remote", broker.remote_dir)


def assumed(*topics: str) -> tuple[str, ...]:
    """The options that copy these topics although tiering is not enabled for them."""
    return (*(word for topic in topics for word in ("--topic", topic)), "--assume-enabled")


def rows(*args: object) -> list[dict[str, Any]]:
    """The rows of a command that must end well."""
    ran = tierctl(*args, "--output", "jsonl")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.lines]


def plan(*args: object) -> dict[str, Any]:
    """The plan, or with --apply the outcomes, of a command that must end well."""
    ran = tierctl(*args, "--output", "json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def killed(label: str, moment: str, *args: object) -> bool:
    """Run in a process that ends as if by kill -9 at that moment; whether it came there."""
    script = _KILLED.format(label=label, moment=moment, args=[str(arg) for arg in args])
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, check=False, timeout=120
    )
    assert done.returncode in {0, 137}, done.stderr.decode()
    return done.returncode == 137


def objects(broker: Broker, topic: str) -> set[str]:
    """Names of what the tier holds of topics of that name."""
    folders = broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-[0-9]*-*")
    return {f"{folder.name}/{file.name}" for folder in folders for file in folder.iterdir()}


def base_offsets(broker: Broker, topic: str) -> list[int]:
    """Where the segments in the tier start."""
    return sorted(int(Path(name).name[:20]) for name in objects(broker, topic) if name.endswith(".log"))


def local_start(broker: Broker, topic: str) -> int:
    """Where the broker's own copy of partition 0 begins."""
    return min(int(log.stem) for log in (broker.log_dir / f"{topic}-0").glob("*.log"))


def first_offset(broker: Broker, topic: str, start: int) -> int:
    """The offset of the first record a stock consumer gets that seeks to `start`."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": "tests", "enable.auto.commit": False, "auto.offset.reset": "error"}
    # Behind `start` there may be nothing but a transaction that was left open, and aborted meanwhile.
    config |= {"isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **config})
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        (message,) = consumer.consume(1, timeout=30)
        assert message.error() is None, message.error()
        offset = message.offset()
        assert offset is not None
        return offset
    finally:
        consumer.close()


def fetched(
    broker: Broker, topic: str, partition: int, isolation: str, *more: object
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What `tierctl fetch` prints, in the form of `Broker.records`."""
    found = rows(
        *("fetch", *where(broker), "--topic", topic, "--partition", partition),
        *("--isolation", isolation, "--binary", "hex", *more),
    )
    return [(row["offset"], row["timestamp_ms"], _bytes(row["key"]), _bytes(row["value"])) for row in found]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def twin_of(broker: Broker, folder: Path) -> Broker:
    """A stopped broker's copy, with tiering on; only one of them may run at a time."""
    assert not broker.is_running
    shutil.copytree(broker.folder, folder)
    return Broker(
        release=broker.release,
        folder=folder,
        ports=broker.ports,
        tiered=True,
        settings=dict(broker.settings),
    )


__all__ = ["Ran", "tierctl"]
