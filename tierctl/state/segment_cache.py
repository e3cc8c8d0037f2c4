"""The segments of one user partition in columns, with the behaviour of a broker's RemoteLogMetadataCache."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

import numpy as np

from tierctl.errors import IllegalEventError, RemoteResourceNotFound
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_valid_transition,
)
from tierctl.state.segments.columns import (
    FINISHED,
    STATE_MASK,
    TXN_INDEX_EMPTY,
    WAS_FINISHED,
    Rows,
    SegmentColumns,
    view,
)
from tierctl.state.segments.epochs import FIRST_TABLE_SIZE, EpochIndex, EpochRuns, epoch_runs

_S = RemoteLogSegmentState
_DEAD_ROWS_MAX: Final = 1024


class CacheParts(NamedTuple):
    """The parts of a cache, for snapshots and for reading whole columns.

    `reshaped` has the ids of segments that were added again with other leader epochs before they were
    copied. `dangling` maps the id of a deleted segment to the epochs that still list it.
    """

    columns: SegmentColumns
    epochs: dict[int, EpochIndex]
    reshaped: set[bytes]
    dangling: dict[bytes, list[int]]


class RemoteLogMetadataCache:
    """Hold the segments of one user partition that are not yet deleted, by id and by leader epoch.

    Every query returns the same result as Kafka's class of this name
    (org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache). With `initialized=False`,
    `update` ignores unknown segments instead of raising: while history is loaded, such segments were deleted
    before. With `keep_deleted=True`, deleted segments stay readable through `list_deleted_segments`.
    A segment takes about 70 bytes, and 16 more for each further leader epoch.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "_dangling",
        "_dead",
        "_epochs",
        "_generation",
        "_reshaped",
        "initialized",
        "keep_deleted",
    )

    def __init__(self, *, initialized: bool = True, keep_deleted: bool = False) -> None:
        self.initialized = initialized
        self.keep_deleted = keep_deleted
        self._columns = SegmentColumns()
        self._epochs: dict[int, EpochIndex] = {}
        self._dead = 0
        self._generation = 0
        # Segments whose COPY_SEGMENT_STARTED was repeated with other leader epochs: as in Kafka's cache,
        # their former epochs still list them.
        self._reshaped: set[bytes] = set()
        self._dangling: dict[bytes, list[int]] = {}

    @classmethod
    def of_parts(cls, parts: CacheParts, *, initialized: bool = True, keep_deleted: bool = False) -> Self:
        """Return a cache that consists of `parts` of another, compacted cache."""
        cache = cls(initialized=initialized, keep_deleted=keep_deleted)
        cache._columns, cache._epochs = parts.columns, parts.epochs
        cache._reshaped, cache._dangling = parts.reshaped, parts.dangling
        return cache

    @property
    def parts(self) -> CacheParts:
        """Return the parts of the cache without copying; call `compact` first to drop deleted rows."""
        return CacheParts(self._columns, self._epochs, self._reshaped, self._dangling)

    def __len__(self) -> int:
        return len(self._columns) - self._dead

    @property
    def columns(self) -> SegmentColumns:
        """Return the segments' columns, deleted rows included."""
        return self._columns

    @property
    def has_reshaped(self) -> bool:
        """Return whether a segment was added again with other leader epochs before it was copied.

        Only `add` and `update` handle such segments; the columnar fold does not.
        """
        return bool(self._reshaped or self._dangling)

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return the segment with that id in any state; None if it is unknown or deleted."""
        row = self._columns.ids.find(segment_id.bytes)
        return None if row < 0 else self._columns.metadata(row)

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Apply an event that adds a segment (addCopyInProgressSegment).

        Return False if Kafka ignores the event. Raise IllegalEventError if the state is not
        COPY_SEGMENT_STARTED or the offsets and epochs cannot be those of a segment.
        """
        check_new_segment(metadata)
        columns, segment_id = self._columns, metadata.segment_id.bytes
        row = columns.ids.find(segment_id)
        if not is_valid_transition(None if row < 0 else columns.state(row), metadata.state):
            return False
        if row < 0:
            row = columns.append(metadata)
            self._restore_dangling(segment_id, row)
        else:
            if dict(columns.leader_epochs(row)).keys() != dict(metadata.segment_leader_epochs).keys():
                self._reshaped.add(segment_id)
            columns.replace(row, metadata)
        for epoch in dict(metadata.segment_leader_epochs):
            self.epoch_index(epoch).add_unreferenced(row)
        return True

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Apply an event that updates a segment (updateRemoteLogSegmentMetadata).

        Return False if Kafka ignores the event. Raise RemoteResourceNotFound if the segment is unknown and
        the cache is initialized, and IllegalEventError for an update to COPY_SEGMENT_STARTED that the
        transition table allows.
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
            raise refused_update(update)
        if state is not _S.DELETE_SEGMENT_FINISHED or self.keep_deleted:
            columns.update(row, update)
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
        """Return the index of a leader epoch; create it if the epoch is new."""
        index = self._epochs.get(epoch)
        if index is None:
            index = self._epochs[epoch] = EpochIndex(epoch, self._columns)
        return index

    def _epoch_end(self, row: int, epoch: int) -> int:
        """Return the last offset that `epoch` can have in the segment: the next epoch's start minus one."""
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
            listing = [index for index in self._epochs.values() if row in index.unreferenced]
            self._dangling[segment_id] = [index.epoch for index in listing]
            for index in listing:
                del index.unreferenced[row]
        self._columns.kill(row)
        self.count_dead(1)

    def count_dead(self, count: int) -> None:
        """Record that `count` rows were deleted; compact if more than an eighth of all rows are deleted."""
        self._dead += count
        if self.keep_deleted:
            return
        if self._dead > _DEAD_ROWS_MAX and 8 * self._dead > len(self._columns):
            self.compact()

    def _restore_dangling(self, segment_id: bytes, row: int) -> None:
        epochs = self._dangling.pop(segment_id, None)
        if epochs:
            self._reshaped.add(segment_id)
            for epoch in epochs:
                self._epochs[epoch].add_unreferenced(row)

    def compact(self) -> None:
        """Drop the rows of deleted segments, kept ones included."""
        rows = self._columns.live_rows()
        numbers = np.full(len(self._columns), -1, dtype=np.int64)
        numbers[rows] = np.arange(len(rows))
        for index in self._epochs.values():
            index.renumber(numbers)
        self._columns.keep(rows)
        self._dead = 0
        self._generation += 1

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that contains `offset` in leader epoch `epoch`."""
        row = self._find(epoch, offset)
        return None if row < 0 else self._columns.metadata(row)

    def _find(self, epoch: int, offset: int) -> int:
        index = self._epochs.get(epoch)
        row = -1 if index is None else index.floor(offset)
        return row if row >= 0 and offset <= self._epoch_end(row, epoch) else -1

    def next_segment_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the first segment at or after `offset` whose transaction index is not empty.

        The search visits readable segments of `epoch` as long as each begins at the offset after the one
        before it (nextSegmentWithTxnIndex).
        """
        row = self._find(epoch, offset)
        while row >= 0 and self._columns.flags[row] & TXN_INDEX_EMPTY:
            following = self._columns.end_offset(row) + 1
            # The search must continue at a higher offset. Otherwise an epoch that extends beyond the
            # segment's end would find the same segment without end.
            row = self._find(epoch, following) if following > offset else -1
            offset = following
        return None if row < 0 else self._columns.metadata(row)

    def next_start_offset(self, epoch: int, offset: int) -> int | None:
        """Return the lowest offset, at or after `offset`, at which a readable segment of `epoch` begins."""
        index = self._epochs.get(epoch)
        row = -1 if index is None else index.ceiling(offset)
        return None if row < 0 else self._columns.epoch_start(row, epoch)

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments does not lower it."""
        index = self._epochs.get(epoch)
        return None if index is None else index.highest_offset

    def list_remote_log_segments(self, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `epoch` by start offset, or all segments in order of arrival.

        Of segments with equal start offsets, the readable one comes first; the others follow in the order
        of Kafka's hash set. Segments that are deleted during the iteration are left out. Raise
        RemoteResourceNotFound, as Kafka does, if the epoch still lists a deleted segment.
        """
        if epoch is None:
            return self._metadata_of(self._columns.live_rows())
        if any(epoch in epochs for epochs in self._dangling.values()):
            raise RemoteResourceNotFound(f"leader epoch {epoch} lists a segment without metadata")
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

    def list_deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield each deleted segment once, in its last state; the cache must have `keep_deleted=True`.

        A segment that was added again after its deletion is left out.
        """
        columns = self._columns
        last_rows = {columns.ids.id_of(row): row for row in columns.dead_rows().tolist()}
        for segment_id, row in last_rows.items():
            if columns.ids.find(segment_id) < 0:
                yield columns.metadata(row)

    def unlisted_ids(self, state: RemoteLogSegmentState) -> list[bytes]:
        """Return the ids of segments in `state` that no leader epoch lists."""
        rows = self._columns.rows_in(state)
        listed = [np.fromiter(index.unreferenced, dtype=np.int64) for index in self._epochs.values()]
        listed += [index.readable() for index in self._epochs.values()]
        unlisted = np.setdiff1d(rows, np.concatenate(listed)) if listed else rows
        return [self._columns.ids.id_of(row) for row in unlisted.tolist()]

    def _metadata_of(self, rows: Rows) -> Iterator[RemoteLogSegmentMetadata]:
        columns, generation = self._columns, self._generation
        ids = columns.ids.as_words()[rows]
        for row, words in zip(rows.tolist(), ids, strict=True):
            # If the caller changed the cache meanwhile, `compact` may have renumbered the rows: look the id
            # up.
            at = row if generation == self._generation else columns.ids.find(words.tobytes())
            if at >= 0 and not columns.is_dead(at):
                yield columns.metadata(at)

    def leader_epochs(self) -> tuple[int, ...]:
        """Return every leader epoch that a segment ever named, ascending."""
        return tuple(sorted(self._epochs))


def refused_update(update: RemoteLogSegmentMetadataUpdate) -> IllegalEventError:
    """Return the error for an update to a state that no update may have."""
    what = f"update of segment {update.segment_id}"
    return IllegalEventError(what, expected="a later state", found=update.state)


def check_new_segment(metadata: RemoteLogSegmentMetadata) -> None:
    """Raise IllegalEventError for values that addCopyInProgressSegment or Kafka's constructor refuses."""
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


