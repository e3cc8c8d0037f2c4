"""One user partition's segments as a broker's cache holds them (RemoteLogMetadataCache), in columns."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np

from tierctl.errors import IllegalEventError, RemoteResourceNotFound
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
    is_valid_transition,
)
from tierctl.state.segments.arrays import Rows
from tierctl.state.segments.columns import TXN_INDEX_EMPTY, LazySegmentColumns, Loader, SegmentColumns
from tierctl.state.segments.epoch_index import EpochIndex

_S = RemoteLogSegmentState
_DEAD_ROWS_KEPT: Final = 1024


class CacheParts(NamedTuple):
    """All that a cache is made of, for who keeps it beyond the process.

    `reshaped` are ids of segments that changed their leader epochs before they were copied; `dangling` are
    epochs that still name a segment which is gone, by its id.
    """

    columns: SegmentColumns
    epochs: dict[int, EpochIndex]
    reshaped: set[bytes]
    dangling: dict[bytes, list[int]]


class RemoteLogMetadataCache:
    """Segments of one user partition that are not yet deleted, by id and by leader epoch.

    The answers are those of org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache.
    `initialized=False` is a cache that history is still loaded into: updates of unknown segments are
    dropped there, because what they speak of was deleted before. A segment takes about 70 bytes, 16 more
    for each further leader epoch.
    """

    __slots__ = ("_columns", "_dangling", "_dead", "_epochs", "_generation", "_reshaped", "initialized")

    def __init__(
        self, *, initialized: bool = True, columns: SegmentColumns | LazySegmentColumns | None = None
    ) -> None:
        self.initialized = initialized
        self._columns = SegmentColumns() if columns is None else columns
        self._epochs: dict[int, EpochIndex] = {}
        self._dead = 0
        self._generation = 0
        # Segments added again with other epochs before they were copied: the former epochs keep naming them.
        self._reshaped: set[bytes] = set()
        self._dangling: dict[bytes, list[int]] = {}

    @classmethod
    def lazy(cls, load: Loader, *, initialized: bool = True) -> Self:
        """A cache that holds offset, epochs, id, state and file position only, about 50 bytes a segment.

        Everything else comes from `load(position)`, which gives the segment of the entry at that position
        of a file. Every event needs the `position` of an entry that has the segment as the event leaves it.
        """
        return cls(initialized=initialized, columns=LazySegmentColumns(load))

    @classmethod
    def of_parts(cls, parts: CacheParts, *, initialized: bool = True) -> Self:
        """A cache made of what `parts` of another, compacted one gave."""
        cache = cls(initialized=initialized, columns=parts.columns)
        cache._epochs, cache._reshaped, cache._dangling = parts.epochs, parts.reshaped, parts.dangling
        return cache

    @property
    def parts(self) -> CacheParts:
        """What a cache that is not lazy consists of, not copied; `compact` first where rows matter."""
        columns = self._columns
        assert isinstance(columns, SegmentColumns)
        return CacheParts(columns, self._epochs, self._reshaped, self._dangling)

    def __len__(self) -> int:
        return len(self._columns) - self._dead

    @property
    def columns(self) -> SegmentColumns | LazySegmentColumns:
        """The segments' rows, for the bulk fold."""
        return self._columns

    @property
    def has_reshaped(self) -> bool:
        """Whether a segment changed its leader epochs on the way: only the one-by-one fold knows how."""
        return bool(self._reshaped or self._dangling)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns and indexes hold, room to grow not counted."""
        return self._columns.nbytes + sum(4 * len(index.rows) for index in self._epochs.values())

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """The segment of that id, in whatever state; None when unknown or deleted."""
        row = self._columns.ids.find(segment_id.bytes)
        return None if row < 0 else self._columns.metadata(row)

    def add(self, metadata: RemoteLogSegmentMetadata, *, position: int | None = None) -> bool:
        """addCopyInProgressSegment: whether the event was taken; False when it was dropped in silence.

        Raises IllegalEventError unless the state is COPY_SEGMENT_STARTED and the segment can be one.
        """
        check_new_segment(metadata)
        columns, segment_id = self._columns, metadata.segment_id.bytes
        row = columns.ids.find(segment_id)
        if not is_valid_transition(None if row < 0 else columns.state(row), metadata.state):
            return False
        if row < 0:
            row = columns.append(metadata, position)
            self._restore_dangling(segment_id, row)
        else:
            if dict(columns.leader_epochs(row)).keys() != dict(metadata.segment_leader_epochs).keys():
                self._reshaped.add(segment_id)
            columns.replace(row, metadata, position)
        for epoch in dict(metadata.segment_leader_epochs):
            self.epoch_index(epoch).add_unreferenced(row)
        return True

    def update(self, update: RemoteLogSegmentMetadataUpdate, *, position: int | None = None) -> bool:
        """updateRemoteLogSegmentMetadata: whether the event was taken; False when dropped in silence.

        Raises RemoteResourceNotFound for a segment that is not there (unless history is being loaded) and
        IllegalEventError for an allowed update to COPY_SEGMENT_STARTED.
        """
        columns, state = self._columns, update.state
        row = columns.ids.find(update.segment_id.bytes)
        if row < 0:
            if not self.initialized:
                return False
            raise RemoteResourceNotFound(f"no metadata of remote segment {update.segment_id}")
        if not is_valid_transition(columns.state(row), state):
            return False
        if state is _S.COPY_SEGMENT_STARTED:
            raise IllegalEventError(
                f"update of segment {update.segment_id}", expected="a later state", found=state
            )
        if state is not _S.DELETE_SEGMENT_FINISHED:
            columns.update(row, update, position)
        self._apply(row, state)
        return True

    def _apply(self, row: int, state: RemoteLogSegmentState) -> None:
        for epoch, start_offset in dict(self._columns.leader_epochs(row)).items():
            index = self.epoch_index(epoch)
            if state is _S.COPY_SEGMENT_FINISHED:
                index.finished(row, start_offset, self._epoch_end(row, epoch))
            elif state is _S.DELETE_SEGMENT_STARTED:
                index.delete_started(row, start_offset)
            else:
                index.delete_finished(row)
        if state is _S.DELETE_SEGMENT_FINISHED:
            self._remove(row)

    def epoch_index(self, epoch: int) -> EpochIndex:
        """What one leader epoch holds, for the bulk fold; made when there is none."""
        index = self._epochs.get(epoch)
        if index is None:
            index = self._epochs[epoch] = EpochIndex(epoch, self._columns)
        return index

    def _epoch_end(self, row: int, epoch: int) -> int:
        """The last offset that `epoch` may have in the segment: the next epoch's start less one."""
        epochs = self._columns.leader_epochs(row)
        if len(epochs) > 1:
            later = [(other, start) for other, start in dict(epochs).items() if other > epoch]
            if later:
                return min(later)[1] - 1
        return self._columns.end_offset(row)

    def _remove(self, row: int) -> None:
        segment_id = self._columns.ids.id_of(row)
        if segment_id in self._reshaped:
            self._reshaped.discard(segment_id)
            naming = [index for index in self._epochs.values() if row in index.unreferenced]
            self._dangling[segment_id] = [index.epoch for index in naming]
            for index in naming:
                del index.unreferenced[row]
        self._columns.kill(row)
        self.count_dead(1)

    def count_dead(self, count: int) -> None:
        """Note that `count` rows died, and give back what they hold once it is an eighth of all."""
        self._dead += count
        if self._dead > _DEAD_ROWS_KEPT and 8 * self._dead > len(self._columns):
            self.compact()

    def _restore_dangling(self, segment_id: bytes, row: int) -> None:
        epochs = self._dangling.pop(segment_id, None)
        if epochs:
            self._reshaped.add(segment_id)
            for epoch in epochs:
                self._epochs[epoch].add_unreferenced(row)

    def compact(self) -> None:
        """Give back what deleted segments held; happens by itself once an eighth of the rows are theirs."""
        rows = self._columns.live_rows()
        numbers = np.full(len(self._columns), -1, dtype=np.int64)
        numbers[rows] = np.arange(len(rows))
        for index in self._epochs.values():
            index.renumber(numbers)
        self._columns.keep(rows)
        self._dead = 0
        self._generation += 1

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The readable segment that holds `offset` in leader epoch `epoch`."""
        row = self._find(epoch, offset)
        return None if row < 0 else self._columns.metadata(row)

    def _find(self, epoch: int, offset: int) -> int:
        index = self._epochs.get(epoch)
        row = -1 if index is None else index.floor(offset)
        return row if row >= 0 and offset <= self._epoch_end(row, epoch) else -1

    def next_segment_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment in an unbroken run from `offset` on whose transaction index is not empty.

        The run is of readable segments of `epoch`, each from the offset after the one before it.
        """
        row = self._find(epoch, offset)
        while row >= 0 and self._columns.flags[row] & TXN_INDEX_EMPTY:
            following = self._columns.end_offset(row) + 1
            # Epochs that reach beyond their segment's end would lead back to the same segment for ever.
            row = self._find(epoch, following) if following > offset else -1
            offset = following
        return None if row < 0 else self._columns.metadata(row)

    def next_start_offset(self, epoch: int, offset: int) -> int | None:
        """Where the first readable segment of `epoch` begins, at or after `offset`."""
        index = self._epochs.get(epoch)
        row = -1 if index is None else index.ceiling(offset)
        return None if row < 0 else self._columns.epoch_start(row, epoch)

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Highest offset ever copied in `epoch`; deleting segments never lowers it."""
        index = self._epochs.get(epoch)
        return None if index is None else index.highest_offset

    def list_remote_log_segments(self, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments not yet deleted: of one epoch by start offset, or all in order of arrival.

        Of those with equal start offsets the readable one comes first, the others in the order of Kafka's
        hash set. What is deleted while the iterator runs is left out. Raises RemoteResourceNotFound, as
        Kafka, when the epoch still names a segment that is gone.
        """
        if epoch is None:
            return self._metadata_of(self._columns.live_rows())
        if any(epoch in epochs for epochs in self._dangling.values()):
            raise RemoteResourceNotFound(f"leader epoch {epoch} names a segment without metadata")
        index = self._epochs.get(epoch)
        return iter(()) if index is None else self._metadata_of(self._listed(index))

    def _listed(self, index: EpochIndex) -> Rows:
        rows = index.readable()
        if not index.unreferenced:
            return rows
        others = index.unreferenced_in_java_order()
        rows = np.concatenate([rows, np.array(others, dtype=np.int64)])
        starts = np.asarray(self._columns.starts)[rows]
        return rows[np.argsort(starts, kind="stable")]

    def unlisted_ids(self, state: RemoteLogSegmentState) -> list[bytes]:
        """Ids of segments in that state which no leader epoch lists."""
        rows = self._columns.rows_in(state)
        listed = [np.fromiter(index.unreferenced, dtype=np.int64) for index in self._epochs.values()]
        listed += [index.readable() for index in self._epochs.values()]
        unlisted = np.setdiff1d(rows, np.concatenate(listed)) if listed else rows
        return [self._columns.ids.id_of(row) for row in unlisted.tolist()]

    def _metadata_of(self, rows: Rows) -> Iterator[RemoteLogSegmentMetadata]:
        columns, generation = self._columns, self._generation
        ids = columns.ids.as_words()[rows]
        for row, words in zip(rows.tolist(), ids, strict=True):
            # Rows are renumbered when many segments were deleted, ids are not.
            at = row if generation == self._generation else columns.ids.find(words.tobytes())
            if at >= 0 and not columns.is_dead(at):
                yield columns.metadata(at)

    def leader_epochs(self) -> tuple[int, ...]:
        """Every leader epoch that a segment ever named, ascending."""
        return tuple(sorted(self._epochs))


def check_new_segment(metadata: RemoteLogSegmentMetadata) -> None:
    """addCopyInProgressSegment's and RemoteLogSegmentMetadata's own checks; raises IllegalEventError."""
    what = f"segment {metadata.segment_id}"
    start, end = metadata.start_offset, metadata.end_offset
    if start < 0:
        raise IllegalEventError(what, expected="a start offset of at least 0", found=str(start))
    if end < start:
        raise IllegalEventError(what, expected=f"an end offset of at least {start}", found=str(end))
    if not metadata.segment_leader_epochs:
        raise IllegalEventError(what, expected="at least one leader epoch", found="none")
    if metadata.state is not _S.COPY_SEGMENT_STARTED:
        raise IllegalEventError(what, expected="COPY_SEGMENT_STARTED first", found=metadata.state)
