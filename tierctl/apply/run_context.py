"""The objects that a run works with: stores, clock, random ids, engine. All of them are passed in.

Engines run side effects in parallel. They never publish metadata: only the driver does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol, TypeVar

from tierctl.apply.defaults import DELETE_WAVE_SIZE, NOT_A_BROKER_ID, THREADS, WAVE_SIZE
from tierctl.apply.outcome import Stop
from tierctl.apply.side_effects import SideEffectContext, SideEffectResult, StoppedCopies, no_op
from tierctl.errors import LockedError
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import MetadataEvent, Uuid
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion
from tierctl.storage.remote_storage_manager import RemoteStorageManager

P = TypeVar("P")

SideEffect = Callable[[SideEffectContext, P], SideEffectResult]
"""A module-level function, or a `partial` of one, so that it can be sent to another process."""


class Engine(Protocol):
    """Runs the independent side effects of a wave, in parallel where possible."""

    @property
    def verify_on_driver(self) -> bool:
        """Return True if the driver must check each side effect on its own view of the tier.

        That is the case when `file:` may name another folder in the process that runs the side effect.
        """
        ...

    @property
    def wave_size(self) -> int:
        """Return the number of segments to copy per wave when the operator gave none."""
        ...

    @property
    def delete_wave_size(self) -> int:
        """Return the number of segments to delete per wave when the operator gave none."""
        ...

    def ready(self) -> None:
        """Raise TierctlError if the engine can take no work; called before a wave is published."""
        ...

    def map(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Run `side_effect` on each input and return the results in the order of `inputs`.

        `side_effect` reports a failure in its result. `context` is that of this process; an engine that uses
        other processes opens an equal one there. An input without a result gets StoreWriteUnknown, or
        `stopped` if the run was told to stop.
        """
        ...

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Begin what `map` does, and return a function that waits for the results and returns them.

        The inputs follow those of earlier calls. An engine that does one thing at a time begins when the
        results are first requested.
        """
        ...


class LocalEngine:
    """Runs side effects on a pool of `threads` threads in this process."""

    verify_on_driver = False
    wave_size = WAVE_SIZE
    delete_wave_size = DELETE_WAVE_SIZE

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tierctl-side-effect")

    def ready(self) -> None:
        """Implement `Engine.ready`: threads are always ready."""

    def map(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> list[SideEffectResult]:
        """Implement `Engine.map`."""
        return self.begin(side_effect, inputs, context)()

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        """Implement `Engine.begin`; with one thread the thread that requests the results does the work."""
        if self._threads == 1:
            return cache(lambda: [side_effect(context, each) for each in inputs])
        return partial(_results, [self._pool.submit(side_effect, context, each) for each in inputs])


def _results(futures: Sequence[Future[SideEffectResult]]) -> list[SideEffectResult]:
    """Return the results; if one raises, wait until none is under way, and raise."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Inputs of a run besides its plan.

    `clock_ms` returns the timestamp for each event, `new_segment_id` the id for each attempt to copy a
    segment. `advance` and `deleted` are passed to `SideEffectContext`. With `allow_missing_objects` the run
    accepts the tier without looking for objects, and treats segments without objects as deleted. With
    `adopt_tier` it assigns the tier to its metadata topic, whatever the tier's identity is. Published events
    have the fields that brokers of `kafka_version` write.
    """

    remote: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    clock_ms: Callable[[], int]
    new_segment_id: Callable[[], Uuid]
    broker_id: int = NOT_A_BROKER_ID
    engine: Engine = field(default_factory=lambda: LocalEngine(THREADS))
    wave_size: int = WAVE_SIZE
    delete_wave_size: int = DELETE_WAVE_SIZE
    stop: Stop = field(default_factory=Stop)
    allow_missing_objects: bool = False
    adopt_tier: bool = False
    kafka_version: KafkaVersion = LATEST
    advance: Callable[[int], None] = no_op
    deleted: Callable[[int], None] = no_op

    def waves(self, copies: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield consecutive slices of `copies`, each of at most `wave_size` items."""
        return slices(copies, self.wave_size)

    def delete_waves(self, deletes: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield consecutive slices of `deletes`, each of at most `delete_wave_size` items."""
        return slices(deletes, self.delete_wave_size)

    def publish(self, events: Sequence[MetadataEvent]) -> None:
        """Publish `events`; raise LockedError if the lease was lost while the metadata before them were read.

        Another run may have copied or deleted the same segments since the caller last asked `stop`.
        """
        self.metadata.publish(events, before_append=self._require_lease)

    def _require_lease(self) -> None:
        if self.stop.is_over():
            raise LockedError(
                "the lease of the tier was lost, so the next metadata event was not written",
                hint="another tierctl may be running; run again when it has ended",
            )

    def side_effect_context(self, stopped_copies: StoppedCopies | None = None) -> SideEffectContext:
        """Return the context of the side effects that run in this process."""
        return SideEffectContext(
            remote=self.remote,
            stop=self.stop,
            advance=self.advance,
            deleted=self.deleted,
            stopped_copies=stopped_copies or StoppedCopies(),
        )


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of `items`, each of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def new_segment_id() -> Uuid:
    """Return a random id that does not begin with '-', so that no tool takes it for an option.

    Source: Kafka's Uuid.randomUuid.
    """
    while True:
        candidate = Uuid.from_bytes(uuid.uuid4().bytes)
        if not candidate.startswith("-"):
            return candidate
