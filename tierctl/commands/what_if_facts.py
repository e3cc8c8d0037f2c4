"""The facts of each partition under the present and the changed settings, as plans of a sweep have them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from tierctl.apply.tier_check import tier_contents
from tierctl.commands.histories import report_unusable
from tierctl.commands.local_logs import UnreadLogs, read_local_logs
from tierctl.commands.resources import Resources, required
from tierctl.commands.running_cluster import EpochsRead, SeenLeaders
from tierctl.commands.sweep import (
    Changes,
    RetentionInputs,
    kept_log_starts,
    newest_segments,
    partitions_by_name,
    selected_parts,
    stored_lineage,
)
from tierctl.errors import TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.state_dir import Journal
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import (
    ClusterIdentity,
    EpochEntry,
    LocalLog,
    LocalSegment,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.location import TruncatedMetadata
from tierctl.model.times import iso_utc
from tierctl.pipeline.update import WarehouseContents, read_folded, read_warehouse
from tierctl.pipeline.warehouse import WarehouseSpec
from tierctl.plan.decisions import EXPIRED, LocalRetention
from tierctl.plan.expiry import PartitionDecisions
from tierctl.plan.forecast import (
    DAY_MS,
    HORIZONS_DAYS,
    GatheredFacts,
    LocalFacts,
    ObjectCounts,
    Outlook,
    PartitionColumns,
    PartitionFacts,
    outlook,
)
from tierctl.plan.preconditions import CurrentTopics, TierContents, check_tier, newest_replicas
from tierctl.plan.steps import Skip
from tierctl.plan.views import ClusterViews, LeaderView, view_of_log
from tierctl.spark.executors.task import shared_tier
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.tier_state import MissingEvents, PartitionState, TierState
from tierctl.storage import store_uri
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RemoteStorageManager

# The facts of `report --what-if` from the tables of the pipeline, in this process or on Spark.
#
# For one metadata partition after the other, or each on an executor, the folded state is read from the
# warehouse, retention is decided for its user partitions as in `sweep`, and their facts are returned. No
# process has the state of the whole tier.

_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsRequest:
    """The changed settings by topic, the partitions that are asked about, and the objects of a segment.

    The logs of partitions in `unreadable` could not be read, so nothing is decided about these.
    """

    changed: Mapping[str, TopicConfig]
    selection: Selection
    objects: ObjectCounts | None
    unreadable: Collection[TopicPartition] = ()


def gather_facts(inputs: RetentionInputs, asked: FactsRequest) -> GatheredFacts:
    """Return the facts of the selected partitions that have segments; raises as `plan_retention`."""
    state = inputs.state
    skipped: dict[Skip, None] = {}
    outlooks: list[_FactsDigest] = []
    for configs in (inputs.configs, asked.changed):
        digest = _FactsDigest.of(inputs, asked, configs)
        plan = inputs.plan(configs, explained=asked.selection, digest=digest)
        outlooks.append(digest)
        # Where the change gives a topic its first setting, only the outlook before it lacks settings.
        own = (skip for skip in plan.skipped if skip.topic in configs or skip.topic not in asked.changed)
        skipped |= dict.fromkeys(skip for skip in own if skip.topic_id_partition in asked.selection)
    before, after = (each.facts for each in outlooks)
    selected = [part for part in state if part.topic_id_partition in asked.selection and part.segment_count]
    keys = [part.topic_id_partition.key for part in selected if part.delete_state is None]
    return GatheredFacts(
        facts=tuple(replace(after[key], unchanged=before[key].unchanged) for key in keys),
        skipped=tuple(skip for skip in skipped if not _is_removed(inputs, skip)),
        removed=sum(part.delete_state is not None for part in selected),
        damaged=len(state.quarantined) + (0 if state.accepts_missing else len(state.missing)),
        counts_objects=asked.objects is not None,
    )


def _is_removed(inputs: RetentionInputs, skip: Skip) -> bool:
    part = inputs.state.partition(skip.topic_id_partition)
    return part is not None and part.delete_state is not None


def object_counts(remote: RemoteStorageManager) -> ObjectCounts:
    """Return the number of a segment's objects in the layout of the tier."""
    always = len(remote.layout.required_objects)
    return ObjectCounts(always=always, transactions=remote.layout.keys_per_segment - always)


