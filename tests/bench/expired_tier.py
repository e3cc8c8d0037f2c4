"""A tier in which all segments of each user partition except the newest have expired, and its metadata."""

import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES, key_stem
from tierctl.wire.metadata import encode
from tierctl.wire.metadata.partitioner import metadata_partition

from tests.bench import cache
from tests.metadata.topics import topic_in

TOPIC, TOPIC_ID = "orders", Uuid("2QZ5FAXaQrqgUzsReWnweA")
METADATA_PARTITIONS = 50
OBJECTS = (".log", *(suffix for suffix in INDEX_SUFFIXES.values() if suffix != ".txnindex"))
_EXPIRED_MS, _KEPT_MS = 1_700_000_000_000, 1_700_864_000_000
_EPOCHS = b"0\n1\n0 0\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredTier:
    """`segments` expire, spread evenly over `user_partitions`; each has five objects of a few bytes."""

    segments: int
    user_partitions: int = 1

    def __str__(self) -> str:
        objects = len(OBJECTS) * self.segments
        return f"{self.segments:,} segments, {objects:,} objects, {self.user_partitions} user partitions"

    def metadata(self) -> list[RemoteLogSegmentMetadata]:
        """Return the segments, the newest of each user partition last."""
        ids = random.Random(self.segments)
        count = self.segments + self.user_partitions
        return [self._segment(number, ids.randbytes(15)) for number in range(count)]

    def _segment(self, number: int, random_bytes: bytes) -> RemoteLogSegmentMetadata:
        start = 100 * (number // self.user_partitions)
        return RemoteLogSegmentMetadata(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=number % self.user_partitions,
            segment_id=Uuid.from_bytes(b"\x01" + random_bytes),
            start_offset=start,
            end_offset=start + 99,
            broker_id=1,
            max_timestamp_ms=_EXPIRED_MS if number < self.segments else _KEPT_MS,
            event_timestamp_ms=_KEPT_MS,
            segment_leader_epochs=((0, start),),
            segment_size_in_bytes=1000,
        )

    def fill(self, folder: Path, made: Path, root: Path) -> None:
        """Copy the metadata topic `made` to `folder`/metadata, and store the objects below `root`."""
        shutil.rmtree(folder / "metadata", ignore_errors=True)
        shutil.copytree(made, folder / "metadata")
        retention_ms = time.time_ns() // 1_000_000 - (_EXPIRED_MS + _KEPT_MS) // 2
        (folder / "topic.properties").write_text(f"{TOPIC}.retention.ms={retention_ms}\n")
        for segment in self.metadata():
            stem = root / key_stem(segment)
            stem.parent.mkdir(parents=True, exist_ok=True)
            for suffix in OBJECTS:
                stem.with_name(stem.name + suffix).write_bytes(_EPOCHS)
        # Bytes written here must not be flushed to the disk during the run.
        os.sync()

    def check(self, data: Path) -> None:
        """Raise AssertionError unless each bucket in `data` is empty or has the segments that are kept."""
        for bucket in data.iterdir():
            left = sum(path.suffix == ".log" for path in bucket.rglob("*"))
            assert left in {0, self.user_partitions}, f"{left} segments are left in {bucket.name}"


def expired_tier(tier: ExpiredTier) -> Path:
    """Return the folder of the metadata topic of `tier`; it is made once."""

    def make(folder: Path) -> None:
        records = []
        for segment in tier.metadata():
            number = metadata_partition(segment.topic_id, segment.partition, METADATA_PARTITIONS)
            finished = RemoteLogSegmentMetadataUpdate(
                topic=segment.topic,
                topic_id=segment.topic_id,
                partition=segment.partition,
                segment_id=segment.segment_id,
                broker_id=1,
                event_timestamp_ms=_KEPT_MS,
                state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            )
            records += [(number, encode(segment)), (number, encode(finished))]
        topic = topic_in(folder, writable=True, partition_count=METADATA_PARTITIONS)
        topic.append(records)
        topic.close()

    name = f"tiers/expired-{tier.segments}-in-{tier.user_partitions}"
    return cache.make_once(name, make, source=[Path(__file__)])
