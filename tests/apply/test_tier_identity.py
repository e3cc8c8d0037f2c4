"""The identity of a tier: written before the first copy, compared by every command that names a tier."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply import tier_check
from tierctl.errors import ExitCode
from tierctl.storage.lease import open_lease
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.apply.sites import (
    IDENTITY,
    MUTATING,
    READING,
    Site,
    Tierctl,
    another,
    body,
    copied,
    in_each_place,
    keys,
)
from tests.apply.test_recognised_tiers import states
from tests.apply.worlds import World
from tests.cli.shell import Ran
from tests.metadata.topics import topic_in


@in_each_place
def test_it_is_written_at_the_first_copy_and_never_again(site: Site, tierctl: Tierctl) -> None:
    planned = tierctl(*site.command("copy", "--layout", "kafka", "--detailed-exitcode"))
    assert planned.code == ExitCode.PLAN_PENDING
    assert keys(site.remote) == [] if site.remote.startswith("s3:") else not Path(site.remote[7:]).exists()
    copied(site, tierctl)
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
    copied(site, tierctl)
    assert keys(site.remote) == before
    for name in READING:
        assert tierctl(*site.command(name)).code == 0
    for name in ("sweep", "delete"):
        assert tierctl(*site.command(name, "--apply")).code == 0


def test_the_copy_of_another_metadata_folder_is_refused(
    site: Site, place: str, tierctl: Tierctl, tmp_path: Path
) -> None:
    """With two metadata folders, each would report the segments of the other as leaked."""
    copied(site, tierctl)
    other = another(site, tmp_path / "other-metadata", place, tierctl)
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


@in_each_place
def test_a_tier_that_two_runs_claim_at_once_belongs_to_one(
    site: Site, tierctl: Tierctl, tmp_path: Path
) -> None:
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
def test_a_tier_in_hdfs(beginning: World, hdfs: str, tierctl: Tierctl, tmp_path: Path) -> None:
    """The folder need not exist before the first copy."""
    for name in ("metadata", "other"):
        topic_in(tmp_path / name, writable=True, partition_count=2).close()
    site = Site(tmp_path / "metadata", beginning.logs, f"{hdfs}/tier")
    copied(site, tierctl)
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


WRONG = {
    "folder": ("empty", "prefix", "above", "folder", "layout"),
    "s3": ("empty", "prefix"),
}


@pytest.mark.parametrize(
    ("place", "wrong"), [(place, wrong) for place in WRONG for wrong in WRONG[place]], indirect=["place"]
)
def test_a_wrong_tier_gives_one_error_at_plan_time(
    wrong: str, site: Site, place: str, tierctl: Tierctl
) -> None:
    """One check refuses them all: for the other cases, three commands show that they make it."""
    copied(site, tierctl)
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


def test_copying_between_tiers_inspects_both(
    site: Site, place: str, tierctl: Tierctl, tmp_path: Path
) -> None:
    copied(site, tierctl)
    other = another(site, tmp_path / "other-metadata", place, tierctl)
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


def test_adopting_a_tier_after_its_metadata_topic_was_created_again(site: Site, tierctl: Tierctl) -> None:
    copied(site, tierctl)
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


def test_an_identity_that_nobody_can_read_is_refused(site: Site, tierctl: Tierctl) -> None:
    copied(site, tierctl)
    tier = open_tier(TierSpec(site.remote))
    for damage in (
        b"",
        b"[]",
        b'{"tier_identity": 2}',
        b'{"tier_identity": 1, "cluster_id": 5}',
        b"x" * 9999,
    ):
        tier.store.put_all({IDENTITY: damage})
        for name in ("copy", "fetch"):
            ran = tierctl(*site.command(name))
            assert ran.code == 7, ran.err
            assert IDENTITY in ran.err


def test_a_tier_in_layout_aiven_has_it_where_its_keys_begin(site: Site, place: str, tierctl: Tierctl) -> None:
    if place.startswith("file:"):
        Path(site.remote[7:]).mkdir(parents=True)
    prefix = ("--override", "rsm.config.key.prefix=raw-")
    copy = ("copy", "--layout", "aiven", "--apply")
    assert tierctl(*site.command(*copy, *prefix)).code == 0
    stored = keys_of_aiven(site.remote)
    assert "raw-.tierctl-identity" in stored
    assert {key for key in stored if key.startswith(".")} == set()
    ran = tierctl(*site.command("copy", "--layout", "kafka"))
    assert ran.code == 2
    assert "has layout aiven" in ran.err


def keys_of_aiven(remote: str) -> list[str]:
    tier = open_tier(TierSpec(remote, layout="aiven"))
    return [found.key for found in tier.store.list_objects("")]
