"""`verify --plan-out` plans repairs in both layouts, `apply` carries them out, and verify finds nothing."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, Uuid
from tierctl.wire.metadata.values import decode

from tests.apply.repairs import (
    CLICKS,
    OLD_DAYS,
    OTHER,
    REPAIRABLE,
    UNREPAIRED,
    Repairable,
    Unrepaired,
    a_day_passes,
    age,
    ago_ms,
    copy_objects,
    lost_finished,
    rename_segment,
)
from tests.cli.shell import Ran, tierctl
from tests.commands.stopped import digests
from tests.metadata.topics import topic_in
from tests.read.tier import metadata_values
from tests.support.faults import flip_bit
from tests.verify.cases import S, update
from tests.verify.tiers import Spoilt

Writable = Callable[[str], Path]


def where(tier: Spoilt) -> tuple[object, ...]:
    state = tier.remote.parent / "state"
    state.mkdir(exist_ok=True)
    return (
        *("--metadata", tier.metadata, "--remote", tier.remote),
        *("--log-dir", tier.metadata, "--state-dir", state),
    )


def problems(ran: Ran) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ran.lines]
    return [finding for finding in found if finding["severity"] != "info"]


def planned(tier: Spoilt, *more: object, seen_before: bool = True) -> tuple[Path, Ran]:
    """Run verify twice, 25 hours apart; return the plan of the second run."""
    plan = tier.remote.parent / "plan.json"
    verify = ("verify", *where(tier), "--plan-out", plan, "--output", "jsonl", *more)
    if seen_before:
        tierctl(*verify)
        a_day_passes(tier.remote.parent / "state")
    return plan, tierctl(*verify)


def steps(plan: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plan.read_text())["steps"]
    return found


def served(tier: Spoilt) -> list[tuple[int, int]]:
    return [
        (segment.start_offset, segment.end_offset)
        for segment in tier.segments(CLICKS)
        if segment.state == "COPY_SEGMENT_FINISHED"
    ]


@pytest.mark.parametrize("case", REPAIRABLE.values(), ids=REPAIRABLE)
def test_what_is_found_is_repaired(case: Repairable, tier: Spoilt) -> None:
    case.damage(tier)
    before = served(tier)
    plan, found = planned(tier)
    assert {finding["check"] for finding in problems(found)} == case.kinds, found.out
    own = [(step["action"], step["reason"]) for step in steps(plan)]
    assert {(action, reason) for action, reason in own if not _is_of(action, reason, case)} == set(), own
    assert all(any(_matches(each, wanted) for each in own) for wanted in case.steps), (own, found.err)
    ran = tierctl("apply", plan, *where(tier), "--apply", "-o", "json").ok()
    assert {outcome["status"] for outcome in ran.json["outcomes"]} == {"done"}
    plan, again = planned(tier, seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out + again.err
    assert len(served(tier)) == len(before) + case.left


def _matches(own: tuple[str, str], wanted: tuple[str, str]) -> bool:
    return own[0] == wanted[0] and wanted[1] in own[1]


def _is_of(action: str, reason: str, case: Repairable) -> bool:
    return any(_matches((action, reason), wanted) for wanted in case.steps)


@pytest.mark.parametrize("case", UNREPAIRED.values(), ids=UNREPAIRED)
def test_what_has_no_safe_repair_is_left_with_the_reason(case: Unrepaired, tier: Spoilt) -> None:
    case.damage(tier)
    objects = digests(tier.remote)
    plan, found = planned(tier, *case.options)
    assert steps(plan) == [], found.err
    assert case.says in found.err
    assert case.code in {None, found.code}
    assert tierctl("apply", plan, *where(tier), "--apply").code == 0
    assert digests(tier.remote) == objects


def left_alone(tier: Spoilt, says: str, *more: object, seen_before: bool = False) -> Ran:
    """Check that verify plans no step, and says why."""
    plan, found = planned(tier, *more, seen_before=seen_before)
    assert (steps(plan), says in found.err) == ([], True), found.err
    return found


def test_an_orphan_is_deleted_when_it_was_seen_twice(tier: Spoilt) -> None:
    copy_objects(tier)
    left_alone(tier, "first seen at")
    # The second time is no day later, and nothing was seen as of --now.
    left_alone(tier, "first seen at")
    planned(tier, "--now", ago_ms(25 / 24), seen_before=False)
    left_alone(tier, "first seen at")


def test_a_sighting_before_the_orphan_was_written_is_none(tier: Spoilt) -> None:
    """The clock of the first run was wrong, as after a start without network."""
    copy_objects(tier)
    planned(tier, seen_before=False)
    a_day_passes(tier.remote.parent / "state", hours=(OLD_DAYS + 1) * 24)
    left_alone(tier, "first seen at")
    a_day_passes(tier.remote.parent / "state")
    plan, found = planned(tier, seen_before=False)
    assert len(steps(plan)) == 1, found.err


def test_an_orphan_that_was_gone_meanwhile_must_be_seen_twice_again(tier: Spoilt) -> None:
    again = copy_objects(tier)
    # Another orphan of the partition is not deleted.
    stays = tier.object(replace(again, segment_id=Uuid("BAAAAAAAAAAAAAAAAAAAAQ")), ".log")
    stays.write_bytes(bytes(8) + b"stays")
    planned(tier)
    _objects_gone(tier)
    planned(tier, seen_before=False)
    copy_objects(tier)
    left_alone(tier, "first seen at")


def test_a_copy_that_may_be_the_only_one_is_repaired_and_not_cleaned(tier: Spoilt, tmp_path: Path) -> None:
    lost_finished(1)(tier)
    configs = tmp_path / "topics.properties"
    configs.write_text(f"{CLICKS}.remote.storage.enable=true\n")
    ran = tierctl("status", *where(tier))
    assert "next: tierctl verify --plan-out" in ran.summary, ran.summary
    objects = {path for path in tier.remote.rglob("*") if path.is_file()}
    ran = tierctl("copy", *where(tier), "--topic-configs", configs, "--clean-dangling", "--apply")
    assert (ran.code, "verify --plan-out plans to finish it" in ran.err) == (0, True), ran.err
    assert {path for path in tier.remote.rglob("*") if path.is_file()} >= objects


def test_without_the_log_no_object_is_judged(tier: Spoilt) -> None:
    lost_finished(1)(tier)
    plan = tier.remote.parent / "plan.json"
    options = ("--metadata", tier.metadata, "--remote", tier.remote, "--plan-out", plan)
    ran = tierctl("verify", *options)
    assert (steps(plan), "name the log directories of all replicas" in ran.err) == ([], True), ran.err


def test_without_a_state_directory_no_orphan_is_deleted(tier: Spoilt) -> None:
    copy_objects(tier)
    plan = tier.remote.parent / "plan.json"
    where_ = ("--metadata", tier.metadata, "--remote", tier.remote, "--log-dir", tier.metadata)
    ran = tierctl("verify", *where_, "--plan-out", plan)
    assert (steps(plan), "give --state-dir" in ran.err) == ([], True), ran.err


GONE = Uuid("GAAAAAAAAAAAAAAAAAAAAQ")


def _left_by_a_deleted_topic(tier: Spoilt) -> Path:
    """Make a world with objects of a topic that neither the metadata nor a log directory has."""
    segment = tier.segments(CLICKS)[0]
    left = tier.copy_objects(segment, replace(segment, topic="gone", topic_id=GONE))
    age(left)
    return left[0].parent


def test_what_a_deleted_topic_left_is_deleted_with_the_evidence(tier: Spoilt) -> None:
    folder = _left_by_a_deleted_topic(tier)
    plan, found = planned(tier, "--all-log-dirs")
    assert [(step["topic_id"], step["reason"]) for step in steps(plan)] == [
        (GONE, "orphan: its topic is deleted")
    ], found.err
    without = tierctl("apply", plan, *where(tier), "--apply", "-o", "json")
    assert (without.json["outcomes"], "not known to be deleted" in without.err) == ([], True), without.err
    assert list(folder.iterdir())
    ran = tierctl("apply", plan, *where(tier), "--all-log-dirs", "--apply", "-o", "json")
    assert (ran.code, [each["status"] for each in ran.json["outcomes"]]) == (0, ["done"]), ran.err
    assert not folder.exists() or not list(folder.iterdir())
    plan, again = planned(tier, "--all-log-dirs", seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out + again.err


@pytest.mark.parametrize("more", [(), ("--partition", 0)], ids=["all", "not the busy one"])
def test_the_topics_of_another_cluster_in_the_same_place_are_left(
    more: tuple[object, ...], tier: Spoilt
) -> None:
    """Its brokers go on to write there; one of its topics got no segment for days."""
    idle = _left_by_a_deleted_topic(tier)
    busy = shutil.copytree(idle, idle.with_name(f"busy-1-H{GONE[1:]}"))
    age(list(busy.iterdir()), days=2)
    left_alone(tier, "another cluster may have its tier here", "--all-log-dirs", *more, seen_before=True)
    age(list(busy.iterdir()))
    plan, found = planned(tier, "--all-log-dirs", *more)
    assert len(steps(plan)) == 2 - len(more) // 2, found.err
    age(list(busy.iterdir()), days=2)
    ran = tierctl("apply", plan, *where(tier), "--all-log-dirs", "--apply", "-o", "json")
    assert (ran.code, ran.json["outcomes"]) == (ExitCode.REFUSED, []), ran.err
    shutil.rmtree(busy)
    busy.symlink_to(idle.with_name("elsewhere"))
    left_alone(tier, f"{busy.name}, which can't be read (", "--all-log-dirs", *more, seen_before=True)


@pytest.mark.parametrize("is_there", [False, True], ids=["no evidence", "a folder"])
def test_what_a_topic_left_stays_while_the_topic_may_exist(is_there: bool, tier: Spoilt) -> None:
    folder = _left_by_a_deleted_topic(tier)
    more: tuple[object, ...] = ()
    if is_there:
        shutil.copytree(tier.metadata / f"{CLICKS}-0", tier.metadata / "gone-0")
        (tier.metadata / "gone-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {GONE}\n")
        more = ("--all-log-dirs",)
    plan, found = planned(tier, *more)
    assert [step for step in steps(plan) if step["topic_id"] == GONE and "deleted" in step["reason"]] == []
    assert is_there or "its topic is not known to be deleted: no cluster was asked" in found.err, found.err
    assert list(folder.iterdir())


def test_the_objects_of_a_tier_whose_prefix_is_longer_are_left(writable: Writable) -> None:
    """With key.prefix=prod, the topics of the cluster with key.prefix=prod-eu- seem to be deleted ones."""
    tier = Spoilt(writable("aiven-plain/broker-logs"), writable("aiven-plain/bucket"))
    (own,) = (tier.remote / "tier").glob("audit-*")
    own_id = own.name.removeprefix("audit-")
    own = own.rename(tier.remote / f"prod{own.name}")
    other = shutil.copytree(own, tier.remote / f"prod-eu-audit-{GONE}")
    for manifest in other.rglob("*.rsm-manifest"):
        manifest.write_text(manifest.read_text().replace(own_id, GONE))
    age([path for path in other.rglob("*.*") if path.is_file()])
    config = tier.remote.parent / "server.properties"
    config.write_text("rsm.config.key.prefix=prod\n")
    given = ("--layout", "aiven", "--broker-config", config, "--all-log-dirs")
    assert GONE in left_alone(tier, "key.prefix goes on with '-eu-'", *given, seen_before=True).out


@pytest.mark.parametrize("age", ["23h", "1h"])
def test_an_orphan_age_below_a_day_is_refused(age: str, tier: Spoilt) -> None:
    _, ran = planned(tier, "--orphan-age", age, seen_before=False)
    assert (ran.code, "--orphan-age" in ran.err) == (2, True), ran.err


def test_plan_out_needs_the_tier(tier: Spoilt) -> None:
    ran = tierctl("verify", "--metadata", tier.metadata, "--plan-out", tier.remote.parent / "plan.json")
    assert (ran.code, "--remote is missing" in ran.err) == (2, True), ran.err


def _published(tier: Spoilt) -> None:
    (begun,) = (each for each in tier.segments(CLICKS) if each.segment_id == OTHER)
    tier.append(update(begun, S.COPY_SEGMENT_FINISHED))


def _deleted(tier: Spoilt) -> None:
    (begun,) = (each for each in tier.segments(CLICKS) if each.segment_id == OTHER)
    tier.append(update(begun, S.DELETE_SEGMENT_STARTED), update(begun, S.DELETE_SEGMENT_FINISHED))


def _objects_gone(tier: Spoilt) -> None:
    for path in tier.remote.rglob(f"*{OTHER}*"):
        path.unlink()


def _object_damaged(tier: Spoilt) -> None:
    (path,) = tier.remote.rglob(f"*{OTHER}.log")
    flip_bit(path, 5000)


CHANGES = {
    "published": (lost_finished(1), _published),
    "deleted": (lost_finished(1), _deleted),
    "objects damaged": (lost_finished(1), _object_damaged),
    "orphan gone": (copy_objects, _objects_gone),
    "lost events, objects gone": (rename_segment, _objects_gone),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES)
def test_a_plan_does_nothing_once_the_tier_has_changed(
    case: tuple[Callable[[Spoilt], Any], Callable[[Spoilt], None]], tier: Spoilt
) -> None:
    damage, change = case
    damage(tier)
    plan, _ = planned(tier)
    assert len(steps(plan)) == 1
    change(tier)
    before = {path: path.read_bytes() for path in tier.remote.rglob("*.*") if path.is_file()}
    states = [(each.segment_id, each.state) for each in tier.segments(CLICKS)]
    ran = tierctl("apply", plan, *where(tier), "--apply", "-o", "json")
    # Either the steps are already done, or the plan is void.
    assert ran.code == (ExitCode.OK if change is _published else ExitCode.REFUSED), ran.err
    assert [outcome for outcome in ran.json["outcomes"] if outcome["status"] == "done"] == []
    assert "skipped" in ran.err
    assert [(each.segment_id, each.state) for each in tier.segments(CLICKS)] == states
    assert {path: path.read_bytes() for path in tier.remote.rglob("*.*") if path.is_file()} == before


TOPIC = "audit"


@pytest.fixture
def plugin_tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("aiven-encrypted/broker-logs"), writable("aiven-encrypted/bucket"))


@pytest.fixture
def keys(capture: Callable[[str], Path]) -> tuple[object, ...]:
    found = capture("aiven-encrypted").glob("keys/private*")
    return tuple(word for key in found for word in ("--aiven-private-key", key))


def objects_of(plugin_tier: Spoilt, segment: RemoteLogSegmentMetadata) -> list[Path]:
    return sorted(plugin_tier.remote.rglob(f"*-{segment.segment_id}.*"))


def drop_events(plugin_tier: Spoilt, is_lost: Callable[[MetadataEvent], bool]) -> None:
    """Write the metadata topic anew without some of its events."""
    events = [
        (partition, value)
        for partition, _, value in metadata_values(plugin_tier.metadata)
        if value is not None and not is_lost(decode(value))
    ]
    for path in plugin_tier.metadata.glob("__remote_log_metadata-*/*"):
        if path.name != "partition.metadata":
            path.unlink()
    topic = topic_in(plugin_tier.metadata, writable=True)
    topic.append(events)
    topic.close()


def _lost_events(plugin_tier: Spoilt) -> None:
    lost = plugin_tier.segments(TOPIC)[2]
    drop_events(plugin_tier, lambda event: getattr(event, "segment_id", None) == lost.segment_id)
    age(objects_of(plugin_tier, lost))


def _copied_twice(plugin_tier: Spoilt) -> None:
    """Put a segment's objects under another segment id, too."""
    segment = plugin_tier.segments(TOPIC)[1]
    for path in objects_of(plugin_tier, segment):
        other = path.with_name(path.name.replace(segment.segment_id, OTHER))
        shutil.copyfile(path, other)
        if path.suffix == ".rsm-manifest":
            text = other.read_text()
            assert segment.segment_id in text
            other.write_text(text.replace(segment.segment_id, OTHER))
    age(objects_of(plugin_tier, replace(segment, segment_id=OTHER)))


