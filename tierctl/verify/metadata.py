"""What is wrong with a tier beyond single segments: its metadata, its topics, objects nobody knows.

Everything here only says so; what could be done about it is each kind's hint.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierctl.state.tier import Anomaly, PartitionState, TierState
from tierctl.verify.segments import DANGLING_AFTER_MS, Finding, FindingKind, Severity, finding_of
from tierctl.verify.store import Orphan

_K = FindingKind
_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState

METADATA_TOPIC: Final = "__remote_log_metadata"

WasDeleted = Callable[[Uuid], bool]
"""Whether an event says that the segment's deletion has finished."""

HINTS: Final[Mapping[FindingKind, str]] = {
    _K.OFFSETS: "look at the partition's checkpoints; a broker that was restored from a backup shows this",
    _K.GAP: "these offsets can't be read any more: look for them in another replica, or in a backup",
    _K.BEYOND_LOG_END: "the log lost its end, or --log-dir is an old copy",
    _K.DOUBLED_SEGMENT: "nobody reads or deletes it: sweep --off-lineage can",
    _K.DIVERGENT_SEGMENT: "of a former leader: brokers delete it in time, sweep --off-lineage does now",
    _K.OVERLAP: "brokers answer from either; no harm",
    _K.DANGLING_COPY: "copy --clean-dangling deletes what it left",
    _K.STUCK_DELETE: "sweep resumes it",
    _K.BELOW_LOG_START: "brokers, or sweep, delete it in time",
    _K.MISSING_OBJECT: "these offsets can't be read: look for them in a replica, or restore the objects",
    _K.SIZE_DIFFERS: "restore the object, or copy the segment anew from a replica that still has it",
    _K.ORPHAN: "make sure that --metadata is this tier's before you delete it",
    _K.TEMP_LEFTOVER: "a killed copy left it: delete it once no copy is running",
    _K.CORRUPT_LOG: "restore the object, or copy the segment anew from a replica that still has it",
    _K.CORRUPT_INDEX: "fetch reads on without it, brokers don't: restore it from another copy",
    _K.SEGMENT_OFFSETS: "is it another segment's object? compare it with the neighbours",
    _K.EPOCHS_DIFFER: "seeks by leader epoch may go wrong; is it another segment's object?",
    _K.METADATA_DIFFERS: "retention and read_committed go by what the metadata say",
    _K.DIFFERS_FROM_LOG: "one of them is damaged: --deep says whether it is the remote one",
    _K.CORRUPT_METADATA: "look at it with tierctl format; its metadata partition decides no deletes",
    _K.DROPPED_EVENT: "brokers pass over it, too; two writers, or a lost record",
    _K.UNFINISHED_PARTITION_DELETE: "tierctl delete carries it on",
    _K.RECREATED_TOPIC: "if the old topic is gone: tierctl delete --mark --topic-id, then tierctl delete",
    _K.UNREADABLE_LOG: "it was left out of everything that logs tell",
    _K.UNSEEN_LEADER: "verify again when its leader is up and tiers; until then its lineage is the tier's",
    _K.UNKNOWN_TOPIC: "if the topic was deleted: tierctl delete --mark --topic-id, then tierctl delete",
}


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """Topic ids by name as the brokers have them; `complete` when no other topic can be there."""

    ids: Mapping[str, frozenset[Uuid]]
    complete: bool = False


def verify_metadata(state: TierState, was_deleted: WasDeleted) -> Iterator[Finding]:
    """Records that could not be used, and events that brokers drop in silence."""
    for bad in state.quarantined:
        yield Finding(
            kind=_K.CORRUPT_METADATA,
            severity=Severity.ERROR,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=bad.metadata_partition,
            start_offset=bad.metadata_offset,
            end_offset=bad.metadata_offset,
            message=bad.error.message,
        )
    for anomaly in state.anomalies:
        yield _dropped(anomaly, state.partition(anomaly.topic_id_partition), was_deleted)
    untold = state.anomaly_count - len(state.anomalies)
    if untold > 0:
        yield Finding(
            kind=_K.DROPPED_EVENT,
            severity=Severity.WARNING,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=None,
            message=f"{untold} more events were dropped",
        )


def _dropped(anomaly: Anomaly, part: PartitionState | None, was_deleted: WasDeleted) -> Finding:
    event = anomaly.event
    segment_id = getattr(event, "segment_id", None)
    where = f"{METADATA_TOPIC}-{anomaly.metadata_partition} offset {anomaly.metadata_offset}"
    severity, why = Severity.WARNING, "its segment or partition does not stand where that could follow"
    is_live = part is not None and segment_id is not None and part.cache.get(segment_id) is not None
    if isinstance(event, RemoteLogSegmentMetadataUpdate) and not is_live and was_deleted(event.segment_id):
        why = "its segment was deleted before"
        if event.state in {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}:
            # Two brokers that delete the same segment, after an election, are no trouble.
            severity = Severity.INFO
    state = getattr(event, "state", type(event).__name__)
    found = finding_of(
        anomaly.topic_id_partition, _K.DROPPED_EVENT, severity, f"{state} at {where} was dropped: {why}"
    )
    if isinstance(event, RemoteLogSegmentMetadata):
        found = replace(found, start_offset=event.start_offset, end_offset=event.end_offset)
    return replace(found, segment_id=segment_id)


