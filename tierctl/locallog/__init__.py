"""A broker's log directories: topics, segments, epochs, offsets, and offline topic settings."""

from tierctl.locallog.loading import list_partitions, read_log_dirs
from tierctl.locallog.locks import ensure_stopped, is_locked
from tierctl.locallog.topic_configs import read_properties, read_topic_configs

__all__ = [
    "ensure_stopped",
    "is_locked",
    "list_partitions",
    "read_log_dirs",
    "read_properties",
    "read_topic_configs",
]
