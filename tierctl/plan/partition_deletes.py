"""KIP-405's RemotePartitionRemover: deletes the remote segments of partitions whose topic was deleted.

Partitions are identified by topic id and number, since a recreated topic has the same name.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tierctl.errors import NotFoundError, SafetyRefusal, UsageError
from tierctl.model import LogDirFacts, RemoteLogSegmentMetadata, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.plan.preconditions import why_unreadable
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Plan, Skip, Step, delete_step, partition_step
from tierctl.state.tier_state import PartitionState, TierState

_Key = tuple[Uuid, int]
_SHOWN_MAX = 5
_HINT = (
    "name the cluster of the topics with --bootstrap-server, or the log directories of all replicas with "
    "--log-dir and --all-log-dirs; --i-know-it-is-deleted TOPIC_ID overrides this check for one topic"
)
_EXISTS_HINT = "delete the topic first; no option overrides this check"
_FOLDER_HINT = (
    "delete the topic first; if only this folder is left of it, remove the folder, or leave the directory "
    "out; no option overrides this check"
)


def why_in(log_dir: LogDirFacts, topic_id: Uuid, topic: str) -> str | None:
    """Return why a log directory has a folder of the topic, or may have one; None if it has none."""
    if topic_id in log_dir.topic_ids:
        return f"{log_dir.path} still has the folder {log_dir.topic_ids[topic_id]}"
    if log_dir.why_unreadable is not None:
        return f"{log_dir.path} can't be read: {log_dir.why_unreadable}"
    if topic in log_dir.unreadable_topics:
        return f"the topic id of {log_dir.path / log_dir.unreadable_topics[topic]} can't be read"
    return None


def require_in_none(log_dirs: Collection[LogDirFacts], partitions: Iterable[TopicIdPartition]) -> None:
    """Raise SafetyRefusal if one of the log directories may have the topic of one of `partitions`."""
    for topic_id, topic in sorted({(each.topic_id, each.topic) for each in partitions}):
        for log_dir in log_dirs:
            reason = why_in(log_dir, topic_id, topic)
            if reason is not None:
                raise SafetyRefusal(
                    f"topic {topic} of id {topic_id} is marked as deleted, but {reason}", hint=_FOLDER_HINT
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """A running cluster's answer about topic ids.

    `existing` are the requested ids that the cluster has. `is_own` states whether it is known to be the
    cluster of this tier: a wrong cluster does not have the topics of another one. `doubts` are the reasons
    why another cluster may have an id, although this one `is_own`: two clusters may share a metadata topic.
    """

    cluster_id: str
    existing: frozenset[Uuid]
    is_own: bool
    doubts: Mapping[Uuid, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionEvidence:
    """The known facts about the existence of topics.

    `log_dirs` are the log directories of all replicas if `all_log_dirs`. `cluster_id` is the cluster of the
    metadata topic, None if unknown. `known_topic_ids` are the other ids in the metadata and that of the
    metadata topic; empty if the metadata has no other topic. The topic ids in `overridden` are deleted
    according to the operator.
    """

    cluster: ClusterAnswer | None = None
    log_dirs: Sequence[LogDirFacts] = ()
    all_log_dirs: bool = False
    cluster_id: str | None = None
    known_topic_ids: frozenset[Uuid] = frozenset()
    overridden: frozenset[Uuid] = frozenset()

    def require_overridden_among(self, topic_ids: Collection[Uuid]) -> None:
        """Raise UsageError if an id in `overridden` is not one of `topic_ids`, which are to be marked."""
        others = sorted(self.overridden.difference(topic_ids))
        if others:
            raise UsageError(
                f"--i-know-it-is-deleted {others[0]}: no topic with this id is to be marked",
                hint=f"expected one of {', '.join(sorted(topic_ids))}" if topic_ids else "leave it out",
            )

    def require_deleted(self, topics: Mapping[Uuid, str]) -> None:
        """Raise SafetyRefusal unless each of these topics, names by id, is known to be deleted."""
        existing = sorted(
            topics.keys() & (self.cluster.existing if self.cluster is not None else frozenset())
        )
        if existing:
            raise SafetyRefusal(
                f"the cluster still has topic {topics[existing[0]]} of id {existing[0]}", hint=_EXISTS_HINT
            )
        reasons = {topic_id: self.why_not_deleted(topic_id, name) for topic_id, name in topics.items()}
        refused = [f"{topics[topic_id]} ({topic_id}): {why}" for topic_id, why in reasons.items() if why]
        if refused:
            shown = "; ".join(sorted(refused)[:_SHOWN_MAX])
            more = f"; and {len(refused) - _SHOWN_MAX} more topics" if len(refused) > _SHOWN_MAX else ""
            raise SafetyRefusal(f"not known to be deleted: {shown}{more}", hint=_HINT)

    def why_not_deleted(self, topic_id: Uuid, topic: str) -> str | None:
        """Return why the topic is not known to be deleted; None if it is, or if it is `overridden`."""
        if topic_id in self.overridden:
            return None
        for log_dir in self.log_dirs:
            if topic_id in log_dir.topic_ids:
                return why_in(log_dir, topic_id, topic)
        cluster = self.cluster
        if cluster is not None and cluster.is_own and topic_id not in cluster.doubts:
            return None
        if self.all_log_dirs and self.log_dirs:
            return next(self._why_incomplete(topic_id, topic), None)
        if cluster is None:
            return "no cluster was asked, and no log directories of all replicas were given"
        foreign = (
            f"cluster {cluster.cluster_id} knows none of the topics in the metadata, and nothing else shows "
            "that it is the cluster whose tier this is"
        )
        return cluster.doubts[topic_id] if cluster.is_own else foreign

    def _why_incomplete(self, topic_id: Uuid, topic: str) -> Iterator[str]:
        """Yield why the log directories don't show that no replica has a folder of `topic`."""
        expected = self._expected_cluster_id()
        for log_dir in self.log_dirs:
            reason = why_in(log_dir, topic_id, topic)
            if reason is not None:
                yield reason
            elif expected is not None and log_dir.cluster_id not in {None, expected}:
                yield f"{log_dir.path} belongs to cluster {log_dir.cluster_id}, the tier to {expected}"
            elif not log_dir.has_partitions and (log_dir.cluster_id is None or expected is None):
                yield f"{log_dir.path} has no partition: it may be another directory, or not mounted"
        if self.known_topic_ids and not any(map(self._is_own, self.log_dirs)):
            yield (
                "the log directories have no folder of any other topic in the metadata, nor of the metadata "
                "topic: they may be another cluster's"
            )

    def _is_own(self, log_dir: LogDirFacts) -> bool:
        """Return whether a log directory is proven to belong to the cluster of this tier."""
        is_same = self.cluster_id is not None and log_dir.cluster_id == self.cluster_id
        return is_same or not self.known_topic_ids.isdisjoint(log_dir.topic_ids)

    def _expected_cluster_id(self) -> str | None:
        """Return the id of the cluster that the log directories must belong to; None if nothing shows it."""
        if self.cluster_id is not None:
            return self.cluster_id
        return next((d.cluster_id for d in self.log_dirs if d.has_partitions and d.cluster_id), None)


