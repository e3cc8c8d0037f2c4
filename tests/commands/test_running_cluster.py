"""Which brokers are checked before a wave, and what is refused, with a fake cluster."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.commands import running_cluster
from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import SafetyRefusal
from tierctl.metadata.daily_changes import RecentWriters
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.events import ZERO_UUID
from tierctl.model.local import BrokerFacts, TopicFacts
from tierctl.plan.partition_deletes import DeletionEvidence
from tierctl.state.tier_state import TierState
from tierctl.wire.metadata.values import metadata_partition

from tests.plan.tier import OTHER_ID, TOPIC_ID, advance, segment
from tests.support.fake_cluster import FakeCluster, topic_facts

FREE, TIERING = (TopicIdPartition(TOPIC_ID, "orders", number) for number in (0, 1))


ORDERS_FACTS = topic_facts("orders", TOPIC_ID, [0, 1])
NOBODY = frozenset[int]()


@dataclass(kw_only=True)
class MixedCluster(FakeCluster):
    """Broker 0 does not tier, broker 1 tiers, and broker 2 is no leader."""

    facts: dict[str, TopicFacts] = field(default_factory=lambda: {"orders": ORDERS_FACTS})
    tiering: Collection[int] | None = (1,)
    asked: list[set[int] | None] = field(default_factory=list)
    known: set[Uuid] = field(default_factory=set)
    known_by_all: set[Uuid] = field(default_factory=set)
    raised: list[Mapping[TopicPartition, int]] = field(default_factory=list)

    def cluster_id(self) -> str:
        return "id"

    def broker_ids(self) -> tuple[int, ...]:
        return (0, 1, 2)

    def unknown_topic_ids(self, topic_ids: Collection[Uuid], *, by_any: bool = False) -> frozenset[Uuid]:
        return frozenset(topic_ids) - (self.known_by_all if by_any else self.known)

    def delete_records(self, before_offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.raised.append(before_offsets)
        return before_offsets

    def brokers(self, ids: Collection[int] | None = None) -> tuple[BrokerFacts, ...]:
        self.asked.append(None if ids is None else set(ids))
        found = super().brokers(ids)
        return tuple(replace(each, task_interval_ms=1000 * (each.broker_id + 1)) for each in found)

    def with_metadata_topic(self, topic_id: Uuid) -> "MixedCluster":
        self.facts[METADATA_TOPIC] = topic_facts(METADATA_TOPIC, topic_id, [])
        return self


@dataclass
class Clock:
    now_ms: int = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def live(cluster: MixedCluster, clock: Clock) -> RunningCluster:
    made: Any = cluster
    return RunningCluster(cluster=made, topic=None, own_broker_ids={-1}, now_ms=clock)


def test_only_leaders_are_asked_and_soon_again() -> None:
    cluster, clock = MixedCluster(), Clock()
    beside = live(cluster, clock)
    assert beside.task_interval_ms == 3000
    cluster.asked.clear()
    for _ in range(3):
        beside.check_fence([FREE])
    assert cluster.asked == [{0}]
    clock.now_ms += 2_001
    beside.check_fence([FREE])
    # Setting the clock back does not extend the validity of an answer.
    clock.now_ms -= 60_000
    beside.check_fence([FREE])
    assert cluster.asked == [{0}] * 3


def test_a_mixed_cluster() -> None:
    beside = live(MixedCluster(), Clock())
    for refused in ([TIERING], [FREE, TIERING]):
        with pytest.raises(SafetyRefusal, match=r"orders-1.*: broker 1 leads it and tiers") as caught:
            beside.check_fence(refused)
        assert "orders-0" not in caught.value.message
    beside.check_any_open([FREE, TIERING])
    with pytest.raises(SafetyRefusal):
        beside.check_any_open([TIERING])


@pytest.mark.parametrize(
    ("ahead_ms", "is_refused"), [(300_000, False), (300_001, True), (-86_400_000, False), (None, False)]
)
def test_a_clock_ahead_of_the_controller_s(ahead_ms: int | None, is_refused: bool) -> None:
    """A clock that is behind expires less; a controller that may not be asked shows nothing."""
    clock = Clock()
    beside = live(MixedCluster(clock_ms=None if ahead_ms is None else clock.now_ms - ahead_ms), clock)
    if not is_refused:
        beside.check_clock()
        return
    with pytest.raises(SafetyRefusal, match="clock is 300 s ahead of the controller's"):
        beside.check_clock()


def test_nothing_of_an_existing_topic_is_deleted() -> None:
    """The topic still exists, so its deletion mark is a mistake, even if no broker tiers.

    Only its id counts: the name in the event of the mark is whatever its writer stated.
    """
    beside = live(MixedCluster(tiering=NOBODY, known={TOPIC_ID}), Clock())
    gone = TopicIdPartition(OTHER_ID, "orders", 0)
    beside.check_deleted([gone])
    for existing in (FREE, replace(FREE, topic="bills"), replace(FREE, topic="../bills")):
        with pytest.raises(SafetyRefusal, match=f"the cluster still has topic {existing.topic}"):
            beside.check_deleted([gone, existing])


def test_a_log_start_is_raised_only_of_a_topic_that_every_broker_knows() -> None:
    """The broker that answers may lag behind the one that leads the topic which was created again."""
    cluster = MixedCluster(known_by_all={TOPIC_ID})
    live(cluster, Clock()).raise_log_starts({FREE: 7})
    assert cluster.raised == [{FREE.topic_partition: 7}]
    for partition, known in ((FREE, set[Uuid]()), (replace(FREE, topic_id=OTHER_ID), {TOPIC_ID, OTHER_ID})):
        cluster = MixedCluster(known_by_all=known)
        with pytest.raises(SafetyRefusal, match="orders-0 was deleted or created again"):
            live(cluster, Clock()).raise_log_starts({partition: 7})
        assert cluster.raised == []


@pytest.mark.parametrize(("broker_id", "own_ids", "is_open"), [
    (-1, {-1}, True), (9, {-1, 9}, True), (9, {-1}, False), (2, {-1}, False), (2, {-1, 2}, False),
])  # fmt: skip
def test_a_broker_id_hides_no_running_broker(
    broker_id: int, own_ids: set[int], is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--broker-id may equal the id of a broker; the broker's events are not taken for tierctl's."""
    beside = live(MixedCluster(), Clock())
    home = metadata_partition(FREE.topic_id, FREE.partition, 50)
    offsets = {"beginning_offsets": lambda: {home: 0}, "end_offsets": lambda: {home: 0}}
    topic: Any = SimpleNamespace(partition_count=50, **offsets)
    beside.topic, beside.own_broker_ids = topic, own_ids
    monkeypatch.setattr(running_cluster, "recent_writers", lambda *_args: RecentWriters({broker_id: 5}, None))
    if is_open:
        beside.check_fence([FREE])
        return
    with pytest.raises(SafetyRefusal, match=f"broker {broker_id} wrote"):
        beside.check_fence([FREE])


