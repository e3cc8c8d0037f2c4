"""RLMExpirationTask for one partition: which segments of its lineage breach a limit and are deleted."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

from tierctl.model import (
    EpochEntry,
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.settings import topic
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import Decision
from tierctl.plan.reasons import RESUMED, Reason, ReasonKind, no_age_text
from tierctl.plan.steps import FOLLOWS, LINEAGE_EPOCH, Step, delete_step
from tierctl.state.cut_epochs import CutEpochs, cut_epochs
from tierctl.state.lineage import HighestOffsets, Lineage, find_highest_remote_offset, segments_in_lineage
from tierctl.state.log_start import KnownTier, extended_below, log_start_in_force, with_tier_start
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import PartitionState

DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
OFF_LINEAGE, UNREFERENCED_EPOCHS = "--off-lineage", "--unreferenced-epochs"
"""The options of `sweep` that delete segments which the lineage does not have."""


@dataclass(frozen=True, kw_only=True)
class PartitionView:
    """A partition's remote segments, the lineage of its log, and the log's offsets.

    `known_log_start_offset` is that of the log,
    `log_start_offset` may have been raised above it; `log_end_offset` is exclusive. `local_only_bytes` is the
    size of the local segments above the tier, and `local_start_offset` the base offset of the first local
    segment, None if unknown.
    """

    partition: TopicIdPartition
    segments: PartitionSegments
    lineage: Lineage
    known_log_start_offset: int
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int | None
    local_start_offset: int | None = None

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

    def iter_live(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the finished segments of the current lineage that end at or above the log start.

        Their order is that of RLMExpirationTask: by epoch, then by start offset.
        """
        seen: set[Uuid] = set()
        for epoch in self.current.epochs_with_records:
            for segment in self.segments.finished_in_epoch(epoch):
                if segment.end_offset < self.log_start_offset:
                    continue
                if segment.segment_id not in seen and self.current.contains(segment, self.log_end_offset):
                    seen.add(segment.segment_id)
                    yield segment

    @property
    def decided_in(self) -> dict[str, int]:
        """The detail of a step that names the lineage from which it was decided."""
        return {} if self.lineage.latest is None else {LINEAGE_EPOCH: self.lineage.latest.epoch}


