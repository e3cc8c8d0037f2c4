"""Copies that were begun and never finished, whose writer is gone.

Brokers copy such a segment again under a new id and leave the first one, in state COPY_SEGMENT_STARTED and
perhaps with objects in the store, for good.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tierctl.errors import UsageError
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.plan.steps import Skip, Step, delete_step
from tierctl.state.tier import PartitionState

DANGLING_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""No shorter wait is taken: a slow upload of a large segment must never look dead."""

DANGLING_REASON = "dangling copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dangling:
    """When a COPY_SEGMENT_STARTED counts as dangling: older than `after_ms`, its writer not among `alive`.

    UsageError when `after_ms` is under 24 hours.
    """

    now_ms: int
    after_ms: int
    alive: Collection[int] = ()

    def __post_init__(self) -> None:
        if self.after_ms < DANGLING_AGE_MS_MIN:
            raise UsageError(
                f"a copy can't be called dangling after {self.after_ms} ms",
                hint=f"wait at least 24 hours ({DANGLING_AGE_MS_MIN} ms)",
            )

    def clean(self, part: PartitionState) -> tuple[list[Step], list[Skip]]:
        """Steps that delete the partition's dangling copies, and why the others are left.

        A clean-up that was begun and not finished is resumed.
        """
        steps: list[Step] = []
        skipped: list[Skip] = []
        for segment in part.cache.list_remote_log_segments():
            if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                steps.append(delete_step(segment, "resume of DELETE_SEGMENT_STARTED", breach="resume"))
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
            return f"a copy was begun at {segment.event_timestamp_ms} and may still be under way"
        if segment.broker_id in self.alive:
            return f"a copy was begun by broker {segment.broker_id}, which is alive"
        return None
