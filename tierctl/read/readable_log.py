"""The readable log of one user partition: which segment, remote or local, is read for which offsets; and what
its leader says: topic id, log start, log, and evidence about a lost history.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    MissingEventsError,
    NotFoundError,
    ObjectUnreadable,
    RemoteResourceNotFound,
    SafetyRefusal,
    TierctlError,
)
from tierctl.kafka.cluster import Cluster
from tierctl.model import (
    IndexType,
    LocalLog,
    RemoteLogSegmentMetadata,
    Selection,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import ClusterLog
from tierctl.model.location import TruncatedMetadata
from tierctl.plan.choose_sets import merge_lineage
from tierctl.plan.preconditions import (
    Evidence,
    decide_histories,
    is_known,
    missing_of,
    newest_replicas,
    recency,
)
from tierctl.plan.views import knows_log_start
from tierctl.read.segment import (
    CHUNK_BYTES,
    UNREADABLE,
    Damage,
    Indexes,
    IndexFetcher,
    LocalSegmentFile,
    RemoteSegment,
    Report,
    Segment,
    read_batches,
    with_lost_offsets,
)
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    epochs_text,
    find_highest_remote_offset,
    segments_in_lineage,
)
from tierctl.state.log_start import extended_below, is_start_unknown, start_within
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.storage.object_sets import stored_segment_ids
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


def chosen_lineage(
    cache: RemoteLogMetadataCache, logs: Sequence[LocalLog], fetcher: IndexFetcher | None, report: Report
) -> tuple[Replica | None, Lineage]:
    """Return the replica to read and its lineage; None and the `tier_lineage` without one."""
    replica = choose_replica(logs)
    if replica is not None and replica.lineage:
        return replica, replica.lineage
    # A log without leader epochs never contained a record.
    return None, tier_lineage(cache, fetcher, report)


def tier_lineage(cache: RemoteLogMetadataCache, fetcher: IndexFetcher | None, report: Report) -> Lineage:
    """Return the lineage up to the newest readable segment, by its leader-epoch index.

    If that index is missing, damaged or may not be read, if the segment's name is illegal, or without
    `fetcher`, the lineage is built from the epochs of the segments; damage and refusals are reported. The
    lineage begins with the first segment, also if the index begins above it (`start_within`).
    """
    segments = PartitionSegments.of_cache(cache)
    newest = segments.newest()
    if newest is None or fetcher is None:
        return lineage_from_segments(segments)
    try:
        data = fetcher.get(newest, IndexType.LEADER_EPOCH)
        return _from_first_segment(lineage_in_index(newest, data), segments)
    except (CorruptInputError, AuthenticationError, ObjectUnreadable, SafetyRefusal) as e:
        report(e)
    except RemoteResourceNotFound:
        pass
    return lineage_from_segments(segments)


def lineage_in_index(segment: RemoteLogSegmentMetadata, data: bytes) -> Lineage:
    """Return the lineage in the leader-epoch index `data` of a segment.

    Raise CorruptInputError if the index is damaged, or contradicts the epochs of its segment.
    """
    source = f"the leader-epoch index of remote segment {segment.segment_id}"
    try:
        lineage = Lineage(read_leader_epoch_checkpoint(data))
    except CorruptInputError as e:
        raise e.within(source) from None
    if lineage.contains(segment, segment.end_offset + 1):
        return lineage
    raise CorruptInputError(
        "leader epochs",
        expected=f"those of the segment, {epochs_text(segment.segment_leader_epochs)}",
        found=epochs_text(lineage.entries),
        source=source,
    )


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
    tiered offsets, because brokers copy only stable records; `stable_is_known`: the local log has it. No end
    is below the log start.
    """

    topic_id_partition: TopicIdPartition
    lineage: Lineage
    log_start_offset: int
    end_offset: int
    stable_end_offset: int
    stable_is_known: bool
    latest_tiered_offset: int
    """Highest offset copied in this lineage, Kafka's offset spec latest-tiered; -1 if nothing is copied."""
    tier_end_offset: int
    """End of the tier if its lineage continues the replica's above the replica's end; else `end_offset`."""
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

    def unread_offsets(self) -> NotFoundError:
        """Return the error for the offsets above the replica's end that the tier has."""
        where = "" if self.replica is None else f" in {self.replica.log.directory}"
        return NotFoundError(
            f"offsets {self.end_offset} to {self.tier_end_offset - 1} of "
            f"{self.topic_id_partition.topic_partition} were not read: the log{where} ends at offset "
            f"{self.end_offset}, and the tier goes on up to {self.tier_end_offset - 1}",
            hint="the replica lags behind its leader, or lost its end: name the log directory of the leader, "
            "or none, to read the tier alone",
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
        leader: ClusterLog | None = None,
    ) -> Self:
        """Return the readable log by the tier's metadata in `cache` and the replicas' `logs`, if any.

        The log start offset of a running `leader`, or `log_start_offset`, takes precedence over that of a log
        on disk; without a log, the leader's epochs tell which segments are of its lineage. Damaged indexes go
        to `report`.
        """
        replica, lineage = chosen_lineage(cache, logs, fetcher, report)
        log_start_offset = log_start_offset if leader is None else leader.log_start_offset
        if replica is None:
            if leader is not None:
                lineage = merge_lineage(leader.leader_epochs, [lineage.entries])
            start, log_end = tier_range(cache, lineage) or (0, 0)
            end = log_end if leader is None else find_highest_remote_offset(cache, lineage, log_end) + 1
        else:
            log = replica.log
            start, end, log_end = log.log_start_offset, replica.high_watermark, log.log_end_offset
            if log_start_offset is not None and log_start_offset < start:
                # A running broker checkpoints its log start offset only now and then.
                lineage = merge_lineage(lineage.entries, [tier_lineage(cache, fetcher, report).entries])
        start = start if log_start_offset is None else log_start_offset
        tiered = find_highest_remote_offset(cache, lineage, log_end)
        stable = end if replica is None else replica.last_stable_offset
        # The log of a leader may begin above all that was copied.
        readable_end = max(end, tiered + 1, start)
        return cls(
            topic_id_partition=topic_id_partition,
            lineage=lineage,
            log_start_offset=start,
            end_offset=readable_end,
            stable_end_offset=max(stable, tiered + 1, start),
            stable_is_known=replica is not None and stable > tiered,
            latest_tiered_offset=tiered,
            tier_end_offset=max(readable_end, _end_above(replica, cache, fetcher, report)),
            replica=replica,
            cache=cache,
            remote=remote,
        )


