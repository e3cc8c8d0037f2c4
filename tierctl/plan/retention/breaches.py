"""RLMExpirationTask for one partition: which segments of its lineage breach a limit and are deleted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tierctl.model import RemoteLogSegmentMetadata, TopicConfig
from tierctl.model.settings import topic
from tierctl.plan.retention.partition_view import DELETE_STARTED, PartitionView, distinct_bytes
from tierctl.plan.retention.stalled import StalledRetention
from tierctl.plan.steps import FOLLOWS, Step, delete_step
from tierctl.state.lineage import segments_in_lineage
from tierctl.state.segment_queries import finished_below, segments_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The deletions by start offset, the log start after them, and notes on segments that stay.

    `stalled` is the segment that stops retention.ms, which a note reports, too.
    """

    steps: tuple[Step, ...]
    log_start_offset: int
    notes: tuple[str, ...]
    stalled: StalledRetention | None


def resume_deletions(view: PartitionView) -> list[Step]:
    """Return steps that finish every started deletion; consumers no longer read these segments."""
    started = list(segments_in(view.cache, DELETE_STARTED))
    return [delete_step(s, "resume of DELETE_SEGMENT_STARTED", breach="resume") for s in _ordered(started)]


def expire(view: PartitionView, config: TopicConfig, now_ms: int) -> Expiry:
    """Return what retention.ms, retention.bytes and the log start offset delete of the current lineage.

    Segments expire from the oldest live one to the first that breaches no limit or follows a hole. Then every
    segment of the lineage wholly below the new log start is deleted. A hole ends the run so that the operator
    sees it, and can go on by raising the log start above it.
    """
    live, excess_bytes, notes = _live_and_excess(view, config)
    limits = _Limits(config, now_ms, excess_bytes)
    steps: dict[str, Step] = {}
    log_start_offset = view.log_start_offset
    covered: int | None = None
    remaining = iter(live)
    blocking: RemoteLogSegmentMetadata | None = None
    for segment in remaining:
        if segment.end_offset < log_start_offset:
            # A longer copy of these offsets expired: the excess already counts their bytes as deleted.
            continue
        facts = limits.breach(segment)
        if facts is None:
            blocking = segment
            break
        hole = None if covered is None else _hole(view, covered + 1, segment.start_offset - 1)
        if hole:
            notes.append(
                f"the tier has a hole {hole}: nothing beyond it expires in this run; to delete more, raise "
                "the log start above the hole (--log-start-offset)"
            )
            break
        reason = facts.pop("reason")
        covered = max(segment.end_offset, -1 if covered is None else covered)
        steps[segment.segment_id] = delete_step(
            segment, reason, **facts, **view.decided_in, new_log_start_offset=segment.end_offset + 1
        )
        log_start_offset = max(log_start_offset, segment.end_offset + 1)
    for segment in _below(view, log_start_offset):
        if segment.segment_id not in steps:
            steps[segment.segment_id] = _below_step(view, segment, log_start_offset)
    stalled = StalledRetention.by(blocking, remaining, config, now_ms)
    if stalled is not None:
        notes.append(stalled.message)
    notes += _deleted_by_brokers_only(view, config, live, covered)
    ordered = sorted(steps.values(), key=lambda s: (s.start_offset or 0, s.segment_id or ""))
    return Expiry(
        steps=_chained(ordered), log_start_offset=log_start_offset, notes=tuple(notes), stalled=stalled
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
    note = (
        f"{len(more)} more segments (offsets {more[0].start_offset} to {more[-1].end_offset}) are kept, as "
        f"{topic.RETENTION_BYTES.name}={config.retention_bytes} allows; brokers would delete them, because "
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

    Without a limit on size the segments are an iterator: only those up to the first that stays are needed.
    """
    if config.retention_bytes < 0:
        return (view.iter_live() if config.retention_ms >= 0 else ()), 0, []
    live = tuple(view.iter_live())
    if view.local_only_bytes is None:
        note = "deletes nothing: the size of the segments that only the local log has is not known"
        return live, 0, [f"{topic.RETENTION_BYTES.name} {note}"]
    return live, max(0, view.local_only_bytes + distinct_bytes(live) - config.retention_bytes), []


class _Limits:
    """RemoteLogRetentionHandler: time first, then size; segments that time deletes reduce the excess, too."""

    def __init__(self, config: TopicConfig, now_ms: int, excess_bytes: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self._excess_bytes = excess_bytes

    def breach(self, segment: RemoteLogSegmentMetadata) -> dict[str, Any] | None:
        """Return the facts of the breach, None without one; a breach reduces the excess."""
        size_bytes = segment.segment_size_in_bytes
        excess_bytes = self._excess_bytes
        if self._is_too_old(segment):
            self._excess_bytes = max(0, excess_bytes - size_bytes)
            return self._time_facts()
        # Only segments wholly inside the excess: the remaining size is never below the limit.
        if 0 < excess_bytes >= size_bytes:
            self._excess_bytes = excess_bytes - size_bytes
            return self._size_facts(excess_bytes)
        return None

    def _is_too_old(self, segment: RemoteLogSegmentMetadata) -> bool:
        # A segment without a timestamp, or with one in the future, has no known age.
        cutoff_ms = self._now_ms - self._config.retention_ms
        if self._config.kafka_version.expires_at_cutoff:
            cutoff_ms += 1
        return self._config.retention_ms >= 0 and 0 < segment.max_timestamp_ms < cutoff_ms

    def _time_facts(self) -> dict[str, Any]:
        limit_ms = self._config.retention_ms
        return {
            "reason": f"{topic.RETENTION_MS.name} {limit_ms}",
            "breach": topic.RETENTION_MS.name,
            "retention_ms": limit_ms,
            "cutoff_ms": self._now_ms - limit_ms,
        }

    def _size_facts(self, excess_bytes: int) -> dict[str, Any]:
        limit_bytes = self._config.retention_bytes
        return {
            "reason": f"{topic.RETENTION_BYTES.name} {limit_bytes}",
            "breach": topic.RETENTION_BYTES.name,
            "retention_bytes": limit_bytes,
            "excess_bytes": excess_bytes,
        }


def _hole(view: PartitionView, from_offset: int, to_offset: int) -> str | None:
    """Return the range from the first offset that no segment of the lineage holds to `to_offset`, as text.

    None if there is no such offset. Segments that are being deleted count as held.
    """
    if from_offset > to_offset:
        return None
    spans = [(s.start_offset, s.end_offset) for s in segments_in(view.cache, DELETE_STARTED)]
    readable = segments_in_lineage(view.cache, view.current, from_offset, to_offset)
    spans += [(span.from_offset, span.to_offset) for span in readable]
    at = from_offset
    for start, end in sorted(spans):
        if start > at:
            break
        at = max(at, end + 1)
    return f"from {at} to {to_offset}" if at <= to_offset else None


def _below(view: PartitionView, log_start_offset: int) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the finished segments of the lineage that lie wholly below the log start, readable or not."""
    for segment in finished_below(view.cache, log_start_offset):
        if view.lineage.contains(segment, view.log_end_offset):
            yield segment


def _below_step(view: PartitionView, segment: RemoteLogSegmentMetadata, log_start_offset: int) -> Step:
    return delete_step(
        segment,
        f"below the log start offset {log_start_offset}",
        breach="log_start_offset",
        **view.decided_in,
        new_log_start_offset=log_start_offset,
    )


def _ordered(segments: list[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    return sorted(segments, key=lambda s: (s.start_offset, s.segment_id))
