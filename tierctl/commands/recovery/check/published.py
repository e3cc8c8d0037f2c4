"""Check the events since the restore: finished segments, deleted segments, and the next copy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.expected import ExpectedLog
from tierctl.commands.recovery.check.offsets import epochs_text
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import CorruptInputError
from tierctl.metadata.daily_changes import record_chunks
from tierctl.metadata.topic import MetadataTopic
from tierctl.model import (
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.plan.reasons import ReasonKind
from tierctl.wire.metadata import decode

_S = RemoteLogSegmentState
_SHOWN = 3
_DELETED = {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}
SegmentEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
Key = tuple[Uuid, int]
"""Topic id and number of a partition."""


@dataclass(slots=True)
class PublishedLog:
    """The events about one partition, in the order of the metadata topic.

    `own_first` and `own_last` are the positions of the first and the last event that `rebuild` or `restore`
    published; None if they published none. `positions` has the position of each segment's first event.
    `deletions` has, for each segment that was finished before, the position of its first DELETE event.
    """

    segments: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    positions: dict[Uuid, int] = field(default_factory=dict)
    finished: set[Uuid] = field(default_factory=set)
    deletions: dict[Uuid, int] = field(default_factory=dict)
    discarded: set[Uuid] = field(default_factory=set)
    """The segments that are deleted without ever having been finished."""
    own_first: int | None = None
    own_last: int | None = None
    _events: int = 0

    def add(self, event: SegmentEvent, *, own_broker_id: int) -> None:
        """Add the next event; `own_broker_id` is the broker id in the events that tierctl published."""
        at, self._events = self._events, self._events + 1
        if event.broker_id == own_broker_id:
            self.own_first = at if self.own_first is None else self.own_first
            self.own_last = at
        segment_id = event.segment_id
        if isinstance(event, RemoteLogSegmentMetadata):
            self.segments[segment_id] = event
            self.positions.setdefault(segment_id, at)
        if event.state is _S.COPY_SEGMENT_FINISHED:
            self.finished.add(segment_id)
        elif event.state in _DELETED and segment_id in self.finished:
            self.deletions.setdefault(segment_id, at)
        elif event.state in _DELETED:
            self.discarded.add(segment_id)

    @property
    def served(self) -> set[Uuid]:
        """Return the finished segments, which brokers serve now."""
        return self.finished - self.deletions.keys()

    @property
    def deleted_since(self) -> list[RemoteLogSegmentMetadata]:
        """Return the finished segments deleted after tierctl published; all deleted ones if it did not."""
        since = self.own_first or 0
        return [
            self.segments[key] for key, at in self.deletions.items() if at >= since and key in self.segments
        ]

    @property
    def copied_since(self) -> list[RemoteLogSegmentMetadata]:
        """Return the segments whose copy began after tierctl's last event, in the order of events."""
        last = -1 if self.own_last is None else self.own_last
        return [self.segments[key] for key, at in self.positions.items() if at > last]

    @property
    def restored_end(self) -> int | None:
        """Return the offset after the segments finished up to tierctl's last event; None without any."""
        if self.own_last is None:
            return None
        ends = [
            self.segments[key].end_offset + 1
            for key in self.finished & self.segments.keys()
            if self.positions[key] <= self.own_last
        ]
        return max(ends, default=None)


def read_published(topic: MetadataTopic, *, own_broker_id: int) -> tuple[dict[Key, PublishedLog], int]:
    """Return the events of the metadata topic by partition, and the number of unreadable records."""
    found: dict[Key, PublishedLog] = {}
    unreadable = 0
    for chunk in record_chunks(topic, topic.end_offsets()):
        unreadable += len(chunk.damage)
        for value in chunk.values.to_pylist():
            if value is None:
                continue
            try:
                event = decode(value)
            except CorruptInputError:
                unreadable += 1
                continue
            if not isinstance(event, SegmentEvent):
                continue
            published = found.setdefault(event.topic_id_partition.key, PublishedLog())
            published.add(event, own_broker_id=own_broker_id)
    return found, unreadable


def check_published(results: Results, log: ExpectedLog, published: PublishedLog) -> None:
    """Check one partition's deletions, finished segments, and next copy."""
    _check_deletions(results, log, published)
    if not log.is_materialised:
        results.decided(
            RestoreCheck.METADATA,
            log.name,
            metadata_faults(log, published),
            f"the {len(log.decision.choice.chain)} segments that the tier's log has are finished",
        )
    _check_next_copy(results, log, published)


