"""What there is to read of one user partition: which segment answers for which offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from tierctl.errors import NotFoundError
from tierctl.model import LocalLog, RemoteLogSegmentMetadata, TopicIdPartition
from tierctl.plan.retention.leaders import joined_lineage
from tierctl.read.index_lookup import IndexFetcher, Report, Segment
from tierctl.read.replicas import Replica, choose_replica, newest_segment, tier_lineage
from tierctl.read.segment_bytes import LocalSegmentFile, RemoteSegment
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.storage.base import RemoteStorageManager


class SegmentRange(NamedTuple):
    """The part [from_offset, to_offset], both inclusive, of a segment that answers for these offsets."""

    segment: Segment
    from_offset: int
    to_offset: int

    @property
    def max_timestamp_ms(self) -> int | None:
        """Largest timestamp of the piece's segment; None when it is not known."""
        segment = self.segment
        known = (
            segment.metadata.max_timestamp_ms
            if isinstance(segment, RemoteSegment)
            else segment.segment.max_timestamp_ms
        )
        return known if known > 0 else None


class SegmentRanges:
    """SegmentRanges by number, ascending, found one by one as they are asked for."""

    def __init__(self, pieces: Iterator[SegmentRange]) -> None:
        self._rest = pieces
        self._found: list[SegmentRange] = []

    def get(self, number: int) -> SegmentRange | None:
        """The piece of that number, None after the last."""
        while len(self._found) <= number:
            piece = next(self._rest, None)
            if piece is None:
                return None
            self._found.append(piece)
        return self._found[number]

    def __iter__(self) -> Iterator[SegmentRange]:
        number = 0
        while (piece := self.get(number)) is not None:
            yield piece
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableLog:
    """One user partition as its current leader would serve it.

    Below `local_start_offset` the tier answers, from there on the chosen replica's log. `log_start_offset`
    is inclusive, ends are exclusive: `end_offset` is the high watermark, or without a local log the end
    of the tier; `stable_end_offset` is the last stable offset, but no less than what was tiered, as that
    was stable. `stable_is_known` says that the log itself told it.
    """

    topic_id_partition: TopicIdPartition
    lineage: Lineage
    log_start_offset: int
    end_offset: int
    stable_end_offset: int
    stable_is_known: bool
    latest_tiered_offset: int
    """Highest offset copied in this lineage, as brokers answer for latest-tiered; -1 when there is none."""
    replica: Replica | None
    cache: RemoteLogMetadataCache
    remote: RemoteStorageManager

    @property
    def local_start_offset(self) -> int | None:
        """First offset that the local log answers for; None without a local log."""
        if self.replica is None or not self.replica.log.segments:
            return None
        return max(self.replica.log.local_log_start_offset, self.log_start_offset)

    def remote_segment_for(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The remote segment that answers for an offset, whether or not a local log has it too."""
        span = next(segments_in_lineage(self.cache, self.lineage, offset, offset), None)
        return span.segment if span is not None else None

    def segment_ranges(self, start_offset: int) -> SegmentRanges:
        """What answers from `start_offset` on up to the end; holes between pieces have no segment."""
        return SegmentRanges(self._pieces(max(start_offset, self.log_start_offset)))

    def missing_offsets(self, first: int, end: int) -> NotFoundError:
        """That offsets from `first` up to, not including, `end` are in no piece."""
        return NotFoundError(
            f"offsets {first} to {end - 1} of {self.topic_id_partition.topic_partition} are in no "
            "segment of the current lineage",
            hint="see tierctl segments --check; with --log-dir the brokers' logs may have them",
        )

    def _pieces(self, start_offset: int) -> Iterator[SegmentRange]:
        local_start = self.local_start_offset
        tier_last = (self.end_offset if local_start is None else min(local_start, self.end_offset)) - 1
        if start_offset <= tier_last:
            for span in segments_in_lineage(self.cache, self.lineage, start_offset, tier_last):
                yield SegmentRange(RemoteSegment(span.segment, self.remote), span.from_offset, span.to_offset)
        if self.replica is not None and local_start is not None:
            yield from self._local_pieces(self.replica.log, max(start_offset, local_start))

    def _local_pieces(self, log: LocalLog, start_offset: int) -> Iterator[SegmentRange]:
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
        """From the tier's metadata and the replicas' logs of this partition, which may be none.

        `log_start_offset` is what a running leader says, and goes before what a log on disk does.
        """
        replica = choose_replica(logs)
        if replica is not None and replica.lineage:
            lineage = replica.lineage
            if log_start_offset is not None and log_start_offset < replica.log.log_start_offset:
                # A running broker writes its log's start down only now and then.
                lineage = joined_lineage(tier_lineage(cache, fetcher, report).entries, lineage.entries)
        else:
            # A log without epochs never held a record, so it knows nothing that the tier doesn't.
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
    """Log start offset, high watermark, log end offset."""
    return replica.log.log_start_offset, replica.high_watermark, replica.log.log_end_offset


def _tier_range(cache: RemoteLogMetadataCache, lineage: Lineage) -> tuple[int, int, int]:
    """The same as far as the tier knows them: from its first readable offset to its last."""
    first = next(segments_in_lineage(cache, lineage), None)
    newest = newest_segment(cache.list_remote_log_segments())
    if first is None or newest is None:
        return 0, 0, 0
    return first.from_offset, newest.end_offset + 1, newest.end_offset + 1
