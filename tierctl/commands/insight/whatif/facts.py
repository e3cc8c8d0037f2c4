"""The facts of each partition under the present and the changed settings, as plans of a sweep have them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tierctl.commands.sweep import RetentionInputs
from tierctl.model import LocalLog, Selection, TopicConfig, TopicPartition, Uuid
from tierctl.plan.forecast.facts import (
    DAY_MS,
    HORIZONS_DAYS,
    Expiries,
    GatheredFacts,
    LocalFacts,
    LocalOutlook,
    ObjectCounts,
    PartitionColumns,
    PartitionFacts,
)
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.retention.local import LocalRetention
from tierctl.plan.retention.partition_view import view_of_log
from tierctl.plan.steps import Skip
from tierctl.state.lineage import Lineage, find_highest_remote_offset
from tierctl.state.tier import PartitionState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.retry import object_tier

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
    state, now_ms = inputs.state, inputs.now_ms
    unchanged, changed = Expiries(state, now_ms), Expiries(state, now_ms)
    skipped: dict[Skip, None] = {}
    for expiries, configs in ((unchanged, inputs.configs), (changed, asked.changed)):
        plan = inputs.plan(configs, explained=asked.selection, on_kept=expiries.receive)
        expiries.add_steps(plan.steps)
        # Where the change gives a topic its first setting, only the outlook before it lacks settings.
        own = (skip for skip in plan.skipped if skip.topic in configs or skip.topic not in asked.changed)
        skipped |= dict.fromkeys(skip for skip in own if skip.topic_id_partition in asked.selection)
    gathering = _Gathering(inputs, asked, unchanged, changed)
    selected = [
        part
        for part in state.by_metadata_partition()
        if part.topic_id_partition in asked.selection and part.segment_count
    ]
    return GatheredFacts(
        facts=tuple(gathering.facts(part) for part in selected if part.delete_state is None),
        skipped=tuple(skip for skip in skipped if not _is_removed(inputs, skip)),
        removed=sum(part.delete_state is not None for part in selected),
        damaged=len(state.quarantined) + (0 if state.accepts_missing else len(state.missing)),
        counts_objects=asked.objects is not None,
    )


def _is_removed(inputs: RetentionInputs, skip: Skip) -> bool:
    part = inputs.state.partition(skip.topic_id_partition)
    return part is not None and part.delete_state is not None


def object_counts(remote: RemoteStorageManager) -> ObjectCounts | None:
    """Return the number of a segment's objects in the layout of the tier; None if it is unknown."""
    tier = object_tier(remote)
    if tier is None:
        return None
    always = len(tier.layout.required_objects)
    return ObjectCounts(always=always, transactions=tier.layout.keys_per_segment - always)


class _Gathering:
    def __init__(
        self, inputs: RetentionInputs, asked: FactsRequest, unchanged: Expiries, changed: Expiries
    ) -> None:
        self._inputs = inputs
        self._asked = asked
        self._expiries = (unchanged, changed)
        self._newest = {} if inputs.cluster is not None else newest_replicas(inputs.logs)
        self._logs: dict[_Key, list[LocalLog]] = defaultdict(list)
        for log in inputs.logs:
            self._logs[log.topic_id_partition.key].append(log)

    def facts(self, part: PartitionState) -> PartitionFacts:
        partition, now_ms = part.topic_id_partition, self._inputs.now_ms
        columns = PartitionColumns(part, self._asked.objects)
        local_only_bytes = self._local_only_bytes(part)
        configs = [
            each.get(partition.topic, TopicConfig()) for each in (self._inputs.configs, self._asked.changed)
        ]
        is_readable = partition.topic_partition not in self._asked.unreadable
        unchanged, changed = (
            expiries.outlook(
                part,
                columns,
                config,
                is_readable=is_readable,
                is_size_known=local_only_bytes is not None,
            )
            for expiries, config in zip(self._expiries, configs, strict=True)
        )
        first_ms, later = columns.growth(now_ms)
        return PartitionFacts(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            now=columns.holding(columns.is_finished),
            first_ms=first_ms,
            later=later,
            local_only_bytes=local_only_bytes,
            unchanged=unchanged,
            changed=changed,
            local=self._local(part, configs[0], configs[1]),
        )

    def _local_only_bytes(self, part: PartitionState) -> int | None:
        key = part.topic_id_partition.key
        if self._inputs.cluster is not None:
            view = self._inputs.cluster.views.get(key)
            return None if view is None else view.local_only_bytes
        log = self._newest.get(key)
        return None if log is None else view_of_log(part, log).local_only_bytes

    def _local(self, part: PartitionState, before: TopicConfig, after: TopicConfig) -> LocalFacts | None:
        logs = self._logs.get(part.topic_id_partition.key, [])
        if not logs:
            return None
        return LocalFacts(
            replicas=len(logs),
            log_bytes=sum(_sizes(logs)),
            unchanged=self._local_outlook(part, logs, LocalRetention.of(before)),
            changed=self._local_outlook(part, logs, LocalRetention.of(after)),
        )

    def _local_outlook(
        self, part: PartitionState, logs: Sequence[LocalLog], limits: LocalRetention
    ) -> LocalOutlook:
        now_ms = self._inputs.now_ms
        later_ms = now_ms + HORIZONS_DAYS[-1] * DAY_MS
        highest = [
            find_highest_remote_offset(part.segments, Lineage(log.leader_epochs), log.log_end_offset).offset
            for log in logs
        ]
        left = (limits.left(log, copied, now_ms) for log, copied in zip(logs, highest, strict=True))
        # At `later_ms`, all segments that are rolled now will be replicated and copied.
        by_then = (replace(log, high_watermark=log.log_end_offset) for log in logs)
        later = (limits.left(log, log.log_end_offset, later_ms) for log in by_then)
        return LocalOutlook(
            retention_ms=limits.ms,
            retention_bytes=limits.size_bytes,
            left_bytes=sum(segment.size_bytes for segments in left for segment in segments),
            later_bytes=sum(segment.size_bytes for segments in later for segment in segments),
        )


def _sizes(logs: Sequence[LocalLog]) -> Iterator[int]:
    return (segment.size_bytes for log in logs for segment in log.segments)
