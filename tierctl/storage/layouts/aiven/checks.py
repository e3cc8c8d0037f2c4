"""Compare a manifest with the objects beside it: those of another segment, or those that were cut."""

from collections.abc import Sequence

from tierctl.model import EpochEntry, ListedSet, ObjectPart, RemoteLogSegmentMetadata
from tierctl.state.lineage import Lineage, build_filtered_leader_epoch_map
from tierctl.wire.aiven.manifest import Manifest


def why_other(listed: ListedSet, manifest: Manifest, stored: RemoteLogSegmentMetadata) -> str | None:
    """Return why the manifest can't be the one of these objects; None if it can."""
    if stored.start_offset != listed.start_offset:
        return f"its manifest is of a segment from offset {stored.start_offset}"
    if stored.end_offset < stored.start_offset or not stored.segment_leader_epochs:
        return "its manifest has no offsets or no leader epochs"
    log_bytes = listed.sizes_bytes[ObjectPart.LOG]
    if log_bytes > manifest.chunk_index.stored_size:
        return f"its .log has {log_bytes} bytes, its manifest says only {manifest.chunk_index.stored_size}"
    return None


def why_other_epochs(segment: RemoteLogSegmentMetadata, lineage: Sequence[EpochEntry]) -> str | None:
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
