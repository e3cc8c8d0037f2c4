"""Open captured tiers for reading, from their metadata logs on disk."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from tierctl.errors import TierctlError
from tierctl.locallog import read_log_dirs
from tierctl.model import IsolationLevel, LocalLog, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.model.local import ClusterLog
from tierctl.read.partition_reader import FetchedRecord, PartitionReader
from tierctl.read.readable_log import ReadableLog
from tierctl.read.segment import UncachedIndexes
from tierctl.state.fold import fold, fold_event
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.metadata.decode import decode_values

from tests.metadata.events import update_of
from tests.read.brute import sha


def metadata_values(folder: Path) -> list[tuple[int, int, bytes | None]]:
    """Return (metadata partition, offset, value) of every record, partition by partition."""
    return [
        (int(log.parent.name.rpartition("-")[2]), record.offset, record.value)
        for log in sorted(folder.glob("__remote_log_metadata-*/*.log"))
        for batch in batches(log.read_bytes())
        if not batch.head.is_control
        for record in batch.records()
    ]


def state_of(values: Iterable[tuple[int, int, bytes | None]], state: TierState | None = None) -> TierState:
    state = state or TierState()
    for partition, records in groupby(values, key=itemgetter(0)):
        _, offsets, column = zip(*records, strict=True)
        events = decode_values(pa.array(column, pa.binary()))
        fold(events, state, metadata_partition=partition, metadata_offsets=offsets)
    return state


def read_state(folder: Path) -> TierState:
    """Return the state of a broker's `__remote_log_metadata-*` folders."""
    return state_of(metadata_values(folder))


@dataclass
class Tier:
    """A captured tier, and the problems that a read of it reported."""

    state: TierState
    remote_folder: Path
    logs: list[LocalLog] = field(default_factory=list)
    problems: list[TierctlError] = field(default_factory=list)

    @classmethod
    def of(cls, metadata: Path, remote: Path, *log_dirs: Path) -> "Tier":
        logs = read_log_dirs(list(log_dirs)) if log_dirs else []
        return cls(read_state(metadata), remote, logs)

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        wanted = (topic, partition)
        return next(
            p for p in self.state if (p.topic_id_partition.topic, p.topic_id_partition.partition) == wanted
        )

    def view(
        self,
        topic: str,
        partition: int = 0,
        log_start_offset: int | None = None,
        leader: ClusterLog | None = None,
    ) -> ReadableLog:
        part = self.partition(topic, partition)
        remote = open_tier(TierSpec(self.remote_folder.as_uri()))
        return ReadableLog.of(
            part.topic_id_partition,
            part.cache,
            [log for log in self.logs if log.topic_id_partition == part.topic_id_partition],
            remote=remote,
            fetcher=UncachedIndexes(remote),
            report=self.problems.append,
            log_start_offset=log_start_offset,
            leader=leader,
        )

    def reader(
        self,
        topic: str,
        partition: int = 0,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        log_start_offset: int | None = None,
    ) -> PartitionReader:
        view = self.view(topic, partition, log_start_offset)
        indexes = UncachedIndexes(view.remote)
        return PartitionReader(view, indexes, self.problems.append, isolation=isolation)

    def segments(self, topic: str, partition: int = 0) -> list[RemoteLogSegmentMetadata]:
        found = self.partition(topic, partition).cache.list_remote_log_segments()
        return sorted(found, key=lambda s: s.start_offset)

    def move(self, segment: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState) -> None:
        """Fold the events that move a segment to one state after the other."""
        home = self.state.partitions[segment.topic_id_partition.key].metadata_partition
        for each in states:
            event = update_of(segment, each)
            fold_event(event, self.state, metadata_partition=home, metadata_offset=1_000_000)

    def object(self, segment: RemoteLogSegmentMetadata, suffix: str) -> Path:
        (found,) = self.remote_folder.glob(f"*/*/*{segment.segment_id}{suffix}")
        return found


def as_answers(records: Iterable[FetchedRecord]) -> list[tuple[int, int, str | None, str | None]]:
    return [(r.offset, r.timestamp_ms, sha(r.key), sha(r.value)) for r in records]
