"""Deleted segments: no state keeps them, so they are read from the whole metadata topic."""

from collections.abc import Iterator, Mapping

import numpy as np

from tierctl.metadata.topic.base import MetadataTopic
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.state.fold import finished_deletions, fold
from tierctl.state.segments.ids import SegmentIds
from tierctl.state.tier import TierState
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.metadata.decode_columns import KnownLayouts, decode_column


def deleted_segments(
    topic: MetadataTopic, end_offsets: Mapping[int, int]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield every segment whose last state is DELETE_SEGMENT_FINISHED in the events before `end_offsets`.

    Reads the whole topic even if a state directory exists, and skips records that cannot be read.
    """
    state, layouts = TierState(keep_deleted=True), KnownLayouts()
    for chunk in record_chunks(topic, end_offsets):
        fold(
            decode_column(chunk.values, layouts),
            state,
            metadata_partition=chunk.partition,
            metadata_offsets=chunk.offsets,
        )
    return state.deleted_segments()


def record_chunks(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> Iterator[RecordChunk]:
    """Yield all records of the metadata topic before `end_offsets`, one metadata partition at a time."""
    starts = topic.beginning_offsets()
    for partition, end in sorted(end_offsets.items()):
        yield from topic.read(partition, starts.get(partition, 0), end)


def deleted_segment_ids(topic: MetadataTopic, end_offsets: Mapping[int, int]) -> SegmentIds:
    """Return the ids of all segments with a DELETE_SEGMENT_FINISHED event before `end_offsets`.

    Reads the whole topic. The result takes about 24 bytes per id.
    """
    found, layouts = SegmentIds(), KnownLayouts()
    for chunk in record_chunks(topic, end_offsets):
        ids = finished_deletions(decode_column(chunk.values, layouts))
        ids = ids[found.find_many(ids) < 0]
        found.extend(ids, np.ones(len(ids), dtype=bool))
    return found
