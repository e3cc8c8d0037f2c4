"""Compare a manifest with the objects beside it: those of another segment, or those that were cut."""

from collections.abc import Sequence

from tierctl.errors import TruncatedInputError
from tierctl.model import EpochEntry, IndexType, ListedSet, ObjectPart, RemoteLogSegmentMetadata
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map
from tierctl.storage.layouts.aiven.segment import AivenSegment
from tierctl.wire.aiven.manifest import Manifest
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import TimeIndex, TimestampOffset
from tierctl.wire.files.producer_snapshot import decode_producer_snapshot

ENCRYPTION_BYTES = 28
"""An encrypted chunk has an initialization vector of 12 bytes and a tag of 16 bytes."""


def why_other(listed: ListedSet, manifest: Manifest, stored: RemoteLogSegmentMetadata) -> str | None:
    """Return why the manifest can't be the one of these objects; None if it can."""
    if stored.start_offset != listed.start_offset:
        return f"its manifest is of a segment from offset {stored.start_offset}"
    if stored.end_offset < stored.start_offset or not stored.segment_leader_epochs:
        return "its manifest has no offsets or no leader epochs"
    starts = [start for _, start in stored.segment_leader_epochs]
    if starts[0] != stored.start_offset or starts != sorted(starts) or starts[-1] > stored.end_offset:
        return f"its manifest has leader epochs from the offsets {starts}, which are not those of its records"
    chunks, encrypted = manifest.chunk_index, manifest.encryption is not None
    added = len(chunks.stored_sizes) * ENCRYPTION_BYTES if encrypted else 0
    if not manifest.compression and chunks.stored_size != chunks.original_file_size + added:
        return f"its manifest has {chunks.original_file_size} bytes in chunks of {chunks.stored_size} bytes"
    log_bytes = listed.sizes_bytes[ObjectPart.LOG]
    if log_bytes > manifest.chunk_index.stored_size:
        return f"its .log has {log_bytes} bytes, its manifest says only {manifest.chunk_index.stored_size}"
    return None


def compared_indexes(
    segment: RemoteLogSegmentMetadata, objects: AivenSegment
) -> tuple[tuple[EpochEntry, ...] | None, str | None]:
    """Return the leader-epoch index, and how the indexes contradict the manifest's metadata; None if not.

    Raise CorruptInputError for an index that can't be decoded.
    """
    times, snapshot, epochs = objects.indexes(
        IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH
    )
    try:
        decode_producer_snapshot(snapshot)
        lineage = read_leader_epoch_checkpoint(epochs)
        latest = TimeIndex.decode(times, segment.start_offset).last
    except TruncatedInputError as e:
        # The object has all its bytes: the manifest's ranges are wrong.
        return None, e.message
    return lineage, _why_other_epochs(segment, lineage) or _why_other_time(segment, latest)


def _why_other_time(segment: RemoteLogSegmentMetadata, latest: TimestampOffset) -> str | None:
    """Return how the last entry of the time index contradicts the manifest; None if it does not.

    A broker appends the largest timestamp when it rolls the segment (LogSegment.onBecomeInactiveSegment).
    """
    if latest.offset > segment.end_offset:
        return f"its manifest ends at offset {segment.end_offset}, its time index has {latest.offset}"
    if latest.timestamp_ms in {-1, segment.max_timestamp_ms}:
        return None
    said = segment.max_timestamp_ms
    return f"its manifest has the largest timestamp {said}, its time index {latest.timestamp_ms}"


def _why_other_epochs(segment: RemoteLogSegmentMetadata, lineage: Sequence[EpochEntry]) -> str | None:
    """Return how the manifest's leader epochs contradict the leader-epoch index; None if they agree."""
    within = dict(Lineage(lineage).entries_in_range(segment.start_offset, segment.end_offset + 1))
    own = dict(segment.segment_leader_epochs)
    if build_filtered_leader_epoch_map(own) == build_filtered_leader_epoch_map(within):
        return None
    return f"its manifest has the leader epochs {own}, its leader-epoch index {within} at these offsets"


def why_cut(listed: ListedSet, manifest: Manifest) -> str | None:
    """Return which object is shorter than the manifest states; None if none is."""
    log_bytes, index_bytes = (listed.sizes_bytes[part] for part in (ObjectPart.LOG, ObjectPart.INDEXES))
    if log_bytes < manifest.chunk_index.stored_size:
        return f"its .log has {log_bytes} bytes, its manifest says {manifest.chunk_index.stored_size}"
    last = max(each.position + each.size for each in manifest.indexes.values() if each is not None)
    return f"its .indexes has {index_bytes} of {last} bytes" if index_bytes < last else None
