"""One partition as retention sees it: the tier's side and the log's side put together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.steps import LINEAGE_EPOCH
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.tier import PartitionState

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True, kw_only=True)
class View:
    """What retention decides from.

    `segments` are all segments not yet deleted, in whatever state. `lineage` is as the log has it;
    `log_start_offset` may have been raised above where it starts. `log_end_offset` is exclusive.
    `local_only_bytes` is what the log holds above the tier, None when that is not known.
    """

    partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    segments: Sequence[RemoteLogSegmentMetadata]
    lineage: Lineage
    known_log_start_offset: int
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int | None

    def raised_to(self, log_start_offset: int) -> "View":
        """As of a log that starts at `log_start_offset`, if that is later than where it starts."""
        return replace(self, log_start_offset=max(self.log_start_offset, log_start_offset))

    @cached_property
    def current(self) -> Lineage:
        """The lineage of a log that starts at `log_start_offset`, as a broker's checkpoint would hold it."""
        return self.lineage.truncate_from_start(self.log_start_offset)

    def iter_live(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Readable segments of the current lineage that reach above the log start.

        In the order in which RLMExpirationTask meets them: by epoch, then by start offset.
        """
        seen: set[Uuid] = set()
        for epoch in self.current.epochs_with_records:
            for segment in self.cache.list_remote_log_segments(epoch):
                if segment.state is not FINISHED or segment.end_offset < self.log_start_offset:
                    continue
                if segment.segment_id not in seen and self.current.contains(segment, self.log_end_offset):
                    seen.add(segment.segment_id)
                    yield segment

    @property
    def decided_in(self) -> dict[str, int]:
        """The detail that says which lineage a step was decided in."""
        return {} if self.lineage.latest is None else {LINEAGE_EPOCH: self.lineage.latest.epoch}


def distinct_bytes(segments: Sequence[RemoteLogSegmentMetadata]) -> int:
    """Bytes of segments of one lineage, offsets that several of them hold counted once.

    Of a segment that overlaps the ones before it only the share of offsets they don't have counts.
    """
    total = 0
    covered = -1
    for segment in sorted(segments, key=lambda s: (s.start_offset, -s.end_offset)):
        offsets = segment.end_offset - segment.start_offset + 1
        new_offsets = segment.end_offset - max(segment.start_offset - 1, covered)
        if new_offsets > 0:
            total += segment.segment_size_in_bytes * new_offsets // offsets
            covered = segment.end_offset
    return total


def view_of_log(part: PartitionState, log: LocalLog) -> View:
    """The partition with its log at hand."""
    lineage = Lineage(log.leader_epochs)
    highest = find_highest_remote_offset(part.cache, lineage, log.log_end_offset).offset
    local_only = sum(s.size_bytes for s in log.segments if s.base_offset > highest)
    return View(
        partition=part.topic_id_partition,
        cache=part.cache,
        segments=tuple(part.cache.list_remote_log_segments()),
        lineage=lineage,
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        # Nothing copied that this lineage knows of: the same bytes may be in both places.
        local_only_bytes=None if highest < 0 else local_only,
    )


def view_of_tier(part: PartitionState, entries: Sequence[EpochEntry]) -> View:
    """The partition with nothing but a lineage, that of the newest segment's leader-epoch index."""
    lineage = Lineage(entries)
    segments = tuple(part.cache.list_remote_log_segments())
    start = entries[0].start_offset if entries else 0
    return View(
        partition=part.topic_id_partition,
        cache=part.cache,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        log_end_offset=max((s.end_offset + 1 for s in segments if s.state is FINISHED), default=0),
        local_only_bytes=None,
    )
