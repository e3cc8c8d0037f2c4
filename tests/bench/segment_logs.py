"""Log directories of a broker with rolled segments, which `copy` copies."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.wire.batches.batch_heads import walk
from tierctl.wire.batches.record_batch import Record, encode_batch
from tierctl.wire.files.checkpoints import (
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
    write_partition_metadata,
)
from tierctl.wire.files.indexes import build_indexes
from tierctl.wire.files.producer_snapshot import encode_producer_snapshot

from tests.bench import cache

TOPIC = "orders"
_TOPIC_ID = Uuid.from_bytes(bytes(range(1, 17)))
_FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """The rolled segments of a topic: their number and size, and the size of a batch."""

    segments: int
    segment_bytes: int = 64 << 20
    batch_bytes: int = 16 << 10
    partitions: int = 4

    def __str__(self) -> str:
        batch = f"{self.batch_bytes >> 10} KiB" if self.batch_bytes >= 1024 else f"{self.batch_bytes} B"
        return f"{self.segments} × {self.segment_bytes >> 20} MiB and indexes, batches of {batch}"


def segment_logs(shape: LogShape) -> Path:
    """Return a folder with `logs`, a log directory, and `topics.properties`; made once."""
    name = f"logs/{shape.segments}x{shape.segment_bytes >> 20}-{shape.batch_bytes}-{shape.partitions}"
    return cache.make_once(name, lambda folder: _make(shape, folder), source=[Path(__file__)])


def files_to_copy(folder: Path) -> list[Path]:
    """Return the files of the rolled segments, the largest first."""
    found = (path for path in folder.glob(f"logs/{TOPIC}-*/[0-9]*") if path.stat().st_size)
    return sorted(found, key=lambda path: (-path.stat().st_size, path))


def _make(shape: LogShape, folder: Path) -> None:
    ends = {}
    for number in range(shape.partitions):
        partition = TopicPartition(TOPIC, number)
        own = folder / "logs" / str(partition)
        own.mkdir(parents=True)
        end = 0
        for at in range(shape.segments // shape.partitions):
            end = _write_segment(own, end, shape, _FIRST_MS + at)
        (own / f"{end:020d}.log").touch()
        (own / "leader-epoch-checkpoint").write_bytes(write_leader_epoch_checkpoint([EpochEntry(0, 0)]))
        (own / "partition.metadata").write_bytes(write_partition_metadata(_TOPIC_ID))
        ends[partition] = end
    for name in ("replication", "recovery-point"):
        (folder / "logs" / f"{name}-offset-checkpoint").write_bytes(write_offset_checkpoint(ends))
    (folder / "topics.properties").write_text(f"{TOPIC}.remote.storage.enable=true\n")


def _write_segment(own: Path, base: int, shape: LogShape, time_ms: int) -> int:
    """Write a segment of equal batches, whose CRC does not cover their base offsets; return its end."""
    size = min(1000, shape.batch_bytes)
    records = [Record(n, time_ms, None, os.urandom(size)) for n in range(shape.batch_bytes // size)]
    batch = encode_batch(records, partition_leader_epoch=0)
    count = shape.segment_bytes // len(batch)
    log = bytearray(batch) * count
    for at in range(count):
        struct.pack_into(">q", log, at * len(batch), base + at * len(records))
    end = base + count * len(records)
    offsets, times = build_indexes(walk(bytes(log)), base)  # type: ignore[arg-type]
    (own / f"{base:020d}.log").write_bytes(log)
    (own / f"{base:020d}.index").write_bytes(offsets.data)
    (own / f"{base:020d}.timeindex").write_bytes(times.data)
    (own / f"{end:020d}.snapshot").write_bytes(encode_producer_snapshot([]))
    return end
