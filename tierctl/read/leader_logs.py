"""Ask leaders about partitions: topic ids, log starts, logs; and gather evidence about lost histories."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tierctl.errors import AuthenticationError, MissingEventsError, NotFoundError
from tierctl.kafka.cluster import Cluster
from tierctl.model import LocalLog, Selection, TopicConfig, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import ClusterLog
from tierctl.model.location import TruncatedMetadata
from tierctl.plan.leader_views import knows_log_start
from tierctl.plan.preconditions import (
    Evidence,
    decide_histories,
    is_known,
    missing_of,
    newest_replicas,
)
from tierctl.state.log_start import is_start_unknown
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.storage.object_sets import stored_segment_ids
from tierctl.storage.remote_storage_manager import RemoteStorageManager


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
    topics = cluster.topics({p.topic for p in partitions if is_legal_topic_name(p.topic)})
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
        found = cluster.logs(partitions)
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


def reliable_leader_log(cluster: Cluster, partition: TopicIdPartition) -> ClusterLog | None:
    """Return the log of a partition's leader; None without one, or if it lost the log start offset."""
    return reliable_leader_logs(cluster, [partition]).logs.get(partition)


def leader_log_start(cluster: Cluster | None, partition: TopicIdPartition) -> int | None:
    """Return the log start offset that consumers of the cluster see; None if it is not known.

    Brokers serve no offsets below it, although the tier may still have them.
    """
    log = None if cluster is None else reliable_leader_log(cluster, partition)
    return None if log is None else log.log_start_offset


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
