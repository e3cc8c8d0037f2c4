"""Where a segment that is to be copied comes from: found again, and seen to be what was planned.

The copier knows only `Source`. A broker's log gives the files themselves; another tier (`tier_source`) a
spool of them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierctl.apply.side_effect_context import Bench
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
from tierctl.plan.plan import Step
from tierctl.plan.preconditions import newest_replicas
from tierctl.state.lineage import Lineage
from tierctl.storage.spool import SpooledSegment
from tierctl.verify.segment_bytes import check_segment_bytes
from tierctl.verify.segments import Severity
from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint

Fingerprint = tuple[tuple[int, int, int], ...]


class SourceChanged(Exception):  # noqa: N818
    """What a step was decided from is no longer so; its text says what."""


class Source(Protocol):
    """One whole segment as it was when its step was seen to hold; small, and picklable."""

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """The COPY_SEGMENT_STARTED event of a copy of it."""
        ...

    def opened(self, bench: Bench) -> AbstractContextManager[LogSegmentData]:
        """The segment's files, which are there while the block lasts.

        Raises TierctlError when they can't be had, or are not what they should be.
        """
        ...

    def is_unchanged(self, data: LogSegmentData) -> bool:
        """Whether nobody wrote to the files of `opened` meanwhile."""
        ...


class Sources(Protocol):
    """Finds the sources of a wave's steps."""

    def refresh(self, steps: Sequence[Step]) -> None:
        """Look anew at what there is of these steps' partitions."""
        ...

    def find(self, step: Step) -> Source:
        """The source of one of them. Raises SourceChanged, saying what changed."""
        ...

    def equip(self, bench: Bench) -> Bench:
        """`bench` with what opening these sources needs."""
        ...


ReadLogs = Callable[[Collection[TopicPartition]], Collection[LocalLog]]


def _no_logs(partitions: Collection[TopicPartition]) -> Collection[LocalLog]:  # noqa: ARG001
    return ()


class LogSources:
    """Sources in brokers' log directories; `read_logs` reads the replicas of some partitions anew."""

    def __init__(self, read_logs: ReadLogs = _no_logs) -> None:
        self._read_logs = read_logs
        self._logs: Mapping[tuple[Uuid, int], LocalLog] = {}

    def refresh(self, steps: Sequence[Step]) -> None:
        """Sources.refresh."""
        partitions = {step.topic_id_partition.topic_partition for step in steps}
        self._logs = newest_replicas(self._read_logs(partitions))

    def find(self, step: Step) -> "LocalSource":
        """Sources.find."""
        return find_source(step, self._logs.get(step.topic_id_partition.key))

    def equip(self, bench: Bench) -> Bench:
        """Sources.equip."""
        return bench


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSource:
    """One rolled segment of a local log, with everything that goes along with it."""

    partition: TopicIdPartition
    base_offset: int
    next_base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    data: LogSegmentData
    fingerprint: Fingerprint

    def started(self, segment_id: Uuid, broker_id: int, event_timestamp_ms: int) -> RemoteLogSegmentMetadata:
        """Source.started."""
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
    def opened(self, bench: Bench) -> Iterator[LogSegmentData]:  # noqa: ARG002
        """Source.opened; CorruptInputError when the files are not what a broker wrote.

        Brokers trust what was copied and delete their own replicas of it, the sound ones too.
        """
        wrong = self._damage()
        if wrong is not None:
            raise CorruptInputError(
                f"segment {self.data.log_segment} of {self.partition.topic_partition}",
                expected="whole batches and indexes of them",
                found=wrong,
                hint="nothing from it on is copied; another replica's --log-dir may have it whole",
            )
        yield self.data

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

    def is_unchanged(self, data: LogSegmentData) -> bool:
        """Source.is_unchanged."""
        try:
            return fingerprint(data) == self.fingerprint
        except SourceChanged:
            return False


def find_source(step: Step, log: LocalLog | None) -> LocalSource:
    """The segment `step` wants copied, in `log` as it is now. Raises SourceChanged, saying what changed."""
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
) -> LocalSource:
    # From the log's start, not the segment's: a follower builds its lineage from this one file.
    lineage = Lineage(log.leader_epochs)
    data = LogSegmentData(
        log_segment=segment.log,
        offset_index=segment.offset_index,
        time_index=segment.time_index,
        transaction_index=segment.transaction_index,
        producer_snapshot_index=producer_snapshot,
        leader_epoch_index=write_leader_epoch_checkpoint(lineage.truncate_from_end(next_base_offset).entries),
    )
    return LocalSource(
        partition=log.topic_id_partition,
        base_offset=segment.base_offset,
        next_base_offset=next_base_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        segment_leader_epochs=lineage.entries_in_range(segment.base_offset, next_base_offset),
        data=data,
        fingerprint=fingerprint(data),
    )


def _compare(step: Step, source: LocalSource) -> None:
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


def fingerprint(data: LogSegmentData) -> Fingerprint:
    """Size, time of change and inode of every file; what is written to changes at least one of them.

    Raises SourceChanged when a file is gone.
    """
    files = (
        data.log_segment,
        data.offset_index,
        data.time_index,
        data.producer_snapshot_index,
        *(() if data.transaction_index is None else (data.transaction_index,)),
    )
    try:
        facts = [file.stat() for file in files]
    except FileNotFoundError as e:
        raise SourceChanged(f"{e.filename} is gone") from None
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)
