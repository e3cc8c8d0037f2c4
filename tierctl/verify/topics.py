"""Checks of the tier's topics: whether the brokers still have them under the same id."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.engine import Severity
from tierctl.state.tier import PartitionState
from tierctl.verify.findings import Finding, FindingKind, finding_of

_K = FindingKind


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topic ids that brokers have, by name; `complete` if they have no other topics.

    `unreadable` are names of topics whose folders can't be read, so that their ids are unknown.
    """

    ids: Mapping[str, frozenset[Uuid]]
    complete: bool = False
    unreadable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, partitions: Iterable[TopicIdPartition], unreadable: Iterable[str]) -> Self:
        """Return the topics of these partitions, which may not be all that brokers have."""
        ids: dict[str, set[Uuid]] = {}
        for partition in partitions:
            ids.setdefault(partition.topic, set()).add(partition.topic_id)
        return cls(
            {topic: frozenset(found) for topic, found in ids.items()}, unreadable=frozenset(unreadable)
        )


@dataclass(frozen=True, slots=True)
class Removals:
    """The partitions whose segments only `delete` deletes, with the finding that states why."""

    findings: Mapping[tuple[Uuid | None, int | None], Finding]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self:
        """Return the removals of the findings of `check_topics` and `check_partition_delete`."""
        return cls({(f.topic_id, f.partition): f for f in findings})

    def applied(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings about partitions; those of removed ones advise `delete` instead of a repair.

        A removed partition has no finding about retention, because retention decides nothing about it.
        """
        for finding in found:
            removal = self.findings.get((finding.topic_id, finding.partition))
            if removal is None:
                yield finding
            elif finding.kind.row.command is not None:
                yield replace(finding, advice=removal.hint)
            elif finding.kind is not _K.STALLED_RETENTION:
                yield finding


def check_topics(parts: Sequence[PartitionState], known: KnownTopics | None) -> Iterator[Finding]:
    """Yield a finding for each partition whose topic the brokers don't have, or have under another id.

    Without `known`, of several topic ids with one name the one whose segments have the latest event counts
    as the current one.
    """
    named: dict[str, list[PartitionState]] = {}
    for part in parts:
        if part.segment_count and part.delete_state is None:
            named.setdefault(part.topic_id_partition.topic, []).append(part)
    for topic, same in sorted(named.items()):
        if known is not None and topic in known.unreadable and topic not in known.ids:
            continue
        current = _current_ids(same) if known is None else known.ids.get(topic, frozenset())
        for part in same:
            if part.topic_id_partition.topic_id not in current:
                yield _not_current(part, current, known)


def _current_ids(parts: Sequence[PartitionState]) -> frozenset[Uuid]:
    ids = frozenset(part.topic_id_partition.topic_id for part in parts)
    return ids if len(ids) == 1 else frozenset({max(parts, key=_recency).topic_id_partition.topic_id})


def _recency(part: PartitionState) -> tuple[int, Uuid]:
    latest = max(segment.event_timestamp_ms for segment in part.cache.list_remote_log_segments())
    return latest, part.topic_id_partition.topic_id


def _not_current(part: PartitionState, current: frozenset[Uuid], known: KnownTopics | None) -> Finding:
    left = f"{part.segment_count} segments of this topic id are left"
    if current:
        message = f"the topic was recreated as {', '.join(sorted(current))}; {left}"
        return finding_of(part.topic_id_partition, _K.RECREATED_TOPIC, Severity.WARNING, message)
    where = "the cluster has" if known is not None and known.complete else "the log directories hold"
    message = f"{where} no topic of this id; {left}"
    return finding_of(part.topic_id_partition, _K.UNKNOWN_TOPIC, Severity.WARNING, message)
