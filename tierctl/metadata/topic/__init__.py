"""The metadata topic `__remote_log_metadata` at any location: on disk, in a store, on a cluster.

Other packages use `open_topic` and its contract `MetadataTopic`; executors read by `MetadataSplit`s.
"""

from tierctl.metadata.topic.base import METADATA_TOPIC, MetadataTopic
from tierctl.metadata.topic.open_topic import (
    IfMissing,
    MetadataSplit,
    cut,
    open_topic,
    read_chunks,
    topic_location,
)
