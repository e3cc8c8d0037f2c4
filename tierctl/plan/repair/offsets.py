"""Steps that lower committed offsets of metadata partitions, in the files of brokers before Kafka 3.8."""

from tierctl.model import TopicIdPartition
from tierctl.plan.steps import Action, Step

FILE, FROM_OFFSET, TO_OFFSET = "file", "from_offset", "to_offset"
"""Details: the file, the committed offset in it, and the safe one; None removes the entry."""


def lower_offset(
    file: str, partition: TopicIdPartition, offsets: tuple[int, int | None], reason: str
) -> Step:
    """Return the step about a partition of the metadata topic; `offsets` are the old and the new one."""
    return Step(
        action=Action.LOWER_OFFSET,
        reason=reason,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        details={FILE: file, FROM_OFFSET: offsets[0], TO_OFFSET: offsets[1]},
    )
