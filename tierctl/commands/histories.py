"""Where the metadata topic lost its oldest events: which user partitions a command may decide for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tierctl.commands.resources import Resources
from tierctl.kafka.cluster import Cluster
from tierctl.model import LocalLog, Selection, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.location import TruncatedMetadata
from tierctl.plan.history import Evidence, decide_histories, missing_of, why_history_unknown
from tierctl.plan.preconditions import INTERNAL_TOPICS, newest_replicas
from tierctl.plan.steps import Skip
from tierctl.read.leader_logs import reliable_leader_logs
from tierctl.state.tier import TierState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.partition_listing import stored_segment_ids

_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSources:
    """Where evidence about the histories of the selected partitions is found; None for a missing source.

    `log_starts` are log start offsets that were asked for or recorded by earlier runs. Unless
    `local_suffices`, segments that only the local log has do not count as never copied.
    """

    selection: Selection
    logs: Callable[[], Sequence[LocalLog]] = list
    cluster: Cluster | None = None
    topics: Iterable[str] = ()
    remote: Callable[[], RemoteStorageManager] | None = None
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    local_suffices: bool = True


def examine_histories(
    state: TierState, sources: EvidenceSources, policy: TruncatedMetadata
) -> dict[TopicIdPartition, str]:
    """Find out which selected partitions have a complete history, and add them to `state.complete`.

    Return the reason for each of the others; none if `policy` accepts missing events. Nothing is asked and
    nothing is listed unless a metadata partition has missing events. Raises the errors of cluster and tier.
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
    if sources.cluster is not None:
        leaders = reliable_leader_logs(sources.cluster, partitions).logs
        starts |= {p: (log.log_start_offset, log.local_log_start_offset) for p, log in leaders.items()}
    return {p: _evidence(starts.get(p), sources.log_starts.get(p), sources) for p in partitions}


def _named(sources: EvidenceSources) -> set[TopicIdPartition]:
    """Return the partitions of the named topics that the cluster has."""
    if sources.cluster is None:
        return set()
    topics = sources.cluster.topics({name for name in sources.topics if is_legal_topic_name(name)})
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


@dataclass(slots=True)
class Histories:
    """The histories of the partitions that a request selects; `remote` opens the tier when it is needed."""

    resources: Resources
    remote: Callable[[], RemoteStorageManager]
    incomplete: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Partitions for which missing events allow no decision, and the reasons."""
    _unknown: dict[TopicIdPartition, str | None] = field(default_factory=dict)

    def examine(
        self,
        state: TierState,
        logs: Callable[[], Sequence[LocalLog]] = list,
        *,
        log_starts: Mapping[TopicIdPartition, int] | None = None,
        local_suffices: bool = True,
    ) -> None:
        """Call `examine_histories` with what the request names; the reasons are in `incomplete` then."""
        resources, request = self.resources, self.resources.request
        sources = EvidenceSources(
            selection=resources.selection,
            logs=logs,
            cluster=resources.cluster,
            topics=request.topic,
            remote=None if request.remote is None else self.remote,
            log_starts=log_starts or {},
            local_suffices=local_suffices,
        )
        self.incomplete = examine_histories(state, sources, request.truncated_metadata)
        self._unknown = {partition: why_history_unknown(state, partition) for partition in self.incomplete}

    def ignore_untiered(self, state: TierState, skips: Iterable[Skip]) -> None:
        """Remove the partitions without metadata that a copy skips for other reasons: they are not tiered."""
        skipped = {skip.topic_id_partition for skip in skips if self._is_reported(skip)}
        for partition in self.incomplete.keys() - skipped:
            if state.partition(partition) is None:
                del self.incomplete[partition]

    def unreported(self, skips: Iterable[Skip]) -> list[Skip]:
        """Return the skips without those about missing events, which `report` reports in more detail."""
        return [skip for skip in skips if not self._is_reported(skip)]

    def _is_reported(self, skip: Skip) -> bool:
        return self._unknown.get(skip.topic_id_partition) == skip.reason

    def report(self, state: TierState) -> bool:
        """Report damaged records and missing events as problems; return whether there are any."""
        return self.resources.report_unusable(state, self.incomplete)


def read_selected(resources: Resources) -> TierState:
    """Read the metadata, resolve the selection, and report what is damaged or missing as problems."""
    state = resources.metadata().refresh()
    resources.select_among(state)
    histories = Histories(resources, remote=lambda: resources.remote)
    histories.examine(state, resources.logs_if_given)
    histories.report(state)
    return state
