"""Conditions that a partition must meet before a step is planned for it; each function returns the reason."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from tierctl.errors import UsageError
from tierctl.model import LocalLog, LocalSegment, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.ids import INTERNAL_TOPICS
from tierctl.model.local import TopicFacts
from tierctl.model.selection import names_text
from tierctl.model.settings import topic
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.queries import PartitionSegments
from tierctl.state.tier_state import MissingEvents, PartitionState, TierState
from tierctl.wire.metadata.partitioner import metadata_partition

# Decides whether the history of a user partition is complete although its metadata partition lost events.
#
# Finite retention deletes the oldest events of a metadata partition. Copies are made in offset order, so the
# lost events are about lower offsets than the remaining ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Facts about one user partition from outside the metadata topic; None for an unknown fact.

    `local_log_start_offset` is given if the local log may take the place of the tier: not for a copy, because
    a segment that is still local may have been copied already. `stored_ids` are the ids of all segments of
    which the tier has an object.
    """

    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    stored_ids: frozenset[Uuid] | None = None


def decide_histories(
    state: TierState, evidence: Mapping[TopicIdPartition, Evidence]
) -> dict[TopicIdPartition, str]:
    """Add the partitions of `evidence` with a complete history to `state.complete`.

    Return the reason for each of the others. Partitions of metadata partitions without missing events are
    not examined.
    """
    reasons: dict[TopicIdPartition, str] = {}
    for partition, facts in evidence.items():
        missing = missing_of(state, partition)
        if not missing:
            continue
        reason = _why_incomplete(state, partition, missing, facts)
        if reason is None:
            state.complete.add(partition.key)
        else:
            reasons[partition] = reason
    return reasons


def missing_of(state: TierState, partition: TopicIdPartition) -> list[MissingEvents]:
    """Return the missing events that may be about `partition`: those of its metadata partition.

    If the number of metadata partitions is unknown, all missing events may be about a partition without any
    known event.
    """
    known = state.partition(partition)
    if known is not None:
        return state.missing_of(known.metadata_partition)
    count = len(state.read)
    if count and set(state.read) == set(range(count)):
        return state.missing_of(metadata_partition(partition.topic_id, partition.partition, count))
    return state.missing


