"""Checks of partitions whose oldest events are missing, and of the gaps that this explains."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import TopicIdPartition
from tierctl.model.severity import Severity
from tierctl.state.tier import MissingEvents, TierState
from tierctl.verify.findings import Finding, FindingKind, finding_of

_K = FindingKind


def check_histories(
    state: TierState, incomplete: Mapping[TopicIdPartition, str], unseen: Iterable[MissingEvents]
) -> Iterator[Finding]:
    """Yield a finding for each partition in `incomplete`, with the offsets below its first known segment.

    A finding about `unseen` events of unknown user partitions has the offsets of the metadata topic.
    """
    for missing in unseen:
        yield Finding(
            kind=_K.INCOMPLETE_HISTORY,
            severity=Severity.WARNING,
            topic=METADATA_TOPIC,
            topic_id=None,
            partition=missing.metadata_partition,
            start_offset=missing.first_offset,
            end_offset=missing.end_offset - 1,
            message=f"{missing}, and no later event names a user partition",
        )
    for partition, reason in incomplete.items():
        part = state.partition(partition)
        first = None if part is None else part.lowest_start_offset
        found = finding_of(partition, _K.INCOMPLETE_HISTORY, Severity.WARNING, reason)
        yield replace(found, start_offset=0, end_offset=first - 1) if first else found


def without_explained_gaps(findings: Iterable[Finding], histories: Sequence[Finding]) -> Iterator[Finding]:
    """Yield `findings` without the gaps below the first known segment of a partition in `histories`."""
    ends = {(each.topic_id, each.partition): each.end_offset for each in histories}
    for finding in findings:
        key = (finding.topic_id, finding.partition)
        known_from = ends.get(key)
        is_below = known_from is None or (finding.end_offset or 0) <= known_from
        if finding.kind is not _K.GAP or key not in ends or not is_below:
            yield finding
