"""Decisions of `copy`: which segments go from local logs, or from another tier, to the tier (RLMCopyTask).

Tiering is opt-in for each topic (UnifiedLog.isRemoteLogEnabled).

Of another tier the segments of the current lineage are copied, oldest first. The target tier has its own
metadata topic: with one topic, a broker would take the copies for a second set of segments of the same
offsets, and would never delete the first.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tierctl.errors import SafetyRefusal
from tierctl.model import (
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Selection,
    TopicConfig,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.events import ZERO_UUID
from tierctl.model.selection import names_text
from tierctl.model.settings import topic
from tierctl.model.settings.topic import CopyLag
from tierctl.plan.dangling import Dangling, Range, held_ranges, served_ranges, withdraw
from tierctl.plan.decisions import Decision, with_local_retention
from tierctl.plan.preconditions import (
    CurrentTopics,
    newest_replicas,
    why_behind,
    why_never_tiered,
    why_undecided,
    why_unknown,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import (
    LINEAGE_EPOCH,
    SOURCE_SEGMENT_ID,
    Action,
    Basis,
    Plan,
    Skip,
    Step,
    segment_facts,
    segment_step,
)
from tierctl.state.lineage import (
    Lineage,
    RemoteLogMetadataCache,
    find_highest_remote_offset,
    segments_in_lineage,
)
from tierctl.state.log_start import is_start_unknown, with_tier_start
from tierctl.state.tier_state import FailedCopies, PartitionState, TierState

_S = RemoteLogSegmentState
_Key = tuple[Uuid, int]

_ENABLED = f"{topic.REMOTE_STORAGE_ENABLE.name}=true"
_HINT = (
    f"state TOPIC.{_ENABLED} in --topic-configs (offline), set it on the cluster's topic, or name the topic "
    "with --topic and add --assume-enabled"
)
NOT_ENABLED = Reason(
    ReasonKind.NOT_TIERED, detail=f"{_ENABLED} is not among the topic's settings: tiering is opt-in"
)


def why_not_enabled(
    name: str, configs: Mapping[str, TopicConfig], assumed: Collection[str] = ()
) -> Reason | None:
    """Return why brokers would not copy the topic `name`; None if they would.

    `assumed` are the topics that count as enabled if `configs` does not state remote.storage.enable. It does
    not override a stated `false`, nor a cleanup policy that Kafka refuses.
    """
    reason = why_never_tiered(name, configs)
    if reason or name in assumed:
        return reason
    config = configs.get(name)
    return None if config is not None and config.remote_storage_enable else NOT_ENABLED


def require_enabled(
    topics: Collection[str],
    configs: Mapping[str, TopicConfig],
    *,
    named: Collection[str] = (),
    assumed: Collection[str] = (),
    unread: Collection[str] = (),
) -> None:
    """Raise SafetyRefusal if a topic in `named` may not be copied, or if none of `topics` is enabled.

    `topics` are the selected topics that have a log. Of those in `unread` a log exists and can't be read: one
    of them that is enabled, or whose settings are unknown, counts. Without `named`, topics that all state
    remote.storage.enable=false are no error: there is nothing to copy.
    """
    reasons = {name: why_not_enabled(name, configs, assumed) for name in sorted(topics)}
    refused = {name: reason for name, reason in reasons.items() if reason}
    for name in sorted(set(named) & refused.keys()):
        raise SafetyRefusal(f"topic {name} is not copied: {refused[name]}", hint=_hint(refused[name]))
    if any(name not in configs or not why_not_enabled(name, configs, assumed) for name in unread):
        return
    stated = [config for name in topics if (config := configs.get(name)) is not None]
    are_all_off = len(stated) == len(topics) and all(c.remote_storage_enable is False for c in stated)
    if refused and len(refused) == len(topics) and not are_all_off:
        reason = NOT_ENABLED if NOT_ENABLED in refused.values() else next(iter(refused.values()))
        raise SafetyRefusal(
            f"none of the {len(topics)} selected topics is copied ({names_text(refused)}): {reason}",
            hint=_hint(reason),
        )


def _hint(reason: str) -> str | None:
    return _HINT if reason == NOT_ENABLED else None


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


def written_ms(step: Step) -> int:
    """Return when the segment of a copy was last written; from another tier, its largest timestamp."""
    return int(step.details.get("written_ms", step.details["max_timestamp_ms"]))


SEGMENT_SIZE_BYTES_MAX = (1 << 31) - 1
"""Limit of segmentSizeInBytes, an int32 in the metadata."""


@dataclass(slots=True)
class _Decisions:
    steps: list[Step] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    kept: list[Decision] = field(default_factory=list)

    def clean(
        self,
        part: PartitionState,
        held: Collection[Range],
        dangling: Dangling | None,
        ended_writer: int | None,
        unneeded: Collection[Range] = (),
    ) -> None:
        """Add the deletions of unfinished copies: those of ended runs, as `withdraw`, and dangling ones.

        `held` is as in `withdraw`, and `unneeded` are the offsets that no reader can ask for.
        """
        steps = [] if ended_writer is None else list(withdraw(part, ended_writer, held))
        ids = {step.segment_id for step in steps}
        found, skipped = ([], []) if dangling is None else dangling.clean(part, [*held, *unneeded])
        self.steps += [*steps, *(step for step in found if step.segment_id not in ids)]
        self.skipped += [skip for skip in skipped if skip.segment_id not in ids]


def plan_copy(
    state: TierState,
    logs: Collection[LocalLog],
    configs: Mapping[str, TopicConfig],
    *,
    assumed_enabled: Collection[str] = (),
    dangling: Dangling | None = None,
    ended_writer: int | None = None,
    now_ms: int | None = None,
    explained: Selection | None = None,
) -> Plan:
    """Return the plan of a broker's copies: oldest first, from the log start to the last stable offset.

    Each segment has one COPY_SEGMENT step, whose details are the facts of the COPY_SEGMENT_STARTED event and
    the paths of the files. Of several replicas of a partition the newest is the source. A segment that can't
    be copied safely is skipped with a reason, and so are the later segments of the partition. Only topics
    with remote.storage.enable=true are copied, and those in `assumed_enabled` whose `configs` do not state
    it.

    `dangling` adds DELETE_SEGMENT steps for unfinished copies, and `ended_writer` for those with this broker
    id, whose run has ended; None if it may be going on. Without `now_ms` no copy lag is applied. Also in
    the plan are the segments that wait for their copies; for partitions in `explained`, and only for these,
    all local segments without a step.
    """
    replicas = newest_replicas(logs)
    copies = _Copies(
        logs={key: log for key, log in replicas.items() if key in state.partitions},
        configs=configs,
        assumed_enabled=assumed_enabled,
        topics=CurrentTopics.of(logs),
        dangling=dangling,
        ended_writer=ended_writer,
        now_ms=now_ms,
        explained=explained,
    )
    decided = dict(state.map_parts(copies, copies.logs))
    decisions = [
        decided[key] if key in copies.logs else copies.decide(state, None, newest)
        for key, newest in sorted(replicas.items(), key=lambda item: item[1].topic_partition)
    ]
    return Plan(
        command="copy",
        steps=tuple(step for each in decisions for step in each.steps),
        read=dict(state.read),
        skipped=tuple(skip for each in decisions for skip in each.skipped),
        basis=Basis(
            configs=configs,
            log_starts={log.topic_id_partition: log.log_start_offset for log in replicas.values()},
        ),
        kept=tuple(kept for each in decisions for kept in each.kept),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """Decide about the newest replicas `logs` of partitions with metadata: a question for `map_parts`.

    The other fields are the arguments of `plan_copy`.
    """

    logs: Mapping[_Key, LocalLog]
    configs: Mapping[str, TopicConfig]
    assumed_enabled: Collection[str]
    topics: CurrentTopics
    dangling: Dangling | None
    ended_writer: int | None
    now_ms: int | None
    explained: Selection | None

    def __call__(self, state: TierState) -> Iterator[tuple[_Key, _Decisions]]:
        """Yield the decisions about each partition that `state` has, with its key."""
        for key in self.logs.keys() & state.partitions.keys():
            yield key, self.decide(state, state.partitions[key], self.logs[key])

    def decide(self, state: TierState, part: PartitionState | None, newest: LocalLog) -> _Decisions:
        """Return the decisions about a partition's log; `part` is None without metadata."""
        decisions = _Decisions()
        log = newest if part is None else with_tier_start(newest, part.segments, adjoining=True)
        partition = log.topic_id_partition
        reason: str | None = why_not_enabled(partition.topic, self.configs, self.assumed_enabled)
        reason = reason or _why_not(state, part, log, self.topics)
        config = self.configs.get(partition.topic, TopicConfig())
        stop = reason or (Reason(ReasonKind.COPY_DISABLED) if config.is_copy_disabled else None)
        if reason is None and part is not None:
            source = [(segment.base_offset, log.log_end_offset - 1) for segment in log.segments[:1]]
            below = [] if is_start_unknown(newest) else [(0, newest.log_start_offset - 1)]
            held = held_ranges(part, Lineage(log.leader_epochs), source)
            decisions.clean(part, held, self.dangling, self.ended_writer, unneeded=below)
        from_offset, steps_before = log.local_log_start_offset, len(decisions.steps)
        if stop:
            decisions.skipped.append(Skip.of(partition, stop))
        else:
            from_offset, stop = _decide(log, part, decisions, lag=config.copy_lag, now_ms=self.now_ms)
        if self.explained is None:
            kept = _kept(log, decisions.steps[steps_before:], from_offset, stop)
            decisions.kept += (each for each in kept if each.is_copy_lag)
        elif partition in self.explained:
            failed = None if part is None else part.failed_copies
            steps = [_with_failures(step, failed) for step in decisions.steps[steps_before:]]
            decisions.steps[steps_before:] = steps
            kept = _kept(log, steps, from_offset, stop)
            if reason is None and self.now_ms is not None:
                kept = with_local_retention(kept, log, part, config, self.now_ms)
            decisions.kept += kept
        return decisions


