"""A lost cluster, and the command that restores its topics into a new node."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.live.history import Cluster
from tests.support.broker import Broker, Brokers


@dataclass(frozen=True)
class Lost:
    """A stopped cluster, the end of its tier by partition, and the file of `backup-config`."""

    cluster: Cluster
    ends: dict[tuple[str, int], int]
    topics_file: Path


def new_node(lost: Lost, brokers: Brokers) -> Broker:
    """Return a formatted node with a copy of the tier."""
    node = brokers.own(start=False)
    node.remote = shutil.copytree(lost.cluster.broker.remote_dir, node.folder / "tier")
    node.format()
    return node


def restore(lost: Lost, node: Broker, *more: object) -> tuple[object, ...]:
    return (
        *("restore", "into", node.log_dir, "--log-dir", node.log_dir, "--remote", node.remote_dir),
        *("--topics-file", lost.topics_file, "--broker-config", node.properties, *more),
    )
