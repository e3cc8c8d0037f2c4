"""The readable log of one user partition: which segment, remote or local, is read for which offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from tierctl.errors import NotFoundError
from tierctl.model import LocalLog, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.plan.retention.leaders import joined_lineage
from tierctl.read.index_lookup import IndexFetcher, Report, Segment
from tierctl.read.replicas import Replica, choose_replica, tier_lineage
from tierctl.read.segment_bytes import LocalSegmentFile, RemoteSegment
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.state.partition_segments import PartitionSegments
from tierctl.storage.base import RemoteStorageManager


class SegmentRange(NamedTuple):
    """The offsets [from_offset, to_offset] of a partition, both inclusive, which are read from `segment`."""

    segment: Segment
    from_offset: int
    to_offset: int

    @property
    def max_timestamp_ms(self) -> int | None:
        """Largest timestamp of the whole segment; None if it is not known."""
        segment = self.segment
        known = (
            segment.metadata.max_timestamp_ms
            if isinstance(segment, RemoteSegment)
            else segment.segment.max_timestamp_ms
        )
        return known if known > 0 else None


class SegmentRanges:
    """Segment ranges in offset order, each computed when it is first requested."""

    def __init__(self, ranges: Iterator[SegmentRange]) -> None:
        self._remaining = ranges
        self._found: list[SegmentRange] = []

    def get(self, number: int) -> SegmentRange | None:
        """Return range `number`, from 0; None after the last range."""
        while len(self._found) <= number:
            segment_range = next(self._remaining, None)
            if segment_range is None:
                return None
            self._found.append(segment_range)
        return self._found[number]

    def __iter__(self) -> Iterator[SegmentRange]:
        number = 0
        while (segment_range := self.get(number)) is not None:
            yield segment_range
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableLog:
    """The log of one user partition as its current leader would serve it.

    Offsets below `local_start_offset` are read from the tier, the others from the chosen replica's log.
    `log_start_offset` is inclusive; ends are exclusive. `end_offset` is the high watermark, or the end of the
    tier if there is no local log. `stable_end_offset` is the last stable offset, but not below the end of the
    tiered offsets, because brokers copy only stable records; `stable_is_known`: the local log has it.
    """

    topic_id_partition: TopicIdPartition
    lineage: Lineage
    log_start_offset: int
    end_offset: int
    stable_end_offset: int
    stable_is_known: bool
    latest_tiered_offset: int
    """Highest offset copied in this lineage, Kafka's offset spec latest-tiered; -1 if nothing is copied."""
    replica: Replica | None
    cache: RemoteLogMetadataCache
    remote: RemoteStorageManager

    @property
    def local_start_offset(self) -> int | None:
        """First offset that is read from the local log; None without a local log."""
        if self.replica is None or not self.replica.log.segments:
            return None
        return max(self.replica.log.local_log_start_offset, self.log_start_offset)

    def remote_segment_for(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the remote segment with an offset, even if a local log has the offset, too."""
        span = next(segments_in_lineage(self.cache, self.lineage, offset, offset), None)
        return span.segment if span is not None else None

    def segment_ranges(self, start_offset: int) -> SegmentRanges:
        """Return the ranges from `start_offset` to the end; offsets between two ranges are in no segment."""
        return SegmentRanges(self._segment_ranges(max(start_offset, self.log_start_offset)))

    def missing_offsets(self, first: int, end: int) -> NotFoundError:
        """Return the error for offsets from `first` to `end` (exclusive) that no range contains."""
        return NotFoundError(
            f"offsets {first} to {end - 1} of {self.topic_id_partition.topic_partition} are in no "
            "segment of the current lineage",
            hint="see tierctl segments --check; the brokers' logs (--log-dir) may have these offsets",
        )

    def _segment_ranges(self, start_offset: int) -> Iterator[SegmentRange]:
        local_start = self.local_start_offset
        tier_last = (self.end_offset if local_start is None else min(local_start, self.end_offset)) - 1
        if start_offset <= tier_last:
            for span in segments_in_lineage(self.cache, self.lineage, start_offset, tier_last):
                yield SegmentRange(RemoteSegment(span.segment, self.remote), span.from_offset, span.to_offset)
        if self.replica is not None and local_start is not None:
            yield from self._local_ranges(self.replica.log, max(start_offset, local_start))

    def _local_ranges(self, log: LocalLog, start_offset: int) -> Iterator[SegmentRange]:
        for segment in log.segments:
            following = segment.next_base_offset
            last = self.end_offset - 1 if following is None else min(following, self.end_offset) - 1
            first = max(segment.base_offset, start_offset)
            if first <= last:
                yield SegmentRange(LocalSegmentFile(segment), first, last)

    @classmethod
    def of(
        cls,
        topic_id_partition: TopicIdPartition,
        cache: RemoteLogMetadataCache,
        logs: Sequence[LocalLog],
        *,
        remote: RemoteStorageManager,
        fetcher: IndexFetcher,
        report: Report,
        log_start_offset: int | None = None,
    ) -> Self:
        """Return the readable log by the tier's metadata in `cache` and the replicas' `logs`, if any.

        `log_start_offset` is the log start offset of a running leader; it takes precedence over that of a log
        on disk. Damaged indexes go to `report`.
        """
        replica = choose_replica(logs)
        if replica is not None and replica.lineage:
            lineage = replica.lineage
            if log_start_offset is not None and log_start_offset < replica.log.log_start_offset:
                # A running broker checkpoints its log start offset only now and then.
                lineage = joined_lineage(tier_lineage(cache, fetcher, report).entries, lineage.entries)
        else:
            # A log without leader epochs never contained a record.
            replica, lineage = None, tier_lineage(cache, fetcher, report)
        start, end, log_end = _tier_range(cache, lineage) if replica is None else _log_range(replica)
        start = start if log_start_offset is None else log_start_offset
        tiered = find_highest_remote_offset(cache, lineage, log_end).offset
        stable = end if replica is None else replica.last_stable_offset
        return cls(
            topic_id_partition=topic_id_partition,
            lineage=lineage,
            log_start_offset=start,
            end_offset=max(end, tiered + 1),
            stable_end_offset=max(stable, tiered + 1),
            stable_is_known=replica is not None and stable > tiered,
            latest_tiered_offset=tiered,
            replica=replica,
            cache=cache,
            remote=remote,
        )


def _log_range(replica: Replica) -> tuple[int, int, int]:
    """Return log start offset, high watermark and log end offset of a replica."""
    return replica.log.log_start_offset, replica.high_watermark, replica.log.log_end_offset


def _tier_range(cache: RemoteLogMetadataCache, lineage: Lineage) -> tuple[int, int, int]:
    """Return the first readable offset of the tier, and the end of its newest segment twice."""
    first = next(segments_in_lineage(cache, lineage), None)
    newest = PartitionSegments.of_cache(cache).newest()
    if first is None or newest is None:
        return 0, 0, 0
    return first.from_offset, newest.end_offset + 1, newest.end_offset + 1