@dataclass(slots=True, kw_only=True)
class _FactsDigest:
    """The `Digest` of the facts of each partition if `configs` are the settings, both now and changed.

    `logs` are all replicas of a partition in the log directories, of which the newest decides, unless there
    are `views` of leaders.
    """

    configs: Mapping[str, TopicConfig]
    now_ms: int
    objects: ObjectCounts | None
    unreadable: Collection[TopicPartition]
    views: Mapping[_Key, LeaderView] | None
    logs: Mapping[_Key, Sequence[LocalLog]]
    facts: dict[_Key, PartitionFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: RetentionInputs, asked: FactsRequest, configs: Mapping[str, TopicConfig]) -> Self:
        """Return a digest without partitions."""
        logs: dict[_Key, list[LocalLog]] = defaultdict(list)
        for log in inputs.logs:
            logs[log.topic_id_partition.key].append(log)
        return cls(
            configs=configs,
            now_ms=inputs.now_ms,
            objects=asked.objects,
            unreadable=asked.unreadable,
            views=None if inputs.cluster is None else inputs.cluster.views,
            logs=logs,
        )

    def empty(self) -> Self:
        """Implement `Digest.empty`."""
        return replace(self, facts={})

    def add(self, part: PartitionState, decisions: PartitionDecisions) -> None:
        """Implement `Digest.add`."""
        if part.delete_state is not None or not part.segment_count:
            return
        partition = part.topic_id_partition
        columns = PartitionColumns(part, self.objects)
        local_only_bytes = self._local_only_bytes(part)
        first_ms, later = columns.growth(self.now_ms)
        outlook = self._outlook(part, columns, decisions, local_only_bytes)
        self.facts[partition.key] = PartitionFacts(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            now=columns.holding(columns.is_finished),
            first_ms=first_ms,
            later=later,
            local_only_bytes=local_only_bytes,
            unchanged=outlook,
            changed=outlook,
            local=self._local(part),
        )

    def answer(self) -> Self:
        """Implement `Digest.answer`."""
        return replace(self, configs={}, unreadable=(), views=None, logs={})

    def merge(self, other: Self) -> None:
        """Implement `Digest.merge`."""
        self.facts |= other.facts

    def _outlook(
        self,
        part: PartitionState,
        columns: PartitionColumns,
        decisions: PartitionDecisions,
        local_only_bytes: int | None,
    ) -> Outlook:
        partition = part.topic_id_partition
        config = self.configs.get(partition.topic, TopicConfig())
        is_size_known = config.retention_bytes < 0 or local_only_bytes is not None
        return outlook(
            columns,
            decisions.columns(part, self.now_ms),
            config,
            now_ms=self.now_ms,
            is_known=is_size_known and partition.topic_partition not in self.unreadable,
            log_start_offset=_new_log_start(decisions),
        )

    def _local_only_bytes(self, part: PartitionState) -> int | None:
        partition = part.topic_id_partition
        key = partition.key
        if self.views is not None:
            view = self.views.get(key)
            return None if view is None else view.local_only_bytes
        log = newest_replicas(self.logs.get(key, ())).get(key)
        return None if log is None else view_of_log(partition, part.segments, log).local_only_bytes

    def _local(self, part: PartitionState) -> LocalFacts | None:
        """Return what local retention with the settings leaves of the partition's replicas."""
        logs = self.logs.get(part.topic_id_partition.key, ())
        if not logs:
            return None
        limits = LocalRetention.of(self.configs.get(part.topic_id_partition.topic, TopicConfig()))
        later_ms = self.now_ms + HORIZONS_DAYS[-1] * DAY_MS
        highest = [
            find_highest_remote_offset(part.cache, Lineage(log.leader_epochs), log.log_end_offset)
            for log in logs
        ]
        left = (limits.left(log, copied, self.now_ms) for log, copied in zip(logs, highest, strict=True))
        # At `later_ms`, all segments that are rolled now will be replicated and copied.
        by_then = (replace(log, high_watermark=log.log_end_offset) for log in logs)
        later = (limits.left(log, log.log_end_offset, later_ms) for log in by_then)
        return LocalFacts(
            active_bytes=tuple(_size([log.segments[-1:]]) for log in logs),
            log_bytes=_size(log.segments for log in logs),
            retention_ms=limits.ms,
            retention_bytes=limits.size_bytes,
            left_bytes=_size(left),
            later_bytes=_size(later),
        )


def _new_log_start(decisions: PartitionDecisions) -> int | None:
    """Return the log start that the deletions raise, those of brokers as well; None if none does."""
    deleted = () if decisions.kept is None else decisions.kept.of_kinds(EXPIRED)
    starts = [each.end_offset + 1 for each in deleted if each.end_offset is not None]
    starts += [start for s in decisions.steps if (start := s.details.get("new_log_start_offset"))]
    return max(starts, default=None)


