"""RLMExpirationTask for one partition: which segments of its lineage breach a limit and are deleted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from tierctl.model import RemoteLogSegmentMetadata, TopicConfig
from tierctl.model.settings import topic
from tierctl.model.times import iso_utc
from tierctl.plan.reasons import RESUMED, Reason, ReasonKind, no_age_text
from tierctl.plan.retention.partition_view import DELETE_STARTED, PartitionView, distinct_bytes
from tierctl.plan.steps import FOLLOWS, Step, delete_step
from tierctl.state.lineage import segments_in_lineage


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
    tier at which the deletions end, and `limits` the limits after them.
    """

    steps: tuple[Step, ...]
    log_start_offset: int
    notes: tuple[str, ...]
    stalled: StalledRetention | None
    hole: Reason | None
    limits: "Limits"


def resume_deletions(view: PartitionView) -> list[Step]:
    """Return steps that finish every started deletion; consumers no longer read these segments."""
    started = list(view.segments.in_state(DELETE_STARTED))
    return [delete_step(s, RESUMED, breach="resume") for s in _ordered(started)]


def expire(view: PartitionView, config: TopicConfig, now_ms: int) -> Expiry:
    """Return what retention.ms, retention.bytes and the log start offset delete of the current lineage.

    Segments expire from the oldest live one to the first that breaches no limit or follows a hole. Then every
    segment of the lineage wholly below the new log start is deleted. A hole ends the run so that the operator
    sees it, and can go on by raising the log start above it.
    """
    live, excess_bytes, notes = _live_and_excess(view, config)
    limits = Limits(config, now_ms, excess_bytes)
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
    notes += _deleted_by_brokers_only(view, config, live, covered)
    ordered = sorted(steps.values(), key=lambda s: (s.start_offset or 0, s.segment_id or ""))
    return Expiry(
        steps=_chained(ordered),
        log_start_offset=log_start_offset,
        notes=tuple(notes),
        stalled=stalled,
        hole=hole,
        limits=limits,
    )


def _deleted_by_brokers_only(
    view: PartitionView, config: TopicConfig, live: Iterable[RemoteLogSegmentMetadata], expired_to: int | None
) -> list[str]:
    """Return a note if brokers would delete more segments by size than retention.bytes allows.

    Kafka 3.9 to 4.4 count the segments below the log start towards the size, and do not subtract them when
    they are deleted (RemoteLogManager.buildRetentionSizeData). `expired_to` is the last offset that this run
    deletes by a limit.
    """
    if config.retention_bytes < 0 or view.local_only_bytes is None:
        return []
    below_bytes = sum(s.segment_size_in_bytes for s in _below(view, view.log_start_offset))
    if not below_bytes:
        return []
    segments = tuple(live)
    excess_bytes = view.local_only_bytes + distinct_bytes(segments) + below_bytes - config.retention_bytes
    more: list[RemoteLogSegmentMetadata] = []
    for segment in segments:
        if excess_bytes < segment.segment_size_in_bytes:
            break
        excess_bytes -= segment.segment_size_in_bytes
        if expired_to is None or segment.end_offset > expired_to:
            more.append(segment)
    if not more:
        return []
    what = "1 more segment" if len(more) == 1 else f"{len(more)} more segments"
    note = (
        f"{topic.RETENTION_BYTES.name}={config.retention_bytes} allows to keep {what} (offsets "
        f"{more[0].start_offset} to {more[-1].end_offset}), which brokers would delete, because "
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
    return live, max(0, view.local_only_bytes + distinct_bytes(live) - config.retention_bytes), []


class Limits:
    """RemoteLogRetentionHandler: time first, then size; segments that time deletes reduce the excess, too."""

    def __init__(self, config: TopicConfig, now_ms: int, excess_bytes: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self._excess_bytes = excess_bytes

    def breach(self, segment: RemoteLogSegmentMetadata) -> Reason | None:
        """Return the limit that `segment` breaches, None without one; a breach reduces the excess."""
        size_bytes = segment.segment_size_in_bytes
        excess_bytes = self._excess_bytes
        if self._is_too_old(segment):
            self._excess_bytes = max(0, excess_bytes - size_bytes)
            limit_ms = self._config.retention_ms
            return Reason(ReasonKind.RETENTION_MS, retention_ms=limit_ms, cutoff_ms=self._now_ms - limit_ms)
        # A segment larger than the rest of the excess stays, so that the remaining size is not below the
        # limit.
        if 0 < excess_bytes >= size_bytes:
            self._excess_bytes = excess_bytes - size_bytes
            limit_bytes = self._config.retention_bytes
            return Reason(ReasonKind.RETENTION_BYTES, retention_bytes=limit_bytes, excess_bytes=excess_bytes)
        return None

    def _is_too_old(self, segment: RemoteLogSegmentMetadata) -> bool:
        # A segment without a timestamp, or with one in the future, has no known age.
        expires_at_ms = self._expires_at_ms(segment)
        return expires_at_ms is not None and segment.max_timestamp_ms > 0 and self._now_ms >= expires_at_ms

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
            if staller is None and not has_age(segment, self._now_ms):
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
            is_in_future=staller.max_timestamp_ms > self._now_ms,
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


def _ordered(segments: list[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    return sorted(segments, key=lambda s: (s.start_offset, s.segment_id))