def plan_mark(
    state: TierState,
    topic_ids: Collection[Uuid],
    evidence: DeletionEvidence,
) -> Plan:
    """Return the plan to mark all known partitions of `topic_ids` as KIP-405's controller marks deleted ones.

    Raises SafetyRefusal for a topic that `evidence` does not show to be deleted, and NotFoundError for an id
    that is not in the metadata.
    """
    wanted = set(topic_ids)
    parts = [part for part in state if part.topic_id_partition.topic_id in wanted]
    missing = wanted - {part.topic_id_partition.topic_id for part in parts}
    if missing:
        raise NotFoundError(f"no topic in the metadata has the id {', '.join(sorted(missing))}")
    evidence.require_overridden_among(wanted)
    steps: list[Step] = []
    skipped: list[Skip] = []
    for part in parts:
        reason = _why_not_marked(state, part)
        if reason:
            skipped.append(Skip.of(part.topic_id_partition, reason))
        else:
            steps.append(partition_step(Action.MARK_PARTITION, part, "the topic is deleted"))
    evidence.require_deleted({step.topic_id: step.topic for step in steps})
    return Plan(command="delete", steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def _why_not_marked(state: TierState, part: PartitionState) -> str | None:
    if part.delete_state is not None:
        return f"already {part.delete_state}"
    if not is_legal_topic_name(part.topic_id_partition.topic):
        # No store can have objects under such a name, so a marked partition could never be deleted.
        return "its topic has a name no topic can have: the metadata record is wrong or hostile"
    return why_unreadable(state, part)


def plan_removal(state: TierState) -> Plan:
    """Return the plan to delete all segments of partitions whose deletion was marked, even if it finished.

    Each partition has one DELETE_PARTITION step, followed by one DELETE_SEGMENT step for each of its segments
    in any state. Partitions come in the order of their marks, so that the processed offsets of a metadata
    partition grow without gaps.
    """
    partitions, skipped = removable(state)
    removed = [partition.key for partition in partitions]
    found = dict(state.map_parts(partial(_removals, removed), removed))
    steps = tuple(step for key in removed for step in found[key])
    return Plan(command="delete", steps=steps, read=dict(state.read), skipped=tuple(skipped))


def removable(state: TierState) -> tuple[list[TopicIdPartition], list[Skip]]:
    """Return the partitions that `plan_removal` deletes, and its skips of the other marked ones.

    Both are in the order of the marks. No question is asked about segments.
    """
    partitions: list[TopicIdPartition] = []
    skipped: list[Skip] = []
    for part in sorted((part for part in state if part.is_to_remove), key=_marked_order):
        partition, reason = part.topic_id_partition, why_unreadable(state, part)
        if reason:
            skipped.append(Skip.of(partition, reason))
        else:
            partitions.append(partition)
    return partitions, skipped


def _marked_order(part: PartitionState) -> tuple[int, int]:
    return (part.metadata_partition, part.delete_marked_offset or 0)


def _removals(keys: Collection[_Key], state: TierState) -> Iterator[tuple[_Key, list[Step]]]:
    """Yield the steps that remove each of these partitions that `state` has."""
    for key in state.partitions.keys() & keys:
        yield key, _steps_of(state.partitions[key])


def _steps_of(part: PartitionState) -> list[Step]:
    segments = sorted(part.cache.list_remote_log_segments(), key=_segment_order)
    whole = partition_step(
        Action.DELETE_PARTITION,
        part,
        f"{part.delete_state}",
        state=part.delete_state,
        delete_marked_offset=part.delete_marked_offset,
        segments=len(segments),
        size_bytes=sum(segment.segment_size_in_bytes for segment in segments),
    )
    return [whole, *(delete_step(segment, Reason(ReasonKind.TOPIC_DELETED)) for segment in segments)]


def _segment_order(segment: RemoteLogSegmentMetadata) -> tuple[int, Uuid]:
    return (segment.start_offset, segment.segment_id)
