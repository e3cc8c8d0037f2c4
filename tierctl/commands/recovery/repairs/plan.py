"""Plan the repairs of the findings of one run of `verify`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from tierctl.commands.plans import MutationResult
from tierctl.commands.recovery.repairs.indexes import SegmentName
from tierctl.commands.recovery.repairs.repair import PLANNER, RepairRequest, Unrepaired, partition_text
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.model import TopicIdPartition
from tierctl.model.progress import Progress
from tierctl.model.severity import Severity
from tierctl.verify.findings import Finding, FindingKind

_UNREPAIRED_MAX = 1000
_OF_INDEXES = frozenset({FindingKind.MISSING_OBJECT, FindingKind.CORRUPT_INDEX, FindingKind.EPOCHS_DIFFER})
"""Kinds of findings that may concern an index; a missing or damaged index is derived from the log again."""


@dataclass(slots=True)
class _Collected:
    """The facts about the findings that a repair plan needs."""

    orphans_of: dict[str, None] = field(default_factory=dict)
    indexes_of: dict[str, None] = field(default_factory=dict)
    offset_files: dict[str, None] = field(default_factory=dict)
    unrepaired: list[Unrepaired] = field(default_factory=list)
    more: int = 0
    """Number of findings without a repair that are above the limit of `unrepaired` or name no partition."""

    def add(self, finding: Finding) -> None:
        """Collect the facts about `finding` that the plan needs."""
        partition = _partition_of(finding)
        if finding.kind is FindingKind.UNSAFE_COMMITTED_OFFSET and finding.key is not None:
            self.offset_files[finding.key] = None
        elif finding.kind in _OF_INDEXES and partition is not None and finding.segment_id is not None:
            self.indexes_of[str(SegmentName.of(partition, finding.segment_id))] = None
        elif finding.kind is FindingKind.ORPHAN and partition is not None and finding.segment_id is not None:
            self.orphans_of[partition_text(partition.key)] = None
        elif finding.kind in {FindingKind.ORPHAN, *_OF_INDEXES} or finding.kind.row.repair is None:
            self._add_unrepaired(finding, partition)

    def _add_unrepaired(self, finding: Finding, partition: TopicIdPartition | None) -> None:
        if finding.severity is Severity.INFO:
            return
        if partition is None or len(self.unrepaired) == _UNREPAIRED_MAX:
            self.more += 1
            return
        self.unrepaired.append(Unrepaired(finding.kind, partition, finding.segment_id, finding.hint))


def with_repairs(
    findings: Iterator[Finding],
    request: Request,
    progress: Progress,
    keep: Callable[[MutationResult], None],
) -> Iterator[Finding]:
    """Yield all findings, then plan their repairs with `request` and pass the planned result to `keep`."""
    collected = _Collected()
    with Resources(request=request, progress=progress) as resources:
        if resources.is_on_spark:
            # Both parts of the run use this session: not every driver can start a second one.
            _ = resources.spark
        for finding in findings:
            collected.add(finding)
            yield finding
        if collected.more:
            progress.say(f"{collected.more} more findings without a repair: see their hints")
        keep(PLANNER.run(_repair_request(collected, request), progress))


def _repair_request(collected: _Collected, request: Request) -> RepairRequest:
    shared = {each.name for each in fields(RepairRequest)} & {each.name for each in fields(request)}
    values = {name: getattr(request, name) for name in shared} | {
        "orphans_of": tuple(collected.orphans_of),
        "indexes_of": tuple(collected.indexes_of),
        "offset_files": tuple(collected.offset_files),
        "unrepaired": tuple(collected.unrepaired),
        "meter": None,
    }
    return RepairRequest(**values)


def _partition_of(finding: Finding) -> TopicIdPartition | None:
    if finding.topic_id is None or finding.partition is None:
        return None
    return TopicIdPartition(finding.topic_id, finding.topic or "", finding.partition)