# Builds the cache of one user partition from its rows in the columns of a metadata partition, and back.
#
# The rows of a regular history determine the cache: every segment was finished above all that were finished
# before, so none superseded another, and Kafka's hash sets of unreferenced ids never grew.


class FormerEpoch(NamedTuple):
    """The entries of a leader epoch that remain after its segments were deleted.

    `highest_offset` is None if none of them was finished; `table_size` is that of Kafka's hash set of
    unreferenced ids, which never shrinks.
    """

    highest_offset: int | None = None
    table_size: int = FIRST_TABLE_SIZE


def rebuilt_cache(
    columns: SegmentColumns,
    partition: TopicIdPartition,
    former: Iterable[tuple[int, FormerEpoch]],
    *,
    keep_deleted: bool,
) -> RemoteLogMetadataCache:
    """Return the cache of `partition`, with the rows in `columns`, which then belong to the cache.

    `former` has the leader epochs that deleted segments named.
    """
    columns.names = [partition]
    view(columns.owners)[:] = 0
    epochs = dict(_indexes(columns))
    for epoch, facts in former:
        index = epochs.setdefault(epoch, EpochIndex(epoch, columns))
        index.table_size = facts.table_size
        if facts.highest_offset is not None:
            index.raise_highest_offset(facts.highest_offset)
    cache = RemoteLogMetadataCache.of_parts(
        CacheParts(columns, epochs, set(), {}), initialized=False, keep_deleted=keep_deleted
    )
    if keep_deleted:
        cache.count_dead(len(columns.dead_rows()))
    return cache


