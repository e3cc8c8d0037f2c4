"""Orphans: objects of a segment that the metadata do not have, and when they may be deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tierctl.errors import UsageError
from tierctl.model import ListedSet, ObjectSet, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.model.times import duration_text, iso_utc
from tierctl.plan.steps import STATES, Step, delete_step

_S = RemoteLogSegmentState
_DAY_MS = 24 * 60 * 60 * 1000

ORPHAN_AGE_MS = 7 * _DAY_MS
"""Default of --orphan-age: the age from which orphans are deleted."""

ORPHAN_AGE_MS_MIN = _DAY_MS
"""The lowest --orphan-age: a younger object may belong to a copy that is still running."""

SIGHTINGS_APART_MS = _DAY_MS
"""An orphan is deleted only if two sightings are at least this far apart."""

INTRODUCED = f"{_S.COPY_SEGMENT_STARTED},{_S.DELETE_SEGMENT_STARTED}"
"""The states that are published about an orphan before its objects are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRule:
    """The rule for orphans: older than `age_ms`, and seen at least a day before `now_ms`.

    `first_seen_ms` has the time of the first sighting by segment id; None without a state directory, which
    keeps the sightings. UsageError if `age_ms` is less than 24 hours.
    """

    now_ms: int
    age_ms: int = ORPHAN_AGE_MS
    first_seen_ms: Mapping[Uuid, int] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.age_ms < ORPHAN_AGE_MS_MIN:
            raise UsageError(
                f"--orphan-age {duration_text(self.age_ms)}: a younger object may belong to a copy that is "
                "still running",
                hint=f"use at least {duration_text(ORPHAN_AGE_MS_MIN)}",
            )

    def why_kept(self, listed: ListedSet) -> str | None:
        """Return why the objects of `listed` may not be deleted yet; None if they may."""
        young = self.why_young(listed, self.age_ms)
        if young is not None:
            return f"{young} (--orphan-age)"
        if self.first_seen_ms is None:
            return "orphan: it must be seen twice, a day apart: give --state-dir, which keeps the sightings"
        seen_ms = self.first_seen_ms.get(listed.segment_id, self.now_ms)
        if self.now_ms - seen_ms < SIGHTINGS_APART_MS:
            return (
                f"orphan: first seen at {iso_utc(seen_ms)}; run this command again from "
                f"{iso_utc(seen_ms + SIGHTINGS_APART_MS)} on, with the same --state-dir"
            )
        return None

    def why_young(self, listed: ListedSet, age_ms: int) -> str | None:
        """Return why the objects of `listed` may not be older than `age_ms`; None if they are."""
        written_ms = listed.modified_ms
        if written_ms is None:
            return "orphan: the store does not say when its objects were written"
        if self.now_ms - written_ms <= age_ms:
            return f"orphan: last written at {iso_utc(written_ms)}, not {duration_text(age_ms)} ago"
        return None


def orphan_step(each: ObjectSet, deleted: RemoteLogSegmentMetadata | None, reason: str) -> Step:
    """Return the step that makes the set of `each` known as being deleted, and then deletes it.

    `deleted` are its metadata if its deletion has finished before.
    """
    segment = deleted or each.segment or _invented(each.listed)
    segment = replace(segment, state=_S.COPY_SEGMENT_STARTED)
    custom = segment.custom_metadata
    return delete_step(
        segment,
        reason,
        breach="orphan",
        **{STATES: INTRODUCED},
        custom_metadata=None if custom is None else custom.hex(),
        txn_index_empty=segment.txn_index_empty,
    )


def _invented(listed: ListedSet) -> RemoteLogSegmentMetadata:
    """Return metadata for an incomplete set, of which only the names of its objects are known.

    No reader uses it, because the segment is being deleted.
    """
    return RemoteLogSegmentMetadata(
        topic=listed.partition.topic,
        topic_id=listed.partition.topic_id,
        partition=listed.partition.partition,
        segment_id=listed.segment_id,
        start_offset=listed.start_offset,
        end_offset=listed.start_offset,
        broker_id=-1,
        max_timestamp_ms=-1,
        event_timestamp_ms=listed.modified_ms or 0,
        segment_leader_epochs=((0, listed.start_offset),),
        segment_size_in_bytes=sum(listed.sizes_bytes.values()),
    )
