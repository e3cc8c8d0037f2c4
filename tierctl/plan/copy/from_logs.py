"""RLMCopyTask's decisions: which rolled segments of local logs are copied to the tier."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tierctl.errors import UsageError
from tierctl.model import (
    EpochEntry,
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Selection,
    TopicConfig,
)
from tierctl.model.configs import CopyLag
from tierctl.plan.copy.dangling import Dangling
from tierctl.plan.copy.enabled import why_not_enabled
from tierctl.plan.preconditions import (
    CurrentTopics,
    newest_replicas,
    why_behind,
    why_maybe_unheard_of,
    why_unknown,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import LINEAGE_EPOCH, Action, Basis, Kept, Plan, Skip, Step
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.log_start import with_tier_start
from tierctl.state.tier import PartitionState, TierState


def why_waiting(candidate: LocalSegment, following_bytes: int, lag: CopyLag, now_ms: int) -> Reason | None:
    """Return why `candidate` is not copied yet; None if it may be copied.

    `following_bytes` is the size of all segments of the log after it, the active one included. The age counts
    from the largest record timestamp; a segment with a timestamp in the future may be copied. Source: Kafka
    4.4's RLMCopyTask and UnifiedLog.
    """
    if lag.ms == 0 or lag.bytes == 0:
        return None
    age_ms = now_ms - candidate.max_timestamp_ms
    if lag.ms is not None and (age_ms < 0 or age_ms >= lag.ms):
        return None
    if lag.bytes is not None and following_bytes >= lag.bytes:
        return None
    return Reason(
        ReasonKind.COPY_LAG,
        from_offset=candidate.base_offset,
        lag_ms=lag.ms,
        age_ms=age_ms,
        lag_bytes=lag.bytes,
        following_bytes=following_bytes,
    )


_S = RemoteLogSegmentState

SEGMENT_SIZE_BYTES_MAX = (1 << 31) - 1
"""Limit of segmentSizeInBytes, an int32 in the metadata."""


@dataclass(slots=True)
class _Decisions:
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)


def plan_copy(
    state: TierState,
    logs: Collection[LocalLog],
    configs: Mapping[str, TopicConfig],
    *,
    assumed_enabled: Collection[str] = (),
    clean_dangling_after_ms: int | None = None,
    now_ms: int | None = None,
    live_broker_ids: Collection[int] = (),
    explained: Selection | None = None,
) -> Plan:
    """Return the plan of a broker's copies: oldest first, from the log start to the last stable offset.

    Each segment has one COPY_SEGMENT step, whose details are the facts of the COPY_SEGMENT_STARTED event and
    the paths of the files. Of several replicas of a partition the newest is the source. A segment that can't
    be copied safely is skipped with a reason, and so are the later segments of the partition. Only topics
    with remote.storage.enable=true are copied, and those in `assumed_enabled` whose `configs` do not state
    it.

    `clean_dangling_after_ms`, with `now_ms`, adds DELETE_SEGMENT steps for unfinished copies that began
    longer ago (at least 24 hours) on a broker that is not among `live_broker_ids`. For partitions in
    `explained`, the plan also has the local segments without a step.
    """
    dangling = _dangling(clean_dangling_after_ms, now_ms, live_broker_ids)
    decisions = _Decisions()
    topics = CurrentTopics.of(logs)
    for key, newest in sorted(newest_replicas(logs).items(), key=lambda item: item[1].topic_partition):
        part = state.partitions.get(key)
        log = newest if part is None else with_tier_start(newest, part.segments, adjoining=True)
        reason: str | None = why_not_enabled(log.topic_id_partition.topic, configs, assumed_enabled)
        reason = reason or _why_not(state, part, log, topics)
        config = configs.get(log.topic_id_partition.topic, TopicConfig())
        stop = reason or (Reason(ReasonKind.COPY_DISABLED) if config.is_copy_disabled else None)
        from_offset, steps_before = log.local_log_start_offset, len(decisions.steps)
        if stop:
            decisions.skipped.append(Skip.of(log.topic_id_partition, stop))
        else:
            from_offset, stop = _decide(log, part, decisions, lag=config.copy_lag, now_ms=now_ms)
        if explained is not None and log.topic_id_partition in explained:
            decisions.kept += _kept(log, decisions.steps[steps_before:], from_offset, stop)
        if reason is None and part is not None and dangling is not None:
            steps, skipped = dangling.clean(part)
            decisions.steps += steps
            decisions.skipped += skipped
    return Plan(
        command="copy",
        steps=tuple(decisions.steps),
        read=dict(state.read),
        skipped=tuple(decisions.skipped),
        basis=Basis(
            configs=configs, log_starts={log.topic_id_partition: log.log_start_offset for log in logs}
        ),
        kept=tuple(decisions.kept),
    )


def _dangling(after_ms: int | None, now_ms: int | None, alive: Collection[int]) -> Dangling | None:
    if after_ms is None:
        return None
    if now_ms is None:
        raise UsageError("the age of a copy is unknown without now_ms", hint="give now_ms")
    return Dangling(now_ms=now_ms, after_ms=after_ms, alive=alive)


def _why_not(
    state: TierState,
    part: PartitionState | None,
    log: LocalLog,
    topics: CurrentTopics,
) -> str | None:
    partition = log.topic_id_partition
    reason = topics.why_not_current(partition)
    if reason:
        return reason
    if part is not None:
        latest_epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
        return why_unknown(state, part) or why_behind(part.segments, latest_epoch)
    return why_maybe_unheard_of(state, partition)


def _decide(
    log: LocalLog, part: PartitionState | None, decisions: _Decisions, *, lag: CopyLag, now_ms: int | None
) -> tuple[int, str | None]:
    """Add the steps of a partition; return the offset from which it is copied, and why the copies stop."""
    partition = log.topic_id_partition
    lineage = Lineage(log.leader_epochs)
    cache = part.cache if part is not None else RemoteLogMetadataCache()
    copied = find_highest_remote_offset(cache, lineage, log.log_end_offset).offset
    begun = [s for s in cache.list_remote_log_segments() if s.state is _S.COPY_SEGMENT_STARTED]
    from_offset = max(copied + 1, log.log_start_offset)
    if not cache.leader_epochs():
        # Nothing was ever copied, so the records below the local log exist nowhere: copying begins above
        # them, and no later copy can fill the gap.
        from_offset = max(from_offset, log.local_log_start_offset)
    stop: str | None = None
    for item in _copies(log, from_offset, lag=lag, now_ms=now_ms):
        if isinstance(item, str):
            stop = item
            decisions.skipped.append(Skip.of(partition, item))
        else:
            decisions.steps.append(with_begun(item, begun))
    return from_offset, stop


def _kept(log: LocalLog, steps: Sequence[Step], from_offset: int, stop: str | None) -> Iterator[Kept]:
    """Yield the segments of `log` that none of `steps`, the steps of its partition, copies.

    Copies begin at `from_offset`; `stop` is the reason why they end before the active segment, None if they
    do not.
    """
    partition = log.topic_id_partition
    copied = {step.start_offset for step in steps}
    for segment in log.segments:
        following = segment.next_base_offset
        if segment.base_offset in copied:
            continue
        if following is None:
            reason = Reason(ReasonKind.NOT_ROLLED, size_bytes=segment.size_bytes)
        elif stop is None or following <= from_offset:
            reason = Reason(ReasonKind.COPIED, from_offset=from_offset)
        else:
            reason = Reason.of(stop)
        yield Kept(
            partition=partition,
            segment_id=None,
            start_offset=segment.base_offset,
            end_offset=None if following is None else following - 1,
            reason=reason,
        )


def with_begun(step: Step, begun: Sequence[RemoteLogSegmentMetadata]) -> Step:
    """Return the step with the ids of unfinished copies, among `begun`, that share offsets with it."""
    start, end = step.start_offset or 0, step.end_offset or 0
    ids = [str(s.segment_id) for s in begun if s.start_offset <= end and s.end_offset >= start]
    return replace(step, details={**step.details, "begun_copies": ids})


def _copies(log: LocalLog, from_offset: int, *, lag: CopyLag, now_ms: int | None) -> Iterator[Step | Reason]:
    """Yield steps in order, and at last the reason if segments after them are not copied yet."""
    segments = _segments_from(log, from_offset)
    following_bytes = sum(segment.size_bytes for segment in segments)
    for segment, following in pairwise(segments):
        following_bytes -= segment.size_bytes
        if following.base_offset > log.last_stable_offset:
            yield _why_unstable(log, segment)
            return
        waiting = None if now_ms is None else why_waiting(segment, following_bytes, lag, now_ms)
        if waiting:
            yield waiting
            return
        reason = _why_not_copied(log, segment, following, from_offset)
        if reason:
            yield Reason(ReasonKind.NOT_COPYABLE, detail=reason, from_offset=segment.base_offset)
            return
        yield _step(log, segment, following.base_offset)
        from_offset = following.base_offset


def _why_unstable(log: LocalLog, first: LocalSegment) -> Reason:
    """Return why `first` and the later rolled segments are not copied yet: their records are not stable."""
    count = sum(s.base_offset >= first.base_offset for s in log.segments[:-1])
    facts = {"segments": count, "from_offset": first.base_offset}
    if log.last_stable_offset >= log.high_watermark:
        return Reason(ReasonKind.NOT_REPLICATED, **facts, high_watermark=log.high_watermark)
    opened = log.open_transaction
    return Reason(
        ReasonKind.OPEN_TRANSACTION,
        **facts,
        last_stable_offset=log.last_stable_offset,
        producer_id=None if opened is None else opened.producer_id,
        since_ms=None if opened is None else opened.since_ms,
    )


def _segments_from(log: LocalLog, offset: int) -> tuple[LocalSegment, ...]:
    """Return the segments from the one that contains `offset` on (LogSegments.values).

    A new leader whose epoch began inside a segment copies that segment whole.
    """
    first = max((i for i, s in enumerate(log.segments) if s.base_offset <= offset), default=0)
    return log.segments[first:]


def _why_not_copied(
    log: LocalLog, segment: LocalSegment, following: LocalSegment, from_offset: int
) -> str | None:
    if segment.base_offset > from_offset:
        return f"offsets {from_offset} to {segment.base_offset - 1} are neither in the tier nor in the log"
    if segment.next_base_offset != following.base_offset:
        return f"the log has a hole between {segment.next_base_offset} and {following.base_offset}"
    if segment.producer_snapshot is None:
        return f"no producer snapshot at offset {following.base_offset}"
    if segment.size_bytes > SEGMENT_SIZE_BYTES_MAX:
        return f"segment {segment.base_offset} has {segment.size_bytes} bytes, more than metadata can state"
    return _why_not_covered(log, segment.base_offset, following.base_offset)


def _why_not_covered(log: LocalLog, base_offset: int, next_base_offset: int) -> str | None:
    """Return the reason if an epoch of the segment is unknown: seeks into it would be out of range."""
    rising = all(
        a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(log.leader_epochs)
    )
    epochs = segment_epochs(log.leader_epochs, base_offset, next_base_offset)
    needed_from = max(base_offset, log.log_start_offset)
    if not rising or not epochs or epochs[0].start_offset > needed_from:
        known = ", ".join(f"{epoch}@{start}" for epoch, start in log.leader_epochs) or "none"
        return f"the leader epochs of segment {base_offset} are not all known (the log has {known})"
    return None


def segment_epochs(
    leader_epochs: Sequence[EpochEntry], base_offset: int, next_base_offset: int
) -> tuple[EpochEntry, ...]:
    """Return a segment's segmentLeaderEpochs: the epochs of [base, next base), the first raised to base."""
    return Lineage(leader_epochs).entries_in_range(base_offset, next_base_offset)