def verify_partition_delete(part: PartitionState) -> Iterator[Finding]:
    """A deletion of a whole partition that was asked for and has not come to its end."""
    if part.delete_state in {_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED}:
        message = f"it is {part.delete_state}, and {len(part.cache)} of its segments are left"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.WARNING, message)
    elif part.delete_state is _P.DELETE_PARTITION_FINISHED and len(part.cache):
        message = f"it is {part.delete_state}, yet {len(part.cache)} of its segments are left"
        yield finding_of(part.topic_id_partition, _K.UNFINISHED_PARTITION_DELETE, Severity.ERROR, message)


def verify_topics(parts: Sequence[PartitionState], known: KnownTopics | None) -> Iterator[Finding]:
    """Topics of the tier that the brokers don't have, or that took another's name.

    One finding a partition. Without `known` topics that share a name are all but the one written last.
    """
    named: dict[str, list[PartitionState]] = {}
    for part in parts:
        if len(part.cache) and part.delete_state is None:
            named.setdefault(part.topic_id_partition.topic, []).append(part)
    for topic, same in sorted(named.items()):
        current = _current_ids(same) if known is None else known.ids.get(topic, frozenset())
        for part in same:
            if part.topic_id_partition.topic_id not in current:
                yield _not_current(part, current, known)


def _current_ids(parts: Sequence[PartitionState]) -> frozenset[Uuid]:
    ids = frozenset(part.topic_id_partition.topic_id for part in parts)
    return ids if len(ids) == 1 else frozenset({max(parts, key=_recency).topic_id_partition.topic_id})


def _recency(part: PartitionState) -> tuple[int, Uuid]:
    latest = max(segment.event_timestamp_ms for segment in part.cache.list_remote_log_segments())
    return latest, part.topic_id_partition.topic_id


def _not_current(part: PartitionState, current: frozenset[Uuid], known: KnownTopics | None) -> Finding:
    left = f"{len(part.cache)} segments of this topic id are left"
    if current:
        message = f"the topic was recreated as {', '.join(sorted(current))}; {left}"
        return finding_of(part.topic_id_partition, _K.RECREATED_TOPIC, Severity.WARNING, message)
    where = "the cluster has" if known is not None and known.complete else "the log directories hold"
    message = f"{where} no topic of this id; {left}"
    return finding_of(part.topic_id_partition, _K.UNKNOWN_TOPIC, Severity.WARNING, message)


def orphan_finding(orphan: Orphan, topic: str | None, was_deleted: WasDeleted, now_ms: int) -> Finding:
    """What an object, or a segment's objects, without metadata are; `topic` is its id's name, if known."""
    kind, severity, what = _what_is(orphan, was_deleted)
    age_ms = None if orphan.modified_ms is None else max(now_ms - orphan.modified_ms, 0)
    if orphan.is_temporary and age_ms is not None and age_ms <= DANGLING_AFTER_MS:
        severity = Severity.INFO
    objects = f"{orphan.count} objects" if orphan.count > 1 else "an object"
    age = "of unknown age" if age_ms is None else f"last written {_span(age_ms)} ago"
    name = orphan.name
    return Finding(
        kind=kind,
        severity=severity,
        topic=topic,
        topic_id=name.topic_id if name else None,
        partition=name.partition if name else None,
        segment_id=name.segment_id if name else None,
        start_offset=name.start_offset if name else None,
        key=orphan.key,
        message=f"{objects} of {orphan.size_bytes} bytes, {age}: {what}",
    )


def _what_is(orphan: Orphan, was_deleted: WasDeleted) -> tuple[FindingKind, Severity, str]:
    if orphan.is_temporary:
        return _K.TEMP_LEFTOVER, Severity.WARNING, "a copy that was killed left it"
    if orphan.name is None:
        return _K.ORPHAN, Severity.WARNING, "its key is not that of any segment's object"
    if was_deleted(orphan.name.segment_id):
        return _K.ORPHAN, Severity.WARNING, "its segment is DELETE_SEGMENT_FINISHED"
    return _K.ORPHAN, Severity.WARNING, "no metadata speak of it here"


def _span(age_ms: int) -> str:
    hours = age_ms // 3_600_000
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} hours" if hours else f"{age_ms // 60_000} minutes"
