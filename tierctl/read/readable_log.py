"""The readable log of one user partition: which segment, remote or local, is read for which offsets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    NotFoundError,
    ObjectArchived,
    RemoteResourceNotFound,
    SafetyRefusal,
    TierctlError,
    UnsupportedFormatError,
)
from tierctl.model import (
    IndexType,
    LocalLog,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierctl.plan.leader_views import joined_lineage
from tierctl.plan.preconditions import recency
from tierctl.read.segment import (
    BatchStream,
    Damage,
    Indexes,
    IndexFetcher,
    LocalSegmentFile,
    RemoteSegment,
    Report,
    Segment,
)
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    find_highest_remote_offset,
    segments_in_lineage,
)
from tierctl.state.log_start import extended_below, start_within
from tierctl.state.queries import PartitionSegments
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.batches.batch_head import LEADER_EPOCH_AT, Record
from tierctl.wire.batches.record_batch import RecordBatch
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.primitives import at_most, limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The replica to read, with the high watermark and last stable offset of all replicas, exclusive."""

    log: LocalLog
    lineage: Lineage
    high_watermark: int
    last_stable_offset: int


def choose_replica(logs: Sequence[LocalLog]) -> Replica | None:
    """Return the most recent replica of one partition.

    The high watermark of another replica holds for this one, too, up to the offset at which they diverge.
    """
    if not logs:
        return None
    log = max(logs, key=recency)
    lineage = Lineage(log.leader_epochs)
    common = [(other, _common_end(lineage, other, log.log_end_offset)) for other in logs]
    return Replica(
        log=log,
        lineage=lineage,
        high_watermark=max(min(other.high_watermark, end) for other, end in common),
        last_stable_offset=max(min(other.last_stable_offset, end) for other, end in common),
    )


def _common_end(lineage: Lineage, other: LocalLog, log_end_offset: int) -> int:
    """Return the offset at which `other`'s log diverges from the lineage, exclusive."""
    if not lineage or not other.leader_epochs:
        return log_end_offset if lineage.entries == tuple(other.leader_epochs) else 0
    latest_epoch = other.leader_epochs[-1].epoch
    return max(lineage.end_offset_for(latest_epoch, log_end_offset).end_offset, 0)


def tier_lineage(cache: RemoteLogMetadataCache, fetcher: IndexFetcher, report: Report) -> Lineage:
    """Return the lineage up to the newest readable segment, by its leader-epoch index.

    If that index is missing, damaged or may not be read, the lineage is built from the epochs of the
    segments; damage and refusals are reported. The lineage begins with the first segment, also if the index
    begins above it (`start_within`).
    """
    segments = PartitionSegments.of_cache(cache)
    newest = segments.newest()
    if newest is None:
        return Lineage()
    source = f"the leader-epoch index of remote segment {newest.segment_id}"
    try:
        data = fetcher.get(newest, IndexType.LEADER_EPOCH)
        lineage = Lineage(read_leader_epoch_checkpoint(data))
        if lineage.contains(newest, newest.end_offset + 1):
            return _from_first_segment(lineage, segments)
        report(_not_of(newest, lineage, source))
    except CorruptInputError as e:
        report(e.within(source))
    except (AuthenticationError, ObjectArchived) as e:
        report(e)
    except RemoteResourceNotFound:
        pass
    return lineage_from_segments(segments)


def _from_first_segment(lineage: Lineage, segments: PartitionSegments) -> Lineage:
    index_start = lineage.entries[0].start_offset
    first = min(segments.finished_before(index_start), key=lambda s: s.start_offset, default=None)
    if first is None:
        return lineage
    extended = Lineage(extended_below(lineage.entries, segments))
    return extended.truncate_from_start(start_within(first, index_start))


def lineage_from_segments(segments: PartitionSegments) -> Lineage:
    """Return the lineage that the leader epochs of readable segments form.

    An epoch belongs to the lineage if it starts before all later epochs of the lineage.
    """
    # `Lineage` removes an epoch if a later epoch has the same or a lower start offset.
    return Lineage(segments.epoch_starts())


def _not_of(segment: RemoteLogSegmentMetadata, lineage: Lineage, source: str) -> CorruptInputError:
    return CorruptInputError(
        "leader epochs",
        expected=f"those of the segment, {list(segment.segment_leader_epochs)}",
        found=repr(lineage),
        source=source,
    )


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


ReportLost = Callable[[TierctlError, int, int], None]
"""Receives an error, and the first and last offset that are unreadable because of it."""


