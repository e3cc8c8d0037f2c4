"""Parse the keys of listed objects and folders, in every layout.

`kafka`: `…/<topic>-<partition>-<topicId>/<start %020d>-<segmentId><suffix>`;
`aiven`: `{prefix}<topic>-<topicId>/<partition>/<start %020d>-<segmentId>.{log|indexes|rsm-manifest}`.
"""

import re

from tierctl.files import TEMP_SUFFIX
from tierctl.model import IndexType, ObjectPart, SegmentObjectName, Uuid
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES, LOG_SUFFIX

_FILE = r"/(\d{20})-([A-Za-z0-9_-]{22})(\.[a-z_-]+)\Z"
_KAFKA = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})" + _FILE)
_AIVEN = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(\d{1,10})" + _FILE)

_KAFKA_FOLDER = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})/\Z")
_AIVEN_FOLDER = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(?:(\d{1,10})/)?\Z")

_KAFKA_PARTS = {
    LOG_SUFFIX: ObjectPart.LOG,
    INDEX_SUFFIXES[IndexType.OFFSET]: ObjectPart.OFFSET,
    INDEX_SUFFIXES[IndexType.TIMESTAMP]: ObjectPart.TIMESTAMP,
    INDEX_SUFFIXES[IndexType.LEADER_EPOCH]: ObjectPart.LEADER_EPOCH,
    INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT]: ObjectPart.PRODUCER_SNAPSHOT,
    INDEX_SUFFIXES[IndexType.TRANSACTION]: ObjectPart.TRANSACTION,
}
_AIVEN_PARTS = {
    LOG_SUFFIX: ObjectPart.LOG,
    ".indexes": ObjectPart.INDEXES,
    ".rsm-manifest": ObjectPart.MANIFEST,
}


def segment_object_name(key: str) -> SegmentObjectName | None:
    """Parse the key of an object; return None if no layout gives such a key to a segment's object."""
    found = _KAFKA.match(key)
    if found is not None:
        partition, topic_id, start, segment_id, suffix = found.groups()
        part = _KAFKA_PARTS.get(suffix)
    else:
        found = _AIVEN.match(key)
        if found is None:
            return None
        topic_id, partition, start, segment_id, suffix = found.groups()
        part = _AIVEN_PARTS.get(suffix)
    if part is None:
        return None
    return SegmentObjectName(
        topic_id=Uuid(topic_id),
        partition=int(partition),
        start_offset=int(start),
        segment_id=Uuid(segment_id),
        part=part,
        stem=key.removesuffix(suffix),
    )


def owner_of_folder(folder: str) -> tuple[Uuid, int | None] | None:
    """Return the topic id, and the partition if one, whose segments belong in `folder`.

    Return None if `folder` is not the folder of a topic or partition in any layout. Objects below
    `folder` may still have the ids of other topics in their names.
    """
    found = _KAFKA_FOLDER.match(folder)
    if found is not None:
        return Uuid(found[2]), int(found[1])
    found = _AIVEN_FOLDER.match(folder)
    if found is None:
        return None
    return Uuid(found[1]), None if found[2] is None else int(found[2])


def is_temporary(key: str) -> bool:
    """Return whether the key is a temporary name of a segment's object, used while the object is written."""
    return key.endswith(TEMP_SUFFIX) and segment_object_name(key.removesuffix(TEMP_SUFFIX)) is not None
