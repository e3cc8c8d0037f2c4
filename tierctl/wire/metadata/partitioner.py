"""The metadata partition of a user partition's events (RemoteLogMetadataTopicPartitioner)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tierctl.model.ids import Uuid

Int64s = npt.NDArray[np.int64]

_MASK_32 = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995


def metadata_partition(topic_id: Uuid, partition: int, metadata_partitions: int) -> int:
    """Return the metadata partition, 0 to `metadata_partitions` - 1; the topic's name is not hashed."""
    (home,) = metadata_partitions_of(
        np.frombuffer(topic_id.bytes, np.uint8), np.array([partition]), metadata_partitions
    )
    return int(home)


def metadata_partitions_of(topic_ids: Any, partitions: Int64s, metadata_partitions: int) -> Int64s:
    """Return `metadata_partition` of many user partitions.

    Row i of `topic_ids` has the 16 bytes of the topic id of the user partition with number `partitions[i]`.
    """
    words = np.ascontiguousarray(topic_ids, dtype=np.uint8).reshape(-1, 16).view(">u8").astype(np.uint64)
    msb, lsb = (words[:, i] ^ (words[:, i] >> np.uint64(32)) for i in (0, 1))
    hashed = np.ones(len(words), dtype=np.uint64)
    for part in (lsb, msb, partitions.astype(np.uint64)):
        hashed = np.uint64(31) * hashed + part & np.uint64(_MASK_32)
    homes: Int64s = (_murmur2_of_words(hashed) & 0x7FFFFFFF).astype(np.int64) % metadata_partitions
    return homes


def _murmur2_of_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return Kafka's murmur2 (Utils.murmur2) of the four big-endian bytes of each word."""
    # The bytes are written big-endian and mixed little-endian.
    m = np.uint32(_MURMUR2_M)
    k = words.astype(np.uint32).byteswap() * m
    k = (k ^ (k >> np.uint32(24))) * m
    h = np.uint32(((_MURMUR2_SEED ^ 4) * _MURMUR2_M) & _MASK_32) ^ k
    h = (h ^ (h >> np.uint32(13))) * m
    mixed: npt.NDArray[np.uint32] = h ^ (h >> np.uint32(15))
    return mixed
