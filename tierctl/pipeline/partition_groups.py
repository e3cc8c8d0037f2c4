"""Facts of the user partitions of a table of segments in columns, many user partitions at a time.

They are read in groups of about GROUP_ROWS segments.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierctl.checks.findings import Finding
from tierctl.checks.metadata import Removals, check_partition_delete
from tierctl.checks.segments import check_failed_copies, check_partition, unfinished_finding
from tierctl.read.partition_reader import ReadablePartition
from tierctl.read.readable_log import lineage_from_segments
from tierctl.state.lineage import segments_in_lineage
from tierctl.state.queries import LiveSegments
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import FINISHED, NO_OFFSET, READABLE, WAITING
from tierctl.state.tier_state import PartitionState
from tierctl.wire.arrays import Bools, Int64s

GROUP_ROWS: Final = 1 << 17


class EpochFacts(NamedTuple):
    """A number of each leader epoch of each user partition, ordered by user partition and epoch."""

    owners: Int64s
    epochs: Int64s
    values: Int64s


def _nothing(_error: object) -> None:
    """Report no index problems: the check reads no index."""


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """User partitions that follow each other in the tables, and their segments that are not deleted.

    `owners[i]` is the index in `parts` of the user partition of segment i, ascending.
    """

    parts: Sequence[PartitionState]
    live: LiveSegments
    owners: Int64s

    def counts(self, chosen: Bools) -> Int64s:
        """Return the number of chosen segments of each user partition."""
        return np.bincount(self.owners[chosen], minlength=len(self.parts))

    def sums(self, values: Int64s) -> Int64s:
        """Return the sum of the segments' values by user partition."""
        bounds = np.searchsorted(self.owners, np.arange(len(self.parts) + 1))
        totals: Int64s = np.diff(np.concatenate([[0], np.cumsum(values)])[bounds])
        return totals

    def highest(self, values: Int64s, chosen: Bools) -> list[int | None]:
        """Return the highest value of the chosen segments of each user partition; None without any."""
        return _highest(self.owners[chosen], values[chosen], len(self.parts))

    def in_order(self) -> Bools:
        """Return of each user partition whether comparing its segments with each other finds no problem."""
        return self.live.plainly_in_order(self.live.epoch_pairs(), self.owners, len(self.parts))

    def log_starts(self, in_order: Bools) -> list[int | None]:
        """Return the lowest readable offset of each user partition in its current lineage; None without."""
        negated = self.highest(-self.live.column("start"), self.live.states == FINISHED)
        lowest = [None if each is None else -each for each in negated]
        for at in np.flatnonzero(~in_order).tolist():
            lowest[at] = _log_start(self.parts[at])
        return lowest

    def highest_by_epoch(self) -> EpochFacts:
        """Return the highest offset that was ever copied, in deleted segments as well."""
        epochs = self._epochs()
        return _sorted_facts(epochs[epochs["highest"] != NO_OFFSET], "highest")

    def sizes_by_epoch(self) -> EpochFacts:
        """Return the bytes of all segments that are listed for the epoch, which are more than 0."""
        segments, links = self.live.table.segments, self.live.table.links
        links = links[(links["status"] == READABLE) | (links["status"] == WAITING)]
        owners = self._places[segments["owner"][links["segment"]]]
        links, owners = links[owners >= 0], owners[owners >= 0]
        named, sizes = links["epoch"], segments["size"][links["segment"]].astype(np.int64)
        order = np.lexsort((named, owners))
        owners, named, sizes = owners[order], named[order].astype(np.int64), sizes[order]
        first = np.flatnonzero(np.append(True, (np.diff(owners) != 0) | (np.diff(named) != 0)))
        first = first[: len(owners)]
        totals = np.add.reduceat(sizes, first) if len(first) else sizes
        chosen = first[totals != 0]
        return EpochFacts(owners[chosen], named[chosen], totals[totals != 0])

    @property
    def _places(self) -> Int64s:
        """The index in `parts` of each user partition of the table, -1 of others."""
        places = np.full(len(self.live.table.partitions), -1, np.int64)
        places[[part.number for part in self.parts]] = np.arange(len(self.parts))
        return places

    def _epochs(self) -> npt.NDArray[Any]:
        """Return the leader epochs of the user partitions, with the indexes of these as owners."""
        epochs = self.live.table.epochs
        owners = self._places[epochs["owner"]]
        chosen: npt.NDArray[Any] = epochs[owners >= 0].copy()
        chosen["owner"] = owners[owners >= 0]
        return chosen

    def findings(self, in_order: Bools, now_ms: int) -> Iterator[Finding]:
        """Yield the findings of each user partition that need only metadata."""
        unfinished = np.flatnonzero(self.live.states != FINISHED)
        bounds = np.searchsorted(self.owners[unfinished], np.arange(len(self.parts) + 1)).tolist()
        rows = self.live.rows[unfinished].tolist()
        for at, (part, (first, end)) in enumerate(zip(self.parts, pairwise(bounds), strict=True)):
            removals = list(check_partition_delete(part))
            yield from removals
            found = self._segment_findings(part, rows[first:end], bool(in_order[at]), now_ms)
            yield from Removals.of(removals).applied(found)

    def _segment_findings(
        self, part: PartitionState, unfinished: Sequence[int], in_order: bool, now_ms: int
    ) -> Iterator[Finding]:
        whose = part.topic_id_partition
        if not in_order:
            readable = ReadablePartition(whose, part.cache, (), part.failed_copies)
            yield from check_partition(readable, None, _nothing, now_ms=now_ms)
            return
        segments = map(self.live.table.metadata, unfinished)
        for segment in sorted(segments, key=lambda s: (s.start_offset, s.end_offset)):
            yield unfinished_finding(whose, part.cache, segment, now_ms)
        yield from check_failed_copies(whose, part.failed_copies, None)


