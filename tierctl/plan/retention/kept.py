"""The segments that retention leaves in the tier, each with its reason: for `explain`."""

from collections.abc import Collection, Iterator, Mapping

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.model.times import iso_utc
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.retention.breaches import Expiry
from tierctl.plan.retention.partition_view import PartitionView
from tierctl.plan.steps import Kept, Step
from tierctl.state.cut_epochs import CutEpochs
from tierctl.state.partition_segments import PartitionSegments

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def kept_of(
    view: PartitionView, expiry: Expiry, steps: Collection[Step], unfinished: Mapping[Uuid, Reason]
) -> Iterator[Kept]:
    """Yield each segment of a partition that has no step in `steps` and is not being deleted.

    `expiry` is the result of retention for the partition, and `steps` are all its deletes. `unfinished` has
    the reasons, by segment id, of the unfinished copies below the log start.
    """
    deleted = {step.segment_id for step in steps}
    live = [segment for segment in view.iter_live() if segment.segment_id not in deleted]
    reasons = dict(zip((s.segment_id for s in live), expiry.limits.why_kept(live), strict=True))
    for segment in _standing(view.segments, deleted):
        if segment.state is _STARTED:
            reason = unfinished.get(segment.segment_id) or _why_not_finished(segment)
        elif segment.segment_id not in reasons:
            reason = _why_off_lineage(view, segment)
        else:
            reason = expiry.hole or reasons[segment.segment_id]
        yield Kept.remote(segment, reason)


def undecided(segments: PartitionSegments, reason: str, without: Collection[Step] = ()) -> Iterator[Kept]:
    """Yield every segment of a partition without a step in `without`; `reason` is why it stays."""
    deleted = {step.segment_id for step in without}
    for segment in segments:
        if segment.segment_id not in deleted:
            yield Kept.remote(segment, Reason.of(reason))


def _standing(
    segments: PartitionSegments, deleted: Collection[Uuid | None]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the segments that are not being deleted and not in `deleted`."""
    for segment in segments:
        is_begun = segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        if not is_begun and segment.segment_id not in deleted:
            yield segment


def _why_not_finished(segment: RemoteLogSegmentMetadata) -> Reason:
    return Reason(
        ReasonKind.COPY_STARTED, broker_id=segment.broker_id, begun=iso_utc(segment.event_timestamp_ms)
    )


def _why_off_lineage(view: PartitionView, segment: RemoteLogSegmentMetadata) -> Reason:
    """Return how the epochs of `segment` differ from those of the log."""
    if view.cut is not None and segment in view.cut.lost:
        return why_cut(view.cut, segment, "the log")
    theirs = ", ".join(f"{epoch}@{start}" for epoch, start in segment.segment_leader_epochs)
    known = ", ".join(f"{epoch}@{start}" for epoch, start in view.current.entries)
    detail = f"{theirs} are not those of the log: {known}, up to offset {view.log_end_offset}"
    return Reason(ReasonKind.OFF_LINEAGE, detail=detail)


def why_cut(cut: CutEpochs, segment: RemoteLogSegmentMetadata, log: str) -> Reason:
    """Return what brokers do with a segment whose epochs the checkpoint of `log` lost."""
    is_deleted = cut.is_deleted_by_brokers(segment)
    what = f"a broker deletes it once it leads with the cut leader epochs of {log}" if is_deleted else "kept"
    return Reason(ReasonKind.CUT_EPOCHS, is_deleted=is_deleted, detail=f"{what}: {cut}")
