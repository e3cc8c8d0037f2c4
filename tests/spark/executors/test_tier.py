"""Executors list a tier and derive metadata from its objects exactly as this process does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets
from tierctl.model import ObjectPart, ObjectSet
from tierctl.model.choices import EngineName
from tierctl.model.progress import SilentProgress
from tierctl.spark.executors import examined as spark_tier
from tierctl.spark.executors.transport import Executors
from tierctl.storage.stores.base import RemoteObject

from tests.spark.executors.bulk import assert_same, within
from tests.spark.worlds import Capture
from tests.storage.test_object_sets import AIVEN_DAMAGE, KAFKA_DAMAGE

pytestmark = pytest.mark.usefixtures("spark", "small_jobs")


@pytest.fixture
def small_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide small tiers into several jobs, tasks and groups."""
    monkeypatch.setattr(spark_tier, "ITEMS_PER_JOB", 9)
    monkeypatch.setattr(spark_tier, "_LEAST_US", 1)
    monkeypatch.setattr(spark_tier, "_GROUP_US_MAX", 50_000)


@dataclass(slots=True)
class Read:
    """All that a command learns from the objects of a tier, in the order of `TierSets`."""

    sets: list[ObjectSet] = field(default_factory=list)
    others: list[RemoteObject] = field(default_factory=list)
    of_partitions: list[object] = field(default_factory=list)
    lineages: list[object] = field(default_factory=list)
    snapshots: dict[object, object] = field(default_factory=dict)
    said: tuple[list[str], ...] = ()


def read(remote: Path, engine: EngineName, **more: Any) -> Read:
    progress, found = SilentProgress(), Read()
    request = Request(remote=str(remote), engine=engine, master="local[2]", **more)
    with Resources(request=request, progress=progress) as resources:
        tier = TierSets.of(resources)
        listed = tier.listed(others=found.others.append)
        # The contract states no order of the other objects.
        found.others.sort(key=lambda each: each.key)
        partitions = {each.partition.key for each in listed}
        found.of_partitions = list(tier.listed_of(sorted(partitions)[1:]))
        found.sets = tier.derived(listed)
        known = [each.segment for each in found.sets if each.segment is not None]
        again = tier.derived(listed, finished=known[1:], with_lineages=True)
        found.lineages = [each.lineage for each in again]
        last = {segment.topic_id_partition: segment for segment in known}
        found.snapshots = dict(tier.producer_snapshots(list(last.values())))
    found.said = (progress.notes, progress.lines)
    return found


def both(remote: Path, **more: Any) -> Read:
    here, there = (read(remote, engine, **more) for engine in (EngineName.LOCAL, EngineName.SPARK))
    assert there == here
    return here


@pytest.mark.parametrize(
    ("place", "damage"),
    [("untiered-broker/tiered-remote", KAFKA_DAMAGE), ("aiven-plain/bucket", AIVEN_DAMAGE)],
    ids=["kafka", "aiven"],
)
def test_damage(place: str, damage: dict[str, Any], writable: Callable[[str], Path]) -> None:
    """Every kind of damage, each of another segment, and files of nobody."""
    remote = writable(place)
    victims = sorted(remote.rglob("*.log"))
    for victim, (suffix, change, _) in zip(victims, damage.values(), strict=False):
        change(victim.with_name(victim.name.removesuffix(".log") + suffix))
    notes = victims[-1].parent / "notes.txt"
    notes.write_text("mine")
    (notes.parent.parent / "also-mine").write_text("mine")
    (notes.parent / "link").symlink_to(notes)
    found = both(remote)
    assert sum(each.segment is None for each in found.sets) == min(len(damage), len(victims))
    others = {Path(each.key).name for each in found.others if not each.key.endswith((".zst", ".tmp"))}
    assert others == {"notes.txt", "also-mine", "link"}


def test_sets_with_an_unreadable_object_are_the_same_on_both_engines(
    writable: Callable[[str], Path],
) -> None:
    remote = writable("untiered-broker/tiered-remote")
    for path in sorted(remote.rglob("*.snapshot"))[2:5]:
        path.unlink()
        path.mkdir()
    assert sum(each.segment is None for each in both(remote).sets) == 3


def test_the_work_is_divided(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """No job has more items than may be in memory, and each item is read once."""
    jobs: list[list[int]] = []
    run = Executors.run

    def counted(self: Executors, function: Any, inputs: Any, **more: Any) -> Iterator[Any]:
        if getattr(function, "func", None) is spark_tier._read_group:
            jobs.append([len(group) for group in inputs])
        return run(self, function, inputs, **more)

    monkeypatch.setattr(Executors, "run", counted)
    remote = within(capture, "tiered-cluster/before-remote")
    request = Request(remote=str(remote), engine=EngineName.SPARK, master="local[2]")
    with Resources(request=request, progress=SilentProgress()) as resources:
        tier = TierSets.of(resources)
        listed = tier.listed()
        # Segments with large logs are read in smaller groups.
        assert all(each.sizes_bytes[ObjectPart.LOG] for each in listed)
        tier.derived(listed)
    assert sum(map(sum, jobs)) == len(listed) == 36
    assert len(jobs) == 4
    assert max(map(sum, jobs)) == 9
    assert all(len(groups) > 1 for groups in jobs)


def test_a_tier_without_an_object_of_a_segment(tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    said = assert_same("rebuild", "--metadata", tmp_path / "new", "--remote", tmp_path)
    assert (said.code, "no object of a segment" in said.err) == (10, True), said.err