CASES = {
    "lost events": (_lost_events, {"orphan"}, "publish_segment"),
    "orphan of a copied segment": (_copied_twice, {"orphan"}, "delete_segment"),
}
"""Damage, the kinds of findings that it causes, and the action that repairs it."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_found_with_the_plugin_is_repaired(
    case: tuple[Callable[[Spoilt], None], set[str], str], plugin_tier: Spoilt, keys: tuple[object, ...]
) -> None:
    damage, kinds, action = case
    finished = len(plugin_tier.segments(TOPIC))
    damage(plugin_tier)
    plan, found = planned(plugin_tier, *keys)
    assert {finding["check"] for finding in problems(found)} == kinds, found.out
    assert [step["action"] for step in steps(plan)] == [action], found.err
    ran = tierctl("apply", plan, *where(plugin_tier), *keys, "--apply", "-o", "json")
    assert (ran.code, [each["status"] for each in ran.json["outcomes"]]) == (0, ["done"]), ran.err
    plan, again = planned(plugin_tier, *keys, seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out + again.err
    left = plugin_tier.segments(TOPIC)
    assert len(left) == finished
    assert {each.state for each in left} == {S.COPY_SEGMENT_FINISHED}
    assert len(list(plugin_tier.remote.rglob(f"*{TOPIC}*/0/*"))) == 3 * len(left)
