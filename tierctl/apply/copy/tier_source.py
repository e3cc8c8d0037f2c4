"""Segments of another tier as sources of copies; each is fetched to a spool folder and checked.

A remote segment never changes under its id; it can only be deleted. Therefore a fetched and checked segment
stays valid, even if the segment in the source tier is deleted later.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tierctl.apply.copy.source import Fingerprint, SourceChanged, check_and_hash, contents, fingerprint
from tierctl.apply.side_effects import SideEffectContext, SourceTier
from tierctl.checks.bytes import Problem
from tierctl.errors import CorruptInputError, RemoteResourceNotFound, UsageError
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import IndexType, LogSegmentData, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.plan.steps import SOURCE_SEGMENT_ID, Step
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.index_cache import SegmentFiles, spooled

_S = RemoteLogSegmentState


class TierSources:
    """Sources in another tier, which has its own metadata; a segment is in `spool` while it is copied."""

    def __init__(self, metadata: RemoteLogMetadataManager, remote: RemoteStorageManager, spool: Path) -> None:
        self._metadata = metadata
        self._remote = remote
        self._spool = spool

    def refresh(self, steps: Sequence[Step]) -> None:  # noqa: ARG002
        """Implement `Sources.refresh`."""
        self._metadata.refresh()

    def find(self, step: Step) -> "TierSource":
        """Implement `Sources.find`."""
        segment = self._segment(step)
        if segment is None:
            raise SourceChanged("the source tier has no such segment any more")
        if segment.state is not _S.COPY_SEGMENT_FINISHED:
            raise SourceChanged(f"the segment is {segment.state} in the source tier")
        if (segment.start_offset, segment.end_offset) != (step.start_offset, step.end_offset):
            raise SourceChanged("the segment's offsets are others than when this was decided")
        return TierSource(
            metadata=segment,
            txn_index_empty=segment.txn_index_empty or self._has_no_transactions(segment),
        )

    def with_options(self, context: SideEffectContext) -> SideEffectContext:
        """Implement `Sources.with_options`: add the source tier and its spool folder."""
        return replace(context, source_tier=SourceTier(remote=self._remote, spool=self._spool))

    def _segment(self, step: Step) -> RemoteLogSegmentMetadata | None:
        segment_id = step.details.get(SOURCE_SEGMENT_ID)
        if not isinstance(segment_id, str):
            return None
        return self._metadata.state.segment(step.topic_id_partition, Uuid.parse(segment_id))

    def _has_no_transactions(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return True if the transaction index is empty: brokers before 4.0 never set `txn_index_empty`."""
        try:
            with self._remote.fetch_index(segment, IndexType.TRANSACTION) as stream:
                return not stream.read(1)
        except RemoteResourceNotFound:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSource:
    """One finished segment of another tier."""

    metadata: RemoteLogSegmentMetadata
    txn_index_empty: bool

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Implement `Source.started`: the source's metadata with a new id, broker id, time and tier."""
        return replace(
            self.metadata,
            segment_id=segment_id,
            broker_id=broker_id,
            leader_epoch=None,
            event_timestamp_ms=event_timestamp_ms,
            custom_metadata=None,
            state=_S.COPY_SEGMENT_STARTED,
            txn_index_empty=self.txn_index_empty,
        )

    @contextmanager
    def opened(self, context: SideEffectContext) -> Iterator["SpooledSource"]:
        """Implement `Source.opened`; raise CorruptInputError if the bytes do not match the metadata."""
        if context.source_tier is None:
            raise UsageError("--from-remote is missing: the plan copies segments from another tier")
        source = context.source_tier
        with spooled(source.remote, self.metadata, source.spool) as files:
            indexes = files.index_bytes()
            log, error = check_and_hash(self.metadata, files.log, indexes)
            if error is not None:
                raise self._unsound(error)
            if self.txn_index_empty:
                indexes[IndexType.TRANSACTION] = None
            yield SpooledSource(contents(log, indexes), files, fingerprint(files))

    def _unsound(self, problem: Problem) -> CorruptInputError:
        m = self.metadata
        return CorruptInputError(
            f"remote segment {m.segment_id} of {m.topic}-{m.partition} from offset {m.start_offset}",
            expected="what its metadata say",
            found=problem.message,
            hint="this segment and later ones are not copied; tierctl verify --deep lists all problems",
        )


@dataclass(frozen=True, slots=True)
class SpooledSource:
    """Implement OpenedSource by files in the spool folder, to which no other process writes."""

    data: LogSegmentData
    files: SegmentFiles
    fingerprint: Fingerprint

    def is_unchanged(self) -> bool:
        """Implement `OpenedSource.is_unchanged`."""
        return fingerprint(self.files) == self.fingerprint
