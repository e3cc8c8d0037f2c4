"""Consumer groups whose committed offset would fall below the log start after a change."""

from collections.abc import Iterator, Mapping, Sequence

from tierctl.commands.insight.whatif.rows import GroupLoss
from tierctl.errors import TierctlError
from tierctl.kafka.acls import Right
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.groups import CommittedOffset
from tierctl.model import TopicPartition
from tierctl.model.progress import Progress
from tierctl.plan.forecast.facts import PartitionFacts

_SHOWN = 5


def group_losses(
    cluster: Cluster, facts: Sequence[PartitionFacts], progress: Progress
) -> tuple[tuple[GroupLoss, ...], bool]:
    """Return the losses by group, topic and partition, and whether all groups could be asked.

    A group loses the records from its committed offset, or from the present log start if that is higher, up
    to the new log start. What a login may not see is reported.
    """
    moved = {
        TopicPartition(each.topic, each.partition): each
        for each in facts
        if each.changed.log_start_offset is not None
    }
    if not moved:
        progress.note("the change raises no log start offset, so no consumer group loses records")
        return (), True
    try:
        starts = {
            partition: each.log_start_offset for partition, each in cluster.partition_offsets(moved).items()
        }
        found = cluster.committed_offsets(moved)
    except TierctlError as e:
        progress.warn(f"it is unknown which consumer groups would lose records: {e.message}; {e.hint}")
        return (), False
    for error in found.unreadable[:_SHOWN]:
        progress.warn(f"it is unknown whether a consumer group would lose records: {error}")
    if len(found.unreadable) > _SHOWN:
        progress.warn(f"{len(found.unreadable) - _SHOWN} more consumer groups could not be read")
    if not found.lists_all:
        progress.warn(
            f"only the {found.groups} consumer groups that this user may describe were examined; to examine "
            "all: "
            f"{Right('Describe').command}"
        )
    losses = tuple(_losses(found.offsets, moved, starts))
    return losses, found.lists_all and not found.unreadable


def _losses(
    offsets: Sequence[CommittedOffset],
    moved: Mapping[TopicPartition, PartitionFacts],
    starts: Mapping[TopicPartition, int],
) -> Iterator[GroupLoss]:
    for each in offsets:
        facts = moved[each.partition]
        new_start = facts.changed.log_start_offset or 0
        if each.offset < new_start:
            yield GroupLoss(
                group=each.group,
                topic=facts.topic,
                topic_id=facts.topic_id,
                partition=facts.partition,
                committed_offset=each.offset,
                new_log_start_offset=new_start,
                lost_records=max(new_start - max(each.offset, starts[each.partition]), 0),
            )
