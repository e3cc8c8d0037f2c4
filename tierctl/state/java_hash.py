"""Hash codes as the JVM computes them: they decide in which order Kafka lists segments of equal offsets."""

from functools import lru_cache
from typing import Final

from tierctl.model import TopicIdPartition

_INT: Final = 0xFFFF_FFFF


def segment_hash(partition: TopicIdPartition, segment_id: bytes) -> int:
    """RemoteLogSegmentId.hashCode as an unsigned 32-bit number."""
    return (31 * (31 + _partition_hash(partition)) + _uuid_hash(segment_id)) & _INT


@lru_cache(maxsize=1024)
def _partition_hash(partition: TopicIdPartition) -> int:
    """TopicIdPartition.hashCode."""
    topic_partition = 31 * (31 + partition.partition) + _string_hash(partition.topic)
    return (31 * (31 + _uuid_hash(partition.topic_id.bytes)) + topic_partition) & _INT


def _uuid_hash(raw: bytes) -> int:
    """Uuid.hashCode."""
    mixed = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
    return (mixed >> 32 ^ mixed) & _INT


def _string_hash(text: str) -> int:
    """String.hashCode, over UTF-16 units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _INT
    return code
