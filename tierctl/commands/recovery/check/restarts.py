"""Check that brokers were restarted since tierctl filled a metadata topic that was created again.

A broker's consumer remembers, for each metadata partition, the last offset that it read, and skips the others
up to it: after the topic was deleted under it, these are new events. No offset or record shows this before
new segments are copied, as the broker still knows the old ones. But each restart of a leader adds a leader
epoch. Brokers that lead no metadata partition, and leaders that moved without a restart, are not found.

Brokers that were down while the topic was emptied read it from its start when they boot, and need no restart.
They are asked for it nevertheless: the topic id says nothing about what a consumer remembers, and a leader
epoch above 0 before tierctl's first event is no proof, because a lost session or another broker's restart
raises it, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.published import SegmentEvent
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import CorruptInputError
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.model import TopicPartition
from tierctl.model.local import TopicFacts
from tierctl.wire.metadata import decode

_RESTARTS = RestoreCheck.RESTARTS


@dataclass(slots=True)
class _Filled:
    """The metadata partitions that begin with an event of tierctl, by what their leader epochs show."""

    restarted: int
    same_leader: list[int]
    unknown: list[int]


def check_restarts(results: Results, topic: MetadataTopic, leaders: Cluster, *, own_broker_id: int) -> None:
    """Compare the leader epoch of tierctl's first event in each metadata partition with the present one."""
    with results.making(_RESTARTS, None):
        facts = leaders.topics([METADATA_TOPIC]).get(METADATA_TOPIC)
        if facts is None or topic.topic_id not in {None, facts.topic_id}:
            results.not_checked(
                _RESTARTS, None, "the cluster has not the metadata topic that --metadata names"
            )
            return
        firsts = dict(_first_offsets(topic, own_broker_id))
        if not firsts:
            reason = (
                "no metadata partition begins with an event of tierctl, so that nothing shows whether the "
                "topic was created again under the brokers"
            )
            results.not_checked(_RESTARTS, None, reason)
            return
        found = _compare(firsts, leaders)
        if found.unknown:
            reason = (
                f"metadata partitions {found.unknown} have no leader, or it does not know their leader epochs"
            )
            results.not_checked(_RESTARTS, None, reason)
        if found.same_leader or not found.unknown:
            states = (
                f"{found.restarted} metadata partitions have a new leader epoch since tierctl filled them"
            )
            results.decided(_RESTARTS, None, _faults(found.same_leader, facts), states)


def _first_offsets(topic: MetadataTopic, own_broker_id: int) -> Iterator[tuple[int, int]]:
    """Yield each partition whose first record is an event that tierctl published, with its offset."""
    ends = topic.end_offsets()
    for partition, start in sorted(topic.beginning_offsets().items()):
        if start >= ends.get(partition, 0):
            continue
        for chunk in topic.read(partition, start, start + 1):
            if any(_is_own(value, own_broker_id) for value in chunk.values.to_pylist()):
                yield partition, start


def _is_own(value: bytes | None, own_broker_id: int) -> bool:
    # The check `metadata` reports what can't be read.
    try:
        event = None if value is None else decode(value)
    except CorruptInputError:
        return False
    return isinstance(event, SegmentEvent) and event.broker_id == own_broker_id


def _compare(firsts: Mapping[int, int], leaders: Cluster) -> _Filled:
    current = leaders.current_epochs([METADATA_TOPIC])
    found = _Filled(0, [], [])
    for number, offset in firsts.items():
        name = TopicPartition(METADATA_TOPIC, number)
        now = current.get(name)
        known = () if now is None else leaders.leader_epochs(name)
        filled = max((each.epoch for each in known if each.start_offset <= offset), default=None)
        if now is None or filled is None:
            found.unknown.append(number)
        elif now > filled:
            found.restarted += 1
        else:
            found.same_leader.append(number)
    return found


def _faults(partitions: Sequence[int], facts: TopicFacts) -> Iterator[str]:
    if partitions:
        known = {each.leader for each in facts.partitions if each.partition in partitions}
        leaders = sorted(each for each in known if each is not None)
        yield (
            f"brokers {leaders} were not restarted since tierctl filled the metadata topic: metadata "
            f"partitions {list(partitions)} still have the leader epoch of tierctl's first event"
        )