def _why_not(
    state: TierState,
    part: PartitionState | None,
    log: LocalLog,
    topics: CurrentTopics,
) -> str | None:
    partition = log.topic_id_partition
    reason = topics.why_not_current(partition) or why_undecided(state, partition)
    if reason is not None or part is None:
        return reason
    latest_epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
    return why_behind(part.segments.latest_epoch(), latest_epoch)


def _decide(
    log: LocalLog, part: PartitionState | None, decisions: _Decisions, *, lag: CopyLag, now_ms: int | None
) -> tuple[int, str | None]:
    """Add the steps of a partition; return the offset from which it is copied, and why the copies stop."""
    partition = log.topic_id_partition
    lineage = Lineage(log.leader_epochs)
    cache = part.cache if part is not None else RemoteLogMetadataCache.empty()
    copied = find_highest_remote_offset(cache, lineage, log.log_end_offset)
    begun = [] if part is None else list(part.segments.in_state(_S.COPY_SEGMENT_STARTED))
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


def _with_failures(step: Step, failed: FailedCopies | None) -> Step:
    """Return `step` with the failed attempts in its reason, if the last one began in its segment."""
    start, end, reason = step.start_offset or 0, step.end_offset or 0, Reason.of(step.reason)
    if failed is None or not start <= failed.start_offset <= end:
        return step
    facts = {
        "failed": str(failed),
        "failed_copies": failed.attempts,
        "failed_since_ms": failed.since_ms,
        "failed_last_ms": failed.last_ms,
        "failed_by": failed.broker_id,
    }
    return replace(step, reason=Reason(reason.kind, **reason.facts, **facts))