ORDERS = segment(1, 0, 99)
BILLS = replace(segment(2, 0, 99), topic="bills", topic_id=OTHER_ID)
BY_TIERCTL = replace(ORDERS, broker_id=-1)
OF_NO_TOPIC = replace(BILLS, topic_id=ZERO_UUID)


@pytest.mark.parametrize(
    ("cluster", "on_cluster", "segments", "is_own"),
    [
        # The brokers of this cluster tier with this metadata topic.
        (MixedCluster().with_metadata_topic(TOPIC_ID), True, [ORDERS], True),
        (MixedCluster().with_metadata_topic(TOPIC_ID), False, [ORDERS], False),
        (MixedCluster().with_metadata_topic(OTHER_ID), True, [ORDERS], False),
        (MixedCluster(), True, [ORDERS], False),
        # The cluster does not tier: it may only store the metadata of another cluster.
        (MixedCluster(tiering=NOBODY).with_metadata_topic(TOPIC_ID), True, [ORDERS], False),
        # The cluster has another topic of the metadata.
        (MixedCluster(tiering=NOBODY, known={OTHER_ID}), False, [ORDERS, BILLS], True),
        (MixedCluster(tiering=NOBODY), False, [ORDERS, BILLS], False),
        # Brokers of any cluster leave the id 0 out of their answer.
        (MixedCluster(tiering=NOBODY, known={ZERO_UUID}), False, [ORDERS, OF_NO_TOPIC], False),
        # Only tierctl wrote the metadata, and only for this topic.
        (MixedCluster(tiering=NOBODY).with_metadata_topic(TOPIC_ID), True, [BY_TIERCTL], True),
        (MixedCluster(tiering=NOBODY).with_metadata_topic(TOPIC_ID), True, [BY_TIERCTL, BILLS], False),
        (MixedCluster(tiering=NOBODY).with_metadata_topic(OTHER_ID), True, [BY_TIERCTL], False),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_what_a_cluster_says_of_topics(
    cluster: MixedCluster,
    on_cluster: bool,
    segments: Sequence[RemoteLogSegmentMetadata],
    is_own: bool,
    exists: bool,
) -> None:
    cluster = replace(cluster, known=cluster.known | ({TOPIC_ID} if exists else set()))
    beside = live(cluster, Clock())
    topic: Any = type("Topic", (), {"topic_id": TOPIC_ID})
    beside.topic = topic if on_cluster else None
    state = TierState(read={0: 0})
    for each in segments:
        advance(state, each)
    answer = beside.answer_about([TOPIC_ID], state)
    existing = frozenset({TOPIC_ID} if exists else set())
    assert (answer.cluster_id, answer.existing, answer.is_own) == ("id", existing, is_own)


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("broker_id", "age_ms", "own_ids", "is_doubted"),
    [
        (77, 0, {-1}, True),
        (77, DAY_MS, {-1}, True),
        (77, -DAY_MS, {-1}, True),
        (77, DAY_MS + 1, {-1}, False),
        (77, 0, {-1, 77}, False),
        (2, 0, {-1}, False),
        (-1, 0, {-1}, False),
    ],
)
def test_a_topic_of_another_cluster_with_the_same_metadata_topic(
    broker_id: int, age_ms: int, own_ids: set[int], is_doubted: bool
) -> None:
    """Brokers of this cluster tier and have other topics of the metadata, but did not copy this one."""
    clock = Clock(now_ms=10 * DAY_MS)
    beside = live(MixedCluster(known={OTHER_ID}), clock)
    beside.own_broker_ids = own_ids
    state = TierState(read={0: 0})
    for each in (ORDERS, BILLS):
        advance(state, replace(each, broker_id=broker_id, event_timestamp_ms=clock.now_ms - age_ms))
    evidence = DeletionEvidence(cluster=beside.answer_about([TOPIC_ID], state))
    assert evidence.cluster is not None
    assert evidence.cluster.is_own
    if not is_doubted:
        evidence.require_deleted({TOPIC_ID: "orders"})
        return
    with pytest.raises(
        SafetyRefusal, match=r"broker 77, which cluster id does not have, wrote about it at 19"
    ):
        evidence.require_deleted({TOPIC_ID: "orders"})
