"""The metadata partition of a user partition's events (RemoteLogMetadataTopicPartitioner)."""

from tierctl.model.ids import Uuid

_MASK_32 = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995


def metadata_partition(topic_id: Uuid, partition: int, metadata_partitions: int) -> int:
    """Return the metadata partition, 0 to `metadata_partitions` - 1; the topic's name is not hashed."""
    raw = topic_id.bytes
    msb, lsb = int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")
    hashed = 1
    for part in (lsb ^ (lsb >> 32), msb ^ (msb >> 32), partition):
        hashed = (31 * hashed + part) & _MASK_32
    return (_murmur2_of_word(hashed) & 0x7FFFFFFF) % metadata_partitions


def _murmur2_of_word(word: int) -> int:
    """Return Kafka's murmur2 (Utils.murmur2) of the four big-endian bytes of `word`."""
    # The bytes are written big-endian and mixed little-endian.
    k = int.from_bytes(word.to_bytes(4, "big"), "little")
    k = (k * _MURMUR2_M) & _MASK_32
    k ^= k >> 24
    k = (k * _MURMUR2_M) & _MASK_32
    h = _MURMUR2_SEED ^ 4
    h = ((h * _MURMUR2_M) & _MASK_32) ^ k
    h ^= h >> 13
    h = (h * _MURMUR2_M) & _MASK_32
    return h ^ (h >> 15)