def _size(logs: Iterable[Sequence[LocalSegment]]) -> int:
    return sum(segment.size_bytes for segments in logs for segment in segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSpec:
    """The inputs that all buckets of the tables share; picklable, and without secrets.

    `log_starts` are those that earlier sweeps raised.
    """

    warehouse: WarehouseSpec
    contents: WarehouseContents
    logs: tuple[LocalLog, ...]
    unreadable: frozenset[TopicPartition]
    log_starts: Mapping[_Key, int]
    tier: TierSpec | None
    changes: Changes
    configs: Mapping[str, TopicConfig]
    changed: Mapping[str, TopicConfig]
    selection: Selection
    topics: CurrentTopics
    leaders: SeenLeaders | None
    objects: ObjectCounts | None
    now_ms: int
    accepts_missing: bool


def facts_from_tables(resources: Resources, changes: Changes, warehouse: str) -> GatheredFacts:
    """Return the facts of the selected partitions in the tables of `warehouse`.

    Raises NotFoundError for a place without tables, SafetyRefusal for those of the metadata topic of another
    cluster, and as `check_tier` and `gather_facts`.
    """
    spec = WarehouseSpec.of(store_uri("--warehouse", warehouse))
    contents = read_warehouse(spec)
    accepts_missing = resources.request.truncated_metadata is TruncatedMetadata.ACCEPT
    _report(resources, contents, () if accepts_missing else contents.commit.missing)
    selection = resources.resolve_selection(contents.partitions)
    live = sorted(partition for partition in contents.live if partition in selection)
    topics = {partition.topic for partition in live}
    changes.require_topics(topics)
    leaders = None if resources.cluster is None else _leaders(resources.cluster, contents, live)
    if leaders is None:
        configs = _configs(resources, contents, topics)
    else:
        configs = dict(leaders.configs)
        resources.note_unused(configs)
    unread = UnreadLogs(resources.progress)
    request, may_select = resources.request, resources.selection_request.may_select
    logs = read_local_logs(request.log_dir, unread.progress, select=may_select, on_error=unread.add)
    state_dir = request.state_dir
    tier = None if request.remote is None else _own_tier(resources, spec, contents)
    common = TablesSpec(
        warehouse=spec,
        contents=contents,
        logs=tuple(logs),
        unreadable=frozenset(unread.partitions),
        log_starts={} if state_dir is None else Journal(state_dir).log_starts(),
        tier=tier,
        changes=changes,
        configs=configs,
        changed=changes.applied(configs, topics),
        selection=selection,
        topics=CurrentTopics.of(logs) if leaders is None else leaders.topics,
        leaders=leaders,
        objects=None if tier is None else object_counts(resources.remote),
        now_ms=resources.now_ms,
        accepts_missing=accepts_missing,
    )
    found = _facts_of_buckets(resources, common)
    return GatheredFacts(
        facts=tuple(facts for each in found for facts in each.facts),
        skipped=tuple(skip for each in found for skip in each.skipped),
        removed=sum(each.removed for each in found),
        damaged=sum(each.damaged for each in found) + len(unread.partitions),
        counts_objects=common.objects is not None,
    )


def _report(resources: Resources, contents: WarehouseContents, missing: Iterable[MissingEvents]) -> None:
    """Report up to when the tables have the events, and which of these are damaged or `missing`."""
    resources.progress.note(
        f"the tables have the events up to {iso_utc(contents.commit.committed_ms)} "
        f"(commit {contents.commit.number}); "
        "tierctl pipeline run updates them"
    )
    report_unusable(resources, contents.unusable, {})
    for each in missing:
        resources.progress.warn(f"{each}; the tables lack them")


def _leaders(
    cluster: Cluster, contents: WarehouseContents, partitions: Sequence[TopicIdPartition]
) -> SeenLeaders:
    """Return the leaders; raise SafetyRefusal if the cluster's metadata topic is not that of the tables."""
    topic = cluster.topics({METADATA_TOPIC}).get(METADATA_TOPIC)
    topic_id = None if topic is None else str(topic.topic_id)
    contents.commit.require_same_topic(topic_id, contents.commit.metadata_partitions)
    return SeenLeaders.of(cluster, partitions)


def _own_tier(resources: Resources, spec: WarehouseSpec, contents: WarehouseContents) -> TierSpec:
    """Return the tier; raise the errors of `check_tier` unless it is that of the tables.

    Usually the first bucket with finished segments decides: no process has the state of all.
    """
    topic_id = contents.commit.topic_id
    own = ClusterIdentity(
        cluster_id=None, metadata_topic_id=None if topic_id is None else Uuid.parse(topic_id)
    )
    found: TierContents | None = None
    for bucket in range(contents.commit.buckets):
        seen = tier_contents(resources.remote, read_folded(spec, contents, bucket))
        if found is None or seen.known or found.missing is None:
            # Other buckets may know the topic of an object.
            found = replace(seen, is_foreign=False)
        if seen.known or (seen.identity is not None and seen.identity.cluster.is_same_as(own)):
            break
    note = None if found is None else check_tier(found, own, is_reading=True)
    if note is not None:
        resources.progress.note(note)
    return resources.tier_spec().resolved(resources.remote)


def _facts_of_buckets(resources: Resources, spec: TablesSpec) -> list[GatheredFacts]:
    buckets = range(spec.contents.commit.buckets)
    if not resources.is_on_spark:
        remote = None if spec.tier is None else resources.remote
        return [facts_of(spec, each, remote) for each in buckets]
    executors = resources.executors
    if spec.tier is not None:
        spec = replace(spec, tier=spec.tier.shared(lambda: executors.slots))
    return list(executors.run(partial(facts_of, spec), buckets))


def _configs(
    resources: Resources, contents: WarehouseContents, topics: Collection[str]
) -> dict[str, TopicConfig]:
    configs = resources.topic_configs()
    known = {partition.topic for partition in contents.partitions}
    resources.check_topic_names(configs, known, set(topics) - configs.keys())
    return configs


def facts_of(spec: TablesSpec, bucket: int, remote: RemoteStorageManager | None = None) -> GatheredFacts:
    """Return the facts of the user partitions of a bucket; `remote` is the tier, opened here without it.

    Raises CorruptInputError for a damaged table, RemoteStorageError if a pipeline replaced its file
    meanwhile, and as `gather_facts`.
    """
    state = read_folded(spec.warehouse, spec.contents, bucket)
    state.accepts_missing = spec.accepts_missing
    logs = [log for log in spec.logs if state.partition(log.topic_id_partition) is not None]
    if remote is None and spec.tier is not None:
        remote = shared_tier(spec.tier)
    views = None if spec.leaders is None else _views(spec, spec.leaders, state, remote)
    current = partitions_by_name(spec.topics, state, logs)
    inputs = RetentionInputs(
        state=state,
        logs=logs,
        configs=spec.configs,
        now_ms=spec.now_ms,
        topics=spec.topics,
        cluster=views,
        lineages=_lineages(spec, logs, state, remote) if views is None else None,
        log_starts=kept_log_starts(spec.log_starts, current, logs),
        current=current,
    )
    asked = FactsRequest(
        changed=spec.changed, selection=spec.selection, objects=spec.objects, unreadable=spec.unreadable
    )
    found = gather_facts(inputs, asked)
    # Executors return a reason as text only, so the result has texts on both engines.
    return replace(found, skipped=tuple(replace(skip, reason=str(skip.reason)) for skip in found.skipped))


def _lineages(
    spec: TablesSpec, logs: Sequence[LocalLog], state: TierState, remote: RemoteStorageManager | None
) -> dict[_Key, tuple[EpochEntry, ...]]:
    """Return the lineages of partitions without a log, from the tier; what can't be read has none."""
    if remote is None:
        return {}
    known = {log.topic_id_partition.key for log in logs}
    keys = {part.topic_id_partition.key for part in selected_parts(spec.selection, state)} - known
    found = {partition.key: entries for partition, entries in _stored_lineages(state, keys, remote)}
    # Without a lineage the partition is undecided, and the plan states that.
    return {key: entries for key, entries in found.items() if not isinstance(entries, TierctlError)}


def _stored_lineages(
    state: TierState, keys: Collection[_Key], remote: RemoteStorageManager | None
) -> Iterator[EpochsRead]:
    """Yield the leader epochs that the tier has of these partitions, or the error, as for `sweep`."""
    for partition, newest in newest_segments(keys, state):
        yield partition, stored_lineage(lambda: required("--remote", remote), newest)


def _views(
    spec: TablesSpec, leaders: SeenLeaders, state: TierState, remote: RemoteStorageManager | None
) -> ClusterViews:
    """Return the leaders' views; executors can't ask a broker for more than the size of its log."""
    seen = leaders.among({part.topic_id_partition.key for part in selected_parts(spec.selection, state)})
    return seen.views(state, lambda keys: _stored_lineages(state, keys, remote), spec.changes.size_limit)
