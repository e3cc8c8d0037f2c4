"""The log of one user partition: its records in memory, and the files that a broker has of it."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.model import EpochEntry, TopicIdPartition
from tierctl.storage.layouts.kafka import LOG_SUFFIX
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import batches, encode_batch
from tierctl.wire.files.checkpoints import (
    META_PROPERTIES,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.indexes import build_indexes

EMPTY_SNAPSHOT = encode_producer_snapshot([])
COPIED_SUFFIXES = (LOG_SUFFIX, ".index", ".timeindex", ".snapshot")
"""The objects of a segment whose bytes follow from the log alone."""


@dataclass(slots=True)
class ModelSegment:
    """One segment: its batches as (first offset, encoded bytes), and the largest timestamp."""

    base_offset: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    max_timestamp_ms: int = -1
    next_base_offset: int | None = None
    """The base offset of the segment after it; None for the active segment."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The files of a rolled segment by suffix; the snapshot is the one at `next_base_offset`."""

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for _, data in self.batches)


@dataclass(slots=True)
class ModelLog:
    """A log in `folder`; `segments` are the local ones, `history` all that were ever rolled.

    `log_start_offset` belongs to the partition, and tierctl may raise it. Records below `high_watermark` are
    committed: no election removes them.
    """

    partition: TopicIdPartition
    folder: Path
    segments: list[ModelSegment] = field(default_factory=lambda: [ModelSegment(0)])
    history: dict[int, ModelSegment] = field(default_factory=dict)
    epochs: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0)])
    lineage: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0)])
    """All leader epochs from offset 0 on; `epochs`, as the checkpoint, begins at the log start."""
    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0
    requested_start_offset: int = 0
    """The highest log start that an operator asked for with DeleteRecords."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        # A log directory without partitions is known by it.
        (self.folder.parent / META_PROPERTIES).write_text("version=1\n")
        (self.folder / "partition.metadata").write_bytes(write_partition_metadata(self.partition.topic_id))
        self._path(0, LOG_SUFFIX).write_bytes(b"")
        self._write_epochs()

    def _path(self, offset: int, suffix: str) -> Path:
        return self.folder / f"{offset:020d}{suffix}"

    @property
    def epoch(self) -> int:
        return self.epochs[-1].epoch

    @property
    def local_start_offset(self) -> int:
        return self.segments[0].base_offset

    def append(self, count: int, timestamp_ms: int) -> None:
        """Append one batch of `count` records to the active segment."""
        first = self.log_end_offset
        records = [Record(first + n, timestamp_ms, None, b"%d" % (first + n)) for n in range(count)]
        data = encode_batch(records, partition_leader_epoch=self.epoch)
        active = self.segments[-1]
        active.batches.append((first, data))
        active.max_timestamp_ms = max(active.max_timestamp_ms, timestamp_ms)
        self.log_end_offset = first + count
        with self._path(active.base_offset, LOG_SUFFIX).open("ab") as file:
            file.write(data)

    def roll(self) -> None:
        """Close the active segment, unless it is empty, and begin the next one."""
        active = self.segments[-1]
        if not active.batches:
            return
        end = self.log_end_offset
        data = b"".join(batch for _, batch in active.batches)
        index, times = build_indexes((batch.head for batch in batches(data)), active.base_offset)
        active.files = {
            LOG_SUFFIX: data,
            ".index": index.data,
            ".timeindex": times.data,
            ".snapshot": EMPTY_SNAPSHOT,
        }
        active.next_base_offset = end
        self._path(active.base_offset, ".index").write_bytes(index.data)
        self._path(active.base_offset, ".timeindex").write_bytes(times.data)
        self._path(end, ".snapshot").write_bytes(EMPTY_SNAPSHOT)
        self._path(end, LOG_SUFFIX).write_bytes(b"")
        self.segments.append(ModelSegment(end))
        self.history[active.base_offset] = active

    def elect(self) -> None:
        """Begin a leader epoch: the new leader has the committed records only."""
        self._truncate_to(self.high_watermark)
        following = EpochEntry(self.epoch + 1, self.log_end_offset)
        for entries in (self.epochs, self.lineage):
            entries[:] = [entry for entry in entries if entry.start_offset < self.log_end_offset]
            entries.append(following)
        self._write_epochs()

    def _truncate_to(self, offset: int) -> None:
        while self.segments[-1].base_offset > offset:
            removed = self.segments.pop()
            self._remove_files(removed)
            self.history.pop(removed.base_offset, None)
        active = self.segments[-1]
        self.history.pop(active.base_offset, None)
        # The batch that contains `offset` is never cut, because the high watermark is between batches.
        active.batches = [(first, data) for first, data in active.batches if first < offset]
        active.next_base_offset, active.files = None, {}
        heads = [batch.head for _, data in active.batches for batch in batches(data)]
        active.max_timestamp_ms = max((head.max_timestamp_ms for head in heads), default=-1)
        path = self._path(active.base_offset, LOG_SUFFIX)
        for suffix in (".index", ".timeindex"):
            self._path(active.base_offset, suffix).unlink(missing_ok=True)
        path.write_bytes(b"".join(data for _, data in active.batches))
        self.log_end_offset = offset

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start, cut the leader epochs, and remove the local segments wholly below it."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        below = [entry for entry in self.epochs if entry.start_offset <= offset]
        above = [entry for entry in self.epochs if entry.start_offset > offset]
        self.epochs = [EpochEntry(below[-1].epoch, offset), *above] if below else above
        self._write_epochs()
        self.drop_local_below(offset)

    def drop_local_below(self, offset: int) -> None:
        """Remove the rolled local segments that end at or below `offset`."""
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self._remove_files(self.segments.pop(0))

    def _remove_files(self, segment: ModelSegment) -> None:
        for suffix in (LOG_SUFFIX, ".index", ".timeindex"):
            self._path(segment.base_offset, suffix).unlink(missing_ok=True)
        self._path(segment.base_offset, ".snapshot").unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder: the topic was deleted."""
        shutil.rmtree(self.folder)

    def _write_epochs(self) -> None:
        data = write_leader_epoch_checkpoint(self.epochs)
        (self.folder / "leader-epoch-checkpoint").write_bytes(data)

    def rolled_committed(self) -> list[ModelSegment]:
        """Return the local segments that may be copied: rolled, and wholly below the high watermark."""
        return [
            segment
            for segment in self.segments
            if segment.next_base_offset is not None and segment.next_base_offset <= self.high_watermark
        ]

    def bytes_from(self, offset: int) -> int:
        """Return the size of all records from `offset` to the log end, wherever they are stored."""
        whole = {segment.base_offset: segment for segment in (*self.history.values(), *self.segments)}
        return sum(
            len(data) for segment in whole.values() for first, data in segment.batches if first >= offset
        )
