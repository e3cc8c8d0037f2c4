"""Which segments, of those that dropped events speak of, were deleted before: the `events` table remembers.

`verify` reads the whole metadata topic for it. The pipeline looks through a metadata partition's history once
for each new dropped event, then only through what is new.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.pipeline.warehouse.base import EVENTS, Warehouse
from tierctl.state.tier import TierState

_DELETED: Final = str(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


@dataclass(slots=True)
class Deletions:
    """Ids of segments that were looked for, and of those that an event calls DELETE_SEGMENT_FINISHED."""

    asked: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    @classmethod
    def of_notes(cls, notes: Mapping[str, Sequence[str]]) -> Self:
        """From `notes`."""
        return cls(set(notes.get("asked", ())), set(notes.get("deleted", ())))

    @property
    def notes(self) -> dict[str, list[str]]:
        """What the next run has to know."""
        return {"asked": sorted(self.asked), "deleted": sorted(self.found)}

    def __contains__(self, segment_id: object) -> bool:
        return str(segment_id) in self.found

    def look(self, state: TierState, warehouse: Warehouse, metadata_partition: int, new: Path | None) -> None:
        """Find out about all segments of `state.anomalies`; `new` are the events that are no batch yet."""
        wanted = {
            str(anomaly.event.segment_id)
            for anomaly in state.anomalies
            if isinstance(anomaly.event, RemoteLogSegmentMetadataUpdate)
        }
        unasked = wanted - self.asked
        if new is not None and wanted - self.found:
            self._look_into(new, wanted - self.found)
        if unasked - self.found:
            for source in _history(warehouse, metadata_partition):
                self._look_into(source, unasked - self.found)
        self.asked |= wanted

    def _look_into(self, source: Any, wanted: set[str]) -> None:
        ids = pa.array(sorted(wanted), pa.string())
        for batch in pq.ParquetFile(source).iter_batches(columns=["segment_id", "state"]):
            is_deletion = pc.equal(batch.column("state"), _DELETED)
            chosen = pc.and_(is_deletion, pc.is_in(batch.column("segment_id"), value_set=ids))
            self.found |= set(batch.column("segment_id").filter(chosen).to_pylist())


def _history(warehouse: Warehouse, metadata_partition: int) -> Iterator[pa.BufferReader]:
    part = f"part-{metadata_partition:05d}"
    for key in warehouse.keys(f"{EVENTS}/"):
        if key.rpartition("/")[2].startswith((f"{part}-", f"{part}.")):
            yield pa.BufferReader(warehouse.open(key).read())
