"""The segments of user partitions that are not deleted, as columns, for tables with millions of rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.segments.arrays import Rows, ranges, view
from tierctl.state.segments.columns import (
    FINISHED,
    ODD_EPOCHS,
    POOLED_EPOCHS,
    STATE_MASK,
    WIDE,
    SegmentColumns,
)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EpochPairs:
    """The (epoch, start offset) pairs of all rows, concatenated; row i has `counts[i]` pairs."""

    counts: Int64s
    epochs: Int64s
    offsets: Int64s


@dataclass(frozen=True, slots=True)
class LiveSegments:
    """The segments of one or several user partitions; `rows` are their rows in `columns`.

    Fold no events into the columns while this object is in use.
    """

    columns: SegmentColumns
    rows: Rows

    @classmethod
    def of(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments of `cache` that are not deleted, in order of arrival."""
        return cls(cache.columns, cache.columns.live_rows())

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of one of the columns, with the rows of these segments."""
        values: npt.NDArray[Any] = view(getattr(self.columns, name))[self.rows]
        return values

    @property
    def states(self) -> npt.NDArray[np.uint8]:
        """Return the states as indexes of STATES."""
        states: npt.NDArray[np.uint8] = (self.column("flags") & STATE_MASK).astype(np.uint8)
        return states

    @property
    def ends(self) -> Int64s:
        """Return the last offsets (inclusive)."""
        lengths = self.column("ends")
        ends: Int64s = self.column("starts") + lengths.astype(np.int64)
        for at in np.flatnonzero(lengths == WIDE).tolist():
            ends[at] = self.columns.end_offset(int(self.rows[at]))
        return ends

    @property
    def ids(self) -> list[bytes]:
        """Return the segment ids, 16 bytes each."""
        raw = self.columns.ids.as_words()[self.rows].tobytes()
        return [raw[at : at + 16] for at in range(0, len(raw), 16)]

    def customs(self) -> list[bytes | None] | None:
        """Return the custom metadata; None if no segment ever had any."""
        if self.columns.customs is None:
            return None
        return [self.columns.custom(row) for row in self.rows.tolist()]

    def epoch_pairs(self) -> EpochPairs:
        """Return the leader epochs of the segments in the order of their events."""
        flags, own, starts = (
            self.column("flags"),
            self.column("epochs").astype(np.int64),
            self.column("starts"),
        )
        pooled = np.flatnonzero((flags & (POOLED_EPOCHS | ODD_EPOCHS)) == POOLED_EPOCHS)
        odd = np.flatnonzero(flags & ODD_EPOCHS)
        odd_pairs = [self.columns.odd_epochs[int(row)] for row in self.rows[odd]]
        pool = view(self.columns.pool)
        counts = np.ones(len(flags), dtype=np.int64)
        counts[pooled] = pool[own[pooled]]
        counts[odd] = [len(pairs) for pairs in odd_pairs]
        firsts = np.cumsum(counts) - counts
        epochs, offsets = np.repeat(own, counts), np.repeat(starts, counts)
        # An entry of the pool is [count, epoch, (epoch, offset)...]: the first two words are not a pair.
        places = ranges(firsts[pooled], counts[pooled])
        words = pool[ranges(own[pooled], 2 * counts[pooled])].reshape(-1, 2)
        is_first = np.isin(places, firsts[pooled], assume_unique=True)
        epochs[places] = np.where(is_first, words[:, 1], words[:, 0])
        offsets[places] += np.where(is_first, 0, words[:, 1])
        for at, pairs in zip(firsts[odd].tolist(), odd_pairs, strict=True):
            epochs[at : at + len(pairs)] = [epoch for epoch, _ in pairs]
            offsets[at : at + len(pairs)] = [offset for _, offset in pairs]
        return EpochPairs(counts, epochs, offsets)

    def plainly_in_order(self, pairs: EpochPairs, owners: Int64s, partitions: int) -> npt.NDArray[np.bool_]:
        """Return of each user partition whether its finished segments are one unbroken sequence.

        `owners[i]` is the user partition of segment i, a number below `partitions`; `pairs` are those of all
        segments. In an unbroken sequence each segment begins where the previous one ends, in the same epoch
        or a later one. If every leader epoch lists all of them, comparing the segments of such a partition
        with each other finds no problem.
        """
        at = np.flatnonzero(self.states == FINISHED)
        order = at[np.lexsort((self.column("starts")[at], owners[at]))]
        starts, ends, whose = self.column("starts")[order], self.ends[order], owners[order]
        is_broken = np.zeros(partitions, dtype=bool)
        is_broken[whose[1:][(whose[1:] == whose[:-1]) & (starts[1:] != ends[:-1] + 1)]] = True
        counts = pairs.counts[order]
        places = ranges((np.cumsum(pairs.counts) - pairs.counts)[order], counts)
        epochs, offsets, named_by = pairs.epochs[places], pairs.offsets[places], np.repeat(whose, counts)
        begins = np.zeros(len(places), dtype=bool)
        begins[np.cumsum(counts) - counts] = True
        rises = np.diff(epochs)
        follows = ((rises > 0) | ((rises == 0) & begins[1:])) & (np.diff(offsets) > 0)
        is_broken[named_by[1:][(named_by[1:] == named_by[:-1]) & ~follows]] = True
        is_broken[whose[(offsets[begins] != starts) | (offsets[np.cumsum(counts) - 1] > ends)]] = True
        return ~is_broken


def is_plainly_in_order(cache: RemoteLogMetadataCache) -> bool:
    """Return whether the finished segments are one unbroken sequence that every leader epoch lists."""
    live = LiveSegments.of(cache)
    pairs = live.epoch_pairs()
    listed = sum(len(index.rows) - index.removed for index in cache.parts.epochs.values())
    is_unbroken = live.plainly_in_order(pairs, np.zeros(len(live), np.int64), 1)[0]
    return bool(is_unbroken) and listed == int(pairs.counts[live.states == FINISHED].sum())