def _end_above(
    replica: Replica | None, cache: RemoteLogMetadataCache, fetcher: IndexFetcher, report: Report
) -> int:
    """Return the end of a tier that continues the replica's log above its end; -1 if the tier does not.

    It does if a leader with the tier's lineage would not truncate the replica (OffsetsForLeaderEpoch).
    """
    newest = PartitionSegments.of_cache(cache).newest()
    if replica is None or newest is None or newest.end_offset < replica.log.log_end_offset:
        return -1
    latest_epoch = replica.log.leader_epochs[-1].epoch
    common = tier_lineage(cache, fetcher, report).end_offset_for(latest_epoch, newest.end_offset + 1)
    is_continued = common.epoch == latest_epoch and common.end_offset >= replica.log.log_end_offset
    return newest.end_offset + 1 if is_continued else -1


def tier_range(cache: RemoteLogMetadataCache, lineage: Lineage) -> tuple[int, int] | None:
    """Return the first readable offset of the tier, and the end of its newest segment; None without any."""
    first = next(segments_in_lineage(cache, lineage), None)
    newest = PartitionSegments.of_cache(cache).newest()
    if first is None or newest is None:
        return None
    return first.from_offset, newest.end_offset + 1


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
        chunk_bytes: int = CHUNK_BYTES,
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
            for batch in read_batches(segment, position, chunk_bytes=self._chunk_bytes):
                if isinstance(batch, Damage):
                    self._report_damage(segment_range, batch, first, last)
                    done = first - 1 if batch.next_offset is None else batch.next_offset - 1
                elif batch.head.base_offset > last:
                    return
                elif batch.head.last_offset >= first:
                    epochs_agree = epochs_agree and self._check_epoch(segment_range, batch)
                    yield batch
                    done = batch.head.last_offset
        except UNREADABLE as e:
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
        if lost_last < damage.first_offset:
            # Bytes between two batches whose offsets follow each other.
            self._report(damage.error)
        elif damage.first_offset <= last and lost_last >= first:
            self._report_lost(damage.error, max(damage.first_offset, first), min(lost_last, last))


def _missing(
    segment_range: SegmentRange, first: int, last: int, cause: RemoteResourceNotFound
) -> RemoteResourceNotFound:
    name = segment_range.segment.name
    return RemoteResourceNotFound(
        f"{name} does not exist: offsets {first} to {last} can't be read ({cause.message})",
        hint="check --remote: the metadata states that the segment was copied; reading continued after it",
    )


