"""What `verify` looks at piece by piece, here or on executors: partitions' offsets, and segments' bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from tierctl.errors import CorruptInputError, RemoteResourceNotFound, TierctlError
from tierctl.model import LocalLog, LocalSegment, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.read.index_lookup import UncachedIndexes
from tierctl.read.partitions import ReadablePartition
from tierctl.state.lineage import Lineage
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.spool import SpooledSegment, spooled
from tierctl.verify.offsets import PartitionFacts, check_partition
from tierctl.verify.segment_bytes import check_segment_bytes
from tierctl.verify.segments import Finding, FindingKind, Severity, finding_of

_K = FindingKind
_COMPARE_BYTES = 1 << 20
_LISTED = frozenset({_K.SIZE_DIFFERS, _K.MISSING_OBJECT})
"""What a listing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPiece:
    """A partition's segments, offsets and lineage. `has_store` says whether its indexes are to be read.

    What is wrong with them is told when `tells_indexes`; else somebody looks at all their bytes.
    """

    readable: ReadablePartition
    now_ms: int
    facts: PartitionFacts | None = None
    has_store: bool = False
    tells_indexes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsPiece:
    """Bytes of a partition's segments; the listing has found the `odd` ones' objects wanting."""

    segments: tuple[RemoteLogSegmentMetadata, ...]
    logs: tuple[LocalLog, ...]
    odd: frozenset[Uuid]

    @property
    def size_bytes(self) -> int:
        """How much has to be fetched."""
        return sum(segment.segment_size_in_bytes for segment in self.segments)


Piece = PartitionPiece | SegmentsPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Who looks: at which tier, with segments fetched to folders within `spool`."""

    remote: RemoteStorageManager | None
    spool: Path | None = None

    def findings(self, piece: Piece) -> list[Finding]:
        """What is wrong with a piece; RemoteStorageError when the store fails."""
        match piece:
            case PartitionPiece():
                return list(_partition_findings(piece, self.remote if piece.has_store else None))
            case SegmentsPiece():
                assert self.remote is not None
                assert self.spool is not None
                return [
                    finding
                    for segment in piece.segments
                    for finding in _segment_findings(segment, piece.logs, self.remote, self.spool, piece.odd)
                ]
            case _:
                assert_never(piece)


def pieces_of(
    readable: ReadablePartition,
    *,
    now_ms: int,
    facts: PartitionFacts | None,
    has_store: bool,
    segments_a_piece: int,
    odd: Sequence[Uuid] | set[Uuid],
) -> Iterator[Piece]:
    """A partition's pieces, in the order in which they are told of; `segments_a_piece` 0: no bytes."""
    is_deep = has_store and segments_a_piece > 0
    yield PartitionPiece(
        readable=readable, now_ms=now_ms, facts=facts, has_store=has_store, tells_indexes=not is_deep
    )
    gathered: list[RemoteLogSegmentMetadata] = []
    for segment in readable.cache.list_remote_log_segments() if is_deep else ():
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            gathered.append(segment)
        if len(gathered) == segments_a_piece:
            yield _segments(gathered, readable, odd)
            gathered = []
    if gathered:
        yield _segments(gathered, readable, odd)


def _segments(
    segments: Sequence[RemoteLogSegmentMetadata], readable: ReadablePartition, odd: Sequence[Uuid] | set[Uuid]
) -> SegmentsPiece:
    ids = frozenset(s.segment_id for s in segments if s.segment_id in odd)
    return SegmentsPiece(segments=tuple(segments), logs=readable.logs, odd=ids)


def _partition_findings(piece: PartitionPiece, remote: RemoteStorageManager | None) -> Iterator[Finding]:
    fetcher = None if remote is None else UncachedIndexes(remote)
    told: list[TierctlError] = []
    yield from check_partition(piece.readable, fetcher, told.append, now_ms=piece.now_ms, facts=piece.facts)
    for error in told if piece.tells_indexes else ():
        partition = piece.readable.topic_id_partition
        yield finding_of(partition, _K.CORRUPT_INDEX, Severity.ERROR, error.message)


def _segment_findings(
    segment: RemoteLogSegmentMetadata,
    logs: Sequence[LocalLog],
    remote: RemoteStorageManager,
    spool: Path,
    odd: frozenset[Uuid],
) -> Iterator[Finding]:
    """What is wrong with one segment's bytes; what the listing has told already is not told again."""
    partition = segment.topic_id_partition
    try:
        with spooled(remote, segment, spool) as files, files.log_bytes() as log:
            indexes = files.index_bytes()
            for problem in check_segment_bytes(segment, log, indexes):
                if problem.kind not in _LISTED or segment.segment_id not in odd:
                    yield finding_of(partition, problem.kind, problem.severity, problem.message, segment)
            yield from _against_logs(segment, files, logs)
    except RemoteResourceNotFound as e:
        if segment.segment_id not in odd:
            yield finding_of(partition, _K.MISSING_OBJECT, Severity.ERROR, e.message, segment)
    except CorruptInputError as e:
        yield finding_of(partition, _K.CORRUPT_LOG, Severity.ERROR, e.message, segment)


def _against_logs(
    segment: RemoteLogSegmentMetadata, files: SpooledSegment, logs: Sequence[LocalLog]
) -> Iterator[Finding]:
    """Replicas of one lineage have the same bytes; where both still have the segment it can be seen."""
    for log in logs:
        if not Lineage(log.leader_epochs).contains(segment, log.log_end_offset):
            continue
        local = next((s for s in log.segments if s.base_offset == segment.start_offset), None)
        if local is None or local.next_base_offset != segment.end_offset + 1:
            continue
        at = _first_difference(files, local)
        if at is not None:
            message = f"it differs from {local.log} at or after byte {at}"
            yield finding_of(
                segment.topic_id_partition, _K.DIFFERS_FROM_LOG, Severity.ERROR, message, segment
            )


def _first_difference(files: SpooledSegment, local: LocalSegment) -> int | None:
    """Where they part, to within a piece; None when they don't, or a broker has deleted the local one."""
    if not local.log.exists():
        return None
    with files.log.open("rb") as remote, local.log.open("rb") as own:
        position = 0
        while True:
            ours, theirs = own.read(_COMPARE_BYTES), remote.read(_COMPARE_BYTES)
            if ours != theirs:
                return position
            if not ours:
                return None
            position += len(ours)
