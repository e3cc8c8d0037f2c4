"""Segments whose deletion finished, which no state keeps: only the metadata topic remembers them."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from tierctl.metadata.base import MetadataTopic
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.state.fold.event_columns import UPDATE, event_columns
from tierctl.state.fold.last_states import last_states
from tierctl.state.segments.columns import STATES
from tierctl.state.segments.ids import SegmentIds
from tierctl.wire.metadata import decode_column


def deleted_segments(
    topic: MetadataTopic, end_offsets: Mapping[int, int]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Every segment whose last state is DELETE_SEGMENT_FINISHED, as the topic has them up to `end_offsets`.

    Reads the whole topic, whatever a state directory holds. Records that can't be read are passed over.
    """
    return last_states(_tables(topic, end_offsets), RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


def _tables(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> Iterator[pa.Table]:
    starts = topic.beginning_offsets()
    for partition, end in sorted(end_offsets.items()):
        for chunk in topic.read(partition, starts.get(partition, 0), end):
            yield decode_column(chunk.values)


def deleted_segment_ids(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Ids of every segment that an event calls DELETE_SEGMENT_FINISHED; about 24 bytes each.

    Reads the whole topic up to `end_offsets`, by columns.
    """
    deleted = STATES.index(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    found = SegmentIds()
    for table in _tables(topic, end_offsets):
        events = event_columns(table)
        rows = np.flatnonzero((events.kinds == UPDATE) & (events.states == deleted))
        ids = np.unique(events.ids[rows], axis=0)
        ids = ids[found.find_many(ids) < 0]
        found.extend(ids, np.ones(len(ids), dtype=bool))
    return found
