"""Open and read topics of a cluster for tests."""

from collections.abc import Sequence
from typing import Protocol

import pytest
from tierctl.metadata.server_properties import MetadataTopicSettings
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.metadata.topic.base import PartitionLog
from tierctl.metadata.topic.cluster_topic import ClusterTopic
from tierctl.wire.batches.segment_file import RecordChunk

from tests.support.broker import Broker


class Open(Protocol):
    """Open a topic of a broker for writing; `more` are client settings."""

    def __call__(
        self,
        broker: Broker,
        topic: str = METADATA_TOPIC,
        *,
        make: MetadataTopicSettings | None = None,
        **more: int,
    ) -> ClusterTopic: ...


def name_of(request: pytest.FixtureRequest) -> str:
    return "t-" + request.node.name.translate(dict.fromkeys(map(ord, "[]"), "-")).lower()


def rows(chunks: Sequence[RecordChunk]) -> list[tuple[int, int, bytes | None]]:
    """Return (offset, timestamp, value) of every record."""
    return [
        row
        for chunk in chunks
        for row in zip(
            chunk.offsets.tolist(), chunk.timestamps_ms.tolist(), chunk.values.to_pylist(), strict=True
        )
    ]


def missing(chunks: Sequence[RecordChunk]) -> list[tuple[int, int, bool]]:
    return [(bad.offset, bad.next_offset, bad.is_gap) for chunk in chunks for bad in chunk.damage]


def values(chunks: Sequence[RecordChunk]) -> list[bytes | None]:
    return [value for _, _, value in rows(chunks)]


def whole(topic: MetadataTopic, partition: int = 0) -> list[RecordChunk]:
    return list(topic.read(partition, topic.beginning_offsets()[partition], topic.end_offsets()[partition]))


def on_disk(broker: Broker, topic: str, partition: int = 0) -> list[RecordChunk]:
    """Return the records of a partition in the broker's files, read as a log directory."""
    log = PartitionLog(broker.log_dir / f"{topic}-{partition}", partition)
    return list(log.read(0, log.end_offset()))
