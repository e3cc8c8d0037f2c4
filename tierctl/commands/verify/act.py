"""The repairs of `verify`: indexes of a segment that are derived from its log, and lower committed offsets.

An index that verifies is never written again. Nothing is written unless the log is sound, and the segment
verifies with the derived indexes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from tierctl.apply.run import Run
from tierctl.apply.run_context import STOPPED, Outcome, RunContext, Status, effect
from tierctl.checks.bytes import check_segment_bytes
from tierctl.checks.findings import FindingKind
from tierctl.errors import (
    CorruptInputError,
    LockedError,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
)
from tierctl.files import FileBytes
from tierctl.locallog.log_end import ProducerTable
from tierctl.metadata.offset_repair import read_committed, write_committed
from tierctl.model import EpochEntry, IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.model.choices import Severity
from tierctl.plan.repair import FROM_OFFSET, TO_OFFSET, index_types
from tierctl.plan.steps import FILE, Step
from tierctl.state.lineage import Lineage
from tierctl.state.tier_state import PartitionState
from tierctl.storage.index_cache import forget_indexes, spool_folder, spooled
from tierctl.storage.remote_storage_manager import RemoteStorageManager, SegmentReader
from tierctl.wire.batches.batch_head import BatchHead
from tierctl.wire.batches.segment_file import LogBytes, highest_offset_of, scan_windows
from tierctl.wire.files.checkpoints import (
    ProducerEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import AbortedTxn, TransactionIndex, build_indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The finished segments that end where a segment begins, and those that begin where it ends.

    Only segments of the same lineage, as far as leader epochs show it.
    """

    before: Sequence[RemoteLogSegmentMetadata] = ()
    after: Sequence[RemoteLogSegmentMetadata] = ()


def neighbours_of(
    segment: RemoteLogSegmentMetadata, finished: Sequence[RemoteLogSegmentMetadata]
) -> Neighbours:
    """Return the neighbours of `segment` among the finished segments of its partition."""
    first, last = segment.segment_leader_epochs[0][0], segment.segment_leader_epochs[-1][0]
    return Neighbours(
        before=[
            each
            for each in finished
            if each.end_offset + 1 == segment.start_offset and each.segment_leader_epochs[-1][0] <= first
        ],
        after=[
            each
            for each in finished
            if each.start_offset == segment.end_offset + 1 and each.segment_leader_epochs[0][0] >= last
        ],
    )


Derived = dict[IndexType, bytes | str]
"""The bytes of each index, or the reason why it can't be derived."""


def derive_indexes(
    segment: RemoteLogSegmentMetadata, log: LogBytes, remote: SegmentReader, beside: Neighbours
) -> Derived:
    """Return every index of `segment`, whose `log` is valid.

    Raise RemoteStorageError if the store fails while the indexes of the neighbouring segments are read.
    """
    producers = _producers_at_start(segment, remote, beside)
    known = [] if isinstance(producers, str) else producers
    follower = _Follower(ProducerTable.from_snapshot(known), [])
    offsets, times = build_indexes(follower.heads(log, segment.start_offset), segment.start_offset)
    found: Derived = {IndexType.OFFSET: offsets.data, IndexType.TIMESTAMP: times.data}
    if isinstance(producers, str):
        found |= {IndexType.TRANSACTION: producers, IndexType.PRODUCER_SNAPSHOT: producers}
    else:
        found[IndexType.TRANSACTION] = TransactionIndex(tuple(follower.aborted)).encode()
        found[IndexType.PRODUCER_SNAPSHOT] = encode_producer_snapshot(follower.producers.in_file_order())
    found[IndexType.LEADER_EPOCH] = _leader_epochs(segment, remote, beside)
    return found


@dataclass(slots=True)
class _Follower:
    """Follows producers and transactions while the batches of a log are indexed."""

    producers: ProducerTable
    aborted: list[AbortedTxn]

    def heads(self, log: LogBytes, start_offset: int) -> Iterator[BatchHead]:
        """Yield the heads of all batches with their positions in the log, after they were applied."""
        for window in scan_windows(log, 0, start_offset, highest_offset=highest_offset_of(start_offset)):
            heads = window.heads
            for head in map(heads.head, range(len(heads))):
                aborted = self.producers.append(window.data, head)
                if aborted is not None:
                    self.aborted.append(aborted)
                yield head._replace(position=head.position + window.position)


_T = TypeVar("_T")


