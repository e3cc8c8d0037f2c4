"""Missing or damaged indexes are derived from the log; on captured tiers they equal those of brokers."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.checks.bytes import check_segment_bytes
from tierctl.checks.findings import FindingKind
from tierctl.commands.verify.act import derive_indexes, neighbours_of
from tierctl.errors import ExitCode, RemoteResourceNotFound
from tierctl.files import FileBytes
from tierctl.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.storage.index_cache import RemoteIndexCache, spooled
from tierctl.storage.layouts.aiven.layout import AivenSettings
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, TimeIndex

from tests.apply.repairs import REPAIRABLE, copy_objects
from tests.apply.test_repair import planned, problems, steps, where
from tests.cli.shell import Ran, tierctl
from tests.metadata.topics import manager_at
from tests.support.faults import flip_bit
from tests.verify.cases import CLICKS, LEDGER, OTHER, S, update
from tests.verify.tiers import Spoilt

I = IndexType  # noqa: E741
CAPTURES = [
    "tiered-cluster before before-remote",
    "tiered-cluster after after-remote",
    "unclean-leader before/broker-1 before/remote",
    "unclean-leader after/broker-1 after/remote",
    "untiered-broker tiered-metadata tiered-remote",
    "delete-across-epoch before before-remote",
    "delete-across-epoch after after-remote",
    "finite-metadata before before-remote",
    "finite-metadata after after-remote",
    "aiven-plain broker-logs bucket",
    "aiven-encrypted broker-logs bucket",
]


@pytest.mark.parametrize("place", CAPTURES)
def test_derived_indexes_are_those_of_the_broker(
    place: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    """Transaction indexes and producer snapshots are equal byte for byte; the others may differ.

    They differ in two known cases. A broker that restarted while the segment was active starts a new interval
    in the offset index and writes the largest timestamp so far; LogSegment.recover, and therefore tierctl,
    does not do that. If a segment was copied after the log start rose, its leader-epoch index begins at that
    log start.
    """
    name, metadata, remote = place.split()
    root = capture(name)
    keys = {"": root / "keys" / "private.pem"} if name == "aiven-encrypted" else {}
    tier = open_tier(TierSpec((root / remote).as_uri(), aiven=AivenSettings(private_keys=keys)))
    same, other = Counter[IndexType](), Counter[IndexType]()
    for part in manager_at(root / metadata).refresh():
        finished = list(part.segments.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        for segment in finished:
            for kind, (derived, stored) in _both(segment, finished, tier, tmp_path).items():
                if isinstance(derived, str):
                    assert "are not known" in derived
                    assert segment.start_offset > 0
                elif derived == stored:
                    same[kind] += 1
                else:
                    other[kind] += 1
                    _assert_explained(kind, segment, derived, stored)
    assert all(same[kind] for kind in IndexType)
    assert {I.TRANSACTION, I.PRODUCER_SNAPSHOT}.isdisjoint(other)
    assert same.total() > 5 * other.total()


def _both(
    segment: RemoteLogSegmentMetadata,
    finished: list[RemoteLogSegmentMetadata],
    tier: RemoteStorageManager,
    spool: Path,
) -> dict[IndexType, tuple[bytes | str, bytes]]:
    """Return each index as derived and as stored; check that the derived ones are valid."""
    try:
        with spooled(tier, segment, spool) as files, FileBytes(files.log) as log:
            derived = derive_indexes(segment, log, tier, neighbours_of(segment, finished))
            known = {kind: data for kind, data in derived.items() if isinstance(data, bytes)}
            assert [p for p in check_segment_bytes(segment, log, known) if p.severity == "error"] == []
            stored = files.index_bytes()
    except RemoteResourceNotFound:
        return {}
    # Some versions store no object for a transaction index without entries.
    return {kind: (derived[kind], stored[kind] or b"") for kind in IndexType}


def _assert_explained(
    kind: IndexType, segment: RemoteLogSegmentMetadata, derived: bytes, stored: bytes
) -> None:
    base = segment.start_offset
    if kind is I.OFFSET:
        extra = set(OffsetIndex.decode(derived, base)) - set(OffsetIndex.decode(stored, base))
        missing = set(OffsetIndex.decode(stored, base)) - set(OffsetIndex.decode(derived, base))
        assert (len(extra), missing) == (1, set())
    elif kind is I.TIMESTAMP:
        own, theirs = TimeIndex.decode(derived, base), TimeIndex.decode(stored, base)
        assert own.last == theirs.last
        assert len(set(own) ^ set(theirs)) <= 2
    else:
        assert kind is I.LEADER_EPOCH
        own_epochs, their_epochs = map(read_leader_epoch_checkpoint, (derived, stored))
        assert own_epochs[1:] == their_epochs[1:]
        assert own_epochs[0].start_offset < their_epochs[0].start_offset <= base


def contents(tier: Spoilt) -> dict[Path, tuple[bytes, int]]:
    found = [path for path in tier.remote.rglob("*.*") if path.is_file() and ".tierctl" not in path.name]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def with_transactions(tier: Spoilt) -> RemoteLogSegmentMetadata:
    found = [s for s in tier.segments(LEDGER) if tier.object(s, ".txnindex").exists()]
    return next(s for s in found if tier.object(s, ".txnindex").stat().st_size and s.start_offset)


def repaired(tier: Spoilt, *more: object) -> tuple[list[dict[str, Any]], Ran]:
    plan, _ = planned(tier, *more, seen_before=False)
    ran = tierctl("apply", plan, *where(tier), "--apply", "-o", "json")
    return steps(plan), ran


@pytest.mark.parametrize("damage", [Path.unlink, flip_bit], ids=["missing", "damaged"])
@pytest.mark.parametrize("kind", IndexType, ids=lambda kind: kind.value)
def test_an_index_is_stored_again_and_nothing_else_is(
    kind: IndexType, damage: Callable[[Path], None], tier: Spoilt
) -> None:
    before = contents(tier)
    path = tier.object(with_transactions(tier), INDEX_SUFFIXES[kind])
    damage(path)
    deep = ("--deep", "--topic", LEDGER)
    own, ran = repaired(tier, *deep)
    assert [(step["action"], step["indexes"]) for step in own] == [("store_indexes", [kind.value])], own
    assert (ran.code, [each["status"] for each in ran.json["outcomes"]]) == (0, ["done"]), ran.err
    after = contents(tier)
    assert {each for each in before if after.get(each) != before[each]} == {path}
    assert after[path][0] == before[path][0]
    plan, again = planned(tier, *deep, seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out


def test_epochs_that_differ_are_repaired(tier: Spoilt) -> None:
    """Readers with the same state directory, which cached the wrong index, get the repaired one."""
    segment = tier.segments(CLICKS)[1]
    stored = tier.object(segment, INDEX_SUFFIXES[I.LEADER_EPOCH])
    right, wrong = stored.read_bytes(), b"0\n1\n7 0\n"
    stored.write_bytes(wrong)
    state, remote = tier.remote.parent / "state", open_tier(TierSpec(tier.remote.as_uri()))
    assert RemoteIndexCache(state, remote).get(segment, I.LEADER_EPOCH) == wrong
    deep = ("--deep", "--topic", CLICKS)
    plan, found = planned(tier, *deep, seen_before=False)
    assert {finding["check"] for finding in problems(found)} == {"epochs_differ"}
    ran = tierctl("apply", plan, *where(tier), "--apply").ok()
    assert "stop the broker, remove remote-log-index-cache from the first of its log.dirs" in ran.err
    assert RemoteIndexCache(state, remote).get(segment, I.LEADER_EPOCH) == right
    plan, again = planned(tier, *deep, seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out


def test_every_kind_with_a_repair_is_repaired_by_a_test() -> None:
    """Those of committed offsets are repaired in tests/cli/test_offsets.py."""
    others = {kind for case in REPAIRABLE.values() for kind in case.kinds} - {"gap"}
    repaired_kinds = {str(kind) for kind in FindingKind if kind.row.repair is not None}
    of_indexes = {"missing_object", "corrupt_index", "epochs_differ"}
    assert repaired_kinds == {"unsafe_committed_offset", *others, *of_indexes}


def test_all_indexes_of_a_segment_are_derived_at_once(tier: Spoilt) -> None:
    before = contents(tier)
    segment = with_transactions(tier)
    for suffix in INDEX_SUFFIXES.values():
        tier.object(segment, suffix).unlink()
    # The listing shows it, without --deep.
    (step,), ran = repaired(tier)
    assert (ran.code, len(step["indexes"])) == (0, len(INDEX_SUFFIXES)), ran.err
    after = contents(tier)
    assert {path: data for path, (data, _) in after.items()} == {
        path: data for path, (data, _) in before.items()
    }


def _log_damaged(tier: Spoilt) -> None:
    segment = tier.segments(CLICKS)[1]
    tier.object(segment, ".index").unlink()
    flip_bit(tier.object(segment, ".log"))


def _snapshots_gone(tier: Spoilt) -> None:
    for segment in tier.segments(LEDGER)[1:3]:
        tier.object(segment, ".snapshot").unlink()


def _newer_snapshot(tier: Spoilt) -> None:
    segment = tier.segments(LEDGER)[1]
    tier.object(segment, ".timeindex").unlink()
    snapshot = tier.object(segment, ".snapshot")
    snapshot.write_bytes(b"\0\x02" + snapshot.read_bytes()[2:])


def _one_of_two(suffix: str) -> Callable[[Spoilt], None]:
    """Make a world with two finished segments before another; that one and one of them lack an index."""

    def damage(tier: Spoilt) -> None:
        second = copy_objects(tier, 1)
        begun = replace(second, state=S.COPY_SEGMENT_STARTED)
        tier.append(begun, update(begun, S.COPY_SEGMENT_FINISHED))
        for segment in (second, tier.segments(CLICKS)[3]):
            tier.object(segment, suffix).unlink()

    return damage


REFUSED = {
    "snapshot of a newer version": (_newer_snapshot, "one of its indexes is not understood", 0),
    "log damaged": (_log_damaged, "its log is damaged", 0),
    "snapshot before it gone": (_snapshots_gone, "the producers before offset", 1),
    "one snapshot before it gone": (_one_of_two(".snapshot"), f"segment {OTHER} beside it can't be read", 1),
    "one lineage before it gone": (
        _one_of_two(".leader_epoch_checkpoint"),
        f"segment {OTHER} beside it can't be read",
        1,
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_the_log_does_not_give_is_left_with_the_reason(
    case: tuple[Callable[[Spoilt], None], str, int], tier: Spoilt
) -> None:
    damage, says, others = case
    damage(tier)
    plan, found = planned(tier, seen_before=False)
    assert (len(steps(plan)), says in found.err) == (others, True), found.err


def test_the_rest_is_derived_by_the_next_run(tier: Spoilt) -> None:
    _snapshots_gone(tier)
    for _ in range(2):
        own, ran = repaired(tier)
        assert (len(own), ran.code) == (1, 0), ran.err
    plan, again = planned(tier, "--deep", "--topic", LEDGER, seen_before=False)
    assert (problems(again), steps(plan)) == ([], []), again.out


def test_an_index_that_verifies_by_now_is_not_written(tier: Spoilt) -> None:
    path = tier.object(tier.segments(CLICKS)[1], ".index")
    own = path.read_bytes()
    path.unlink()
    plan, _ = planned(tier, seen_before=False)
    path.write_bytes(own)
    before = contents(tier)
    ran = tierctl("apply", plan, *where(tier), "--apply", "-o", "json")
    assert (ran.code, contents(tier)) == (ExitCode.REFUSED, before), ran.err


def test_a_log_that_was_damaged_since_is_not_used(tier: Spoilt) -> None:
    segment = tier.segments(CLICKS)[1]
    tier.object(segment, ".index").unlink()
    plan, _ = planned(tier, seen_before=False)
    flip_bit(tier.object(segment, ".log"))
    ran = tierctl("apply", plan, *where(tier), "--apply", "-o", "json")
    assert ran.code == ExitCode.REFUSED, ran.err
    assert not tier.object(segment, ".index").exists()
    assert "its log is damaged" in ran.err


@pytest.fixture
def plugin(writable: Callable[[str], Path]) -> Spoilt:
    """Return a tier of Aiven's plugin, which keeps all indexes of a segment in one object."""
    return Spoilt(writable("aiven-plain/broker-logs"), writable("aiven-plain/bucket"))


