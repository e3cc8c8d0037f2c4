"""Damage to a captured tier that `verify --plan-out` repairs, or that it leaves with a reason."""

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tierctl.metadata.state_dir import ORPHAN_SIGHTINGS
from tierctl.model import RemoteLogSegmentMetadata, RemotePartitionDeleteState, TopicPartition

from tests.locallog.made import raise_log_start
from tests.metadata.events import deletion_of
from tests.support.faults import flip_bit
from tests.verify.cases import CLICKS, OTHER, S, update
from tests.verify.tiers import Spoilt

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
OLD_DAYS = 9
METRICS = "metrics"
Damage = Callable[[Spoilt], object]


def ago_ms(days: float) -> int:
    return time.time_ns() // 1_000_000 - int(days * DAY_MS)


def a_day_passes(state_dir: Path, hours: int = 25) -> None:
    """Let the sightings of orphans in a state directory have been made 25 hours earlier."""
    file = state_dir / ORPHAN_SIGHTINGS
    if file.exists():
        content = json.loads(file.read_text())
        for partition in content["partitions"]:
            seen_ms = partition["first_seen_ms"]
            partition["first_seen_ms"] = {each: at_ms - hours * HOUR_MS for each, at_ms in seen_ms.items()}
        file.write_text(json.dumps(content))


@dataclass(frozen=True, slots=True)
class Repairable:
    """Damage, the kinds of findings that it causes, and the expected repair steps: (action, reason)."""

    damage: Damage
    kinds: set[str]
    steps: list[tuple[str, str]]
    left: int = 0
    """How many readable segments of clicks-0 the repair adds (or removes, if negative)."""


@dataclass(frozen=True, slots=True)
class Unrepaired:
    """Damage without a repair step, and words of the reason that is printed."""

    damage: Damage
    says: str
    options: tuple[object, ...] = ()
    code: int | None = None
    """The exit code of verify; None for any."""


def age(paths: list[Path], days: float = OLD_DAYS) -> None:
    for path in paths:
        os.utime(path, (ago_ms(days) / 1000,) * 2)


def below_log_start(tier: Spoilt) -> None:
    """Make a world in which the deletion of the oldest segment was started; the log starts above it."""
    segment = tier.segments(CLICKS)[0]
    raise_log_start(tier.metadata, TopicPartition(CLICKS, 0), segment.end_offset + 1)
    tier.append(update(segment, S.DELETE_SEGMENT_STARTED, ago_ms(2)))


def begun_again(tier: Spoilt, nth: int = 1) -> RemoteLogSegmentMetadata:
    """Make a world in which a second copy of a segment was started two days ago."""
    segment = tier.segments(CLICKS)[nth]
    again = replace(
        segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(2), broker_id=1
    )
    tier.append(again)
    return again


def _half(tier: Spoilt) -> None:
    tier.object(begun_again(tier), ".log").write_bytes(bytes(8) + b"half")


def _first_copy(tier: Spoilt) -> None:
    """Make a world in which a partition has one copy, begun two days ago, of which no object was stored."""
    segments = tier.segments(CLICKS, 1)
    for segment in segments:
        for path in tier.files(segment):
            path.unlink()
        states = S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED
        tier.append(*(update(segment, state) for state in states))
    last = segments[-1]
    start = last.end_offset + 1
    raise_log_start(tier.metadata, TopicPartition(CLICKS, 1), start)
    begun = replace(
        last,
        segment_id=OTHER,
        start_offset=start,
        end_offset=start,
        segment_leader_epochs=((last.newest_leader_epoch, start),),
    )
    tier.append(replace(begun, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(2), broker_id=1))


def copy_objects(tier: Spoilt, nth: int = 1, days: float = OLD_DAYS) -> RemoteLogSegmentMetadata:
    """Copy the objects of a segment to another segment id."""
    segment = tier.segments(CLICKS)[nth]
    again = replace(segment, segment_id=OTHER)
    age(tier.copy_objects(segment, again), days)
    return again


def _doubled(tier: Spoilt) -> None:
    copy_objects(tier)
    begun_again(tier)


def _half_orphan(tier: Spoilt) -> None:
    again = copy_objects(tier)
    tier.object(again, ".snapshot").unlink()


def rename_segment(tier: Spoilt, nth: int = 1, days: float = OLD_DAYS) -> RemoteLogSegmentMetadata:
    """Rename the objects of a segment to another id, which the metadata does not have."""
    again = copy_objects(tier, nth, days)
    segment = tier.segments(CLICKS)[nth]
    for path in tier.files(segment):
        path.unlink()
    tier.append(update(segment, S.DELETE_SEGMENT_STARTED), update(segment, S.DELETE_SEGMENT_FINISHED))
    return again


def lost_finished(nth: int) -> Damage:
    def damage(tier: Spoilt) -> None:
        again = rename_segment(tier, nth)
        tier.append(replace(again, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(2), broker_id=1))

    return damage


def _objects_of_a_deleted(tier: Spoilt) -> None:
    """Make a world with the objects of a segment whose deletion by tierctl has finished."""
    again = copy_objects(tier)
    begun = replace(again, state=S.COPY_SEGMENT_STARTED)
    states = S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED
    tier.append(begun, *(replace(update(begun, state), broker_id=-1) for state in states))