def _of_each(
    segments: Sequence[RemoteLogSegmentMetadata],
    remote: SegmentReader,
    kind: IndexType,
    decode: Callable[[RemoteLogSegmentMetadata, bytes], _T],
) -> list[_T] | str:
    """Return the decoded index of each of `segments`, or why one, which may differ, can't be read."""
    found = []
    for each in segments:
        try:
            with remote.fetch_index(each, kind) as stream:
                found.append(decode(each, stream.read()))
        except (RemoteResourceNotFound, CorruptInputError) as e:
            return (
                f"the {kind.value} index of segment {each.segment_id} beside it can't be read: {e.message}; "
                "repair that one first, verify --deep says how"
            )
    return found


def _producers_at_start(
    segment: RemoteLogSegmentMetadata, remote: SegmentReader, beside: Neighbours
) -> Sequence[ProducerEntry] | str:
    """Return the producers before the first batch, or the reason why they are unknown."""
    if segment.start_offset == 0:
        return []
    kind = IndexType.PRODUCER_SNAPSHOT
    read = _of_each(beside.before, remote, kind, lambda _, data: decode_producer_snapshot(data))
    if not isinstance(read, str):
        found = set(read)
        if len(found) == 1:
            return found.pop()
        many = "no segment" if not found else "several segments with different producer snapshots"
        read = f"{many} before it"
    return f"the producers before offset {segment.start_offset} are not known: {read}"


def _leader_epochs(
    segment: RemoteLogSegmentMetadata, remote: SegmentReader, beside: Neighbours
) -> bytes | str:
    """Return the lineage up to the end of the segment as a checkpoint file, or why it is unknown."""
    own = [EpochEntry(epoch, start) for epoch, start in sorted(dict(segment.segment_leader_epochs).items())]
    if segment.start_offset == 0:
        return write_leader_epoch_checkpoint(own)
    unknown = f"the leader epochs before offset {segment.start_offset} are not known"
    read = _of_each(beside.before or beside.after, remote, IndexType.LEADER_EPOCH, _lineage_of)
    if isinstance(read, str):
        return f"{unknown}: {read}"
    found = set()
    for entries in read:
        earlier = [entry for entry in entries if entry.start_offset < segment.start_offset]
        if not earlier:
            continue
        later = [entry for entry in own if entry.epoch > earlier[-1].epoch]
        lineage = Lineage([*earlier, *later])
        if list(lineage.entries_in_range(segment.start_offset, segment.end_offset + 1)) == own:
            found.add(write_leader_epoch_checkpoint(lineage.entries))
    if len(found) == 1:
        return found.pop()
    many = "several different ones" if found else "none"
    return f"{unknown}: of the leader-epoch indexes beside the segment, {many} agree with its metadata"


def _lineage_of(segment: RemoteLogSegmentMetadata, data: bytes) -> Sequence[EpochEntry]:
    """Return the entries of a leader-epoch index; CorruptInputError if its segment's metadata differ."""
    lineage = Lineage(read_leader_epoch_checkpoint(data))
    own = tuple(lineage.entries_in_range(segment.start_offset, segment.end_offset + 1))
    if own != tuple(sorted(dict(segment.segment_leader_epochs).items())):
        raise CorruptInputError("its leader epochs", expected="those of its metadata", found="others")
    return lineage.entries


Indexes = Mapping[IndexType, bytes | None]
_ALWAYS = frozenset(IndexType) - {IndexType.TRANSACTION}
"""The indexes that every segment has."""


def repaired_indexes(
    segment: RemoteLogSegmentMetadata,
    part: PartitionState,
    remote: RemoteStorageManager,
    spool: Path,
) -> Mapping[IndexType, bytes] | str:
    """Return the missing and damaged indexes of `segment`, derived from its log, which is fetched to `spool`.

    Return the reason if none of them may be stored, as beside an index of an unknown version, and no index if
    all verify.
    `part` is its partition. Raise RemoteStorageError if the store fails.
    """
    try:
        with spooled(remote, segment, spool) as files, FileBytes(files.log) as log:
            stored = files.index_bytes()
            refusal = _why_not(segment, log, stored)
            if refusal is not None:
                return refusal
            bad = [kind for kind in IndexType if _is_bad(segment, log, stored, kind)]
            finished = part.segments.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
            beside = neighbours_of(segment, list(finished))
            derived = derive_indexes(segment, log, remote, beside)
            if not bad and stored[IndexType.TRANSACTION] is None and not segment.txn_index_empty:
                # All other indexes are valid, so the missing one is this index, which exists by the metadata.
                bad = [IndexType.TRANSACTION]
            found: dict[IndexType, bytes] = {}
            for kind in bad:
                data = derived[kind]
                if isinstance(data, str):
                    return f"its {kind.value} index can't be derived: {data}"
                found[kind] = data
            error = _first_error(segment, log, {**stored, **found})
            if error is not None:
                return f"it would not verify with the indexes that its log gives: {error}"
    except RemoteResourceNotFound as e:
        return f"its log is missing, so no index can be derived: {e.message}"
    except CorruptInputError as e:
        return f"its objects can't be decoded: {e.message}"
    return found


