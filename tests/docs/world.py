"""Captured data on which the command lines of documents run."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cli.shell import environment
from tests.docs.documents import README
from tests.docs.running import write_profile
from tests.support.formatted import formatted_node, saved_topics

TOPICS = "".join(
    f"{topic}.remote.storage.enable=true\n{topic}.local.retention.bytes=1\n"
    for topic in ("orders", "payments")
)
SERVER = "rlmm.config.remote.log.metadata.topic.num.partitions=5\n"
"""The captured log directory has no __cluster_metadata-0, which would state the number of partitions."""
FOLDERS = {
    "/var/lib/kafka/data": "data",
    "s3://archive/tier": "tier-of-data",
    "s3://archive/warehouse": "warehouse",
    "s3://new/tier": "new-tier",
    "/srv/new-metadata": "new-metadata",
    "/srv/kafka": "broker",
    "/srv/metadata": "metadata",
    "/srv/caches": "caches",
    "/srv/warehouse": "other-warehouse",
    "/var/lib/kafka/new": "new-node",
    "/var/lib/tierctl": "state",
    "/var/lib/prometheus/node-exporter": "node-exporter",
}
"""The folders that replace names in command lines."""


def captured_files(capture: Callable[[str], Path], folder: Path) -> Mapping[str, object]:
    """Make copies of captured data in `folder`, and empty folders; return the values of names.

    `broker` is the log directory of the README's first run.
    """
    sources = {
        "data": capture("tiered-cluster") / "before",
        "tier-of-data": capture("tiered-cluster") / "before-remote",
        "broker": capture("untiered-broker") / "local",
    }
    for name, source in sources.items():
        shutil.copytree(source, folder / name)
    (folder / "data" / "_rlmm_committed_offsets").write_text("0\n1\n3 6\n")
    (folder / "node-exporter").mkdir()
    (folder / "new-broker").mkdir()
    (folder / "new-broker" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=new\n")
    formatted_node(folder / "new-node")
    (folder / "topics.yaml").write_text(saved_topics(folder / "tier-of-data"))
    (folder / "server.properties").write_text(SERVER)
    (folder / "topics.properties").write_text(f"{TOPICS}orders.retention.bytes=1000000\n")
    return {name: folder / own for name, own in FOLDERS.items()}


def profile_environment(names: Mapping[str, object], folder: Path) -> dict[str, str]:
    """Write the README's profile with captured data instead of its cluster; return an environment for it."""
    write_profile(README, {**names, "kafka://broker1:9092": folder / "data"}, folder)
    return environment(
        HOME=str(folder), TIERCTL_TOPIC_CONFIGS="topics.properties", TIERCTL_BROKER_CONFIG="server.properties"
    )
