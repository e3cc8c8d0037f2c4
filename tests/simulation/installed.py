"""Run tierctl's own commands in a simulated world: replace the clock and everything outside the process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from importlib import import_module
from typing import Any
from unittest import mock

import tierctl.apply.run_context
import tierctl.commands.change
import tierctl.files
import tierctl.kafka.cluster
import tierctl.metadata.daily_changes
import tierctl.metadata.parallel_fold
import tierctl.metadata.server_properties
import tierctl.metadata.topic.cluster_topic
import tierctl.model.progress
import tierctl.storage.lease
import tierctl.storage.open_tier
import tierctl.storage.remote_storage_manager
from tierctl.kernel import use_compiled
from tierctl.storage.lease import RENEW_S, ObjectLease
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import ConditionalStore

from tests.simulation.unthreaded import InterleavedEngine, SerialPool, Threading
from tests.simulation.world import World

NEVER_S = 1e9


@cache
def _unlock_cached_properties() -> None:
    """Remove the lock that Python 3.11 holds, per class, while a cached property is computed.

    A simulated process that waits there for its turn would block all others.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("tierctl."):
            for owner in vars(module).values():
                found = vars(owner).values() if isinstance(owner, type) else ()
                for each in found:
                    if isinstance(each, cached_property) and hasattr(each, "lock"):
                        each.lock = nullcontext()


@contextmanager
def installed(world: World) -> Iterator[None]:
    """Replace the clock, the cluster, the metadata topic and the store during the block."""
    _unlock_cached_properties()

    def object_lease(store: ConditionalStore, key: str, *, is_optional: bool = False) -> ObjectLease:
        assert not is_optional, "the simulated store has conditional writes"
        return _lease(world, store, key)

    def observe(operation: str, _path: object) -> None:
        world.step(f"file {operation}")

    def engine(_threads: int) -> InterleavedEngine:
        return InterleavedEngine(lambda: world.scheduler.current)

    def time_ns() -> int:
        return world.clock_ms * 1_000_000

    # Every command of a seed reads the same records again.
    use_compiled()
    owner, unthreaded = tierctl.storage.lease, Threading()
    retries = RemoteStorageManager.__init__.__kwdefaults__ or {}
    sleep = {"sleep": lambda seconds: _sleep(world, seconds), "chance": world.rng.random}
    with (
        mock.patch("time.time_ns", time_ns),
        mock.patch.object(tierctl.kafka.cluster, "Cluster", _always(world.cluster)),
        mock.patch.object(tierctl.metadata.server_properties, "cluster_client", _always(None)),
        mock.patch.object(tierctl.metadata.topic.cluster_topic, "open_on_cluster", _always(world.topic)),
        mock.patch.object(tierctl.storage.open_tier, "open_store_at", _always(world.store)),
        mock.patch.object(tierctl.storage.lease, "ObjectLease", object_lease),
        mock.patch.object(tierctl.storage.lease, "threading", unthreaded),
        mock.patch.object(tierctl.model.progress, "threading", unthreaded),
        mock.patch.object(tierctl.apply.run_context, "threading", unthreaded),
        # All simulated processes have the same entries in /proc.
        mock.patch.object(owner, "_place", _always(owner._place())),
        mock.patch.object(owner, "_started", cache(owner._started)),
        mock.patch.object(tierctl.storage.remote_storage_manager, "ThreadPoolExecutor", SerialPool),
        mock.patch.object(import_module("tierctl.commands.sweep"), "ThreadPoolExecutor", SerialPool),
        mock.patch.object(tierctl.commands.change, "LocalEngine", engine),
        mock.patch.object(tierctl.commands.change, "new_segment_id", world.new_id),
        mock.patch.object(tierctl.files.PLAIN, "_observe", observe),
        mock.patch.object(RemoteStorageManager.__init__, "__kwdefaults__", retries | sleep),
        mock.patch("os.fsync", _always(None)),
    ):
        yield


def _always(answer: object) -> Callable[..., Any]:
    """Return a function that returns `answer`; it is faster than a Mock."""

    def function(*_: object, **__: object) -> object:
        return answer

    return function


def _sleep(world: World, seconds: float) -> None:
    world.clock_ms += int(seconds * 1000)
    world.step("sleep")


def _lease(world: World, store: ConditionalStore, key: str) -> ObjectLease:
    """Return the lease of the current process; the world's steps renew it in place of its thread."""
    lease = ObjectLease(store, key, clock_s=lambda: world.clock_ms / 1000, renew_s=NEVER_S)
    process = world.scheduler.current
    if process is not None:
        renewed_ms = [world.clock_ms]

        def renew() -> None:
            due_ms = renewed_ms[0] + RENEW_S * 1000
            if world.clock_ms >= due_ms and not lease.is_lost():
                renewed_ms[0] = world.clock_ms
                lease.renew()

        process.renew_lease = renew
        process.lease = lease
    return lease
