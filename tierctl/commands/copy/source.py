"""The source of a copy: finds the segment of a step, and checks that it is still as planned.

There are two kinds of sources: brokers' log directories, and another tier. A remote segment never changes
under its id; it can only be deleted. Therefore a fetched and checked segment stays valid, even if the segment
in the source tier is deleted later.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from tierctl.apply.run_context import SideEffectContext, SourceTier
from tierctl.checks.bytes import Problem, check_segment_bytes
from tierctl.errors import CorruptInputError, RemoteResourceNotFound, RemoteStorageError, UsageError
from tierctl.files import FileBytes
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import (
    EpochEntry,
    HashedFile,
    IndexType,
    LocalLog,
    LocalSegment,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.choices import Severity
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.steps import SOURCE_SEGMENT_ID, Step
from tierctl.state.lineage import Lineage
from tierctl.storage.index_cache import SegmentFiles, spooled
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint
from tierctl.wire.primitives import crc32c_extend

Fingerprint = tuple[tuple[int, int, int], ...]
"""Size, modification time and inode of each file of a segment."""

Indexes = Mapping[IndexType, bytes | None]
"""The content of each index of a segment; None for an index that does not exist."""


class SourceChanged(Exception):  # noqa: N818
    """The segment of a step is no longer as planned; the text states the difference."""


class Source(Protocol):
    """A complete segment in the state in which its step was checked; small and picklable."""

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Return the COPY_SEGMENT_STARTED event of a copy of this segment."""
        ...

    def opened(self, context: SideEffectContext) -> AbstractContextManager["OpenedSource"]:
        """Provide the segment's files during the block.

        Raises TierctlError if the files cannot be read or are damaged.
        """
        ...


class OpenedSource(Protocol):
    """The files of a segment, which were sound when they were opened."""

    @property
    def data(self) -> LogSegmentData:
        """The contents; a store refuses bytes of the log that have another checksum."""
        ...

    def is_unchanged(self) -> bool:
        """Return whether the files still have the bytes that were found sound."""
        ...


class Sources(Protocol):
    """Finds the sources of a wave's steps."""

    def refresh(self, steps: Sequence[Step]) -> None:
        """Read the current segments of the partitions of `steps`."""
        ...

    def find(self, step: Step) -> Source:
        """Return the source of one of the steps; raise SourceChanged if the segment is not as planned."""
        ...

    def with_options(self, context: SideEffectContext) -> SideEffectContext:
        """Return `context` with the stores that opening these sources needs."""
        ...


class HashingFile(FileBytes):
    """A file that is read once from its first byte to its last, and the checksum of the bytes read.

    The bytes that were checked are therefore those that are stored: a store refuses bytes of the file with
    another checksum.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._read_bytes = 0
        self._crc32c = 0

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes as `FileBytes.read` does; `position` is not above the end of the last read."""
        data = super().read(position, size_bytes)
        # The bytes of a batch that the end of a window cuts are read again with the next window.
        new = np.frombuffer(data, np.uint8)[self._read_bytes - position :]
        self._crc32c = crc32c_extend(self._crc32c, new)
        self._read_bytes += len(new)
        return data

    def hashed(self) -> HashedFile:
        """Return the number and the checksum of the bytes that were read."""
        return HashedFile(path=self._path, size_bytes=self._read_bytes, crc32c=self._crc32c)


def check_and_hash(
    metadata: RemoteLogSegmentMetadata, log: Path, indexes: Indexes
) -> tuple[HashedFile, Problem | None]:
    """Check the bytes of a segment and hash its log, in one pass; return the hashed log and the first error.

    Raise OSError if the log cannot be read.
    """
    with HashingFile(log) as file:
        problems = check_segment_bytes(metadata, file, indexes)
        error = next((problem for problem in problems if problem.severity is Severity.ERROR), None)
        return file.hashed(), error


