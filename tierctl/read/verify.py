"""Gathers what `verify` holds against each other: metadata, a listing of the store, logs, segments' bytes."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from tierctl.errors import CorruptInputError, RemoteResourceNotFound, TierctlError
from tierctl.files import TEMP_SUFFIX
from tierctl.model import (
    LocalLog,
    LocalSegment,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentObjectName,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.segment_bytes import check_segment_bytes
from tierctl.plan.verify import (
    KnownTopics,
    WasDeleted,
    orphan_finding,
    verify_metadata,
    verify_partition_delete,
    verify_topics,
)
from tierctl.plan.verify_store import Orphan, StoreAudit, findings_of
from tierctl.read.check import PartitionFacts, check_partition
from tierctl.read.indexes import UncachedIndexes
from tierctl.read.partitions import Chosen, Readable, refused, tiered_partitions
from tierctl.state.invariants import DANGLING_AFTER_MS, Finding, FindingKind, Severity, finding_of
from tierctl.state.lineage import Lineage
from tierctl.state.tier import TierState
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.object_names import is_temporary, segment_object_name
from tierctl.storage.spool import SpooledSegment, spooled

_K = FindingKind
_S = RemoteLogSegmentState
_COMPARE_BYTES = 1 << 20
_LISTED = frozenset({_K.SIZE_DIFFERS, _K.MISSING_OBJECT})
"""What a listing tells."""

Work = TypeVar("Work")
Result = TypeVar("Result")


class Selected(Chosen, Protocol):
    """Which user partitions are meant."""

    @property
    def narrows(self) -> bool:
        """Whether any is left out."""
        ...

    def matches(self, topic: str | None, topic_id: str | None, partition: int | None) -> bool:
        """Whether a user partition is meant."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    """Fetch every segment and look at its bytes: `threads` at a time, each in a folder within `spool`."""

    spool: Path
    threads: int = 1


def _unwatched(_count: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is verified, and as of when.

    `refresh` reads the metadata to their new end. Without `remote` no object is looked at. `topics` are
    those the brokers have, None when nothing tells; `facts` what a cluster says of partitions, instead of
    their logs. `advance` is called with numbers of objects listed.
    """

    refresh: Callable[[], TierState]
    was_deleted: WasDeleted
    selection: Selected
    now_ms: int
    logs: Sequence[LocalLog] = ()
    topics: KnownTopics | None = None
    facts: Mapping[TopicIdPartition, PartitionFacts] = field(default_factory=dict)
    remote: RemoteStorageManager | None = None
    deep: Deep | None = None
    advance: Callable[[int], None] = _unwatched
    _odd: set[Uuid] = field(default_factory=set)
    """Segments whose objects are not all there, or not of their size."""

    def findings(self) -> Iterator[Finding]:
        """Everything that is found, as it is found; RemoteStorageError when the store fails."""
        state = self.refresh()
        if self.remote is not None:
            state = yield from self._store(self.remote, StoreAudit(state), state)
        yield from (f for f in verify_metadata(state, self.was_deleted) if self._is_meant(f))
        parts = [part for part in state if part.topic_id_partition in self.selection]
        yield from verify_topics(parts, self.topics)
        for part in parts:
            yield from verify_partition_delete(part)
        for readable in tiered_partitions(state, self.logs, self.selection):
            yield from self._partition(readable)

    def _is_meant(self, finding: Finding) -> bool:
        # A record that can't be read may be about any partition.
        return not self.selection.narrows or finding.topic_id is None or self._selects(finding)

    def _selects(self, finding: Finding) -> bool:
        return self.selection.matches(finding.topic, finding.topic_id, finding.partition)

    def _store(
        self, remote: RemoteStorageManager, audit: StoreAudit, state: TierState
    ) -> Generator[Finding, None, TierState]:
        """Findings of the listing; the state as it is after it."""
        young: list[Orphan] = []
        topics = {part.topic_id_partition.topic_id: part.topic_id_partition.topic for part in state}

        def told(orphan: Orphan) -> Finding:
            topic = topics.get(orphan.name.topic_id) if orphan.name else None
            return orphan_finding(orphan, topic, self.was_deleted, self.now_ms)

        for orphan in self._orphans(remote, audit):
            if orphan.modified_ms is None or self.now_ms - orphan.modified_ms <= DANGLING_AFTER_MS:
                young.append(orphan)
            else:
                yield from filter(self._is_meant_orphan, [told(orphan)])
        suspects = [s for s in audit.suspects() if s.partition in self.selection]
        # What was begun or deleted while the store was listed is neither an orphan nor missing.
        state = self.refresh()
        for suspect in suspects:
            part = state.partition(suspect.partition)
            segment = part.cache.get(suspect.segment_id) if part is not None else None
            self._odd.add(suspect.segment_id)
            yield from findings_of(suspect, segment)
        for orphan in young:
            if not _is_live(orphan, state):
                yield from filter(self._is_meant_orphan, [told(orphan)])
        return state

    def _is_meant_orphan(self, finding: Finding) -> bool:
        return not self.selection.narrows or self._selects(finding)

    def _orphans(self, remote: RemoteStorageManager, audit: StoreAudit) -> Iterator[Orphan]:
        """What the listing has beside live segments; objects of one segment beside each other are one."""
        last: Orphan | None = None
        for count, listed in enumerate(remote.list_objects(), 1):
            if not count % 1000:
                self.advance(1000)
            name = segment_object_name(listed.key)
            if name is not None and audit.add(name, listed.size_bytes):
                continue
            key = name.stem if name else listed.key
            if last is None or last.key != key:
                if last is not None:
                    yield last
                last = _orphan(key, name)
            last.add(listed.size_bytes, listed.modified_ms)
        if last is not None:
            yield last

    def _partition(self, readable: Readable) -> Iterator[Finding]:
        why_refused = refused(readable.topic_id_partition)
        remote = self.remote if why_refused is None else None
        fetcher = None if remote is None else UncachedIndexes(remote)
        told: list[TierctlError] = []
        facts = self.facts.get(readable.topic_id_partition)
        yield from check_partition(readable, fetcher, told.append, now_ms=self.now_ms, facts=facts)
        if remote is not None and self.deep is not None:
            yield from self._bytes(readable, remote, self.deep)
        else:
            for error in told:
                message = error.message
                yield finding_of(readable.topic_id_partition, _K.CORRUPT_INDEX, Severity.ERROR, message)

    def _bytes(self, readable: Readable, remote: RemoteStorageManager, deep: Deep) -> Iterator[Finding]:
        finished = (
            segment
            for segment in readable.cache.list_remote_log_segments()
            if segment.state is _S.COPY_SEGMENT_FINISHED
        )

        def check(segment: RemoteLogSegmentMetadata) -> list[Finding]:
            return list(_segment_findings(segment, readable.logs, remote, deep.spool, self._odd))

        for found in _in_parallel(check, finished, deep.threads):
            yield from found


def _orphan(key: str, name: SegmentObjectName | None) -> Orphan:
    if not is_temporary(key):
        return Orphan(key, name)
    return Orphan(key, segment_object_name(key.removesuffix(TEMP_SUFFIX)), is_temporary=True)


def _is_live(orphan: Orphan, state: TierState) -> bool:
    name = orphan.name
    if name is None or orphan.is_temporary:
        return False
    part = state.partitions.get((name.topic_id, name.partition))
    segment = part.cache.get(name.segment_id) if part is not None else None
    return segment is not None and segment.start_offset == name.start_offset


def _segment_findings(
    segment: RemoteLogSegmentMetadata,
    logs: Sequence[LocalLog],
    remote: RemoteStorageManager,
    spool: Path,
    odd: set[Uuid],
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


def _in_parallel(do: Callable[[Work], Result], work: Iterable[Work], threads: int) -> Iterator[Result]:
    """Results in the order of `work`, of which no more than a few pieces are taken ahead."""
    with ThreadPoolExecutor(max_workers=max(threads, 1)) as pool:
        running: deque[Future[Result]] = deque()
        for piece in work:
            running.append(pool.submit(do, piece))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
