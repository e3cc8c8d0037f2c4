"""Ids that collide by the seeds of one table are spread by those of the next, and found in linear time."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from tierctl.state.table import SegmentTable
from tierctl.state.table_arrays import SegmentIds, hashes, new_seeds
from tierctl.wire.arrays import Int64s

pytestmark = pytest.mark.usefixtures("both_forms")

IDS = 100_000
SLOTS = 1 << 18
"""The slots of a hash table for IDS."""
IN_A_SLOT = 100
"""More ids that have the same first slot; one in a hundred random seeds has more than 5."""
PERIOD, FREE = 1 << 38, 1 << 20
"""The last bits of a sum that decide the slot, and the values of those that are shifted out of it."""


def slots_of(ids: Int64s, seeds: Int64s, count: int = SLOTS) -> Int64s:
    """Return the first slot of each id."""
    found: Int64s = hashes(ids[:, 0], ids[:, 1], 0, seeds) & count - 1
    return found


def colliding(seeds: Int64s) -> Int64s:
    """Return IDS ids of which all have the same first slot with `seeds`."""
    factor, other = int(seeds[0]), int(seeds[1])
    step = pow(factor, -1, PERIOD)
    found = np.empty((0, 2), np.int64)
    for above in itertools.count(1):
        # Sums of (words · seeds) with zeros before their last FREE bits; NumPy wraps at a multiple of PERIOD.
        first = -above * other % PERIOD * step % PERIOD
        words = first + np.arange(FREE, dtype=np.int64) * step & PERIOD - 1
        words = words[words < 1 << 32]
        ids = np.stack([words | above << 32, np.zeros_like(words)], axis=1)
        found = np.concatenate([found, ids[slots_of(ids, seeds) == 0]])
        if len(found) >= IDS:
            return found[:IDS]
    raise AssertionError


@pytest.mark.parametrize(
    "seeds", [lambda: SegmentIds()._seeds, lambda: SegmentTable().arrays.seeds], ids=["ids", "table"]
)
def test_ids_that_collide_by_other_seeds_have_slots_of_their_own(seeds: Callable[[], Int64s]) -> None:
    known = seeds()
    ids = colliding(known)
    assert len(np.unique(ids, axis=0)) == IDS
    assert len(np.unique(slots_of(ids, known))) == 1
    assert np.bincount(slots_of(ids, seeds())).max() < IN_A_SLOT


def test_ids_that_collide_by_other_seeds_are_found_after_a_few_probes() -> None:
    ids = colliding(new_seeds())
    kept = SegmentIds()
    # Otherwise the next lines take hours.
    assert np.bincount(slots_of(ids, kept._seeds)).max() < IN_A_SLOT
    assert kept.add(ids).tolist() == [*range(IDS)]
    assert kept.find_many(ids[::-1]).tolist() == [*range(IDS)][::-1]
    assert kept.find_many(ids + 1).tolist() == [-1] * IDS
    taken = np.flatnonzero(kept._slots >= 0)
    firsts = slots_of(kept.words[kept._slots[taken]], kept._seeds, len(kept._slots))
    probes = (taken - firsts) % len(kept._slots) + 1
    assert len(taken) == IDS
    assert probes.sum() < 10 * IDS
