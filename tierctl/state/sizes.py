"""Counts and sizes of the segments of user partitions, summed up from columns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tierctl.model import RemoteLogSegmentState
from tierctl.state.segments.arrays import Rows, view
from tierctl.state.segments.columns import DEAD, STATE_MASK, STATES, SegmentColumns
from tierctl.state.table import SegmentTable
from tierctl.state.tier import PartitionState, TierState

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """How many segments are in each state, and their `segment_size_in_bytes` in total.

    Both have one row per group of segments and one column per state, in the order of STATES.
    """

    counts: Int64s
    sizes_bytes: Int64s

    @classmethod
    def empty(cls, groups: int) -> Self:
        """Return the sizes of groups without segments."""
        shape = (groups, len(STATES))
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))

    def add(self, groups: Int64s, other: Self, rows: Rows) -> None:
        """Add row `rows[i]` of `other` to row `groups[i]`."""
        np.add.at(self.counts, groups, other.counts[rows])
        np.add.at(self.sizes_bytes, groups, other.sizes_bytes[rows])

    def of(self, group: int, state: RemoteLogSegmentState) -> tuple[int, int]:
        """Return the number of segments of one group that are in `state`, and their size in bytes."""
        at = group, STATES.index(state)
        return int(self.counts[at]), int(self.sizes_bytes[at])


def sizes_by_group(
    state: TierState, members: Iterable[tuple[int, PartitionState]], groups: int
) -> SegmentSizes:
    """Return the sizes of `groups` groups of user partitions; `members` has each with its group."""
    chosen: dict[int, list[tuple[int, int]]] = {number: [] for number in state.tables}
    for group, part in members:
        chosen[part.metadata_partition].append((group, part.number))
    sizes = SegmentSizes.empty(groups)
    for number, pairs in chosen.items():
        own, rows = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        sizes.add(own, _sizes_by_partition(state.tables[number]), rows)
    return sizes


def _sizes_by_partition(table: SegmentTable) -> SegmentSizes:
    """Return the sizes of each user partition of `table`; the number of the user partition is the row."""
    found = _sums(table.columns, len(table.counts))
    for number, cache in table.irregular.items():
        columns = cache.columns.taken(cache.columns.live_rows())
        view(columns.owners)[:] = 0
        own = _sums(columns, 1)
        found.counts[number], found.sizes_bytes[number] = own.counts[0], own.sizes_bytes[0]
    return found


def _sums(columns: SegmentColumns, partitions: int) -> SegmentSizes:
    flags = view(columns.flags)
    live = np.flatnonzero((flags & DEAD) == 0)
    keys = view(columns.owners)[live].astype(np.int64) * len(STATES) + (flags[live] & STATE_MASK)
    counts = np.bincount(keys, minlength=partitions * len(STATES))
    totals = _exact_sums(keys, view(columns.sizes)[live], partitions * len(STATES))
    return SegmentSizes(counts.reshape(-1, len(STATES)), totals.reshape(-1, len(STATES)))


def _exact_sums(keys: Int64s, sizes: npt.NDArray[np.int32], count: int) -> Int64s:
    """Return the sum of `sizes` for each key below `count`; `bincount` adds floats, so halves are added."""
    low, high = (np.bincount(keys, half, count).astype(np.int64) for half in (sizes & 0xFFFF, sizes >> 16))
    sums: Int64s = low + (high << 16)
    return sums
