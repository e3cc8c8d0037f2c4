"""Derive the state of a tier in memory from its objects, to read records without a metadata topic."""

from collections.abc import Callable, Iterator, Sequence

from tierctl.apply.defaults import NOT_A_BROKER_ID
from tierctl.commands.recovery.logs import local_holes
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.resources import Resources
from tierctl.errors import CorruptInputError
from tierctl.model import (
    LocalLog,
    MetadataEvent,
    ObjectSet,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.reasons import ReasonKind
from tierctl.plan.rebuild.partition_choice import (
    PartitionDecision,
    PartitionInputs,
    decide_partition,
    is_not_understood,
)
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState
from tierctl.storage.object_sets import by_partition


def read_rebuilt(resources: Resources) -> TierState:
    """Derive the state of the selected partitions from the objects of the tier; resolve the selection.

    The state has the segments of each partition that `rebuild` would publish. If log directories are given,
    the choice of segments depends on them as in `rebuild`. Four kinds of problems go to
    `resources.problems`: missing offsets, sets that are not understood (the others are read), incomplete sets
    whose records are in no known log, and partitions that `rebuild` would refuse for another reason.
    """

    def report(partition: TopicIdPartition, decision: PartitionDecision, has_log: bool) -> None:
        for problem in _problems(partition, decision, has_log=has_log):
            resources.problems.report(problem)

    return derive_state(resources, resources.logs_if_given, report)


OnDecision = Callable[[TopicIdPartition, PartitionDecision, bool], None]
"""Called with each partition, the decision about it, and whether a local log was used for the decision."""


def derive_state(
    resources: Resources, logs: Callable[[], Sequence[LocalLog]], on_decision: OnDecision
) -> TierState:
    """Return the state that `read_rebuilt` describes; `logs` decide, `on_decision` receives the decisions.

    Raise CorruptInputError if there are no logs, and no set of the selected partitions is understood.
    """
    tier = TierSets.of(resources)
    listed = tier.listed()
    selection = resources.resolve_selection(each.partition for each in listed)
    chosen = [each for each in listed if each.partition in selection]
    sets = tier.derived(chosen)
    state, given = TierState(), logs()
    for event in _events(sets, given, on_decision):
        # All events are put in metadata partition 0: nobody reads these events from a topic.
        offset = state.read.get(0, 0)
        fold_event(event, state, metadata_partition=0, metadata_offset=offset)
        state.read[0] = offset + 1
    if sets and not given and all(each.why_not_understood is not None for each in sets):
        raise CorruptInputError(
            f"all {len(sets)} sets of objects of the selected partitions",
            expected="one that is understood",
            found=f"{sets[0].why_not_understood} ({sets[0].listed.segment_id})",
        )
    return state


def _events(
    sets: Sequence[ObjectSet], logs: Sequence[LocalLog], on_decision: OnDecision
) -> Iterator[MetadataEvent]:
    leaders = newest_replicas(logs)
    for partition, own in by_partition(sets).items():
        leader = leaders.get(partition.key)
        holes = local_holes(own, leader)
        inputs = PartitionInputs(partition=partition, sets=own, leader=leader, local_holes=holes)
        decision = decide_partition(inputs)
        on_decision(partition, decision, leader is not None)
        if decision.refused is not None and not is_not_understood(decision.refused):
            continue
        for segment in decision.choice.chain:
            yield segment
            yield RemoteLogSegmentMetadataUpdate.of(
                segment,
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                broker_id=NOT_A_BROKER_ID,
                event_timestamp_ms=segment.event_timestamp_ms,
            )


def _problems(
    partition: TopicIdPartition, decision: PartitionDecision, *, has_log: bool
) -> Iterator[CorruptInputError]:
    """Yield an error for each range of offsets that the tier has or had and that is not read."""
    if is_not_understood(decision.refused):
        yield CorruptInputError(
            f"{partition}: only the sets that are understood are read",
            expected="every set",
            found=str(decision.refused),
        )
    elif decision.refused is not None:
        yield CorruptInputError(
            f"{partition}: not read from the tier",
            expected="a tier and logs that are one log",
            found=decision.refused,
            hint="without --log-dir, the tier alone decides" if has_log else None,
        )
        return
    hole = decision.choice.hole
    if hole is not None:
        yield CorruptInputError(
            f"{partition}: segments below offset {decision.choice.first_offset} are left out",
            expected="segments without a hole",
            found=f"no segment has offsets {hole.first} to {hole.last}",
        )
    for each, reason in decision.choice.left:
        # Without a log, the first segment that can be read is the log start: one below it may be damaged.
        is_below_log = has_log and reason.kind is ReasonKind.LOG_START_OFFSET
        is_other = reason.kind is ReasonKind.ABOVE_HOLE or is_below_log
        if each.segment is None and not is_other:
            yield CorruptInputError(
                f"{partition}: segment {each.listed.segment_id} is not read",
                expected="a complete set of objects",
                found=each.why_not_understood or str(each.why_incomplete),
                hint="its objects are damaged, half copied or half deleted: see tierctl verify",
            )
