"""Gathers what `verify` holds against each other: metadata, a listing of the store, logs, segments' bytes."""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from tierctl.files import TEMP_SUFFIX
from tierctl.model import LocalLog, SegmentObjectName, TopicIdPartition, Uuid
from tierctl.read.partitions import Chosen, ReadablePartition, refused, tiered_partitions
from tierctl.state.tier import TierState
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.layouts.key_parser import is_temporary, segment_object_name
from tierctl.verify.inspection import Look, Piece, pieces_of
from tierctl.verify.leaders import Doubtful, LeaderSide
from tierctl.verify.metadata import (
    KnownTopics,
    WasDeleted,
    orphan_finding,
    verify_metadata,
    verify_partition_delete,
    verify_topics,
)
from tierctl.verify.offsets import PartitionFacts
from tierctl.verify.segments import DANGLING_AFTER_MS, Finding
from tierctl.verify.store import Orphan, StoreAudit, Tally, findings_of

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


class Lookers(Protocol):
    """Who looks at the tier, if not this process."""

    @property
    def segments_a_piece(self) -> int:
        """How many segments' bytes they look at by the way."""
        ...

    def unaccounted(self, tally: Tally) -> Iterator[RemoteObject]:
        """The store's objects that are no live segment's, by key, some that are among them.

        All others have been added to `tally` when it ends.
        """
        ...

    def findings(self, pieces: Iterable[Piece]) -> Iterator[list[Finding]]:
        """What `Look.findings` says of each piece, in their order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is verified, and as of when.

    `refresh` reads the metadata to their new end. Without `remote` no object is looked at. `topics` are
    those the brokers have, None when nothing tells; with `leaders` they, and what goes before `logs`, are
    what a cluster says. `lookers` look at the tier, where it is not this process that does. `advance` is
    called with numbers of objects listed.
    """

    refresh: Callable[[], TierState]
    was_deleted: WasDeleted
    selection: Selected
    now_ms: int
    logs: Sequence[LocalLog] = ()
    topics: KnownTopics | None = None
    leaders: LeaderSide | None = None
    remote: RemoteStorageManager | None = None
    deep: Deep | None = None
    lookers: Lookers | None = None
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
        yield from verify_topics(parts, self.topics if self.leaders is None else self.leaders.topics(state))
        for part in parts:
            yield from verify_partition_delete(part)
        yield from self._partitions(tiered_partitions(state, self.logs, self.selection))

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
        for listed in self._listed(remote, audit.tally):
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

    def _listed(self, remote: RemoteStorageManager, tally: Tally) -> Iterator[RemoteObject]:
        if self.lookers is not None:
            return self.lookers.unaccounted(tally)
        return _watched(remote.list_objects(), self.advance)

    def _partitions(self, readables: Sequence[ReadablePartition]) -> Iterator[Finding]:
        if self.leaders is None:
            for found in self._looked_at(self._pieces(readables, {})):
                yield from found
            return
        facts, unseen = self.leaders.ask(readables)
        yield from unseen
        doubtful = Doubtful(facts)
        for found in self._looked_at(self._pieces(readables, facts)):
            yield from (finding for finding in found if not doubtful.take(finding))
        yield from self.leaders.confirmed(doubtful, self._now, self.now_ms)

    def _now(self, partitions: Collection[TopicIdPartition]) -> list[ReadablePartition]:
        """These partitions, as the metadata have them by now."""
        readables = tiered_partitions(self.refresh(), self.logs, self.selection)
        return [readable for readable in readables if readable.topic_id_partition in partitions]

    def _pieces(
        self, readables: Sequence[ReadablePartition], facts: Mapping[TopicIdPartition, PartitionFacts]
    ) -> Iterator[Piece]:
        segments_a_piece = 0 if self.deep is None else 1
        if self.deep is not None and self.lookers is not None:
            segments_a_piece = self.lookers.segments_a_piece
        for readable in readables:
            yield from pieces_of(
                readable,
                now_ms=self.now_ms,
                facts=facts.get(readable.topic_id_partition),
                has_store=self.remote is not None and refused(readable.topic_id_partition) is None,
                segments_a_piece=segments_a_piece,
                odd=self._odd,
            )

    def _looked_at(self, pieces: Iterator[Piece]) -> Iterator[list[Finding]]:
        if self.lookers is not None:
            return self.lookers.findings(pieces)
        look = Look(remote=self.remote, spool=None if self.deep is None else self.deep.spool)
        return _in_parallel(look.findings, pieces, 1 if self.deep is None else self.deep.threads)


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


def _watched(objects: Iterator[RemoteObject], advance: Callable[[int], None]) -> Iterator[RemoteObject]:
    for count, listed in enumerate(objects, 1):
        if not count % 1000:
            advance(1000)
        yield listed


def _in_parallel(do: Callable[[Work], Result], work: Iterable[Work], threads: int) -> Iterator[Result]:
    """Results in the order of `work`, of which no more than a few pieces are taken ahead."""
    if threads <= 1:
        yield from map(do, work)
        return
    with ThreadPoolExecutor(max_workers=threads) as pool:
        running: deque[Future[Result]] = deque()
        for piece in work:
            running.append(pool.submit(do, piece))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
