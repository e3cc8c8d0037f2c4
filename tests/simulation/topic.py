"""`__remote_log_metadata` in memory, and appends that fail or whose outcome is unknown."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from tierctl.errors import MetadataError, MetadataWriteFailed, MetadataWriteUnknown
from tierctl.model import ClusterIdentity, Uuid
from tierctl.wire.arrays import ByteSlices
from tierctl.wire.batches.segment_file import RecordChunk

from tests.simulation.cluster import CLUSTER_ID
from tests.simulation.store import Environment

TOPIC_ID = Uuid.from_bytes(b"metadata-topic-1")


@dataclass(slots=True)
class ModelTopic:
    """Implement MetadataTopic; `on_append` checks each record before it is written."""

    world: Environment
    partition_count: int
    on_append: Callable[[bytes], None]
    topic_id: Uuid | None = TOPIC_ID
    reads_side_by_side: bool = False
    _records: list[list[tuple[bytes, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self._records = [[] for _ in range(self.partition_count)]

    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(cluster_id=CLUSTER_ID, metadata_topic_id=self.topic_id)

    def _read_step(self, name: str) -> None:
        self.world.step(name)
        if self.world.fault("failed"):
            raise MetadataError(f"{name}: no broker answers")

    def beginning_offsets(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partition_count), 0)

    def end_offsets(self) -> dict[int, int]:
        self._read_step("end offsets")
        return {number: len(records) for number, records in enumerate(self._records)}

    def offsets_for_time(
        self,
        partitions: Collection[int],
        timestamp_ms: int,  # noqa: ARG002
    ) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        self._read_step("read")
        records = self._records[partition][start_offset:end_offset]
        if records:
            yield RecordChunk(
                partition,
                np.arange(start_offset, start_offset + len(records), dtype=np.int64),
                np.array([timestamp_ms for _, timestamp_ms in records], dtype=np.int64),
                ByteSlices.of(pa.array([value for value, _ in records], pa.binary())),
                start_offset + len(records),
            )

    def append(self, records: Sequence[tuple[int, bytes]]) -> list[int]:
        # The lease is valid for longer than a request takes, so nothing waits between check and append.
        self.world.step("append", may_wait=False)
        fault = self.world.fault("failed", "unknown", "half")
        if fault == "failed":
            raise MetadataWriteFailed("append: not enough replicas")
        written = records[: len(records) // 2] if fault == "half" else records
        offsets = [self.write(partition, value) for partition, value in written]
        if fault is not None:
            raise MetadataWriteUnknown("append: request timed out")
        self.world.step("append done")
        return offsets

    def write(self, partition: int, value: bytes) -> int:
        """Append one record without faults, also an event of the model broker."""
        self.on_append(value)
        self._records[partition].append((value, self.world.clock_ms))
        return len(self._records[partition]) - 1

    def close(self) -> None:
        """Do nothing."""
