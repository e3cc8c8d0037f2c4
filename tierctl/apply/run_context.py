"""What a run works with; time, randomness and parallelism come from outside."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tierctl.apply.defaults import NOT_A_BROKER_ID, THREADS, WAVE_SIZE
from tierctl.apply.engine import Engine, LocalEngine
from tierctl.apply.side_effect_context import Bench, Ends
from tierctl.apply.stop import Stop
from tierctl.metadata.base import RemoteLogMetadataManager
from tierctl.model import Uuid
from tierctl.storage.base import RemoteStorageManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything a run needs besides its plan.

    `clock_ms` gives event timestamps, `new_segment_id` the id of each attempt to copy a segment.
    `advance` is as Bench has it. With `allow_missing_objects` the tier is taken as it is: segments of which
    it shows nothing are gone, and it is the right one.
    """

    remote: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    clock_ms: Callable[[], int]
    new_segment_id: Callable[[], Uuid]
    broker_id: int = NOT_A_BROKER_ID
    engine: Engine = field(default_factory=lambda: LocalEngine(THREADS))
    wave_size: int = WAVE_SIZE
    stop: Stop = field(default_factory=Stop)
    allow_missing_objects: bool = False
    advance: Callable[[int], None] = lambda _size_bytes: None

    def bench(self, ends: Ends | None = None) -> Bench:
        """What this process's own side effects work with."""
        return Bench(remote=self.remote, stop=self.stop, advance=self.advance, ends=ends or Ends())
