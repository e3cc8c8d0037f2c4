"""Dangling copies: copies that were started and did not finish, and whose writer no longer runs.

Brokers copy such a segment again under a new id. The first copy stays COPY_SEGMENT_STARTED for ever, possibly
with objects in the store.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tierctl.errors import UsageError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.model.times import iso_utc
from tierctl.plan.reasons import RESUMED
from tierctl.plan.steps import Skip, Step, delete_step
from tierctl.state.tier import PartitionState

DANGLING_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""The shortest wait allowed, so that a slow upload of a large segment never counts as dangling."""

DANGLING_REASON = "dangling copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dangling:
    """The rule for dangling copies: older than `after_ms`, and written by a broker that is not in `alive`.

    UsageError if `after_ms` is less than 24 hours.
    """

    now_ms: int
    after_ms: int
    alive: Collection[int] = ()

    def __post_init__(self) -> None:
        if self.after_ms < DANGLING_AGE_MS_MIN:
            raise UsageError(
                f"{self.after_ms} ms is too short: the copy may still be running",
                hint=f"wait at least 24 hours ({DANGLING_AGE_MS_MIN} ms)",
            )

    def clean(self, part: PartitionState) -> tuple[list[Step], list[Skip]]:
        """Return steps that delete the partition's dangling copies, and the reasons for leaving other copies.

        Deletions that were started and not finished are resumed.
        """
        steps: list[Step] = []
        skipped: list[Skip] = []
        for segment in part.cache.list_remote_log_segments():
            if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                steps.append(delete_step(segment, RESUMED, breach="resume"))
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                continue
            reason = self._why_not(segment)
            if reason:
                skipped.append(Skip.of(part.topic_id_partition, reason, segment.segment_id))
            else:
                facts = {"event_timestamp_ms": segment.event_timestamp_ms, "broker_id": segment.broker_id}
                steps.append(delete_step(segment, DANGLING_REASON, **facts))
        return steps, skipped

    def _why_not(self, segment: RemoteLogSegmentMetadata) -> str | None:
        age_ms = self.now_ms - segment.event_timestamp_ms
        if segment.event_timestamp_ms <= 0 or age_ms <= self.after_ms:
            return f"a copy was started at {iso_utc(segment.event_timestamp_ms)} and may still be running"
        if segment.broker_id in self.alive:
            return f"a copy was started by broker {segment.broker_id}, which is alive"
        return None
