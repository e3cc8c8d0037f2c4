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

    def __init__(self, *, initialized: bool = True) -> None:
        self.initialized = initialized
        self._segments: dict[Uuid, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _EpochState] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment_id: Uuid) -> RemoteLogSegmentMetadata | None:
        """Return the segment with that id in any state; None if it is unknown or deleted."""
        return self._segments.get(segment_id)

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
        self._segments[metadata.segment_id] = metadata
        return True

    def _epoch(self, epoch: int) -> _EpochState:
        return self._epochs.setdefault(epoch, _EpochState())

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Implement updateRemoteLogSegmentMetadata; return False if the event was ignored.

        Raise RemoteResourceNotFound for an unknown segment (unless history is being loaded) and
        IllegalEventError for an allowed update to COPY_SEGMENT_STARTED.
        """
        existing = self._segments.get(update.segment_id)
        if existing is None:
            if not self.initialized:
                return False
            raise RemoteResourceNotFound(f"no metadata of remote segment {update.segment_id}")
        if not is_valid_transition(existing.state, update.state):
            return False
        if update.state is _S.COPY_SEGMENT_STARTED:
            raise IllegalEventError(
                f"update of segment {update.segment_id}", expected="a later state", found=update.state
            )
        self._apply(updated(existing, update))
        return True

    def _apply(self, metadata: RemoteLogSegmentMetadata) -> None:
        segment_id = metadata.segment_id
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
    """Raise the errors of RemoteLogSegmentMetadata's constructor for impossible offsets and epochs."""
    what = f"segment {metadata.segment_id}"
    if metadata.start_offset < 0:
        raise IllegalEventError(
            what, expected="a start offset of at least 0", found=str(metadata.start_offset)
        )
    if metadata.end_offset < metadata.start_offset:
        raise IllegalEventError(
            what,
            expected=f"an end offset of at least {metadata.start_offset}",
            found=str(metadata.end_offset),
        )
    if not metadata.segment_leader_epochs:
        raise IllegalEventError(what, expected="at least one leader epoch", found="none")
