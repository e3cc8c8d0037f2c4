"""Choose the segments that --deep reads, and count the bytes read in this run and in the last 30 days."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

from tierctl.model import RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.engine import Severity
from tierctl.state.segments.columns import view
from tierctl.state.tier import TierState
from tierctl.verify.findings import Finding, FindingKind
from tierctl.verify.objects import Tally, columns_of
from tierctl.verify.tasks import SegmentsTask

_Key = tuple[Uuid, int]
_NOT_READ_KINDS = frozenset(
    {FindingKind.UNREADABLE_OBJECT, FindingKind.MISSING_OBJECT, FindingKind.CORRUPT_LOG}
)
"""A damaged log counts as not read: its next bytes may not have been found."""


class StoredSegment(NamedTuple):
    """A finished segment: the size of its log by the metadata, and of all its objects in the store."""

    partition: TopicIdPartition
    segment_id: Uuid
    log_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The segments of a sample that may be read; `sampled` counts also those that the budget excluded."""

    segment_ids: Collection[Uuid]
    sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A random sample of segments: `percent` of them, as far as their objects fit into `budget_bytes`.

    The order depends only on `seed`, the segment ids and `was_read`: segments that other runs read in the
    last 30 days come last.
    """

    percent: float
    seed: int
    budget_bytes: int | None = None
    was_read: Callable[[_Key, Uuid], bool] = lambda _key, _segment_id: False

    def choose(self, segments: Iterable[StoredSegment]) -> Chosen:
        """Return the segments to read; the first one that exceeds the budget ends the choice."""
        ordered = sorted(segments, key=self._place)
        # Rounded before `ceil`, because 7 % of 100 segments is 7.000000000000001 in floating point.
        wanted = ordered[: ceil(round(len(ordered) * self.percent / 100, 6))]
        taken: set[Uuid] = set()
        left_bytes = self.budget_bytes
        for each in wanted:
            size_bytes = max(each.stored_bytes, each.log_bytes)
            if left_bytes is not None:
                if size_bytes > left_bytes:
                    break
                left_bytes -= size_bytes
            taken.add(each.segment_id)
        return Chosen(segment_ids=taken, sampled=len(wanted))

    def _place(self, segment: StoredSegment) -> tuple[bool, bytes]:
        content = self.seed.to_bytes(8, "big") + segment.segment_id.bytes
        recent = self.was_read(segment.partition.key, segment.segment_id)
        return recent, blake2b(content, digest_size=16).digest()


@dataclass(slots=True, kw_only=True)
class DeepReads:
    """The segments that one run of --deep reads; numbers are final once all findings are consumed.

    Bytes are those of logs, as stated in the metadata. `was_read` returns whether an earlier run read a
    segment in the last 30 days; None without a state directory, which stores that.
    """

    sample: Sample | None = None
    was_read: Callable[[_Key, Uuid], bool] | None = None
    chosen: Chosen | None = None
    """The segments to read; None for all."""
    segments: int = 0
    """Finished segments of the selection."""
    size_bytes: int = 0
    planned_bytes: int = 0
    """Bytes of the segments that this run reads if nothing fails."""
    segments_read: int = 0
    bytes_read: int = 0
    recent_bytes: int = 0
    """Bytes of segments that were read in the last 30 days, by this run or an earlier one."""
    read: dict[_Key, set[Uuid]] = field(default_factory=dict)
    """Segments whose log and indexes were read to their ends in this run, by partition."""

    def begin(self, segments: Iterable[StoredSegment]) -> None:
        """Choose among the finished `segments` of the selection."""
        found = list(segments)
        self.segments, self.size_bytes = len(found), sum(each.log_bytes for each in found)
        if self.was_read is not None:
            self.recent_bytes = sum(
                each.log_bytes for each in found if self.was_read(each.partition.key, each.segment_id)
            )
        self.planned_bytes = self.size_bytes
        if self.sample is not None:
            self.chosen = self.sample.choose(found)
            taken = self.chosen.segment_ids
            self.planned_bytes = sum(each.log_bytes for each in found if each.segment_id in taken)

    def add(self, task: SegmentsTask, findings: Iterable[Finding]) -> None:
        """Count the segments of `task`, but for those with objects that could not be read."""
        failed = {finding.segment_id for finding in findings if finding.kind in _NOT_READ_KINDS}
        for segment in task.segments:
            segment_id = segment.segment_id
            if segment_id in failed or segment_id in task.suspects:
                continue
            key, size_bytes = segment.topic_id_partition.key, segment.segment_size_in_bytes
            self.read.setdefault(key, set()).add(segment_id)
            self.segments_read += 1
            self.bytes_read += size_bytes
            if self.was_read is not None and not self.was_read(key, segment_id):
                self.recent_bytes += size_bytes

    @property
    def over_budget(self) -> int:
        """Number of sampled segments that were left out because the budget was used up."""
        return 0 if self.chosen is None else self.chosen.sampled - len(self.chosen.segment_ids)

    def share(self, size_bytes: int) -> str:
        """Return which part of all bytes `size_bytes` are; rounded down, so that 100% means all."""
        if not self.size_bytes:
            return "0%"
        return f"{size_bytes * 1000 // self.size_bytes / 10:g}%"

    @property
    def recent_text(self) -> str:
        """Return a text with the share of bytes that was read in the last 30 days, or that it is unknown."""
        if self.was_read is None:
            return "the share of the last 30 days is not known without --state-dir"
        return f"{self.share(self.recent_bytes)} in the last 30 days"

    @property
    def text(self) -> str:
        """Return the amount that was read: `read 4 of 43 segments, 9.1% of the bytes (seed 7)`."""
        share = self.share(self.bytes_read)
        text = f"read {self.segments_read} of {self.segments} segments, {share} of the bytes"
        if self.sample is None and self.was_read is None:
            return text
        text += f" (seed {self.sample.seed})" if self.sample is not None else ""
        text += f", {self.recent_text}"
        return f"{text}; --budget ended the run early" if self.over_budget else text

    def not_read(self) -> Finding | None:
        """Return the finding about segments that a sample did not read; None if all were read."""
        if self.sample is None or self.segments_read >= self.segments:
            return None
        message = (
            f"{self.segments - self.segments_read} of {self.segments} segments were not read in this run: it "
            f"read {self.bytes_read} of {self.size_bytes} bytes ({self.share(self.bytes_read)}, seed "
            f"{self.sample.seed}); {self.recent_text}"
        )
        if self.over_budget:
            message += (
                f"; --budget {self.sample.budget_bytes} bytes ended the run early, with {self.over_budget} "
                f"of {self.chosen.sampled if self.chosen else 0} sampled segments left"
            )
        return Finding(
            kind=FindingKind.NOT_READ,
            severity=Severity.INFO if self.segments_read else Severity.WARNING,
            topic=None,
            topic_id=None,
            partition=None,
            message=message,
        )


def stored_segments(
    state: TierState, tally: Tally, is_read: Callable[[TopicIdPartition], bool]
) -> Iterator[StoredSegment]:
    """Yield the finished segments, and their sizes, of the partitions for which `is_read` is true.

    `tally` has listed the objects of `state`, which no event may have changed since.
    """
    for part in state:
        partition = part.topic_id_partition
        if not is_read(partition):
            continue
        columns = columns_of(part)
        rows = columns.rows_in(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        logs, totals = view(columns.sizes)[rows], tally.totals_by_row(partition.key)[rows]
        for row, log_bytes, total_bytes in zip(rows.tolist(), logs.tolist(), totals.tolist(), strict=True):
            segment_id = Uuid.from_bytes(columns.ids.id_of(row))
            yield StoredSegment(partition, segment_id, log_bytes, total_bytes)
