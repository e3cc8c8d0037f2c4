"""`copy --from-remote` copies every byte and record of a tier to another one, and no invalid segment."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tierctl.errors import CorruptInputError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.copy import plan_copy_from_tier
from tierctl.plan.dangling import Dangling
from tierctl.plan.steps import Plan
from tierctl.state.lineage import Lineage
from tierctl.state.tier_state import Quarantined, TierState
from tierctl.storage.index_cache import spool_folder

from tests.apply.worlds import World, objects_of, segments_of
from tests.cli.shell import tierctl
from tests.metadata.topics import topic_in
from tests.plan.tier import DAY_MS, PARTITION, advance, segment, segment_id, tier
from tests.plan.tier import NOW_MS as TIER_NOW_MS
from tests.support.faults import flip_bit

S = RemoteLogSegmentState


@pytest.fixture
def target(tmp_path: Path) -> World:
    """An empty target; its metadata topic has another number of partitions."""
    world = World(tmp_path / "m", tmp_path / "r", tmp_path / "logs", tmp_path / "s")
    topic_in(world.metadata, writable=True, partition_count=7).close()
    return world


def between(source: World, target: World, *more: object) -> tuple[object, ...]:
    places = ("--metadata", source.metadata, "--from-remote", source.remote)
    return ("copy", *places, "--to-metadata", target.metadata, "--remote", target.remote, "-o", "json", *more)


def records_of(world: World, *more: object) -> list[str]:
    ran = tierctl("fetch", *world.where, "--binary", "sha256", *more).ok()
    return ran.out.splitlines()


def test_a_whole_tier(cluster: World, target: World) -> None:
    objects, segments = objects_of(cluster.remote), segments_of(cluster.metadata)
    planned = tierctl(*between(cluster, target, "--detailed-exitcode"))
    assert (planned.code, len(planned.json["steps"])) == (9, len(segments))
    assert not target.remote.exists()

    copied = tierctl(*between(cluster, target, "--apply")).ok()
    assert {outcome["status"] for outcome in copied.json["outcomes"]} == {"done"}
    assert objects_of(target.remote) == objects
    assert segments_of(target.metadata) == segments
    ids = {s.segment_id for s in cluster.segments()}
    assert not ids & {s.segment_id for s in target.segments()}
    assert {s.broker_id for s in target.segments()} == {-1}
    for isolation in ("read_uncommitted", "read_committed"):
        wanted = records_of(cluster, "--isolation", isolation)
        assert len(wanted) > 10_000
        assert records_of(target, "--isolation", isolation) == wanted
    verified = tierctl("verify", *target.where, "--deep", "--log-dir", cluster.logs, "-o", "json")
    assert (verified.code, verified.json) == (0, [])

    again = tierctl(*between(cluster, target, "--apply"))
    assert (again.code, again.json["steps"], again.json["outcomes"]) == (0, [], [])


def test_of_an_unclean_election_only_the_lineage(capture: Callable[[str], Path], target: World) -> None:
    root = capture("unclean-leader") / "before"
    source = World(root / "broker-1", root / "remote", root / "broker-1", root)
    copied = tierctl(*between(source, target, "--apply")).ok()
    assert len(copied.json["steps"]) == len(segments_of(source.metadata)) - 10
    assert records_of(target) == records_of(source)
    assert tierctl(*between(source, target)).json["steps"] == []
    assert tierctl("verify", *target.where, "--deep").code == 0


def spoil_log(world: World, found: RemoteLogSegmentMetadata, suffix: str = ".log", at: int = 5000) -> None:
    """Flip a bit of one object."""
    (path,) = world.remote.rglob(f"*{found.segment_id}{suffix}")
    flip_bit(path, at)


def gone(world: World, found: RemoteLogSegmentMetadata, suffix: str) -> None:
    next(world.remote.rglob(f"*{found.segment_id}{suffix}")).unlink()


class Unsound(NamedTuple):
    """One way to damage a segment of the source, and the expected error of its copy."""

    spoil: Callable[[World, RemoteLogSegmentMetadata], None]
    code: int
    says: str


UNSOUND = {
    "record": Unsound(spoil_log, 7, "CRC-32C"),
    "index": Unsound(lambda w, s: spoil_log(w, s, ".index", 15), 7, "offset index"),
    "index gone": Unsound(lambda w, s: gone(w, s, ".snapshot"), 7, "no producer-snapshot"),
    "log gone": Unsound(lambda w, s: gone(w, s, ".log"), 10, "No such file"),
}


@pytest.mark.parametrize("name", sorted(UNSOUND))
def test_what_is_not_sound_ends_its_partition(name: str, cluster: World, target: World) -> None:
    spoil, code, says = UNSOUND[name]
    own = [s for s in cluster.segments() if (s.topic, s.partition) == ("clicks", 0)]
    bad = sorted(own, key=lambda s: s.start_offset)[2]
    spoil(cluster, bad)
    ran = tierctl(*between(cluster, target, "--topic", "clicks", "--partition", "0", "--apply"))
    assert ran.code == (7 if code == 7 else 3)
    statuses = {o["start_offset"]: o["status"] for o in ran.json["outcomes"]}
    before = [s.start_offset for s in own if s.start_offset < bad.start_offset]
    assert [start for start, status in statuses.items() if status == "done"] == sorted(before)
    assert statuses[bad.start_offset] == "failed"
    assert says in ran.err
    assert sorted(s.start_offset for s in target.segments()) == sorted(before)
    only = tierctl(*between(cluster, target, "--topic", "clicks", "--partition", "0", "--apply"))
    assert only.code == code, "the bad one fails alone now, with its own exit code"


@pytest.mark.parametrize("has_topic", [True, False])
def test_a_kept_plan_is_carried_out(cluster: World, target: World, has_topic: bool) -> None:
    if not has_topic:
        shutil.rmtree(target.metadata)
        target.metadata.mkdir()
    kept = cluster.metadata.parent / "plan.json"
    assert tierctl(*between(cluster, target, "--plan-out", kept)).code == 0
    refused = tierctl("apply", kept, "--metadata", target.metadata, "--remote", target.remote)
    assert (refused.code, "--from-remote" in refused.err) == (2, True)
    places = ("--metadata", cluster.metadata, "--from-remote", cluster.remote)
    where = (*places, "--to-metadata", target.metadata, "--remote", target.remote)
    other = cluster.clone(cluster.metadata.parent / "other")
    for path in other.metadata.glob("__remote_log_metadata-*/partition.metadata"):
        path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    foreign = ("--metadata", other.metadata, "--from-remote", cluster.remote, *where[4:])
    ran = tierctl("apply", kept, *foreign, "--apply")
    assert (ran.code, "the plan's source.metadata_topic_id: expected" in ran.err) == (4, True), ran.err
    ran = tierctl("apply", kept, *where, "-o", "json", "--apply").ok()
    assert objects_of(target.remote) == objects_of(cluster.remote)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--from-remote /a --metadata /m --remote /b", "--to-metadata is missing"),
        ("--from-remote /a --metadata /m --to-metadata /m/ --remote /b", "same topic"),
        ("--from-remote /a --metadata /m --to-metadata /n --remote file:///a/", "same tier"),
        ("--from-remote s3://a/ --metadata /m --to-metadata /n --remote s3://a", "same tier"),
        ("--from-remote /a --metadata /m --to-metadata /n --remote /a/b", "one is in the other"),
        ("--from-remote s3://a/b --metadata /m --to-metadata /n --remote s3://a", "one is in the other"),
        ("--from-remote /a --to-metadata /n --remote /b --log-dir /l", "exclude each other"),
        ("--to-metadata /n --log-dir /l", "needs --from-remote"),
    ],
)
def test_options_that_make_no_sense(options: str, says: str) -> None:
    ran = tierctl("copy", *options.split())
    assert (ran.code, says in ran.err) == (2, True), ran.err


LINEAGE = {PARTITION.key: Lineage([(0, 0)])}


def brief(plan: Plan) -> tuple[list[int], str]:
    """Return the numbers of the segments that are copied, and why others are not."""
    copied = [Uuid(str(step.details["source_segment_id"])) for step in plan.steps]
    return [int.from_bytes(each.bytes) for each in copied], " ".join(skip.reason for skip in plan.skipped)


def advanced(
    state: TierState, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
) -> TierState:
    advance(state, metadata, *states)
    return state


def not_understood(state: TierState) -> TierState:
    error = CorruptInputError("record", expected="an event", found="none")
    state.quarantined.append(Quarantined(0, 5, error))
    return state


ONE, TWO, THREE = segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)
OWN = segment(7, 0, 9), segment(8, 10, 19), segment(9, 20, 29)
"""The same segments in the target."""
NOTHING, WHOLE, FIRST = TierState(read={0: 0}), tier(ONE, TWO, THREE), tier(OWN[0])
UNFINISHED = advanced(tier(ONE, TWO, segment(5, 10, 19)), segment(6, 20, 29))
DELETED = advanced(tier(*OWN[:2]), OWN[0], S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
PLANS = {
    "all": (WHOLE, NOTHING, [1, 2, 3], ""),
    "nothing": (WHOLE, tier(*OWN), [], ""),
    "what the target lacks": (WHOLE, FIRST, [2, 3], ""),
    "not what is not finished or not read": (UNFINISHED, NOTHING, [1, 5], ""),
    "not what retention deleted in the target": (WHOLE, DELETED, [3], ""),
    "hole": (tier(ONE, THREE), NOTHING, [1], "the source has no segment for offsets 10 to 19"),
    "hole before it": (tier(THREE), FIRST, [], "the target ends at offset 9, and the source begins at 20"),
    "later leader": (WHOLE, tier(segment(7, 0, 9, (3, 0))), [], "in the target: the log is behind"),
    "source": (not_understood(tier(ONE, TWO)), FIRST, [], "in the source: metadata partition 0 has records"),
    "target": (WHOLE, not_understood(tier(OWN[0])), [], "in the target: metadata partition 0 has records"),
}
"""A source and a target, the segments that are copied, and how the reason begins why others are not."""


@pytest.mark.parametrize("what", PLANS)
def test_what_is_copied(what: str) -> None:
    source, target, expected, reason = PLANS[what]
    copied, found = brief(plan_copy_from_tier(source, target, LINEAGE))
    assert (copied, bool(found)) == (expected, bool(reason))
    assert found.startswith(reason)


def test_plan_copies_no_segment_twice_whose_end_diverged() -> None:
    """Only offsets up to 14 of the second segment are in the lineage, so the target ends at offset 14."""
    both = (segment(1, 0, 9), segment(2, 10, 19), segment(3, 15, 29, (1, 15)))
    lineage = {PARTITION.key: Lineage([(0, 0), (1, 15)])}
    for target, copied in ((NOTHING, [1, 2, 3]), (tier(*OWN[:2]), [3])):
        assert brief(plan_copy_from_tier(tier(*both), target, lineage)) == (copied, "")


def test_plan_cleans_what_former_copies_left() -> None:
    there = tier(segment(7, 0, 9))
    advance(there, segment(8, 10, 19, event_timestamp_ms=TIER_NOW_MS - 2 * DAY_MS))
    dangling = Dangling(now_ms=TIER_NOW_MS)
    plan = plan_copy_from_tier(tier(ONE, TWO, THREE), there, LINEAGE, dangling=dangling)
    assert [s.segment_id for s in plan.steps if s.segment_id] == [segment_id(8)]
    assert [s.start_offset for s in plan.steps if not s.segment_id] == [10, 20]


def test_a_killed_runs_spool_goes_with_the_next(tmp_path: Path) -> None:
    abandoned = tmp_path / "tierctl-spool-x"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    (abandoned / "log").write_bytes(b"bytes")
    foreign = tmp_path / "tierctl-spool-y"
    foreign.mkdir()
    kept = [foreign]
    if os.geteuid() == 0:
        of_another_user = tmp_path / "tierctl-spool-z"
        of_another_user.mkdir()
        (of_another_user / "lock").touch()
        os.chown(of_another_user, 65534, 65534)
        kept.append(of_another_user)
    with spool_folder(tmp_path) as first, spool_folder(tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([*kept, first, second])
    assert sorted(tmp_path.iterdir()) == kept


def test_from_layout_to_layout_and_back(
    capture: Callable[[str], Path], target: World, tmp_path: Path
) -> None:
    """Copy an encrypted tier of Aiven's plugin to Kafka's layout, and to one that is not encrypted."""
    root = capture("aiven-encrypted")
    source = World(root / "broker-logs", root / "bucket", root / "broker-logs", tmp_path)
    keys = ("--aiven-private-key", f"key1={root / 'keys' / 'private.pem'}")
    back = World(tmp_path / "m2", tmp_path / "r2", tmp_path, tmp_path)
    there = tierctl(
        *between(source, target, "--from-layout", "aiven", "--layout", "kafka", *keys, "--apply")
    ).ok()
    again = tierctl(*between(target, back, "--from-layout", "kafka", "--layout", "aiven", "--apply")).ok()
    assert len(again.json["steps"]) == len(there.json["steps"]) > 10
    for isolation in ("read_uncommitted", "read_committed"):
        own = ("--isolation", isolation)
        wanted = records_of(source, "--layout", "aiven", *keys, *own)
        assert len(wanted) > 1000
        assert records_of(target, *own) == wanted
        assert records_of(back, "--layout", "aiven", *own) == wanted
    logs = ("--log-dir", source.logs, "--now", 1_800_000_000_000, "-o", "json", "--deep")
    for world, more in ((source, ("--layout", "aiven", *keys)), (target, ()), (back, ("--layout", "aiven"))):
        verified = tierctl("verify", *world.where, *logs, *more)
        assert (verified.code, verified.json) == (0, [])
    assert {path.suffix for path in back.remote.rglob("[!.]*.*")} == {".log", ".indexes", ".rsm-manifest"}
