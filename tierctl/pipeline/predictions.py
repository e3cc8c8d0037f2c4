"""Predict the duration, memory and storage of a pipeline for a given tier, from measured costs.

The costs are processor times, measured by `make bench` on the machine in MEASURED_ON.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tierctl.errors import UsageError

MEASURED_ON: Final = "two cores of a virtual machine, Python 3.11, Spark 4.3 local[1] and local[2]"
MEASURED_BY: Final = "make bench ROWS=pipeline"

FOLD_US: Final = 2.7
"""Processor time to read, decode and fold one event on an executor."""

TABLES_US: Final = 4.3
"""Processor time per event of a pipeline task, which also writes the tables and the state."""

TWO_CORES: Final = 0.9
"""Efficiency on two cores: processor time per event on one core divided by that on two cores."""

STARTING_S: Final = 20.0
"""Time to start a session and its first Python workers."""

WAVE_S: Final = 0.5
"""Time of a wave of copy, sweep or delete, without its side effects."""

STATE_BYTES: Final = 150
"""Memory of a task per live segment of its metadata partition, for the state and the table columns."""

CHUNK_BYTES: Final = 340 << 20
"""Fixed memory of a task, for libraries and for one chunk of events with its columns."""

EVENT_FILE_BYTES, SEGMENT_FILE_BYTES = 42, 83
"""Bytes in the warehouse per event, and per live segment."""

EVENTS_PER_DELETED_SEGMENT: Final = 4
"""Events of a deleted segment: COPY_SEGMENT_STARTED and FINISHED, DELETE_SEGMENT_STARTED and FINISHED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The size of the tier and of the Spark cluster.

    `segments` counts live segments, `deleted` deleted segments whose events are still in the topic.
    """

    segments: int
    executors: int
    cores: int = 1
    deleted: int = 0
    metadata_partitions: int = 50
    wave_size: int = 1000

    def __post_init__(self) -> None:
        for name in ("segments", "executors", "cores", "metadata_partitions", "wave_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more")

    @property
    def events(self) -> int:
        """Return the number of events in the topic."""
        return 2 * self.segments + EVENTS_PER_DELETED_SEGMENT * self.deleted

    @property
    def slots(self) -> int:
        """Return the number of tasks that run at a time; each metadata partition is one task."""
        return min(self.executors * self.cores, self.metadata_partitions)

    def wall_s(self, event_us: float) -> float:
        """Return the duration in seconds to process all events at `event_us` of processor time each."""
        efficiency = 1.0 if self.slots == 1 else TWO_CORES
        # With few metadata partitions per core, some cores are idle while the last tasks run.
        rounds = -(-self.metadata_partitions // self.slots) / (self.metadata_partitions / self.slots)
        return self.events * event_us / 1e6 / (self.slots * efficiency) * rounds


def predictions(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Yield rows of {"what", "value", "unit", "from"}; `from` states the basis of the prediction."""
    live, events = cluster.segments, cluster.events
    memory_bytes = CHUNK_BYTES + live / cluster.metadata_partitions * STATE_BYTES
    store_bytes = events * EVENT_FILE_BYTES + live * SEGMENT_FILE_BYTES
    waves = -(-live // cluster.wave_size)
    start = f"{STARTING_S:g} s to start"
    most = f"at most {cluster.metadata_partitions}, one a metadata partition"
    folded, made = f"{FOLD_US} us an event", f"{TABLES_US} us an event"
    kept = f"{STATE_BYTES} bytes a live segment, and a chunk"
    files = f"{EVENT_FILE_BYTES} bytes an event, {SEGMENT_FILE_BYTES} a live segment"
    rows: tuple[tuple[str, float, str, str], ...] = (
        ("events in the metadata topic", events, "events", "2 a live segment, 4 a deleted one"),
        ("tasks at a time", cluster.slots, "tasks", most),
        ("fold on executors", STARTING_S + cluster.wall_s(FOLD_US), "s", f"{folded}, {start}"),
        ("fold in one process", events * FOLD_US / 1e6, "s", folded),
        ("first pipeline run", STARTING_S + cluster.wall_s(TABLES_US), "s", f"{made}, {start}"),
        ("memory of a task", memory_bytes, "bytes", kept),
        ("warehouse", store_bytes, "bytes", files),
        ("waves to copy them all", waves, "waves", f"{cluster.wave_size} segments each"),
        ("what waves add to a copy", waves * WAVE_S, "s", f"{1000 * WAVE_S:g} ms a wave beside its work"),
    )
    for what, value, unit, source in rows:
        rounded = round(value, 1) if unit == "s" else round(value)
        yield {"what": what, "value": rounded, "unit": unit, "from": source}