def _indexes(columns: SegmentColumns) -> Iterator[tuple[int, EpochIndex]]:
    """Yield the indexes of the leader epochs that segments name."""
    rows = columns.live_rows()
    runs = epoch_runs(columns, rows)
    flags, entered = view(columns.flags), view(columns.entered)
    for epoch, at, of_run in _by_epoch(runs, rows):
        index = EpochIndex(epoch, columns)
        own = flags[at]
        finished = (own & STATE_MASK) == FINISHED
        starts = runs.starts[of_run]
        index.append_many(at[finished][np.argsort(starts[finished], kind="stable")])
        waiting = at[~finished]
        index.unreferenced = dict.fromkeys(waiting[np.argsort(entered[waiting], kind="stable")].tolist())
        was_finished = (own & WAS_FINISHED) != 0
        if was_finished.any():
            index.raise_highest_offset(int(runs.ends[of_run][was_finished].max()))
        yield epoch, index


def _by_epoch(runs: EpochRuns, rows: Rows) -> Iterator[tuple[int, Rows, Rows]]:
    """Yield each leader epoch, the rows of its segments, and the indexes of their runs."""
    if not len(rows):
        return
    owners = rows if len(runs.epochs) == len(rows) else np.repeat(rows, runs.counts)
    first = int(runs.epochs[0])
    if (runs.epochs == first).all():
        yield first, owners, np.arange(len(owners))
        return
    order = np.argsort(runs.epochs, kind="stable")
    epochs = runs.epochs[order]
    for part in np.split(order, np.flatnonzero(np.diff(epochs)) + 1):
        yield int(runs.epochs[part[0]]), owners[part], part


