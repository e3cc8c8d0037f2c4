"""Which tier is that of the metadata: by its identity, by its objects, or by segments without objects.

The identity is written before the first copy, and compared by every command that names a tier.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tierctl.apply import tier_check
from tierctl.apply.run_context import RunContext
from tierctl.apply.tier_check import (
    create_identity,
    has_objects_of_any,
    require_known_tier,
    why_not_deletable,
)
from tierctl.errors import (
    AuthenticationError,
    ExitCode,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
)
from tierctl.model import ClusterIdentity, RemoteLogSegmentMetadata, TierIdentity, TopicIdPartition
from tierctl.state.tier_state import TierState
from tierctl.storage.lease import open_lease
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.apply.commands import marking
from tests.apply.sites import IDENTITY, MUTATING, READING, Site, another, body, copied, in_each_place, keys
from tests.apply.worlds import World
from tests.cli.shell import Ran, tierctl
from tests.metadata.topics import state_at, topic_in
from tests.plan.tier import OTHER_ID, PARTITION, S, advance, segment
from tests.storage.memory import MemoryStorage
from tests.storage.segments import data_in, metadata_of
from tests.support.faults import observed


def states(metadata: Path) -> list[object]:
    """Return the states of all segments and partition deletes in the metadata."""
    found: list[object] = []
    for part in state_at(metadata):
        found += [
            part.delete_state,
            *((s.segment_id, s.state) for s in part.cache.list_remote_log_segments()),
        ]
    return found


@in_each_place
def test_it_is_written_at_the_first_copy_and_never_again(site: Site) -> None:
    planned = tierctl(*site.command("copy", "--layout", "kafka", "--detailed-exitcode"))
    assert planned.code == ExitCode.PLAN_PENDING
    assert keys(site.remote) == [] if site.remote.startswith("s3:") else not Path(site.remote[7:]).exists()
    copied(site)
    topic = topic_in(site.metadata)
    assert body(site.remote) == {
        "tier_identity": 1,
        "cluster_id": None,
        "metadata_topic_id": topic.topic_id,
        "layout": "kafka",
    }
    topic.close()
    assert [key for key in keys(site.remote) if key.startswith(".")] == [IDENTITY]
    before = keys(site.remote)
    copied(site)
    assert keys(site.remote) == before
    for name in READING:
        assert tierctl(*site.command(name)).code == 0
    for name in ("sweep", "delete"):
        assert tierctl(*site.command(name, "--apply")).code == 0


def test_the_copy_of_another_metadata_folder_is_refused(site: Site, place: str, tmp_path: Path) -> None:
    """With two metadata folders, each would report the segments of the other as leaked."""
    copied(site)
    other = another(site, tmp_path / "other-metadata", place)
    before, stored = states(other.metadata), keys(site.remote)
    mine, theirs = body(site.remote)["metadata_topic_id"], body(other.remote)["metadata_topic_id"]
    for name in (*MUTATING, *READING):
        for apply in ((), ("--apply",)) if name in MUTATING else ((),):
            ran = tierctl(*other.at(site.remote).command(name, *apply))
            assert (ran.code, ran.out) == (4, ""), (name, ran.err)
            assert ran.err.count("error") == 1, ran.err
            assert "hint" in ran.err, ran.err
            assert mine in ran.err
            assert theirs in ran.err
    fresh = Site(tmp_path / "fresh", site.logs, site.remote)
    for apply in ((), ("--apply",)):
        ran = tierctl(*fresh.command("copy", *apply))
        assert ran.code == 4, ran.err
        assert mine in ran.err
    assert (states(other.metadata), keys(site.remote)) == (before, stored)


def test_a_tier_that_two_runs_claim_at_once_belongs_to_one(site: Site, tmp_path: Path) -> None:
    """Another run writes its identity after this run found none."""
    rival = Site(tmp_path / "rival", site.logs, site.remote)
    shutil.copytree(site.metadata, rival.metadata)
    for file in rival.metadata.glob("*/partition.metadata"):
        file.write_text("version: 0\ntopic_id: 2QZ5FAXaQrqgUzsReWnweA\n")

    def late(context: Any) -> None:
        assert tier_check.read_identity(context.remote) is None
        identity = tier_check.TierIdentity(cluster=_cluster_of(rival), layout="kafka")
        assert tier_check.create_identity(context.remote, identity)

    if site.remote.startswith("file:"):
        (Path(site.remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tier_check, "_identity", late)
        ran = tierctl(*site.command("copy", "--layout", "kafka", "--apply"))
    assert ran.code == 4, ran.err
    assert "2QZ5FAXaQrqgUzsReWnweA" in ran.err
    assert states(site.metadata) == []
    assert tierctl(*rival.command("copy", "--layout", "kafka", "--apply")).code == 0


def _cluster_of(site: Site) -> Any:
    topic = topic_in(site.metadata)
    try:
        return topic.identity()
    finally:
        topic.close()


@pytest.mark.matrix
def test_a_tier_in_hdfs(beginning: World, hdfs: str, tmp_path: Path) -> None:
    """The folder need not exist before the first copy."""
    for name in ("metadata", "other"):
        topic_in(tmp_path / name, writable=True, partition_count=2).close()
    site = Site(tmp_path / "metadata", beginning.logs, f"{hdfs}/tier")
    copied(site)
    assert body(site.remote)["layout"] == "kafka"
    assert [found.key for found in open_tier(TierSpec(site.remote)).list_folder().objects] == []
    refused = tierctl(*replace(site, metadata=tmp_path / "other").command("copy", "--apply"))
    assert refused.code == 4, refused.err
    lease = open_lease(open_tier(TierSpec(site.remote)))
    assert lease is not None
    with lease:
        assert tierctl(*site.command("sweep", "--apply")).code == ExitCode.LOCKED
    assert tierctl(*site.command("sweep", "--apply")).code == 0
    assert tierctl(*site.command("verify")).code == 0
    assert tierctl(*site.at(f"{hdfs}/typo").command("verify")).code == 5


WRONG = {"folder": ("empty", "prefix", "above", "folder", "layout"), "s3": ("empty",)}


@pytest.mark.parametrize(
    ("place", "wrong"), [(place, wrong) for place in WRONG for wrong in WRONG[place]], indirect=["place"]
)
def test_a_wrong_tier_gives_one_error_at_plan_time(wrong: str, site: Site, place: str) -> None:
    """One check refuses them all: for the other cases, three commands show that they make it."""
    copied(site)
    expected, more, remote = 5, (), f"{place}/{wrong}"
    match wrong:
        case "empty":
            if place.startswith("file:"):
                (Path(remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
        case "prefix":
            remote = f"{site.remote}/some/prefix"
        case "above":
            remote = site.remote.rpartition("/")[0]
        case "layout":
            remote, more, expected = site.remote, ("--layout", "aiven"), 2
    before, stored = states(site.metadata), keys(site.remote)
    for name in (*MUTATING, *READING) if wrong == "empty" else ("copy", "sweep", "verify"):
        for apply in ((), ("--apply",)) if name in MUTATING else ((),):
            ran = tierctl(*site.at(remote).command(name, *more, *apply))
            assert (ran.code, ran.out) == (expected, ""), (name, ran.err)
            assert ran.err.count("error") == 1, ran.err
            assert "hint" in ran.err, ran.err
    assert (states(site.metadata), keys(site.remote)) == (before, stored)


def test_copying_between_tiers_inspects_both(site: Site, place: str, tmp_path: Path) -> None:
    copied(site)
    other = another(site, tmp_path / "other-metadata", place)
    topic_in(tmp_path / "target", writable=True, partition_count=2).close()

    def between(source: str, target: str, *more: object) -> Ran:
        places = ("--metadata", site.metadata, "--from-remote", source, "--remote", target)
        return tierctl("copy", *places, "--to-metadata", tmp_path / "target", "--layout", "kafka", *more)

    for apply in ((), ("--apply",), ("--apply", "--adopt-tier")):
        wrong_source = between(other.remote, f"{place}/target", *apply)
        assert (wrong_source.code, wrong_source.out) == (4, ""), wrong_source.err
    for apply in ((), ("--apply",)):
        wrong_target = between(site.remote, other.remote, *apply)
        assert (wrong_target.code, wrong_target.out) == (4, ""), wrong_target.err
    typo = between(f"{site.remote}/typo", f"{place}/target", "--from-layout", "kafka")
    assert (typo.code, typo.out) == (5, ""), typo.err
    assert states(tmp_path / "target") == []
    assert between(site.remote, f"{place}/target", "--apply").code == 0


def test_adopting_a_tier_after_its_metadata_topic_was_created_again(site: Site) -> None:
    copied(site)
    mine = body(site.remote)
    new = "2QZ5FAXaQrqgUzsReWnweA"
    for file in site.metadata.glob("*/partition.metadata"):
        file.write_text(f"version: 0\ntopic_id: {new}\n")
    assert tierctl(*site.command("sweep", "--apply")).code == 4
    assert tierctl(*site.command("sweep", "--adopt-tier")).code == 0
    assert body(site.remote) == mine, "a plan changes nothing"
    assert tierctl(*site.command("delete", "--adopt-tier", "--apply")).code == 0
    assert body(site.remote) == mine | {"metadata_topic_id": new}
    for name in (*MUTATING, *READING):
        assert tierctl(*site.command(name)).code == 0, name


def test_an_identity_that_nobody_can_read_is_refused(site: Site) -> None:
    copied(site)
    tier = open_tier(TierSpec(site.remote))
    for damage in (
        b"",
        b"[]",
        b'{"tier_identity": 2}',
        b'{"tier_identity": 1, "cluster_id": 5}',
        b'{"tier_identity": 1, "cluster_id": "c", "metadata_topic_id": "bad", "layout": "kafka"}',
        b"[" * 4096,
        b"x" * 9999,
    ):
        tier.store.put_all({IDENTITY: damage})
        for name in ("copy", "fetch"):
            ran = tierctl(*site.command(name))
            assert ran.code == 7, ran.err
            assert IDENTITY in ran.err


def test_a_tier_in_layout_aiven_has_it_where_its_keys_begin(site: Site, place: str) -> None:
    if place.startswith("file:"):
        Path(site.remote[7:]).mkdir(parents=True)
    prefix = ("--override", "rsm.config.key.prefix=raw-")
    copy = ("copy", "--layout", "aiven", "--apply")
    assert tierctl(*site.command(*copy, *prefix)).code == 0
    stored = keys(site.remote)
    assert "raw-.tierctl-identity" in stored
    assert {key for key in stored if key.startswith(".")} == set()
    ran = tierctl(*site.command("copy", "--layout", "kafka"))
    assert ran.code == 2
    assert "has layout aiven" in ran.err


ELSEWHERE = TopicIdPartition(OTHER_ID, "bills", 3)
STATES = {"finished": (S.COPY_SEGMENT_FINISHED,), "copying": ()}
STATES["deleting"] = (S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
REFUSED = "refused"


class SegmentsInWords:
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
    world = SegmentsInWords()
    segments = world.add(deleted, PARTITION)
    world.add(others, PARTITION)
    world.add(elsewhere, ELSEWHERE)
    if expected == REFUSED:
        with pytest.raises(RemoteTierMissing, match=r"looked for memory:kafka-tiered-storage/.*\.log"):
            why_not_deletable(segments, world.context())
    else:
        errors = why_not_deletable(segments, world.context())
        assert set(errors) == {segments[int(at)].segment_id for at in expected}
        assert all(isinstance(error, RemoteResourceNotFound) for error in errors.values())
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
    world = SegmentsInWords()
    world.add(others, PARTITION)
    world.add(elsewhere, ELSEWHERE)
    if good:
        require_known_tier({PARTITION}, world.context())
    else:
        with pytest.raises(RemoteTierMissing, match="looked for"):
            require_known_tier({PARTITION}, world.context())
        require_known_tier({PARTITION}, world.context(allow_missing_objects=True))


def test_it_costs_one_listing_and_a_few_looks_more() -> None:
    world = SegmentsInWords()
    segments = world.add(["finished there"] * 20, PARTITION)
    why_not_deletable(segments, world.context())
    assert world.calls == ["sizes_bytes"]
    resumed = SegmentsInWords()
    segments = resumed.add(["deleting gone"] * 20, PARTITION)
    for number in range(30):
        resumed.add(["finished gone"], TopicIdPartition(OTHER_ID, "bills", number))
    with pytest.raises(RemoteTierMissing):
        why_not_deletable(segments, resumed.context())
    assert resumed.calls.count("sizes_bytes") == 16


def test_a_store_that_fails_is_no_wrong_tier() -> None:
    world = SegmentsInWords()
    segments = world.add(["finished there", "finished there"], PARTITION)
    world.storage.failing.errors = [RemoteStorageError("503")]
    errors = why_not_deletable(segments, world.context())
    assert [error.message for error in errors.values()] == ["503", "503"]


def test_a_part_of_the_tier_that_is_hidden_from_this_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    segment, tier = metadata_of(), MemoryStorage()
    tier.copy_log_segment_data(segment, data_in(tmp_path_factory.mktemp("source")))
    refused = AuthenticationError("no")
    tier.failing.errors = [refused]
    assert has_objects_of_any(tier, [segment, segment])
    tier.failing.errors = [refused, refused]
    with pytest.raises(AuthenticationError):
        has_objects_of_any(tier, [segment, segment])


def test_a_tier_without_identity_is_recognised_by_its_objects(site: Site, place: str, tmp_path: Path) -> None:
    """The tier was written by brokers."""
    copied(site)
    other = another(site, tmp_path / "other-metadata", place)
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


@pytest.mark.parametrize(
    ("place", "layout", "command"),
    [
        ("folder", "kafka", "delete"),
        ("folder", "kafka", "sweep"),
        ("folder", "aiven", "delete"),
        ("s3", "kafka", "sweep"),
    ],
    indirect=["place"],
)
def test_deletions_are_resumed_only_in_the_tier_that_they_emptied(
    layout: str, command: str, site: Site, place: str
) -> None:
    """No object is left by which the tier could be recognised, and its brokers wrote no identity.

    The identity that the deletion wrote also states the layout, which the command does not name.
    """
    tierctl(*site.command("copy", "--layout", layout, "--apply")).ok()
    open_tier(TierSpec(site.remote)).store.delete([IDENTITY])
    topics = site.logs / "configs"
    topics.write_text("bills.retention.ms=0\n")
    if command == "delete":
        assert tierctl(*site.command("delete", *marking(site.metadata, "bills"), "--apply")).code == 0
    assert IDENTITY not in keys(site.remote)
    _stop_before_the_events(command, site)
    assert keys(site.remote) == [IDENTITY]
    before = states(site.metadata)
    assert {found[1] for found in before if isinstance(found, tuple)} == {S.DELETE_SEGMENT_STARTED}

    typo = site.at(f"{place}/typo")
    if place.startswith("file:"):
        (Path(typo.remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
    named = ("--layout", "kafka")
    for apply in ((), ("--apply",)):
        ran = tierctl(*typo.command(command, *named, *apply))
        assert (ran.code, ran.out, states(site.metadata)) == (5, "", before), ran.err
        assert "neither an identity object nor an object of a segment" in ran.err
    anyway = (*named, "--allow-missing-objects")
    assert tierctl(*typo.command(command, *anyway)).code == 0
    assert tierctl(*site.command(command, "--apply")).code == 0
    assert not any(isinstance(found, tuple) for found in states(site.metadata))


def _stop_before_the_events(command: str, site: Site) -> None:
    """Run the command until it has deleted all objects, and stop it before it publishes that."""
    label = {"delete": "delete.segment_finished.publish", "sweep": "sweep.finished.publish"}[command]

    def stop(at: str, moment: str) -> None:
        if (at, moment) == (label, "before"):
            raise KeyboardInterrupt

    with observed(stop):
        while any(key != IDENTITY for key in keys(site.remote)):
            ran = tierctl(*site.command(command, "--apply"))
            assert ran.code == 130, ran.err


def test_an_empty_tier_without_segments_is_noted(site: Site) -> None:
    """The run can't know whether the name is mistyped, and no data can be lost."""
    if site.remote.startswith("file:"):
        (Path(site.remote[7:]) / "kafka-tiered-storage").mkdir(parents=True)
    for name in ("sweep", "verify"):
        ran = tierctl(*site.command(name))
        assert (ran.code, "has no object: is --remote" in ran.err) == (0, True), ran.err
    assert "has no object" not in tierctl(*site.command("copy", "--layout", "kafka")).err
