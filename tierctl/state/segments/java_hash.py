"""The JVM's hash codes and hash tables, which determine Kafka's order of segments with equal offsets."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tierctl.model import TopicIdPartition

_INT: Final = 0xFFFF_FFFF


def segment_hash(partition: TopicIdPartition, segment_id: bytes) -> int:
    """Return RemoteLogSegmentId.hashCode as an unsigned 32-bit number."""
    return (31 * (31 + _partition_hash(partition)) + _uuid_hash(segment_id)) & _INT


@lru_cache(maxsize=1024)
def _partition_hash(partition: TopicIdPartition) -> int:
    """Return TopicIdPartition.hashCode."""
    topic_partition = 31 * (31 + partition.partition) + _string_hash(partition.topic)
    return (31 * (31 + _uuid_hash(partition.topic_id.bytes)) + topic_partition) & _INT


def _uuid_hash(raw: bytes) -> int:
    """Return Uuid.hashCode."""
    mixed = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
    return (mixed >> 32 ^ mixed) & _INT


def _string_hash(text: str) -> int:
    """Return String.hashCode, computed over UTF-16 units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _INT
    return code


def in_bins(codes: Mapping[int, int], table_size: int) -> list[int]:
    """Return the keys of `codes` in the order in which a ConcurrentHashMap yields them.

    `codes` maps keys to hash codes, `table_size` is the number of bins; keys of one bin keep their order in
    `codes`. Bins of eight and more keys, which the JVM turns into trees, are treated like other bins.
    """
    return sorted(codes, key=lambda key: _spread(codes[key]) & (table_size - 1))


def split_bins(codes: Mapping[int, int], table_size: int) -> list[int]:
    """Return the keys in their order after ConcurrentHashMap.transfer doubles the table.

    Each bin splits in two. The longest run of keys at its end that goes to the same half keeps its order; the
    keys before the run are inserted at the front of their half one by one, and so in reverse order.
    """
    bins: dict[int, list[int]] = {}
    for key in codes:
        bins.setdefault(_spread(codes[key]) & (table_size - 1), []).append(key)
    order: list[int] = []
    for keys in bins.values():
        high = [bool(_spread(codes[key]) & table_size) for key in keys]
        run = len(keys) - 1
        while run > 0 and high[run - 1] == high[-1]:
            run -= 1
        halves: dict[bool, list[int]] = {False: [], True: []}
        halves[high[-1]] = keys[run:]
        for key, goes_high in zip(keys[:run], high, strict=False):
            halves[goes_high].insert(0, key)
        order += halves[False] + halves[True]
    return order


def _spread(code: int) -> int:
    """Return ConcurrentHashMap.spread of an unsigned 32-bit hash code."""
    return (code ^ (code >> 16)) & 0x7FFF_FFFF
