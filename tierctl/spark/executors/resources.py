"""Tiers and metadata topics that a Python worker opens once and uses for many tasks.

Opening a client is expensive, and a client belongs to the process that opened it.
"""

import os
import pickle
import socket
from functools import lru_cache
from pathlib import Path

from tierctl.kafka.cluster import Cluster
from tierctl.metadata.server_properties import cluster_client
from tierctl.metadata.topic import MetadataTopic, open_topic
from tierctl.model.location import TopicLocation
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.observed import FetchCounts, Transfers
from tierctl.storage.open import TierSpec, open_tier
from tierctl.storage.retry import object_tier
from tierctl.storage.throttle import Direction, Throttle, Waits
from tierctl.wire.metadata.decode_columns import KnownLayouts

_tiers: dict[bytes, tuple[RemoteStorageManager, Throttle]] = {}
_fetches = FetchCounts()
_measures = False


def shared_tier(spec: TierSpec) -> RemoteStorageManager:
    """Return the tier of `spec`, opened at most once in this process; raises as `open_tier`."""
    key = pickle.dumps(spec)
    if key not in _tiers:
        throttle = Throttle()
        _tiers[key] = open_tier(spec, throttle=throttle), throttle
    remote, _ = _tiers[key]
    tier = object_tier(remote)
    if tier is not None:
        tier.observer = _fetches if _measures else None
    return remote


def measure_fetches(measures: bool) -> None:
    """Count the reads of tiers that `shared_tier` returns from now on, if it `measures` them.

    Forget what earlier tasks of this process transferred: they returned it.
    """
    global _measures  # noqa: PLW0603
    _measures = measures
    take_transfers()


def take_transfers() -> Transfers | None:
    """Return the transfers of this process since the last call, or None."""
    fetches = _fetches.take()
    waits: dict[Direction, Waits] = {}
    for _, throttle in _tiers.values():
        for direction, each in throttle.take_waits().items():
            waits[direction] = waits.get(direction, Waits()) + each
    if not fetches and not waits:
        return None
    return Transfers(process=f"{socket.gethostname()}:{os.getpid()}", fetches=fetches, waits=waits)


@lru_cache(maxsize=1)
def shared_topic(location: TopicLocation, job: str) -> MetadataTopic:
    """Return the topic at `location`, opened once for all tasks of `job` in this process.

    Another `job` opens the topic again, so that it reads the current end of the log.
    """
    del job
    return open_topic(location)


@lru_cache(maxsize=1)
def shared_cluster(location: TopicLocation, job: str) -> Cluster:
    """Return the cluster at `location`, connected once for all tasks of `job` in this process."""
    del job
    command_config, config = (
        None if path is None else Path(path) for path in (location.command_config, location.broker_config)
    )
    client = cluster_client(location.uri, command_config=command_config, broker_config=config)
    return Cluster(client)


@lru_cache(maxsize=1)
def shared_layouts(job: str) -> KnownLayouts:
    """Return the byte layouts of events that the tasks of `job` in this process have learned."""
    del job
    return KnownLayouts()
