"""Deletes of unfinished copies that the log no longer needs: copies that ended in COPY_SEGMENT_STARTED."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.model.times import iso_utc
from tierctl.plan.copy.dangling import DANGLING_AGE_MS_MIN
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.retention.partition_view import PartitionView
from tierctl.plan.steps import Step, delete_step


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedCopies:
    """The deletes of a partition's unfinished copies; `kept` has the reason of each that may still run."""

    steps: tuple[Step, ...]
    kept: Mapping[Uuid, Reason]


def unfinished_copies(
    view: PartitionView, log_start_offset: int, now_ms: int, *, unreferenced_epochs: bool = False
) -> UnfinishedCopies:
    """Return the decisions about unfinished copies that lie wholly below `log_start_offset`.

    If a broker stops during a copy, the segment stays COPY_SEGMENT_STARTED. Brokers delete it with the
    finished segments, because `RemoteLogMetadataManager.listRemoteLogSegments(partition, epoch)` also lists
    the segments in COPY_SEGMENT_STARTED and DELETE_SEGMENT_STARTED
    (RemoteLogLeaderEpochState.listAllRemoteLogSegments), and
    RLMExpirationTask.cleanupExpiredRemoteLogSegments filters none of them out (3.9 to 4.4):

    - In the checkpoint's epochs, RemoteLogRetentionHandler.isSegmentBreachByLogStartOffset deletes a segment
      that ends below the log start, unless one of its epochs is above the checkpoint's first, or the broker
      is copying it (`segmentIdsBeingCopied`). Deletions that were started are repeated.
    - In older epochs, deleteLogSegmentsDueToLeaderEpochCacheTruncation deletes each segment, in any state,
      whose epochs are all older than the checkpoint's first entry.

    `breaches.resume_deletions` repeats started deletions. `unreferenced_epochs` also deletes copies of older
    epochs that end above the log start. A copy that may still run has a reason in `kept` instead of a step.
    """
    earliest_epoch = view.lineage.first_epoch_from(log_start_offset)
    steps: list[Step] = []
    kept: dict[Uuid, Reason] = {}
    if earliest_epoch is None:
        return UnfinishedCopies(steps=(), kept=kept)
    for segment, reason in _below(
        view, log_start_offset, earliest_epoch, unreferenced_epochs=unreferenced_epochs
    ):
        if not _has_ended(view, segment, now_ms):
            kept[segment.segment_id] = _why_kept(segment)
            continue
        facts = {"breach": reason.kind.value, **reason.facts, **view.decided_in}
        if log_start_offset > view.known_log_start_offset:
            # The step must wait for this log start: until then, the leader may copy the segment again.
            facts["new_log_start_offset"] = log_start_offset
        steps.append(delete_step(segment, reason, **facts))
    steps.sort(key=lambda step: (step.start_offset or 0, step.segment_id or ""))
    return UnfinishedCopies(steps=tuple(steps), kept=kept)


def _below(
    view: PartitionView, log_start_offset: int, earliest_epoch: int, *, unreferenced_epochs: bool
) -> Iterator[tuple[RemoteLogSegmentMetadata, Reason]]:
    """Yield the unfinished copies that a broker deletes if it does not write them, each with the reason."""
    for segment in view.segments.in_state(RemoteLogSegmentState.COPY_SEGMENT_STARTED):
        newest = _newest_epoch(segment)
        is_below = segment.end_offset < log_start_offset
        if newest < earliest_epoch and (is_below or unreferenced_epochs):
            yield (
                segment,
                Reason(ReasonKind.UNREFERENCED_EPOCHS, earliest_epoch=earliest_epoch, is_unfinished=True),
            )
        elif newest == earliest_epoch and is_below:
            yield (
                segment,
                Reason(ReasonKind.LOG_START_OFFSET, log_start_offset=log_start_offset, is_unfinished=True),
            )


def _has_ended(view: PartitionView, segment: RemoteLogSegmentMetadata, now_ms: int) -> bool:
    """Return whether the copy of `segment` no longer runs.

    It is not enough that its epochs have left the checkpoint: RLMCopyTask lists its candidates once, and
    copies them even if DeleteRecords removes their epochs meanwhile. A broker knows its own copies; tierctl
    does not, so it needs one of two facts:

    - The copy is a broker's, and a later copy finished at or above the segment's end, in its newest epoch or
      a later one of the log. RLMCopyTask begins a copy only above every copied offset of its lineage, and
      copies one segment after the other. When this copy began, no such offset was copied, so its writer, or
      the next leader, has continued since. Deleting the later copy does not lower the highest copied offset.
    - The copy began over 24 hours ago, as for `copy --clean-dangling`.

    A later copy is no evidence for a copy by tierctl (its broker id is negative): tierctl cleans up each copy
    that fails, unless it is killed or the outcome of a write is unknown. Such a write may still reach the
    store, and its object would be left there after DELETE_SEGMENT_FINISHED.

    A deposed leader may not have noticed its replacement; its upload is below the log start, no reader uses
    it, and its COPY_SEGMENT_FINISHED is rejected after DELETE_SEGMENT_STARTED. When the step is applied, the
    lease excludes copies by tierctl, and the fence excludes tiering brokers.
    """
    begun_ms = segment.event_timestamp_ms
    if begun_ms > 0 and now_ms - begun_ms > DANGLING_AGE_MS_MIN:
        return True
    if segment.broker_id is None or segment.broker_id < 0:
        return False
    newest = _newest_epoch(segment)
    later = (entry.epoch for entry in view.lineage.entries if entry.epoch > newest)
    return view.segments.has_copied_since(segment.segment_id, segment.end_offset, (newest, *later))


def _newest_epoch(segment: RemoteLogSegmentMetadata) -> int:
    return max(epoch for epoch, _ in segment.segment_leader_epochs)


def _why_kept(segment: RemoteLogSegmentMetadata) -> Reason:
    return Reason(
        ReasonKind.COPY_MAY_RUN,
        broker_id=segment.broker_id,
        begun=iso_utc(segment.event_timestamp_ms),
        end_offset=segment.end_offset,
    )
