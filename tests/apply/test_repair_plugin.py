"""`verify --plan-out` and `apply` repair an encrypted tier of Aiven's plugin.

The local log has the lost records, too: there is no gap.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata
from tierctl.wire.metadata.values import decode

from tests.apply.repairs import OTHER, age
from tests.apply.test_repair import planned, problems, steps, where
from tests.cli.shell import tierctl
from tests.metadata.topics import topic_in
from tests.read.tier import metadata_values
from tests.verify.cases import S
from tests.verify.tiers import Spoilt

TOPIC = "audit"


@pytest.fixture
def tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("aiven-encrypted/broker-logs"), writable("aiven-encrypted/bucket"))


@pytest.fixture
def keys(capture: Callable[[str], Path]) -> tuple[object, ...]:
    found = capture("aiven-encrypted").glob("keys/private*")
    return tuple(word for key in found for word in ("--aiven-private-key", key))


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


def _copied_twice(tier: Spoilt) -> None:
    """Put a segment's objects under another segment id, too."""
    segment = tier.segments(TOPIC)[1]
    for path in objects_of(tier, segment):
        other = path.with_name(path.name.replace(segment.segment_id, OTHER))
        shutil.copyfile(path, other)
        if path.suffix == ".rsm-manifest":
            text = other.read_text()
            assert segment.segment_id in text
            other.write_text(text.replace(segment.segment_id, OTHER))
    age(objects_of(tier, replace(segment, segment_id=OTHER)))


CASES = {
    "lost events": (_lost_events, {"orphan"}, "publish_segment"),
    "orphan of a copied segment": (_copied_twice, {"orphan"}, "delete_segment"),
}
"""Damage, the kinds of findings that it causes, and the action that repairs it."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_found_is_repaired(
    case: tuple[Callable[[Spoilt], None], set[str], str], tier: Spoilt, keys: tuple[object, ...]
) -> None:
    damage, kinds, action = case
    finished = len(tier.segments(TOPIC))
    damage(tier)
    plan, found = planned(tier, *keys)
    assert {finding["check"] for finding in problems(found)} == kinds, found.out
    assert [step["action"] for step in steps(plan)] == [action], found.err
    ran = tierctl("apply", plan, *where(tier), *keys, "--apply", "-o", "json")
    assert (ran.code, [each["status"] for each in ran.json["outcomes"]]) == (0, ["done"]), ran.err
    plan, again = planned(tier, *keys)
    assert (problems(again), steps(plan)) == ([], []), again.out + again.err
    left = tier.segments(TOPIC)
    assert len(left) == finished
    assert {each.state for each in left} == {S.COPY_SEGMENT_FINISHED}
    assert len(list(tier.remote.rglob(f"*{TOPIC}*/0/*"))) == 3 * len(left)
