"""The objects that a run works with: stores, clock, random ids, engine. All of them are passed in."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tierctl.apply.defaults import DELETE_WAVE_SIZE, NOT_A_BROKER_ID, THREADS, WAVE_SIZE
from tierctl.apply.engine import Engine, LocalEngine
from tierctl.apply.side_effects import SideEffectContext, StoppedCopies, no_op
from tierctl.apply.stop import Stop
from tierctl.errors import LockedError
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import MetadataEvent, Uuid
from tierctl.model.settings.kafka_version import LATEST, KafkaVersion
from tierctl.storage.base import RemoteStorageManager

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
