"""Segments that no part of the current lineage refers to; they go only when somebody asks for it."""

from collections.abc import Collection, Iterator

from tierctl.model import RemoteLogSegmentMetadata, Uuid
from tierctl.plan.plan import Step
from tierctl.plan.retention_view import FINISHED, View
from tierctl.plan.steps import delete_step


def orphan_steps(
    view: View, log_start_offset: int, taken: Collection[Uuid | None], *, off_lineage: bool
) -> list[Step]:
    """Finished segments all of whose epochs are older than the earliest the log will know.

    That is RLMExpirationTask's clean-up of unreferenced segments, which runs after the log start has moved to
    `log_start_offset` and the epochs below it are forgotten. Those of epochs the log has forgotten already
    always go ("unreferenced_epochs": whether they diverged can't be told any more); with `off_lineage` also
    those whose epochs the log still knows, and knows to have diverged.
    """
    earliest = view.lineage.truncate_from_start(log_start_offset).earliest
    if earliest is None:
        return []
    steps = []
    for segment, breach in _orphans(view, earliest.epoch):
        # What is of the lineage and has such epochs lies below the log start, and is taken already.
        if segment.segment_id in taken or (breach == "off_lineage" and not off_lineage):
            continue
        facts = {"breach": breach, "earliest_epoch": earliest.epoch, **view.decided_in}
        if log_start_offset > view.known_log_start_offset:
            # They are unreferenced only once the log starts there.
            facts["new_log_start_offset"] = log_start_offset
        reason = f"{_WORDS[breach]}: its epochs are older than {earliest.epoch}, the log's earliest"
        steps.append(delete_step(segment, reason, **facts))
    return sorted(steps, key=lambda s: (s.start_offset or 0, s.segment_id or ""))


_WORDS = {"off_lineage": "off the lineage", "unreferenced_epochs": "of unreferenced epochs"}


def _orphans(view: View, earliest_epoch: int) -> Iterator[tuple[RemoteLogSegmentMetadata, str]]:
    known = view.lineage.earliest
    for segment in view.segments:
        newest = max(epoch for epoch, _ in segment.segment_leader_epochs)
        if segment.state is not FINISHED or newest >= earliest_epoch:
            continue
        if known is not None and newest < known.epoch:
            yield segment, "unreferenced_epochs"
        else:
            yield segment, "off_lineage"