class RegularParts(NamedTuple):
    """What the columns of a metadata partition keep of a cache: its live rows, epochs and highest start."""

    columns: SegmentColumns
    former: dict[int, FormerEpoch]
    top_start: int


def regular_parts(cache: RemoteLogMetadataCache, no_start: int) -> RegularParts | None:
    """Return the parts from which `rebuilt_cache` makes an equal cache; None if there are none.

    The cache is compacted; it must not be used afterwards if there are parts. `top_start` is `no_start`
    without a readable segment.
    """
    columns = cache.columns
    if cache.has_reshaped or cache.keep_deleted or columns.odd_epochs or len(columns.names) > 1:
        return None
    cache.compact()
    columns, epochs = cache.parts.columns, cache.parts.epochs
    if not _is_listed_as_rebuilt(cache):
        return None
    flags = view(columns.flags)
    flags[(flags & STATE_MASK) == FINISHED] |= WAS_FINISHED
    former = {epoch: FormerEpoch(index.highest_offset, index.table_size) for epoch, index in epochs.items()}
    tops = [index.start_of(index.rows[-1]) for index in epochs.values() if len(index.rows)]
    return RegularParts(columns, former, max(tops, default=no_start))


def _is_listed_as_rebuilt(cache: RemoteLogMetadataCache) -> bool:
    """Return whether the epoch indexes list the segments as `rebuilt_cache` would."""
    columns, epochs = cache.parts.columns, cache.parts.epochs
    rebuilt = dict(_indexes(columns))
    for epoch, index in epochs.items():
        other = rebuilt.pop(epoch, None) or EpochIndex(epoch, columns)
        waiting = list(index.unreferenced)
        if index.readable().tolist() != other.readable().tolist() or waiting != sorted(other.unreferenced):
            return False
        if waiting and index.table_size != FIRST_TABLE_SIZE:
            return False
    return not rebuilt
