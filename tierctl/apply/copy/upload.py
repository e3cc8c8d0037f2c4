"""Store and verify one segment: the side effect of a copy, in this process or on an executor."""

from dataclasses import dataclass, replace

from tierctl.apply.copy.source import OpenedSource, Source, source_changed
from tierctl.apply.defaults import CUSTOM_METADATA_MAX_BYTES
from tierctl.apply.labels import effect
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult
from tierctl.errors import CustomMetadataTooLarge, RemoteStorageError, TierctlError, TransferStopped
from tierctl.model import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInput(SideEffectInput):
    """A segment whose COPY_SEGMENT_STARTED is acknowledged, and the source of its bytes."""

    source: Source
    custom_metadata_max_bytes: int = CUSTOM_METADATA_MAX_BYTES


def copy_segment(context: SideEffectContext, work: CopyInput) -> SideEffectResult:
    """Store one segment, verify every object, and check that the source did not change meanwhile."""
    if context.stop.asked():
        return SideEffectResult(stopped=True)
    metadata = work.metadata
    key = metadata.topic_id_partition.key
    if context.stopped_copies.stopped_before(key, metadata.start_offset) is not None:
        return SideEffectResult()
    try:
        with work.source.opened(context) as opened:
            result = _store_and_verify(context, work, opened)
    except TransferStopped:
        return SideEffectResult(begun=True, stopped=True)
    except TierctlError as e:
        result = SideEffectResult(error=e, begun=True)
    except OSError as e:
        error = RemoteStorageError(f"copying segment {metadata.start_offset}: {e}")
        result = SideEffectResult(error=error, begun=True)
    if result.error is not None:
        context.stopped_copies.stop(key, metadata.start_offset)
    return result


def _store_and_verify(context: SideEffectContext, work: CopyInput, opened: OpenedSource) -> SideEffectResult:
    metadata = work.metadata
    with effect("copy.segment.store"):
        custom = context.remote.copy_log_segment_data(metadata, opened.data)
    stored = replace(metadata, custom_metadata=custom)
    error = _why_not_finished(context, work, stored, opened)
    if error is None:
        context.advance(metadata.segment_size_in_bytes)
    return SideEffectResult(begun=True, custom_metadata=custom, error=error)


def _why_not_finished(
    context: SideEffectContext, work: CopyInput, stored: RemoteLogSegmentMetadata, opened: OpenedSource
) -> TierctlError | None:
    size_bytes = len(stored.custom_metadata or b"")
    if size_bytes > work.custom_metadata_max_bytes:
        return CustomMetadataTooLarge(
            f"segment {stored.start_offset} of {stored.topic_id_partition} has "
            f"{size_bytes} bytes of custom metadata, more than {work.custom_metadata_max_bytes}",
            size_bytes=size_bytes,
            limit_bytes=work.custom_metadata_max_bytes,
            hint="raise --custom-metadata-max-bytes (remote.log.metadata.custom.metadata.max.bytes)",
        )
    try:
        context.remote.verify_log_segment_data(stored, opened.data)
    except RemoteStorageError as e:
        return e
    return None if opened.is_unchanged() else source_changed(opened.data.log_segment.path)
