"""Find, for each event that the fold dropped, whether its segment had been deleted before.

The answer is in the `events` table, so that the metadata topic is not read again, as `verify` does. Each
segment is searched in the whole history of its metadata partition once, and later in new events only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.state.tier import TierState
from tierctl.storage.stores import ObjectStore

_DELETED: Final = str(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


@dataclass(slots=True)
class DeletedSegments:
    """Ids of the segments searched for, and of those that have a DELETE_SEGMENT_FINISHED event."""

    searched: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    @classmethod
    def of_notes(cls, notes: Mapping[str, Sequence[str]]) -> Self:
        """Return the object from the `notes` of an earlier run."""
        return cls(set(notes.get("asked", ())), set(notes.get("deleted", ())))

    @property
    def notes(self) -> dict[str, list[str]]:
        """Return the state to store for the next run, as JSON."""
        return {"asked": sorted(self.searched), "deleted": sorted(self.found)}

    def __contains__(self, segment_id: object) -> bool:
        return str(segment_id) in self.found

    def search(
        self,
        state: TierState,
        store: ObjectStore,
        history: Sequence[str],
        metadata_partition: int,
        new: Path | None,
    ) -> None:
        """Search for the segments of all events in `state.anomalies`.

        `history` are the keys of the files in `store` that have the events of earlier runs, also of other
        metadata partitions. `new` is the file with the events of this run.
        """
        wanted = {
            str(anomaly.event.segment_id)
            for anomaly in state.anomalies
            if isinstance(anomaly.event, RemoteLogSegmentMetadataUpdate)
        }
        unsearched = wanted - self.searched
        if new is not None and wanted - self.found:
            self._search_file(new, metadata_partition, wanted - self.found)
        if unsearched - self.found:
            for key in history:
                source = pa.BufferReader(store.open(key).read())
                self._search_file(source, metadata_partition, unsearched - self.found)
        self.searched |= wanted

    def _search_file(self, source: Any, metadata_partition: int, wanted: set[str]) -> None:
        ids = pa.array(sorted(wanted), pa.string())
        for batch in pq.ParquetFile(source).iter_batches(
            columns=["metadata_partition", "segment_id", "state"]
        ):
            is_own = pc.equal(batch.column("metadata_partition"), metadata_partition)
            is_deletion = pc.and_(is_own, pc.equal(batch.column("state"), _DELETED))
            chosen = pc.and_(is_deletion, pc.is_in(batch.column("segment_id"), value_set=ids))
            self.found |= set(batch.column("segment_id").filter(chosen).to_pylist())
