"""Kafka's cache written with dictionaries, with which the columnar cache is compared."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tierctl.errors import IllegalEventError, RemoteResourceNotFound
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
    is_valid_transition,
)

_S = RemoteLogSegmentState


def epoch_end_offset(segment: RemoteLogSegmentMetadata, epoch: int) -> int:
    """Return the last offset, inclusive, that `epoch` may have in a segment."""
    later = [(e, start) for e, start in dict(segment.segment_leader_epochs).items() if e > epoch]
    return min(later)[1] - 1 if later else segment.end_offset


@dataclass(slots=True)
class _EpochState:
    """RemoteLogLeaderEpochState: `offsets` has the readable segments; other segments are unreferenced."""

    unreferenced: dict[Uuid, None] = field(default_factory=dict)
    offsets: dict[int, Uuid] = field(default_factory=dict)
    highest_offset: int | None = None

    def finished(self, start_offset: int, segment_id: Uuid, end_offset: int) -> None:
        if self.highest_offset is None or self.highest_offset <= end_offset:
            for start in sorted((s for s in self.offsets if s >= start_offset), reverse=True):
                self.unreferenced[self.offsets.pop(start)] = None
        self.offsets[start_offset] = segment_id
        self.unreferenced.pop(segment_id, None)
        if self.highest_offset is None or end_offset > self.highest_offset:
            self.highest_offset = end_offset

    def delete_started(self, start_offset: int, segment_id: Uuid) -> None:
        if self.offsets.get(start_offset) == segment_id:
            del self.offsets[start_offset]
        self.unreferenced[segment_id] = None

    def floor(self, offset: int) -> Uuid | None:
        start = max((start for start in self.offsets if start <= offset), default=None)
        return None if start is None else self.offsets[start]


def updated(
    metadata: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate
) -> RemoteLogSegmentMetadata:
    """RemoteLogSegmentMetadata.createWithUpdates: state, time, writer and custom metadata change."""
    return replace(
        metadata,
        state=update.state,
        event_timestamp_ms=update.event_timestamp_ms,
        broker_id=update.broker_id,
        leader_epoch=update.leader_epoch,
        custom_metadata=update.custom_metadata,
    )


class ReferenceCache:
    """RemoteLogMetadataCache and RemoteLogLeaderEpochState, translated from Java map by map."""

    def __init__(self) -> None:
        self.last: dict[Uuid, RemoteLogSegmentMetadata] = {}
        """Each segment, deleted ones included, in its last state."""
        self._segments: dict[Uuid, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _EpochState] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def take(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> bool:
        """Apply an event; return False if it is ignored; raise IllegalEventError."""
        return self.add(event) if isinstance(event, RemoteLogSegmentMetadata) else self.update(event)

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Implement addCopyInProgressSegment; return False if the event was ignored.

        Raise IllegalEventError unless the state is COPY_SEGMENT_STARTED.
        """
        if metadata.state is not _S.COPY_SEGMENT_STARTED:
            raise IllegalEventError(
                f"segment {metadata.segment_id}", expected="COPY_SEGMENT_STARTED first", found=metadata.state
            )
        _check_ranges(metadata)
        existing = self._segments.get(metadata.segment_id)
        if not is_valid_transition(existing.state if existing else None, metadata.state):
            return False
        for epoch in dict(metadata.segment_leader_epochs):
            self._epoch(epoch).unreferenced[metadata.segment_id] = None
        self._segments[metadata.segment_id] = self.last[metadata.segment_id] = metadata
        return True

    def _epoch(self, epoch: int) -> _EpochState:
        return self._epochs.setdefault(epoch, _EpochState())

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Implement updateRemoteLogSegmentMetadata; return False if the event was ignored.

        Events of unknown segments are ignored, as while history is being loaded. Raise IllegalEventError for
        an allowed update to COPY_SEGMENT_STARTED.
        """
        existing = self._segments.get(update.segment_id)
        if existing is None or not is_valid_transition(existing.state, update.state):
            return False
        if update.state is _S.COPY_SEGMENT_STARTED:
            raise IllegalEventError(
                f"update of segment {update.segment_id}", expected="a later state", found=update.state
            )
        self._apply(updated(existing, update))
        return True

    def _apply(self, metadata: RemoteLogSegmentMetadata) -> None:
        segment_id = metadata.segment_id
        self.last[segment_id] = metadata
        for epoch, start_offset in sorted(dict(metadata.segment_leader_epochs).items()):
            entry = self._epoch(epoch)
            if metadata.state is _S.COPY_SEGMENT_FINISHED:
                entry.finished(start_offset, segment_id, epoch_end_offset(metadata, epoch))
            elif metadata.state is _S.DELETE_SEGMENT_STARTED:
                entry.delete_started(start_offset, segment_id)
            else:
                entry.unreferenced.pop(segment_id, None)
        if metadata.state is _S.DELETE_SEGMENT_FINISHED:
            del self._segments[segment_id]
        else:
            self._segments[segment_id] = metadata

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment with `offset` in leader epoch `epoch`."""
        entry = self._epochs.get(epoch)
        segment_id = entry.floor(offset) if entry else None
        if segment_id is None:
            return None
        metadata = self._segments[segment_id]
        return metadata if offset <= epoch_end_offset(metadata, epoch) else None

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the highest offset ever copied in `epoch`; deleting segments never lowers it."""
        entry = self._epochs.get(epoch)
        return entry.highest_offset if entry else None

    def list_remote_log_segments(self, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Return segments that are not deleted: of one epoch by start offset, or all in order of arrival.

        Raise RemoteResourceNotFound, as Kafka does, if the epoch still refers to a deleted segment.
        """
        if epoch is None:
            return iter(list(self._segments.values()))
        entry = self._epochs.get(epoch)
        if entry is None:
            return iter(())
        ids = [segment_id for _, segment_id in sorted(entry.offsets.items())] + list(entry.unreferenced)
        listed = [self._of(segment_id) for segment_id in ids]
        return iter(sorted(listed, key=lambda m: m.start_offset) if entry.unreferenced else listed)

    def _of(self, segment_id: Uuid) -> RemoteLogSegmentMetadata:
        metadata = self._segments.get(segment_id)
        if metadata is None:
            raise RemoteResourceNotFound(f"no metadata of remote segment {segment_id}")
        return metadata

    def next_start_offset(self, epoch: int, offset: int) -> int | None:
        """Return the start offset of the first readable segment of `epoch` at or after `offset`."""
        entry = self._epochs.get(epoch)
        return min((start for start in entry.offsets if start >= offset), default=None) if entry else None

    def leader_epochs(self) -> tuple[int, ...]:
        """Return every leader epoch that a segment ever had, ascending."""
        return tuple(sorted(self._epochs))


def _check_ranges(metadata: RemoteLogSegmentMetadata) -> None:
    """Raise the error of RemoteLogSegmentMetadata's constructor for impossible offsets and epochs."""
    is_ascending = 0 <= metadata.start_offset <= metadata.end_offset
    if not is_ascending or not metadata.segment_leader_epochs:
        raise IllegalEventError("segment", expected="offsets and epochs of a segment", found="others")
