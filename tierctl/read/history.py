"""Segments whose deletion finished, which no state keeps: only the metadata topic remembers them."""

from collections.abc import Iterator, Mapping

import numpy as np

from tierctl.metadata.base import MetadataTopic
from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
    is_valid_transition,
)
from tierctl.state.columns import STATES
from tierctl.state.event_columns import UPDATE, event_columns
from tierctl.state.fold import events_of
from tierctl.state.ids import SegmentIds
from tierctl.wire.metadata import decode_column


def deleted_segments(
    topic: MetadataTopic, end_offsets: Mapping[int, int]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Every segment whose last state is DELETE_SEGMENT_FINISHED, as the topic has them up to `end_offsets`.

    Reads the whole topic, whatever a state directory holds. Records that can't be read are passed over.
    """
    starts = topic.beginning_offsets()
    for partition, end in sorted(end_offsets.items()):
        segments: dict[Uuid, RemoteLogSegmentMetadata] = {}
        for chunk in topic.read(partition, starts.get(partition, 0), end):
            for event in events_of(decode_column(chunk.values)):
                if isinstance(event, RemoteLogSegmentMetadata):
                    segments.setdefault(event.segment_id, event)
                elif isinstance(event, RemoteLogSegmentMetadataUpdate):
                    _update(segments, event)
        for segment in segments.values():
            if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                yield segment


def _update(segments: dict[Uuid, RemoteLogSegmentMetadata], update: RemoteLogSegmentMetadataUpdate) -> None:
    segment = segments.get(update.segment_id)
    if segment is not None and is_valid_transition(segment.state, update.state):
        segments[update.segment_id] = segment.with_update(update)


def deleted_segment_ids(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Ids of every segment that an event calls DELETE_SEGMENT_FINISHED; about 24 bytes each.

    Reads the whole topic up to `end_offsets`, by columns.
    """
    deleted = STATES.index(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    found = SegmentIds()
    starts = topic.beginning_offsets()
    for partition, end in sorted(end_offsets.items()):
        for chunk in topic.read(partition, starts.get(partition, 0), end):
            events = event_columns(decode_column(chunk.values))
            rows = np.flatnonzero((events.kinds == UPDATE) & (events.states == deleted))
            ids = np.unique(events.ids[rows], axis=0)
            ids = ids[found.find_many(ids) < 0]
            found.extend(ids, np.ones(len(ids), dtype=bool))
    return found
