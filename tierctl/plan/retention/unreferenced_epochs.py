"""Deletes of segments whose leader epochs the log no longer refers to."""

from collections.abc import Collection, Iterator

from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.retention.partition_view import PartitionView
from tierctl.plan.steps import Step, delete_step


def unreferenced_epoch_steps(
    view: PartitionView,
    log_start_offset: int,
    taken: Collection[Uuid | None],
    *,
    off_lineage: bool = False,
    unreferenced_epochs: bool = False,
) -> list[Step]:
    """Return deletes of finished segments whose epochs are all older than the log's earliest epoch.

    RLMExpirationTask deletes these segments after the log start has moved to `log_start_offset` and the
    epochs below it have left the leader-epoch checkpoint. There are two kinds:

    - "unreferenced_epochs": the checkpoint no longer has the epochs, so it can't show whether the segment
      diverged. It is deleted by default if it lies wholly below the log start, otherwise only with
      `unreferenced_epochs` or `off_lineage`.
    - "off_lineage": the checkpoint has the epochs and shows that the segment diverged. It is deleted only
      with `off_lineage`.

    Segments whose id is in `taken` have a step already.
    """
    earliest_epoch = view.lineage.first_epoch_from(log_start_offset)
    if earliest_epoch is None:
        return []
    steps = []
    for segment, breach in _unreferenced(view, earliest_epoch):
        is_wanted = off_lineage or (
            breach == "unreferenced_epochs" and (unreferenced_epochs or segment.end_offset < log_start_offset)
        )
        # Segments of the lineage with such epochs are below the log start; `taken` contains them already.
        if segment.segment_id in taken or not is_wanted:
            continue
        facts = {"breach": breach, "earliest_epoch": earliest_epoch, **view.decided_in}
        if log_start_offset > view.known_log_start_offset:
            # The epochs leave the checkpoint only when the log starts there.
            facts["new_log_start_offset"] = log_start_offset
        steps.append(delete_step(segment, _reason(breach, earliest_epoch), **facts))
    return sorted(steps, key=lambda s: (s.start_offset or 0, s.segment_id or ""))


def _reason(breach: str, earliest_epoch: int) -> Reason:
    if breach == "off_lineage":
        return Reason(ReasonKind.OFF_LINEAGE, detail=f"are older than {earliest_epoch}, the log's earliest")
    return Reason(ReasonKind.UNREFERENCED_EPOCHS, earliest_epoch=earliest_epoch)


def _unreferenced(view: PartitionView, earliest_epoch: int) -> Iterator[tuple[RemoteLogSegmentMetadata, str]]:
    known = view.lineage.earliest
    for segment in view.segments.finished_of_epochs_below(earliest_epoch):
        newest = max(epoch for epoch, _ in segment.segment_leader_epochs)
        if known is not None and newest < known.epoch:
            yield segment, "unreferenced_epochs"
        else:
            yield segment, "off_lineage"