def with_current_topic_ids(selection: Selection, cluster: Cluster | None) -> Selection:
    """Return the selection restricted to the topics that the cluster has under these names now."""
    topics = {} if cluster is None else cluster.topics(selection.topics)
    if topics.keys() < selection.topics:
        return selection
    return replace(selection, topic_ids=frozenset(topic.topic_id for topic in topics.values()))


@dataclass(frozen=True, slots=True)
class LeaderLogs:
    """The leaders' logs by partition, and reasons by partition for logs that are missing.

    A partition is in `leaderless` if it has no leader, and in `start_unknown` if its leader lost the log
    start offset. A partition whose topic id the cluster does not have is in none of the three.
    """

    logs: Mapping[TopicIdPartition, ClusterLog]
    leaderless: Mapping[TopicIdPartition, str]
    start_unknown: Mapping[TopicIdPartition, str]


def reliable_leader_logs(cluster: Cluster, partitions: Collection[TopicIdPartition]) -> LeaderLogs:
    """Return the logs of the leaders that know their log start offset, by one request for all."""
    topics = cluster.topics({p.topic for p in partitions})
    there = [partition for partition in partitions if is_known(topics, partition)]
    logs, leaderless = leader_logs(cluster, there)
    brokers = {broker.broker_id: broker for broker in cluster.brokers({log.leader for log in logs.values()})}
    configs = {topic: _config(cluster, topic) for topic in {partition.topic for partition in logs}}
    reliable: dict[TopicIdPartition, ClusterLog] = {}
    start_unknown: dict[TopicIdPartition, str] = {}
    for partition, log in logs.items():
        if knows_log_start(brokers.get(log.leader), configs[partition.topic]):
            reliable[partition] = log
        else:
            reason = f"its leader, broker {log.leader}, tiers no more and has lost the log start offset"
            start_unknown[partition] = reason
    return LeaderLogs(reliable, leaderless, start_unknown)


def leader_logs(
    cluster: Cluster, partitions: Sequence[TopicIdPartition]
) -> tuple[dict[TopicIdPartition, ClusterLog], dict[TopicIdPartition, str]]:
    """Return the logs of the partitions' leaders, and the reason for each partition without one."""
    unseen: dict[TopicIdPartition, str] = {}
    try:
        found = cluster.logs(partitions) if partitions else []
    except NotFoundError:
        # One of the partitions was deleted meanwhile: query each partition separately to find which.
        found = []
        for partition in partitions:
            try:
                found += cluster.logs([partition])
            except NotFoundError as e:
                unseen[partition] = e.message
    logs = {log.topic_id_partition: log for log in found}
    for partition in partitions:
        if partition not in logs:
            unseen.setdefault(partition, "it has no leader now")
    return logs, unseen


def _config(cluster: Cluster, topic: str) -> TopicConfig:
    try:
        return cluster.topic_configs([topic])[topic]
    except (AuthenticationError, NotFoundError):
        # Without the right to read settings, only the log start of a leader that tiers is reliable.
        return TopicConfig(remote_storage_enable=True)


def reliable_leader_log(cluster: Cluster | None, partition: TopicIdPartition) -> ClusterLog | None:
    """Return the log of a partition's leader; None without one, or if it lost the log start offset.

    Brokers serve no offsets below its log start, although the tier may still have them.
    """
    return None if cluster is None else reliable_leader_logs(cluster, [partition]).logs.get(partition)


