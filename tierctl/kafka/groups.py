"""The committed offsets of consumer groups."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tierctl.errors import TierctlError
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.topic_admin import TopicAdmin
from tierctl.model import TopicPartition

_GROUPS_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset that a group committed for one partition: the next record that it reads."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsets:
    """The committed offsets of the groups of a cluster.

    `unreadable` has an error for each group or broker that could not be read, and for each partition of which
    a group's offset could not be read. If `lists_all` is False, the user may not list all groups: brokers
    leave out groups that the user may not describe, without an error.
    """

    offsets: tuple[CommittedOffset, ...]
    groups: int
    unreadable: tuple[str, ...]
    lists_all: bool


def committed_offsets(admin: TopicAdmin, partitions: Collection[TopicPartition]) -> CommittedOffsets:
    """Return the offsets that groups have committed for `partitions`, by group and partition.

    Raises AuthenticationError if no group may be listed, and MetadataError if no broker answers in time.
    """
    wanted = frozenset(partitions)
    listed = admin.answer(
        admin.client.list_consumer_groups(request_timeout=admin.request_timeout_s),
        "listing the consumer groups",
        Right("Describe"),
    )
    errors = [f"some groups are not listed: {error}" for error in listed.errors]
    names = sorted(each.group_id for each in listed.valid)
    found: list[CommittedOffset] = []
    for first in range(0, len(names), _GROUPS_AT_ONCE):
        for name, answer in _asked(admin, names[first : first + _GROUPS_AT_ONCE]):
            if isinstance(answer, TierctlError):
                errors.append(f"group {name}: {answer.message}; {answer.hint}")
                continue
            own = [each for each in answer.topic_partitions if _partition_of(each) in wanted]
            errors += [
                f"group {name}: its offset of {_partition_of(each)} could not be read: {each.error.str()}"
                for each in own
                if each.error is not None
            ]
            found += [
                CommittedOffset(group=name, partition=_partition_of(each), offset=each.offset)
                for each in own
                if each.error is None and each.offset >= 0
            ]
    operations = admin.cluster_operations()
    return CommittedOffsets(
        offsets=tuple(sorted(found, key=lambda each: (each.group, each.partition))),
        groups=len(names),
        unreadable=tuple(errors),
        # For a user without the right, the response has no operations, not even those that are allowed.
        lists_all="Describe" in operations,
    )


def _asked(admin: TopicAdmin, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield each group with the result of asking for its offsets, or the error."""
    futures: dict[str, Any] = {}
    for name in names:
        asked = sdk.confluent_kafka.ConsumerGroupTopicPartitions(name)
        futures |= admin.client.list_consumer_group_offsets([asked], request_timeout=admin.request_timeout_s)
    for name, future in futures.items():
        try:
            right = Right("Describe", group=name)
            yield name, admin.answer(future, f"asking for the offsets of group {name}", right)
        except TierctlError as e:
            yield name, e


def _partition_of(answered: Any) -> TopicPartition:
    return TopicPartition(answered.topic, answered.partition)
