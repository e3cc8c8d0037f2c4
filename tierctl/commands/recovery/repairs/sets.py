"""Examine the object sets of partitions in which `verify` found unfinished copies or orphans."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.logs import DecidingLogs, local_holes
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.metadata.deleted_segments import deleted_segments
from tierctl.model import (
    ListedSet,
    LocalLog,
    ObjectSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.rebuild.partition import PartitionInputs, decide_partition
from tierctl.plan.repair.sets import ExaminedSets
from tierctl.state.log_start import replica_start
from tierctl.state.tier import TierState
from tierctl.storage.object_sets import by_partition

_S = RemoteLogSegmentState


@dataclass(kw_only=True)
class SetExaminer:
    """Derive the metadata of object sets, and choose the sets of each partition that form its log.

    `live` are the partitions whose topic id may exist.
    """

    run: Mutation
    state: TierState
    logs: Sequence[LocalLog]
    deciding: DecidingLogs
    live: Collection[TopicIdPartition]

    def examine(self, listed: Sequence[ListedSet]) -> Iterator[ExaminedSets]:
        """Yield each partition's sets with the choice among them; the chosen sets are read completely."""
        partitions = {each.partition for each in listed}
        known = self._segments(partitions)
        misplaced = {id(each) for each in listed if _is_misplaced(each, known[each.partition])}
        placed = [each for each in listed if id(each) not in misplaced]
        finished = [
            s for each in known.values() for s in each.values() if s.state is _S.COPY_SEGMENT_FINISHED
        ]
        sets = self._tier.derived(placed, finished=finished)
        of_partition = by_partition(sets)
        for partition in sorted(partitions):
            found = self._examined(partition, of_partition.get(partition, ()), known[partition])
            odd = [e.segment_id for e in listed if e.partition == partition and id(e) in misplaced]
            yield replace(found, misplaced=odd)

    def _segments(
        self, partitions: Collection[TopicIdPartition]
    ) -> dict[TopicIdPartition, dict[Uuid, RemoteLogSegmentMetadata]]:
        found = {}
        for partition in partitions:
            part = self.state.partition(partition)
            segments = () if part is None else part.cache.list_remote_log_segments()
            found[partition] = {segment.segment_id: segment for segment in segments}
        return found

    def _examined(
        self,
        partition: TopicIdPartition,
        sets: Sequence[ObjectSet],
        known: Mapping[Uuid, RemoteLogSegmentMetadata],
    ) -> ExaminedSets:
        deleted = {} if all(each.listed.segment_id in known for each in sets) else self._deleted[partition]
        sets = [each for each in sets if not self._is_below(partition, each, known)]
        states = {key: segment.state for key, segment in known.items()}
        leader = self.deciding.leaders.get(partition)
        inputs = PartitionInputs(
            partition=partition,
            sets=sets,
            known=states | dict.fromkeys(deleted.keys() - known.keys(), _S.DELETE_SEGMENT_FINISHED),
            leader=leader,
            local_holes=local_holes(sets, leader),
            why_no_log=self.deciding.missing.get(partition),
            replicas=[log for log in self.logs if log.topic_id_partition == partition],
        )
        # The same plan stores the indexes that a segment lacks.
        inputs = replace(inputs, unsound=self._tier.unsound(inputs.serving, may_lack_indexes=True))
        decision = decide_partition(inputs)
        examined = ExaminedSets(
            inputs=replace(inputs, known=states),
            decision=decision,
            is_live=partition in self.live,
            deleted=deleted,
            started={key: s for key, s in known.items() if s.state is _S.COPY_SEGMENT_STARTED},
        )
        return replace(examined, unsound={**inputs.unsound, **self._tier.unsound(examined.unfinished)})

    def _is_below(
        self, partition: TopicIdPartition, each: ObjectSet, known: Mapping[Uuid, RemoteLogSegmentMetadata]
    ) -> bool:
        """Return whether the set is of a finished segment below the log start; its metadata are not lost."""
        log = self.deciding.leaders.get(partition)
        segment = known.get(each.listed.segment_id)
        if log is None or segment is None or segment.state is not _S.COPY_SEGMENT_FINISHED:
            return False
        return segment.end_offset < replica_start(log)

    @cached_property
    def _tier(self) -> TierSets:
        return TierSets.to_change(self.run)

    @cached_property
    def _deleted(self) -> dict[TopicIdPartition, dict[Uuid, RemoteLogSegmentMetadata]]:
        """Return the deleted segments by partition, from the metadata topic."""
        topic = self.run.resources.metadata_topic()
        found: dict[TopicIdPartition, dict[Uuid, RemoteLogSegmentMetadata]] = defaultdict(dict)
        for segment in deleted_segments(topic, topic.end_offsets()):
            found[segment.topic_id_partition][segment.segment_id] = segment
        return found


def _is_misplaced(listed: ListedSet, known: Mapping[Uuid, RemoteLogSegmentMetadata]) -> bool:
    """Return whether the objects have the id of a known segment, but begin at another offset."""
    segment = known.get(listed.segment_id)
    return segment is not None and segment.start_offset != listed.start_offset
