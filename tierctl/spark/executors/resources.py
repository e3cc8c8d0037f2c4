"""Tiers and metadata topics that a Python worker opens once and uses for many tasks.

Opening a client is expensive, and a client belongs to the process that opened it.
"""

import pickle
from functools import lru_cache

from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.storage import TierSpec, open_tier
from tierctl.storage.base import RemoteStorageManager

_tiers: dict[bytes, RemoteStorageManager] = {}


def shared_tier(spec: TierSpec) -> RemoteStorageManager:
    """Return the tier of `spec`, opened at most once in this process; raises as `open_tier`."""
    key = pickle.dumps(spec)
    if key not in _tiers:
        _tiers[key] = open_tier(spec)
    return _tiers[key]


@lru_cache(maxsize=1)
def shared_topic(location: TopicLocation, job: str) -> MetadataTopic:
    """Return the topic at `location`, opened once for all tasks of `job` in this process.

    Another `job` opens the topic again, so that it reads the current end of the log.
    """
    del job
    return open_topic(location)
