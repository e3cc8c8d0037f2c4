"""Conditions: those of a partition before a step is planned for it, and of a run before anything is changed.

Functions about partitions return the reason why not. Those about the run refuse it: the fence on writing,
whose tier it is, and bounds on deletes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from tierctl.errors import LimitExceeded, RemoteTierMissing, SafetyRefusal, UsageError
from tierctl.model import (
    ClusterIdentity,
    LocalLog,
    LocalSegment,
    RemoteLogSegmentState,
    TierIdentity,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import BrokerFacts, TopicFacts
from tierctl.model.selection import counted, names_text
from tierctl.model.settings import topic
from tierctl.model.times import duration_text, iso_utc
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import STATES, Action, Plan, Step
from tierctl.state.tier_state import MissingEvents, PartitionState, TierState
from tierctl.wire.metadata.values import metadata_partition

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

    Return the reason for each of the others, which is removed: other evidence may have sufficed for another
    decision. Partitions of metadata partitions without missing events are not examined.
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
            state.complete.discard(partition.key)
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
        found.append(f"the tier has objects of {counted(unknown_segments, 'segment')} without events")
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


def why_behind(tier_epoch: int, log_epoch: int) -> str | None:
    """Return why a log is not the leader's, by the latest leader epochs of tier and log; None if it may be.

    Leader epochs only rise: an epoch that only the tier knows belongs to a later leader, whose log may
    differ.
    """
    if tier_epoch > log_epoch:
        return f"the log is behind: its latest leader epoch is {log_epoch}, the tier knows epoch {tier_epoch}"
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


# The fence on writing: refuses work that a running broker may do itself, since two writers can lose data.
#
# Reading a running broker's log directory needs no fence: a rolled segment below the last stable offset does
# not change, and a copy compares each file before and after (`commands.copy.source`).

TASK_INTERVALS = 10
"""An event of a broker closes the fence of its metadata partition for this many of its task intervals."""

SHOWN_MAX = 5

_CLUSTER_HINT = (
    "leave the work to the brokers, or stop their tiering (remote.log.storage.system.enable=false) and wait; "
    "or select partitions that no broker tiers with --topic and --partition; --allow-live-brokers "
    "overrides this check"
)

_LOG_DIR_HINT = (
    "name the broker's cluster with --bootstrap-server, so that tierctl can ask whether the broker tiers, or "
    "stop the broker; --allow-live-brokers overrides this check"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that runs on a log directory, while no cluster is named that says whether the broker tiers."""

    log_dir: Path
    metadata_partitions: Collection[int]
    """Partitions of __remote_log_metadata in the directory."""


