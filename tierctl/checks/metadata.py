"""Find faults in metadata events, in partition deletes, and topics that are gone or recreated."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from tierctl.checks.findings import Finding, FindingKind, finding_of, metadata_finding
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import (
    LocalLog,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import Severity
from tierctl.model.selection import counted
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import Covered
from tierctl.state.tier_state import Anomaly, PartitionState, TierState

_K = FindingKind
_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState


PartitionKey = tuple[Uuid, int]
"""The topic id and the number of a user partition."""
SegmentKey = tuple[PartitionKey, Uuid]
"""A segment id, with the user partition of the segment."""

DeletedAmong = Callable[[Collection[Uuid]], Collection[Uuid]]
"""Returns those of some segment ids that have DELETE_SEGMENT_FINISHED in the metadata topic."""


def check_events(state: TierState, deleted_among: DeletedAmong) -> Iterator[Finding]:
    """Yield the records that could not be used or are empty, and the events that brokers drop."""
    for bad in state.quarantined:
        yield unusable_record(bad.metadata_partition, bad.metadata_offset, bad.error.message)
    yield from empty_records(state)
    yield from dropped_events(state, deleted_among)
    more = state.anomaly_count - len(state.anomalies)
    if more > 0:
        yield more_dropped_events(more)


_MORE = "more event was dropped/more events were dropped"
_LEFT = "segment is left/segments are left"


def empty_records(state: TierState) -> Iterator[Finding]:
    """Yield a finding for each metadata partition with records without a value: `found` begins with how many.

    `start_offset` is that of the first one.
    """
    for number, (first, count) in sorted(state.tombstones.items()):
        found = f"{count} without a value, the first at offset {first}"
        yield metadata_finding(_K.EMPTY_RECORD, Severity.ERROR, found, number, (first, first))


def unusable_record(metadata_partition: int, metadata_offset: int, why: str) -> Finding:
    """Return the finding about a record of the metadata topic that could not be used."""
    offsets = metadata_offset, metadata_offset
    return metadata_finding(_K.CORRUPT_METADATA, Severity.ERROR, why, metadata_partition, offsets)


def more_dropped_events(count: int) -> Finding:
    """Return the finding about events that brokers drop and that are not told one by one."""
    return metadata_finding(_K.DROPPED_EVENT, Severity.WARNING, counted(count, _MORE))


def dropped_events(state: TierState, deleted_among: DeletedAmong) -> Iterator[Finding]:
    """Yield a finding for each of the state's anomalies, in their order."""
    updated = {
        (anomaly.topic_id_partition.key, anomaly.event.segment_id)
        for anomaly in state.anomalies
        if isinstance(anomaly.event, RemoteLogSegmentMetadataUpdate)
    }
    live = live_segments(state, updated)
    deleted = deleted_among({segment_id for _, segment_id in updated - live.keys()})
    for anomaly in state.anomalies:
        yield _dropped(anomaly, state, live, deleted)


def live_segments(
    state: TierState, segments: Iterable[SegmentKey]
) -> dict[SegmentKey, RemoteLogSegmentMetadata]:
    """Return those of `segments` that `state` has and that are not deleted."""
    ids: dict[PartitionKey, set[Uuid]] = {}
    for partition, segment_id in segments:
        ids.setdefault(partition, set()).add(segment_id)
    return dict(state.map_parts(partial(_live_among, ids), ids))


def _live_among(
    ids: Mapping[PartitionKey, Collection[Uuid]], state: TierState
) -> Iterator[tuple[SegmentKey, RemoteLogSegmentMetadata]]:
    for partition, wanted in ids.items():
        part = state.partitions.get(partition)
        if part is not None:
            found = ((each, part.get(each)) for each in wanted)
            yield from (((partition, each), segment) for each, segment in found if segment is not None)


