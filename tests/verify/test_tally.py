"""A store listed in parts has the same findings as one listed at once."""

import pickle
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tierctl.checks.objects import StoreAudit, Tally
from tierctl.model import ObjectPart
from tierctl.spark.executors import task
from tierctl.storage.layouts.kafka import segment_object_name

from tests.support.amounts import examples
from tests.verify.tiers import made_tier

SEGMENTS = 12
STATE, LISTING = made_tier(SEGMENTS)
OBJECTS = list(LISTING())


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(0, len(OBJECTS) - 1), st.integers(99, 101), st.integers(0, 2)), max_size=60
    ),
    st.booleans(),
)
def test_parts_add_up(objects: list[tuple[int, int, int]], is_aiven: bool) -> None:
    whole, apart = StoreAudit(STATE), StoreAudit(STATE)
    expected = pickle.loads(pickle.dumps(apart.tally.expected(apart.tally.keys())))
    parts = [Tally(expected) for _ in range(3)]
    sizes = {at: size_bytes for at, size_bytes, _ in objects}
    places = {at: part for at, _, part in objects}
    for at, size_bytes in sizes.items():
        found = replace(OBJECTS[at], size_bytes=size_bytes)
        name = segment_object_name(found.key)
        assert name is not None
        if is_aiven and name.part is not ObjectPart.LOG:
            folder = f"t-{name.topic_id}/{name.partition}"
            found = replace(found, key=f"{folder}/{name.start_offset:020d}-{name.segment_id}.rsm-manifest")
        assert whole.tally.add_listed(found)
        assert parts[places[at]].add_listed(found)
    for part in parts:
        apart.tally.absorb(task.loads(task.dumps(part.found())))
    assert list(apart.suspects()) == list(whole.suspects())
    assert (apart.tally.aiven, apart.tally.kafka) == (whole.tally.aiven, whole.tally.kafka)


def test_a_segment_of_another_partition_is_told_apart() -> None:
    tally = Tally(StoreAudit(STATE).tally.expected([]))
    assert not tally.add_listed(OBJECTS[0])
