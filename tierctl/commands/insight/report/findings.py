"""The findings of `verify` for the report: all of them counted, and the most serious ones kept."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tierctl.model.severity import Severity
from tierctl.report.html.lanes import Lanes
from tierctl.report.terminal import printable
from tierctl.verify.findings import Finding, FindingKind

SHOWN_MAX = 2000
"""Findings that the page lists; all of them are counted."""
MARKS_MAX = 4
"""Findings of one severity and partition that are marked in its lanes although they are not listed."""
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_RANKS = {str(severity): rank for rank, severity in enumerate(_ORDER)}


@dataclass(slots=True)
class ReportFindings:
    """The findings of one run: counted by kind and severity, and by partition and severity."""

    counts: Counter[tuple[FindingKind, Severity]] = field(default_factory=Counter)
    _of_partitions: dict[Severity, Counter[int]] = field(default_factory=dict)
    _kept: dict[Severity, list[Finding]] = field(default_factory=dict)
    _marked: list[tuple[int, Finding]] = field(default_factory=list)

    def add(self, findings: Iterable[Finding], lanes: Lanes) -> Iterator[Finding]:
        """Count each finding, and yield the findings whose severity is above info."""
        numbers = {(partition.topic, partition.partition): at for partition, at in lanes.partitions()}
        for finding in findings:
            self.counts[finding.kind, finding.severity] += 1
            kept = self._kept.setdefault(finding.severity, [])
            kept += [finding] if len(kept) < SHOWN_MAX else []
            if (row := _row(finding, lanes, numbers)) is not None:
                counts = self._of_partitions.setdefault(finding.severity, Counter())
                counts[row] += 1
                self._marked += [(row, finding)] if counts[row] <= MARKS_MAX else []
            if finding.severity is not Severity.INFO:
                yield finding

    @property
    def problems(self) -> int:
        """The number of findings that are more than information."""
        return sum(count for (_, severity), count in self.counts.items() if severity is not Severity.INFO)

    def shown(self) -> list[Finding]:
        """Return the findings that the page lists, at most SHOWN_MAX, the most serious first."""
        return [finding for severity in _ORDER for finding in self._kept.get(severity, ())][:SHOWN_MAX]

    def to_json(self, lanes: Lanes) -> dict[str, Any]:
        """Return the columns for the lanes: counts by partition, and the findings that are marked.

        These are the listed ones, with their messages, and up to MARKS_MAX others of each severity and
        partition, without messages.
        """
        numbers = {(partition.topic, partition.partition): at for partition, at in lanes.partitions()}
        shown = self.shown()
        listed = [_marked(_row(finding, lanes, numbers), finding, finding.message) for finding in shown]
        known = {id(finding) for finding in shown}
        listed += [_marked(row, finding, "") for row, finding in self._marked if id(finding) not in known]
        listed.sort(key=lambda each: _RANKS[each[1]])
        counts = {
            str(severity): [self._of_partitions.get(severity, Counter())[row] for row in range(len(lanes))]
            for severity in _ORDER
        }
        return {"counts": counts, "listed": [each for each in listed if each[0] is not None]}


def _marked(row: int | None, finding: Finding, message: str) -> list[Any]:
    offsets = (finding.start_offset, finding.end_offset)
    return [row, str(finding.severity), str(finding.kind), printable(message), *offsets]


def _row(finding: Finding, lanes: Lanes, numbers: dict[tuple[str, int], int]) -> int | None:
    """Return the number of the partition in `lanes` that the finding is about; None if it is about none.

    `numbers` finds a partition by name, for findings about logs whose topic id can't be read.
    """
    if finding.partition is None:
        return None
    if finding.topic_id is not None:
        return lanes.numbers.get((finding.topic_id, finding.partition))
    return numbers.get((finding.topic or "", finding.partition))
