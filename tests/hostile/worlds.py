"""Tiers with objects and metadata that a few bytes make expensive, and runs whose cost is measured."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.model import (
    IndexType,
    LogSegmentData,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from tierctl.storage.layouts.kafka import SegmentLayout
from tierctl.storage.stores.base import hashed_file
from tierctl.wire.batches.batch_head import CompressionType, Record, compress
from tierctl.wire.batches.record_batch import batches, encode_batch, encode_records, seal
from tierctl.wire.files.checkpoints import encode_producer_snapshot
from tierctl.wire.metadata.values import encode, metadata_partition

from tests.metadata.events import update_of
from tests.metadata.topics import topic_in
from tests.storage.segments import metadata_of
from tests.storage.tiers import local_tier

SECONDS_MAX = 5.0
RSS_MAX = 300 << 20

_MEASURED = """
import json, sys, time
from tierctl.cli.entry import run
code = run(sys.argv[2:])
sys.stdout.flush()
# The processor's time, as other processes may use the processor, too.
seconds = time.process_time()
# Not ru_maxrss, which begins with that of the process that started this one.
(peak,) = (int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
cost = {"code": code, "seconds": seconds, "rss": 1024 * peak}
open(sys.argv[1], "w").write(json.dumps(cost))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The outcome of a command in its own process, and what it cost."""

    code: int
    seconds: float
    rss: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of output as objects."""
        return [json.loads(line) for line in self.out.splitlines()]


def measured(folder: Path, *args: object, timeout_s: float = 120) -> Cost:
    """Run a command line in a process and return its cost."""
    report = folder / "cost.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(report), *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=folder,
    )
    assert report.exists(), done.stderr[-2000:]
    return Cost(**json.loads(report.read_text()), out=done.stdout, err=done.stderr)


def batch_of(
    payload: bytes, kind: CompressionType, *, offset: int, count: int = 1, stored: bytes = b""
) -> bytes:
    """Return a batch of `count` records with the bytes `payload`, or `stored` if that is given."""
    like = encode_batch([Record(offset, 1_700_000_000_000, None, b"")])
    (batch,) = batches(like)
    head = batch.head._replace(attributes=kind, record_count=count, last_offset_delta=count - 1)
    return seal(head, stored or compress(kind, payload))


def plain_batch(offset: int, *values: bytes) -> bytes:
    """Return an ordinary batch."""
    return encode_batch(
        [Record(offset + at, 1_700_000_000_000, None, value) for at, value in enumerate(values)]
    )


def same_batches(payload: bytes, count: int) -> list[bytes]:
    """Return batches of one record each, whose uncompressed bytes are `payload`."""
    kind = CompressionType.ZSTD
    stored = compress(kind, payload)
    return [batch_of(b"", kind, offset=offset, stored=stored) for offset in range(count)]


def record_bytes(value: bytes, *, offset_delta: int = 0) -> bytes:
    """Return one record as in an uncompressed batch."""
    return encode_records([Record(offset_delta, 0, None, value)], base_offset=0, base_timestamp_ms=0)


@dataclass(frozen=True, slots=True)
class World:
    """A tier and its metadata topic, both in folders."""

    folder: Path

    @property
    def metadata(self) -> Path:
        return self.folder / "metadata"

    @property
    def remote(self) -> Path:
        return self.folder / "remote"

    @property
    def where(self) -> tuple[str, ...]:
        """Options that name both."""
        return "--metadata", str(self.metadata), "--remote", str(self.remote)

    def partitions(self, count: int) -> "World":
        """Publish a segment of ten records in each of the first `count` partitions; return the world."""
        log = joined([plain_batch(offset, b"value") for offset in range(10)])
        for number in range(count):
            self.segment(number, log, end_offset=9, partition=number)
        return self

    def append(self, *values: bytes | MetadataEvent, partition: int = 0) -> None:
        """Append values to the metadata topic, events to the partition of their segments."""
        topic = topic_in(self.metadata, writable=True)
        count = topic.partition_count
        records: list[tuple[int, bytes]] = []
        for value in values:
            if isinstance(value, bytes):
                records.append((partition, value))
            else:
                number = metadata_partition(value.topic_id, value.partition, count)  # type: ignore[union-attr]
                records.append((number, encode(value)))
        topic.append(records)
        topic.close()

    def segment(
        self,
        number: int,
        log: bytes,
        *,
        end_offset: int,
        start_offset: int = 0,
        partition: int = 0,
        layout: SegmentLayout | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Copy a segment to the tier and publish it."""
        folder = self.folder / "local" / str(number)
        folder.mkdir(parents=True)
        path = folder / f"{start_offset:020d}.log"
        path.write_bytes(log)
        metadata = replace(
            metadata_of(number, partition=partition),
            start_offset=start_offset,
            end_offset=end_offset,
            segment_leader_epochs=((0, start_offset),),
            segment_size_in_bytes=len(log),
            txn_index_empty=True,
        )
        data = LogSegmentData(
            log_segment=hashed_file(path),
            indexes={
                IndexType.OFFSET: b"",
                IndexType.TIMESTAMP: b"",
                IndexType.TRANSACTION: None,
                IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot([]),
                IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
            },
        )
        custom = local_tier(self.remote, layout).copy_log_segment_data(metadata, data)
        self.append(
            metadata,
            replace(update_of(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED), custom_metadata=custom),
        )
        return metadata


def joined(parts: Sequence[bytes]) -> bytes:
    """Return a log of the batches."""
    return b"".join(parts)
