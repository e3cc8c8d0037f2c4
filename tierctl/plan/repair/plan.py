"""The plan of the repairs of what `verify` found: of copies, of deletions and of orphans."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tierctl.model import RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.plan.copy.dangling import Dangling
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import CurrentTopics, why_undecided, why_unknown
from tierctl.plan.reasons import RESUMED
from tierctl.plan.repair.orphans import OrphanRule
from tierctl.plan.repair.sets import ExaminedSets, decide_dangling, decide_orphans
from tierctl.plan.steps import VERIFY, Plan, Skip, Step
from tierctl.state.tier import PartitionState, TierState

_S = RemoteLogSegmentState
_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairInputs:
    """The inputs from which repairs are decided.

    `topics` are the existing topics. `examined` has the sets of objects by partition, `unexamined` the reason
    for each partition whose sets could not be examined.
    """

    topics: CurrentTopics
    dangling: Dangling
    orphans: OrphanRule
    examined: Mapping[_Key, ExaminedSets] = field(default_factory=dict)
    unexamined: Mapping[_Key, str] = field(default_factory=dict)
    indexes: Sequence[Step | Skip] = ()
    """The decision about each segment with a missing or damaged index."""


def plan_repair(state: TierState, inputs: RepairInputs) -> Plan:
    """Return the plan of the repairs of copies, deletions and orphans.

    Deletions of segments and of partitions that were started are resumed. A dangling copy is published as
    finished if its objects are complete and the log needs them, and so are such objects without metadata;
    other dangling copies are deleted as `copy --clean-dangling` does, and other orphans under the rule for
    them. If a case may not be decided, the plan has the reason.
    """
    removal = plan_removal(state)
    steps: list[Step] = list(removal.steps)
    skipped: list[Skip] = list(removal.skipped)
    for found in chain(_of_copies(state, inputs), _of_orphans(state, inputs), inputs.indexes):
        if isinstance(found, Step):
            steps.append(found)
        else:
            skipped.append(found)
    return Plan(command=VERIFY, steps=tuple(steps), read=dict(state.read), skipped=tuple(skipped))


def has_unfinished(part: PartitionState) -> bool:
    """Return whether the partition, which is not being deleted, has unfinished copies or deletions."""
    count = part.segments.count_in
    unfinished = count(_S.COPY_SEGMENT_STARTED) + count(_S.DELETE_SEGMENT_STARTED)
    return part.delete_state is None and unfinished > 0


def _of_copies(state: TierState, inputs: RepairInputs) -> Iterator[Step | Skip]:
    for part in filter(has_unfinished, state):
        partition = part.topic_id_partition
        reason = why_unknown(state, part) or inputs.topics.why_not_current(partition)
        if reason is not None:
            yield Skip.of(partition, reason)
            continue
        steps, skips = inputs.dangling.clean(part)
        yield from skips
        for step in steps:
            yield step if step.reason == RESUMED else _of_dangling(partition, step, inputs)


def _of_dangling(partition: TopicIdPartition, step: Step, inputs: RepairInputs) -> Step | Skip:
    examined = inputs.examined.get(partition.key)
    if examined is not None:
        return decide_dangling(examined, step)
    reason = inputs.unexamined.get(partition.key, "its objects were not examined")
    return Skip.of(partition, reason, step.segment_id)


def _of_orphans(state: TierState, inputs: RepairInputs) -> Iterator[Step | Skip]:
    for examined in inputs.examined.values():
        partition = examined.inputs.partition
        found = list(decide_orphans(examined, inputs.orphans))
        reason = why_undecided(state, partition) if found else None
        if reason is None:
            yield from found
        else:
            yield Skip.of(partition, reason)