def _partition_delete(tier: Spoilt) -> None:
    # The only partition: a topic of which a folder is left is not deleted.
    segment = tier.segments(METRICS)[0]
    shutil.rmtree(tier.metadata / f"{METRICS}-0")
    states = (
        RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
    )
    tier.append(*(deletion_of(segment, state, at_ms=ago_ms(2)) for state in states))


RESUME = ("delete_segment", "resume of DELETE_SEGMENT_STARTED")
CLEAN = ("delete_segment", "dangling copy")
DELETED = "deletion has finished"
REPAIRABLE = {
    "stuck delete": Repairable(below_log_start, {"stuck_delete"}, [RESUME]),
    "half a copy": Repairable(_half, {"dangling_copy"}, [CLEAN]),
    "a copy without objects": Repairable(begun_again, {"dangling_copy"}, [CLEAN]),
    "a copy without objects of a partition without objects": Repairable(
        _first_copy, {"dangling_copy"}, [CLEAN]
    ),
    "a whole copy of a copied segment": Repairable(_doubled, {"dangling_copy"}, [CLEAN]),
    "lost FINISHED": Repairable(
        lost_finished(1), {"dangling_copy", "gap"}, [("publish_segment", "serves its offsets")], left=1
    ),
    "lost FINISHED of the newest": Repairable(
        lost_finished(-1), {"dangling_copy", "gap"}, [("publish_segment", "serves its offsets")], left=1
    ),
    "lost events": Repairable(
        rename_segment, {"orphan", "gap"}, [("publish_segment", "serves its offsets")], left=1
    ),
    "orphan of a copied segment": Repairable(
        copy_objects, {"orphan"}, [("delete_segment", "serves its offsets")]
    ),
    "half an orphan": Repairable(_half_orphan, {"orphan"}, [("delete_segment", "incomplete")]),
    "objects of a deleted segment": Repairable(
        _objects_of_a_deleted, {"orphan"}, [("delete_segment", DELETED)]
    ),
    "partition delete": Repairable(
        _partition_delete,
        {"unfinished_partition_delete"},
        [("delete_partition", "DELETE_PARTITION_STARTED"), ("delete_segment", "its partition is deleted")],
    ),
}


def _damaged(damage: Damage, suffix: str, at: int = 1000) -> Damage:
    """Flip a bit in an object of the renamed segment."""

    def spoil(tier: Spoilt) -> None:
        damage(tier)
        (path,) = tier.remote.rglob(f"*{OTHER}{suffix}")
        flip_bit(path, at)
        age([path])

    return spoil


def _young_copy(tier: Spoilt) -> None:
    again = copy_objects(tier)
    tier.append(replace(again, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(0.5), broker_id=1))


def _other_size_in_the_event(tier: Spoilt) -> None:
    again = rename_segment(tier, 1)
    begun = replace(
        again, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=ago_ms(2), segment_size_in_bytes=7
    )
    tier.append(begun)


def _another_offset(tier: Spoilt) -> None:
    segment = tier.segments(CLICKS)[1]
    other = replace(segment, start_offset=segment.start_offset + 1)
    tier.object(segment, ".snapshot").rename(tier.object(other, ".snapshot"))
    age(tier.files(other))


def _archived_log(tier: Spoilt) -> None:
    path = tier.object(copy_objects(tier), ".log")
    path.rename(f"{path}.zst")


def _missing_log(tier: Spoilt) -> None:
    tier.object(tier.segments(CLICKS)[1], ".log").unlink()


def _cut_log(tier: Spoilt) -> None:
    path = tier.object(tier.segments(CLICKS)[1], ".log")
    path.write_bytes(path.read_bytes()[:-100])


def _raised_log_start(tier: Spoilt) -> None:
    """Make a world whose metadata lacks the oldest segments; the log starts above them."""
    lost = rename_segment(tier, 0)
    raise_log_start(tier.metadata, TopicPartition(CLICKS, 0), lost.end_offset + 1)


def _junk(tier: Spoilt) -> None:
    (tier.remote / "kafka-tiered-storage" / "README").write_text("who wrote this?")


UNREPAIRED = {
    "a missing log": Unrepaired(_missing_log, "its log is missing, so no index can be derived"),
    "a cut log": Unrepaired(_cut_log, "size_differs: no repair can be planned; restore the object"),
    "an orphan with an archived log": Unrepaired(_archived_log, ".log.zst has"),
    "a young orphan": Unrepaired(partial(copy_objects, days=2), "not 7d ago (--orphan-age)"),
    "a young orphan, a lower age": Unrepaired(
        partial(copy_objects, days=2), "not 3d ago", ("--orphan-age", "3d")
    ),
    "a young segment without events": Unrepaired(partial(rename_segment, days=0.5), "not 1d ago"),
    "a young copy": Unrepaired(_young_copy, "may still be running"),
    "lost FINISHED, a damaged log": Unrepaired(
        _damaged(lost_finished(1), ".log"), "no set has offsets", code=7
    ),
    "lost FINISHED, a damaged index": Unrepaired(
        _damaged(lost_finished(1), ".timeindex", 7), "its objects are damaged"
    ),
    "lost FINISHED, another size": Unrepaired(_other_size_in_the_event, "segment_size_in_bytes 7"),
    "lost events, a damaged log": Unrepaired(_damaged(rename_segment, ".log"), "not understood", code=7),
    "an object at another offset": Unrepaired(_another_offset, "begin at another offset"),
    "a raised log start": Unrepaired(_raised_log_start, "a broker that knew no segments may have raised it"),
    "an unknown object": Unrepaired(_junk, "1 more findings without a repair"),
}
