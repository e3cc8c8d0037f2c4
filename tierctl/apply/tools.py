"""What a run works with; time, randomness and parallelism come from outside."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tierctl.apply.defaults import NOT_A_BROKER_ID, THREADS, WAVE_SIZE
from tierctl.apply.engine import Engine, LocalEngine
from tierctl.apply.stop import Stop
from tierctl.metadata.base import RemoteLogMetadataManager
from tierctl.model import Uuid
from tierctl.storage.base import RemoteStorageManager


def _unwatched(size_bytes: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything a run needs besides its plan.

    `clock_ms` gives event timestamps, `new_segment_id` the id of each attempt to copy a segment.
    `advance` is called with a segment's size when its objects have been stored or deleted, from whichever
    thread did it.
    """

    remote: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    clock_ms: Callable[[], int]
    new_segment_id: Callable[[], Uuid]
    broker_id: int = NOT_A_BROKER_ID
    engine: Engine = field(default_factory=lambda: LocalEngine(THREADS))
    wave_size: int = WAVE_SIZE
    stop: Stop = field(default_factory=Stop)
    advance: Callable[[int], None] = _unwatched
