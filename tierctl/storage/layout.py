"""Names of a segment's objects in a tier.

Layout `kafka` is LocalTieredStorage's:
`kafka-tiered-storage/<topic>-<partition>-<topicId>/<startOffset %020d>-<segmentId><suffix>`.
"""

import re
from dataclasses import dataclass

from tierctl.errors import SafetyRefusal
from tierctl.model import IndexType, RemoteLogSegmentMetadata, TopicIdPartition, Uuid, is_legal_topic_name

ROOT_FOLDER = "kafka-tiered-storage"

LOG_SUFFIX = ".log"
INDEX_SUFFIXES: dict[IndexType, str] = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES.values())

_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})-([A-Za-z0-9_-]{22})\Z")
_FILE = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """What the key of an object says; `suffix` is one of SUFFIXES."""

    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_id: Uuid
    suffix: str


def partition_folder(partition: TopicIdPartition) -> str:
    """The folder of a user partition's objects.

    Names come from metadata, which is data: SafetyRefusal for what could lead out of the tier.
    """
    legal = (
        is_legal_topic_name(partition.topic) and _ID.match(partition.topic_id) and partition.partition >= 0
    )
    if not legal:
        raise SafetyRefusal(
            f"not a legal topic partition for a path: {str(partition)!r}",
            hint="the metadata record that names it is wrong or hostile; look at it with tierctl format",
        )
    return f"{partition.topic}-{partition.partition}-{partition.topic_id}"


def key_stem(metadata: RemoteLogSegmentMetadata) -> str:
    """The key of the segment's objects, without suffix; SafetyRefusal as `partition_folder`."""
    folder = partition_folder(metadata.topic_id_partition)
    if metadata.start_offset < 0 or not _ID.match(metadata.segment_id):
        raise SafetyRefusal(
            f"not a legal segment for a path: {str(metadata.segment_id)!r} at offset {metadata.start_offset}",
            hint="the metadata record that names it is wrong or hostile; look at it with tierctl format",
        )
    return f"{ROOT_FOLDER}/{folder}/{metadata.start_offset:020d}-{metadata.segment_id}"


def keys_of(metadata: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    """Every key that the segment's objects can have, in the order of SUFFIXES."""
    stem = key_stem(metadata)
    return tuple(stem + suffix for suffix in SUFFIXES)


def parse_key(key: str) -> ObjectName | None:
    """What a key says, None when it is no object of this layout."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != ROOT_FOLDER:
        return None
    folder, file = _FOLDER.match(parts[1]), _FILE.match(parts[2])
    if folder is None or file is None or file[3] not in SUFFIXES:
        return None
    return ObjectName(
        topic_id_partition=TopicIdPartition(Uuid(folder[3]), folder[1], int(folder[2])),
        start_offset=int(file[1]),
        segment_id=Uuid(file[2]),
        suffix=file[3],
    )