def _check_deletions(results: Results, log: ExpectedLog, published: PublishedLog) -> None:
    gone = published.deleted_since
    is_old = published.own_first is None and not log.is_materialised
    if is_old and gone and all(each.end_offset < log.start_offset for each in gone):
        reason = (
            f"the metadata have no event of tierctl: {len(gone)} segments below the log start "
            f"{log.start_offset} may have been deleted long before"
        )
        results.not_checked(RestoreCheck.DELETIONS, log.name, reason)
        return
    found = f"none of {len(published.finished)} finished segments is being deleted"
    results.decided(RestoreCheck.DELETIONS, log.name, _deletion_faults(gone), found)


def _deletion_faults(gone: Sequence[RemoteLogSegmentMetadata]) -> Iterator[str]:
    if gone:
        first = min(each.start_offset for each in gone)
        last = max(each.end_offset for each in gone)
        yield (
            f"{len(gone)} finished segments, offsets {first} to {last}, are deleted or being deleted: "
            f"{_names(each.segment_id for each in gone)}"
        )


def metadata_faults(log: ExpectedLog, published: PublishedLog) -> Iterator[str]:
    """Yield the differences between the finished segments and the segments that `rebuild` would publish."""
    missing = []
    # Nobody publishes a segment wholly below the log start: its leader would delete it.
    for mine in (each for each in log.decision.choice.chain if each.end_offset >= log.start_offset):
        its = published.segments.get(mine.segment_id)
        is_being_copied = its is not None and its.broker_id is not None and its.broker_id >= 0
        if its is None or (mine.segment_id not in published.finished and not is_being_copied):
            missing.append(mine.segment_id)
        elif mine.segment_id in published.finished:
            yield from _differences(mine, its)
    if missing:
        yield f"{len(missing)} segments of the tier are not finished: {_names(missing)}"
    wrong = [
        segment.segment_id
        for segment, reason in log.decision.choice.discarded
        if reason.kind in {ReasonKind.OFF_LINEAGE, ReasonKind.INCOMPLETE_SET}
        and segment.segment_id in published.served
    ]
    if wrong:
        yield f"{len(wrong)} segments are finished that are not of this log, or not complete: {_names(wrong)}"


def _differences(mine: RemoteLogSegmentMetadata, its: RemoteLogSegmentMetadata) -> Iterator[str]:
    name = f"segment {mine.segment_id}"
    if (mine.start_offset, mine.end_offset) != (its.start_offset, its.end_offset):
        yield (
            f"{name} has offsets {its.start_offset} to {its.end_offset} in the metadata, {mine.start_offset} "
            f"to {mine.end_offset} in the tier"
        )
    if dict(mine.segment_leader_epochs) != dict(its.segment_leader_epochs):
        yield (f"{name} has {_epochs(its)} in the metadata, {_epochs(mine)} in the tier")


def _epochs(segment: RemoteLogSegmentMetadata) -> str:
    return epochs_text([EpochEntry(*pair) for pair in segment.segment_leader_epochs])


def _check_next_copy(results: Results, log: ExpectedLog, published: PublishedLog) -> None:
    end = log.start_offset if log.is_materialised else published.restored_end
    if end is None:
        reason = "the metadata have no event of tierctl, so it is not known which copies are new"
        results.not_checked(RestoreCheck.NEXT_COPY, log.name, reason)
        return
    new = published.copied_since
    if not new:
        reason = "not yet: no segment was copied since; check again after the first roll"
        results.not_checked(RestoreCheck.NEXT_COPY, log.name, reason)
        return
    results.decided(
        RestoreCheck.NEXT_COPY,
        log.name,
        next_copy_faults([(each.start_offset, each.end_offset) for each in new], end),
        f"{len(new)} segments were copied since, from offset {min(s.start_offset for s in new)} on",
    )


def next_copy_faults(new: Sequence[tuple[int, int]], end: int) -> Iterator[str]:
    """Yield the faults in the offsets of the `new` copies: they must begin at `end` and leave no gap."""
    first = min(start for start, _ in new)
    if first < end:
        yield f"a segment was copied from offset {first} on, below {end}, where the tier ended"
    if first > end:
        yield f"the first copy begins at offset {first}: offsets {end} to {first - 1} are not in the tier"


def _names(ids: Iterable[Uuid]) -> str:
    found = list(ids)
    return ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
