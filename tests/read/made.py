"""Make tiers in folders from logs that a test writes; count the reads of a tier."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tierctl.model import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import batches, encode_batch
from tierctl.wire.files.checkpoints import encode_producer_snapshot, write_leader_epoch_checkpoint
from tierctl.wire.files.indexes import build_indexes

from tests.metadata.events import update_of
from tests.metadata.topics import manager_at
from tests.plan.tier import segment as made_segment
from tests.storage.tiers import local_tier

Segments = list[list[list[Record]]]


def made_tier(folder: Path, partition: TopicIdPartition, segments: Segments) -> dict[str, str]:
    """Make a tier of segments with record batches and indexes as brokers make them; return its options."""
    rng = random.Random(1)
    metadata = manager_at((folder / "metadata"), writable=True)
    remote = local_tier(folder / "remote")
    for segment in segments:
        data = b"".join(encode_batch(records) for records in segment)
        start, end = segment[0][0].offset, segment[-1][-1].offset
        offsets, times = build_indexes((batch.head for batch in batches(data)), start)
        (folder / "log").write_bytes(data)
        found = replace(
            made_segment(0, start, end, size=len(data), partition=partition),
            segment_id=Uuid.from_bytes(rng.randbytes(16)),
            max_timestamp_ms=max(record.timestamp_ms for records in segment for record in records),
            txn_index_empty=True,
        )
        remote.copy_log_segment_data(
            found,
            LogSegmentData(
                log_segment=hashed_file(folder / "log"),
                indexes={
                    IndexType.OFFSET: offsets.data,
                    IndexType.TIMESTAMP: times.data,
                    IndexType.TRANSACTION: None,
                    IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot([]),
                    IndexType.LEADER_EPOCH: write_leader_epoch_checkpoint([(0, 0)]),  # type: ignore[list-item]
                },
            ),
        )
        metadata.publish([found, update_of(found, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)])
    metadata.close()
    return {"metadata": str(folder / "metadata"), "remote": str(folder / "remote")}


HOUR_MS = 3_600_000


def day(rng: random.Random, *, late_ms: int = 0, records_a_minute: int = 3) -> Segments:
    """Make a day of a partition: a segment an hour, a batch a minute, records up to `late_ms` late."""
    segments: Segments = []
    offset = 0
    for hour in range(24):
        segment = []
        for minute in range(60):
            now_ms = hour * HOUR_MS + minute * 60_000 + 10 * HOUR_MS
            stamps = [now_ms + i - rng.randint(0, late_ms) for i in range(records_a_minute)]
            value = rng.randbytes(400)
            segment.append([Record(offset + i, ms, b"k", value) for i, ms in enumerate(stamps)])
            offset += records_a_minute
        segments.append(segment)
    return segments


@dataclass
class Asked:
    """Bytes of logs that were read, and the number of segments whose logs and indexes were read."""

    log_bytes: int = 0
    logs: set[Uuid] = field(default_factory=set)
    indexes: Counter[tuple[Uuid, IndexType]] = field(default_factory=Counter)


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Count the reads of tiers in this process during the block."""
    asked = Asked()
    log, index = RemoteStorageManager.fetch_log_segment, RemoteStorageManager.fetch_index

    def fetch_log_segment(
        self: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None
    ) -> BinaryIO:
        size = metadata.segment_size_in_bytes
        asked.log_bytes += min(size, size if end is None else end + 1) - min(start, size)
        asked.logs.add(metadata.segment_id)
        return log(self, metadata, start, end)

    def fetch_index(self: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> Any:
        asked.indexes[metadata.segment_id, kind] += 1
        return index(self, metadata, kind)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteStorageManager, "fetch_log_segment", fetch_log_segment)
        patch.setattr(RemoteStorageManager, "fetch_index", fetch_index)
        yield asked
