"""The source of a copy: finds the segment of a step, and checks that it is still as planned.

There are two kinds of sources: brokers' log directories, and another tier. A remote segment never changes
under its id; it can only be deleted. Therefore a fetched and checked segment stays valid, even if the segment
in the source tier is deleted later.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tierctl.apply.run_context import SideEffectContext, SourceTier
from tierctl.checks.bytes import Problem, check_segment_bytes
from tierctl.errors import (
    NOT_ALLOWED,
    AuthenticationError,
    CorruptInputError,
    NotFoundError,
    RemoteResourceNotFound,
    RemoteStorageError,
    UsageError,
)
from tierctl.files import FileBytes
from tierctl.locallog.folders import require_log_dirs
from tierctl.locallog.log_end import OnError, read_log_dirs
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.model import (
    HashedFile,
    IndexType,
    LocalLog,
    LocalSegment,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.model.choices import Severity
from tierctl.model.local import SegmentFiles
from tierctl.plan.copy import segment_to_copy
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.steps import SOURCE_SEGMENT_ID, Step, segment_facts
from tierctl.state.lineage import Lineage
from tierctl.storage.index_cache import spooled
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint
from tierctl.wire.files.indexes import trimmed
from tierctl.wire.primitives import crc32c_extend

Fingerprint = tuple[tuple[int, int, int], ...]
"""Size, modification time and inode of each file of a segment."""

Indexes = Mapping[IndexType, bytes | None]
"""The content of each index of a segment; None for an index that does not exist."""


class SourceChanged(Exception):  # noqa: N818
    """The segment of a step is no longer as planned; the text states the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """The contents of a segment's files, which were sound when they were opened.

    `is_unchanged` returns whether the files still have these bytes; a store refuses bytes of the log that
    have another checksum. `note` says which offsets have no record: brokers copy such segments, too.
    """

    data: LogSegmentData
    is_unchanged: Callable[[], bool]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(ABC):
    """A complete segment in the state in which its step was checked; small and picklable.

    `metadata` are those of a copy that was started, but for what each attempt states anew.
    """

    metadata: RemoteLogSegmentMetadata

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Return the COPY_SEGMENT_STARTED event of a copy of this segment."""
        return replace(
            self.metadata,
            segment_id=segment_id,
            broker_id=broker_id,
            event_timestamp_ms=event_timestamp_ms,
        )

    @abstractmethod
    def opened(self, context: SideEffectContext) -> AbstractContextManager[OpenedSource]:
        """Provide the segment's files during the block.

        Raises TierctlError if the files cannot be read or are damaged.
        """


class Sources(ABC):
    """Finds the sources of a wave's steps."""

    source_tier: SourceTier | None = None
    """The tier that opening these sources needs."""

    @abstractmethod
    def refresh(self, steps: Sequence[Step]) -> None:
        """Read the current segments of the partitions of `steps`."""

    @abstractmethod
    def find(self, step: Step) -> Source:
        """Return the source of one of the steps; raise SourceChanged if the segment is not as planned."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """A log that was checked and hashed in one pass, with the first error, and a note on missing offsets."""

    log: HashedFile
    error: Problem | None
    note: str | None


def check_and_hash(metadata: RemoteLogSegmentMetadata, log: Path, indexes: Indexes) -> CheckedLog:
    """Check the bytes of a segment up to the first error, and hash its log, in one pass.

    Raise OSError if the log cannot be read.
    """
    notes: list[str] = []
    with HashingFile(log) as file:
        for problem in check_segment_bytes(metadata, file, indexes):
            if problem.severity is Severity.ERROR:
                return CheckedLog(log=file.hashed(), error=problem, note=None)
            if problem.severity is Severity.INFO:
                notes.append(problem.message)
        return CheckedLog(log=file.hashed(), error=None, note="; ".join(notes) or None)


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


class LogSources(Sources):
    """Sources in brokers' log directories; `on_error` receives the error of a log, as in `read_log_dirs`."""

    def __init__(self, dirs: Sequence[Path], on_error: OnError | None = None) -> None:
        self._dirs = dirs
        self._on_error = on_error
        self._logs: Mapping[tuple[Uuid, int], LocalLog] = {}

    def refresh(self, steps: Sequence[Step]) -> None:
        """Implement `Sources.refresh`; raise NotFoundError if a log directory is not mounted any more."""
        require_log_dirs(self._dirs)
        partitions = {step.topic_id_partition.topic_partition for step in steps}
        logs = read_log_dirs(self._dirs, select=partitions.__contains__, on_error=self._on_error)
        self._logs = newest_replicas(logs)

    def find(self, step: Step) -> "LogSource":
        """Implement `Sources.find`."""
        return find_source(step, self._logs.get(step.topic_id_partition.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource(Source):
    """One rolled segment of a local log, with its indexes and leader epochs.

    A running broker may write to the files. A write to the log changes its size or time. Indexes are written
    through a memory map (java.nio.MappedByteBuffer), which shows in neither, so their bytes are compared.
    """

    files: SegmentFiles
    leader_epoch_index: bytes
    fingerprint: Fingerprint

    @contextmanager
    def opened(self, context: SideEffectContext) -> Iterator[OpenedSource]:  # noqa: ARG002
        """Implement `Source.opened`; raise CorruptInputError if the files are damaged.

        A damaged segment must not be copied: brokers trust the copy and delete their own undamaged replicas.
        Files that a running broker changes or deletes meanwhile are not damaged: RemoteStorageError then.
        Raise NotFoundError if this host has no such log directory, and AuthenticationError if it is closed.
        """
        data: LogSegmentData | None = None
        note: str | None = None
        try:
            indexes = self._indexes()
            checked = check_and_hash(self.metadata, self.files.log, indexes)
            data, note = LogSegmentData(log_segment=checked.log, indexes=indexes), checked.note
            damage = None if checked.error is None else checked.error.message
        except OSError as e:
            self._require_log_dir()
            if not isinstance(e, FileNotFoundError):
                raise
            damage = "a file is gone"
        if damage is not None and (data is None or not self._has(data)):
            raise source_changed(self.files.log)
        if data is None or damage is not None:
            raise CorruptInputError(
                f"segment {self.files.log} of {self.metadata.topic_id_partition.topic_partition}",
                expected="whole batches and indexes of them",
                found=damage or "",
                hint="this segment and later ones are not copied; the --log-dir of another replica may have "
                "an undamaged one",
            )
        yield OpenedSource(data=data, is_unchanged=partial(self._has, data), note=note)

    def _require_log_dir(self) -> None:
        """Raise NotFoundError if the log directory is missing or empty: the disk is not mounted here.

        Raise AuthenticationError if this user may not list it.
        """
        folder = self.files.log.parent.parent
        try:
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
                if next(entries, None) is not None:
                    return
        except PermissionError as e:
            raise AuthenticationError(f"{folder}: {e.strerror}", hint=NOT_ALLOWED) from e
        raise NotFoundError(
            f"there is no log directory at {folder}",
            hint="--log-dir must be mounted at the same path on every host that copies, executors included",
        )

    def _indexes(self) -> Indexes:
        """Return the indexes without preallocated zeros, which remain where a broker ended uncleanly.

        It removes them when it loads the log; from a tier, brokers refuse a time index that has them.
        """
        stored = self.files.index_bytes().items()
        indexes = {kind: None if data is None else trimmed(data, kind) for kind, data in stored}
        return indexes | {IndexType.LEADER_EPOCH: self.leader_epoch_index}

    def _has(self, data: LogSegmentData) -> bool:
        """Return whether the files are still those that were planned, and the indexes the bytes in `data`."""
        try:
            indexes = self._indexes()
            return fingerprint(self.files) == self.fingerprint and indexes == data.indexes
        except (SourceChanged, OSError):
            return False


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
    _compare(step, source.metadata)
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
        metadata=segment_to_copy(log, segment, next_base_offset),
        files=files,
        leader_epoch_index=write_leader_epoch_checkpoint(lineage.truncate_from_end(next_base_offset).entries),
        fingerprint=fingerprint(files),
    )


def _compare(step: Step, found: RemoteLogSegmentMetadata) -> None:
    """Raise SourceChanged if the segment that was `found` is not the one of `step`."""
    now = segment_facts(found)
    compared = ("segment_size_in_bytes", "max_timestamp_ms", "segment_leader_epochs")
    facts = {"end_offset": (step.end_offset, found.end_offset)}
    facts |= {name: (step.details.get(name), now[name]) for name in compared}
    changed = [f"{name} was {then}, is {now}" for name, (then, now) in facts.items() if then != now]
    if changed:
        raise SourceChanged(f"the segment changed: {'; '.join(changed)}")


_S = RemoteLogSegmentState


class TierSources(Sources):
    """Sources in another tier, which has its own metadata; a segment is in `spool` while it is copied."""

    def __init__(self, metadata: RemoteLogMetadataManager, remote: RemoteStorageManager, spool: Path) -> None:
        self.metadata = metadata
        self.remote = remote
        self.source_tier = SourceTier(remote=remote, spool=spool)

    def refresh(self, steps: Sequence[Step]) -> None:  # noqa: ARG002
        """Implement `Sources.refresh`."""
        self.metadata.refresh()

    def find(self, step: Step) -> "TierSource":
        """Implement `Sources.find`: a copy has the segment's metadata, but those of its own tier."""
        segment = self._segment(step)
        if segment is None:
            raise SourceChanged("the source tier has no such segment any more")
        if segment.state is not _S.COPY_SEGMENT_FINISHED:
            raise SourceChanged(f"the segment is {segment.state} in the source tier")
        if (segment.start_offset, segment.end_offset) != (step.start_offset, step.end_offset):
            raise SourceChanged("the segment's offsets are others than when this was decided")
        metadata = replace(
            segment,
            leader_epoch=None,
            custom_metadata=None,
            state=_S.COPY_SEGMENT_STARTED,
            txn_index_empty=segment.txn_index_empty or self._has_no_transactions(segment),
        )
        return TierSource(metadata=metadata, segment=segment)

    def _segment(self, step: Step) -> RemoteLogSegmentMetadata | None:
        segment_id = step.details.get(SOURCE_SEGMENT_ID)
        if not isinstance(segment_id, str):
            return None
        return self.metadata.state.segment(step.topic_id_partition, Uuid.parse(segment_id))

    def _has_no_transactions(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return True if the transaction index is empty: brokers before 4.0 never set `txn_index_empty`."""
        try:
            with self.remote.fetch_index(segment, IndexType.TRANSACTION) as stream:
                return not stream.read(1)
        except RemoteResourceNotFound:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSource(Source):
    """One finished segment of another tier, where `segment` are its metadata."""

    segment: RemoteLogSegmentMetadata

    @contextmanager
    def opened(self, context: SideEffectContext) -> Iterator[OpenedSource]:
        """Implement `Source.opened`; raise CorruptInputError if the bytes do not match the metadata.

        No other process writes to the files in the spool folder.
        """
        if context.source_tier is None:
            raise UsageError("--from-remote is missing: the plan copies segments from another tier")
        source, segment = context.source_tier, self.segment
        with spooled(source.remote, segment, source.spool) as files:
            indexes = files.index_bytes()
            checked = check_and_hash(segment, files.log, indexes)
            if checked.error is not None:
                raise CorruptInputError(
                    f"remote segment {segment.segment_id} of {segment.topic}-{segment.partition} from offset "
                    f"{segment.start_offset}",
                    expected="what its metadata say",
                    found=checked.error.message,
                    hint="this segment and later ones are not copied; tierctl verify --deep lists all "
                    "problems",
                )
            if self.metadata.txn_index_empty:
                indexes[IndexType.TRANSACTION] = None
            known = fingerprint(files)
            yield OpenedSource(
                data=LogSegmentData(log_segment=checked.log, indexes=indexes),
                is_unchanged=lambda: fingerprint(files) == known,
                note=checked.note,
            )
