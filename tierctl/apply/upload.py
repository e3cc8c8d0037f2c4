"""Storing and verifying one segment: the side effect of a copy, in whichever process it runs."""

from dataclasses import dataclass, replace

from tierctl.apply.side_effect_context import Answer, Bench, Piece
from tierctl.apply.side_effects import effect
from tierctl.apply.source import Source
from tierctl.errors import LimitExceeded, RemoteStorageError, TierctlError
from tierctl.model import LogSegmentData, RemoteLogSegmentMetadata

CUSTOM_METADATA_MAX_BYTES = 128
"""Default of remote.log.metadata.custom.metadata.max.bytes (KIP-917)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing(Piece):
    """A segment whose COPY_SEGMENT_STARTED is acknowledged, and where its bytes come from."""

    source: Source
    custom_metadata_max_bytes: int = CUSTOM_METADATA_MAX_BYTES


def store(bench: Bench, piece: Storing) -> Answer:
    """Store one segment, and see that all of it is there and that nobody wrote to its source meanwhile."""
    if bench.stop.asked():
        return Answer(stopped=True)
    metadata = piece.metadata
    if bench.ends.before(metadata.topic_id_partition.key, metadata.start_offset) is not None:
        return Answer()
    try:
        with piece.source.opened(bench) as data:
            answer = _store_and_verify(bench, piece, data)
    except TierctlError as e:
        answer = Answer(error=e, begun=True)
    except OSError as e:
        error = RemoteStorageError(f"copying segment {metadata.start_offset}: {e}")
        answer = Answer(error=error, begun=True)
    if answer.error is not None:
        bench.ends.end(metadata.topic_id_partition.key, metadata.start_offset)
    return answer


def _store_and_verify(bench: Bench, piece: Storing, data: LogSegmentData) -> Answer:
    metadata = piece.metadata
    with effect("copy.segment.store"):
        custom = bench.remote.copy_log_segment_data(metadata, data)
    stored = replace(metadata, custom_metadata=custom)
    error = _why_not_finished(bench, piece, stored, data)
    if error is None:
        bench.advance(metadata.segment_size_in_bytes)
    return Answer(begun=True, custom_metadata=custom, error=error)


def _why_not_finished(
    bench: Bench, piece: Storing, stored: RemoteLogSegmentMetadata, data: LogSegmentData
) -> TierctlError | None:
    size_bytes = len(stored.custom_metadata or b"")
    if size_bytes > piece.custom_metadata_max_bytes:
        return LimitExceeded(
            f"segment {stored.start_offset} of {stored.topic_id_partition} has "
            f"{size_bytes} bytes of custom metadata, more than {piece.custom_metadata_max_bytes}",
            hint="raise --custom-metadata-max-bytes (remote.log.metadata.custom.metadata.max.bytes)",
        )
    try:
        bench.remote.verify_log_segment_data(stored, data)
    except RemoteStorageError as e:
        return e
    if piece.source.is_unchanged(data):
        return None
    return RemoteStorageError(
        f"{data.log_segment} or one of its indexes changed while it was being copied",
        hint="something writes to the log directory; run the command again when it is quiet",
    )