def distinct_bytes(segments: Sequence[RemoteLogSegmentMetadata]) -> int:
    """Return the bytes of segments of one lineage, with each offset counted once.

    A segment that overlaps earlier ones counts by its share of offsets that they do not hold.
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


def local_only_bytes(copied: HighestOffsets, log: LocalLog) -> int | None:
    """Return the size of the segments of `log` above the highest copied offset; None if that is not known."""
    highest = find_highest_remote_offset(copied, Lineage(log.leader_epochs), log.log_end_offset).offset
    # Without a copied offset in the lineage it is unknown which local bytes are also in the tier.
    return None if highest < 0 else sum(s.size_bytes for s in log.segments if s.base_offset > highest)


def view_of_log(part: PartitionState, log: LocalLog) -> PartitionView:
    """Return the view of a partition with a known local log."""
    segments = part.segments
    log = with_tier_start(log, segments)
    return PartitionView(
        partition=part.topic_id_partition,
        segments=segments,
        lineage=Lineage(log.leader_epochs),
        known_log_start_offset=log.log_start_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        local_only_bytes=local_only_bytes(segments, log),
        local_start_offset=log.local_log_start_offset,
    )


def view_of_tier(part: PartitionState, entries: Sequence[EpochEntry]) -> PartitionView:
    """Return the view of a partition without a log, from `entries` of the newest leader-epoch index.

    The index proves no log start: it may be a copy of a checkpoint that had lost its first entries. The log
    therefore begins at the first finished segment, and what is below the start of `entries` only retention
    deletes, or a log start that the operator states.
    """
    segments = part.segments
    lineage = Lineage(extended_below(entries, segments))
    finished = segments.finished_range()
    start = log_start_in_force((), KnownTier(segments, lineage.entries)).offset
    return PartitionView(
        partition=part.topic_id_partition,
        segments=segments,
        lineage=lineage,
        known_log_start_offset=start,
        log_start_offset=start,
        log_end_offset=0 if finished is None else finished[1] + 1,
        local_only_bytes=None,
    )


def has_age(segment: RemoteLogSegmentMetadata, now_ms: int) -> bool:
    """Return whether the largest timestamp of `segment` shows its age: it is set, and not in the future."""
    return 0 < segment.max_timestamp_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRetention:
    """The segment that stops retention.ms of its partition, and since when; None if nothing is due yet."""

    segment: RemoteLogSegmentMetadata
    since_ms: int | None
    is_in_future: bool

    @classmethod
    def by(
        cls,
        blocking: RemoteLogSegmentMetadata | None,
        behind: Iterable[RemoteLogSegmentMetadata],
        config: TopicConfig,
        now_ms: int,
    ) -> Self | None:
        """Return the stall if `blocking`, the oldest segment that stays, stays because of its timestamp.

        Kafka never expires a segment by time whose largest timestamp is 0 or less, or in the future, and it
        does not examine the segments after the first one that stays (`behind`).
        """
        if blocking is None or config.retention_ms < 0 or has_age(blocking, now_ms):
            return None
        times_ms = (s.max_timestamp_ms for s in behind if has_age(s, now_ms))
        since_ms = min((at_ms + config.retention_ms for at_ms in times_ms), default=now_ms)
        return cls(
            segment=blocking,
            since_ms=since_ms if since_ms < now_ms else None,
            is_in_future=blocking.max_timestamp_ms > now_ms,
        )

    @property
    def message(self) -> str:
        """The stall in words, with the segment's id and the time since which segments behind it are due."""
        since, due = "no segment behind it is due yet", ""
        if self.since_ms is not None:
            since = f"since {iso_utc(self.since_ms)}"
            due = f"; the first segment behind it has been due since {iso_utc(self.since_ms)}"
        segment = self.segment
        return (
            f"{topic.RETENTION_MS.name} is stalled ({since}) by segment {segment.segment_id} from offset "
            f"{segment.start_offset}: its {no_age_text(segment.max_timestamp_ms, self.is_in_future)}, "
            f"so neither this segment nor any behind it expires by time{due}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The deletions by start offset, the log start after them, and notes on segments that stay.

    `stalled` is the segment that stops retention.ms, which a note reports, too. `hole` is the hole of the
    tier at which the deletions end. `by_brokers` are deletes of brokers that this run leaves out, because it
    does not count what is below the log start; `limits` are the limits after the deletes of brokers.
    """

    steps: tuple[Step, ...]
    log_start_offset: int
    notes: tuple[str, ...]
    stalled: StalledRetention | None
    hole: Reason | None
    limits: "Limits"
    by_brokers: tuple[Decision, ...] = ()


def by_start(step: Step) -> tuple[int, str]:
    """Return the key that orders the steps about segments of a partition."""
    return step.start_offset or 0, step.segment_id or ""


def resume_deletions(view: PartitionView) -> list[Step]:
    """Return steps that finish every started deletion; consumers no longer read these segments."""
    steps = (delete_step(s, RESUMED, breach="resume") for s in view.segments.in_state(DELETE_STARTED))
    return sorted(steps, key=by_start)


def expire(view: PartitionView, config: TopicConfig, now_ms: int) -> Expiry:
    """Return what retention.ms, retention.bytes and the log start offset delete of the current lineage.

    Segments expire from the oldest live one to the first that breaches no limit or follows a hole. Then every
    segment of the lineage wholly below the new log start is deleted. A hole ends the run so that the operator
    sees it, and can go on by raising the log start above it.
    """
    live, over_bytes, notes = _live_and_excess(view, config)
    limits = Limits(config, now_ms, over_bytes)
    steps: dict[str, Step] = {}
    log_start_offset = view.log_start_offset
    covered: int | None = None
    hole: Reason | None = None
    remaining = iter(live)
    blocking: RemoteLogSegmentMetadata | None = None
    for segment in remaining:
        if segment.end_offset < log_start_offset:
            # A longer copy of the same offsets has expired, and its bytes were already subtracted from the
            # excess.
            continue
        reason = limits.breach(segment)
        if reason is None:
            blocking = segment
            break
        hole = None if covered is None else _hole(view, covered + 1, segment.start_offset - 1)
        if hole:
            notes.append(hole)
            break
        covered = max(segment.end_offset, -1 if covered is None else covered)
        facts = {"breach": reason.settings[0], **reason.facts, **view.decided_in}
        steps[segment.segment_id] = delete_step(
            segment, reason, **facts, new_log_start_offset=segment.end_offset + 1
        )
        log_start_offset = max(log_start_offset, segment.end_offset + 1)
    if view.segments.count_finished_below(log_start_offset) > len(steps):
        for segment in _below(view, log_start_offset):
            if segment.segment_id not in steps:
                steps[segment.segment_id] = _below_step(view, segment, log_start_offset)
    stalled = StalledRetention.by(blocking, remaining, config, now_ms)
    if stalled is not None:
        notes.append(stalled.message)
    below_bytes = _counted_below(view, config)
    by_brokers: tuple[Decision, ...] = ()
    if below_bytes:
        limits = Limits(config, now_ms, over_bytes, below_bytes)
        by_brokers = _deleted_by_brokers_only(view, limits, steps)
        notes += _note_of_brokers(by_brokers, config, below_bytes)
    ordered = sorted(steps.values(), key=by_start)
    return Expiry(
        steps=_chained(ordered),
        log_start_offset=log_start_offset,
        notes=tuple(notes),
        stalled=stalled,
        hole=hole,
        limits=limits,
        by_brokers=by_brokers,
    )


def _deleted_by_brokers_only(
    view: PartitionView, limits: "Limits", steps: Collection[str]
) -> tuple[Decision, ...]:
    """Return the live segments without a step in `steps` that brokers delete next, by `limits`.

    `limits` are those that brokers compute; their excess is reduced by each deletion.
    """
    found = []
    for segment in view.iter_live():
        reason = limits.breach(segment)
        if reason is None:
            break
        if segment.segment_id not in steps:
            found.append(Decision.deleted(segment, reason, limits.now_ms))
    return tuple(found)


def _counted_below(view: PartitionView, config: TopicConfig) -> int:
    """Return the bytes below the log start that brokers count towards retention.bytes; 0 if unknown.

    Kafka 3.9 to 4.4 count the segments below the log start towards the size, and do not subtract them when
    they are deleted (RemoteLogManager.buildRetentionSizeData). Segments that no epoch lists are not counted.
    """
    if config.retention_bytes < 0 or view.local_only_bytes is None:
        return 0
    below = _below(view, view.log_start_offset)
    return sum(s.segment_size_in_bytes for s in below if s.segment_id not in view.segments.doubled_ids)


def _note_of_brokers(deleted: Sequence[Decision], config: TopicConfig, below_bytes: int) -> list[str]:
    """Return a note if brokers delete more segments by size than retention.bytes allows."""
    if not deleted:
        return []
    what = "1 more segment" if len(deleted) == 1 else f"{len(deleted)} more segments"
    note = (
        f"{topic.RETENTION_BYTES.name}={config.retention_bytes} allows to keep {what} (offsets "
        f"{deleted[0].start_offset} to {deleted[-1].end_offset}), which brokers would delete, because "
        f"they count the {below_bytes} bytes below the log start towards the limit"
    )
    return [note]


def _chained(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, each with the id of the one before it: steps may be removed from a saved plan."""
    chained = list(steps[:1])
    for before, step in pairwise(steps):
        chained.append(replace(step, details={**step.details, FOLLOWS: before.segment_id}))
    return tuple(chained)


def _live_and_excess(
    view: PartitionView, config: TopicConfig
) -> tuple[Iterable[RemoteLogSegmentMetadata], int, list[str]]:
    """Return the live segments, the bytes above retention.bytes, and a note if these can't be computed.

    The bytes are negative below the limit.

    Without a limit on size that counts, the segments are an iterator: only those up to the first that stays
    are needed.
    """
    timed = view.iter_live() if config.retention_ms >= 0 else ()
    if config.retention_bytes < 0:
        return timed, 0, []
    if view.local_only_bytes is None:
        note = "deletes nothing: the size of the segments that only the local log has is not known"
        return timed, 0, [f"{topic.RETENTION_BYTES.name} {note}"]
    live = tuple(view.iter_live())
    return live, view.local_only_bytes + distinct_bytes(live) - config.retention_bytes, []


class Limits:
    """RemoteLogRetentionHandler: time first, then size; segments that time deletes reduce the excess, too.

    `over_bytes` are the bytes above retention.bytes, negative below it, without the `below_bytes` below the
    log start that brokers count, too.
    """

    def __init__(self, config: TopicConfig, now_ms: int, over_bytes: int, below_bytes: int = 0) -> None:
        self._config = config
        self.now_ms = now_ms
        self._below_bytes = below_bytes
        self._excess_bytes = max(0, over_bytes + below_bytes)

    def breach(self, segment: RemoteLogSegmentMetadata) -> Reason | None:
        """Return the limit that `segment` breaches, None without one; a breach reduces the excess."""
        size_bytes = segment.segment_size_in_bytes
        excess_bytes = self._excess_bytes
        if self._is_too_old(segment):
            self._excess_bytes = max(0, excess_bytes - size_bytes)
            limit_ms = self._config.retention_ms
            return Reason(ReasonKind.RETENTION_MS, retention_ms=limit_ms, cutoff_ms=self.now_ms - limit_ms)
        # A segment larger than the rest of the excess stays, so that the remaining size is not below the
        # limit.
        if 0 < excess_bytes >= size_bytes:
            self._excess_bytes = excess_bytes - size_bytes
            limit_bytes = self._config.retention_bytes
            facts = {"retention_bytes": limit_bytes, "excess_bytes": excess_bytes}
            if self._below_bytes:
                facts["below_bytes"] = self._below_bytes
            return Reason(ReasonKind.RETENTION_BYTES, **facts)
        return None

    def _is_too_old(self, segment: RemoteLogSegmentMetadata) -> bool:
        # A segment without a timestamp, or with one in the future, has no known age.
        expires_at_ms = self._expires_at_ms(segment)
        return expires_at_ms is not None and segment.max_timestamp_ms > 0 and self.now_ms >= expires_at_ms

    def _expires_at_ms(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """Return the first time at which retention.ms deletes `segment`; None if it is no limit."""
        if self._config.retention_ms < 0:
            return None
        after_ms = 0 if self._config.kafka_version.expires_at_cutoff else 1
        return segment.max_timestamp_ms + self._config.retention_ms + after_ms

    def why_kept(self, segments: Iterable[RemoteLogSegmentMetadata]) -> Iterator[Reason]:
        """Yield why each of `segments` stays: the live segments that no limit deletes now, oldest first."""
        first: RemoteLogSegmentMetadata | None = None
        staller: RemoteLogSegmentMetadata | None = None
        latest: RemoteLogSegmentMetadata | None = None
        for segment in segments:
            expires_at_ms = self._expires_at_ms(segment)
            if expires_at_ms is None:
                yield self._why_size_keeps(segment, first)
                first = first or segment
                continue
            if staller is None and not has_age(segment, self.now_ms):
                staller = segment
            if staller is not None:
                yield self._why_stalled(segment, staller)
                continue
            if latest is None or segment.max_timestamp_ms >= latest.max_timestamp_ms:
                latest = segment
            yield self._why_young(segment, expires_at_ms, latest)

    def _why_size_keeps(
        self, segment: RemoteLogSegmentMetadata, first: RemoteLogSegmentMetadata | None
    ) -> Reason:
        if self._config.retention_bytes >= 0 and first is not None:
            return Reason(ReasonKind.BEHIND_OLDER, held_by=first.segment_id)
        is_age_stated = self._config.is_age_stated
        return Reason(ReasonKind.NO_LIMIT_REACHED, is_age_stated=is_age_stated, **self._size_facts(segment))

    def _why_stalled(self, segment: RemoteLogSegmentMetadata, staller: RemoteLogSegmentMetadata) -> Reason:
        return Reason(
            ReasonKind.STALLED,
            held_by=staller.segment_id,
            held_by_offset=staller.start_offset,
            is_holder=segment is staller,
            timestamp_ms=staller.max_timestamp_ms,
            is_in_future=staller.max_timestamp_ms > self.now_ms,
        )

    def _why_young(
        self, segment: RemoteLogSegmentMetadata, own_expiry_ms: int, latest: RemoteLogSegmentMetadata
    ) -> Reason:
        """Return when `segment` expires: `latest` has the largest timestamp of it and the older segments."""
        return Reason(
            ReasonKind.WILL_EXPIRE,
            expires_at_ms=self._expires_at_ms(latest),
            own_expiry_ms=own_expiry_ms,
            held_by=None if latest is segment else latest.segment_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            retention_ms=self._config.retention_ms,
            **self._size_facts(segment),
        )

    def _size_facts(self, segment: RemoteLogSegmentMetadata) -> dict[str, int]:
        if self._config.retention_bytes < 0:
            return {}
        return {
            "retention_bytes": self._config.retention_bytes,
            "excess_bytes": self._excess_bytes,
            "segment_size_in_bytes": segment.segment_size_in_bytes,
        }


def _hole(view: PartitionView, from_offset: int, to_offset: int) -> Reason | None:
    """Return a reason to stop at the first offset up to `to_offset` that no segment of the lineage has.

    Return None if there is no such offset. The offsets of segments that are being deleted are not missing.
    """
    if from_offset > to_offset:
        return None
    spans = [(s.start_offset, s.end_offset) for s in view.segments.in_state(DELETE_STARTED)]
    readable = segments_in_lineage(view.segments.cache, view.current, from_offset, to_offset)
    spans += [(span.from_offset, span.to_offset) for span in readable]
    at = from_offset
    for start, end in sorted(spans):
        if start > at:
            break
        at = max(at, end + 1)
    return Reason(ReasonKind.BEHIND_HOLE, hole=f"from {at} to {to_offset}") if at <= to_offset else None


def _below(view: PartitionView, log_start_offset: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments of the lineage that lie wholly below the log start, readable or not."""
    for segment in view.segments.finished_below(log_start_offset):
        if view.lineage.contains(segment, view.log_end_offset):
            yield segment


def _below_step(view: PartitionView, segment: RemoteLogSegmentMetadata, log_start_offset: int) -> Step:
    return delete_step(
        segment,
        Reason(ReasonKind.LOG_START_OFFSET, log_start_offset=log_start_offset),
        breach="log_start_offset",
        **view.decided_in,
        new_log_start_offset=log_start_offset,
    )


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def kept_of(
    view: PartitionView, expiry: Expiry, steps: Collection[Step], unfinished: Mapping[Uuid, Reason]
) -> Iterator[Decision]:
    """Yield each segment of a partition that has no step in `steps` and is not being deleted.

    `expiry` is the result of retention for the partition, and `steps` are all its deletes. `unfinished` has
    the reasons, by segment id, of the unfinished copies below the log start.
    """
    deleted = {step.segment_id for step in steps}
    by_brokers = {each.segment_id: each for each in expiry.by_brokers if expiry.hole is None}
    live = [s for s in view.iter_live() if s.segment_id not in deleted and s.segment_id not in by_brokers]
    reasons = dict(zip((s.segment_id for s in live), expiry.limits.why_kept(live), strict=True))
    for segment in view.segments:
        if segment.state is DELETE_STARTED or segment.segment_id in deleted:
            continue
        if segment.segment_id in by_brokers:
            yield by_brokers[segment.segment_id]
            continue
        if segment.state is _STARTED:
            begun = iso_utc(segment.event_timestamp_ms)
            copying = Reason(ReasonKind.COPY_STARTED, broker_id=segment.broker_id, begun=begun)
            reason = unfinished.get(segment.segment_id, copying)
        elif segment.segment_id not in reasons:
            reason = _why_beside(view, segment)
        else:
            reason = expiry.hole or reasons[segment.segment_id]
        yield Decision.kept(segment, reason)


def sweep_option(
    lineage: Lineage, segment: RemoteLogSegmentMetadata, log_start_offset: int, log_end_offset: int
) -> str | None:
    """Return the option of `sweep` that deletes a finished segment which no limit of the topic deletes.

    It is empty if `sweep` needs none: the segment lies wholly below the log start, and is of the lineage or
    of epochs that the checkpoint no longer has. Return None if a log start further on must come first.
    """
    is_below = segment.end_offset < log_start_offset
    if is_below and lineage.contains(segment, log_end_offset):
        return ""
    newest, known = segment.newest_leader_epoch, lineage.earliest
    earliest_epoch = lineage.first_epoch_from(log_start_offset)
    if known is None or earliest_epoch is None or newest >= earliest_epoch:
        return None
    if newest >= known.epoch:
        return OFF_LINEAGE
    return "" if is_below else UNREFERENCED_EPOCHS


def swept_text(option: str | None) -> str:
    """Return in words how `sweep` deletes a segment; `option` is as `sweep_option` returns it."""
    if option is None:
        return "sweep deletes it once it lies wholly below the log start offset"
    return f"{f'sweep {option}'.rstrip()} deletes it now"


def why_doubled(view: PartitionView, segment: RemoteLogSegmentMetadata, sweep: str) -> Reason:
    """Return why brokers keep a segment of `doubled_ids`; `sweep` states what `sweep` does with it."""
    again_as = view.segments.doubled_by(segment)
    return Reason(ReasonKind.DOUBLED_SEGMENT, again_as=again_as, sweep=sweep)


def undecided(segments: PartitionSegments, reason: str, without: Collection[Step] = ()) -> Iterator[Decision]:
    """Yield every segment of a partition without a step in `without`; `reason` is why it stays."""
    deleted = {step.segment_id for step in without}
    for segment in segments:
        if segment.segment_id not in deleted:
            yield Decision.kept(segment, Reason.of(reason))


def _why_beside(view: PartitionView, segment: RemoteLogSegmentMetadata) -> Reason:
    """Return how the epochs of `segment` differ from those of the log, or that a later copy replaced it."""
    if view.cut is not None and segment in view.cut.lost:
        return why_cut(view.cut, segment, "the log")
    if segment.segment_id in view.segments.doubled_ids:
        option = sweep_option(view.lineage, segment, view.log_start_offset, view.log_end_offset)
        return why_doubled(view, segment, swept_text(option if view.cut is None else None))
    theirs = ", ".join(f"{epoch}@{start}" for epoch, start in segment.segment_leader_epochs)
    known = ", ".join(f"{epoch}@{start}" for epoch, start in view.current.entries)
    detail = f"{theirs} are not those of the log: {known}, up to offset {view.log_end_offset}"
    return Reason(ReasonKind.OFF_LINEAGE, detail=detail)


def why_cut(cut: CutEpochs, segment: RemoteLogSegmentMetadata, log: str) -> Reason:
    """Return what brokers do with a segment whose epochs the checkpoint of `log` lost."""
    is_deleted = cut.is_deleted_by_brokers(segment)
    what = f"a broker deletes it once it leads with the cut leader epochs of {log}" if is_deleted else "kept"
    return Reason(ReasonKind.CUT_EPOCHS, is_deleted=is_deleted, detail=f"{what}: {cut}")