def contents(log: HashedFile, indexes: Indexes) -> LogSegmentData:
    """Return the contents of a segment that has the indexes that every segment has."""
    return LogSegmentData(
        log_segment=log,
        offset_index=indexes[IndexType.OFFSET] or b"",
        time_index=indexes[IndexType.TIMESTAMP] or b"",
        transaction_index=indexes[IndexType.TRANSACTION],
        producer_snapshot_index=indexes[IndexType.PRODUCER_SNAPSHOT] or b"",
        leader_epoch_index=indexes[IndexType.LEADER_EPOCH] or b"",
    )


def fingerprint(files: SegmentFiles) -> Fingerprint:
    """Return size, modification time and inode of every file: a write changes at least one of them.

    Raises SourceChanged if a file is missing.
    """
    try:
        facts = [file.stat() for file in (files.log, *files.indexes.values())]
    except FileNotFoundError as e:
        raise SourceChanged(f"{e.filename} is gone") from None
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)


def source_changed(log: Path) -> RemoteStorageError:
    """Return the error of a segment whose files changed, or were deleted, while it was being copied."""
    return RemoteStorageError(
        f"{log} or one of its indexes changed or was deleted while it was being copied",
        hint="a broker that applies retention or truncates its log does this; run the command again",
    )


ReadLogs = Callable[[Collection[TopicPartition]], Collection[LocalLog]]


def _no_logs(partitions: Collection[TopicPartition]) -> Collection[LocalLog]:  # noqa: ARG001
    return ()


