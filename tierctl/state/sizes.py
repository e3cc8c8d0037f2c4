"""Counts and sizes of the segments of user partitions, summed up from columns."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentState
from tierctl.state.segments.arrays import view
from tierctl.state.segments.columns import DEAD, STATE_MASK, STATES, SegmentColumns
from tierctl.state.table import SegmentTable

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class SegmentSizes:
    """How many segments are in each state, and their `segment_size_in_bytes` in total."""

    counts: dict[RemoteLogSegmentState, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    sizes_bytes: dict[RemoteLogSegmentState, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))

    def __iadd__(self, other: Self) -> Self:
        for state in STATES:
            self.counts[state] += other.counts[state]
            self.sizes_bytes[state] += other.sizes_bytes[state]
        return self


def sizes_by_partition(table: SegmentTable) -> list[SegmentSizes]:
    """Return the sizes of each user partition of `table`, by number."""
    found = [*_sums(table.columns, len(table.counts))]
    for number, cache in table.irregular.items():
        columns = cache.columns.taken(cache.columns.live_rows())
        view(columns.owners)[:] = 0
        (found[number],) = _sums(columns, 1)
    return found


def _sums(columns: SegmentColumns, partitions: int) -> list[SegmentSizes]:
    flags = view(columns.flags)
    live = np.flatnonzero((flags & DEAD) == 0)
    keys = view(columns.owners)[live].astype(np.int64) * len(STATES) + (flags[live] & STATE_MASK)
    counts = np.bincount(keys, minlength=partitions * len(STATES))
    totals: npt.NDArray[Any] = np.zeros(partitions * len(STATES), dtype=np.int64)
    np.add.at(totals, keys, view(columns.sizes)[live])
    return [
        SegmentSizes(dict(zip(STATES, own, strict=True)), dict(zip(STATES, sizes, strict=True)))
        for own, sizes in zip(
            counts.reshape(-1, len(STATES)).tolist(), totals.reshape(-1, len(STATES)).tolist(), strict=True
        )
    ]
