"""Segments in a broker's log directories as sources of copies."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierctl.apply.copy.source import (
    Fingerprint,
    Indexes,
    SourceChanged,
    check_and_hash,
    contents,
    fingerprint,
    source_changed,
)
from tierctl.apply.side_effects import SideEffectContext
from tierctl.errors import CorruptInputError
from tierctl.model import (
    EpochEntry,
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
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.steps import Step
from tierctl.state.lineage import Lineage
from tierctl.storage.index_cache import SegmentFiles
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint

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
