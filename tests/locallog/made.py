"""Log directories that tests create."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tierctl.locallog.folders import SegmentFiles
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.state.lineage import Lineage
from tierctl.wire.batches.batch_head import HEAD_SIZE, Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.batches.scan import scan_heads
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    ProducerEntry,
    encode_producer_snapshot,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.indexes import TimeIndex, build_indexes

from tests.wire.batches.same import scan

TOPIC_ID = Uuid("WXLMw9uDS32Q2fp63a9ugA")
PARTITION = TopicPartition("made", 0)
TIME_MS = 1_700_000_000_000
INDEX_BYTES = 10 << 20


def batch(offset: int, count: int = 1, *, epoch: int = 0, size: int = 30) -> bytes:
    records = [Record(at, TIME_MS + at, None, b"v" * size) for at in range(offset, offset + count)]
    return encode_batch(records, partition_leader_epoch=epoch)


def three_segments() -> list[list[bytes]]:
    """Return segments from offsets 0, 20 and 40 on, each of ten batches of two records."""
    return [[batch(n, 2) for n in range(base, base + 20, 2)] for base in (0, 20, 40)]


def write_log(
    directory: Path,
    segments: Sequence[Sequence[bytes]],
    *,
    partition: TopicPartition = PARTITION,
    high_watermark: int | None = None,
    recovery_point: int | None = None,
    log_start: int | None = None,
    epochs: Sequence[EpochEntry] = (EpochEntry(0, 0),),
    snapshots: Mapping[int, Sequence[ProducerEntry]] | None = None,
    interval_bytes: int = 200,
    preallocated: bool = False,
) -> Path:
    """Write a partition with these segments (lists of batches) to `directory`; return the partition's folder.

    Only the last segment may be empty; its name is then the end offset of the segment before it. Its indexes
    are `preallocated` as those of a running broker with Kafka's default of `segment.index.bytes`.
    """
    folder = directory / str(partition)
    folder.mkdir(parents=True)
    end = 0
    for batches in segments:
        data = b"".join(batches)
        base = scan(data)[0].base_offset if data else end
        files = SegmentFiles(folder, base)
        files.log.write_bytes(data)
        offsets, times = build_indexes(scan(data), base, interval_bytes=interval_bytes)
        files.path(".index").write_bytes(offsets.data)
        files.path(".timeindex").write_bytes(times.data)
        end = max((head.next_offset for head in scan(data)), default=base)
    if preallocated:
        os.truncate(files.path(".index"), INDEX_BYTES)
        os.truncate(files.path(".timeindex"), INDEX_BYTES - INDEX_BYTES % TimeIndex.ENTRY_BYTES)
    for offset, entries in (snapshots or {}).items():
        (folder / f"{offset:020d}.snapshot").write_bytes(encode_producer_snapshot(entries))
    (folder / "leader-epoch-checkpoint").write_bytes(write_leader_epoch_checkpoint(epochs))
    (folder / "partition.metadata").write_bytes(write_partition_metadata(TOPIC_ID))
    _checkpoint(directory, "replication", partition, end if high_watermark is None else high_watermark)
    _checkpoint(directory, "recovery-point", partition, end if recovery_point is None else recovery_point)
    _checkpoint(directory, "log-start", partition, log_start)
    return folder


def _checkpoint(directory: Path, kind: str, partition: TopicPartition, offset: int | None) -> None:
    entries = {} if offset is None else {partition: offset}
    (directory / f"{kind}-offset-checkpoint").write_bytes(write_offset_checkpoint(entries))


def raise_log_start(directory: Path, partition: TopicPartition, offset: int) -> None:
    """Raise the log start of a partition as brokers do, which cut the leader epochs first."""
    epochs = directory / str(partition) / LEADER_EPOCHS_FILE
    lineage = Lineage(read_leader_epoch_checkpoint(epochs.read_bytes())).truncate_from_start(offset)
    epochs.write_bytes(write_leader_epoch_checkpoint(lineage.entries))
    starts = directory / LOG_STARTS_FILE
    known = read_offset_checkpoint(starts.read_bytes()) if starts.exists() else {}
    starts.write_bytes(write_offset_checkpoint({**known, partition: offset}))


def damage_last_batch(folder: Path) -> int:
    """Change a byte of the last batch of the log in a partition's folder; return its first offset."""
    log = max(folder.glob("*.log"))
    data = bytearray(log.read_bytes())
    heads = scan_heads(bytes(data))
    data[int(heads.positions[-1]) + HEAD_SIZE + 5] ^= 4
    log.write_bytes(bytes(data))
    return int(heads.base_offsets[-1])


def cut_last_batch(folder: Path) -> None:
    """Cut the last batch off the log in a partition's folder, as a disk does that lost a write."""
    log = max(folder.glob("*.log"))
    os.truncate(log, int(scan_heads(log.read_bytes()).positions[-1]))