def why_history_unknown(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why nothing may be decided for `partition` by its history; None if steps may be planned."""
    if not state.missing or state.accepts_missing or partition.key in state.complete:
        return None
    missing = missing_of(state, partition)
    return f"{missing[0]}, and nothing shows that the others are complete" if missing else None


def _why_incomplete(
    state: TierState, partition: TopicIdPartition, missing: list[MissingEvents], facts: Evidence
) -> str | None:
    known = state.partition(partition)
    unknown_ids: frozenset[Uuid] = frozenset()
    if facts.stored_ids is not None:
        segments = state.segments_of(partition)
        unknown_ids = facts.stored_ids - {segment.segment_id for segment in segments}
        if not unknown_ids:
            return None
    # `lowest_start_offset` includes deleted segments: all events after a segment's first event are known.
    first = None if known is None else known.lowest_start_offset
    is_only_head = all(each.first_offset == 0 for each in missing)
    if is_only_head and _reaches_log_start(first, facts):
        return None
    return "; ".join([*map(str, missing), *_unknowns(first, facts, len(unknown_ids))])


def _reaches_log_start(first: int | None, facts: Evidence) -> bool:
    """Return whether the known segments, or the local log without them, begin at or below the log start.

    An unknown log start is at least 0.
    """
    first = facts.local_log_start_offset if first is None else first
    return first is not None and first <= (facts.log_start_offset or 0)


def _unknowns(first: int | None, facts: Evidence, unknown_segments: int) -> list[str]:
    begins = "no segment is known" if first is None else f"the first known segment begins at offset {first}"
    start = facts.log_start_offset
    found = [f"{begins}, the log start is {'not known' if start is None else start}"]
    if unknown_segments:
        segments = "1 segment" if unknown_segments == 1 else f"{unknown_segments} segments"
        found.append(f"the tier has objects of {segments} without events")
    return found


def why_never_tiered(topic: str, configs: Mapping[str, TopicConfig]) -> Reason | None:
    """Return why brokers never tier this topic; None if they may."""
    if topic in INTERNAL_TOPICS:
        return _not_tiered("internal topics are never tiered")
    config = configs.get(topic, TopicConfig())
    if "compact" in config.cleanup_policy:
        policy = ",".join(sorted(config.cleanup_policy))
        return _not_tiered(
            f"cleanup.policy={policy}: Kafka refuses remote storage for compacted topics (INVALID_CONFIG)"
        )
    if config.remote_storage_enable is False:
        return _not_tiered("remote.storage.enable=false")
    return None


def _not_tiered(detail: str) -> Reason:
    return Reason(ReasonKind.NOT_TIERED, detail=detail)


def why_unknown(state: TierState, part: PartitionState) -> str | None:
    """Return why no step may be planned from the metadata of this partition; None if steps may."""
    reason = why_unreadable(state, part)
    if reason is None and part.delete_state is not None:
        reason = f"the partition is being deleted ({part.delete_state})"
    return reason


def why_unreadable(state: TierState, part: PartitionState) -> str | None:
    """Return why the metadata of this partition, which may be deleted, decide nothing; None if they do."""
    if state.is_damaged(part.metadata_partition):
        return (
            f"metadata partition {part.metadata_partition} has records that could not be understood, so "
            "nothing is decided for it; tierctl verify lists them"
        )
    return why_history_unknown(state, part.topic_id_partition)


def why_maybe_unheard_of(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why a partition without metadata may have segments in the tier; None if it has none.

    A record that could not be understood and a missing event may be about the partition, if they are in the
    same metadata partition or the number of metadata partitions is unknown.
    """
    bad = {quarantined.metadata_partition for quarantined in state.quarantined}
    count = len(state.read)
    if set(state.read) == set(range(count)) and count:
        bad &= {metadata_partition(partition.topic_id, partition.partition, count)}
    if not bad:
        return why_history_unknown(state, partition)
    return (
        f"metadata partition {min(bad)} has records that could not be understood, perhaps of this partition"
    )


def why_undecided(state: TierState, partition: TopicIdPartition) -> str | None:
    """Return why nothing may be decided about a partition, with or without metadata; None if it may."""
    part = state.partition(partition)
    return why_maybe_unheard_of(state, partition) if part is None else why_unknown(state, part)


def why_behind(segments: PartitionSegments, latest_epoch: int) -> str | None:
    """Return why a log with the latest leader epoch `latest_epoch` is not the leader's; None if it may be.

    Leader epochs only rise: an epoch that only the tier knows belongs to a later leader, whose log may
    differ.
    """
    newest = segments.latest_epoch()
    if newest > latest_epoch:
        return f"the log is behind: its latest leader epoch is {latest_epoch}, the tier knows epoch {newest}"
    return None


@dataclass(frozen=True, slots=True)
class CurrentTopics:
    """The existing topic ids by name: those in the log directories, or, if `is_complete`, on the cluster."""

    ids: Mapping[str, frozenset[Uuid]]
    is_complete: bool = False

    @classmethod
    def of(cls, logs: Iterable[LocalLog]) -> Self:
        """Return the topic ids of these logs, which must be all logs of the given directories."""
        ids: dict[str, set[Uuid]] = {}
        for log in logs:
            ids.setdefault(log.topic_id_partition.topic, set()).add(log.topic_id_partition.topic_id)
        return cls({topic: frozenset(found) for topic, found in ids.items()})

    @classmethod
    def of_cluster(cls, topics: Mapping[str, TopicFacts]) -> Self:
        """Return the topic ids of these topics of a cluster, which are by name."""
        return cls({name: frozenset({each.topic_id}) for name, each in topics.items()}, is_complete=True)

    def why_not_current(self, partition: TopicIdPartition) -> str | None:
        """Return why the partition's topic name now belongs to another topic id; None if it may not."""
        known = self.ids.get(partition.topic, frozenset())
        if self.is_complete:
            return self._why_not_on_cluster(partition, known)
        if len(known) > 1:
            return f"the log directories hold {len(known)} topics of this name ({', '.join(sorted(known))})"
        if known and partition.topic_id not in known:
            found = f"the topic was recreated: the log directories know it as {', '.join(known)}"
            return Reason(ReasonKind.LEAKED, detail=found)
        return None

    def named(
        self, state: TierState, logs: Iterable[LocalLog]
    ) -> dict[TopicPartition, list[TopicIdPartition]]:
        """Return by name the known partitions that may have this name now: one, unless it is ambiguous."""
        known = {part.topic_id_partition for part in state if part.delete_state is None}
        found: dict[TopicPartition, list[TopicIdPartition]] = defaultdict(list)
        for partition in known | {log.topic_id_partition for log in logs}:
            if self.why_not_current(partition) is None:
                found[partition.topic_partition].append(partition)
        return found

    def _why_not_on_cluster(self, partition: TopicIdPartition, known: frozenset[Uuid]) -> str | None:
        if partition.topic_id in known:
            return None
        found = f"has this topic under id {', '.join(known)}" if known else "has no topic of this name"
        detail = f"the cluster {found}; tierctl delete removes topics that were deleted"
        return Reason(ReasonKind.LEAKED, detail=detail)


def recency(log: LocalLog) -> tuple[int, int, str]:
    """Return what orders the replicas of a partition: leader epoch, log end, and then the directory."""
    epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
    return (epoch, log.log_end_offset, str(log.directory))


def newest_replicas(logs: Collection[LocalLog]) -> dict[tuple[Uuid, int], LocalLog]:
    """Return the most recent replica of each partition."""
    newest: dict[tuple[Uuid, int], LocalLog] = {}
    for log in sorted(logs, key=recency):
        newest[log.topic_id_partition.key] = log
    return newest


def segments_of_newest(
    logs: Collection[LocalLog],
) -> dict[tuple[TopicIdPartition, int], tuple[LocalLog, LocalSegment]]:
    """Return the segments of the `newest_replicas`, from which is decided, by partition and base offset."""
    return {
        (log.topic_id_partition, segment.base_offset): (log, segment)
        for log in newest_replicas(logs).values()
        for segment in log.segments
    }


_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""


def require_known_names(
    stated: Collection[str], known: Collection[str], without_settings: Collection[str]
) -> str | None:
    """Raise UsageError if the topic names in --topic-configs, `stated`, look mistyped.

    Return a note about other names that are not among the `known` topics, or None. A name looks mistyped if
    it is not among the `known` topics and is similar to one of the selected topics `without_settings`. If
    none of several known topics is stated, the file belongs to another cluster.
    """
    unknown = sorted(set(stated) - set(known) - INTERNAL_TOPICS)
    for name in unknown:
        near = get_close_matches(name, sorted(without_settings), n=1, cutoff=_SIMILAR)
        if near:
            raise UsageError(
                f'--topic-configs states settings of topic "{name}", which neither the metadata nor the log '
                f'directories have, and none of topic "{near[0]}"',
                hint=f'did you mean "{near[0]}"? If not, state one of its settings, too, such as '
                f"{near[0]}.{topic.REMOTE_STORAGE_ENABLE.name}=false",
            )
    if known and stated and len(unknown) == len(set(stated)):
        raise UsageError(
            f"--topic-configs states settings of {names_text(unknown)} only, which neither the metadata nor "
            "the log directories have",
            hint=f"known topics: {names_text(known)}",
        )
    if not unknown:
        return None
    return (
        f"--topic-configs states settings of {names_text(unknown)}, which neither the metadata nor the log "
        "directories have"
    )