def _why_not(segment: RemoteLogSegmentMetadata, log: FileBytes, stored: Indexes) -> str | None:
    """Return why no index may be stored; None if that is safe."""
    error = _first_error(segment, log, {})
    if error is not None:
        return f"its log is damaged: {error}"
    for problem in check_segment_bytes(segment, log, stored):
        if problem.kind is FindingKind.NOT_UNDERSTOOD:
            return f"one of its indexes is not understood, and may hold more than its log: {problem.message}"
    return None


def _is_bad(segment: RemoteLogSegmentMetadata, log: FileBytes, stored: Indexes, kind: IndexType) -> bool:
    if stored[kind] is None:
        return kind in _ALWAYS or _first_error(segment, log, {kind: None}) is not None
    return _first_error(segment, log, {kind: stored[kind]}) is not None


def _first_error(segment: RemoteLogSegmentMetadata, log: FileBytes, indexes: Indexes) -> str | None:
    problems = check_segment_bytes(segment, log, indexes)
    return next((each.message for each in problems if each.severity is Severity.ERROR), None)


def store_indexes(run: Run, steps: Sequence[Step], state_dir: Path | None) -> None:
    """Derive again, store and read back the indexes of each step's segment; the act of STORE_INDEXES.

    The former ones are removed from the cache in `state_dir`.
    """
    for step in steps:
        run.attempt([step], lambda kept: [_stored(kept[0], run.context, state_dir)], rechecked=True)


def _stored(step: Step, context: RunContext, state_dir: Path | None) -> Outcome:
    part = context.metadata.state.partition(step.topic_id_partition)
    segment = None if part is None or step.segment_id is None else part.get(step.segment_id)
    if part is None or segment is None:
        return Outcome(step=step, status=Status.DROPPED, reason="the segment was deleted since")
    try:
        with spool_folder() as spool:
            found = repaired_indexes(segment, part, context.remote, spool)
        if isinstance(found, str):
            return Outcome(step=step, status=Status.DROPPED, reason=found)
        wanted = {kind: data for kind, data in found.items() if kind in index_types(step)}
        # Reading the log takes time in which the lease may have been lost, so `stop` is asked again before
        # the first write.
        if wanted and context.stop.asked():
            return Outcome(step=step, status=Status.PENDING, reason=STOPPED)
        if wanted:
            with effect("repair.indexes.store"):
                context.remote.store_indexes(segment, wanted)
            if state_dir is not None:
                forget_indexes(state_dir, segment, wanted)
            _require_stored(segment, wanted, context.remote)
    except (RemoteStorageError, CorruptInputError, SafetyRefusal) as e:
        return Outcome(step=step, status=Status.FAILED, error=e)
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


def lower_offsets(run: Run, steps: Sequence[Step]) -> None:
    """Write each file that the steps name once; the act of LOWER_OFFSET.

    A step whose committed offset has changed is dropped.
    """
    for _, group in groupby(steps, key=lambda step: str(step.details[FILE])):
        run.attempt(list(group), _lower_in_file)


def _lower_in_file(steps: Sequence[Step]) -> list[Outcome]:
    path = Path(steps[0].details[FILE])
    try:
        before = read_committed(path).offsets
        offsets = dict(before)
        outcomes = []
        for step in steps:
            found, wanted = offsets.get(step.partition), step.details[TO_OFFSET]
            if found != step.details[FROM_OFFSET]:
                reason = f"the committed offset is {found} now, it was {step.details[FROM_OFFSET]}"
                outcomes.append(Outcome(step=step, status=Status.DROPPED, reason=reason))
                continue
            del offsets[step.partition]
            if wanted is not None:
                offsets[step.partition] = wanted
            outcomes.append(Outcome(step=step, status=Status.DONE))
        if any(outcome.status is Status.DONE for outcome in outcomes):
            with effect("repair.offsets.write"):
                write_committed(path, dict(sorted(offsets.items())), before=before)
    except (CorruptInputError, LockedError, SafetyRefusal) as e:
        return [Outcome(step=step, status=Status.FAILED, error=e) for step in steps]
    return outcomes