def _kept(log: LocalLog, steps: Sequence[Step], from_offset: int, stop: str | None) -> Iterator[Decision]:
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
        yield Decision(
            partition=partition,
            segment_id=None,
            start_offset=segment.base_offset,
            end_offset=None if following is None else following - 1,
            reason=reason,
            size_bytes=segment.size_bytes,
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
            facts = {"from_offset": segment.base_offset, "oldest_ms": segment.written_ms}
            yield Reason(ReasonKind.NOT_COPYABLE, detail=reason, **facts)
            return
        yield _step(log, segment, following.base_offset)
        from_offset = following.base_offset


def _why_unstable(log: LocalLog, first: LocalSegment) -> Reason:
    """Return why `first` and the later rolled segments are not copied yet: their records are not stable."""
    count = sum(s.base_offset >= first.base_offset for s in log.segments[:-1])
    facts = {"segments": count, "from_offset": first.base_offset, "oldest_ms": first.written_ms}
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
    epochs = Lineage(log.leader_epochs).entries_in_range(base_offset, next_base_offset)
    needed_from = max(base_offset, log.log_start_offset)
    if not rising or not epochs or epochs[0].start_offset > needed_from:
        known = ", ".join(f"{epoch}@{start}" for epoch, start in log.leader_epochs) or "none"
        return f"the leader epochs of segment {base_offset} are not all known (the log has {known})"
    return None


def _step(log: LocalLog, segment: LocalSegment, next_base_offset: int) -> Step:
    lineage = Lineage(log.leader_epochs)
    checkpoint = lineage.truncate_from_end(next_base_offset).entries
    return _copy_step(
        segment_to_copy(log, segment, next_base_offset),
        lineage,
        Reason(ReasonKind.ROLLED, last_stable_offset=log.last_stable_offset),
        written_ms=segment.written_ms,
        leader_epoch_checkpoint=[list(entry) for entry in checkpoint],
        log=str(segment.log),
    )


def segment_to_copy(log: LocalLog, segment: LocalSegment, next_base_offset: int) -> RemoteLogSegmentMetadata:
    """Return the metadata with which a rolled segment of `log` is copied, without id, broker and time."""
    partition = log.topic_id_partition
    return RemoteLogSegmentMetadata(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=ZERO_UUID,
        start_offset=segment.base_offset,
        end_offset=next_base_offset - 1,
        broker_id=-1,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=0,
        segment_leader_epochs=Lineage(log.leader_epochs).entries_in_range(
            segment.base_offset, next_base_offset
        ),
        segment_size_in_bytes=segment.size_bytes,
        state=_S.COPY_SEGMENT_STARTED,
        txn_index_empty=segment.transaction_index is None,
    )


def _copy_step(segment: RemoteLogSegmentMetadata, lineage: Lineage, reason: str, **details: Any) -> Step:
    """Return the step that copies `segment`, of a log or of another tier: each attempt has its own id."""
    facts = {LINEAGE_EPOCH: lineage.entries[-1].epoch, **segment_facts(segment), **details}
    return replace(segment_step(Action.COPY_SEGMENT, segment, reason, facts), segment_id=None)


REASON = "finished in the source tier"


def plan_copy_from_tier(
    source: TierState,
    target: TierState,
    lineages: Mapping[_Key, Lineage],
    *,
    dangling: Dangling | None = None,
    ended_writer: int | None = None,
) -> Plan:
    """Return the plan to copy every readable segment of `source` that `target` lacks, oldest first.

    `lineages` are the source's, by partition. Each segment has one COPY_SEGMENT step, whose details name the
    source segment. Segments that are being deleted, off the lineage or doubled are not copied. A hole in the
    source, or between target and source, ends the copy of its partition with a reason. `dangling` and
    `ended_writer` are those of `plan_copy`, for the target. The plan's `read` is the target's.
    """
    decisions = _Decisions()
    for part in source:
        lineage = lineages.get(part.topic_id_partition.key, Lineage())
        other = target.partition(part.topic_id_partition)
        reason = _why_not_from_tier(source, part, target, other, lineage)
        if reason:
            decisions.skipped.append(Skip.of(part.topic_id_partition, reason))
            continue
        if other is not None:
            held = held_ranges(other, lineage, served_ranges(part.cache, lineage))
            decisions.clean(other, held, dangling, ended_writer)
        _decide_from_tier(part, other, lineage, decisions)
    return Plan(
        command="copy", steps=tuple(decisions.steps), read=dict(target.read), skipped=tuple(decisions.skipped)
    )


def _why_not_from_tier(
    source: TierState,
    part: PartitionState,
    target: TierState,
    other: PartitionState | None,
    lineage: Lineage,
) -> str | None:
    partition = part.topic_id_partition
    if not is_legal_topic_name(partition.topic) or partition.partition < 0:
        return "its topic name or partition number is illegal"
    reason = why_unknown(source, part)
    if reason:
        return f"in the source: {reason}"
    reason = why_undecided(target, partition)
    if reason is None and other is not None:
        latest = lineage.latest.epoch if lineage.latest is not None else -1
        reason = why_behind(other.segments.latest_epoch(), latest)
    return f"in the target: {reason}" if reason else None


def _decide_from_tier(
    part: PartitionState, other: PartitionState | None, lineage: Lineage, decisions: _Decisions
) -> None:
    partition = part.topic_id_partition
    cache = other.cache if other is not None else RemoteLogMetadataCache.empty()
    begun = [] if other is None else list(other.segments.in_state(_S.COPY_SEGMENT_STARTED))
    copied = () if other is None else other.segments.in_state(_S.COPY_SEGMENT_FINISHED)
    finished = set(map(_copied_as, copied))
    for item in _wanted(part.cache, lineage, cache):
        if isinstance(item, str):
            decisions.skipped.append(Skip.of(partition, item))
        elif _copied_as(item) not in finished:
            decisions.steps.append(with_begun(_step_from_tier(item, lineage), begun))


def _copied_as(segment: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (segment.start_offset, segment.end_offset, segment.segment_leader_epochs)


def _wanted(
    source: RemoteLogMetadataCache, lineage: Lineage, target: RemoteLogMetadataCache
) -> Iterator[RemoteLogSegmentMetadata | str]:
    """Yield the segments that end above the target's last offset, in offset order.

    A string instead of a segment ends the iteration and is the reason.
    """
    copied = find_highest_remote_offset(target, lineage, 1 << 62)
    expected: int | None = None
    last: Uuid | None = None
    for span in segments_in_lineage(source, lineage):
        if expected is not None and span.from_offset > expected:
            yield f"the source has no segment for offsets {expected} to {span.from_offset - 1}"
            return
        expected = span.to_offset + 1
        segment = span.segment
        if segment.segment_id == last or segment.end_offset <= copied:
            continue
        if copied >= 0 and last is None and span.from_offset > copied + 1:
            yield (
                f"the target ends at offset {copied}, and the source begins at {span.from_offset}: "
                "the offsets between are lost, so copy the partition to a new tier"
            )
            return
        last = segment.segment_id
        yield segment


def _step_from_tier(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> Step:
    return _copy_step(segment, lineage, REASON, **{SOURCE_SEGMENT_ID: str(segment.segment_id)})
