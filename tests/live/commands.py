"""Run command lines with a running broker, and list the objects in its tier."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.shell import Ran, rows, tierctl
from tests.support.broker import METADATA_PARTITIONS, Broker


def where(broker: Broker) -> tuple[object, ...]:
    """Return the options that name a broker's metadata topic and its tier."""
    return ("--metadata", f"kafka://{broker.bootstrap}", "--remote", broker.remote_dir)


def on_disk(broker: Broker) -> tuple[object, ...]:
    """Return the options that name the log directory of a stopped broker, and its tier."""
    return ("--metadata", broker.log_dir, "--remote", broker.remote_dir, "--log-dir", broker.log_dir)


def metadata_settings(folder: Path, more: str = "") -> Path:
    """Write settings for a metadata topic of one replica, and `more`; return the file."""
    prefix, file = "rlmm.config.remote.log.metadata.topic", folder / "server.properties"
    counts = f"{prefix}.num.partitions={METADATA_PARTITIONS}\n{prefix}.replication.factor=1\n"
    file.write_text(f"{counts}{prefix}.min.isr=1\n{more}")
    return file


def hasty(folder: Path) -> Path:
    """Write a client.properties that waits a few seconds for brokers; return the file."""
    file = folder / "client.properties"
    file.write_text("request.timeout.ms=2000\ndelivery.timeout.ms=3000\ndefault.api.timeout.ms=3000\n")
    return file


def await_recorded(broker: Broker, ends: Mapping[str, int]) -> None:
    """Wait until the broker has recorded these ends as high watermarks of partition 0 of the topics."""
    checkpoint = broker.log_dir / "replication-offset-checkpoint"
    lines = {f"{topic} 0 {end}" for topic, end in ends.items()}
    broker.wait_for("the high watermarks", lambda: lines <= set(checkpoint.read_text().splitlines()))


def assumed(*topics: str) -> tuple[str, ...]:
    """Return the options that copy these topics although tiering is not enabled for them."""
    return (*(word for topic in topics for word in ("--topic", topic)), "--assume-enabled")


def plan(*args: object) -> dict[str, Any]:
    """Return the plan, or with --apply the outcomes, of a command that must succeed."""
    found: dict[str, Any] = tierctl(*args, "--output", "json").ok().json
    return found


def applied(*args: object) -> dict[str, Any]:
    """Return the outcomes of a command with --apply, all of whose steps must be done."""
    found = plan(*args)
    assert {outcome["status"] for outcome in found["outcomes"]} == {"done"}
    return found


def refused(*args: object) -> str:
    """Return what a command with --apply, which must refuse its work, says about that."""
    ran = tierctl(*args, "--apply")
    assert ran.code == 4, (ran.out, ran.err)
    return ran.err


def objects(broker: Broker, topic: str) -> set[str]:
    """Return the names of the tier's objects of topics with that name."""
    folders = broker.remote_dir.glob(f"kafka-tiered-storage/{topic}-[0-9]*-*")
    return {f"{folder.name}/{file.name}" for folder in folders for file in folder.iterdir()}


def base_offsets(broker: Broker, topic: str) -> list[int]:
    """Return the start offsets of the segments in the tier."""
    return sorted(int(Path(name).name[:20]) for name in objects(broker, topic) if name.endswith(".log"))


def local_start(broker: Broker, topic: str, partition: int = 0) -> int:
    """Return the start offset of the broker's local log."""
    return min(int(log.stem) for log in (broker.log_dir / f"{topic}-{partition}").glob("*.log"))


def first_offset(broker: Broker, topic: str, start: int) -> int:
    """Return the offset of the first record that a consumer reads from `start` on."""
    ((offset, *_),) = broker.records(topic, start=start, most=1)
    return offset


def fetched(
    broker: Broker, topic: str, partition: int, isolation: str, *more: object
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return the output of `tierctl fetch` in the form of `Broker.records`."""
    found = rows(
        *("fetch", *where(broker), "--topic", topic, "--partition", partition),
        *("--isolation", isolation, "--binary", "hex", *more),
    )
    return [(row["offset"], row["timestamp_ms"], _bytes(row["key"]), _bytes(row["value"])) for row in found]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def twin_of(broker: Broker, folder: Path) -> Broker:
    """Return a copy of a stopped broker, with tiering enabled; only one of them may run at a time."""
    assert not broker.is_running
    shutil.copytree(broker.folder, folder)
    return Broker(
        release=broker.release, folder=folder, ports=broker.ports, tiered=True, settings=dict(broker.settings)
    )


__all__ = ["Ran", "rows", "tierctl"]
