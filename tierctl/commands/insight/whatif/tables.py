"""The facts of `report --what-if` from the tables of the pipeline, in this process or on Spark.

For one metadata partition after the other, or each on an executor, the folded state is read from the
warehouse, retention is decided for its user partitions as in `sweep`, and their facts are returned. No
process has the state of the whole tier.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from tierctl.commands.insight.whatif.changes import Changes
from tierctl.commands.insight.whatif.facts import FactsRequest, gather_facts, object_counts
from tierctl.commands.resources import Resources
from tierctl.commands.sweep import RetentionInputs, stored_lineage
from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, RemoteTierMissing, TierctlError
from tierctl.model import EpochEntry, LocalLog, Selection, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.cluster import ClusterLog
from tierctl.model.location import TruncatedMetadata
from tierctl.model.times import iso_utc
from tierctl.pipeline.partition_task import read_folded
from tierctl.pipeline.reading import WarehouseContents, read_warehouse
from tierctl.pipeline.warehouse.open import WarehouseSpec
from tierctl.plan.forecast.facts import GatheredFacts, ObjectCounts
from tierctl.plan.preconditions import CurrentTopics
from tierctl.plan.retention.leaders import ClusterViews, knows_log_start, view_of_leader
from tierctl.plan.retention.partition_view import PartitionView, distinct_bytes
from tierctl.plan.settings_names import require_known_names
from tierctl.read.leader_logs import leader_logs
from tierctl.spark.executors.resources import shared_tier
from tierctl.state.lineage import find_highest_remote_offset
from tierctl.state.tier import PartitionState, TierState
from tierctl.storage import RemoteStorageManager, store_uri
from tierctl.storage.open import TierSpec
from tierctl.wire.metadata.partitioner import metadata_partition

_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaders:
    """The logs of the cluster's leaders that know their log start, and the reasons why others are unknown."""

    topics: CurrentTopics
    configs: Mapping[str, TopicConfig]
    logs: Mapping[_Key, ClusterLog]
    knowing: frozenset[_Key]
    unseen: Mapping[_Key, str]

    def of(self, keys: Collection[_Key]) -> Self:
        """Return the leaders' logs of these partitions."""
        return replace(
            self,
            configs={},
            logs={key: log for key, log in self.logs.items() if key in keys},
            knowing=self.knowing & frozenset(keys),
            unseen={key: reason for key, reason in self.unseen.items() if key in keys},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSpec:
    """The inputs that all metadata partitions share; picklable, and without secrets."""

    warehouse: WarehouseSpec
    tier: TierSpec | None
    changes: Changes
    configs: Mapping[str, TopicConfig]
    changed: Mapping[str, TopicConfig]
    selection: Selection
    objects: ObjectCounts | None
    now_ms: int
    accepts_missing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesInput:
    """One metadata partition: the file of its state, and the known logs of its partitions.

    `others` are logs of other metadata partitions, one per topic and without segments: they show which topic
    id a name belongs to.
    """

    path: str
    logs: tuple[LocalLog, ...] = ()
    others: tuple[LocalLog, ...] = ()
    leaders: _Leaders | None = field(default=None)


def facts_from_tables(resources: Resources, changes: Changes, warehouse: str) -> GatheredFacts:
    """Return the facts of the selected partitions in the tables of `warehouse`.

    Raises NotFoundError for a place without tables, and as `gather_facts`.
    """
    spec = WarehouseSpec.of(store_uri("--warehouse", warehouse))
    contents = read_warehouse(spec)
    resources.progress.note(
        f"the tables have the events up to {iso_utc(contents.committed_ms)} (commit {contents.number}); "
        "tierctl pipeline run updates them"
    )
    selection = resources.resolve_selection(contents.partitions)
    live = sorted(partition for partition in contents.live if partition in selection)
    topics = {partition.topic for partition in live}
    changes.require_topics(topics)
    leaders = _leaders(resources, live)
    configs = _configs(resources, contents, topics) if leaders is None else leaders.configs
    tier = None if resources.request.remote is None else resources.tier_spec().resolved(resources.remote)
    common = TablesSpec(
        warehouse=spec,
        tier=tier,
        changes=changes,
        configs=configs,
        changed=changes.applied(configs, topics),
        selection=selection,
        objects=None if tier is None else object_counts(resources.remote),
        now_ms=resources.now_ms,
        accepts_missing=resources.request.truncated_metadata is TruncatedMetadata.ACCEPT,
    )
    inputs = list(_inputs(contents, resources.logs_if_given(), leaders))
    if resources.is_on_spark:
        executors = resources.executors
        if tier is not None:
            common = replace(common, tier=tier.shared(lambda: executors.slots))
        found = list(executors.run(partial(facts_of, common), inputs))
    else:
        found = [facts_of(common, each, None if tier is None else resources.remote) for each in inputs]
    return GatheredFacts(
        facts=tuple(facts for each in found for facts in each.facts),
        skipped=tuple(skip for each in found for skip in each.skipped),
        removed=sum(each.removed for each in found),
        damaged=sum(each.damaged for each in found),
        counts_objects=common.objects is not None,
    )


def _configs(
    resources: Resources, contents: WarehouseContents, topics: Collection[str]
) -> dict[str, TopicConfig]:
    configs = resources.topic_configs()
    known = {partition.topic for partition in contents.partitions}
    note = require_known_names(configs, known, set(topics) - configs.keys())
    if note is not None:
        resources.progress.note(note)
    return configs


def _leaders(resources: Resources, partitions: Sequence[TopicIdPartition]) -> _Leaders | None:
    """Return the logs and settings of these partitions on the cluster; None without one."""
    cluster = resources.cluster
    if cluster is None:
        return None
    current = CurrentTopics.of_cluster(cluster.topics({partition.topic for partition in partitions}))
    there = [partition for partition in partitions if current.why_not_current(partition) is None]
    configs = cluster.topic_configs({partition.topic for partition in there})
    logs, unseen = leader_logs(cluster, there)
    brokers = {each.broker_id: each for each in cluster.brokers({log.leader for log in logs.values()})}
    return _Leaders(
        topics=current,
        configs=configs,
        logs={partition.key: log for partition, log in logs.items()},
        knowing=frozenset(
            partition.key
            for partition, log in logs.items()
            if knows_log_start(brokers.get(log.leader), configs[partition.topic])
        ),
        unseen={partition.key: reason for partition, reason in unseen.items()},
    )


def _inputs(
    contents: WarehouseContents, logs: Sequence[LocalLog], leaders: _Leaders | None
) -> Iterator[TablesInput]:
    count = max(part.metadata_partitions for part in contents.parts.values())
    homes = {
        key: metadata_partition(*key, count)
        for key in {
            *(log.topic_id_partition.key for log in logs),
            *(partition.key for partition in contents.partitions),
        }
    }
    one_per_topic = {
        (log.topic_id_partition.topic, log.topic_id_partition.topic_id): replace(log, segments=())
        for log in logs
    }
    for number, part in sorted(contents.parts.items()):
        keys = {key for key, home in homes.items() if home == number}
        own = [log for log in logs if log.topic_id_partition.key in keys]
        yield TablesInput(
            path=part.path,
            logs=tuple(own),
            others=tuple(log for log in one_per_topic.values() if log.topic_id_partition.key not in keys),
            leaders=None if leaders is None else leaders.of(keys),
        )


def facts_of(
    spec: TablesSpec, given: TablesInput, remote: RemoteStorageManager | None = None
) -> GatheredFacts:
    """Return the facts of one metadata partition; `remote` is the tier, which is opened without it.

    Raises CorruptInputError for a damaged table, RemoteStorageError if a pipeline replaced its file
    meanwhile, and as `gather_facts`.
    """
    state = _state(spec, given)
    if remote is None and spec.tier is not None:
        remote = shared_tier(spec.tier)
    logs = [*given.logs, *given.others]
    views = None if given.leaders is None else _views(spec, given.leaders, state, remote)
    inputs = RetentionInputs(
        state=state,
        logs=logs,
        configs=spec.configs,
        now_ms=spec.now_ms,
        topics=CurrentTopics.of(logs) if views is None else views.topics,
        cluster=views,
        lineages=_lineages(spec, given, state, remote) if views is None else None,
    )
    asked = FactsRequest(changed=spec.changed, selection=spec.selection, objects=spec.objects)
    found = gather_facts(inputs, asked)
    # Executors return a reason as text only, so the result has texts on both engines.
    return replace(found, skipped=tuple(replace(skip, reason=str(skip.reason)) for skip in found.skipped))


def _state(spec: TablesSpec, given: TablesInput) -> TierState:
    try:
        state = read_folded(spec.warehouse.open_store(), given.path).state
    except RemoteResourceNotFound as e:
        raise RemoteStorageError(
            f"the tables changed while they were read: {e.message}",
            hint="a pipeline run made a commit at the same time: run again",
        ) from e
    state.accepts_missing = spec.accepts_missing
    return state


def _selected(spec: TablesSpec, state: TierState) -> list[PartitionState]:
    return [
        part
        for part in state
        if part.topic_id_partition in spec.selection and part.delete_state is None and part.segment_count
    ]


def _lineages(
    spec: TablesSpec, given: TablesInput, state: TierState, remote: RemoteStorageManager | None
) -> dict[_Key, tuple[EpochEntry, ...]]:
    """Return the lineages of partitions without a log, from the tier; what can't be read has none."""
    if remote is None:
        return {}
    known = {log.topic_id_partition.key for log in given.logs}
    parts = [part for part in _selected(spec, state) if part.topic_id_partition.key not in known]
    return {part.topic_id_partition.key: _lineage(part, remote) for part in parts}


def _lineage(part: PartitionState, remote: RemoteStorageManager) -> tuple[EpochEntry, ...]:
    newest = part.segments.newest()
    try:
        return () if newest is None else stored_lineage(remote, newest)
    except RemoteTierMissing:
        raise
    except TierctlError:
        # Without a lineage the partition is undecided, and the plan states that.
        return ()


def _views(
    spec: TablesSpec, leaders: _Leaders, state: TierState, remote: RemoteStorageManager | None
) -> ClusterViews:
    parts = {part.topic_id_partition.key: part for part in _selected(spec, state)}
    views = {key: _view(spec, part, leaders, remote) for key, part in parts.items() if key in leaders.logs}
    return ClusterViews(topics=leaders.topics, views=views, unseen=leaders.unseen)


def _view(
    spec: TablesSpec, part: PartitionState, leaders: _Leaders, remote: RemoteStorageManager | None
) -> PartitionView:
    key, name = part.topic_id_partition.key, part.topic_id_partition.topic
    log = leaders.logs[key]
    entries = None
    if key not in leaders.knowing:
        entries = () if remote is None else _lineage(part, remote)
    view = view_of_leader(part, log, tier_entries=entries, local_only_bytes=None)
    limit_bytes = spec.changes.size_limit(name, spec.configs[name].retention_bytes)
    if limit_bytes < 0 or log.local_log_bytes is None:
        return view
    copied = find_highest_remote_offset(view.segments, view.lineage, view.log_end_offset).offset
    # Segments that are also in the tier count in a broker's log size, and executors can't ask it for more.
    if copied < 0 or distinct_bytes(tuple(view.iter_live())) + log.local_log_bytes > limit_bytes:
        return view
    return replace(view, local_only_bytes=log.local_log_bytes)
