"""A tier without any object of the segments in the metadata is treated as the wrong tier."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tierctl.apply.run_context import RunContext
from tierctl.apply.tier_check import (
    create_identity,
    has_objects_of_any,
    require_known_tier,
    why_not_deletable,
)
from tierctl.errors import AuthenticationError, RemoteStorageError, RemoteTierMissing
from tierctl.model import (
    ClusterIdentity,
    RemoteLogSegmentMetadata,
    TierIdentity,
    TopicIdPartition,
)
from tierctl.state.tier_state import TierState

from tests.apply.conftest import Ran
from tests.metadata.topics import state_at
from tests.plan.tier import OTHER_ID, PARTITION, S, advance, segment
from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of

Tierctl = Callable[..., Ran]

ELSEWHERE = TopicIdPartition(OTHER_ID, "bills", 3)
STATES = {"finished": (S.COPY_SEGMENT_FINISHED,), "copying": ()}
STATES["deleting"] = (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
REFUSED = "refused"


class World:
    """Segments described in words: "finished there", "deleting gone" (its objects), "copying gone"."""

    def __init__(self) -> None:
        self.state = TierState(read={0: 0})
        self.storage = MemoryStorage()
        cluster = ClusterIdentity(cluster_id=None, metadata_topic_id=None)
        create_identity(self.storage, TierIdentity(cluster=cluster, layout=self.storage.layout.name))
        self.calls = self.storage.failing.calls

    def add(self, told: Sequence[str], partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        added = []
        for words in told:
            state, objects = words.split()
            number = 1 + sum(len(part.cache) for part in self.state)
            made = segment(number, number * 10, number * 10 + 9, partition=partition)
            advance(self.state, made, *STATES[state])
            if objects == "there":
                # One object is enough to recognise a tier, because a killed deletion may have left only one.
                self.storage.failing.objects[self.storage.layout.keys_of(made)[-1]] = b""
            part = self.state.partition(partition)
            assert part is not None
            found = part.cache.get(made.segment_id)
            assert found is not None
            added.append(found)
        return added

    def context(self, **more: Any) -> RunContext:
        metadata = cast("Any", SimpleNamespace(state=self.state))
        return RunContext(
            remote=self.storage, metadata=metadata, clock_ms=lambda: 0, new_segment_id=lambda: made_id, **more
        )


made_id = segment(99, 0, 9).segment_id

CASES: list[tuple[list[str], list[str], list[str], list[int] | str]] = [
    # In order: to be deleted, others of the partition, of another partition, and which are refused ("all").
    (["finished there"] * 3, [], [], []),
    (["finished there", "finished gone"], [], [], [1]),
    (["finished gone"], ["finished there"], [], [0]),
    (["finished gone"], [], ["finished there"], [0]),
    # The bucket or prefix is wrong, or somebody deleted all objects.
    (["finished gone"], [], [], REFUSED),
    (["finished gone", "finished gone"], ["finished gone"], ["finished gone"], REFUSED),
    # The resumed deletion may have deleted the last object of the tier before it was killed.
    (["deleting gone"], [], [], []),
    (["deleting gone"], ["finished there"], [], []),
    (["deleting gone"], [], ["finished there"], []),
    (["deleting gone", "finished there"], [], [], []),
    (["deleting gone", "deleting there"], ["finished gone"], [], []),
    (["deleting gone"], ["finished gone"], [], REFUSED),
    (["deleting gone"], [], ["finished gone"], REFUSED),
    (["deleting gone", "finished gone"], [], [], REFUSED),
    (["deleting there", "finished gone"], [], [], [1]),
    # A copy that did not finish may have stored no object.
    (["copying gone"], [], [], []),
    (["copying gone"], ["finished there"], [], []),
    (["copying gone"], [], ["finished gone"], REFUSED),
    # Segments that another run is deleting or copying prove nothing either.
    (["deleting gone"], ["deleting gone", "copying gone"], [], []),
    ([], ["finished gone"], [], []),
]


@pytest.mark.parametrize(("deleted", "others", "elsewhere", "expected"), CASES)
def test_what_may_be_deleted(
    deleted: list[str], others: list[str], elsewhere: list[str], expected: list[int] | str
) -> None:
    world = World()
    segments = world.add(deleted, PARTITION)
    world.add(others, PARTITION)
    world.add(elsewhere, ELSEWHERE)
    if expected == REFUSED:
        with pytest.raises(RemoteTierMissing, match=r"looked for memory:kafka-tiered-storage/.*\.log"):
            why_not_deletable(segments, world.context())
    else:
        errors = why_not_deletable(segments, world.context())
        assert set(errors) == {segments[int(at)].segment_id for at in expected}
        assert all(isinstance(error, RemoteTierMissing) for error in errors.values())
    assert why_not_deletable(segments, world.context(allow_missing_objects=True)) == {}
    assert set(world.calls) <= {"open", "sizes_bytes", "list_objects", "list_folder"}


@pytest.mark.parametrize(
    ("others", "elsewhere", "good"),
    [
        ([], [], True),
        (["finished there"], [], True),
        (["finished gone"], [], False),
        (["finished gone"], ["finished there"], True),
        (["deleting gone", "copying gone"], [], True),
    ],
)
def test_where_may_be_copied(others: list[str], elsewhere: list[str], good: bool) -> None:
    world = World()
    world.add(others, PARTITION)
    world.add(elsewhere, ELSEWHERE)
    if good:
        require_known_tier({PARTITION}, world.context())
    else:
        with pytest.raises(RemoteTierMissing, match="looked for"):
            require_known_tier({PARTITION}, world.context())
        require_known_tier({PARTITION}, world.context(allow_missing_objects=True))


def test_it_costs_one_listing_and_a_few_looks_more() -> None:
    world = World()
    segments = world.add(["finished there"] * 20, PARTITION)
    why_not_deletable(segments, world.context())
    assert world.calls == ["sizes_bytes"]
    resumed = World()
    segments = resumed.add(["deleting gone"] * 20, PARTITION)
    for number in range(30):
        resumed.add(["finished gone"], TopicIdPartition(OTHER_ID, "bills", number))
    with pytest.raises(RemoteTierMissing):
        why_not_deletable(segments, resumed.context())
    assert resumed.calls.count("sizes_bytes") == 16


def test_a_store_that_fails_is_no_wrong_tier() -> None:
    world = World()
    segments = world.add(["finished there", "finished there"], PARTITION)
    world.storage.failing.errors = [RemoteStorageError("503")]
    errors = why_not_deletable(segments, world.context())
    assert [error.message for error in errors.values()] == ["503", "503"]


def states(metadata: Path) -> list[object]:
    """Return the states of all segments and partition deletes in the metadata."""
    found: list[object] = []
    for part in state_at(metadata):
        found += [
            part.delete_state,
            *((s.segment_id, s.state) for s in part.cache.list_remote_log_segments()),
        ]
    return found


def test_a_part_of_the_tier_that_is_hidden_from_this_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    segment, tier = metadata_of(), MemoryStorage()
    tier.copy_log_segment_data(segment, data_in(tmp_path_factory.mktemp("source")))
    refused = AuthenticationError("no")
    tier.failing.errors = [refused]
    assert has_objects_of_any(tier, [segment, segment])
    tier.failing.errors = [refused, refused]
    with pytest.raises(AuthenticationError):
        has_objects_of_any(tier, [segment, segment])
