"""Which tier is that of the metadata: by its objects, or by segments of which none has objects."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tierctl.apply.run_context import RunContext, observe
from tierctl.apply.tier_check import (
    create_identity,
    has_objects_of_any,
    require_known_tier,
    why_not_deletable,
)
from tierctl.errors import AuthenticationError, RemoteStorageError, RemoteTierMissing
from tierctl.model import ClusterIdentity, RemoteLogSegmentMetadata, TierIdentity, TopicIdPartition
from tierctl.state.tier_state import TierState
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.apply.commands import marking
from tests.apply.sites import IDENTITY, MUTATING, READING, Site, Tierctl, another, copied, in_each_place, keys
from tests.metadata.topics import state_at, topic_in
from tests.plan.tier import OTHER_ID, PARTITION, S, advance, segment
from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of

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


@in_each_place
def test_a_tier_without_identity_is_recognised_by_its_objects(
    site: Site, place: str, tierctl: Tierctl, tmp_path: Path
) -> None:
    """The tier was written by brokers."""
    copied(site, tierctl)
    other = another(site, tmp_path / "other-metadata", place, tierctl)
    for remote in (site.remote, other.remote):
        open_tier(TierSpec(remote)).store.delete([IDENTITY])
    for name in (*MUTATING, *READING):
        assert tierctl(*site.command(name)).code == 0, name
        ran = tierctl(*site.at(other.remote).command(name))
        assert ran.code == 5, (name, ran.err)
        assert "it has objects of other segments" in ran.err
    topic_in(tmp_path / "fresh", writable=True, partition_count=2).close()
    fresh = Site(tmp_path / "fresh", site.logs, site.remote)
    for name in (*MUTATING, *READING):
        ran = tierctl(*fresh.command(name))
        assert ran.code == 4, (name, ran.err)
        assert "knows neither the segment nor the topic" in ran.err
        assert "--adopt-tier" in ran.err
    assert keys(site.remote)[0].startswith("kafka-tiered-storage/"), "reading and planning write no identity"


@pytest.mark.parametrize("command", ["delete", "sweep"])
def test_deletions_are_resumed_only_in_the_tier_that_they_emptied(
    command: str, site: Site, place: str, tierctl: Tierctl
) -> None:
    """No object is left by which the tier could be recognised, and its brokers wrote no identity."""
    copied(site, tierctl)
    open_tier(TierSpec(site.remote)).store.delete([IDENTITY])
    topics = site.logs / "configs"
    topics.write_text("bills.retention.ms=0\n")
    if command == "delete":
        assert tierctl(*site.command("delete", *marking(site.metadata, "bills"), "--apply")).code == 0
    assert IDENTITY not in keys(site.remote)
    _stop_before_the_events(command, site, tierctl)
    assert keys(site.remote) == [IDENTITY]
    before = states(site.metadata)
    assert {found[1] for found in before if isinstance(found, tuple)} == {S.DELETE_SEGMENT_STARTED}

    typo = site.at(f"{place}/typo")
    if place.startswith("file:"):
        (Path(typo.remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
    layout = ("--layout", "kafka")
    for apply in ((), ("--apply",)):
        ran = tierctl(*typo.command(command, *layout, *apply))
        assert (ran.code, ran.out, states(site.metadata)) == (5, "", before), ran.err
        assert "neither an identity object nor an object of a segment" in ran.err
    anyway = (*layout, "--allow-missing-objects")
    assert tierctl(*typo.command(command, *anyway)).code == 0
    assert tierctl(*site.command(command, *layout, "--apply")).code == 0
    assert not any(isinstance(found, tuple) for found in states(site.metadata))


def _stop_before_the_events(command: str, site: Site, tierctl: Tierctl) -> None:
    """Run the command until it has deleted all objects, and stop it before it publishes that."""
    label = {"delete": "delete.segment_finished.publish", "sweep": "sweep.finished.publish"}[command]

    def stop(at: str, moment: str) -> None:
        if (at, moment) == (label, "before"):
            raise KeyboardInterrupt

    observe(stop)
    try:
        while any(key.startswith("kafka-tiered-storage/") for key in keys(site.remote)):
            ran = tierctl(*site.command(command, "--apply"))
            assert ran.code == 130, ran.err
    finally:
        observe(None)


def test_an_empty_tier_without_segments_is_noted(site: Site, tierctl: Tierctl) -> None:
    """The run can't know whether the name is mistyped, and no data can be lost."""
    if site.remote.startswith("file:"):
        (Path(site.remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
    for name in ("sweep", "verify"):
        ran = tierctl(*site.command(name))
        assert (ran.code, "has no object: is --remote" in ran.err) == (0, True), ran.err
    assert "has no object" not in tierctl(*site.command("copy", "--layout", "kafka")).err
