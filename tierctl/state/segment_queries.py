"""Questions about the segments of a cache that its columns answer without an object per segment."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import (
    DEAD,
    FINISHED,
    ODD_EPOCHS,
    POOLED_EPOCHS,
    STATE_MASK,
    SegmentColumns,
)
from tierctl.state.segments.epoch_runs import end_offsets

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segments_in(
    cache: RemoteLogMetadataCache, state: RemoteLogSegmentState
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the segments in `state` in order of arrival."""
    return _metadata(cache.columns, cache.columns.rows_in(state))


def finished_before(cache: RemoteLogMetadataCache, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments that begin below `offset`, in order of arrival."""
    rows = cache.columns.rows_in(_FINISHED)
    return _metadata(cache.columns, rows[view(cache.columns.starts)[rows] < offset])


def finished_below(cache: RemoteLogMetadataCache, offset: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments that end below `offset`, in order of arrival."""
    rows = cache.columns.rows_in(_FINISHED)
    return _metadata(cache.columns, rows[end_offsets(cache.columns, rows) < offset])


def finished_of_epochs_below(cache: RemoteLogMetadataCache, epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments whose leader epochs are all below `epoch`, in order of arrival."""
    rows = cache.columns.rows_in(_FINISHED)
    return _metadata(cache.columns, rows[_last_epochs(cache.columns, rows) < epoch])


def finished_range(cache: RemoteLogMetadataCache) -> tuple[int, int] | None:
    """Return the lowest start and the highest end offset (inclusive) of finished segments; None without."""
    columns = cache.columns
    rows = columns.rows_in(_FINISHED)
    if not len(rows):
        return None
    return int(view(columns.starts)[rows].min()), int(end_offsets(columns, rows).max())


def newest_event_ms(cache: RemoteLogMetadataCache) -> int:
    """Return the latest event time of all segments; 0 without segments."""
    times = view(cache.columns.event_timestamps)[cache.columns.live_rows()]
    return int(times.max(initial=0))


def newest_segment(cache: RemoteLogMetadataCache) -> RemoteLogSegmentMetadata | None:
    """Return the most recent readable segment: latest leader epoch, then highest end offset.

    Of equal ones, the latest event decides, then the first arrival.
    """
    return newest_of(cache.columns, cache.columns.live_rows())


def newest_of(columns: SegmentColumns, rows: Rows) -> RemoteLogSegmentMetadata | None:
    """Return the segment that `newest_segment` returns, of those in `rows`, which are in order of arrival."""
    rows = rows[(view(columns.flags)[rows] & (DEAD | STATE_MASK)) == FINISHED]
    if not len(rows):
        return None
    order = np.lexsort(
        (
            -np.arange(len(rows)),
            view(columns.event_timestamps)[rows],
            end_offsets(columns, rows),
            _last_epochs(columns, rows),
        )
    )
    return columns.metadata(int(rows[order[-1]]))


def _last_epochs(columns: SegmentColumns, rows: Rows) -> npt.NDArray[np.int64]:
    """Return the highest leader epoch of each row."""
    epochs = view(columns.epochs)[rows].astype(np.int64)
    for at in np.flatnonzero(view(columns.flags)[rows] & (POOLED_EPOCHS | ODD_EPOCHS)).tolist():
        epochs[at] = max(epoch for epoch, _ in columns.leader_epochs(int(rows[at])))
    return epochs


def _metadata(columns: SegmentColumns, rows: Rows) -> Iterator[RemoteLogSegmentMetadata]:
    return (columns.metadata(row) for row in rows.tolist())