def _step(log: LocalLog, segment: LocalSegment, next_base_offset: int) -> Step:
    partition = log.topic_id_partition
    lineage = Lineage(log.leader_epochs)
    epochs = segment_epochs(log.leader_epochs, segment.base_offset, next_base_offset)
    checkpoint = lineage.truncate_from_end(next_base_offset).entries
    transaction_index = segment.transaction_index
    return Step(
        action=Action.COPY_SEGMENT,
        reason=Reason(ReasonKind.ROLLED, last_stable_offset=log.last_stable_offset),
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        start_offset=segment.base_offset,
        end_offset=next_base_offset - 1,
        details={
            LINEAGE_EPOCH: lineage.entries[-1].epoch,
            "next_base_offset": next_base_offset,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "segment_size_in_bytes": segment.size_bytes,
            "segment_leader_epochs": [list(entry) for entry in epochs],
            "leader_epoch_checkpoint": [list(entry) for entry in checkpoint],
            "txn_index_empty": transaction_index is None,
            "log_dir": str(log.directory.parent),
            "log": str(segment.log),
            "offset_index": str(segment.offset_index),
            "time_index": str(segment.time_index),
            "transaction_index": None if transaction_index is None else str(transaction_index),
            "producer_snapshot": str(segment.producer_snapshot),
        },
    )