_Key = tuple[Uuid, int]
_HINT = (
    "a --state-dir that read the topic before has the events; --log-dir or a cluster shows log starts, "
    "--remote the objects; --truncated-metadata accept decides from the remaining events, as a broker does"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSources:
    """Where evidence about the histories of the selected partitions is found; None for a missing source.

    Partitions of `topics` (empty: of all) on the cluster are examined even if no event names them.
    `log_starts` are log start offsets that were asked for or recorded by earlier runs. `local_suffices` is
    false for a copy, because a segment that is still local may have been copied already.
    """

    selection: Selection
    logs: Callable[[], Sequence[LocalLog]] = list
    cluster: Callable[[], Cluster | None] = lambda: None
    topics: Collection[str] = ()
    remote: Callable[[], RemoteStorageManager] | None = None
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    local_suffices: bool = True


def examine_histories(
    state: TierState, sources: EvidenceSources, policy: TruncatedMetadata
) -> dict[TopicIdPartition, str]:
    """Find out which selected partitions have a complete history, and add them to `state.complete`.

    Return the reason for each other partition; return no reason if `policy` accepts missing events. The
    cluster and the tier are read only if a metadata partition has missing events. Raise their errors.
    """
    state.accepts_missing = policy is TruncatedMetadata.ACCEPT
    if not state.missing or state.accepts_missing:
        return {}
    evidence = _evidence_of_logs(state, sources)
    reasons = decide_histories(state, evidence)
    if sources.remote is None or not reasons:
        return reasons
    stored = _stored_ids(state, sources.remote(), reasons)
    found = {p: replace(evidence[p], stored_ids=stored.get(p.key)) for p in reasons}
    return decide_histories(state, found)


def unseen_partitions(state: TierState, sources: EvidenceSources) -> list[MissingEvents]:
    """Return the missing events of metadata partitions of which no event names a user partition.

    Empty if the selection names topics, or if a cluster names them.
    """
    if not state.missing or state.accepts_missing:
        return []
    if sources.selection.narrows or sources.cluster() is not None:
        return []
    seen = {part.metadata_partition for part in state}
    return [missing for missing in state.missing if missing.metadata_partition not in seen]


def missing_events_error(partition: TopicIdPartition, reason: str) -> MissingEventsError:
    """Return the error about a partition whose history `examine_histories` found incomplete."""
    return MissingEventsError(
        f"{partition.topic_partition} is not known to be complete: {reason}", hint=_HINT
    )


def unseen_error(missing: MissingEvents) -> MissingEventsError:
    """Return the error about missing events of unknown user partitions."""
    return MissingEventsError(f"{missing}, and no later event names a user partition", hint=_HINT)


def _evidence_of_logs(state: TierState, sources: EvidenceSources) -> dict[TopicIdPartition, Evidence]:
    """Return the log starts of every selected partition whose metadata partition has missing events."""
    logs = {log.topic_id_partition: log for log in newest_replicas(sources.logs()).values()}
    known = {part.topic_id_partition for part in state} | logs.keys() | _named(sources)
    partitions = sorted(
        (
            partition
            for partition in known
            if partition in sources.selection
            and partition.topic not in INTERNAL_TOPICS
            and missing_of(state, partition)
        ),
        key=lambda p: (p.topic, p.topic_id, p.partition),
    )
    starts: dict[TopicIdPartition, tuple[int, int]] = {
        p: (log.log_start_offset, log.local_log_start_offset)
        for p, log in logs.items()
        if p in partitions and not is_start_unknown(log)
    }
    cluster = sources.cluster()
    if cluster is not None:
        leaders = reliable_leader_logs(cluster, partitions).logs
        starts |= {p: (log.log_start_offset, log.local_log_start_offset) for p, log in leaders.items()}
    return {p: _evidence(starts.get(p), sources.log_starts.get(p), sources) for p in partitions}


def _named(sources: EvidenceSources) -> set[TopicIdPartition]:
    """Return the partitions on the cluster of the named topics, or of all; for a copy the logs have them."""
    cluster = sources.cluster()
    if cluster is None or not sources.local_suffices:
        return set()
    topics = cluster.topics(sources.topics or None)
    return {partition for topic in topics.values() for partition in topic.topic_id_partitions}


def _evidence(starts: tuple[int, int] | None, raised: int | None, sources: EvidenceSources) -> Evidence:
    log_start = raised if starts is None else max(starts[0], raised or 0)
    local_start = starts[1] if starts is not None and sources.local_suffices else None
    return Evidence(log_start_offset=log_start, local_log_start_offset=local_start)


def _stored_ids(
    state: TierState, remote: RemoteStorageManager, partitions: Iterable[TopicIdPartition]
) -> dict[_Key, frozenset[Uuid]]:
    """Return the ids of stored segments by partition; none if the tier has no object of a known segment.

    Such a tier may be the wrong one, and its objects prove nothing.
    """
    stored = stored_segment_ids(remote, {partition.key for partition in partitions})
    for part in state:
        own = stored.get(part.topic_id_partition.key)
        for segment in part.cache.list_remote_log_segments():
            looks = own is None and remote.has_keys(segment)
            if segment.segment_id in (own or ()) or (looks and remote.objects_of(segment)):
                return stored
            if own is None:
                break
    return {}
