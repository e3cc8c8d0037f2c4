"""Checks events before they are published: the transition tables, applied to the state and earlier events."""

from tierctl.errors import MetadataError, RemoteResourceNotFound
from tierctl.model import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    Uuid,
    is_valid_transition,
)
from tierctl.model.states import is_valid_partition_transition
from tierctl.state.tier import PartitionState, TierState

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


class Transitions:
    """Check events in order; each check takes the events checked before into account."""

    def __init__(self, state: TierState) -> None:
        self._state = state
        self._segments: dict[tuple[Uuid, int, Uuid], RemoteLogSegmentState] = {}
        self._deletes: dict[tuple[Uuid, int], RemotePartitionDeleteState] = {}

    def check(self, event: MetadataEvent) -> None:
        """Raise MetadataError for a forbidden transition, RemoteResourceNotFound for an unknown segment."""
        match event:
            case RemoteLogSegmentMetadata():
                self._check_add(event)
            case RemoteLogSegmentMetadataUpdate():
                self._check_update(event)
            case RemotePartitionDeleteMetadata():
                self._check_delete(event)
            case _:
                raise MetadataError("a snapshot record is no event of the metadata topic")

    def _check_add(self, event: RemoteLogSegmentMetadata) -> None:
        current = self._segment_state(event)
        if event.state is not _STARTED or not is_valid_transition(current, event.state):
            raise _not_allowed(f"segment {event.segment_id}", current, event.state)
        self._segments[*event.topic_id_partition.key, event.segment_id] = event.state

    def _check_update(self, event: RemoteLogSegmentMetadataUpdate) -> None:
        current = self._segment_state(event)
        if current is None:
            raise RemoteResourceNotFound(
                f"no metadata of remote segment {event.segment_id} of {event.topic_id_partition}"
            )
        if event.state is _STARTED or not is_valid_transition(current, event.state):
            raise _not_allowed(f"segment {event.segment_id}", current, event.state)
        self._segments[*event.topic_id_partition.key, event.segment_id] = event.state

    def _check_delete(self, event: RemotePartitionDeleteMetadata) -> None:
        key = event.topic_id_partition.key
        known = self._known(event)
        current = self._deletes.get(key, None if known is None else known.delete_state)
        if not is_valid_partition_transition(current, event.state):
            raise _not_allowed(f"partition {event.topic_id_partition}", current, event.state)
        self._deletes[key] = event.state

    def _segment_state(
        self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
    ) -> RemoteLogSegmentState | None:
        key = (*event.topic_id_partition.key, event.segment_id)
        if key in self._segments:
            return self._segments[key]
        known = self._known(event)
        segment = None if known is None else known.get(event.segment_id)
        return None if segment is None else segment.state

    def _known(
        self,
        event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata,
    ) -> PartitionState | None:
        return self._state.partition(event.topic_id_partition)


def _not_allowed(
    what: str,
    current: RemoteLogSegmentState | RemotePartitionDeleteState | None,
    target: RemoteLogSegmentState | RemotePartitionDeleteState,
) -> MetadataError:
    return MetadataError(
        f"{what} can't change from {current or 'no state'} to {target}",
        hint="plan again from the present state",
    )
