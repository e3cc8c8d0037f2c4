"""Gathers evidence about user partitions whose metadata partition lost its oldest events."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tierctl.errors import MissingEventsError
from tierctl.kafka.cluster import Cluster
from tierctl.model import LocalLog, Selection, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.location import TruncatedMetadata
from tierctl.plan.history import Evidence, decide_histories, missing_of
from tierctl.plan.preconditions import INTERNAL_TOPICS, newest_replicas
from tierctl.read.leader_logs import reliable_leader_logs
from tierctl.state.tier import MissingEvents, TierState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.partition_listing import stored_segment_ids

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
    return decide_histories(state, {p: _with(evidence[p], stored.get(p.key)) for p in reasons})


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


def _with(evidence: Evidence, stored_ids: frozenset[Uuid] | None) -> Evidence:
    return Evidence(
        log_start_offset=evidence.log_start_offset,
        local_log_start_offset=evidence.local_log_start_offset,
        stored_ids=stored_ids,
    )


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
        if p in partitions and log.is_log_start_known
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
    names = {name for name in sources.topics if is_legal_topic_name(name)}
    topics = cluster.topics(names if sources.topics else None)
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
            if segment.segment_id in own if own is not None else remote.objects_of(segment):
                return stored
            if own is None:
                break
    return {}