class LogSources:
    """Sources in brokers' log directories; `read_logs` reads the current replicas of the given partitions."""

    def __init__(self, read_logs: ReadLogs = _no_logs) -> None:
        self._read_logs = read_logs
        self._logs: Mapping[tuple[Uuid, int], LocalLog] = {}

    def refresh(self, steps: Sequence[Step]) -> None:
        """Implement `Sources.refresh`."""
        partitions = {step.topic_id_partition.topic_partition for step in steps}
        self._logs = newest_replicas(self._read_logs(partitions))

    def find(self, step: Step) -> "LogSource":
        """Implement `Sources.find`."""
        return find_source(step, self._logs.get(step.topic_id_partition.key))

    def with_options(self, context: SideEffectContext) -> SideEffectContext:
        """Implement `Sources.with_options`: log directories need no further store."""
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """One rolled segment of a local log, with its indexes and leader epochs."""

    partition: TopicIdPartition
    base_offset: int
    next_base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    files: SegmentFiles
    leader_epoch_index: bytes
    fingerprint: Fingerprint

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Implement `Source.started`."""
        partition = self.partition
        return RemoteLogSegmentMetadata(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=segment_id,
            start_offset=self.base_offset,
            end_offset=self.next_base_offset - 1,
            broker_id=broker_id,
            max_timestamp_ms=self.max_timestamp_ms,
            event_timestamp_ms=event_timestamp_ms,
            segment_leader_epochs=self.segment_leader_epochs,
            segment_size_in_bytes=self.size_bytes,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=IndexType.TRANSACTION not in self.files.indexes,
        )

    @contextmanager
    def opened(self, context: SideEffectContext) -> Iterator["OpenedLogSource"]:  # noqa: ARG002
        """Implement `Source.opened`; raise CorruptInputError if the files are damaged.

        A damaged segment must not be copied: brokers trust the copy and delete their own undamaged replicas.
        Files that a running broker changes or deletes meanwhile are not damaged: RemoteStorageError then.
        """
        opened: OpenedLogSource | None = None
        try:
            indexes = self._indexes()
            metadata = self.started(Uuid.from_bytes(bytes(16)), -1, 0)
            log, error = check_and_hash(metadata, self.files.log, indexes)
            opened = OpenedLogSource(contents(log, indexes), self)
            damage = None if error is None else error.message
        except FileNotFoundError:
            damage = "a file is gone"
        if damage is not None and (opened is None or not opened.is_unchanged()):
            raise source_changed(self.files.log)
        if opened is None or damage is not None:
            raise CorruptInputError(
                f"segment {self.files.log} of {self.partition.topic_partition}",
                expected="whole batches and indexes of them",
                found=damage or "",
                hint="this segment and later ones are not copied; the --log-dir of another replica may have "
                "an undamaged one",
            )
        yield opened

    def _indexes(self) -> Indexes:
        return self.files.index_bytes() | {IndexType.LEADER_EPOCH: self.leader_epoch_index}

    def has(self, data: LogSegmentData) -> bool:
        """Return whether the files are still those that were planned, and the indexes the bytes in `data`."""
        try:
            indexes = self._indexes()
            return fingerprint(self.files) == self.fingerprint and contents(data.log_segment, indexes) == data
        except (SourceChanged, OSError):
            return False


@dataclass(frozen=True, slots=True)
class OpenedLogSource:
    """Implement OpenedSource by files in a log directory, to which a running broker may write.

    A write to the log changes its size or time. Indexes are written through a memory map
    (java.nio.MappedByteBuffer), which shows in neither, so their bytes are compared.
    """

    data: LogSegmentData
    source: LogSource

    def is_unchanged(self) -> bool:
        """Implement `OpenedSource.is_unchanged`."""
        return self.source.has(self.data)


def find_source(step: Step, log: LocalLog | None) -> LogSource:
    """Return the segment of `step` in the current `log`; raise SourceChanged if it is not as planned."""
    if log is None:
        raise SourceChanged("the log directories don't hold this partition")
    segment = next((s for s in log.segments if s.base_offset == step.start_offset), None)
    if segment is None:
        raise SourceChanged("the log has no such segment any more")
    if segment.next_base_offset is None or segment.producer_snapshot is None:
        raise SourceChanged("the segment is the active one, or has no producer snapshot after it")
    if segment.next_base_offset > log.last_stable_offset:
        raise SourceChanged(f"the segment reaches above the last stable offset {log.last_stable_offset}")
    source = _source(log, segment, segment.next_base_offset, segment.producer_snapshot)
    _compare(step, source)
    return source


def _source(
    log: LocalLog, segment: LocalSegment, next_base_offset: int, producer_snapshot: Path
) -> LogSource:
    # The lineage begins at the log start, not at the segment: a follower builds its own from this file.
    lineage = Lineage(log.leader_epochs)
    indexes = {
        IndexType.OFFSET: segment.offset_index,
        IndexType.TIMESTAMP: segment.time_index,
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot,
    }
    if segment.transaction_index is not None:
        indexes[IndexType.TRANSACTION] = segment.transaction_index
    files = SegmentFiles(log=segment.log, indexes=indexes)
    return LogSource(
        partition=log.topic_id_partition,
        base_offset=segment.base_offset,
        next_base_offset=next_base_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        segment_leader_epochs=lineage.entries_in_range(segment.base_offset, next_base_offset),
        files=files,
        leader_epoch_index=write_leader_epoch_checkpoint(lineage.truncate_from_end(next_base_offset).entries),
        fingerprint=fingerprint(files),
    )


def _compare(step: Step, source: LogSource) -> None:
    facts = {
        "end_offset": (step.end_offset, source.next_base_offset - 1),
        "segment_size_in_bytes": (step.details.get("segment_size_in_bytes"), source.size_bytes),
        "max_timestamp_ms": (step.details.get("max_timestamp_ms"), source.max_timestamp_ms),
        "segment_leader_epochs": (
            step.details.get("segment_leader_epochs"),
            [list(entry) for entry in source.segment_leader_epochs],
        ),
    }
    changed = [f"{name} was {then}, is {now}" for name, (then, now) in facts.items() if then != now]
    if changed:
        raise SourceChanged(f"the segment changed: {'; '.join(changed)}")


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
