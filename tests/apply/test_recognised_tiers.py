"""A tier without identity: it is recognised by its objects, or it is not the tier of the metadata."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.run_context import observe
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.apply.commands import marking
from tests.apply.sites import IDENTITY, MUTATING, READING, Site, Tierctl, another, copied, in_each_place, keys
from tests.apply.test_tier_check import states
from tests.metadata.topics import topic_in
from tests.plan.tier import S


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


@pytest.mark.parametrize(
    ("metadata", "remote"),
    [
        ("tiered-cluster/before", "tiered-cluster/before-remote"),
        ("aiven-plain/broker-logs", "aiven-plain/bucket"),
        ("finite-metadata/after", "finite-metadata/after-remote"),
    ],
)
def test_what_brokers_wrote_is_recognised(
    metadata: str, remote: str, capture: Callable[[str], Path], tierctl: Tierctl, tmp_path: Path
) -> None:
    def place(name: str) -> Path:
        root, _, folder = name.partition("/")
        return capture(root) / folder

    for command in (("sweep",), ("delete",), ("segments", "--sizes")):
        ran = tierctl(*command, "--metadata", place(metadata), "--remote", place(remote))
        assert ran.code in {0, 7 if "finite" in metadata else 0}, ran.err
    (tmp_path / "elsewhere" / "kafka-tiered-storage").mkdir(parents=True)
    ran = tierctl("sweep", "--metadata", place(metadata), "--remote", tmp_path / "elsewhere")
    assert ran.code == 5, ran.err