def _dropped(
    anomaly: Anomaly, state: TierState, live: Collection[SegmentKey], deleted: Collection[Uuid]
) -> Finding:
    """Return the finding about an event that was dropped.

    `live` has the updated segments that are not deleted, and `deleted` those that are.
    """
    missing = state.missing_of(anomaly.metadata_partition)
    event = anomaly.event
    segment_id = getattr(event, "segment_id", None)
    where = f"{METADATA_TOPIC}-{anomaly.metadata_partition} offset {anomaly.metadata_offset}"
    severity, why = Severity.WARNING, "the state of the segment or partition does not allow it"
    is_live = (anomaly.topic_id_partition.key, segment_id) in live
    if isinstance(event, RemoteLogSegmentMetadataUpdate) and not is_live and event.segment_id in deleted:
        why = "the segment was deleted before"
        if event.state in {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}:
            # After an election two brokers may delete the same segment, which does no harm.
            severity = Severity.INFO
    elif isinstance(event, RemoteLogSegmentMetadataUpdate) and not is_live and missing:
        severity, why = Severity.INFO, f"{missing[0]}, its COPY_SEGMENT_STARTED among them"
    target = getattr(event, "state", type(event).__name__)
    found = finding_of(
        anomaly.topic_id_partition, _K.DROPPED_EVENT, severity, f"{target} at {where} was dropped: {why}"
    )
    if isinstance(event, RemoteLogSegmentMetadata):
        found = replace(found, start_offset=event.start_offset, end_offset=event.end_offset)
    return replace(found, segment_id=segment_id)


def check_partition_delete(part: PartitionState) -> Iterator[Finding]:
    """Yield a finding if the partition's deletion was marked and segments are left."""
    if part.delete_state in {_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED}:
        message = f"the partition is {part.delete_state}, and {counted(part.segment_count, _LEFT)}"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.WARNING, message)
    elif part.delete_state is _P.DELETE_PARTITION_FINISHED and part.segment_count:
        message = f"the partition is {part.delete_state}, yet {counted(part.segment_count, _LEFT)}"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.ERROR, message)


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topic ids that brokers have, by name; `complete` if they have no other topics.

    `unreadable` are names of topics whose folders can't be read, so that their ids are unknown.
    """

    ids: Mapping[str, frozenset[Uuid]]
    complete: bool = False
    unreadable: frozenset[str] = frozenset()

    def lacks(self, partition: TopicIdPartition) -> bool:
        """Return whether the brokers do not have the topic of `partition` under its id."""
        ids = self.ids.get(partition.topic)
        return partition.topic not in self.unreadable if ids is None else partition.topic_id not in ids

    @classmethod
    def of(cls, partitions: Iterable[TopicIdPartition], unreadable: Iterable[str]) -> Self:
        """Return the topics of these partitions, which may not be all that brokers have."""
        ids: dict[str, set[Uuid]] = {}
        for partition in partitions:
            ids.setdefault(partition.topic, set()).add(partition.topic_id)
        return cls(
            {topic: frozenset(found) for topic, found in ids.items()}, unreadable=frozenset(unreadable)
        )


@dataclass(frozen=True, slots=True)
class Removals:
    """The partitions whose segments only `delete` deletes, with the finding that states why."""

    findings: Mapping[tuple[Uuid | None, int | None], Finding]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self:
        """Return the removals of the findings of `check_topics` and `check_partition_delete`."""
        return cls({(f.topic_id, f.partition): f for f in findings})

    def applied(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings about partitions; those of removed ones advise `delete` instead of a repair.

        A removed partition has no finding about retention or copying: neither decides anything about it.
        """
        for finding in found:
            removal = self.findings.get((finding.topic_id, finding.partition))
            if removal is None:
                yield finding
            elif finding.check.row.command is not None:
                yield replace(finding, own_fix=removal.fix)
            elif finding.check not in {_K.STALLED_RETENTION, _K.FAILING_COPIES, _K.LOCAL_NOT_FREED}:
                yield finding


def check_topics(parts: Sequence[PartitionState], known: KnownTopics | None) -> Iterator[Finding]:
    """Yield a finding for each partition whose topic the brokers don't have, or have under another id.

    Without `known`, of several topic ids with one name the one whose segments have the latest event counts
    as the current one.
    """
    named: dict[str, list[PartitionState]] = {}
    for part in parts:
        if part.segment_count and part.delete_state is None:
            named.setdefault(part.topic_id_partition.topic, []).append(part)
    for topic, same in sorted(named.items()):
        if known is not None and topic in known.unreadable and topic not in known.ids:
            continue
        current = _current_ids(same) if known is None else known.ids.get(topic, frozenset())
        for part in same:
            if part.topic_id_partition.topic_id not in current:
                yield _not_current(part, current, known)


