"""Read the records of one user partition as a consumer would, from the tier and the local log."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.model import (
    IsolationLevel,
    LocalLog,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.read.aborted_transactions import AbortedTransactions
from tierctl.read.readable_log import RangeReader, ReadableLog, SegmentRange
from tierctl.read.segment import Indexes, IndexFetcher, Report
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.log_start import with_tier_start
from tierctl.state.tier_state import FailedCopies, TierState
from tierctl.wire.batches.batch_head import Header


class FetchedRecord(NamedTuple):
    """A record as a consumer receives it; null keys, values and header values are None."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class TimestampAndOffset(NamedTuple):
    """Timestamp and offset of the record that a look-up by time found."""

    timestamp_ms: int
    offset: int


class PartitionReader:
    """Reads one partition in bounded memory: segments are read in ranges, in offset order.

    Each offset is read once, from the segment of the current lineage. Damaged batches, missing objects and
    offsets that no segment contains are errors for `report`, after which reading goes on. Other errors of the
    store are raised.
    """

    def __init__(
        self,
        log: ReadableLog,
        fetcher: IndexFetcher,
        report: Report,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self._log = log
        self._report = report
        self._indexes = Indexes(fetcher, report)
        self._range_reader = RangeReader(log.lineage, self._indexes, report)
        self._committed_only = isolation is IsolationLevel.READ_COMMITTED

    @cached_property
    def undecided_offset(self) -> int | None:
        """First offset of a transaction whose end the tier does not contain; None if there is none.

        It limits only read_committed, and only if no local log has the last stable offset.
        """
        if not self._committed_only or self._log.stable_is_known:
            return None
        ranges = self._log.segment_ranges(self._log.log_start_offset)
        return AbortedTransactions(ranges, self._indexes, self._report).first_open_offset()

    @property
    def end_offset(self) -> int:
        """End of the readable records, exclusive: the high watermark, or the last stable offset."""
        if not self._committed_only:
            return self._log.end_offset
        undecided = self.undecided_offset
        stable = self._log.stable_end_offset
        return stable if undecided is None else min(stable, undecided)

    def read(
        self, start_offset: int | None = None, until_offset: int | None = None
    ) -> Iterator[FetchedRecord]:
        """Yield the records from `start_offset` (None: the log's start) to `until_offset`, exclusive.

        Raise NotFoundError if `start_offset` is out of range, as a broker raises OffsetOutOfRange.
        """
        return self._records(*self.span(start_offset, until_offset))

    def span(self, start_offset: int | None = None, until_offset: int | None = None) -> tuple[int, int]:
        """Return first offset and end (exclusive) of the records that `read` yields; raise as `read`."""
        start = self._log.log_start_offset if start_offset is None else start_offset
        self._check_range(start)
        return start, self.end_offset if until_offset is None else min(until_offset, self.end_offset)

    def offset_for_time(self, timestamp_ms: int, from_offset: int | None = None) -> TimestampAndOffset | None:
        """Return the first record from `from_offset` on that is not earlier than `timestamp_ms`, or None.

        This is Kafka's ListOffsets by timestamp: in offset order, control records included.
        """
        start = self._log.log_start_offset if from_offset is None else from_offset
        for segment_range in self._log.segment_ranges(start):
            if segment_range.from_offset >= self.end_offset:
                return None
            if segment_range.max_timestamp_ms is not None and segment_range.max_timestamp_ms < timestamp_ms:
                continue
            last = min(segment_range.to_offset, self.end_offset - 1)
            for batch in self._range_reader.batches(
                segment_range, segment_range.from_offset, last, timestamp_ms=timestamp_ms
            ):
                if batch.head.max_timestamp_ms < timestamp_ms:
                    continue
                for record in self._range_reader.decoded(segment_range, batch):
                    if (
                        record.timestamp_ms >= timestamp_ms
                        and segment_range.from_offset <= record.offset <= last
                    ):
                        return TimestampAndOffset(record.timestamp_ms, record.offset)
        return None

    def _check_range(self, start: int) -> None:
        if self._log.log_start_offset <= start <= self._log.end_offset:
            return
        raise NotFoundError(
            f"offset {start} of {self._log.topic_id_partition.topic_partition} is out of range",
            hint=f"there are offsets from {self._log.log_start_offset} up to {self._log.end_offset - 1}",
        )

    def _records(self, start: int, end: int) -> Iterator[FetchedRecord]:
        ranges = self._log.segment_ranges(start)
        aborted = AbortedTransactions(ranges, self._indexes, self._report)
        expected = start
        for segment_range in ranges:
            if expected >= end:
                return
            if segment_range.from_offset > expected:
                self._report(self._log.missing_offsets(expected, min(segment_range.from_offset, end)))
            yield from self._records_of(segment_range, max(segment_range.from_offset, start), end, aborted)
            expected = segment_range.to_offset + 1
        if expected < end:
            self._report(self._log.missing_offsets(expected, end))

    def _records_of(
        self, segment_range: SegmentRange, first: int, end: int, aborted: AbortedTransactions
    ) -> Iterator[FetchedRecord]:
        last = min(segment_range.to_offset, end - 1)
        for batch in self._range_reader.batches(segment_range, first, last):
            head = batch.head
            if head.is_control:
                continue
            if self._committed_only and aborted.is_aborted(head):
                continue
            for record in self._range_reader.decoded(segment_range, batch):
                if first <= record.offset <= last:
                    yield FetchedRecord(
                        record.offset,
                        record.timestamp_ms,
                        head.timestamp_type,
                        head.partition_leader_epoch,
                        record.key,
                        record.value,
                        record.headers,
                    )


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class PartitionSet(Protocol):
    """A set of user partitions, such as a resolved Selection."""

    def __contains__(self, partition: TopicIdPartition, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A user partition, its metadata, and the logs of its replicas, if any."""

    topic_id_partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    logs: tuple[LocalLog, ...]
    failed_copies: FailedCopies | None = None

    @property
    def offset_count(self) -> int:
        """Number of offsets from the first to the last of its readable segments and its logs."""
        finished = [s for s in self.cache.list_remote_log_segments() if s.state is _FINISHED]
        starts = [s.start_offset for s in finished] + [log.log_start_offset for log in self.logs]
        ends = [s.end_offset + 1 for s in finished] + [log.log_end_offset for log in self.logs]
        return max(max(ends) - min(starts), 0) if starts else 0


def readable_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet, *, by_name: bool
) -> list[ReadablePartition]:
    """Return the chosen partitions that have records to read, by topic and number.

    `by_name` says that the operator named topics and no topic ids. Then partitions that were never tiered
    are included, and of several topics with the same name only the topic in the logs is returned. Raise
    UsageError if several remain, and NotFoundError if no partition does.
    """
    found = present_partitions(state, logs, chosen, by_name=by_name)
    if by_name:
        require_found(found, state.topics)
    return found


def present_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet, *, by_name: bool
) -> list[ReadablePartition]:
    """Return the result of `readable_partitions`, which may be empty: `state` may be a part of the tier's."""
    found = [one for one in tiered_partitions(state, logs, chosen) if one.logs or _has_readable(one.cache)]
    if by_name:
        found = current_partitions(found, logs, chosen)
    return sorted(found, key=lambda r: (r.topic_id_partition.topic, r.topic_id_partition.partition))


def require_found(found: Sequence[ReadablePartition], topics: Collection[str]) -> None:
    """Raise NotFoundError if no partition was found by name; `topics` are those of the tier's metadata."""
    if not found:
        raise NotFoundError("no such partition in the tier or the logs", hint=_known(topics))


def illegal_name_error(partition: TopicIdPartition) -> SafetyRefusal | None:
    """Return the error for a partition whose name is illegal, so that no key may contain it; else None."""
    if is_legal_topic_name(partition.topic) and partition.partition >= 0:
        return None
    return SafetyRefusal(
        f"{str(partition)!r} is not a legal partition, so it is not read",
        hint="the metadata record that names it is wrong or malicious; show it with tierctl format",
    )


def tiered_partitions(
    state: TierState, logs: Sequence[LocalLog], chosen: PartitionSet
) -> list[ReadablePartition]:
    """Return the chosen partitions of the tier's metadata, also without readable segments, in order."""
    replicas = _by_key(logs)
    return [
        ReadablePartition(
            part.topic_id_partition,
            part.cache,
            tuple(
                with_tier_start(log, part.segments) for log in replicas.get(part.topic_id_partition.key, ())
            ),
            part.failed_copies,
        )
        for part in state
        if part.topic_id_partition in chosen
    ]


def _by_key(logs: Sequence[LocalLog]) -> dict[tuple[Uuid, int], list[LocalLog]]:
    found: dict[tuple[Uuid, int], list[LocalLog]] = {}
    for log in logs:
        found.setdefault(log.topic_id_partition.key, []).append(log)
    return found


def _has_readable(cache: RemoteLogMetadataCache) -> bool:
    return any(segment.state is _FINISHED for segment in cache.list_remote_log_segments())


def current_partitions(
    found: Sequence[ReadablePartition], logs: Sequence[LocalLog], chosen: PartitionSet
) -> list[ReadablePartition]:
    """Return the partitions `found` by name in the tier, and the chosen ones that only logs have.

    Of several topics with the same name, return only the topic in the logs; raise UsageError if several
    remain.
    """
    replicas = _by_key(logs)
    tiered = {one.topic_id_partition.key for one in found}
    named: dict[tuple[str, int], list[ReadablePartition]] = {}
    for one in (*found, *_of_logs(replicas, tiered, chosen)):
        named.setdefault((one.topic_id_partition.topic, one.topic_id_partition.partition), []).append(one)
    current = []
    for (topic, partition), several in named.items():
        held = [one for one in several if one.topic_id_partition.key in replicas] or several
        if len(held) > 1:
            ids = ", ".join(sorted(one.topic_id_partition.topic_id for one in held))
            raise UsageError(
                f"{topic}-{partition} is the name of several topics: {ids}", hint="select one with --topic-id"
            )
        current += held
    return current


def _of_logs(
    replicas: Mapping[tuple[Uuid, int], list[LocalLog]],
    tiered: Collection[tuple[Uuid, int]],
    chosen: PartitionSet,
) -> list[ReadablePartition]:
    """Return the chosen partitions of the logs that are not `tiered`."""
    return [
        ReadablePartition(logs[0].topic_id_partition, RemoteLogMetadataCache.empty(), tuple(logs))
        for key, logs in replicas.items()
        if key not in tiered and logs[0].topic_id_partition in chosen
    ]


def _known(topics: Collection[str]) -> str:
    shown = ", ".join(sorted(topics)[:20]) + (", …" if len(topics) > 20 else "")
    return f"topics in the tier's metadata: {shown or 'none'}"
