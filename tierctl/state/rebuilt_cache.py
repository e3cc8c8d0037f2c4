"""Builds the cache of one user partition from its rows in the columns of a metadata partition, and back.

The rows of a regular history determine the cache: every segment was finished above all that were finished
before, so none superseded another, and Kafka's hash sets of unreferenced ids never grew.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tierctl.model import TopicIdPartition
from tierctl.state.cache import CacheParts, RemoteLogMetadataCache
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import FINISHED, STATE_MASK, WAS_FINISHED, SegmentColumns
from tierctl.state.segments.epoch_index import FIRST_TABLE_SIZE, EpochIndex
from tierctl.state.segments.epoch_runs import EpochRuns, epoch_runs


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