def _indexes_of(tier: Spoilt, nth: int, topic: str = "audit") -> Path:
    segment = tier.segments(topic)[nth]
    (path,) = tier.remote.rglob(f"*{segment.segment_id}.indexes")
    return path


@pytest.mark.parametrize("damage", [Path.unlink, flip_bit], ids=["missing", "damaged"])
def test_the_one_object_of_the_plugin_is_derived(damage: Callable[[Path], None], plugin: Spoilt) -> None:
    path = _indexes_of(plugin, 0)
    before = contents(plugin)
    damage(path)
    (step,), ran = repaired(plugin, "--deep")
    assert (step["action"], ran.code) == ("store_indexes", 0), ran.err
    assert {each: data for each, (data, _) in contents(plugin).items()} == {
        each: data for each, (data, _) in before.items()
    }


def test_other_sizes_than_the_manifest_says_are_refused(plugin: Spoilt) -> None:
    """The broker restarted while it wrote this segment, so the stored offset index lacks an entry."""
    restarted = {s.start_offset: n for n, s in enumerate(plugin.segments("sensors"))}[344]
    path = _indexes_of(plugin, restarted, "sensors")
    path.unlink()
    plan, found = planned(plugin, seen_before=False)
    assert steps(plan) == []
    assert "the manifest would have to change, too" in found.err
    assert json.loads(plan.read_text())["skipped"]
    assert not path.exists()