class RangeReader:
    """Reads segment ranges of one partition; `lineage` has the epochs that their batches should have.

    Errors that make offsets unreadable go to `report_lost`, other errors of the data to `report`, and
    reading goes on. Other errors of the store are raised. Segments are read in ranges of `chunk_bytes`.
    """

    def __init__(
        self,
        lineage: Lineage,
        indexes: Indexes,
        report: Report,
        *,
        report_lost: ReportLost | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        self._lineage = lineage
        self._indexes = indexes
        self._report = report
        self._report_lost = report_lost or (
            lambda error, first, last: report(with_lost_offsets(error, first, last))
        )
        self._chunk_bytes = chunk_bytes

    def batches(
        self, segment_range: SegmentRange, first: int, last: int, *, timestamp_ms: int | None = None
    ) -> Iterator[RecordBatch]:
        """Yield readable batches with offsets in [first, last]; with `timestamp_ms`, from that time on."""
        segment, done = segment_range.segment, first - 1
        try:
            if timestamp_ms is None:
                position = self._indexes.position_for(segment, first)
            else:
                position = self._indexes.position_for_time(segment, timestamp_ms, first)
            epochs_agree = True
            for batch in BatchStream(segment, position=position, chunk_bytes=self._chunk_bytes):
                if isinstance(batch, Damage):
                    self._report_damage(segment_range, batch, first, last)
                    done = first - 1 if batch.next_offset is None else batch.next_offset - 1
                elif batch.head.base_offset > last:
                    return
                elif batch.head.last_offset >= first:
                    epochs_agree = epochs_agree and self._check_epoch(segment_range, batch)
                    yield batch
                    done = batch.head.last_offset
        except (CorruptInputError, SafetyRefusal, AuthenticationError, ObjectArchived) as e:
            # Of the objects, not of the log's batches: a manifest or a chunk, or a name in the metadata.
            self._report_lost(e, max(done + 1, first), last)
        except RemoteResourceNotFound as e:
            self._report_lost(_missing(segment_range, first, last, e), first, last)
        except NotFoundError as e:
            self._report_lost(e, first, last)

    def decoded(self, segment_range: SegmentRange, batch: RecordBatch) -> Iterator[Record]:
        """Yield the batch's records up to one that can't be decoded."""
        try:
            yield from batch.records()
        except CorruptInputError as e:
            error = e.within(segment_range.segment.name, base=batch.head.position)
            error.at = batch.head.position if error.at is None else error.at
            self._report_lost(error, batch.head.base_offset, batch.head.last_offset)
        except LimitExceeded as e:
            large = CorruptInputError(
                "record batch",
                expected=at_most(limits().batch_bytes, "bytes of records"),
                found=e.message,
                at=batch.head.position,
                source=segment_range.segment.name,
            )
            self._report_lost(large, batch.head.base_offset, batch.head.last_offset)

    def _check_epoch(self, segment_range: SegmentRange, batch: RecordBatch) -> bool:
        """Return whether the batch has the lineage's epoch for its offset; report a different epoch."""
        head = batch.head
        expected = self._lineage.epoch_for_offset(head.base_offset)
        if expected is None or not head.has_leader_epoch or head.partition_leader_epoch == expected:
            return True
        self._report(
            CorruptInputError(
                "leader epoch of a batch",
                expected=f"{expected} at offset {head.base_offset}",
                found=str(head.partition_leader_epoch),
                at=head.position + LEADER_EPOCH_AT,
                source=segment_range.segment.name,
            )
        )
        return False

    def _report_damage(self, segment_range: SegmentRange, damage: Damage, first: int, last: int) -> None:
        lost_last = segment_range.to_offset if damage.next_offset is None else damage.next_offset - 1
        if damage.first_offset <= last and lost_last >= first:
            self._report_lost(damage.error, max(damage.first_offset, first), min(lost_last, last))


def with_lost_offsets(error: TierctlError, first: int, last: int) -> TierctlError:
    """Return `error`; if it reports what can't be read, with the unreadable offsets in its hint."""
    if isinstance(error, UnsupportedFormatError | AuthenticationError | ObjectArchived):
        way_out = "" if error.hint is None else f"{error.hint}; "
        error.hint = f"{way_out}offsets {first} to {last} were not read, and reading continued after them"
        return error
    if not isinstance(error, CorruptInputError):
        return error
    return type(error)(
        error.what,
        expected=error.expected,
        found=error.found,
        at=error.at,
        source=error.source,
        hint=f"offsets {first} to {last} may be lost there; reading continued after them",
    )


def _missing(
    segment_range: SegmentRange, first: int, last: int, cause: RemoteResourceNotFound
) -> RemoteResourceNotFound:
    name = segment_range.segment.name
    return RemoteResourceNotFound(
        f"{name} does not exist: offsets {first} to {last} can't be read ({cause.message})",
        hint="check --remote: the metadata states that the segment was copied; reading continued after it",
    )
