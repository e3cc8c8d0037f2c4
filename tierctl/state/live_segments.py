"""The segments of a user partition that are not deleted, as columns, for tables with millions of rows."""

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
    """The segments of a cache in order of arrival; `rows` are their rows in `columns`.

    Fold no events into the cache while this object is in use.
    """

    cache: RemoteLogMetadataCache
    columns: SegmentColumns
    rows: Rows

    @classmethod
    def of(cls, cache: RemoteLogMetadataCache) -> Self:
        """Return the segments of `cache` that are not deleted."""
        return cls(cache, cache.columns, cache.columns.live_rows())

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

    def are_plainly_in_order(self, pairs: EpochPairs) -> bool:
        """Return whether all finished segments are one unbroken sequence that every leader epoch lists.

        Each segment begins where the previous one ends, in the same epoch or a later one, and no epoch forgot
        or superseded a segment. Comparing the segments of such a partition with each other finds no problem.
        """
        finished = self.states == FINISHED
        order = np.flatnonzero(finished)[np.argsort(self.column("starts")[finished], kind="stable")]
        starts, ends = self.column("starts")[order], self.ends[order]
        if not (starts[1:] == ends[:-1] + 1).all():
            return False
        counts = pairs.counts[order]
        places = ranges((np.cumsum(pairs.counts) - pairs.counts)[order], counts)
        epochs, offsets = pairs.epochs[places], pairs.offsets[places]
        continued = np.zeros(len(places), dtype=bool)
        continued[np.cumsum(counts) - counts] = True
        rises = np.diff(epochs)
        if not ((rises > 0) | ((rises == 0) & continued[1:])).all() or not (np.diff(offsets) > 0).all():
            return False
        if not (offsets[continued] == starts).all() or not (offsets[np.cumsum(counts) - 1] <= ends).all():
            return False
        listed = sum(len(index.rows) - index.removed for index in self.cache.parts.epochs.values())
        return listed == len(places)
