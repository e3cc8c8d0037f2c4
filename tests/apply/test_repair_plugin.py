"""`verify --plan-out` and `apply` repair a tier of Aiven's plugin, plain and encrypted.

The local log has the lost records, too: there is no gap.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, TopicPartition
from tierctl.wire.metadata.values import decode

from tests.apply.repairs import OTHER, age, ago_ms
from tests.apply.test_repair import planned, problems, steps, where
from tests.cli.shell import tierctl
from tests.locallog.made import raise_log_start
from tests.metadata.topics import topic_in
from tests.read.tier import metadata_values
from tests.verify.cases import S, update
from tests.verify.tiers import Spoilt

TOPIC = "audit"


@pytest.fixture(params=["aiven-plain", "aiven-encrypted"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def tier(writable: Callable[[str], Path], name: str) -> Spoilt:
    return Spoilt(writable(f"{name}/broker-logs"), writable(f"{name}/bucket"))


@pytest.fixture
def keys(capture: Callable[[str], Path], name: str) -> tuple[object, ...]:
    return tuple(word for key in capture(name).glob("keys/private*") for word in ("--aiven-private-key", key))


def objects_of(tier: Spoilt, segment: RemoteLogSegmentMetadata) -> list[Path]:
    return sorted(tier.remote.rglob(f"*-{segment.segment_id}.*"))


def drop_events(tier: Spoilt, is_lost: Callable[[MetadataEvent], bool]) -> None:
    """Write the metadata topic anew without some of its events."""
    events = [
        (partition, value)
        for partition, _, value in metadata_values(tier.metadata)
        if value is not None and not is_lost(decode(value))
    ]
    for path in tier.metadata.glob("__remote_log_metadata-*/*"):
        if path.name != "partition.metadata":
            path.unlink()
    topic = topic_in(tier.metadata, writable=True)
    topic.append(events)
    topic.close()


def _lost_events(tier: Spoilt) -> None:
    lost = tier.segments(TOPIC)[2]
    drop_events(tier, lambda event: getattr(event, "segment_id", None) == lost.segment_id)
    age(objects_of(tier, lost))


def _lost_finished(tier: Spoilt) -> None:
    lost = tier.segments(TOPIC)[2]
    drop_events(tier, lambda event: getattr(event, "segment_id", None) == lost.segment_id)
    tier.append(replace(lost, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(2), broker_id=9))
    age(objects_of(tier, lost))


def _stuck_delete(tier: Spoilt) -> None:
    oldest = tier.segments(TOPIC)[0]
    raise_log_start(tier.metadata, TopicPartition(TOPIC, 0), oldest.end_offset + 1)
    tier.append(update(oldest, S.DELETE_SEGMENT_STARTED, ago_ms(2)))


def _copied_twice(tier: Spoilt, *, suffixes: tuple[str, ...] = (".log", ".indexes", ".rsm-manifest")) -> None:
    """Put a segment's objects, or some of them, under another segment id, too."""
    segment = tier.segments(TOPIC)[1]
    for path in objects_of(tier, segment):
        if path.suffix in suffixes:
            other = path.with_name(path.name.replace(segment.segment_id, OTHER))
            shutil.copyfile(path, other)
            if path.suffix == ".rsm-manifest":
                text = other.read_text()
                assert segment.segment_id in text
                other.write_text(text.replace(segment.segment_id, OTHER))
    age(objects_of(tier, replace(segment, segment_id=OTHER)))


def _half_orphan(tier: Spoilt) -> None:
    _copied_twice(tier, suffixes=(".log",))


def _half_copy(tier: Spoilt) -> None:
    _half_orphan(tier)
    segment = tier.segments(TOPIC)[1]
    begun = {"state": S.COPY_SEGMENT_STARTED, "event_timestamp_ms": ago_ms(2), "broker_id": 9}
    tier.append(replace(segment, segment_id=OTHER, **begun))


@dataclass(frozen=True, slots=True)
class Case:
    """Damage, the kinds of findings that it causes, the action that repairs it, and segments that stay."""

    damage: Callable[[Spoilt], None]
    kinds: set[str]
    action: str
    left: int = 0


CASES = {
    "lost events": Case(_lost_events, {"orphan"}, "publish_segment"),
    "lost FINISHED": Case(_lost_finished, {"dangling_copy"}, "publish_segment"),
    "stuck delete": Case(_stuck_delete, {"stuck_delete"}, "delete_segment", left=-1),
    "orphan of a copied segment": Case(_copied_twice, {"orphan"}, "delete_segment"),
    "half an orphan": Case(_half_orphan, {"orphan"}, "delete_segment"),
    "half a copy": Case(_half_copy, {"dangling_copy"}, "delete_segment"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_found_is_repaired(case: Case, tier: Spoilt, keys: tuple[object, ...]) -> None:
    finished = len(tier.segments(TOPIC))
    case.damage(tier)
    plan, found = planned(tier, *keys)
    assert {finding["check"] for finding in problems(found)} == case.kinds, found.out
    assert [step["action"] for step in steps(plan)] == [case.action], found.err
    ran = tierctl("apply", plan, *where(tier), *keys, "--apply", "-o", "json")
    assert (ran.code, [each["status"] for each in ran.json["outcomes"]]) == (0, ["done"]), ran.err
    plan, again = planned(tier, *keys)
    assert (problems(again), steps(plan)) == ([], []), again.out + again.err
    left = tier.segments(TOPIC)
    assert len(left) == finished + case.left
    assert {each.state for each in left} == {S.COPY_SEGMENT_FINISHED}
    assert len(list(tier.remote.rglob(f"*{TOPIC}*/0/*"))) == 3 * len(left)
