"""Segments in a broker's log directories as sources of copies."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierctl.apply.copy.source import (
    Checksums,
    Fingerprint,
    SourceChanged,
    checksums,
    fingerprint,
    source_changed,
)
from tierctl.apply.side_effects import SideEffectContext
from tierctl.errors import CorruptInputError, StoreWriteFailed
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
from tierctl.model.severity import Severity
from tierctl.plan.preconditions import newest_replicas
from tierctl.plan.steps import Step
from tierctl.state.lineage import Lineage
from tierctl.storage.spool import SpooledSegment
from tierctl.verify.segment_bytes import check_segment_bytes
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
    data: LogSegmentData
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
            txn_index_empty=self.data.transaction_index is None,
        )

    @contextmanager
    def opened(self, context: SideEffectContext) -> Iterator["OpenedLogSource"]:  # noqa: ARG002
        """Implement `Source.opened`; raise CorruptInputError if the files are damaged.

        A damaged segment must not be copied: brokers trust the copy and delete their own undamaged replicas.
        Files that a running broker changes or deletes meanwhile are not damaged: RemoteStorageError then.
        """
        opened = OpenedLogSource(self.data, self.fingerprint, checksums(self.data))
        try:
            damage = self._damage()
        except FileNotFoundError:
            damage = "a file is gone"
        if damage is not None and not opened.is_unchanged():
            raise source_changed(self.data)
        if damage is not None:
            raise CorruptInputError(
                f"segment {self.data.log_segment} of {self.partition.topic_partition}",
                expected="whole batches and indexes of them",
                found=damage,
                hint="nothing from it on is copied; another replica's --log-dir may have it whole",
            )
        yield opened

    def _damage(self) -> str | None:
        data = self.data
        indexes = {
            IndexType.OFFSET: data.offset_index,
            IndexType.TIMESTAMP: data.time_index,
            IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
        }
        if data.transaction_index is not None:
            indexes[IndexType.TRANSACTION] = data.transaction_index
        files = SpooledSegment(log=data.log_segment, indexes=indexes)
        metadata = self.started(Uuid.from_bytes(bytes(16)), -1, 0)
        epochs: dict[IndexType, bytes | None] = {IndexType.LEADER_EPOCH: data.leader_epoch_index}
        with files.log_bytes() as log:
            problems = check_segment_bytes(metadata, log, files.index_bytes() | epochs)
            return next((p.message for p in problems if p.severity is Severity.ERROR), None)


@dataclass(frozen=True, slots=True)
class OpenedLogSource:
    """Implement OpenedSource by files in a log directory, to which a running broker may write.

    `checksums` are those of the bytes that were found sound: the sizes and times of files alone don't show a
    write through a memory map (java.nio.MappedByteBuffer, as of Kafka's indexes).
    """

    data: LogSegmentData
    fingerprint: Fingerprint
    checksums: Checksums

    def is_unchanged(self) -> bool:
        """Implement `OpenedSource.is_unchanged`."""
        try:
            return fingerprint(self.data) == self.fingerprint and checksums(self.data) == self.checksums
        except (SourceChanged, StoreWriteFailed):
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
    _compare(step, source)
    return source


def _source(
    log: LocalLog, segment: LocalSegment, next_base_offset: int, producer_snapshot: Path
) -> LogSource:
    # The lineage begins at the log start, not at the segment: a follower builds its own from this file.
    lineage = Lineage(log.leader_epochs)
    data = LogSegmentData(
        log_segment=segment.log,
        offset_index=segment.offset_index,
        time_index=segment.time_index,
        transaction_index=segment.transaction_index,
        producer_snapshot_index=producer_snapshot,
        leader_epoch_index=write_leader_epoch_checkpoint(lineage.truncate_from_end(next_base_offset).entries),
    )
    return LogSource(
        partition=log.topic_id_partition,
        base_offset=segment.base_offset,
        next_base_offset=next_base_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        segment_leader_epochs=lineage.entries_in_range(segment.base_offset, next_base_offset),
        data=data,
        fingerprint=fingerprint(data),
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