def groups_of(table: SegmentTable, parts: Sequence[PartitionState]) -> Iterator[PartitionGroup]:
    """Yield user partitions of a table in groups, in their order."""
    rows, bounds = _sorted_rows(table, parts)
    first = 0
    for end in range(1, len(parts) + 1):
        if end == len(parts) or bounds[end] - bounds[first] >= GROUP_ROWS:
            live = LiveSegments(table, rows[bounds[first] : bounds[end]])
            counts = np.diff(bounds[first : end + 1])
            yield PartitionGroup(parts[first:end], live, np.repeat(np.arange(end - first), counts))
            first = end


def _sorted_rows(table: SegmentTable, parts: Sequence[PartitionState]) -> tuple[Int64s, list[int]]:
    """Return the live rows of `parts` in their order, and where those of each part begin."""
    others = len(parts)
    # A stable sort of small integers takes a tenth of the time.
    ranks = np.full(len(table.partitions), others, np.uint16 if others < 1 << 16 else np.int32)
    ranks[[part.number for part in parts]] = np.arange(len(parts))
    rows = table.live_rows()
    own = ranks[table.segments["owner"][rows]]
    if others < len(table.partitions):
        rows, own = rows[own < others], own[own < others]
    ends = np.cumsum(np.bincount(own, minlength=len(parts)))
    return rows[np.argsort(own, kind="stable")], [0, *ends.tolist()]


def _highest(owners: Int64s, values: Int64s, partitions: int) -> list[int | None]:
    """Return the highest value of each of the user partitions, None without any; `owners` are ascending."""
    first = np.flatnonzero(np.append(True, np.diff(owners) != 0))[: len(owners)]
    found: list[Any] = [None] * partitions
    highest = np.maximum.reduceat(values, first) if len(first) else values
    for owner, value in zip(owners[first].tolist(), highest.tolist(), strict=True):
        found[owner] = value
    return found


def highest_of(facts: EpochFacts, partitions: int) -> list[int | None]:
    """Return the highest value of all leader epochs of each of the user partitions; None without any."""
    return _highest(facts.owners, facts.values, partitions)


def _sorted_facts(epochs: npt.NDArray[Any], name: str) -> EpochFacts:
    """Return a field of leader epochs, ordered by user partition and epoch."""
    order = np.lexsort((epochs["epoch"], epochs["owner"]))
    owners, numbers, values = (epochs[each][order].astype(np.int64) for each in ("owner", "epoch", name))
    return EpochFacts(owners, numbers, values)


def _log_start(part: PartitionState) -> int | None:
    first = next(segments_in_lineage(part.cache, lineage_from_segments(part.segments)), None)
    return None if first is None else first.from_offset
