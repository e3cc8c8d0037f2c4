"""Partitions as retention sees them: remote segments, the lineage of the log, and the log's offsets.

They come from a log on disk, from the tier alone, or from what leaders tell about their partitions' logs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from tierctl.errors import TierctlError
from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.local import LARGEST_OFFSET, BrokerFacts, ClusterLog
from tierctl.plan.choose_sets import merge_lineage
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.steps import LINEAGE_EPOCH, Skip
from tierctl.state.lineage import Lineage, RemoteLogMetadataCache, find_highest_remote_offset
from tierctl.state.log_start import (
    CutEpochs,
    KnownTier,
    cut_epochs,
    extended_below,
    log_start_in_force,
    with_tier_start,
)
from tierctl.state.queries import LiveSegments, PartitionSegments
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.wire.arrays import Bools, Int64s

COPY_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@dataclass(frozen=True, kw_only=True)
class PartitionView:
    """A partition's remote segments, the lineage of its log, and the log's offsets.

    `known_log_start_offset` is that of the log,
    `log_start_offset` may have been raised above it; `log_end_offset` is exclusive. `local_only_bytes` is the
    size of the local segments above the tier, `bytes_from_highest` that of the local segment which begins at
    the highest copied offset, and `local_start_offset` the base offset of the first local segment, None if
    unknown.
    """

    partition: TopicIdPartition
    segments: PartitionSegments
    lineage: Lineage
    known_log_start_offset: int
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int | None
    local_start_offset: int | None = None
    bytes_from_highest: int | None = None

    def raised_to(self, log_start_offset: int) -> Self:
        """Return the view with the log start raised to `log_start_offset`, if that is higher."""
        if log_start_offset <= self.log_start_offset:
            return self
        return replace(self, log_start_offset=log_start_offset)

    @cached_property
    def current(self) -> Lineage:
        """The lineage from `log_start_offset` on, as a broker's leader-epoch checkpoint would have it."""
        return self.lineage.truncate_from_start(self.log_start_offset)

    @cached_property
    def cut(self) -> CutEpochs | None:
        """How the log's leader-epoch checkpoint was cut; None if it was not."""
        return cut_epochs(
            self.lineage,
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            local_start_offset=self.local_start_offset,
        )

    def _live_rows(self) -> Iterator[Int64s]:
        """Yield the rows of `live`, one leader epoch after the other."""
        seen = np.empty(0, np.int64)
        for epoch in self.current.epochs_with_records:
            rows = self.segments.finished_in_epoch(epoch)
            is_live = self._is_within[self.segments.places_of(rows)] & ~np.isin(rows, seen)
            is_live &= self.segments.of_rows(rows).column("end") >= self.log_start_offset
            seen = np.concatenate([seen, rows[is_live]])
            yield rows[is_live]

    @cached_property
    def _is_within(self) -> Bools:
        """Which segments belong to the current lineage, in order of arrival."""
        return self.segments.within(self.current, self.log_end_offset)

    @cached_property
    def live(self) -> LiveSegments:
        """The finished segments of the current lineage that end at or above the log start.

        Their order is that of RLMExpirationTask: by epoch, then by start offset. Raise RemoteResourceNotFound
        if an epoch lists a segment that is gone, as a broker does.
        """
        return self.segments.of_rows(np.concatenate([np.empty(0, np.int64), *self._live_rows()]))

    def iter_live(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments of `live`; an epoch is read when its first segment is needed."""
        for rows in self._live_rows():
            live = self.segments.of_rows(rows)
            yield from map(live.metadata, range(len(rows)))

    @cached_property
    def live_bytes(self) -> int:
        """The `distinct_bytes` of `live`; raises as that. Brokers count an offset once for each segment."""
        columns = (self.live.column(name).tolist() for name in ("start", "end", "size"))
        return distinct_bytes(zip(*columns, strict=True))

    @cached_property
    def highest_copied(self) -> int:
        """The highest offset of the lineage in the tier; -1 if nothing is copied."""
        cache = self.segments.cache
        return find_highest_remote_offset(cache, self.lineage, self.log_end_offset)

    @cached_property
    def ended_copies(self) -> list[RemoteLogSegmentMetadata]:
        """The unfinished copies of the current lineage that no broker makes any longer.

        Later offsets were copied since they began.
        """
        return [
            segment
            for segment in self.segments.in_state(COPY_STARTED)
            if segment.end_offset >= self.log_start_offset
            and self.current.contains(segment, self.log_end_offset)
            and self.segments.has_copied_since(
                segment.segment_id, segment.end_offset, [epoch for epoch, _ in segment.segment_leader_epochs]
            )
        ]

    @property
    def decided_in(self) -> dict[str, int]:
        """The detail of a step that names the lineage from which it was decided."""
        return {} if self.lineage.latest is None else {LINEAGE_EPOCH: self.lineage.latest.epoch}


def distinct_bytes(spans: Iterable[tuple[int, int, int]]) -> int:
    """Return the bytes of segments of one lineage, with each offset counted once.

    `spans` are their start offsets, end offsets (inclusive) and sizes in bytes. A segment that overlaps
    earlier ones counts by its share of offsets that they do not hold.
    """
    total = 0
    covered = -1
    for start, end, size_bytes in sorted(spans, key=lambda span: (span[0], -span[1])):
        new_offsets = end - max(start - 1, covered)
        if new_offsets > 0:
            total += size_bytes * new_offsets // (end - start + 1)
            covered = end
    return total


def _local_bytes(cache: RemoteLogMetadataCache, log: LocalLog) -> tuple[int | None, int]:
    """Return the sizes of the segments of `log` above the highest copied offset, and of the one from it on.

    The first is None if nothing is copied.
    """
    highest = find_highest_remote_offset(cache, Lineage(log.leader_epochs), log.log_end_offset)
    above = sum(s.size_bytes for s in log.segments if s.base_offset > highest)
    # Without a copied offset in the lineage it is unknown which local bytes are also in the tier.
    return None if highest < 0 else above, sum(s.size_bytes for s in log.segments if s.base_offset == highest)


def view_of_log(partition: TopicIdPartition, segments: PartitionSegments, log: LocalLog) -> PartitionView:
    """Return the view of a partition with a known local log."""
    log = with_tier_start(log, segments)
    local_only_bytes, bytes_from_highest = _local_bytes(segments.cache, log)
    return PartitionView(
        partition=partition,
        segments=segments,
        lineage=Lineage(log.leader_epochs),
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_only_bytes=local_only_bytes,
        local_start_offset=log.local_log_start_offset,
        bytes_from_highest=bytes_from_highest,
    )


def view_of_tier(
    partition: TopicIdPartition, segments: PartitionSegments, entries: Sequence[EpochEntry]
) -> PartitionView:
    """Return the view of a partition without a log, from `entries` of the newest leader-epoch index.

    The index proves no log start: it may be a copy of a checkpoint that had lost its first entries. The log
    therefore begins at the first finished segment, and what is below the start of `entries` only retention
    deletes, or a log start that the operator states.
    """
    lineage = Lineage(extended_below(entries, segments))
    finished = segments.finished_range()
    start = log_start_in_force((), KnownTier(segments, lineage.entries)).offset
    return PartitionView(
        partition=partition,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        # An offset after the largest one is none: a segment that ends there belongs to no log.
        log_end_offset=0 if finished is None else min(finished[1] + 1, LARGEST_OFFSET),
        local_only_bytes=None,
    )


# What leaders tell about their partitions' logs.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """What retention needs of a partition from its leader.

    `tier_entries`, of the newest finished segment's leader-epoch index, are given if the leader does not know
    the log start (`knows_log_start`): the log then starts with them. `local_only_bytes` is the size of what
    only the leader's log has, None if it is unknown.
    """

    log: ClusterLog
    tier_entries: Sequence[EpochEntry] | None = None
    local_only_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterViews:
    """The leaders' views of partitions by topic id and number; `unseen`: why others have no view."""

    topics: CurrentTopics
    views: Mapping[tuple[Uuid, int], LeaderView] = field(default_factory=dict)
    unseen: Mapping[tuple[Uuid, int], str] = field(default_factory=dict)

    def why_unseen(self, partition: TopicIdPartition) -> str | None:
        """Return why there is no view of `partition`; None if there is one."""
        if partition.key in self.views:
            return None
        return self.unseen.get(partition.key, "the cluster was not asked about it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """The cluster's topics, settings and leaders' logs with which local replicas are compared.

    `topics` and `configs` are by name; topics that the cluster does not have are in neither.
    """

    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    logs: Mapping[tuple[Uuid, int], ClusterLog]
    broker_ids: tuple[int, ...]

    def sources(self, logs: Sequence[LocalLog]) -> tuple[list[LocalLog], tuple[Skip, ...]]:
        """Return the logs that may be copied, and the reasons for the others.

        A log is left out if the cluster has its topic under another id, or if its leader epochs diverge from
        the leader's: no consumer is ever served those records. A log of a topic that the cluster does not
        have is kept, since it may come from another cluster. A kept log has its leader's high watermark and
        last stable offset where these are higher: a running broker writes its checkpoint every few seconds.
        """
        kept: list[LocalLog] = []
        skipped: list[Skip] = []
        for log in logs:
            reason = self._why_not(log)
            if reason is None:
                kept.append(_with_leaders_offsets(log, self.logs.get(log.topic_id_partition.key)))
            else:
                skipped.append(Skip.of(log.topic_id_partition, reason))
        return kept, tuple(skipped)

    def _why_not(self, log: LocalLog) -> str | None:
        partition = log.topic_id_partition
        if partition.topic not in self.topics.ids:
            return None
        reason = self.topics.why_not_current(partition)
        leader = self.logs.get(partition.key)
        if reason is not None or leader is None:
            return reason
        return why_diverged(Lineage(log.leader_epochs), Lineage(leader.leader_epochs), log.log_end_offset)


def _with_leaders_offsets(log: LocalLog, leader: ClusterLog | None) -> LocalLog:
    """Return the log with the high watermark and last stable offset of its leader, up to the log's end."""
    if leader is None or leader.high_watermark <= log.high_watermark:
        return log
    high_watermark = min(leader.high_watermark, log.log_end_offset)
    stable = max(log.last_stable_offset, min(leader.last_stable_offset, high_watermark))
    opened = log.open_transaction if stable == log.last_stable_offset else None
    return replace(log, high_watermark=high_watermark, last_stable_offset=stable, open_transaction=opened)


def why_diverged(replica: Lineage, leader: Lineage, replica_end: int) -> str | None:
    """Return where a replica's log diverges from the leader's; None if it does not, as far as is known.

    Offsets below the leader's log start are not compared.
    """
    first = leader.earliest
    # An epoch that begins at the replica's end has no records, so it is not compared.
    entries = [entry for entry in replica.entries if entry.start_offset < replica_end]
    for entry in entries:
        known = leader.entry(entry.epoch)
        if known is None and (first is None or entry.epoch > first.epoch):
            return f"the log has leader epoch {entry.epoch}, which its leader does not know"
        if known is not None and known not in (first, entry):
            starts = f"starts at {entry.start_offset} here, at {known.start_offset} on its leader"
            return f"leader epoch {entry.epoch} {starts}"
    following = leader.next_epoch(entries[-1].epoch) if entries else None
    ends = None if following is None else leader.entry(following)
    if ends is not None and replica_end > ends.start_offset:
        where = f"ends at {replica_end} here, at {ends.start_offset} on its leader"
        return f"leader epoch {entries[-1].epoch} {where}"
    return None


def knows_log_start(leader: BrokerFacts | None, config: TopicConfig) -> bool:
    """Return whether the leader reports the log start of a tiered topic, not that of its local log.

    A broker without remote.log.storage.system.enable reports the local log start as the log start
    (UnifiedLog.localLogStartOffset; seen with 3.9 and 4.3). Deleting the segments below it would delete the
    tier.
    """
    return config.remote_storage_enable is not True or (leader is not None and leader.tiers is True)


def view_of_leader(
    partition: TopicIdPartition, segments: PartitionSegments, leader: LeaderView
) -> PartitionView:
    """Return the view of a partition from its leader's log."""
    log, tier_entries = leader.log, leader.tier_entries
    lineage = Lineage(log.leader_epochs)
    if tier_entries is not None:
        lineage = merge_lineage(log.leader_epochs, [extended_below(tier_entries, segments)])
    tier = KnownTier(segments, None if tier_entries is None else lineage.entries)
    start = log_start_in_force([log], tier).offset
    return PartitionView(
        partition=partition,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        log_end_offset=log.log_end_offset,
        local_only_bytes=leader.local_only_bytes,
        local_start_offset=log.local_log_start_offset,
    )


class LeaderBytes(NamedTuple):
    """The bytes that only a leader's log has; with `from_offset`, those of its batches from there on.

    Only the leader can measure these. `size_bytes` is None if no segment is copied, which leaves the bytes
    unknown, and with `from_offset`.
    """

    size_bytes: int | None = None
    from_offset: int | None = None


def leader_bytes(part: PartitionState, leader: LeaderView, limit_bytes: int) -> LeaderBytes:
    """Return the bytes that only the leader's log has, up to `limit_bytes`; below 0 they are not counted.

    A broker's log size includes segments that are also in the tier. So unless the log is within the limit
    anyway, its batches above the highest copied offset must be measured.
    """
    if limit_bytes < 0:
        return LeaderBytes()
    view = view_of_leader(part.topic_id_partition, part.segments, leader)
    local_bytes = leader.log.local_log_bytes
    if view.highest_copied < 0:
        return LeaderBytes()
    if local_bytes is None or view.live_bytes + local_bytes > limit_bytes:
        return LeaderBytes(from_offset=view.highest_copied + 1)
    return LeaderBytes(local_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBytesOf:
    """The question for `TierState.map_parts` how many bytes only the leaders' logs have.

    `views` and `limits_bytes` are by topic id and number, and have the same partitions.
    """

    views: Mapping[tuple[Uuid, int], LeaderView]
    limits_bytes: Mapping[tuple[Uuid, int], int]

    def __call__(self, state: TierState) -> Iterator[tuple[TopicIdPartition, LeaderBytes | str]]:
        """Yield the answer for each partition in `views`, or the message of the error of its segments."""
        for part in state.by_metadata_partition():
            partition = part.topic_id_partition
            leader = self.views.get(partition.key)
            if leader is not None:
                try:
                    yield partition, leader_bytes(part, leader, self.limits_bytes[partition.key])
                except TierctlError as e:
                    yield partition, e.message
