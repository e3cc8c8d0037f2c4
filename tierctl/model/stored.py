"""Entries of a flat-file cache of one user partition (KIP-405, "Internal flat-file store format").

The header of the file names the partition, so the entries have no topic.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tierctl.model.events import RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.model.ids import Uuid


class HeaderForm(StrEnum):
    """The header of a flat file: with the topic's name, or without it as in early revisions of the KIP."""

    NAMED = "named"
    UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """Entry type 0, RemoteLogSegmentMetadataRecordStored; offsets are inclusive."""

    type: ClassVar[str] = "RemoteLogSegmentMetadata"

    segment_id: Uuid
    start_offset: int
    end_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size_in_bytes: int
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartitionState:
    """Entry type 1, DeletePartitionStateRecord."""

    type: ClassVar[str] = "DeletePartitionState"

    epoch: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState


StoredRecord = StoredSegment | StoredPartitionState
