"""Offsets from the log start on that were deleted, although the log directory does not know it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tierctl.model import LocalLog, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.model.engine import Severity
from tierctl.state.lineage import Lineage
from tierctl.verify.findings import Finding, FindingKind

DeletedOf = Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]]
"""Returns the segments of a partition that are DELETE_SEGMENT_FINISHED."""


@dataclass(frozen=True, slots=True)
class DeletedPrefixes:
    """Tells offsets that retention deleted from lost ones: `logs` are the newest replicas, by partition.

    A sweep without a cluster keeps the raised log start in its state directory, not in the log directory.
    """

    logs: Mapping[tuple[Uuid, int], LocalLog]
    deleted_of: DeletedOf

    def applied(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings; a gap at the log start is split where the deleted segments end."""
        for finding in found:
            log = self.logs.get((finding.topic_id, finding.partition))  # type: ignore[arg-type]
            is_gap = finding.kind is FindingKind.GAP
            if is_gap and log is not None and finding.start_offset == log.log_start_offset:
                yield from self._split(finding, log)
            else:
                yield finding

    def _split(self, gap: Finding, log: LocalLog) -> Iterator[Finding]:
        start, end = gap.start_offset or 0, gap.end_offset or 0
        next_offset = self._end_of_deleted(log)
        if next_offset > start:
            last = min(next_offset - 1, end)
            message = (
                f"the segments of offsets {start} to {last} are DELETE_SEGMENT_FINISHED, but the log "
                f"directory still has the log start offset {start}"
            )
            kind = FindingKind.LOG_START_BEHIND
            yield replace(gap, kind=kind, severity=Severity.INFO, end_offset=last, message=message)
        if next_offset <= end:
            lost = max(start, next_offset)
            message = f"no readable remote segment holds offsets {lost} to {end}"
            yield replace(gap, start_offset=lost, message=message)

    def _end_of_deleted(self, log: LocalLog) -> int:
        """Return the offset after the deleted segments of the lineage that adjoin the log start."""
        lineage, at = Lineage(log.leader_epochs), log.log_start_offset
        for segment in sorted(self.deleted_of(log.topic_id_partition), key=lambda s: s.start_offset):
            if segment.start_offset > at:
                break
            if lineage.contains(segment, log.log_end_offset):
                at = max(at, segment.end_offset + 1)
        return at
