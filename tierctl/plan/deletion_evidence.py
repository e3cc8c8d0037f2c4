"""Evidence that a topic was deleted, which marking it needs: all objects of a marked topic are deleted."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import LogDirFacts, Uuid

_SHOWN_MAX = 5
_HINT = (
    "name the cluster of the topics with --bootstrap-server, or the log directories of all replicas with "
    "--log-dir and --all-log-dirs; --i-know-it-is-deleted TOPIC_ID overrides this check for one topic"
)
_EXISTS_HINT = "delete the topic first; no option overrides this check"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """A running cluster's answer about topic ids.

    `existing` are the requested ids that the cluster has. `is_own` states whether it is known to be the
    cluster of this tier: a wrong cluster does not have the topics of another one.
    """

    cluster_id: str
    existing: frozenset[Uuid]
    is_own: bool


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
                return f"{log_dir.path} still has the folder {log_dir.topic_ids[topic_id]}"
        if self.cluster is not None and self.cluster.is_own:
            return None
        if self.all_log_dirs and self.log_dirs:
            return next(self._why_incomplete(topic), None)
        if self.cluster is not None:
            return (
                f"cluster {self.cluster.cluster_id} knows none of the topics in the metadata, and nothing "
                "else shows that it is the cluster whose tier this is"
            )
        return "no cluster was asked, and no log directories of all replicas were given"

    def _why_incomplete(self, topic: str) -> Iterator[str]:
        """Yield why the log directories don't show that no replica has a folder of `topic`."""
        expected = self._expected_cluster_id()
        for log_dir in self.log_dirs:
            if log_dir.why_unreadable is not None:
                yield f"{log_dir.path} can't be read: {log_dir.why_unreadable}"
            elif topic in log_dir.unreadable_topics:
                folder = log_dir.unreadable_topics[topic]
                yield f"the topic id of {log_dir.path / folder} can't be read"
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
