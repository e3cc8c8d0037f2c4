"""Settings of topics for tests: copies need remote.storage.enable=true."""

from collections.abc import Iterable
from pathlib import Path

from tierctl.locallog import list_partitions
from tierctl.model import LocalLog, TopicConfig

ENABLED = TopicConfig(remote_storage_enable=True)


def enabled(*log_dirs: Path) -> tuple[str, Path]:
    """Write settings that enable tiering of every topic to a file; return --topic-configs with it."""
    topics = {partition.topic for partition in list_partitions(log_dirs)}
    file = log_dirs[0] / "enabled.properties"
    file.write_text("".join(f"{topic}.remote.storage.enable=true\n" for topic in sorted(topics)))
    return "--topic-configs", file


def enabled_configs(logs: Iterable[LocalLog]) -> dict[str, TopicConfig]:
    """Return settings that enable tiering of the topics of these logs."""
    return {log.topic_partition.topic: ENABLED for log in logs}