def check_running_brokers(brokers: Iterable[RunningBroker]) -> None:
    """Raise SafetyRefusal if one of these brokers may tier, which its log directory shows.

    A broker with remote.log.storage.system.enable=true creates the metadata topic at its start
    (TopicBasedRemoteLogMetadataManager.initializeResources), so partitions of it are the sign of tiering.
    """
    for broker in brokers:
        if broker.metadata_partitions:
            raise SafetyRefusal(
                f"the broker that runs on {broker.log_dir} may tier these partitions itself: the directory "
                f"has {counted(len(broker.metadata_partitions), 'partition')} of __remote_log_metadata",
                hint=_LOG_DIR_HINT,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The brokers that may work on the same partitions as this run.

    `topics` are the cluster's topics by name. `writers` maps each metadata partition to the brokers, without
    tierctl's own ids, that wrote to it in the last TASK_INTERVALS task intervals, and these to the time of
    their last event.
    """

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    writers: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    task_interval_ms: int = 30_000

    def closed(self, partitions: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, str]:
        """Return those of `partitions` on which a broker may work, in order, each with the reason.

        `partitions` have the metadata partition of each.
        """
        found = {p: self._why_led(p) or self._why_written(partitions[p]) for p in sorted(partitions)}
        return {partition: reason for partition, reason in found.items() if reason is not None}

    def _why_led(self, partition: TopicIdPartition) -> str | None:
        if not is_known(self.topics, partition):
            return None
        found = [p for p in self.topics[partition.topic].partitions if p.partition == partition.partition]
        if not found:
            return None
        leader = found[0].leader
        if leader is None:
            return "it has no leader now, and whether the next one tiers is not known"
        broker = self.brokers.get(leader)
        if broker is None:
            return f"broker {leader} leads it and does not say whether it tiers"
        if broker.tiers is None:
            return f"broker {leader} leads it, whose settings can't be read ({broker.unreadable})"
        return f"broker {leader} leads it and tiers" if broker.tiers else None

    def _why_written(self, metadata_partition: int) -> str | None:
        for broker_id, at_ms in sorted(self.writers.get(metadata_partition, {}).items()):
            return (
                f"broker {broker_id} wrote to metadata partition {metadata_partition} at {iso_utc(at_ms)}, "
                f"not {TASK_INTERVALS} task intervals "
                f"({duration_text(TASK_INTERVALS * self.task_interval_ms)}) ago"
            )
        return None


def require_open(closed: Mapping[TopicIdPartition, str]) -> None:
    """Raise SafetyRefusal if there is a partition of `Fence.closed`."""
    if closed:
        texts = [f"{partition}: {reason}" for partition, reason in closed.items()]
        more = f"; and {len(closed) - SHOWN_MAX} more partitions" if len(closed) > SHOWN_MAX else ""
        raise SafetyRefusal(
            f"brokers may do this work themselves: {'; '.join(texts[:SHOWN_MAX])}{more}", hint=_CLUSTER_HINT
        )


def is_known(topics: Mapping[str, TopicFacts], partition: TopicIdPartition) -> bool:
    """Return whether `topics`, the controller's by name, has the partition's topic id under its name."""
    topic = topics.get(partition.topic)
    return topic is not None and topic.topic_id == partition.topic_id


def leaders_of(topics: Mapping[str, TopicFacts], partitions: Iterable[TopicIdPartition]) -> frozenset[int]:
    """Return the brokers that lead at least one of `partitions`."""
    found = set()
    for partition in partitions:
        if is_known(topics, partition):
            parts = topics[partition.topic].partitions
            found |= {part.leader for part in parts if part.partition == partition.partition}
    return frozenset(leader for leader in found if leader is not None)


def leaked_topic_ids(
    known: Mapping[str, TopicFacts], partitions: Collection[TopicIdPartition]
) -> dict[Uuid, str]:
    """Return the topic ids, with their names, of topics that were deleted, or recreated under the same name.

    `known` are the controller's topics with the names of `partitions`, read after the metadata were read.
    """
    return {partition.topic_id: partition.topic for partition in partitions if not is_known(known, partition)}


# Decide whether a tier belongs to the metadata, before anything is planned for it.
#
# A mistyped bucket or prefix looks like a tier without objects. With it, a sweep would publish its segments
# as deleted and leave their objects in the real tier forever, and a copy would be stored where no broker
# reads. With the tier of another cluster, deletes and lists of leaked objects would be about that cluster's
# segments.

WRONG_TIER = "are --remote (bucket, prefix), --layout and --metadata right?"
_ADOPT = (
    "If the tier belongs to this metadata topic (the topic was created again): copy, sweep, delete, apply or "
    "restore new-ids, with --adopt-tier and --apply, assigns it"
)
GO_ON_WITHOUT = "copy, sweep, delete and apply go on with --allow-missing-objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContents:
    """Facts about a tier: its identity object, and what a few of its objects show."""

    name: str
    """URI or path of the tier."""
    layout: str
    """Name of the layout in which the tier is opened."""
    identity: TierIdentity | None
    """None if the tier has no identity object."""
    missing: str | None = None
    """The first examined finished segment without an object; None if none was examined."""
    begun: str | None = None
    """The first examined segment being copied or deleted, if the metadata has no finished segment."""
    known: bool = False
    """Whether the tier has an object of a segment in the metadata."""
    unknown_key: str | None = None
    """Key of an object of a segment that the metadata does not have, if the tier has no other objects."""
    misplaced_key: str | None = None
    """Key of an object of a segment in the metadata, which this tier would have under another key."""
    is_foreign: bool = False
    """Whether the metadata has none of the topics of the tier's objects, and lost no events of them."""
    is_empty: bool = False
    """Whether the tier has no object at all, although it is not to be created now."""


def check_tier(
    contents: TierContents,
    own: ClusterIdentity,
    *,
    is_reading: bool = False,
    allow_missing_objects: bool = False,
    adopt: bool = False,
) -> str | None:
    """Return a note for the operator, or None; raise an error if the tier is not that of the metadata.

    `own` is the identity of the metadata topic. An identity object decides first; a tier without one is
    recognised by its objects. With `adopt` the tier's identity and foreign objects are accepted. With
    `allow_missing_objects`, or for a command that `is_reading` and an identity that matches, the tier may
    lack the objects of finished segments.

    Raise SafetyRefusal for the tier of another metadata topic, UsageError for another layout, and
    RemoteTierMissing for a tier without any object of the finished segments that were looked for.
    """
    identity = contents.identity
    if not adopt:
        check_identity(contents, own)
    same = None if identity is None else identity.cluster.is_same_as(own)
    if not allow_missing_objects and not (is_reading and same):
        require_objects(contents)
    if same is None and not adopt and not contents.known and contents.missing is None:
        _require_not_foreign(contents, own)
    if contents.is_empty:
        return f"{contents.name} has no object: is --remote (bucket, prefix) right?"
    if identity is None or same is not None or adopt:
        return None
    return (
        f"{contents.name} belongs to {identity.cluster}; --metadata is {own}. No id is known of both: "
        "the tier is recognised by its objects alone"
    )


def check_identity(contents: TierContents, own: ClusterIdentity) -> None:
    """Raise SafetyRefusal if the tier belongs to another metadata topic, UsageError for another layout."""
    identity = contents.identity
    if identity is None:
        return
    if identity.cluster.is_same_as(own) is False:
        raise SafetyRefusal(
            f"{contents.name} is the tier of another metadata topic: it belongs to {identity.cluster}; "
            f"--metadata is {own}",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )
    if identity.layout != contents.layout:
        raise UsageError(
            f"{contents.name} has layout {identity.layout}, not {contents.layout}",
            hint=f"check --remote. To use this tier: --layout {identity.layout}",
        )


def require_objects(contents: TierContents) -> None:
    """Raise RemoteTierMissing if no object of the finished segments that were looked for is in the tier.

    Raise it also for a tier whose only objects of known segments are those of a tier in another place.
    """
    if contents.misplaced_key is not None:
        raise RemoteTierMissing(
            f"{contents.name} is not where the objects are: it has {contents.misplaced_key}, an object "
            "of a tier in another folder or of another layout",
            hint=WRONG_TIER,
        )
    if contents.missing is None:
        return
    others = f"; it has objects of other segments, as {contents.unknown_key}" if contents.unknown_key else ""
    raise RemoteTierMissing(
        f"{contents.name} has no object of the finished segments in the metadata; looked for "
        f"{contents.missing}{others}",
        hint=f"{WRONG_TIER} If the objects are known to be lost: {GO_ON_WITHOUT}",
    )


def require_recognised(contents: TierContents) -> None:
    """Raise RemoteTierMissing if nothing shows that deletions of segments belong in this tier.

    Segments being copied or deleted may rightly have no object. Without a finished segment in the metadata,
    only the identity object distinguishes the tier that such a deletion emptied from a mistyped name.
    """
    if contents.begun is None or contents.known or contents.identity is not None:
        return
    raise RemoteTierMissing(
        f"{contents.name} has neither an identity object nor an object of a segment in the metadata; looked "
        f"for {contents.begun}. If this is another tier, deleting there would leave the objects in the right "
        "one for ever",
        hint=f"{WRONG_TIER} If the objects are known to be deleted: {GO_ON_WITHOUT}",
    )


def _require_not_foreign(contents: TierContents, own: ClusterIdentity) -> None:
    """Raise SafetyRefusal for a tier whose identity can't be compared and that has no object of `own`."""
    identity = contents.identity
    if identity is not None and identity.cluster != ClusterIdentity(cluster_id=None, metadata_topic_id=None):
        raise SafetyRefusal(
            f"{contents.name} belongs to {identity.cluster}, and it is unknown whether --metadata ({own}) is "
            "that topic",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )
    if contents.is_foreign:
        raise SafetyRefusal(
            f"{contents.name} is the tier of another metadata topic: --metadata ({own}) knows neither the "
            f"segment nor the topic of {contents.unknown_key}, nor those of the other examined objects",
            hint=f"{WRONG_TIER} {_ADOPT}",
        )


# Bounds on how much one run may delete, checked before its first side effect.
#
# A plan beyond a bound is refused as a whole (LimitExceeded, exit code 8). It is never shortened, because
# what would be deleted first is as likely to be a mistake as the rest.

MAX_DELETES = 10_000
"""Default of --max-deletes: segments that one run may delete."""

MAX_FRACTION = 0.5
"""Default of --max-fraction: share of a partition's segments that one sweep may delete."""

FRACTION_EXEMPT_BELOW = 20
"""Partitions with fewer segments are exempt from --max-fraction, since half of them are only a few."""


def check_limits(
    plan: Plan, state: TierState, *, max_deletes: int | None = None, max_fraction: float | None = None
) -> str | None:
    """Raise LimitExceeded if `plan` deletes more than the limits (None: the defaults) allow.

    `max_deletes` limits all segments of the plan. `max_fraction` limits the share of each partition's
    finished segments, which consumers can read; it does not apply to deletions of whole partitions. Return a
    note about the partitions of which the plan deletes a larger share because they are exempt; None without
    a `max_fraction`, or without such partitions.
    """
    max_deletes = MAX_DELETES if max_deletes is None else max_deletes
    fraction = MAX_FRACTION if max_fraction is None else max_fraction
    deletes = [step for step in plan.steps if step.action is Action.DELETE_SEGMENT]
    if len(deletes) > max_deletes:
        raise LimitExceeded(
            f"the plan deletes {len(deletes)} segments, more than --max-deletes {max_deletes}",
            hint="check the plan, then narrow the selection or raise --max-deletes",
        )
    whole = {step.topic_id_partition.key for step in plan.steps if step.action is Action.DELETE_PARTITION}
    chosen = Counter(step.topic_id_partition.key for step in deletes if _is_finished(step))
    exempt = [
        str(state.partitions[key].topic_id_partition.topic_partition)
        for key, count in chosen.items()
        if key not in whole and _exceeds(key, count, state, fraction)
    ]
    if max_fraction is None or not exempt:
        return None
    return (
        f"--max-fraction {max_fraction:g} does not apply to partitions with fewer than "
        f"{FRACTION_EXEMPT_BELOW} segments; the plan deletes more of {names_text(exempt)}"
    )


def _is_finished(step: Step) -> bool:
    """Return whether the step deletes a segment that the metadata have as finished."""
    is_finished = step.details.get("state") == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return is_finished and STATES not in step.details


def _exceeds(key: tuple[Uuid, int], count: int, state: TierState, max_fraction: float) -> bool:
    """Return whether `count` deletions exceed the limit; LimitExceeded if the partition is not exempt."""
    part = state.partitions[key]
    total = part.finished_count
    is_exceeded = count > total * max_fraction
    if is_exceeded and total >= FRACTION_EXEMPT_BELOW:
        raise LimitExceeded(
            f"the plan deletes {count} of the {total} finished segments of {part.topic_id_partition}, "
            f"more than --max-fraction {max_fraction:g}",
            hint="check the plan, then narrow the selection or raise --max-fraction",
        )
    return is_exceeded