def _current_ids(parts: Sequence[PartitionState]) -> frozenset[Uuid]:
    ids = frozenset(part.topic_id_partition.topic_id for part in parts)
    return ids if len(ids) == 1 else frozenset({max(parts, key=_recency).topic_id_partition.topic_id})


def _recency(part: PartitionState) -> tuple[int, Uuid]:
    return part.segments.newest_event_ms(), part.topic_id_partition.topic_id


def _not_current(part: PartitionState, current: frozenset[Uuid], known: KnownTopics | None) -> Finding:
    left = counted(part.segment_count, "segment of this topic id is left/segments of this topic id are left")
    if current:
        message = f"the topic was recreated as {', '.join(sorted(current))}; {left}"
        return finding_of(part.topic_id_partition, _K.RECREATED_TOPIC, Severity.WARNING, message)
    where = "the cluster has" if known is not None and known.complete else "the log directories hold"
    message = f"{where} no topic of this id; {left}"
    return finding_of(part.topic_id_partition, _K.UNKNOWN_TOPIC, Severity.WARNING, message)


def without_gone(
    found: Iterable[Finding], parts: Sequence[PartitionState], known: KnownTopics | None
) -> Iterator[Finding]:
    """Yield the findings without failing copies of topics that no longer exist, which nobody copies.

    Unless all topics are known, a topic that brokers lack may be on other brokers: it counts as gone only if
    nothing of it is in the tier. `check_topics` reports the other ones.
    """
    gone = {
        part.topic_id_partition.key
        for part in parts
        if known is not None
        and known.lacks(part.topic_id_partition)
        and (known.complete or not part.segment_count)
    }
    for finding in found:
        if finding.check is not _K.FAILING_COPIES or (finding.topic_id, finding.partition) not in gone:
            yield finding


DeletedOf = Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]]
"""Returns the segments of a partition that are DELETE_SEGMENT_FINISHED."""


@dataclass(frozen=True, slots=True)
class DeletedPrefixes:
    """Tells offsets that retention deleted from lost ones: `logs` are the newest replicas, by partition.

    A sweep without a cluster keeps the raised log start in its state directory, not in the log directory.
    """

    logs: Mapping[tuple[Uuid, int], LocalLog]
    deleted_of: DeletedOf

    def applied(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings; a gap at the log start is split where the deleted segments end."""
        for finding in found:
            log = self.logs.get((finding.topic_id, finding.partition))  # type: ignore[arg-type]
            is_gap = finding.check is FindingKind.GAP
            if is_gap and log is not None and finding.start_offset == log.log_start_offset:
                yield from self._split(finding, log)
            else:
                yield finding

    def _split(self, gap: Finding, log: LocalLog) -> Iterator[Finding]:
        start, end = gap.start_offset or 0, gap.end_offset or 0
        next_offset = self._end_of_deleted(log)
        if next_offset > start:
            last = min(next_offset - 1, end)
            message = (
                f"the segments of offsets {start} to {last} are DELETE_SEGMENT_FINISHED, but the log "
                f"directory still has the log start offset {start}"
            )
            kind = FindingKind.LOG_START_BEHIND
            yield replace(gap, check=kind, severity=Severity.INFO, end_offset=last, found=message)
        if next_offset <= end:
            lost = max(start, next_offset)
            message = f"no readable remote segment holds offsets {lost} to {end}"
            yield replace(gap, start_offset=lost, found=message)

    def _end_of_deleted(self, log: LocalLog) -> int:
        """Return the offset after the deleted segments of the lineage that adjoin the log start."""
        lineage, deleted = Lineage(log.leader_epochs), self.deleted_of(log.topic_id_partition)
        own = (segment for segment in deleted if lineage.contains(segment, log.log_end_offset))
        return Covered((s.start_offset, s.end_offset) for s in own).first_missing(log.log_start_offset)
