"""A broker's cache of the segments of one user partition: a view of the table of segments."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from tierctl.errors import RemoteResourceNotFound
from tierctl.kernel import int64, kernel
from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import NO_OFFSET, REPEATED, Arrays
from tierctl.wire.arrays import Int64s


@kernel
def linked(t: Arrays, first: int) -> Int64s:
    """Return the links of a list of a leader epoch, from its first link on; -1 is that of an empty list."""
    count, link = 0, int64(first)
    while link >= 0:
        count, link = count + 1, int64(t.links[link]["next"])
    links = np.empty(count, np.int64)
    link = int64(first)
    for i in range(count):
        links[i], link = link, int64(t.links[link]["next"])
    return links


class _Readable(NamedTuple):
    """The readable segments of a leader epoch: their rows, and where the epoch starts in each."""

    rows: Int64s
    starts: Int64s


class RemoteLogMetadataCache:
    """The segments of one user partition that are not deleted, as a broker has them: a view of a table.

    Every query returns the same result as Kafka's class of this name
    (org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache).
    """

    def __init__(self, table: SegmentTable, number: int) -> None:
        self.table = table
        self.number = number

    @classmethod
    def empty(cls) -> Self:
        """Return the cache of a user partition without events."""
        return cls(SegmentTable(), 0)

    def __len__(self) -> int:
        return int(self.table.partitions["live"][self.number]) if len(self.table.partitions) else 0

    @property
    def rows(self) -> Int64s:
        """Return the rows of the segments in the table, in order of arrival."""
        return self.table.rows_of(self.number) if len(self.table.partitions) else np.empty(0, np.int64)

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return the segment with that id in any state; None if it is unknown or deleted."""
        row = self.table.find(self.number, segment_id)
        return None if row < 0 else self.table.metadata(row)

    def is_superseded(self, segment_id: Uuid) -> bool:
        """Return whether a later copy that reaches the segment's start offset finished, or any failed."""
        partition, segment = self.table.partitions[self.number], self.table.find(self.number, segment_id)
        if segment < 0:
            return False
        own = self.table.segments[segment]
        is_copied = partition["copied_offset"] > own["offset"] and partition["copied_end"] >= own["start"]
        is_failing = partition["failed_copies"] and partition["failed_last"] > own["event_timestamp"]
        return bool(is_copied or is_failing)

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that contains `offset` in leader epoch `epoch`."""
        row = self._find(epoch, offset)
        return None if row < 0 else self.table.metadata(row)

    def _find(self, epoch: int, offset: int) -> int:
        found = self._readable(epoch)
        at = int(np.searchsorted(found.starts, offset, side="right")) - 1
        row = int(found.rows[at]) if at >= 0 else -1
        return row if row >= 0 and offset <= self._epoch_end(row, epoch) else -1

    def _epoch_end(self, row: int, epoch: int) -> int:
        """Return the last offset that `epoch` can have in the segment: the next epoch's start minus one."""
        segment, links = self.table.segments[row], self.table.links
        own = links[int(segment["links"]) :][: int(segment["link_count"])]
        own = own[own["status"] != REPEATED]
        own = own[np.argsort(own["epoch"], kind="stable")]
        at = int(np.searchsorted(own["epoch"], epoch))
        return int(own["start"][at + 1]) - 1 if at + 1 < len(own) else int(segment["end"])

    def _readable(self, epoch: int) -> _Readable:
        at = self.table.epoch(self.number, epoch)
        known: dict[int, _Readable] = self.table.derived
        if at not in known:
            t = self.table.arrays
            links = linked(t, int(t.epochs[at]["first_readable"]) if at >= 0 else -1)
            known[at] = _Readable(t.links["segment"][links].astype(np.int64), t.links["start"][links])
        return known[at]

    def next_start_offset(self, epoch: int, offset: int) -> int | None:
        """Return the lowest offset, at or after `offset`, at which a readable segment of `epoch` begins."""
        starts = self._readable(epoch).starts
        at = int(np.searchsorted(starts, offset))
        return int(starts[at]) if at < len(starts) else None

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments does not lower it."""
        at = self.table.epoch(self.number, epoch)
        highest = NO_OFFSET if at < 0 else int(self.table.epochs[at]["highest"])
        return None if highest == NO_OFFSET else highest

    def list_remote_log_segments(self, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `epoch` by start offset, or all segments in order of arrival.

        Fold no events meanwhile. Of segments with equal start offsets, the readable one comes first, and the
        others in order of arrival. Raise RemoteResourceNotFound, as Kafka does, if the epoch still lists a
        deleted segment.
        """
        if epoch is None:
            return map(self.table.metadata, self.rows.tolist())
        at = self.table.epoch(self.number, epoch)
        if at < 0:
            return iter(())
        self.require_known(at, epoch)
        return map(self.table.metadata, self.listed(at, epoch).tolist())

    def remote_log_size(self, epoch: int) -> tuple[int, int]:
        """Return the number of segments that `epoch` lists, and their sizes in bytes (remoteLogSize).

        A segment with several leader epochs counts in each of them, in whole and in any state. Raise as
        `list_remote_log_segments`.
        """
        at = self.table.epoch(self.number, epoch)
        if at < 0:
            return 0, 0
        self.require_known(at, epoch)
        rows = self.listed(at, epoch)
        return len(rows), int(self.table.segments["size"][rows].sum(dtype=np.int64))

    def require_known(self, at: int, epoch: int) -> None:
        """Raise RemoteResourceNotFound if the leader epoch in row `at` lists a deleted segment."""
        if self.table.epochs[at]["left"]:
            raise RemoteResourceNotFound(f"leader epoch {epoch} lists a segment without metadata")

    def listed(self, at: int, epoch: int) -> Int64s:
        """Return the rows of the segments that the leader epoch in row `at` lists, by start offset.

        Of those with equal start offsets, the readable one comes first, and the others in order of arrival.
        """
        t = self.table.arrays
        rows, first_waiting = self._readable(epoch).rows, int(t.epochs[at]["first_waiting"])
        if first_waiting < 0:
            return rows
        rows = np.concatenate([rows, t.links["segment"][linked(t, first_waiting)].astype(np.int64)])
        return rows[np.argsort(t.segments["start"][rows], kind="stable")]

    def list_deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield each deleted segment once, in its last state; the table must have `keep_deleted`.

        A segment that was added again after its deletion is left out.
        """
        rows = self.table.rows_of(self.number, deleted=True) if len(self.table.partitions) else ()
        last_rows = {self.table.id_of(row): row for row in rows}
        for segment_id, row in last_rows.items():
            if self.table.find(self.number, Uuid.from_bytes(segment_id)) < 0:
                yield self.table.metadata(int(row))

    def leader_epochs(self) -> tuple[int, ...]:
        """Return every leader epoch that a segment ever named, ascending."""
        return tuple(sorted(int(self.table.epochs["epoch"][at]) for at in self.table.epoch_rows(self.number)))
