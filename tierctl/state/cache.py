"""A broker's cache of the segments of one user partition: a view of the table of segments."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from tierctl.errors import IllegalEventError, RemoteResourceNotFound
from tierctl.kernel import int64, kernel
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.model.events import MetadataEvent
from tierctl.state.epoch_lists import waiting_links
from tierctl.state.fold_kernels import ACCEPTED, REFUSED, apply_numbered, numbered
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import (
    NO_OFFSET,
    REPEATED,
    Arrays,
)
from tierctl.wire.arrays import Int64s
from tierctl.wire.metadata.decode import rows_of


@kernel
def readable_links(t: Arrays, epoch: int) -> Int64s:
    """Return the links of a leader epoch's readable segments, by the offset at which it starts."""
    count, link = 0, int64(t.epochs[epoch]["first_readable"])
    while link >= 0:
        count, link = count + 1, int64(t.links[link]["next"])
    links = np.empty(count, np.int64)
    link = int64(t.epochs[epoch]["first_readable"])
    for i in range(count):
        links[i], link = link, int64(t.links[link]["next"])
    return links


def refusal(event: MetadataEvent) -> IllegalEventError:
    """Return the error of an event for which Kafka throws an exception.

    A segment that Kafka's constructor or addCopyInProgressSegment refuses, or an update to
    COPY_SEGMENT_STARTED.
    """
    if isinstance(event, RemoteLogSegmentMetadataUpdate):
        what = f"update of segment {event.segment_id}"
        return IllegalEventError(what, expected="a later state", found=event.state)
    assert isinstance(event, RemoteLogSegmentMetadata)
    what, start, end = f"segment {event.segment_id}", event.start_offset, event.end_offset
    if start < 0:
        return IllegalEventError(what, expected="a start offset of at least 0", found=str(start))
    if end < start:
        return IllegalEventError(what, expected=f"an end offset of at least {start}", found=str(end))
    if not event.segment_leader_epochs:
        return IllegalEventError(what, expected="at least one leader epoch", found="none")
    first = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return IllegalEventError(what, expected=f"{first} first", found=event.state)


class _Readable(NamedTuple):
    """The readable segments of a leader epoch: their rows, and where the epoch starts in each."""

    rows: Int64s
    starts: Int64s


class RemoteLogMetadataCache:
    """The segments of one user partition that are not deleted, as a broker has them: a view of a table.

    Every query returns the same result as Kafka's class of this name
    (org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache). A cache that is made without
    a table has its own, to which `add` and `update` apply events. With `initialized=False`, `update` ignores
    unknown segments instead of raising: while history is loaded, such segments were deleted before. With
    `keep_deleted=True`, deleted segments stay readable through `list_deleted_segments`.
    """

    def __init__(self, *, initialized: bool = True, keep_deleted: bool = False) -> None:
        self.initialized = initialized
        self.table = SegmentTable(keep_deleted=keep_deleted)
        self.number = 0

    @classmethod
    def of(cls, table: SegmentTable, number: int) -> Self:
        """Return the view of a user partition in a table."""
        cache = cls.__new__(cls)
        cache.initialized, cache.table, cache.number = False, table, number
        return cache

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Apply an event that adds a segment (addCopyInProgressSegment).

        Return False if Kafka ignores the event. Raise IllegalEventError if the state is not
        COPY_SEGMENT_STARTED or the offsets and epochs cannot be those of a segment.
        """
        return self._apply(metadata) == ACCEPTED

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Apply an event that updates a segment (updateRemoteLogSegmentMetadata).

        Return False if Kafka ignores the event. Raise RemoteResourceNotFound if the segment is unknown and
        the cache is initialized, and IllegalEventError for an update to COPY_SEGMENT_STARTED that the
        transition table allows.
        """
        if self.initialized and self.get(update.segment_id) is None:
            raise RemoteResourceNotFound(f"no metadata of remote segment {update.segment_id}")
        return self._apply(update) == ACCEPTED

    def _apply(self, event: MetadataEvent) -> int:
        events, table = rows_of([event]), self.table
        outcomes = apply_numbered(table, events, np.zeros(1, np.int64), *numbered(table, events))
        if outcomes[0] == REFUSED:
            raise refusal(event)
        table.compact_when_due()
        return int(outcomes[0])

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
            links = readable_links(t, at) if at >= 0 else np.empty(0, np.int64)
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

        Of segments with equal start offsets, the readable one comes first; the others follow in the order
        of Kafka's hash set. Segments that are deleted during the iteration are left out. Raise
        RemoteResourceNotFound, as Kafka does, if the epoch still lists a deleted segment.
        """
        if epoch is None:
            return self._metadata_of(self.rows)
        at = self.table.epoch(self.number, epoch)
        if at < 0:
            return iter(())
        self.require_known(at, epoch)
        return self._metadata_of(self.listed(at, epoch))

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
        rows = self._readable(epoch).rows
        if t.epochs[at]["first_waiting"] < 0:
            return rows
        waiting = t.links["segment"][waiting_links(t, at)].astype(np.int64)
        rows = np.concatenate([rows, waiting])
        return rows[np.argsort(t.segments["start"][rows], kind="stable")]

    def _metadata_of(self, rows: Int64s) -> Iterator[RemoteLogSegmentMetadata]:
        arrays, ids = self.table.arrays, [self.table.id_of(row) for row in rows.tolist()]
        count = len(self.table.segments)
        for row, raw in zip(rows.tolist(), ids, strict=True):
            # The caller may have changed the table meanwhile: look the id up.
            is_same = self.table.arrays is arrays and len(self.table.segments) == count
            at = row if is_same else self.table.find(self.number, Uuid.from_bytes(raw))
            if at >= 0 and not self.table.is_deleted(at):
                yield self.table.metadata(at)

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
