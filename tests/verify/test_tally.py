"""A store listed in parts says what the listing at once says."""

import pickle
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tierctl.model import ObjectPart
from tierctl.spark.executors import serialization
from tierctl.storage.layouts.key_parser import segment_object_name
from tierctl.verify.objects import StoreAudit, Tally

from tests.verify.tiers import made_tier

SEGMENTS = 12
STATE, LISTING = made_tier(SEGMENTS)
NAMES = [segment_object_name(found.key) for found in LISTING()]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(NAMES) - 1), st.integers(99, 101), st.integers(0, 2)), max_size=60),
    st.booleans(),
)
def test_parts_add_up(objects: list[tuple[int, int, int]], is_aiven: bool) -> None:
    whole, apart = StoreAudit(STATE), StoreAudit(STATE)
    expected = pickle.loads(pickle.dumps(apart.tally.expected(apart.tally.keys())))
    parts = [Tally(expected) for _ in range(3)]
    sizes = {at: size_bytes for at, size_bytes, _ in objects}
    places = {at: part for at, _, part in objects}
    for at, size_bytes in sizes.items():
        name = NAMES[at]
        assert name is not None
        if is_aiven and name.part is not ObjectPart.LOG:
            name = replace(name, part=ObjectPart.MANIFEST)
        assert whole.tally.add(name, size_bytes) == parts[places[at]].add(name, size_bytes)
    for part in parts:
        apart.tally.absorb(serialization.loads(serialization.dumps(part.found())))
    assert list(apart.suspects()) == list(whole.suspects())
    assert (apart.tally.aiven, apart.tally.kafka) == (whole.tally.aiven, whole.tally.kafka)


def test_a_segment_of_another_partition_is_told_apart() -> None:
    tally = Tally(StoreAudit(STATE).tally.expected([]))
    assert NAMES[0] is not None
    assert not tally.add(NAMES[0], 100)
