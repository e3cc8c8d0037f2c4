"""Decide which indexes of a segment are derived from its log, and store them.

An index that verifies is never written again. Nothing is written unless the log is sound, and the segment
verifies with the derived indexes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierctl.apply.labels import effect
from tierctl.apply.outcome import STOPPED, Outcome, Status
from tierctl.apply.repair.derive import derive_indexes, neighbours_of
from tierctl.apply.run_context import RunContext
from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
)
from tierctl.files import FileBytes
from tierctl.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.model.severity import Severity
from tierctl.plan.repair.indexes import index_types
from tierctl.plan.steps import Step
from tierctl.state.tier import PartitionState
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.spool import spool_folder, spooled
from tierctl.verify.segment_bytes import check_segment_bytes

Indexes = Mapping[IndexType, bytes | None]
_ALWAYS = frozenset(IndexType) - {IndexType.TRANSACTION}
"""The indexes that every segment has."""


@dataclass(frozen=True, slots=True)
class RepairedIndexes:
    """The indexes of a segment to store, or why none is stored; both are empty if all indexes verify."""

    indexes: Mapping[IndexType, bytes]
    why_not: str | None = None


def finished_segments(part: PartitionState) -> list[RemoteLogSegmentMetadata]:
    """Return the finished segments of the partition, by start offset."""
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return [s for s in part.cache.list_remote_log_segments() if s.state is finished]


def repaired_indexes(
    segment: RemoteLogSegmentMetadata,
    finished: Sequence[RemoteLogSegmentMetadata],
    remote: RemoteStorageManager,
    spool: Path,
) -> RepairedIndexes:
    """Return the missing and damaged indexes of `segment`, derived from its log, which is fetched to `spool`.

    `finished` are the finished segments of the partition. Raise RemoteStorageError if the store fails.
    """
    try:
        with spooled(remote, segment, spool) as files, FileBytes(files.log) as log:
            stored = files.index_bytes()
            error = _first_error(segment, log, {})
            if error is not None:
                return _not(f"its log is damaged: {error}")
            bad = [kind for kind in IndexType if _is_bad(segment, log, stored, kind)]
            beside = neighbours_of(segment, finished)
            derived = derive_indexes(segment, log, remote, beside)
            if not bad and stored[IndexType.TRANSACTION] is None and not segment.txn_index_empty:
                # All other indexes are valid, so the missing one is this index, which exists by the metadata.
                bad = [IndexType.TRANSACTION]
            found: dict[IndexType, bytes] = {}
            for kind in bad:
                data = derived[kind]
                if isinstance(data, str):
                    return _not(f"its {kind.value} index can't be derived: {data}")
                found[kind] = data
            error = _first_error(segment, log, {**stored, **found})
            if error is not None:
                return _not(f"it would not verify with the indexes that its log gives: {error}")
    except RemoteResourceNotFound as e:
        return _not(f"its log is missing, so no index can be derived: {e.message}")
    except CorruptInputError as e:
        return _not(f"its objects can't be decoded: {e.message}")
    return RepairedIndexes(found)


def _not(reason: str) -> RepairedIndexes:
    return RepairedIndexes({}, reason)


def _is_bad(segment: RemoteLogSegmentMetadata, log: FileBytes, stored: Indexes, kind: IndexType) -> bool:
    if stored[kind] is None:
        return kind in _ALWAYS or _first_error(segment, log, {kind: None}) is not None
    return _first_error(segment, log, {kind: stored[kind]}) is not None


def _first_error(segment: RemoteLogSegmentMetadata, log: FileBytes, indexes: Indexes) -> str | None:
    problems = check_segment_bytes(segment, log, indexes)
    return next((each.message for each in problems if each.severity is Severity.ERROR), None)


def store_indexes(steps: Sequence[Step], context: RunContext) -> list[Outcome]:
    """Derive again, store and read back the indexes of each step's segment; one outcome for each step."""
    with spool_folder() as spool:
        return [_stored(step, context, spool) for step in steps]


def _stored(step: Step, context: RunContext, spool: Path) -> Outcome:
    part = context.metadata.state.partition(step.topic_id_partition)
    segment = None if part is None or step.segment_id is None else part.get(step.segment_id)
    if part is None or segment is None:
        return Outcome(step=step, status=Status.DROPPED, reason="the segment was deleted since")
    try:
        found = repaired_indexes(segment, finished_segments(part), context.remote, spool)
        wanted = {kind: data for kind, data in found.indexes.items() if kind in index_types(step)}
        # Reading the log takes time in which the lease may have been lost, so `stop` is asked again before
        # the first write.
        if wanted and context.stop.asked():
            return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
        if wanted:
            with effect("repair.indexes.store"):
                context.remote.store_indexes(segment, wanted)
            _require_stored(segment, wanted, context.remote)
    except (RemoteStorageError, SafetyRefusal) as e:
        return Outcome(step=step, status=Status.FAILED, error=e)
    if found.why_not is not None:
        return Outcome(step=step, status=Status.DROPPED, reason=found.why_not)
    return Outcome(step=step, status=Status.DONE, reason=None if wanted else "its indexes verify by now")


def _require_stored(
    segment: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes], remote: RemoteStorageManager
) -> None:
    for kind, data in indexes.items():
        with remote.fetch_index(segment, kind) as stream:
            if stream.read() != data:
                raise RemoteStorageError(
                    f"the {kind.value} index of {segment.segment_id} differs from the stored bytes",
                    hint="another program writes to this tier: find it, then run tierctl verify --deep",
                )
