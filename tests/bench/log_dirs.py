"""Log directories of brokers with rolled segments, which `copy` copies."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tierctl.model import TopicPartition
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.bench import cache
from tests.locallog.made import TIME_MS, write_log

RECORD_BYTES = 1000
USER_PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The rolled segments of a topic, and the size of their batches."""

    segments: int
    segment_bytes: int = 64 << 20
    batch_bytes: int = 16 << 10

    def small(self) -> Self:
        """Return the same with a few small segments, for a row that is only tried out."""
        return replace(self, segments=USER_PARTITIONS, segment_bytes=1 << 16)

    def __str__(self) -> str:
        segments = f"{self.segments} × {self.segment_bytes >> 20} MiB and indexes"
        return f"{segments}, batches of {self.batch_bytes >> 10} KiB"


def log_dirs(logs: Logs) -> Path:
    """Return a folder with `logs/N`, the log directory of each user partition, and `topics.properties`."""
    records = max(logs.batch_bytes // RECORD_BYTES, 1)
    count = logs.segment_bytes // logs.batch_bytes
    firsts = range(0, logs.segments // USER_PARTITIONS * count * records, records)

    def make(folder: Path) -> None:
        value = os.urandom(RECORD_BYTES)
        batches = [
            encode_batch([Record(at, TIME_MS, None, value) for at in range(first, first + records)])
            for first in firsts
        ]
        for number in range(USER_PARTITIONS):
            write_log(
                folder / "logs" / str(number),
                [*(batches[at : at + count] for at in range(0, len(batches), count)), []],
                partition=TopicPartition("orders", number),
                snapshots=dict.fromkeys([*firsts[count::count], firsts.stop], ()),
                interval_bytes=4096,
            )
        (folder / "topics.properties").write_text("orders.remote.storage.enable=true\n")

    return cache.make_once("logs", make, logs, Path(__file__))
